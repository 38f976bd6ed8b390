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
  if (memory.space() != Space::kHost) {
    throw CaseError("layers run on the host only");
  }
  parts_.resize(static_cast<std::size_t>(problem.layer.tp));
  for (std::int64_t rank = 0; rank < shards(); ++rank) {
    at(rank).problem = shard_problem(problem, rank);
    allocate(at(rank));
  }
  for (std::int64_t slot = 0; slot < problem.lora.slots; ++slot) {
    reset_adapter(slot);
  }
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
  part.w = buffer(dtype, columns * problem.base.in_features);
  part.y = buffer(dtype, lora.tokens * columns);
  part.base_fp32 = buffer(Dtype::kFp32, problem.adds_bias ? lora.tokens * columns : 0);
  part.gathered_y =
      buffer(dtype, problem.y == Exchange::kGather ? lora.tokens * problem_.columns() : 0);
  part.h = buffer(lora.intermediate, lanes * lora.max_rank);
  part.whole_h =
      buffer(lora.intermediate, problem.h != Exchange::kNone ? lanes * expand.max_rank : 0);

  const std::int64_t first = bytes_of(dtype, problem.shard.inputs.first);
  part.base.operands.x = advance(x_.data(), first);
  part.base.operands.a = {part.w.data()};
  part.base.operands.b = {nullptr};
  part.base.operands.bias = {nullptr};
  part.base.operands.h = problem.adds_bias ? part.base_fp32.data() : part.y.data();
  part.lora.operands.x = advance(x_.data(), bytes_of(dtype, problem.shard.a_inputs.first));
  part.lora.operands.h = part.h.data();
  part.lora.operands.y = problem.expand ? nullptr : part.y.data();
  part.expand.operands.h = part.whole_h.data();
  part.expand.operands.y = part.y.data();
  for (const std::int64_t width : lora.widths) {
    part.a.push_back(buffer(dtype, lora.slots * lora.max_rank * lora.in_features));
    part.b.push_back(buffer(dtype, lora.slots * width * expand.max_rank));
    // Each half has its own operands and none of the other's.
    part.lora.operands.a.push_back(part.a.back().data());
    part.lora.operands.b.push_back(problem.expand ? nullptr : part.b.back().data());
    part.expand.operands.a.push_back(nullptr);
    part.expand.operands.b.push_back(part.b.back().data());
    for (Launched* launched : {&part.lora, &part.expand}) {
      launched->operands.bias.push_back(nullptr);
    }
  }
  upload_plan(problem.base, part.base);
  upload_ranks(problem.base, part.base);
  part.base.workspace = GuardedBuffer(memory_, base_.workspace_bytes(problem.base));
  part.base.operands.workspace = part.base.workspace.data();
  part.lora.workspace =
      GuardedBuffer(memory_, std::max(lora_.workspace_bytes(lora), lora_.workspace_bytes(expand)));
  part.lora.operands.workspace = part.lora.workspace.data();
  part.expand.operands.workspace = part.lora.workspace.data();
}

void LayerEngine::upload_plan(const Problem& problem, Launched& launched) {
  const auto keep = [&](GuardedBuffer& buffer, const std::vector<std::int32_t>& from) {
    buffer = GuardedBuffer(memory_, static_cast<std::int64_t>(from.size() * sizeof(from[0])));
    upload(buffer, from);
    return static_cast<const std::int32_t*>(buffer.data());
  };
  launched.operands.adapter_of_token =
      keep(launched.adapter_of_token, problem.plan.adapter_of_token);
  launched.operands.token_order = keep(launched.token_order, problem.plan.token_order);
  launched.operands.active_ids = keep(launched.active_ids, problem.plan.active_ids);
  launched.operands.group_starts = keep(launched.group_starts, problem.plan.group_starts);
}

void LayerEngine::upload_ranks(const Problem& problem, Launched& launched) {
  const std::vector<std::int32_t> ranks(problem.rank.begin(), problem.rank.end());
  launched.rank =
      GuardedBuffer(memory_, static_cast<std::int64_t>(ranks.size() * sizeof(ranks[0])));
  launched.scale = GuardedBuffer(
      memory_, static_cast<std::int64_t>(problem.scale.size() * sizeof(problem.scale[0])));
  upload(launched.rank, ranks);
  upload(launched.scale, problem.scale);
  launched.operands.rank = static_cast<const std::int32_t*>(launched.rank.data());
  launched.operands.scale = static_cast<const float*>(launched.scale.data());
}

void LayerEngine::load_base(const Matrix& w, const Matrix& bias) {
  for (Part& part : parts_) {
    const Shard& shard = part.problem.shard;
    std::vector<std::byte> rows;
    std::vector<float> biases;
    std::int64_t block_start = 0;
    for (std::size_t block = 0; block < shard.outputs.size(); ++block) {
      const IndexRange outputs{block_start + shard.outputs[block].first,
                               shard.outputs[block].count};
      const Matrix piece = cut(w, outputs, shard.inputs);
      rows.insert(rows.end(), piece.data.begin(), piece.data.end());
      for (std::int64_t i = 0; part.problem.adds_bias && i < outputs.count; ++i) {
        biases.push_back(load(bias.dtype, bias.data.data(), outputs.first + i));
      }
      block_start += problem_.layer.widths[block];
    }
    part.w.upload(rows);
    part.bias = std::move(biases);
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
    upload_ranks(problem.lora, part.lora);
    if (problem.expand) {
      problem.expand->rank[index] = rank;
      problem.expand->scale[index] = scale;
      upload_ranks(*problem.expand, part.expand);
    }
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
  for (Part& part : parts_) {
    part.problem.lora.plan = plan;
    upload_plan(part.problem.lora, part.lora);
    if (part.problem.expand) {
      part.problem.expand->plan = plan;
      upload_plan(*part.problem.expand, part.expand);
    }
  }
}

void LayerEngine::set_input(const std::vector<std::byte>& x) { x_.upload(x); }

void LayerEngine::add_bias(Part& part) {
  const std::int64_t columns = part.problem.base.max_rank;
  const Dtype dtype = part.problem.lora.dtype;
  auto* base = static_cast<float*>(part.base_fp32.data());
  for (std::int64_t row = 0; row < part.problem.base.tokens; ++row) {
    float* const sums = base + row * columns;
    for (std::size_t i = 0; i < part.bias.size(); ++i) {
      sums[i] += part.bias[i];
    }
    encode(dtype, {sums, part.bias.size()}, advance(part.y.data(), bytes_of(dtype, row * columns)));
  }
}

void LayerEngine::run_before_h(std::int64_t rank, bool with_lora, Stream stream) {
  Part& part = at(rank);
  base_.launch(part.problem.base, part.base.operands, stream);
  if (part.problem.adds_bias) {
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

void LayerEngine::exchange_h(Communicator& communicator) {
  const Problem& lora = at(0).problem.lora;
  const PartShape shape{lora.intermediate, lora.slices() * lora.tokens, lora.max_rank};
  const std::vector<void*> parts = addresses(parts_, &Part::h);
  if (at(0).problem.h == Exchange::kReduce) {
    communicator.all_reduce(shape, parts, addresses(parts_, &Part::whole_h));
  } else if (at(0).problem.h == Exchange::kGather) {
    communicator.all_gather(shape, parts, addresses(parts_, &Part::whole_h));
  }
}

void LayerEngine::exchange_y(Communicator& communicator) {
  const Problem& base = at(0).problem.base;
  const PartShape shape{problem_.lora.dtype, base.tokens, base.max_rank};
  const std::vector<void*> parts = addresses(parts_, &Part::y);
  if (at(0).problem.y == Exchange::kReduce) {
    communicator.all_reduce(shape, parts, parts);
  } else if (at(0).problem.y == Exchange::kGather) {
    communicator.all_gather(shape, parts, addresses(parts_, &Part::gathered_y));
  }
}

void LayerEngine::forward(Communicator& communicator, Stream stream, bool with_lora) {
  for (std::int64_t rank = 0; rank < shards(); ++rank) {
    run_before_h(rank, with_lora, stream);
  }
  if (with_lora) {
    exchange_h(communicator);
    for (std::int64_t rank = 0; rank < shards(); ++rank) {
      run_after_h(rank, stream);
    }
  }
  exchange_y(communicator);
}

void LayerEngine::poison_results(std::int64_t rank) {
  Part& part = at(rank);
  for (GuardedBuffer* buffer : {&part.y, &part.base_fp32, &part.h, &part.gathered_y}) {
    buffer->poison();
  }
}

Matrix LayerEngine::output(std::int64_t rank) const {
  const Part& part = at(rank);
  const bool gathered = part.problem.y == Exchange::kGather;
  const std::int64_t columns = gathered ? problem_.columns() : part.problem.base.max_rank;
  return {problem_.lora.dtype, problem_.lora.tokens, columns,
          (gathered ? part.gathered_y : part.y).download()};
}

std::string LayerEngine::damage() const {
  for (const Part& part : parts_) {
    for (const GuardedBuffer* buffer : {&part.y, &part.h, &part.whole_h, &part.gathered_y,
                                        &part.base_fp32, &part.lora.workspace}) {
      if (std::string damage = buffer->damage(); !damage.empty()) {
        return damage;
      }
    }
  }
  return "";
}

std::string LayerEngine::changed_input(const LayerEngine& other) const {
  const auto differ = [](const GuardedBuffer& one, const GuardedBuffer& another) {
    return one.download() != another.download();
  };
  if (differ(x_, other.x_)) {
    return "x";
  }
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    const Part& mine = parts_[rank];
    const Part& others = other.parts_[rank];
    std::string what = differ(mine.w, others.w) ? "W" : "";
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
