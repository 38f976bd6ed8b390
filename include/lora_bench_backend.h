/* The door through which your kernel comes into lora-bench: a shared library that exports
 *
 *     const lora_bench_descriptor* lora_bench_backend(void);
 *
 * and is named on the command line: `lora-bench run smoke --backends ./libmine.so`.
 * docs/your-kernel.md walks through it; examples/plugin/ holds complete kernels.
 *
 * Plain C, nothing else is needed. Sizes and strides are counted in elements, never in bytes.
 * Products of sizes exceed 32 bits: compute them in int64_t. */
#ifndef LORA_BENCH_BACKEND_H
#define LORA_BENCH_BACKEND_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a field that stands here moves or changes its meaning. New fields are appended:
 * every struct begins with its size as the side that filled it knows it. */
#define LORA_BENCH_BACKEND_ABI 2

/* Enumerations are int32_t in the structs, so that their size is the same for every compiler. */
/* lora_bench_problem.op */
enum {
  LORA_BENCH_SHRINK = 0,    /* h = x A^T; the result is h */
  LORA_BENCH_EXPAND = 1,    /* y (+)= h B^T; h is given */
  LORA_BENCH_LINEAR = 2,    /* both; h is room for yours, of `h_dtype`; nobody looks
                             * at it, but gaps of h_stride stay unwritten */
  LORA_BENCH_EMBEDDING = 3, /* as expand */
  LORA_BENCH_LOGITS = 4     /* as linear, one slice, rows are the sampled ones */
};
/* dtypes */
enum { LORA_BENCH_FP32 = 0, LORA_BENCH_BF16 = 1, LORA_BENCH_FP16 = 2 };
/* ... of x, A, B and a given h alone, with scales: OCP e4m3 (no infinity, largest 448) and e5m2 */
enum { LORA_BENCH_E4M3 = 3, LORA_BENCH_E5M2 = 4 };
/* lora_bench_problem.scale_at: where the scale of an adapter is multiplied in */
enum { LORA_BENCH_SCALE_AT_SHRINK = 0, LORA_BENCH_SCALE_AT_EXPAND = 1 };
/* lora_bench_metadata.form: the index arrays that published kernels take a batch in */
enum {
  LORA_BENCH_FORM_KERNEL = 0,
  LORA_BENCH_FORM_PREFILL = 1,
  LORA_BENCH_FORM_SAMPLER = 2,
  LORA_BENCH_FORM_EMBEDDING = 3,
  LORA_BENCH_FORM_CHUNKED = 4,
  LORA_BENCH_FORM_ALIGN = 5
};
/* lora_bench_numerics.bias_added: how the bias comes to y */
enum {
  LORA_BENCH_BIAS_WITH_DELTA = 0, /* in one sum with delta */
  LORA_BENCH_BIAS_BEFORE = 1,     /* y + bias is rounded to y_dtype, then delta is added */
  LORA_BENCH_BIAS_AFTER = 2       /* y + delta is rounded to y_dtype, then the bias is added */
};
/* lora_bench_descriptor.takes, bits: what a step may ask beyond the plain op. A library that does not
 * name one is never given such a step; its row is SKIPPED with a sentence. */
enum {
  LORA_BENCH_TAKES_ZEROED_IDLE_ROWS = 1 << 0,    /* lora_bench_problem.zeroes_idle_rows */
  LORA_BENCH_TAKES_ADDING_SHRINK = 1 << 1,       /* lora_bench_problem.adds_to_h */
  LORA_BENCH_TAKES_BIAS_OF_SOME_SLICES = 1 << 2, /* lora_bench_operands.bias[i] may be NULL beside
                                                  * others that are not */
  LORA_BENCH_TAKES_RANK0_BIAS = 1 << 3,          /* lora_bench_problem.rank0_bias */
  LORA_BENCH_TAKES_OTHER_DTYPES = 1 << 4,        /* a_dtype, b_dtype and bias_dtype that are not
                                                  * those of x and y */
  LORA_BENCH_TAKES_OWN_INPUTS = 1 << 5,          /* lora_bench_problem.own_inputs */
  LORA_BENCH_TAKES_KERNEL_FORM = 1 << 6,         /* lora_bench_problem.plan_form is _PLAN_KERNEL */
  LORA_BENCH_TAKES_CHUNKED_FORM = 1 << 7,        /* the same of _PLAN_CHUNKED */
  LORA_BENCH_TAKES_OTHER_LAYOUTS = 1 << 8,       /* lora_bench_problem.placing and the strides behind
                                                  * it */
  LORA_BENCH_TAKES_SCALED_WEIGHTS = 1 << 9,      /* A and B of eight bits: lora_bench_problem.weights_scale */
  LORA_BENCH_TAKES_SCALED_ACTIVATIONS = 1 << 10, /* x of eight bits: lora_bench_problem.x_scale_rows */
  LORA_BENCH_TAKES_SCALED_H = 1 << 11,           /* op expand with an h of eight bits:
                                                  * lora_bench_problem.h_scale_rows */
  LORA_BENCH_TAKES_QUANTISED_H = 1 << 12,        /* op linear with an x of eight bits, and an h that is
                                                  * quantised between the sums:
                                                  * lora_bench_problem.quantises_h */
  LORA_BENCH_TAKES_SHARED_X = 1 << 13,           /* the rows of a token read one row of x:
                                                  * lora_bench_problem.shares_x */
  LORA_BENCH_TAKES_ROW_FACTORS = 1 << 14,        /* the delta of each row has a factor:
                                                  * lora_bench_problem.has_factors */
  LORA_BENCH_READS_PADDING = 1 << 30             /* no step of its own: the library reads lanes at or
                                                  * above a rank that is not 0, and is given steps
                                                  * alone where these are zero. Adapters of rank 0
                                                  * hold NaN all the same: leave their rows alone */
};
/* lora_bench_problem.plan_form: which index arrays lora_bench_operands has; docs/plan.md shows them */
enum { LORA_BENCH_PLAN_SORTED = 0, LORA_BENCH_PLAN_KERNEL = 1, LORA_BENCH_PLAN_CHUNKED = 2 };
/* lora_bench_problem.placing: where slice i of slot s begins, from a[i], b[i], bias[i] and h on, and of
 * row t: r is the adapter's rank, N the sum of all widths. Of STACKED the addresses of the slices
 * differ already; of PACKED all a[i] are one.
 *             a                            b                 bias         h
 *   SEPARATE  s max_rank a_stride          s N_i b_stride    s N_i        (i tokens + t) h_stride
 *   STACKED   s slices max_rank a_stride   s N b_stride      s N          t h_stride + i max_rank
 *   PACKED    (s slices max_rank + i r) a_stride             as STACKED   t h_stride + i r */
enum { LORA_BENCH_SEPARATE = 0, LORA_BENCH_STACKED = 1, LORA_BENCH_PACKED = 2 };
/* lora_bench_problem.weights_scale: which numbers of A, and of B, of a slot and slice have a scale in
 * common. A row is a lane of A or an output of B, a column an element of it. Number (n, k) of slot s
 * stands for itself times scales[(s * down + n / block_rows) * across + k / block_columns], where down
 * and across are the blocks of a slot, whole ones or not: of A ceil(max_rank / block_rows) and
 * ceil(in_features / block_columns), of B ceil(widths[i] / block_rows) and
 * ceil(max_rank / block_columns). A block_rows or block_columns of 0 is one block of all. */
enum {
  LORA_BENCH_WEIGHTS_UNSCALED = 0,
  LORA_BENCH_WEIGHTS_BY_TENSOR = 1,
  LORA_BENCH_WEIGHTS_BY_CHANNEL = 2,
  LORA_BENCH_WEIGHTS_BY_BLOCK = 3
};
/* lora_bench_descriptor.space: where operands lie, and who runs the kernel */
enum { LORA_BENCH_HOST = 0, LORA_BENCH_CUDA = 1 };

/* One step without its addresses. Lives in host memory and only for the call it is passed to. */
typedef struct lora_bench_problem {
  uint32_t struct_size;  /* of this struct as the caller knows it */
  int32_t op;            /* LORA_BENCH_SHRINK ... */
  int32_t x_dtype;       /* LORA_BENCH_FP32 ... of each operand, whether the op has it or not; */
  int32_t a_dtype;       /* x and y have one, and a, b and bias that or, where `takes` says so,
                          * another of their own */
  int32_t b_dtype;
  int32_t bias_dtype;
  int32_t h_dtype;       /* in every op: a linear case has an h of 16 bits too */
  int32_t y_dtype;
  int32_t scale_at;      /* LORA_BENCH_SCALE_AT_SHRINK or _EXPAND; an op of one half applies the
                          * scale only if it is that half */
  int32_t add_inputs;    /* 1: y += delta; 0: y = delta, in rows with an adapter of rank > 0 */
  int32_t has_bias;      /* 1: delta includes bias[slice][adapter], unscaled */
  int32_t reserved;      /* 0 */
  int64_t tokens;        /* M: rows of x, y and h */
  int64_t in_features;   /* K: columns of x that belong to a row */
  int64_t offset_start;  /* first column of y that slice 0 owns */
  int64_t x_stride;      /* elements from a row of x to the next, >= in_features */
  int64_t y_stride;      /* the same of y */
  int64_t slots;         /* adapters resident */
  int64_t max_rank;      /* lanes stored of each adapter; those at or above its rank hold NaN */
  int64_t slices;        /* output blocks of the layer */
  const int64_t* widths; /* [slices] columns of each, may be 0; they stand side by side in y */
  const int64_t* rank;   /* [slots] 0 .. max_rank; a rank of 0 is an adapter that does nothing */
  /* The plan in host memory, equal to the arrays of the same names in lora_bench_operands: for
   * grids and tiles. A captured graph does not see it change (declare graph_safe = 0 if your
   * launch reads it for more than shapes). */
  int64_t active;                  /* adapters that the batch touches */
  int64_t rows_with_adapter;       /* the rows in the groups below */
  const int32_t* adapter_of_token; /* [tokens] slot, or -1: the row of y stays as it is */
  const int32_t* token_order;      /* [tokens] rows grouped by adapter; rows of -1 come last */
  const int32_t* active_ids;       /* [active] ascending */
  const int32_t* group_starts;     /* [active + 1] offsets into token_order */

  /* What follows was appended, and all but `groups` and the strides is 0 for a library that names
   * none of it in `takes`. */
  int32_t zeroes_idle_rows; /* 1: rows that no adapter acts on (-1, or of rank 0) get zeros in the
                             * columns that slices own; else they stay as they are */
  int32_t adds_to_h;        /* 1, of op shrink: h holds numbers and is added to */
  int32_t rank0_bias;       /* 1: an adapter of rank 0 acts on its rows too: delta is its bias */
  int32_t own_inputs;       /* 1: each slice has an x of its own: [slices, tokens, x_stride] */
  int32_t plan_form;        /* LORA_BENCH_PLAN_SORTED ...; of the others token_order, active_ids,
                             * group_starts and rank of lora_bench_operands are laid out as
                             * docs/plan.md says, those of this struct stay sorted */
  int32_t idle_segments;    /* of form chunked: 1: rows without an adapter have segments of slot
                             * `slots`, and lora_bench_operands.rank has one more entry, 0 */
  int64_t groups;           /* entries of active_ids that a launch has to look at: for the batch, or
                             * with plan.grid slots for any batch over these slots */
  int64_t chunk;            /* of form chunked: most rows of a segment; else 0 */
  int32_t placing;          /* LORA_BENCH_SEPARATE ..., how slices lie: see that enum */
  int32_t reserved_too;     /* 0 */
  /* Elements from one to the next, with the least in brackets, which a library has that does not
   * name LORA_BENCH_TAKES_OTHER_LAYOUTS. */
  int64_t x_column_stride;  /* column of x [1] */
  int64_t a_stride;         /* lane of A [in_features] */
  int64_t b_stride;         /* output of B [max_rank] */
  int64_t h_stride;         /* row of h [max_rank; of all slices where they are not SEPARATE] */

  /* What follows was appended later, and is 0 for a library that does not name
   * LORA_BENCH_TAKES_SCALED_WEIGHTS. */
  int32_t weights_scale;    /* LORA_BENCH_WEIGHTS_UNSCALED ... */
  int32_t reserved_as_well; /* 0 */
  int64_t block_rows;       /* 0: all, 1: by channel */
  int64_t block_columns;

  /* What follows was appended later, and is 0 for a library that does not name
   * LORA_BENCH_TAKES_SCALED_ACTIVATIONS, and where x has no scales. */
  int64_t x_scale_rows;     /* rows of lora_bench_operands.x_scale: `tokens`, or 1: all have one */
  int64_t x_scale_columns;  /* scales in each row: ceil(in_features / x_group), or 1 */
  int64_t x_group;          /* element k of a row of x has scale k / x_group of its row; 0: all have
                             * one */

  /* What follows was appended later, and is 0 for a library that does not name
   * LORA_BENCH_TAKES_SCALED_H, and where h has no scales. */
  int64_t h_scale_rows;     /* rows of each slice of lora_bench_operands.h_scale: `tokens`, or 1: all
                             * have one */
  int64_t h_scale_columns;  /* scales in each row: ceil(max_rank / h_group), or 1 */
  int64_t h_group;          /* lane l of a row of h has scale l / h_group of its row; 0: all have one */

  /* What follows was appended later, and is 0 for a library that does not name
   * LORA_BENCH_TAKES_QUANTISED_H, and where h is not quantised. With quantises_h what the first sum
   * makes, times the adapter's scale with LORA_BENCH_SCALE_AT_SHRINK, becomes codes of h_code_dtype
   * with scales as in lora_bench_quantise, before the second sum: in each row of each slice the
   * lanes below the rank, each h_group of them with a scale, 0: all of them with one. The codes lie
   * where you want them; h is room of fp32. */
  int32_t quantises_h;
  int32_t h_code_dtype; /* LORA_BENCH_E4M3 or LORA_BENCH_E5M2 */
  int32_t h_multiply;   /* 0: divide */
  int32_t h_power_of_two;
  float h_least_amax;
  float h_least_scale;

  /* What follows was appended later. In a layer of experts a row is a pair, a token and one of the
   * `choices` experts that it chose, and its slot is adapter x experts + expert; pairs of a token
   * need not follow each other. A step without experts has 1 of each. */
  int64_t experts;
  int64_t choices;
  int64_t x_rows;      /* rows of lora_bench_operands.x: `tokens`, or fewer with shares_x */
  int32_t shares_x;    /* 1: row i reads row token_of_row[i] of x; 0 for a library that does not name
                        * LORA_BENCH_TAKES_SHARED_X */
  int32_t has_factors; /* 1: the delta of row i is multiplied by factor[i], in the expand; 0 for a
                        * library that does not name LORA_BENCH_TAKES_ROW_FACTORS */
} lora_bench_problem;

/* Shapes are those of operands that lie apart and without gaps; see `placing` for others.
 * Addresses in the memory of the backend's space, aligned to 4 bytes for int32_t and float and to
 * no more than their own element else. NULL where the op has no such operand or it is empty. Write
 * nothing but h, y and workspace, and of y only the columns and rows that are owned. */
typedef struct lora_bench_operands {
  uint32_t struct_size;
  uint32_t reserved;               /* 0 */
  const void* x;                   /* [tokens, x_stride]; see own_inputs */
  const void* const* a;            /* [slices] host array of addresses: [slots, max_rank, K] */
  const void* const* b;            /* the same: [slots, widths[i], max_rank] */
  const void* const* bias;         /* the same: [slots, widths[i]]; NULL without has_bias, and of a
                                    * slice that has none */
  void* h;                         /* [slices, tokens, max_rank] of `h_dtype`; lanes at or above a rank,
                                    * and rows without an adapter, may hold anything afterwards;
                                    * with adds_to_h they stay as they are, but for those of a slice
                                    * of width 0 */
  void* y;                         /* [tokens, y_stride] */
  void* workspace;                 /* workspace_bytes(), on 256 bytes; holds anything */
  const int32_t* adapter_of_token; /* the plan, see lora_bench_problem */
  const int32_t* token_order;
  const int32_t* active_ids;   /* may be longer, up to [slots + 1]: -1 from [active] on */
  const int32_t* group_starts; /* likewise, up to [slots + 2]: the last number again */
  const int32_t* rank; /* [slots] */
  const float* scale;  /* [slots] */

  /* What follows was appended. */
  void* prepared; /* prepared_bytes(), on 256 bytes; what prepare() left there */
  /* The scales of weights of eight bits: [slices] host arrays of addresses of fp32 numbers, in the
   * order that weights_scale tells, without gaps wherever A and B lie; NULL without. Those of no lane
   * below an adapter's rank are NaN. */
  const void* const* a_scale;
  const void* const* b_scale;
  /* Of an x of eight bits: [x_scale_rows, x_scale_columns] of fp32, without gaps, and with
   * own_inputs such an array for each slice, one behind the other; NULL without. Those of a row
   * without an adapter are NaN. */
  const void* x_scale;
  /* Of an h of eight bits: [slices, h_scale_rows, h_scale_columns] of fp32, without gaps wherever h
   * lies: every slice has scales of its own. NULL without. Those of a row without an adapter, and of
   * no lane below its rank, are NaN. */
  const void* h_scale;
  const int32_t* token_of_row; /* [tokens]; NULL without shares_x */
  const float* factor;         /* [tokens]; NULL without has_factors. Those of a row without an
                                * adapter are NaN. */
} lora_bench_operands;

/* What you promise about your arithmetic. The error bound that a result must meet and the relations
 * that it must keep follow from it. It is filled with the values in [brackets] before you see it.
 */
typedef struct lora_bench_numerics {
  uint32_t struct_size;
  int32_t partial;         /* dtype in which partial sums are stored [fp32] */
  int32_t intermediate;    /* dtype in which you keep h between the halves [the problem's; fp32
                            * beside a given h of eight bits; with quantises_h h_code_dtype, or what
                            * you keep h in instead of quantising it] */
  int32_t rounds_delta;    /* 1: delta is rounded to y_dtype before it is added to y [0] */
  int32_t deterministic;   /* 1: twice the same call gives the same bits [1] */
  int32_t batch_invariant; /* 1: a row's bits do not depend on the rows around it [1] */
  int32_t graph_safe;      /* 1: may be captured into a CUDA graph and replayed [1] */
  /* 1: what was captured serves every batch of as many tokens over these slots and this max_rank:
   * your launch takes neither the plan nor ranks from lora_bench_problem, but from the arrays of
   * lora_bench_operands, which are long enough for every slot then [0] */
  int32_t replays_other_batches;
  double unit_roundoff; /* of one accumulation: 0x1p-24 for fp32, 0x1p-23 on tensor cores
                         * [0x1p-24] */
  int64_t shrink_depth; /* additions on the longest path of a sum over K [K] */
  int64_t expand_depth; /* the same over the rank, bias and y included [max_rank + 2] */
  int64_t partials;     /* partial sums that meet in one element of h; 1 is the whole sum [1] */
  char summation[128];  /* one line for people, a column of the row [""] */

  /* What follows was appended. */
  int32_t casts_h;    /* 1: h is rounded to b_dtype (with scales: to y_dtype) before it is multiplied
                       * with B [0] */
  int32_t bias_added; /* LORA_BENCH_BIAS_WITH_DELTA ... [LORA_BENCH_BIAS_WITH_DELTA] */
} lora_bench_numerics;

/* The machine, for supports(). */
typedef struct lora_bench_device {
  uint32_t struct_size;
  int32_t compute_capability; /* 90 for 9.0; 0 on the host */
  int32_t multiprocessors;    /* SMs, or cores */
  int32_t reserved;           /* 0 */
  int64_t cache_bytes;        /* L2, or the last level */
  int64_t memory_bytes;
} lora_bench_device;

/* An array of a step of op metadata. */
typedef struct lora_bench_array {
  const char* name;      /* "token_order", as docs/plan.md has it */
  int64_t elements;
  int32_t element_bytes; /* 4 or 8 */
  int32_t is_float;      /* 1: float; 0: integers */
} lora_bench_array;

/* One step of op metadata: docs/plan.md, "As an op", lists the arrays of each form in their order,
 * with types and sizes, and says which entries are promised. Addresses are those of the backend's
 * space and aligned to one entry; NULL in `inputs` and `outputs` when supports_metadata is asked.
 * Write nothing but the outputs. */
typedef struct lora_bench_metadata {
  uint32_t struct_size;
  int32_t form;             /* LORA_BENCH_FORM_KERNEL ... */
  int64_t tokens;           /* rows; those that a step has not have request -1 */
  int64_t samples;          /* rows whose logits are taken */
  int64_t requests;         /* entries of the table from request to slot */
  int64_t slots;            /* adapters resident */
  int64_t vocabulary;       /* of form embedding: rows of the base's table, */
  int64_t extra_vocabulary; /* and those that an adapter may add */
  int64_t chunk;            /* of form chunked: most rows of a segment, */
  int64_t most_segments;    /* and segments that there is room for */
  int32_t idle_segments;    /* 1: rows without an adapter have segments of slot `slots` */
  int32_t reserved;         /* 0 */
  const void* const* inputs; /* host array: the requests of the rows, the slots of the requests, and
                              * of form chunked rank (int32_t) and scale (float) of each slot,
                              * of form align the experts of each token, -1: elsewhere */
  void* const* outputs;      /* host array: the arrays of the form */

  /* What follows was appended: what lies at these addresses, in the same order. */
  int64_t input_count;
  int64_t output_count;
  const lora_bench_array* input_arrays;
  const lora_bench_array* output_arrays;
  int64_t experts;    /* of form align, else 0: experts that tokens choose from, */
  int64_t top_k;      /* experts of a token, */
  int64_t block;      /* pairs of a token and an expert that lists are padded to, */
  int64_t most_pairs; /* and places of the list of a slot, a multiple of block */
} lora_bench_metadata;

/* One step of op quantise: x as numbers of eight bits with scales, one for each row and run of
 * `group` columns, or one for all. For each scale, every operation rounded to fp32: amax = max(|x|,
 * least_amax); scale = max(amax / largest, least_scale), with power_of_two the least power of two
 * that is not below it; then a number is x / scale, with multiply x times the nearest of 1 / scale,
 * held between -largest and largest, and rounded to the nearest code, at a tie to the even one.
 * Largest is 448 of e4m3, 57344 of e5m2. Codes are compared bit for bit. Addresses are those of the
 * backend's space and aligned to one element; NULL when supports_quantise is asked. Write nothing
 * but q and q_scale. */
typedef struct lora_bench_quantise {
  uint32_t struct_size;
  int32_t x_dtype;       /* LORA_BENCH_FP32 ... of 16 and 32 bits */
  int32_t q_dtype;       /* LORA_BENCH_E4M3 or LORA_BENCH_E5M2 */
  int32_t multiply;      /* 0: divide */
  int32_t power_of_two;
  float least_amax;
  float least_scale;
  int32_t scales_given;  /* 1: by x_scale; 0: you make q_scale */
  int64_t rows;
  int64_t columns;
  int64_t x_stride;      /* elements from a row of x to the next; gaps hold anything */
  int64_t scale_rows;    /* `rows`, or 1: all rows have one scale */
  int64_t scale_columns; /* ceil(columns / group) */
  int64_t group;         /* column k has scale k / group of its row */
  const void* x;         /* [rows, x_stride] */
  const float* x_scale;  /* [scale_rows, scale_columns] with scales_given, else NULL */
  void* q;               /* [rows, columns], one byte each */
  float* q_scale;        /* [scale_rows, scale_columns] without scales_given, else NULL */
} lora_bench_quantise;

/* What the library is. Static: it must stay valid and unchanged until the program ends. Functions
 * may be called from any thread, but never two at once. None may throw, exit or print to stdout. */
typedef struct lora_bench_descriptor {
  uint32_t abi_version; /* LORA_BENCH_BACKEND_ABI */
  uint32_t struct_size; /* sizeof(lora_bench_descriptor) */
  const char* name;     /* for messages */
  const char* summary;  /* one line: the scheme */
  int32_t space;        /* LORA_BENCH_HOST or LORA_BENCH_CUDA */
  int32_t reserved;     /* 0 */

  /* 0 = can do it; else a sentence in `why` (of `why_bytes`), and the row is SKIPPED with it. */
  int32_t (*supports)(const lora_bench_problem* problem, const lora_bench_device* device, char* why,
                      int64_t why_bytes);

  /* Changes what the defaults do not say. NULL: all defaults hold. */
  void (*numerics)(const lora_bench_problem* problem, lora_bench_numerics* numerics);

  /* Bytes of operands.workspace. NULL: none. */
  int64_t (*workspace_bytes)(const lora_bench_problem* problem);

  /* Does the op, or enqueues it on `stream` (a cudaStream_t; NULL on the host) and on no other,
   * without waiting. Nothing of it may read host memory once it returned. The kernel before it on
   * the stream may still be writing x, h and y where yours takes an early start (programmatic
   * dependent launch); weights, plan, ranks and scales are older. 0 = done; else a sentence in
   * `error`: the row says ERROR with it, and the run goes on. */
  int32_t (*launch)(const lora_bench_problem* problem, const lora_bench_operands* operands,
                    void* stream, char* error, int64_t error_bytes);

  /* What follows was appended: a library whose struct_size ends before it has none of it. */

  /* As supports() and launch(), of op metadata. A launch may be captured and replayed for other
   * steps of the same sizes. NULL metadata: the library makes none. NULL supports_metadata: every
   * form. */
  int32_t (*supports_metadata)(const lora_bench_metadata* step, const lora_bench_device* device,
                               char* why, int64_t why_bytes);
  int32_t (*metadata)(const lora_bench_metadata* step, void* stream, char* error,
                      int64_t error_bytes);

  uint64_t takes; /* LORA_BENCH_TAKES_ZEROED_IDLE_ROWS | ... */

  /* Bytes of operands.prepared: the weights as you want them, beside each set of operands. NULL:
   * none, you take them as they lie. prepare() makes them, from a, b, bias, their scales, rank and
   * scale, which are all that it is given: both see a problem whose rows have no adapter. It enqueues
   * as launch() does, and is called before launches, after any of these has changed, and at other
   * times too, in no time that is taken. What it leaves may be copied to where a launch finds it,
   * beside a, b and bias at other addresses: it holds no addresses. launch() reads it and writes
   * nothing there. */
  int64_t (*prepared_bytes)(const lora_bench_problem* problem);
  int32_t (*prepare)(const lora_bench_problem* problem, const lora_bench_operands* operands,
                     void* stream, char* error, int64_t error_bytes);

  int32_t slow_to_launch; /* 1: a launch takes the host so long that timing makes it twice for each
                           * set of operands, and repeats what the second recorded [0] */
  int32_t reserved_too;   /* 0 */

  /* As supports() and launch(), of op quantise. A launch may be captured and replayed for other
   * numbers. NULL quantise: the library does not quantise. NULL supports_quantise: every step. */
  int32_t (*supports_quantise)(const lora_bench_quantise* step, const lora_bench_device* device,
                               char* why, int64_t why_bytes);
  int32_t (*quantise)(const lora_bench_quantise* step, void* stream, char* error,
                      int64_t error_bytes);
} lora_bench_descriptor;

typedef const lora_bench_descriptor* (*lora_bench_backend_function)(void);

/* The one symbol that the library exports. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const lora_bench_descriptor*
lora_bench_backend(void);

#ifdef __cplusplus
}
#endif

#endif
