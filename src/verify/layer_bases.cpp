#include "verify/layer_bases.h"

#include <algorithm>
#include <numeric>

#include "core/dtype.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kNone = -1;

}  // namespace

double number(const Matrix& matrix, std::int64_t row, std::int64_t column) {
  return load(matrix.dtype, matrix.data.data(), row * matrix.columns + column);
}

std::vector<double> numbers(const Matrix& matrix, std::int64_t row, std::int64_t first,
                            std::int64_t count) {
  std::vector<double> all(nth(count));
  for (std::int64_t i = 0; i < count; ++i) {
    all[nth(i)] = number(matrix, row, first + i);
  }
  return all;
}

Shard Bases::shard_at(std::int64_t rank) const {
  Shard shard = shard_of(layer_, rank);
  if (is(LayerFault::kKvReplicationIgnored) && description_.heads && layer_.tp > layer_.kv_heads) {
    for (std::size_t block = 1; block < shard.outputs.size(); ++block) {
      shard.outputs[block].first = rank % layer_.kv_heads * shard.outputs[block].count;
      shard.b_rows[block].first = shard.outputs[block].first;
    }
  }
  if (is(LayerFault::kHeadsOfVAsWideAsOfK) && description_.heads) {
    const std::int64_t past = layer_.widths[2] - shard.outputs[2].count;
    shard.outputs[2].first = std::min(shard.outputs[1].first, past);
    shard.b_rows[2].first = shard.outputs[2].first;
  }
  const Shard next = shard_of(layer_, (rank + 1) % layer_.tp);
  if (is(LayerFault::kRowsOfNextShard)) {
    shard.b_rows = next.b_rows;
  } else if (is(LayerFault::kDeltaAtFirstColumn)) {
    shard.b_column = 0;
  } else if (is(LayerFault::kDeltaInEveryTerm) && description_.y == Exchange::kReduce) {
    shard.a_inputs = {0, layer_.in_features};
  }
  return shard;
}

std::vector<double> Bases::x(std::size_t row, IndexRange inputs) const {
  std::vector<double> all(nth(inputs.count));
  for (std::int64_t k = 0; k < inputs.count; ++k) {
    all[nth(k)] = load(problem_.lora.dtype[Role::kX], tensors_.lora.x.data.data(),
                       tokens_[row] * problem_.lora.in_features + inputs.first + k);
  }
  return all;
}

std::vector<double> Bases::x_of_adapters(std::size_t row, IndexRange inputs) const {
  if (!description_.looks_up) {
    return x(row, inputs);
  }
  std::vector<double> all(nth(inputs.count));
  all[nth(tensors_.ids[nth(tokens_[row])])] = 1;
  return all;
}

std::vector<double> Bases::base(std::int64_t rank) const {
  const Shard own = shard_at(rank);
  const Shard of_weights =
      is(LayerFault::kBaseOfNextShard) ? shard_of(layer_, (rank + 1) % layer_.tp) : own;
  // Shards of a vocabulary may differ in length: what another has beyond is not read, what it
  // lacks adds nothing.
  const std::size_t columns = columns_of_shard(layer_, own).size();
  std::vector<std::int64_t> rows = columns_of_shard(layer_, of_weights);
  rows.resize(columns, kNone);
  std::vector<std::int64_t> bias_rows =
      columns_of_shard(layer_, is(LayerFault::kBiasOfFirstShard) ? shard_of(layer_, 0) : own);
  bias_rows.resize(columns, kNone);
  const bool first_term = description_.y != Exchange::kReduce || rank == 0;
  const bool adds =
      problem_.adds_bias() || (problem_.skip_bias_add && is(LayerFault::kSkippedBiasAdded));
  const bool biased =
      adds && !is(LayerFault::kBiasForgotten) && (first_term || is(LayerFault::kBiasInEveryTerm));
  const std::int64_t inputs = std::min(own.inputs.count, of_weights.inputs.count);
  std::vector<std::vector<double>> x_rows;
  for (std::size_t row = 0; row < tokens_.size(); ++row) {
    x_rows.push_back(x_of_base(row, {own.inputs.first, inputs}));
  }
  std::vector<double> y(tokens_.size() * columns);
  for (std::size_t column = 0; column < columns; ++column) {
    const double bias =
        biased && bias_rows[column] != kNone ? number(tensors_.bias, 0, bias_rows[column]) : 0;
    const std::vector<double> w =
        rows[column] == kNone ? std::vector<double>{}
                              : numbers(tensors_.w, rows[column], of_weights.inputs.first, inputs);
    for (std::size_t row = 0; row < tokens_.size(); ++row) {
      y[row * columns + column] = std::inner_product(w.begin(), w.end(), x_rows[row].begin(), bias);
    }
  }
  for (std::size_t row = 0; row < tokens_.size() && layer_.extra > 0; ++row) {
    add_added_row(row, own.extra, {y.data() + row * columns, columns});
  }
  return y;
}

void Bases::add_added_row(std::size_t row, IndexRange part, std::span<double> y) const {
  const std::int64_t token = tokens_[row];
  const std::int64_t id = tensors_.ids[nth(token)];
  const std::int64_t of_adapter = id - layer_.in_features;
  const bool here = of_adapter >= part.first && of_adapter < part.first + part.count;
  if (of_adapter < 0 || is(LayerFault::kAddedRowsLost) ||
      !(here || is(LayerFault::kAddedRowsInEveryShard))) {
    return;
  }
  const std::int64_t column =
      is(LayerFault::kAddedRowsOfFirstSlot) ? id : problem_.whole_id(token, id);
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] += number(tensors_.w, static_cast<std::int64_t>(i), column);
  }
}

std::vector<double> Bases::x_of_base(std::size_t row, IndexRange inputs) const {
  if (!description_.looks_up || !is(LayerFault::kIdsNotMasked)) {
    return x(row, inputs);
  }
  std::vector<double> all(nth(inputs.count));
  all[nth(tensors_.ids[nth(tokens_[row])] % inputs.count)] = 1;
  return all;
}

}  // namespace lora_bench
