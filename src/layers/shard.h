#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/dtype.h"
#include "layers/layer_kind.h"
#include "workload/problem.h"

namespace lora_bench {

// A layer of one size among `tp` shards.
struct ShardedLayer {
  LayerKind kind = LayerKind::kReplicated;
  std::int64_t in_features = 0;
  std::vector<std::int64_t> widths;  // of the blocks; may be 0
  std::int64_t kv_heads = 0;         // of qkv and merged_qkv
  std::int64_t max_rank = 0;
  std::int64_t tp = 1;
  bool fully_sharded = false;
  bool gather_output = false;           // columns: whether each shard ends with all of them
  bool input_split = false;             // row: each shard's columns of x lie by themselves
  std::int64_t extra = 0;               // vocab_embedding: rows that each adapter adds to the table
  bool reduce_results = true;           // row: whether the shards' terms are summed
  std::int64_t padding_unit = 1;        // vocabulary: all shards together are a multiple of it
  GatherTo gather_to = GatherTo::kAll;  // logits: which shards end with them
};

// Whether a shard adds the adapters' bias: of a sum of whole terms the first alone.
[[nodiscard]] bool adds_adapter_bias(const ShardedLayer& layer, std::int64_t rank);

// Whether what a layer ends with is promised at this shard.
[[nodiscard]] bool ends_at(const ShardedLayer& layer, std::int64_t rank);

// Whether every shard ends with a term of its own that no one adds up.
[[nodiscard]] bool keeps_terms(const ShardedLayer& layer);

// Why the layer cannot be divided so, "" when it can: "max_rank 10 is not divisible by tp 4 ...".
[[nodiscard]] std::string why_not_sharded(const ShardedLayer& layer);

struct IndexRange {
  std::int64_t first = 0, count = 0;
  [[nodiscard]] bool operator==(const IndexRange&) const = default;
};

// What one shard has of x, W, A and B.
struct Shard {
  IndexRange inputs;  // columns of x and W
  std::vector<IndexRange>
      outputs;                     // rows of W in each block: the columns of the shard's y, in turn
  std::int64_t padding = 0;        // columns of y after them that are no output (vocabulary)
  IndexRange a_inputs;             // columns of A
  IndexRange extra;                // of the rows that an adapter adds to a table
  IndexRange lanes;                // rows of A
  std::vector<IndexRange> b_rows;  // rows of B in each block
  std::int64_t b_column = 0;       // of the shard's y, where the delta begins
};

// Of shard `rank` of tp. Throws UsageError with why_not_sharded.
[[nodiscard]] Shard shard_of(const ShardedLayer& layer, std::int64_t rank);

// How many shards in a row have the same columns of a block: those that share a kv head.
[[nodiscard]] std::int64_t replicas_of(const ShardedLayer& layer, std::size_t block);

// Which column of the whole y a column is that stands at this place once the shards' columns were
// gathered side by side; those that no one needs come last: padding, and what another shard has
// too. A vocabulary of 4 with 2 added, padded to 8, tp 2: 0 1 4 6 2 3 5 7.
[[nodiscard]] std::vector<std::int64_t> order_of_gathered(const ShardedLayer& layer);

// Row-major.
struct Matrix {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, columns = 0;
  std::vector<std::byte> data;
  [[nodiscard]] bool operator==(const Matrix&) const = default;
};
[[nodiscard]] Matrix cut(const Matrix& whole, IndexRange rows, IndexRange columns);
// The same of a matrix that lies somewhere, with rows of `width` elements.
struct MatrixView {
  Dtype dtype = Dtype::kFp32;
  const std::byte* data = nullptr;
  std::int64_t width = 0;
};
[[nodiscard]] Matrix cut(const MatrixView& whole, IndexRange rows, IndexRange columns);

[[nodiscard]] Matrix transposed(const Matrix& matrix);

// One adapter as its file has it: A [rank, K] and B [N, rank] for each block, or one of each for
// all blocks. Neither where the adapter leaves a block alone.
struct AdapterWeights {
  std::vector<std::optional<Matrix>> a, b;
  std::vector<std::optional<Matrix>> bias = {};  // [1, N] beside each B; none without
  std::optional<Matrix> table_rows = {};         // [extra, N] of an embedding with added vocabulary
  // Of eight bits, else none: beside each A and B its scales, [down, across] as the form has them.
  std::vector<std::optional<Matrix>> a_scale = {}, b_scale = {};
  ScaleForm scales = {};
};

// Whether adapters may bring fewer pairs than the layer has blocks, each for several.
[[nodiscard]] bool takes_packed(LayerKind kind);

// How scales lie in a shard. Blocks that a cut goes through are smaller there, so that each lies in
// one of the whole, whose scale it has: the largest that divide the block and whose limits are at
// the cuts, for A and B alike.
[[nodiscard]] ScaleForm scales_in_shard(const ShardedLayer& layer, const Shard& shard,
                                        const ScaleForm& whole);

// Scales of a part of a matrix that is made of runs of the rows and of the columns of a whole one.
struct ScalesOfPart {
  ScaleBlocks whole, part;
  std::vector<IndexRange> rows, columns;
};
[[nodiscard]] Matrix cut_scales(const Matrix& scales, const ScalesOfPart& cut);
// Of a pair, which rows of its whole B a shard has, in turn.
[[nodiscard]] std::vector<IndexRange> rows_of_b(const ShardedLayer& layer, const Shard& shard,
                                                std::size_t pair);
// Those of one output of a B that covers several. Throws UsageError where a block goes over from
// the one before.
[[nodiscard]] Matrix scales_of_rows(const Matrix& scales, const ScaleForm& form, const Matrix& b,
                                    IndexRange rows);
// Throws UsageError where an A or B has no scales, or not as many as the form asks for.
void check_scales(const AdapterWeights& given);

// The weights as the kind stores them: one A and B in all for joint kinds, else one for each block.
// For kinds that take packed pairs a joint one, or pairs that cover several blocks each, are cut by
// the blocks' widths, their A repeated. Throws UsageError that names the sizes when they do not add
// up.
[[nodiscard]] AdapterWeights fit_weights(const ShardedLayer& layer, AdapterWeights given);

// What shard `rank` keeps of weights that fit. An adapter of a lower rank than the layer's largest
// has its lanes in the first shards.
[[nodiscard]] AdapterWeights shard_weights(const ShardedLayer& layer, const AdapterWeights& whole,
                                           std::int64_t rank);

}  // namespace lora_bench
