#pragma once

#include <cstdint>
#include <type_traits>

// Every parameter struct of every kernel family: passed by value, so that a captured graph needs
// no memory of the host. Strides and sizes are elements; anything that multiplies two sizes is
// 64-bit. The semantics that all families share:
//   - a row whose adapter is -1 or has rank 0 is not written, neither in h nor in y, unless more is
//     asked (rank0_bias, kernels/idle);
//   - of A, B and h only lanes below the adapter's own rank are read or written;
//   - columns of y that no slice owns are not touched.
namespace lora_bench::kernels {

constexpr int kMaxSlices = 16;
// Of the adapters whose part a base product adds: it was proved and tuned for no more.
constexpr int kMaxFusedSlices = 8;

// Storage of operands.
enum class Number : std::uint8_t { kFp32, kBf16, kFp16 };

// h = scale * x A^T, overwriting h, or added to it (of the family naive alone).
struct ShrinkParams {
  const void* x = nullptr;                         // [tokens, x_stride]
  const void* a[kMaxSlices] = {};                  // each [slots, max_rank, in_features]
  void* h = nullptr;                               // [slices, tokens, max_rank]
  const std::int32_t* adapter_of_token = nullptr;  // [tokens], -1 = none
  const std::int32_t* token_order = nullptr;       // [tokens], rows grouped by adapter
  const std::int32_t* active_ids = nullptr;        // [active]
  const std::int32_t* group_starts = nullptr;      // [active + 1], offsets into token_order
  const std::int32_t* rank = nullptr;              // [slots]
  const float* scale = nullptr;                    // [slots]; null: not scaled here
  const std::int32_t* token_of_row = nullptr;      // [tokens], rows of x; null: a row has its own
  std::int64_t tokens = 0;
  std::int64_t in_features = 0;
  std::int64_t x_stride = 0;
  std::int64_t x_slice_stride =
      0;  // of the family naive: from one slice's x to the next; 0: shared
  std::int64_t max_rank = 0;
  std::int32_t slices = 0;
  std::int32_t active = 0;
  bool adds = false;
};

// y (+)= scale * h B^T (+ bias).
struct ExpandParams {
  const void* h = nullptr;                         // [slices, tokens, max_rank]
  const void* b[kMaxSlices] = {};                  // each [slots, width, max_rank]; null: width 0
  const void* bias[kMaxSlices] = {};               // each [slots, width]; null: no bias
  void* y = nullptr;                               // [tokens, y_stride]
  const std::int32_t* adapter_of_token = nullptr;  // [tokens], -1 = none
  const std::int32_t* token_order = nullptr;       // [tokens], rows grouped by adapter
  const std::int32_t* active_ids = nullptr;        // [active]
  const std::int32_t* group_starts = nullptr;      // [active + 1], offsets into token_order
  const std::int32_t* rank = nullptr;              // [slots]
  const float* scale = nullptr;                    // [slots]; null: not scaled here
  const float* factor = nullptr;                   // [tokens], of the delta of a row; null: 1
  std::int64_t tokens = 0;
  std::int64_t max_rank = 0;
  std::int64_t y_stride = 0;
  std::int64_t first_column = 0;        // of slice 0 in y; the slices follow without gaps
  std::int64_t width[kMaxSlices] = {};  // may be 0
  std::int64_t columns = 0;             // sum of the widths
  std::int32_t slices = 0;
  std::int32_t active = 0;
  bool add_inputs = false;
  bool rank0_bias = false;  // of the family naive: an adapter of rank 0 adds its bias
};

// Of A and B of eight bits: each number is multiplied with the scale of its slot, or of its row, a
// lane of A or a column of B.
struct WeightScales {
  const float* a[kMaxSlices] = {};  // each [slots], or [slots, max_rank]
  const float* b[kMaxSlices] = {};  // each [slots], or [slots, width]
  bool of_rows = false;
  bool e5m2 = false;  // else e4m3
};

// The rows of a batch grouped by adapter: groups in ascending id, rows of a group in their order,
// rows without an adapter last and in no group. Ids outside -1 .. slots - 1 count as -1.
struct PlanParams {
  const std::int32_t* adapter_of_token = nullptr;  // [tokens]
  std::int32_t* token_order = nullptr;             // [tokens]
  std::int32_t* active_ids = nullptr;              // [slots + 1], -1 after the active ones
  std::int32_t* group_starts = nullptr;            // [slots + 2], then where the last group ends
  std::int32_t* counts = nullptr;                  // [slots + 1], 0 after the active ones
  std::int32_t* active = nullptr;                  // [1]
  std::int32_t tokens = 0;
  std::int32_t slots = 0;
};

// What an engine has at the start of a step. A row's request is -1 where it has none, an entry of
// the table is -1 where the request has no adapter; what else names no slot counts as none.
struct EngineParams {
  const std::int32_t* request_of_row = nullptr;   // [rows]
  const std::int32_t* slot_of_request = nullptr;  // [requests]; null: a request is its own slot
  std::int32_t rows = 0;
  std::int32_t requests = 0;
  std::int32_t slots = 0;
};

// The forms of docs/plan.md.
struct KernelFormParams {
  EngineParams engine;
  std::int32_t* adapter_of_token = nullptr;  // [rows]
  std::int32_t* token_order = nullptr;       // [rows]
  std::int32_t* active_ids = nullptr;        // [slots + 1], -1 after the groups
  std::int32_t* counts = nullptr;            // [slots + 1], 0 after the groups
  std::int32_t* starts = nullptr;            // [slots + 2], 0 after the end of the last group
  std::int32_t* active = nullptr;            // [1]
  std::int32_t* no_adapter = nullptr;        // [1]
};

struct PrefillFormParams {
  EngineParams engine;
  std::int32_t* starts = nullptr;   // [rows], as lengths and adapters: what is behind the runs
  std::int32_t* lengths = nullptr;  // is left alone
  std::int32_t* adapters = nullptr;
  std::int32_t* batch_size = nullptr;  // [1], as all that follows
  std::int32_t* longest = nullptr;
  std::int32_t* tokens = nullptr;
  std::int32_t* no_adapter = nullptr;
};

struct SamplerFormParams {
  EngineParams engine;
  std::int32_t* adapters = nullptr;  // [rows]
  std::int64_t* padded = nullptr;    // [rows]
};

struct EmbeddingFormParams {
  EngineParams engine;
  std::int64_t vocabulary = 0;
  std::int64_t extra_vocabulary = 0;
  std::int64_t* extra = nullptr;  // [rows]
  std::int64_t* table = nullptr;  // [rows]
};

struct ChunkedFormParams {
  EngineParams engine;
  const std::int32_t* rank = nullptr;  // [slots]
  const float* scale = nullptr;        // [slots]
  std::int32_t chunk = 0;              // a power of two
  std::int32_t most_segments = 0;
  bool idle_segments = false;              // rows without an adapter have segments of slot `slots`
  std::int32_t* permutation = nullptr;     // [rows]
  std::int32_t* segment_starts = nullptr;  // [most_segments + 1], the end after the segments
  std::int32_t* adapter_of_segment = nullptr;  // [most_segments]
  std::int32_t* ranks = nullptr;               // [slots, and 1 for idle segments]
  float* scales = nullptr;                     // as many
  std::int32_t* segments = nullptr;            // [1]
  std::int32_t* chunk_out = nullptr;           // [1]
};

// 4 KB is what a launch may carry on every supported architecture.
static_assert(std::is_trivially_copyable_v<ShrinkParams> && sizeof(ShrinkParams) < 4096);
static_assert(std::is_trivially_copyable_v<ExpandParams> && sizeof(ExpandParams) < 4096);
static_assert(std::is_trivially_copyable_v<PlanParams> && sizeof(PlanParams) < 4096);

}  // namespace lora_bench::kernels
