#include "layers/layer_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/dtype.h"
#include "core/random.h"

namespace lora_bench {
namespace {

// Another stream of numbers than the adapters'.
constexpr std::uint64_t kBaseSeed = 0x42415345;  // "BASE"

// The layer's base as an op: W is the A of one adapter, the bias that of another op.
Problem base_alone(const LayerProblem& problem, Op op, std::int64_t rank) {
  Problem base;
  base.op = op;
  base.dtype = problem.dtype_of_base();
  base.in_features = problem.lora.in_features;
  base.widths = {problem.columns()};
  base.bias = true;
  base.tokens = problem.lora.tokens;
  base.x_stride = base.in_features;
  base.y_stride = problem.columns();
  base.slots = 1;
  base.max_rank = rank;
  base.rank = {rank};
  base.scale = {1.0F};
  base.plan = make_plan(std::vector<std::int32_t>(static_cast<std::size_t>(base.tokens), 0), 1);
  return base;
}

Matrix matrix_of(HostTensor tensor, std::int64_t rows, std::int64_t columns) {
  return {tensor.dtype, rows, columns, std::move(tensor.data)};
}

// A sum over K of one term is that term: enlarged by what the others would have brought, and by
// a power of two, so that no bit is lost. Of weights of eight bits it is their scales that are.
void enlarge(Dtype dtype, std::int64_t in_features, std::vector<std::byte>& data) {
  const float factor = std::exp2(std::round(std::log2(std::sqrt(static_cast<float>(in_features)))));
  std::vector<float> numbers(data.size() / static_cast<std::size_t>(size_bytes(dtype)));
  decode(dtype, data.data(), numbers);
  for (float& number : numbers) {
    number *= factor;
  }
  encode(dtype, numbers, data.data());
}

void draw_ids(const LayerProblem& problem, std::uint64_t seed, LayerTensors& tensors) {
  constexpr std::uint64_t kIdStream = 0x494453;  // "IDS"
  const Problem& lora = problem.lora;
  const std::int64_t width = lora.in_features;
  std::vector<float> one_hot(static_cast<std::size_t>(width));
  std::int64_t adapted_rows = 0;  // every other one has an id that its adapter added
  for (std::int64_t token = 0; token < lora.tokens; ++token) {
    const auto drawn = [&](std::int64_t below) {
      return static_cast<std::int64_t>(random_below(
          seed, kIdStream, static_cast<std::uint64_t>(token), static_cast<std::uint64_t>(below)));
    };
    const std::int32_t slot = lora.plan.adapter_of_token[static_cast<std::size_t>(token)];
    const bool adapted = slot >= 0 && lora.rank[static_cast<std::size_t>(slot)] > 0;
    const bool added = problem.layer.extra > 0 && adapted && adapted_rows++ % 2 == 0;
    const std::int64_t id = added ? problem.layer.in_features + drawn(problem.layer.extra)
                                  : drawn(problem.layer.in_features);
    tensors.ids.push_back(static_cast<std::int32_t>(id));
    const auto of_whole = static_cast<std::size_t>(problem.whole_id(token, id));
    one_hot[of_whole] = 1;
    encode(lora.dtype[Role::kX], one_hot,
           tensors.lora.x.data.data() + token * width * size_bytes(lora.dtype[Role::kX]));
    one_hot[of_whole] = 0;
  }
}

// Of an embedding: A of the vocabulary with what the adapter of a slot added, and the rows that it
// adds to the table.
void take_added(const LayerProblem& problem, const LayerTensors& tensors, std::int64_t slot,
                AdapterWeights& weights) {
  const ShardedLayer& layer = problem.layer;
  const IndexRange added{layer.in_features + slot * layer.extra, layer.extra};
  const auto columns = [](const Matrix& matrix, IndexRange range) {
    return transposed(cut(matrix, {0, matrix.rows}, range));
  };
  for (std::optional<Matrix>& a : weights.a) {
    Matrix kept = columns(*a, {0, layer.in_features});
    const Matrix own = columns(*a, added);
    kept.rows += own.rows;
    kept.data.insert(kept.data.end(), own.data.begin(), own.data.end());
    a = transposed(kept);
  }
  for (std::size_t i = 0; i < weights.a_scale.size(); ++i) {
    const Matrix& a = *weights.a[i];
    weights.a_scale[i] =
        cut_scales(*weights.a_scale[i], {weights.scales.over(a.rows, problem.lora.in_features),
                                         weights.scales.over(a.rows, a.columns),
                                         {{0, a.rows}},
                                         {{0, layer.in_features}, added}});
  }
  weights.table_rows = columns(tensors.w, added);
}

// Rows below rows, or the columns of one row behind those of another.
void put_behind(Matrix& to, const Matrix& from, std::int64_t Matrix::*grows) {
  to.*grows += from.*grows;
  to.data.insert(to.data.end(), from.data.begin(), from.data.end());
}

// The scales that the adapter of a slot has for a matrix of so many rows and columns.
Matrix scales_of_slot(const Problem& lora, Role weights, std::size_t slice,
                      const HostTensor& scales, std::int64_t slot, std::int64_t rows,
                      std::int64_t columns) {
  const ScaleBlocks all = lora.scales_of(weights, static_cast<std::int64_t>(slice));
  const ScaleBlocks own = lora.scale_form().over(rows, columns);
  return cut(MatrixView{scales.dtype, scales.data.data(), all.across}, {slot * all.down, own.down},
             {0, own.across});
}

AdapterWeights of_each_block(const LayerProblem& problem, const LayerTensors& tensors,
                             std::int64_t slot) {
  const Problem& lora = problem.lora;
  const std::int64_t rank = lora.rank[static_cast<std::size_t>(slot)];
  AdapterWeights weights;
  weights.scales = lora.scale_form();
  for (std::size_t slice = 0; slice < lora.widths.size(); ++slice) {
    const HostTensor& a = tensors.lora.a[slice];
    const HostTensor& b = tensors.lora.b[slice];
    const std::int64_t width = lora.widths[slice];
    if (problem.lacks_block(slot, slice)) {
      weights.a.emplace_back();
      weights.b.emplace_back();
      if (lora.bias) {
        weights.bias.emplace_back();
      }
      if (lora.has_scaled_weights()) {
        weights.a_scale.emplace_back();
        weights.b_scale.emplace_back();
      }
      continue;
    }
    if (lora.bias) {
      const HostTensor& bias = tensors.lora.bias[slice];
      weights.bias.emplace_back(
          cut(MatrixView{bias.dtype, bias.data.data(), width}, {slot, 1}, {0, width}));
    }
    weights.a.emplace_back(cut(MatrixView{a.dtype, a.data.data(), lora.in_features},
                               {slot * lora.max_rank, rank}, {0, lora.in_features}));
    weights.b.emplace_back(
        cut(MatrixView{b.dtype, b.data.data(), lora.max_rank}, {slot * width, width}, {0, rank}));
    if (lora.has_scaled_weights()) {
      weights.a_scale.emplace_back(scales_of_slot(
          lora, Role::kA, slice, tensors.lora.a_scale[slice], slot, rank, lora.in_features));
      weights.b_scale.emplace_back(
          scales_of_slot(lora, Role::kB, slice, tensors.lora.b_scale[slice], slot, width, rank));
    }
  }
  return weights;
}

}  // namespace

void hold_as_adapters_bring(const LayerProblem& problem, Tensors& lora) {
  for (std::size_t block = 0; block < problem.lora.widths.size(); ++block) {
    if (problem.first_of_pair(block) != block) {
      lora.a[block] = lora.a[problem.first_of_pair(block)];
      if (problem.lora.has_scaled_weights()) {
        lora.a_scale[block] = lora.a_scale[problem.first_of_pair(block)];
      }
      if (problem.lora.weights_scale == WeightsScale::kTensor) {
        lora.b_scale[block] = lora.b_scale[problem.first_of_pair(block)];
      }
    }
  }
  const std::int64_t lane_bytes = problem.lora.max_rank * size_bytes(problem.lora.dtype[Role::kB]);
  for (std::size_t block = 0; block < problem.lora.widths.size(); ++block) {
    const std::int64_t slot_bytes = problem.lora.widths[block] * lane_bytes;
    for (std::int64_t slot = 0; slot < problem.lora.slots; ++slot) {
      if (problem.lacks_block(slot, block)) {
        std::fill_n(lora.b[block].data.begin() + slot * slot_bytes, slot_bytes, std::byte{0});
        if (problem.lora.bias) {
          const std::int64_t bytes =
              problem.lora.widths[block] * size_bytes(problem.lora.dtype[Role::kBias]);
          std::fill_n(lora.bias[block].data.begin() + slot * bytes, bytes, std::byte{0});
        }
      }
    }
  }
}

LayerTensors draw_layer_tensors(const LayerProblem& problem, Fill fill, std::uint64_t seed) {
  const std::int64_t columns = problem.columns();
  LayerTensors tensors;
  tensors.lora = draw_tensors(problem.lora, fill, seed);
  Tensors base = draw_tensors(base_alone(problem, Op::kShrink, columns), fill, seed ^ kBaseSeed);
  // To an op a row without adapter is poison; the base needs all of them.
  tensors.lora.x = std::move(base.x);
  hold_as_adapters_bring(problem, tensors.lora);
  tensors.w = matrix_of(std::move(base.a[0]), columns, problem.lora.in_features);
  if (description_of(problem.layer.kind).looks_up) {
    draw_ids(problem, seed, tensors);
    if (fill != Fill::kExact) {
      enlarge(tensors.w.dtype, problem.layer.in_features, tensors.w.data);
      HostTensor& enlarged =
          (problem.lora.has_scaled_weights() ? tensors.lora.a_scale : tensors.lora.a).front();
      enlarge(enlarged.dtype, problem.layer.in_features, enlarged.data);
    }
  }
  if (problem.base_bias) {
    base = draw_tensors(base_alone(problem, Op::kExpand, 1), fill, seed ^ kBaseSeed);
    tensors.bias = matrix_of(std::move(base.bias[0]), 1, columns);
  }
  return tensors;
}

AdapterWeights adapter_of(const LayerProblem& problem, const LayerTensors& tensors,
                          std::int64_t slot) {
  AdapterWeights weights = of_each_block(problem, tensors, slot);
  if (problem.layer.extra > 0) {
    take_added(problem, tensors, slot, weights);
  }
  if (problem.packed.empty()) {
    return weights;
  }
  AdapterWeights packed;
  packed.scales = weights.scales;
  for (std::size_t block = 0; block < weights.b.size(); ++block) {
    if (problem.first_of_pair(block) == block) {
      packed.a.push_back(weights.a[block]);
      packed.b.push_back(weights.b[block]);
      if (!weights.bias.empty()) {
        packed.bias.push_back(weights.bias[block]);
      }
      if (weights.scales.any()) {
        packed.a_scale.push_back(weights.a_scale[block]);
        packed.b_scale.push_back(weights.b_scale[block]);
      }
      continue;
    }
    put_behind(*packed.b.back(), *weights.b[block], &Matrix::rows);
    if (weights.scales.any() && weights.scales.scale != WeightsScale::kTensor) {
      put_behind(*packed.b_scale.back(), *weights.b_scale[block], &Matrix::rows);
    }
    if (!weights.bias.empty()) {
      put_behind(*packed.bias.back(), *weights.bias[block], &Matrix::columns);
    }
  }
  return packed;
}

void load_layer(LayerEngine& engine, const LayerProblem& problem, const LayerTensors& tensors) {
  engine.load_base(tensors.w, tensors.bias);
  if (description_of(problem.layer.kind).looks_up) {
    engine.set_ids(tensors.ids);
  } else {
    engine.set_input(tensors.lora.x.data);
  }
  load_adapters(engine, problem, tensors);
}

void load_adapters(LayerEngine& engine, const LayerProblem& problem, const LayerTensors& tensors) {
  for (std::int64_t slot = 0; slot < problem.lora.slots; ++slot) {
    if (problem.lora.rank[static_cast<std::size_t>(slot)] == 0) {
      engine.reset_adapter(slot);
    } else {
      engine.set_adapter(slot, adapter_of(problem, tensors, slot),
                         tensors.lora.scale[static_cast<std::size_t>(slot)]);
    }
  }
}

}  // namespace lora_bench
