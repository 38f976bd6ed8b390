#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "layers/layer_kind.h"
#include "layers/shard.h"

using namespace lora_bench;

namespace {

// Every element is another number, so that a place is known by its value.
Matrix numbered(std::int64_t rows, std::int64_t columns, float first = 0) {
  Matrix matrix{Dtype::kFp32, rows, columns, {}};
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  std::iota(values.begin(), values.end(), first);
  matrix.data.resize(values.size() * sizeof(float));
  if (!values.empty()) {
    std::memcpy(matrix.data.data(), values.data(), matrix.data.size());
  }
  return matrix;
}

Matrix below(const std::vector<Matrix>& parts) {
  Matrix whole = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    whole.rows += parts[i].rows;
    whole.data.insert(whole.data.end(), parts[i].data.begin(), parts[i].data.end());
  }
  return whole;
}

Matrix beside(const std::vector<Matrix>& parts) {
  std::vector<Matrix> turned;
  for (const Matrix& part : parts) {
    turned.push_back(transposed(part));
  }
  return transposed(below(turned));
}

std::int64_t sum(const std::vector<std::int64_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
}

// Every kind with sizes that tp 1 to 8 can divide; `kv_heads` of 2 are replicated from tp 4 on.
std::vector<ShardedLayer> layers_of(std::int64_t tp) {
  std::vector<std::vector<std::int64_t>> widths{{24},           {16, 40}, {64, 8, 8}, {64, 8, 0},
                                                {8, 0, 24, 16}, {37},     {37, 5}};
  std::vector<ShardedLayer> layers;
  for (const LayerDescription& description : layer_descriptions()) {
    for (const auto& of_blocks : widths) {
      for (const bool fully_sharded : {false, true}) {
        ShardedLayer layer{.kind = description.kind,
                           .in_features = 16,
                           .widths = of_blocks,
                           .kv_heads = 2,
                           .max_rank = 8,
                           .tp = tp,
                           .fully_sharded = fully_sharded,
                           .padding_unit = 8};
        if (why_not_sharded(layer).empty()) {
          layers.push_back(std::move(layer));
        }
      }
    }
  }
  return layers;
}

std::string told(const ShardedLayer& layer) {
  return std::string(name(layer.kind)) + " tp " + std::to_string(layer.tp) +
         (layer.fully_sharded ? " fully sharded, " : ", ") + std::to_string(layer.widths.size()) +
         " blocks";
}

// How many shards in a row hold the same rows of a block.
std::int64_t replicas(const ShardedLayer& layer, std::size_t block) {
  const bool kv = description_of(layer.kind).heads && block > 0;
  return kv ? std::max<std::int64_t>(1, layer.tp / layer.kv_heads) : 1;
}

// The whole from what the shards have of it. `parts` has one matrix for each shard.
Matrix together(Cut how, const std::vector<Matrix>& parts, std::int64_t copies = 1) {
  std::vector<Matrix> different;
  const auto step = static_cast<std::size_t>(how == Cut::kNone ? 1 : copies);
  for (std::size_t i = 0; i < parts.size(); i += step) {
    for (std::size_t copy = 1; copy < step; ++copy) {
      CHECK(parts[i + copy] == parts[i]);
    }
    different.push_back(parts[i]);
  }
  if (how == Cut::kNone) {
    for (const Matrix& part : parts) {
      CHECK(part == parts.front());
    }
    return parts.front();
  }
  return how == Cut::kInputs ? beside(different) : below(different);
}

std::string message_of(const ShardedLayer& layer, const AdapterWeights& weights) {
  try {
    static_cast<void>(fit_weights(layer, weights));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

ShardedLayer variable_layer(std::vector<std::int64_t> widths) {
  return {.kind = LayerKind::kMergedColumnVariable,
          .in_features = 16,
          .widths = std::move(widths),
          .max_rank = 8};
}

}  // namespace

TEST_CASE("shards of the base put together are the whole") {
  std::set<LayerKind> seen;
  for (const std::int64_t tp : {1, 2, 4, 8}) {
    for (const ShardedLayer& layer : layers_of(tp)) {
      INFO(told(layer));
      seen.insert(layer.kind);
      for (std::size_t block = 0; block < layer.widths.size(); ++block) {
        const Matrix whole = numbered(layer.widths[block], layer.in_features);
        std::vector<Matrix> parts;
        for (std::int64_t rank = 0; rank < tp; ++rank) {
          const Shard shard = shard_of(layer, rank);
          parts.push_back(cut(whole, shard.outputs[block], shard.inputs));
        }
        CHECK(together(description_of(layer.kind).base, parts, replicas(layer, block)) == whole);
      }
    }
  }
  CHECK(seen.size() == layer_descriptions().size());
}

TEST_CASE("shards of an adapter put together are the adapter, whatever it lacks") {
  for (const std::int64_t tp : {1, 2, 4, 8}) {
    for (const ShardedLayer& layer : layers_of(tp)) {
      const LayerDescription& description = description_of(layer.kind);
      const LoraSharding& lora = layer.fully_sharded ? *description.full : description.plain;
      for (const std::int64_t rank_of_adapter : {8, 3}) {
        INFO(told(layer), " rank ", rank_of_adapter);
        AdapterWeights whole;
        const std::size_t pairs = description.joint ? 1 : layer.widths.size();
        for (std::size_t i = 0; i < pairs; ++i) {
          const std::int64_t rows = description.joint ? sum(layer.widths) : layer.widths[i];
          whole.a.emplace_back(numbered(rank_of_adapter, layer.in_features, 1000.0F));
          whole.b.emplace_back(numbered(rows, rank_of_adapter, 5000.0F * static_cast<float>(i)));
        }
        if (pairs > 1) {
          whole.a[1].reset();
          whole.b[1].reset();
        }
        const AdapterWeights fitted = fit_weights(layer, whole);
        std::vector<AdapterWeights> shards;
        for (std::int64_t rank = 0; rank < tp; ++rank) {
          shards.push_back(shard_weights(layer, fitted, rank));
        }
        for (std::size_t i = 0; i < pairs; ++i) {
          std::vector<Matrix> a;
          std::vector<std::vector<Matrix>> b(layer.widths.size());
          for (std::int64_t rank = 0; rank < tp; ++rank) {
            const AdapterWeights& shard = shards[static_cast<std::size_t>(rank)];
            CHECK(shard.a[i].has_value() == whole.a[i].has_value());
            CHECK(shard.b[i].has_value() == whole.b[i].has_value());
            if (!whole.a[i]) {
              continue;
            }
            a.push_back(*shard.a[i]);
            // Of a joint B the shard's rows of one block after the other.
            std::int64_t row = 0;
            const std::vector<IndexRange> rows = shard_of(layer, rank).b_rows;
            for (std::size_t block = 0; block < rows.size(); ++block) {
              if (description.joint || block == i) {
                b[block].push_back(
                    cut(*shard.b[i], {row, rows[block].count}, {0, rank_of_adapter}));
                row += rows[block].count;
              }
            }
            CHECK(row == shard.b[i]->rows);
          }
          if (!whole.a[i]) {
            continue;
          }
          CHECK(together(lora.a == Cut::kRank ? Cut::kOutputs : lora.a, a) == *whole.a[i]);
          std::vector<Matrix> blocks;
          for (std::size_t block = 0; block < layer.widths.size(); ++block) {
            if (!b[block].empty()) {
              blocks.push_back(together(lora.b, b[block], replicas(layer, block)));
            }
          }
          CHECK(below(blocks) == *whole.b[i]);
        }
      }
    }
  }
}

TEST_CASE("kv heads are replicated when there are more shards than heads") {
  ShardedLayer layer{.kind = LayerKind::kMergedQkv,
                     .in_features = 16,
                     .widths = {64, 8, 0},
                     .kv_heads = 2,
                     .max_rank = 8,
                     .tp = 8};
  CHECK(shard_of(layer, 3).outputs == std::vector<IndexRange>{{24, 8}, {0, 4}, {0, 0}});
  CHECK(shard_of(layer, 5).outputs == std::vector<IndexRange>{{40, 8}, {4, 4}, {0, 0}});
  layer.tp = 2;
  CHECK(shard_of(layer, 1).outputs == std::vector<IndexRange>{{32, 32}, {4, 4}, {0, 0}});
}

TEST_CASE("heads of v are divided by their own size") {
  ShardedLayer layer{.kind = LayerKind::kQkv,
                     .in_features = 16,
                     .widths = {64, 8, 24},
                     .kv_heads = 2,
                     .max_rank = 8,
                     .tp = 8};
  CHECK(shard_of(layer, 3).outputs == std::vector<IndexRange>{{24, 8}, {0, 4}, {0, 12}});
  CHECK(shard_of(layer, 5).outputs == std::vector<IndexRange>{{40, 8}, {4, 4}, {12, 12}});
  layer.tp = 2;
  CHECK(shard_of(layer, 1).outputs == std::vector<IndexRange>{{32, 32}, {4, 4}, {12, 12}});
}

TEST_CASE("a joint B of two halves is divided half by half") {
  const ShardedLayer layer{
      .kind = LayerKind::kColumn, .in_features = 4, .widths = {4, 6}, .max_rank = 1, .tp = 2};
  const AdapterWeights whole{{numbered(1, 4)}, {numbered(10, 1)}};
  const Matrix b = *shard_weights(layer, whole, 1).b[0];
  CHECK(b.data == below({numbered(2, 1, 2), numbered(3, 1, 7)}).data);
}

TEST_CASE("a fully sharded row layer adds its delta to its own columns of its term") {
  const ShardedLayer layer{.kind = LayerKind::kRow,
                           .in_features = 16,
                           .widths = {24},
                           .max_rank = 5,
                           .tp = 4,
                           .fully_sharded = true};
  const Shard shard = shard_of(layer, 2);
  CHECK(shard.inputs == IndexRange{8, 4});
  CHECK(shard.outputs == std::vector<IndexRange>{{0, 24}});
  CHECK(shard.b_rows == std::vector<IndexRange>{{12, 6}});
  CHECK(shard.b_column == 12);
  CHECK(shard.lanes == IndexRange{0, 5});
}

TEST_CASE("gathered columns of a vocabulary know their place in the whole") {
  ShardedLayer layer{.kind = LayerKind::kLogits,
                     .in_features = 4,
                     .widths = {4, 2},
                     .max_rank = 1,
                     .tp = 2,
                     .padding_unit = 8};
  CHECK(order_of_gathered(layer) == std::vector<std::int64_t>{0, 1, 4, 6, 2, 3, 5, 7});
  layer.widths = {37, 5};
  for (const std::int64_t tp : {1, 2, 4, 8}) {
    layer.tp = tp;
    std::vector<std::int64_t> order = order_of_gathered(layer);
    CHECK(order.size() % 8 == 0);
    std::vector<std::int64_t> every(order.size());
    std::iota(every.begin(), every.end(), 0);
    CHECK(std::is_permutation(order.begin(), order.end(), every.begin()));
  }
}

TEST_CASE("a kv head that several shards have is gathered once") {
  ShardedLayer layer{.kind = LayerKind::kQkv,
                     .in_features = 4,
                     .widths = {4, 2, 1},
                     .kv_heads = 1,
                     .max_rank = 1,
                     .tp = 2};
  CHECK(replicas_of(layer, 0) == 1);
  CHECK(replicas_of(layer, 2) == 2);
  CHECK(order_of_gathered(layer) == std::vector<std::int64_t>{0, 1, 4, 5, 6, 2, 3, 7, 8, 9});
}

TEST_CASE("what cannot be divided is told with its sizes") {
  const ShardedLayer qkv{.kind = LayerKind::kQkv,
                         .in_features = 16,
                         .widths = {64, 8, 8},
                         .kv_heads = 2,
                         .max_rank = 10,
                         .tp = 4,
                         .fully_sharded = true};
  CHECK(why_not_sharded(qkv) ==
        "max_rank 10 is not divisible by tp 4, and a fully sharded layer divides the rank");
  CHECK_THROWS_AS(static_cast<void>(shard_of(qkv, 0)), UsageError);
  struct Fault {
    ShardedLayer layer;
    std::string why;
  };
  using K = LayerKind;
  const std::vector<Fault> faults{
      {{.kind = K::kRow, .in_features = 10, .widths = {8}, .tp = 4},
       "input width 10 is not divisible by tp 4"},
      {{.kind = K::kRow, .in_features = 8, .widths = {6}, .tp = 4, .fully_sharded = true},
       "output width 6 is not divisible by tp 4"},
      {{.kind = K::kMergedColumn, .in_features = 8, .widths = {8, 6}, .tp = 4},
       "output width 6 is not divisible by tp 4"},
      {{.kind = K::kRow, .in_features = 8, .widths = {8}, .gather_output = true},
       "a row layer does not gather its output: gather_output is of column, merged and "
       "qkv layers"},
      {{.kind = K::kVocabEmbedding, .in_features = 8, .widths = {8}, .reduce_results = false},
       "shards of a vocab_embedding layer have no terms that they could keep: reduce_results is of "
       "row layers"},
      {{.kind = K::kColumn, .in_features = 8, .widths = {8}, .input_split = true},
       "every shard of a column layer has all inputs: input_split is of row layers"},
      {{.kind = K::kMergedColumn, .in_features = 8, .widths = {8}},
       "a merged_column layer has 2 to 64 outputs side by side, not 1"},
      {{.kind = K::kQkv, .in_features = 8, .widths = {8, 8}},
       "a qkv layer has 3 outputs side by side, not 2"},
      {{.kind = K::kRow, .in_features = 8, .widths = {8, 8}}, "a row layer has 1 output, not 2"},
      {{.kind = K::kQkv, .in_features = 8, .widths = {8, 8, 8}},
       "a qkv layer needs kv_heads where k and v of widths 8 and 8 are not one number of heads of "
       "128 columns"},
      {{.kind = K::kQkv, .in_features = 8, .widths = {24, 12, 12}, .kv_heads = 3, .tp = 2},
       "of tp 2 and 3 kv heads neither divides the other"},
      {{.kind = K::kQkv, .in_features = 8, .widths = {48, 8, 8}, .kv_heads = 4, .tp = 6},
       "of tp 6 and 4 kv heads neither divides the other"},
      {{.kind = K::kQkv, .in_features = 8, .widths = {48, 8, 6}, .kv_heads = 4},
       "4 kv heads do not divide widths 8 and 6 of k and v"},
      {{.kind = K::kQkv, .in_features = 8, .widths = {24, 16, 16}, .kv_heads = 2, .tp = 2},
       "width 24 of q is not divisible into heads of 8 for tp 2"},
      {{.kind = K::kReplicated, .in_features = 8, .widths = {8}, .tp = 2, .fully_sharded = true},
       "a replicated layer has no fully sharded form"},
      {{.kind = K::kReplicated, .in_features = 8, .widths = {8}, .tp = 0},
       "tp 0 is no number of shards"},
  };
  for (const Fault& fault : faults) {
    CHECK(why_not_sharded(fault.layer) == fault.why);
  }
}

TEST_CASE("a layer of many outputs takes joint weights and packed groups") {
  const ShardedLayer layer = variable_layer({8, 0, 24, 16});
  const Matrix a = numbered(2, 16);
  const Matrix b = numbered(48, 2);
  const AdapterWeights joint = fit_weights(layer, {{a}, {b}});
  REQUIRE(joint.b.size() == 4);
  CHECK(joint.a[3] == a);
  CHECK(joint.b[1]->rows == 0);
  CHECK(joint.b[3] == cut(b, {32, 16}, {0, 2}));
  const Matrix other = numbered(2, 16, 100);
  const AdapterWeights packed =
      fit_weights(layer, {{a, other}, {numbered(32, 2), numbered(16, 2, 64)}});
  CHECK(packed.a[2] == a);
  CHECK(packed.a[3] == other);
  CHECK(packed.b[2] == cut(b, {8, 24}, {0, 2}));
  CHECK(packed.b[3] == cut(b, {32, 16}, {0, 2}));
}

TEST_CASE("weights that do not fit are told with their sizes") {
  const ShardedLayer layer = variable_layer({8, 24, 16});
  const Matrix a = numbered(2, 16);
  CHECK(message_of(layer, {{a}, {numbered(30, 2)}}) ==
        "B 0 has 30 rows, which is no sum of blocks from block 0 on; the layer's are 8 + 24 + 16");
  CHECK(message_of(layer, {{a}, {numbered(32, 2)}}) == "the weights cover 2 blocks of 8 + 24 + 16");
  CHECK(message_of(layer, {{a, {}}, {numbered(32, 2), {}}}) ==
        "weights 1 of 2 are missing: which of the blocks 8 + 24 + 16 they would cover cannot be "
        "known; give one pair for each block");
  CHECK(message_of(layer, {{a, a, a}, {numbered(8, 2), numbered(16, 2), numbered(24, 2)}}) ==
        "B 1 has 16 rows, the merged_column_variable layer 24 outputs there (of 8 + 24 + 16)");
  CHECK(message_of(layer, {{a, {}, {}}, {numbered(8, 3), {}, {}}}) ==
        "A has rank 2, but its B rank 3");
  CHECK(message_of(layer, {{numbered(2, 15)}, {numbered(48, 2)}}) ==
        "A has 15 columns, the merged_column_variable layer 16 inputs");
  CHECK(message_of(layer, {{numbered(9, 16)}, {numbered(48, 9)}}) ==
        "an adapter of rank 9 for slots of rank 8");
  CHECK(message_of(layer, {{{}}, {numbered(48, 2)}}) ==
        "of weights 0 only one of A and B is there");
}

TEST_CASE("which kind replaces which base layer") {
  struct Row {
    BaseLayer base;
    std::int64_t blocks, modules;
    std::optional<LayerKind> kind, fully;
  };
  using B = BaseLayer;
  using K = LayerKind;
  const auto none = std::optional<LayerKind>();
  const std::vector<Row> rows{
      {B::kReplicated, 1, 1, K::kReplicated, K::kReplicated},
      {B::kColumn, 1, 1, K::kColumn, K::kColumn},
      {B::kColumn, 1, 0, K::kColumn, K::kColumn},
      {B::kMergedColumn, 2, 0, none, none},
      {B::kMergedColumn, 2, 1, K::kColumn, K::kColumn},
      {B::kMergedColumn, 2, 2, K::kMergedColumn, K::kMergedColumn},
      {B::kMergedColumn, 4, 2, K::kMergedColumn, K::kMergedColumn},
      {B::kMergedColumn, 2, 3, K::kMergedColumnVariable, none},
      {B::kMergedColumn, 3, 0, K::kMergedColumnVariable, none},
      {B::kMergedColumn, 3, 1, K::kMergedColumnVariable, none},
      {B::kMergedColumn, 5, 5, K::kMergedColumnVariable, none},
      {B::kQkv, 3, 1, K::kQkv, K::kQkv},
      {B::kQkv, 3, 2, none, none},
      {B::kQkv, 3, 3, K::kMergedQkv, K::kMergedQkv},
      {B::kRow, 1, 1, K::kRow, K::kRow},
      {B::kLogits, 1, 1, K::kLogits, K::kLogits},
      {B::kVocabEmbedding, 1, 1, K::kVocabEmbedding, K::kVocabEmbedding},
      {B::kVocabEmbedding, 2, 1, none, none},
  };
  for (const Row& row : rows) {
    INFO("base ", static_cast<int>(row.base), " blocks ", row.blocks, " modules ", row.modules);
    CHECK(kind_that_replaces(row.base, row.blocks, row.modules) == row.kind);
    CHECK(kind_that_replaces(row.base, row.blocks, row.modules, true) == row.fully);
  }
}

TEST_CASE("a kind with a form of its own for divided weights is said to have it") {
  for (const ReplacementRule& rule : replacement_rules()) {
    CAPTURE(name(rule.kind));
    CHECK((rule.full == ReplacementRule::WhenFull::kOwnForm) ==
          description_of(rule.kind).full.has_value());
  }
}
