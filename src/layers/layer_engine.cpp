#include "layers/layer_engine.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/convert.h"
#include "core/error.h"

namespace lora_bench {
namespace {

std::int64_t bytes_of(Dtype dtype, std::int64_t elements) { return elements * size_bytes(dtype); }

void* advance(void* address, std::int64_t bytes) {
  return address == nullptr ? nullptr : static_cast<char*>(address) + bytes;
}

template <class T>
void upload(GuardedBuffer& buffer, const std::vector<T>& from) {
  buffer.upload(from.data(), static_cast<std::int64_t>(from.size() * sizeof(T)));
}

// Whether the bias is added to a product in fp32 that ends before.
bool adds_bias_after(const ShardProblem& problem) {
  return problem.adds_bias && !problem.base.bias;
}

void forget_adapters(Problem& problem) {
  std::fill(problem.rank.begin(), problem.rank.end(), 0);
  std::fill(problem.scale.begin(), problem.scale.end(), 1.0F);
}

std::vector<void*> addresses(auto& parts, auto member) {
  std::vector<void*> all;
  for (auto& part : parts) {
    all.push_back((part.*member).data());
  }
  return all;
}

}  // namespace

LayerEngine::LayerEngine(const LayerProblem& problem, const Backend& base, const Backend& lora,
                         Memory& memory)
    : problem_(problem),
      base_(base),
      lora_(lora),
      memory_(memory),
      x_(memory, bytes_of(problem.lora.dtype, problem.lora.tokens * problem.layer.in_features)) {
  if (const std::string why = why_not_run(problem.layer); !why.empty()) {
    throw UsageError(why);
  }
  if (memory.space() != Space::kHost && problem.adds_bias() && !problem.bias_in_product) {
    throw std::logic_error("on a device the base product adds the bias");
  }
  base_plan_ = plan_arrays(1);
  lora_plan_ = plan_arrays(problem.lora.slots);
  parts_.resize(static_cast<std::size_t>(problem.layer.tp));
  for (std::int64_t rank = 0; rank < shards(); ++rank) {
    Part& part = at(rank);
    part.problem = shard_problem(problem, rank);
    allocate(part);
    allocate_weights(part);
    forget_adapters(part.problem.lora);
    if (part.problem.expand) {
      forget_adapters(*part.problem.expand);
    }
    upload_ranks(part);
  }
  upload_plan(at(0).problem.base.plan, base_plan_);
  activate(problem.lora.plan);
}

void LayerEngine::allocate(Part& part) {
  const ShardProblem& problem = part.problem;
  const Problem& lora = problem.lora;
  const Problem& expand = problem.expand ? *problem.expand : lora;
  const Dtype dtype = lora.dtype;
  const std::int64_t columns = problem.base.max_rank;
  const std::int64_t lanes = lora.slices() * lora.tokens;
  const auto buffer = [&](Dtype of, std::int64_t elements) {
    return GuardedBuffer(memory_, bytes_of(of, elements));
  };
  part.y = buffer(dtype, lora.tokens * columns);
  part.base_fp32 = buffer(Dtype::kFp32, adds_bias_after(problem) ? lora.tokens * columns : 0);
  part.gathered_y =
      buffer(dtype, problem.y == Exchange::kGather ? lora.tokens * problem_.columns() : 0);
  part.h = buffer(lora.intermediate, lanes * lora.max_rank);
  part.whole_h =
      buffer(lora.intermediate, problem.h != Exchange::kNone ? lanes * expand.max_rank : 0);
  part.base.workspace = GuardedBuffer(memory_, base_.workspace_bytes(problem.base));
  part.lora.workspace =
      GuardedBuffer(memory_, std::max(lora_.workspace_bytes(lora), lora_.workspace_bytes(expand)));

  // Where shards' columns lie by themselves, those of the shards before come first.
  const std::int64_t rows_before = problem.input_split ? lora.tokens : 1;
  prepare(problem.base, base_plan_, part.base);
  part.base.operands.x =
      advance(x_.data(), bytes_of(dtype, rows_before * problem.shard.inputs.first));
  part.base.operands.h = adds_bias_after(problem) ? part.base_fp32.data() : part.y.data();
  part.base.operands.workspace = part.base.workspace.data();
  upload_ranks(problem.base, part.base);
  prepare(lora, lora_plan_, part.lora);
  part.lora.operands.x =
      advance(x_.data(), bytes_of(dtype, rows_before * problem.shard.a_inputs.first));
  part.lora.operands.h = part.h.data();
  part.lora.operands.y = problem.expand ? nullptr : part.y.data();
  part.lora.operands.workspace = part.lora.workspace.data();
  if (problem.expand) {
    prepare(expand, lora_plan_, part.expand);
    part.expand.operands.h = part.whole_h.data();
    part.expand.operands.y = part.y.data();
    part.expand.operands.workspace = part.lora.workspace.data();
  }
}

void LayerEngine::allocate_weights(Part& part) {
  const ShardProblem& problem = part.problem;
  const Problem& lora = problem.lora;
  const std::int64_t lanes_of_b = (problem.expand ? *problem.expand : lora).max_rank;
  const auto buffer = [&](std::int64_t elements) {
    return GuardedBuffer(memory_, bytes_of(lora.dtype, elements));
  };
  part.w = buffer(problem.base.max_rank * problem.base.in_features);
  part.bias = buffer(problem.adds_bias ? problem.base.max_rank : 0);
  part.base.operands.a = {part.w.data()};
  part.base.operands.b = {nullptr};
  part.base.operands.bias = {problem.base.bias ? part.bias.data() : nullptr};
  for (const std::int64_t width : lora.widths) {
    part.a.push_back(buffer(lora.slots * lora.max_rank * lora.in_features));
    part.b.push_back(buffer(lora.slots * width * lanes_of_b));
    // No slot holds an adapter.
    part.a.back().clear();
    part.b.back().clear();
    // Each half has its own operands and none of the other's.
    part.lora.operands.a.push_back(part.a.back().data());
    part.lora.operands.b.push_back(problem.expand ? nullptr : part.b.back().data());
    part.expand.operands.a.push_back(nullptr);
    part.expand.operands.b.push_back(part.b.back().data());
    for (Launched* launched : {&part.lora, &part.expand}) {
      launched->operands.bias.push_back(nullptr);
    }
  }
}

LayerEngine::PlanArrays LayerEngine::plan_arrays(std::int64_t slots) {
  const auto numbers = [&](std::int64_t count) {
    return GuardedBuffer(memory_, count * static_cast<std::int64_t>(sizeof(std::int32_t)));
  };
  const std::int64_t tokens = problem_.lora.tokens;
  return {numbers(tokens), numbers(tokens), numbers(slots), numbers(slots + 1)};
}

void LayerEngine::upload_plan(const Plan& plan, PlanArrays& arrays) {
  upload(arrays.adapter_of_token, plan.adapter_of_token);
  upload(arrays.token_order, plan.token_order);
  upload(arrays.active_ids, plan.active_ids);
  upload(arrays.group_starts, plan.group_starts);
}

void LayerEngine::prepare(const Problem& problem, const PlanArrays& arrays, Launched& launched) {
  const auto numbers = [](const GuardedBuffer& buffer) {
    return static_cast<const std::int32_t*>(buffer.data());
  };
  const auto slots = static_cast<std::int64_t>(problem.rank.size());
  launched.rank = GuardedBuffer(memory_, slots * static_cast<std::int64_t>(sizeof(std::int32_t)));
  launched.scale = GuardedBuffer(memory_, slots * static_cast<std::int64_t>(sizeof(float)));
  launched.operands.adapter_of_token = numbers(arrays.adapter_of_token);
  launched.operands.token_order = numbers(arrays.token_order);
  launched.operands.active_ids = numbers(arrays.active_ids);
  launched.operands.group_starts = numbers(arrays.group_starts);
  launched.operands.rank = numbers(launched.rank);
  launched.operands.scale = static_cast<const float*>(launched.scale.data());
}

void LayerEngine::upload_ranks(const Problem& problem, Launched& launched) {
  upload(launched.rank, std::vector<std::int32_t>(problem.rank.begin(), problem.rank.end()));
  upload(launched.scale, problem.scale);
}

void LayerEngine::upload_ranks(Part& part) {
  upload_ranks(part.problem.lora, part.lora);
  if (part.problem.expand) {
    upload_ranks(*part.problem.expand, part.expand);
  }
}

void LayerEngine::load_from(const LayerEngine& other) {
  x_.copy_from(other.x_);
  for (std::int64_t rank = 0; rank < shards(); ++rank) {
    Part& part = at(rank);
    const Part& from = other.at(rank);
    part.w.copy_from(from.w);
    part.bias.copy_from(from.bias);
    for (std::size_t slice = 0; slice < part.a.size(); ++slice) {
      part.a[slice].copy_from(from.a[slice]);
      part.b[slice].copy_from(from.b[slice]);
    }
    part.problem = from.problem;
    upload_ranks(part);
  }
  activate(at(0).problem.lora.plan);
  returned_bias_ = other.returned_bias_;
}

void LayerEngine::load_base(const Matrix& w, const Matrix& bias) {
  for (Part& part : parts_) {
    const Shard& shard = part.problem.shard;
    const std::int64_t row_bytes = bytes_of(w.dtype, shard.inputs.count);
    std::int64_t rows = 0;
    std::int64_t block_start = 0;
    for (std::size_t block = 0; block < shard.outputs.size(); ++block) {
      const IndexRange outputs{block_start + shard.outputs[block].first,
                               shard.outputs[block].count};
      const bool whole_rows = shard.inputs.count == w.columns;
      const Matrix piece = whole_rows ? Matrix{} : cut(w, outputs, shard.inputs);
      memory_.copy_in(advance(part.w.data(), rows * row_bytes),
                      whole_rows ? w.data.data() + outputs.first * row_bytes : piece.data.data(),
                      outputs.count * row_bytes);
      if (part.problem.adds_bias) {
        memory_.copy_in(advance(part.bias.data(), bytes_of(bias.dtype, rows)),
                        bias.data.data() + bytes_of(bias.dtype, outputs.first),
                        bytes_of(bias.dtype, outputs.count));
      }
      rows += outputs.count;
      block_start += problem_.layer.widths[block];
    }
  }
  returned_bias_ = problem_.skip_bias_add ? bias : Matrix{};
}

void LayerEngine::write_slot(Part& part, std::int64_t slot, const AdapterWeights& weights) {
  const Problem& lora = part.problem.lora;
  const Problem& expand = part.problem.expand ? *part.problem.expand : lora;
  // Rows of a matrix of fewer columns than the slot has, below each other in a slot of zeros.
  const auto put = [&](GuardedBuffer& buffer, std::int64_t rows, std::int64_t columns,
                       const std::optional<Matrix>& matrix) {
    const std::int64_t stride = bytes_of(lora.dtype, columns);
    std::vector<std::byte> slot_bytes(static_cast<std::size_t>(rows * stride));
    for (std::int64_t row = 0; matrix && row < matrix->rows && !matrix->data.empty(); ++row) {
      const std::int64_t row_bytes = bytes_of(lora.dtype, matrix->columns);
      std::memcpy(slot_bytes.data() + row * stride, matrix->data.data() + row * row_bytes,
                  static_cast<std::size_t>(row_bytes));
    }
    if (!slot_bytes.empty()) {
      memory_.copy_in(advance(buffer.data(), slot * rows * stride), slot_bytes.data(),
                      static_cast<std::int64_t>(slot_bytes.size()));
    }
  };
  for (std::size_t i = 0; i < part.a.size(); ++i) {
    put(part.a[i], lora.max_rank, lora.in_features,
        weights.a.empty() ? std::nullopt : weights.a[i]);
    put(part.b[i], lora.widths[i], expand.max_rank,
        weights.b.empty() ? std::nullopt : weights.b[i]);
  }
}

void LayerEngine::set_rank(std::int64_t slot, std::int64_t rank, float scale) {
  const auto index = static_cast<std::size_t>(slot);
  for (Part& part : parts_) {
    ShardProblem& problem = part.problem;
    problem.lora.rank[index] = problem.expand ? rank_in(problem.shard.lanes, rank) : rank;
    problem.lora.scale[index] = scale;
    if (problem.expand) {
      problem.expand->rank[index] = rank;
      problem.expand->scale[index] = scale;
    }
    upload_ranks(part);
  }
}

void LayerEngine::set_adapter(std::int64_t slot, const AdapterWeights& given, float scale) {
  const AdapterWeights whole = fit_weights(problem_.layer, given);
  std::int64_t rank = 0;
  for (const std::optional<Matrix>& a : whole.a) {
    rank = std::max(rank, a ? a->rows : 0);
  }
  for (std::int64_t shard = 0; shard < shards(); ++shard) {
    write_slot(at(shard), slot, shard_weights(problem_.layer, whole, shard));
  }
  set_rank(slot, rank, scale);
}

void LayerEngine::reset_adapter(std::int64_t slot) {
  for (Part& part : parts_) {
    write_slot(part, slot, {});
  }
  set_rank(slot, 0, 1.0F);
}

void LayerEngine::activate(const Plan& plan) {
  if (plan.tokens() != problem_.lora.tokens) {
    throw std::logic_error("a batch of other length than the layer was made for");
  }
  upload_plan(plan, lora_plan_);
  for (Part& part : parts_) {
    part.problem.lora.plan = plan;
    if (part.problem.expand) {
      part.problem.expand->plan = plan;
    }
  }
}

void LayerEngine::set_input(const std::vector<std::byte>& x) {
  if (!at(0).problem.input_split) {
    x_.upload(x);
    return;
  }
  const MatrixView whole{problem_.lora.dtype, x.data(), problem_.layer.in_features};
  std::vector<std::byte> parts;
  for (const Part& part : parts_) {
    const Matrix columns = cut(whole, {0, problem_.lora.tokens}, part.problem.shard.inputs);
    parts.insert(parts.end(), columns.data.begin(), columns.data.end());
  }
  x_.upload(parts);
}

void LayerEngine::add_bias(Part& part) {
  const std::int64_t columns = part.problem.base.max_rank;
  const Dtype dtype = part.problem.lora.dtype;
  auto* base = static_cast<float*>(part.base_fp32.data());
  std::vector<float> bias(static_cast<std::size_t>(columns));
  decode(dtype, part.bias.data(), bias);
  for (std::int64_t row = 0; row < part.problem.base.tokens; ++row) {
    float* const sums = base + row * columns;
    for (std::size_t i = 0; i < bias.size(); ++i) {
      sums[i] += bias[i];
    }
    encode(dtype, {sums, bias.size()}, advance(part.y.data(), bytes_of(dtype, row * columns)));
  }
}

void LayerEngine::run_before_h(std::int64_t rank, bool with_lora, Stream stream) {
  Part& part = at(rank);
  base_.launch(part.problem.base, part.base.operands, stream);
  if (adds_bias_after(part.problem)) {
    add_bias(part);
  }
  if (with_lora) {
    lora_.launch(part.problem.lora, part.lora.operands, stream);
  }
}

void LayerEngine::run_after_h(std::int64_t rank, Stream stream) {
  Part& part = at(rank);
  if (part.problem.expand) {
    lora_.launch(*part.problem.expand, part.expand.operands, stream);
  }
}

void LayerEngine::exchange_h(Communicator& communicator, Stream stream) {
  const Problem& lora = at(0).problem.lora;
  const PartShape shape{lora.intermediate, lora.slices() * lora.tokens, lora.max_rank};
  const std::vector<void*> parts = addresses(parts_, &Part::h);
  if (at(0).problem.h == Exchange::kReduce) {
    communicator.all_reduce(shape, parts, addresses(parts_, &Part::whole_h), stream);
  } else if (at(0).problem.h == Exchange::kGather) {
    communicator.all_gather(shape, parts, addresses(parts_, &Part::whole_h), stream);
  }
}

void LayerEngine::exchange_y(Communicator& communicator, Stream stream) {
  const Problem& base = at(0).problem.base;
  const PartShape shape{problem_.lora.dtype, base.tokens, base.max_rank};
  const std::vector<void*> parts = addresses(parts_, &Part::y);
  if (at(0).problem.y == Exchange::kReduce) {
    communicator.all_reduce(shape, parts, parts, stream);
  } else if (at(0).problem.y == Exchange::kGather) {
    communicator.all_gather(shape, parts, addresses(parts_, &Part::gathered_y), stream);
  }
}

void LayerEngine::forward(Communicator& communicator, Stream stream, bool with_lora) {
  for (std::int64_t rank = 0; rank < shards(); ++rank) {
    run_before_h(rank, with_lora, stream);
  }
  if (with_lora) {
    exchange_h(communicator, stream);
    for (std::int64_t rank = 0; rank < shards(); ++rank) {
      run_after_h(rank, stream);
    }
  }
  exchange_y(communicator, stream);
}

void LayerEngine::poison_results(std::int64_t rank) {
  Part& part = at(rank);
  for (GuardedBuffer* buffer : {&part.y, &part.base_fp32, &part.h, &part.gathered_y}) {
    buffer->poison();
  }
}

void LayerEngine::poison_h(std::int64_t rank) { at(rank).h.poison(); }

Matrix LayerEngine::output(std::int64_t rank) const {
  const Part& part = at(rank);
  const bool gathered = part.problem.y == Exchange::kGather;
  const std::int64_t columns = gathered ? problem_.columns() : part.problem.base.max_rank;
  return {problem_.lora.dtype, problem_.lora.tokens, columns,
          (gathered ? part.gathered_y : part.y).download()};
}

std::string LayerEngine::damage() const {
  for (const Part& part : parts_) {
    for (const GuardedBuffer* buffer :
         {&part.y, &part.h, &part.whole_h, &part.gathered_y, &part.base_fp32, &part.lora.workspace,
          &part.base.workspace}) {
      if (std::string damage = buffer->damage(); !damage.empty()) {
        return damage;
      }
    }
  }
  return "";
}

std::string LayerEngine::changed_input(const LayerEngine& other) const {
  const auto differ = [](const GuardedBuffer& one, const GuardedBuffer& another) {
    return !one.same_as(another);
  };
  if (differ(x_, other.x_)) {
    return "x";
  }
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    const Part& mine = parts_[rank];
    const Part& others = other.parts_[rank];
    std::string what = differ(mine.w, others.w)         ? "W"
                       : differ(mine.bias, others.bias) ? "bias"
                                                        : "";
    for (std::size_t i = 0; i < mine.a.size() && what.empty(); ++i) {
      what = differ(mine.a[i], others.a[i]) ? "A" : differ(mine.b[i], others.b[i]) ? "B" : "";
    }
    if (!what.empty()) {
      return what + " of shard " + std::to_string(rank);
    }
  }
  return "";
}

}  // namespace lora_bench
