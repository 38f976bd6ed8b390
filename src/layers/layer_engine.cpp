#include "layers/layer_engine.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>

#include "core/dtype.h"
#include "core/error.h"
#include "ops/fused_layer.h"

namespace lora_bench {
namespace {

void forget_adapters(Problem& problem) {
  std::fill(problem.rank.begin(), problem.rank.end(), 0);
  std::fill(problem.scale.begin(), problem.scale.end(), 1.0F);
}

// Rows with room behind each, which is poison then.
void copy_rows(Memory& memory, void* to, const std::byte* from, std::int64_t rows,
               std::int64_t row_bytes, std::int64_t room_bytes) {
  if (room_bytes == 0) {
    memory.copy_in(to, from, rows * row_bytes);
    return;
  }
  constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20;
  const std::int64_t stride = row_bytes + room_bytes;
  const std::int64_t most = std::max<std::int64_t>(kPieceBytes / stride, 1);
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(most, rows) * stride),
                               GuardedBuffer::kPoison);
  for (std::int64_t done = 0; done < rows; done += most) {
    const std::int64_t count = std::min(most, rows - done);
    for (std::int64_t row = 0; row < count; ++row) {
      std::memcpy(piece.data() + row * stride, from + (done + row) * row_bytes,
                  static_cast<std::size_t>(row_bytes));
    }
    memory.copy_in(advance(to, done * stride), piece.data(), count * stride);
  }
}

std::vector<void*> addresses(auto& parts, auto member) {
  std::vector<void*> all;
  for (auto& part : parts) {
    all.push_back((part.*member).data());
  }
  return all;
}

}  // namespace

LayerEngine::LayerEngine(const LayerProblem& problem, const std::vector<ShardPlace>& places)
    : problem_(problem) {
  if (const std::string why = why_not_sharded(problem.layer); !why.empty()) {
    throw UsageError(why);
  }
  if (places.front().memory.space() != Space::kHost && problem.adds_bias() &&
      !problem.bias_in_product) {
    throw std::logic_error("on a device the base product adds the bias");
  }
  if (places.size() != 1 && places.size() != static_cast<std::size_t>(problem.layer.tp)) {
    throw std::logic_error("one place for all shards, or one for each");
  }
  const bool looks_up = description_of(problem.layer.kind).looks_up;
  const std::int64_t x_bytes =
      looks_up ? problem.lora.tokens * static_cast<std::int64_t>(sizeof(std::int32_t))
               : bytes_of(problem.lora.dtype[Role::kX],
                          problem.lora.tokens *
                              (problem.layer.in_features + shard_problem(problem, 0).room));
  for (const ShardPlace& place : places) {
    places_.push_back({place, GuardedBuffer(place.memory, x_bytes), plan_arrays(place.memory, 1),
                       plan_arrays(place.memory, problem.lora.slots),
                       plan_arrays(place.memory, problem.lora.slots),
                       runs_beside(problem.overlap)
                           ? std::make_unique<SideStream>(place.memory.space())
                           : nullptr});
  }
  parts_.resize(static_cast<std::size_t>(problem.layer.tp));
  for (std::int64_t rank = 0; rank < shards(); ++rank) {
    Part& part = at(rank);
    part.place = &places_[places.size() == 1 ? 0 : static_cast<std::size_t>(rank)];
    part.problem = shard_problem(problem, rank);
    allocate_order(part);
    allocate(part);
    allocate_weights(part);
    forget_adapters(part.problem.lora);
    if (part.problem.expand) {
      forget_adapters(*part.problem.expand);
    }
    upload_ranks(part);
  }
  for (Place& place : places_) {
    upload_plan(at(0).problem.base.plan, place.base_plan);
  }
  activate(problem.lora.plan);
}

void LayerEngine::load_base(const Matrix& w, const Matrix& bias) {
  for (Part& part : parts_) {
    if (part.problem.looks_up) {
      part.w.upload(transposed(cut(w, {0, w.rows}, part.problem.shard.inputs)).data);
      continue;
    }
    Memory& memory = part.place->uses.memory;
    const Shard& shard = part.problem.shard;
    const std::int64_t row_bytes = bytes_of(w.dtype, shard.inputs.count);
    const std::int64_t room_bytes = bytes_of(w.dtype, part.problem.room);
    std::int64_t rows = 0;
    std::int64_t block_start = 0;
    for (std::size_t block = 0; block < shard.outputs.size(); ++block) {
      const IndexRange outputs{block_start + shard.outputs[block].first,
                               shard.outputs[block].count};
      const bool whole_rows = shard.inputs.count == w.columns;
      const Matrix piece = whole_rows ? Matrix{} : cut(w, outputs, shard.inputs);
      copy_rows(memory, advance(part.w.data(), rows * (row_bytes + room_bytes)),
                whole_rows ? w.data.data() + outputs.first * row_bytes : piece.data.data(),
                outputs.count, row_bytes, room_bytes);
      if (part.problem.adds_bias) {
        memory.copy_in(advance(part.bias.data(), bytes_of(bias.dtype, rows)),
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
  // Rows of a matrix of fewer columns than the slot has, below each other. A part that an adapter
  // lacks is zeros; lanes above the rank of one that it has are nothing to read, so NaN.
  constexpr std::byte kUnread{0xFF};
  const auto put = [&](Dtype dtype, GuardedBuffer& buffer, std::int64_t rows, std::int64_t columns,
                       const std::optional<Matrix>& matrix) {
    const std::int64_t stride = bytes_of(dtype, columns);
    const bool has = matrix && !matrix->data.empty();
    std::vector<std::byte> slot_bytes(static_cast<std::size_t>(rows * stride),
                                      has ? kUnread : std::byte{});
    for (std::int64_t row = 0; has && row < matrix->rows; ++row) {
      const std::int64_t row_bytes = bytes_of(dtype, matrix->columns);
      std::memcpy(slot_bytes.data() + row * stride, matrix->data.data() + row * row_bytes,
                  static_cast<std::size_t>(row_bytes));
    }
    if (!slot_bytes.empty()) {
      part.place->uses.memory.copy_in(advance(buffer.data(), slot * rows * stride),
                                      slot_bytes.data(),
                                      static_cast<std::int64_t>(slot_bytes.size()));
    }
  };
  const Dtype a_dtype = lora.dtype[Role::kA];
  put(part.problem.base.dtype[Role::kA], part.table_rows, part.problem.shard.extra.count,
      part.problem.base.max_rank, weights.table_rows);
  for (std::size_t i = 0; i < part.a.size(); ++i) {
    const std::optional<Matrix> a = weights.a.empty() ? std::nullopt : weights.a[i];
    if (part.problem.looks_up) {  // by id: the lanes of each lie together
      put(a_dtype, part.a[i], lora.in_features, lora.max_rank,
          a ? std::optional(transposed(*a)) : a);
    } else {
      put(a_dtype, part.a[i], lora.max_rank, lora.in_features, a);
    }
    put(expand.dtype[Role::kB], part.b[i], lora.widths[i], expand.max_rank,
        weights.b.empty() ? std::nullopt : weights.b[i]);
    if (expand.bias) {
      put(expand.dtype[Role::kBias], part.added[i], 1, lora.widths[i],
          weights.bias.empty() ? std::nullopt : weights.bias[i]);
    }
    if (lora.has_scaled_weights()) {
      const ScaleBlocks of_a = lora.scales_of_a();
      const ScaleBlocks of_b = expand.scales_of_b(static_cast<std::int64_t>(i));
      put(lora.dtype[Role::kAScale], part.a_scale[i], of_a.down, of_a.across,
          weights.a_scale.empty() ? std::nullopt : weights.a_scale[i]);
      put(lora.dtype[Role::kBScale], part.b_scale[i], of_b.down, of_b.across,
          weights.b_scale.empty() ? std::nullopt : weights.b_scale[i]);
    }
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
  take_slot(slot, rank, scale);
}

void LayerEngine::reset_adapter(std::int64_t slot) {
  for (Part& part : parts_) {
    write_slot(part, slot, {});
  }
  take_slot(slot, 0, 1.0F);
}

// What follows when the weights of a slot were written.
void LayerEngine::take_slot(std::int64_t slot, std::int64_t rank, float scale) {
  set_rank(slot, rank, scale);
  for (Part& part : parts_) {
    prepare_weights(part);
  }
  forget_deltas();
}

void LayerEngine::forget_deltas() {
  for (Part& part : parts_) {
    if (problem_.overlap == Overlap::kEpilogue) {
      part.delta.clear();
    }
  }
}

void LayerEngine::activate(const Plan& plan) {
  if (plan.tokens() != problem_.lora.tokens) {
    throw std::logic_error("a batch of other length than the layer was made for");
  }
  for (Place& place : places_) {
    upload_plan(plan, place.lora_plan);
  }
  for (Part& part : parts_) {
    part.problem.lora.plan = plan;
    if (part.problem.expand) {
      part.problem.expand->plan = plan;
    }
    plan_rest(part);
  }
  forget_deltas();
}

void LayerEngine::plan_rest(Part& part) const {
  const FusedLayer* const fused =
      problem_.overlap == Overlap::kFused ? part.place->uses.base.fused() : nullptr;
  part.rest.reset();
  if (fused != nullptr) {
    part.rest = fused->left_over(part.problem.base, part.problem.lora);
  }
  if (part.rest && part.rest->active() == 0) {
    part.rest.reset();
  }
  if (part.rest) {
    upload_plan(*part.rest, part.place->rest_plan);
  }
}

void LayerEngine::set_input(const std::vector<std::byte>& x) {
  std::vector<std::byte> parts;
  if (at(0).problem.input_split) {
    const MatrixView whole{problem_.lora.dtype[Role::kX], x.data(), problem_.layer.in_features};
    for (const Part& part : parts_) {
      const Matrix columns = cut(whole, {0, problem_.lora.tokens}, part.problem.shard.inputs);
      parts.insert(parts.end(), columns.data.begin(), columns.data.end());
    }
  }
  const Dtype dtype = problem_.lora.dtype[Role::kX];
  const std::vector<std::byte>& given = at(0).problem.input_split ? parts : x;
  for (Place& place : places_) {
    copy_rows(place.uses.memory, place.x.data(), given.data(), problem_.lora.tokens,
              bytes_of(dtype, problem_.layer.in_features), bytes_of(dtype, at(0).problem.room));
  }
}

void LayerEngine::set_ids(const std::vector<std::int32_t>& ids) {
  for (Place& place : places_) {
    place.x.upload(std::as_bytes(std::span(ids)));
  }
}

void LayerEngine::exchange_h(Communicator& communicator, Stream stream) {
  const Problem& lora = at(0).problem.lora;
  const PartShape shape{lora.dtype[Role::kH], lora.slices() * lora.tokens, lora.max_rank};
  const std::vector<void*> parts = addresses(parts_, &Part::h);
  if (at(0).problem.h == Exchange::kReduce) {
    communicator.all_reduce(shape, parts, addresses(parts_, &Part::whole_h), stream);
  } else if (at(0).problem.h == Exchange::kGather) {
    communicator.all_gather(shape, parts, addresses(parts_, &Part::whole_h), stream);
  }
}

void LayerEngine::exchange_y(Communicator& communicator, Stream stream) {
  const Problem& base = at(0).problem.base;
  const PartShape shape{problem_.lora.dtype[Role::kY], base.tokens, base.max_rank};
  const std::vector<void*> parts = addresses(parts_, &Part::y);
  if (at(0).problem.y == Exchange::kReduce) {
    communicator.all_reduce(shape, parts, parts, stream);
  } else if (!at(shards() - 1).problem.ends_here) {
    communicator.gather(shape, parts, at(0).gathered_y.data(), stream);
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
  for (std::int64_t rank = 0; rank < shards(); ++rank) {
    run_after_y(rank, with_lora, stream);
  }
}

Matrix LayerEngine::output(std::int64_t rank) const {
  const Part& part = at(rank);
  if (!part.problem.ends_here) {
    return {problem_.lora.dtype[Role::kY], problem_.lora.tokens, 0, {}};
  }
  const bool gathered = part.problem.y == Exchange::kGather;
  const std::int64_t columns = part.problem.base.max_rank * (gathered ? problem_.layer.tp : 1);
  Matrix whole{problem_.lora.dtype[Role::kY], problem_.lora.tokens, columns,
               last_y(part).download()};
  // Padding of a vocabulary is no output, nor is what was gathered twice.
  const std::int64_t outputs = problem_.columns();
  return (gathered || part.problem.lora_after_y) && outputs < columns
             ? cut(whole, {0, whole.rows}, {0, outputs})
             : whole;
}

}  // namespace lora_bench
