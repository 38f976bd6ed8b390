#include "layers/shard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "core/error.h"

namespace lora_bench {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

IndexRange share(std::int64_t of, std::int64_t shards, std::int64_t shard) {
  return {of / shards * shard, of / shards};
}

// The first `per_shard` to the first shard and so on; what is left over is missing at the end.
IndexRange run(std::int64_t of, std::int64_t per_shard, std::int64_t shard) {
  const std::int64_t first = std::min(per_shard * shard, of);
  return {first, std::min(per_shard, of - first)};
}

std::vector<IndexRange> whole(const std::vector<std::int64_t>& widths) {
  std::vector<IndexRange> ranges;
  for (const std::int64_t width : widths) {
    ranges.push_back({0, width});
  }
  return ranges;
}

const LoraSharding& sharding_of(const ShardedLayer& layer) {
  const LayerDescription& description = description_of(layer.kind);
  return layer.fully_sharded ? *description.full : description.plain;
}

std::vector<IndexRange> outputs_of(const ShardedLayer& layer, std::int64_t rank) {
  const LayerDescription& description = description_of(layer.kind);
  if (description.base != Cut::kOutputs) {
    return whole(layer.widths);
  }
  std::vector<IndexRange> ranges;
  for (std::size_t block = 0; block < layer.widths.size(); ++block) {
    const std::int64_t width = layer.widths[block];
    if (description.vocabulary) {
      ranges.push_back(run(width, divide_up(width, layer.tp), rank));
    } else {
      const std::int64_t replicas = replicas_of(layer, block);
      ranges.push_back(share(width, layer.tp / replicas, rank / replicas));
    }
  }
  return ranges;
}

std::int64_t count_of(const std::vector<IndexRange>& ranges) {
  std::int64_t count = 0;
  for (const IndexRange& range : ranges) {
    count += range.count;
  }
  return count;
}

// All shards of a vocabulary are as wide as the first, and together a multiple of the unit.
std::int64_t padding_of(const ShardedLayer& layer, const std::vector<IndexRange>& outputs) {
  const LayerDescription& description = description_of(layer.kind);
  if (!description.vocabulary || description.base != Cut::kOutputs) {
    return 0;
  }
  const std::int64_t unit = std::lcm(layer.padding_unit, layer.tp);
  const std::int64_t widest = count_of(outputs_of(layer, 0)) * layer.tp;
  return divide_up(widest, unit) * unit / layer.tp - count_of(outputs);
}

void append_rows(Matrix& to, const Matrix& from) {
  to.rows += from.rows;
  to.data.insert(to.data.end(), from.data.begin(), from.data.end());
}

// Of one row.
void append_columns(Matrix& to, const Matrix& from) {
  to.dtype = from.dtype;
  to.columns += from.columns;
  to.data.insert(to.data.end(), from.data.begin(), from.data.end());
}

std::string widths_text(const std::vector<std::int64_t>& widths) {
  return fmt::format("{}", fmt::join(widths, " + "));
}

void check_pair(const Matrix& a, const Matrix& b, const ShardedLayer& layer) {
  if (a.columns != layer.in_features + layer.extra) {
    throw UsageError(fmt::format("A has {} columns, the {} layer {} inputs", a.columns,
                                 name(layer.kind), layer.in_features + layer.extra));
  }
  if (a.rows != b.columns) {
    throw UsageError(fmt::format("A has rank {}, but its B rank {}", a.rows, b.columns));
  }
  if (a.rows > layer.max_rank) {
    throw UsageError(
        fmt::format("an adapter of rank {} for slots of rank {}", a.rows, layer.max_rank));
  }
}

// A pair with its scales and its bias, where there are any, cut at the widths of blocks
// [first, end).
void spread(const AdapterWeights& given, std::size_t pair, const ShardedLayer& layer,
            std::size_t first, std::size_t end, AdapterWeights& to) {
  const Matrix& a = *given.a[pair];
  const Matrix& b = *given.b[pair];
  const Matrix* const bias = given.bias.empty() || !given.bias[pair] ? nullptr : &*given.bias[pair];
  std::int64_t row = 0;
  for (std::size_t block = first; block < end; ++block) {
    to.a.emplace_back(a);
    to.b.emplace_back(cut(b, {row, layer.widths[block]}, {0, b.columns}));
    if (bias != nullptr) {
      to.bias.emplace_back(cut(*bias, {0, 1}, {row, layer.widths[block]}));
    }
    if (given.scales.any()) {
      to.a_scale.emplace_back(*given.a_scale[pair]);
      to.b_scale.emplace_back(
          scales_of_rows(*given.b_scale[pair], given.scales, b, {row, layer.widths[block]}));
    }
    row += layer.widths[block];
  }
}

// Pairs that cover one or more blocks each.
AdapterWeights spread_over_blocks(const ShardedLayer& layer, const AdapterWeights& given) {
  AdapterWeights fitted;
  fitted.scales = given.scales;
  std::size_t block = 0;
  for (std::size_t pair = 0; pair < given.b.size(); ++pair) {
    if (!given.b[pair]) {
      throw UsageError(
          fmt::format("weights {} of {} are missing: which of the blocks {} they would cover "
                      "cannot be known; give one pair for each block",
                      pair, given.b.size(), widths_text(layer.widths)));
    }
    const std::int64_t rows = given.b[pair]->rows;
    std::int64_t covered = 0;
    const std::size_t first = block;
    while (block < layer.widths.size() && covered < rows) {
      covered += layer.widths[block++];
    }
    if (covered != rows) {
      throw UsageError(
          fmt::format("B {} has {} rows, which is no sum of blocks from block {} on; "
                      "the layer's are {}",
                      pair, rows, first, widths_text(layer.widths)));
    }
    spread(given, pair, layer, first, block, fitted);
  }
  const std::int64_t left =
      std::accumulate(layer.widths.begin() + static_cast<std::ptrdiff_t>(block), layer.widths.end(),
                      std::int64_t{0});
  if (left > 0) {
    throw UsageError(
        fmt::format("the weights cover {} blocks of {}", block, widths_text(layer.widths)));
  }
  fitted.a.resize(layer.widths.size());
  fitted.b.resize(layer.widths.size());
  fitted.bias.resize(given.bias.empty() ? 0 : layer.widths.size());
  fitted.a_scale.resize(given.scales.any() ? layer.widths.size() : 0);
  fitted.b_scale.resize(fitted.a_scale.size());
  return fitted;
}

void check_rows(const ShardedLayer& layer, const AdapterWeights& fitted) {
  const bool joint = description_of(layer.kind).joint;
  for (std::size_t i = 0; i < fitted.bias.size(); ++i) {
    if (fitted.bias[i].has_value() != fitted.b[i].has_value() ||
        (fitted.bias[i] && fitted.bias[i]->columns != fitted.b[i]->rows)) {
      throw UsageError(fmt::format("bias {} is not as long as its B", i));
    }
  }
  for (std::size_t i = 0; i < fitted.b.size(); ++i) {
    const std::int64_t rows =
        joint ? std::accumulate(layer.widths.begin(), layer.widths.end(), std::int64_t{0})
              : layer.widths[i];
    if (fitted.b[i] && fitted.b[i]->rows != rows) {
      throw UsageError(fmt::format("B {} has {} rows, the {} layer {} outputs there (of {})", i,
                                   fitted.b[i]->rows, name(layer.kind), rows,
                                   widths_text(layer.widths)));
    }
  }
}

}  // namespace

bool ends_at(const ShardedLayer& layer, std::int64_t rank) {
  const bool logits = description_of(layer.kind).y == Exchange::kGather;
  return rank == 0 || !logits || layer.gather_to == GatherTo::kAll;
}

bool takes_packed(LayerKind kind) {
  return !description_of(kind).joint && !description_of(kind).heads;
}

bool adds_adapter_bias(const ShardedLayer& layer, std::int64_t rank) {
  const LayerDescription& description = description_of(layer.kind);
  const bool whole_terms = description.y == Exchange::kReduce && !description.lora_after_exchange &&
                           sharding_of(layer).b != Cut::kOutputs;
  return rank == 0 || !whole_terms;
}

bool keeps_terms(const ShardedLayer& layer) {
  return description_of(layer.kind).y == Exchange::kReduce && !layer.reduce_results;
}

std::int64_t replicas_of(const ShardedLayer& layer, std::size_t block) {
  const bool of_heads = description_of(layer.kind).heads && block > 0;
  return of_heads ? std::max<std::int64_t>(1, layer.tp / layer.kv_heads) : 1;
}

Shard shard_of(const ShardedLayer& layer, std::int64_t rank) {
  if (const std::string why = why_not_sharded(layer); !why.empty()) {
    throw UsageError(why);
  }
  if (rank < 0 || rank >= layer.tp) {
    throw std::logic_error("a shard outside of tp");
  }
  const IndexRange all_inputs{0, layer.in_features};
  const LayerDescription& description = description_of(layer.kind);
  const LoraSharding& lora = sharding_of(layer);
  Shard shard;
  shard.inputs = all_inputs;
  if (description.base == Cut::kInputs) {
    shard.inputs = description.vocabulary
                       ? run(layer.in_features, divide_up(layer.in_features, layer.tp), rank)
                       : share(layer.in_features, layer.tp, rank);
  }
  shard.outputs = outputs_of(layer, rank);
  shard.padding = padding_of(layer, shard.outputs);
  shard.a_inputs =
      lora.a == Cut::kInputs ? shard.inputs : IndexRange{0, layer.in_features + layer.extra};
  shard.extra = run(layer.extra, divide_up(layer.extra, layer.tp), rank);
  shard.lanes =
      lora.a == Cut::kRank ? share(layer.max_rank, layer.tp, rank) : IndexRange{0, layer.max_rank};
  if (lora.b != Cut::kOutputs) {
    shard.b_rows = whole(layer.widths);
  } else if (description.base == Cut::kOutputs) {
    shard.b_rows = shard.outputs;
  } else {
    // Every shard's y has all columns, as one term of the sum; it adds the delta to its share.
    shard.b_rows = {share(layer.widths[0], layer.tp, rank)};
    shard.b_column = shard.b_rows[0].first;
  }
  return shard;
}

std::vector<std::int64_t> order_of_gathered(const ShardedLayer& layer) {
  std::vector<std::int64_t> order;
  std::int64_t next_unused =
      std::accumulate(layer.widths.begin(), layer.widths.end(), std::int64_t{0});
  for (std::int64_t rank = 0; rank < layer.tp; ++rank) {
    const Shard shard = shard_of(layer, rank);
    std::int64_t block_start = 0;
    for (std::size_t block = 0; block < layer.widths.size(); ++block) {
      const IndexRange& range = shard.outputs[block];
      const bool repeats = rank % replicas_of(layer, block) != 0;
      for (std::int64_t i = 0; i < range.count; ++i) {
        order.push_back(repeats ? next_unused++ : block_start + range.first + i);
      }
      block_start += layer.widths[block];
    }
    for (std::int64_t i = 0; i < shard.padding; ++i) {
      order.push_back(next_unused++);
    }
  }
  return order;
}

Matrix cut(const Matrix& whole, IndexRange rows, IndexRange columns) {
  return cut(MatrixView{whole.dtype, whole.data.data(), whole.columns}, rows, columns);
}

Matrix cut(const MatrixView& whole, IndexRange rows, IndexRange columns) {
  const std::int64_t size = size_bytes(whole.dtype);
  const std::int64_t row_bytes = columns.count * size;
  Matrix part{whole.dtype, rows.count, columns.count, {}};
  if (rows.count == 0 || row_bytes == 0) {
    return part;
  }
  const std::byte* const first = whole.data + (rows.first * whole.width + columns.first) * size;
  if (columns.count == whole.width) {
    part.data.assign(first, first + rows.count * row_bytes);
    return part;
  }
  part.data.resize(at(rows.count * row_bytes));
  for (std::int64_t row = 0; row < rows.count; ++row) {
    std::memcpy(part.data.data() + row * row_bytes, first + row * whole.width * size,
                at(row_bytes));
  }
  return part;
}

Matrix transposed(const Matrix& matrix) {
  const auto size = at(size_bytes(matrix.dtype));
  Matrix turned{matrix.dtype, matrix.columns, matrix.rows, {}};
  turned.data.resize(matrix.data.size());
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t column = 0; column < matrix.columns; ++column) {
      std::memcpy(turned.data.data() + at(column * matrix.rows + row) * size,
                  matrix.data.data() + at(row * matrix.columns + column) * size, size);
    }
  }
  return turned;
}

AdapterWeights fit_weights(const ShardedLayer& layer, AdapterWeights given) {
  const std::size_t wanted = description_of(layer.kind).joint ? 1 : layer.widths.size();
  if (given.a.size() != given.b.size()) {
    throw UsageError(fmt::format("{} A for {} B", given.a.size(), given.b.size()));
  }
  for (std::size_t i = 0; i < given.a.size(); ++i) {
    if (given.a[i].has_value() != given.b[i].has_value()) {
      throw UsageError(fmt::format("of weights {} only one of A and B is there", i));
    }
    if (given.a[i]) {
      check_pair(*given.a[i], *given.b[i], layer);
    }
  }
  if (!given.bias.empty() && given.bias.size() != given.b.size()) {
    throw UsageError(fmt::format("{} biases for {} B", given.bias.size(), given.b.size()));
  }
  check_scales(given);
  if (takes_packed(layer.kind) && given.b.size() < wanted) {
    return spread_over_blocks(layer, given);
  }
  if (given.b.size() != wanted) {
    throw UsageError(fmt::format("{} pairs of A and B for a {} layer that takes {}", given.b.size(),
                                 name(layer.kind), wanted));
  }
  check_rows(layer, given);
  if (layer.extra > 0 && (!given.table_rows || given.table_rows->rows != layer.extra ||
                          given.table_rows->columns != layer.widths[0])) {
    throw UsageError(
        fmt::format("an adapter brings {} rows of {} to the table", layer.extra, layer.widths[0]));
  }
  return given;
}

AdapterWeights shard_weights(const ShardedLayer& layer, const AdapterWeights& whole,
                             std::int64_t rank) {
  const Shard shard = shard_of(layer, rank);
  AdapterWeights part;
  part.scales = scales_in_shard(layer, shard, whole.scales);
  if (whole.table_rows) {
    part.table_rows = cut(*whole.table_rows, shard.extra, {0, whole.table_rows->columns});
  }
  for (std::size_t i = 0; i < whole.a.size(); ++i) {
    const Matrix* const bias = whole.bias.empty() || !whole.bias[i] ? nullptr : &*whole.bias[i];
    if (!whole.bias.empty()) {
      part.bias.emplace_back();
    }
    if (whole.scales.any()) {
      part.a_scale.emplace_back();
      part.b_scale.emplace_back();
    }
    if (!whole.a[i]) {
      part.a.emplace_back();
      part.b.emplace_back();
      continue;
    }
    const Matrix& b = *whole.b[i];
    const Matrix& a = *whole.a[i];
    const std::int64_t first = std::min(shard.lanes.first, a.rows);
    const IndexRange lanes{first, std::min(shard.lanes.count, a.rows - first)};
    const std::vector<IndexRange> of_whole = rows_of_b(layer, shard, i);
    part.a.emplace_back(cut(a, lanes, shard.a_inputs));
    Matrix rows{b.dtype, 0, b.columns, {}};
    Matrix of_bias{b.dtype, 1, 0, {}};
    for (const IndexRange& range : of_whole) {
      append_rows(rows, cut(b, range, {0, b.columns}));
      if (bias != nullptr) {
        append_columns(of_bias, cut(*bias, {0, 1}, range));
      }
    }
    if (whole.scales.any()) {
      const auto scales_of = [&](const Matrix& matrix, std::vector<IndexRange> of_rows,
                                 IndexRange columns) {
        return ScalesOfPart{whole.scales.over(matrix.rows, matrix.columns),
                            part.scales.over(count_of(of_rows), columns.count),
                            std::move(of_rows),
                            {columns}};
      };
      part.a_scale.back() = cut_scales(*whole.a_scale[i], scales_of(a, {lanes}, shard.a_inputs));
      part.b_scale.back() = cut_scales(*whole.b_scale[i], scales_of(b, of_whole, {0, b.columns}));
    }
    part.b.emplace_back(std::move(rows));
    if (bias != nullptr && adds_adapter_bias(layer, rank)) {
      part.bias.back() = std::move(of_bias);
    }
  }
  return part;
}

}  // namespace lora_bench
