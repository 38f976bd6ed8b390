#include "verify/layer_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "core/dtype.h"
#include "ops/fused_layer.h"
#include "verify/oracle.h"

namespace lora_bench {
namespace {

using Outputs = ShardOutputs;

constexpr std::size_t kRowsOfReplay = 16;

float value_at(const Matrix& matrix, std::int64_t index) {
  return load(matrix.dtype, matrix.data.data(), index);
}

// +0 and -0 are the same: x + 0 is +0 for both.
bool same_values(const Outputs& one, const Outputs& other) {
  for (std::size_t rank = 0; rank < one.size(); ++rank) {
    for (std::int64_t i = 0; i < one[rank].rows * one[rank].columns; ++i) {
      if (value_at(one[rank], i) != value_at(other[rank], i)) {
        return false;
      }
    }
  }
  return true;
}

class LayerRelations {
 public:
  LayerRelations(const LayerProblem& problem, const LayerTensors& tensors, const LayerHome& home,
                 const reference::LayerRows& oracle)
      : problem_(problem),
        tensors_(tensors),
        home_(home),
        oracle_(oracle),
        loaded_(problem, home.places) {
    load_layer(loaded_, problem_, tensors_);
    base_ = run([](LayerEngine&) {}, false);
    layer_ = run([](LayerEngine&) {});
  }

  std::string first_broken() {
    struct Relation {
      const char* name;
      bool asked;
      std::function<bool()> holds;
    };
    const ShardProblem part = shard_problem(problem_, 0);
    const Numerics lora = numerics_of_adapters(problem_, part, home_.base(), home_.lora());
    // Else the base alone is another product.
    const bool same_base = problem_.overlap == Overlap::kFused
                               ? home_.base().fused()->same_base(part.base, part.lora)
                               : problem_.overlap != Overlap::kEpilogue;
    const bool any_row = lora.batch_invariant && !loaded_.shard(0).looks_up &&
                         home_.base().numerics(shard_problem(problem_, 0).base).batch_invariant;
    const std::vector<Relation> relations{
        {"the same twice", lora.deterministic,
         [this] { return run([](LayerEngine&) {}) == layer_; }},
        {"B of zeros is the base", same_base, [this] { return zero_b_is_base(); }},
        {"rows without adapter are the base", same_base, [this] { return none_rows_are_base(); }},
        {"adapters in other slots", lora.batch_invariant, [this] { return other_slots(); }},
        {"rows in another order", any_row, [this] { return other_order(); }},
        {"twice the scale adds twice as much", !problem_.caps() && !problem_.lora.bias && same_base,
         [this] { return doubled_scale(); }},
        {"recorded and replayed", lora.graph_safe && home_.places.size() == 1,
         [this] { return replayed(); }},
    };
    for (const Relation& relation : relations) {
      if (relation.asked && !relation.holds()) {
        return relation.name;
      }
    }
    return "";
  }

 private:
  // What the shards end with once `change` was made to a layer as it was loaded.
  Outputs run(const std::function<void(LayerEngine&)>& change, bool with_lora = true) {
    LayerEngine engine(problem_, home_.places);
    engine.load_from(loaded_);
    change(engine);
    home_.synchronize();
    engine.forward(*home_.communicator, Stream{}, with_lora);
    home_.synchronize();
    return outputs_of(engine);
  }

  [[nodiscard]] std::size_t slots() const { return static_cast<std::size_t>(problem_.lora.slots); }
  [[nodiscard]] bool has_adapter(std::int64_t slot) const {
    return problem_.lora.rank[static_cast<std::size_t>(slot)] > 0;
  }
  [[nodiscard]] float scale_of(std::int64_t slot) const {
    return tensors_.lora.scale[static_cast<std::size_t>(slot)];
  }

  bool zero_b_is_base() {
    const Outputs zeros = run([this](LayerEngine& engine) {
      for (std::int64_t slot = 0; slot < problem_.lora.slots; ++slot) {
        if (has_adapter(slot)) {
          AdapterWeights weights = adapter_of(problem_, tensors_, slot);
          for (std::optional<Matrix>& b : weights.b) {
            if (b) {
              std::fill(b->data.begin(), b->data.end(), std::byte{0});
            }
          }
          for (std::optional<Matrix>& bias : weights.bias) {
            if (bias) {
              std::fill(bias->data.begin(), bias->data.end(), std::byte{0});
            }
          }
          engine.set_adapter(slot, weights, scale_of(slot));
        }
      }
    });
    return same_values(zeros, base_);
  }

  bool none_rows_are_base() const {
    for (std::size_t rank = 0; rank < layer_.size(); ++rank) {
      const std::int64_t columns = layer_[rank].columns;
      for (std::int64_t row = 0; row < layer_[rank].rows; ++row) {
        const std::int32_t slot =
            problem_.lora.plan.adapter_of_token[static_cast<std::size_t>(row)];
        for (std::int64_t i = 0; slot < 0 && i < columns; ++i) {
          const std::int64_t at = row * columns + i;
          if (value_at(layer_[rank], at) != value_at(base_[rank], at)) {
            return false;
          }
        }
      }
    }
    return true;
  }

  bool other_slots() {
    const auto moved = [this](std::int64_t slot) {
      return (slot + 1) % static_cast<std::int64_t>(slots());
    };
    const Outputs permuted = run([&](LayerEngine& engine) {
      for (std::int64_t slot = 0; slot < problem_.lora.slots; ++slot) {
        if (has_adapter(slot)) {
          engine.set_adapter(moved(slot), adapter_of(problem_, tensors_, slot), scale_of(slot));
        } else {
          engine.reset_adapter(moved(slot));
        }
      }
      std::vector<std::int32_t> ids = problem_.lora.plan.adapter_of_token;
      for (std::int32_t& id : ids) {
        id = id < 0 ? id : static_cast<std::int32_t>(moved(id));
      }
      engine.activate(make_plan(ids, problem_.lora.slots));
    });
    return permuted == layer_;
  }

  [[nodiscard]] std::vector<std::byte> backwards_x() const {
    const auto row_bytes = static_cast<std::size_t>(problem_.lora.in_features *
                                                    size_bytes(problem_.lora.dtype[Role::kX]));
    std::vector<std::byte> x;
    for (std::int64_t row = problem_.lora.tokens - 1; row >= 0; --row) {
      const auto first = tensors_.lora.x.data.begin() +
                         static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * row_bytes);
      x.insert(x.end(), first, first + static_cast<std::ptrdiff_t>(row_bytes));
    }
    return x;
  }

  // Backwards.
  bool other_order() {
    const std::int64_t tokens = problem_.lora.tokens;
    const Outputs backwards = run([&](LayerEngine& engine) {
      engine.set_input(backwards_x());
      std::vector<std::int32_t> ids = problem_.lora.plan.adapter_of_token;
      std::reverse(ids.begin(), ids.end());
      engine.activate(make_plan(ids, problem_.lora.slots));
    });
    for (std::size_t rank = 0; rank < layer_.size(); ++rank) {
      const std::int64_t columns = layer_[rank].columns;
      for (std::int64_t row = 0; row < tokens; ++row) {
        if (!(cut(backwards[rank], {tokens - 1 - row, 1}, {0, columns}) ==
              cut(layer_[rank], {row, 1}, {0, columns}))) {
          return false;
        }
      }
    }
    return true;
  }

  // y2 - base = 2 (y - base): what three results may be off, each rounded once.
  bool doubled_scale() {
    const Outputs doubled = run([this](LayerEngine& engine) {
      for (std::int64_t slot = 0; slot < problem_.lora.slots; ++slot) {
        if (has_adapter(slot)) {
          engine.set_adapter(slot, adapter_of(problem_, tensors_, slot), 2 * scale_of(slot));
        }
      }
    });
    const reference::Number number = number_of(problem_.lora.dtype[Role::kY]);
    for (std::size_t rank = 0; rank < layer_.size(); ++rank) {
      const std::vector<std::int64_t> columns =
          columns_of_output(problem_.layer, static_cast<std::int64_t>(rank));
      for (std::size_t row = 0; row < oracle_.rows.tokens.size(); ++row) {
        for (std::size_t column = 0; column < columns.size(); ++column) {
          const std::int64_t at =
              oracle_.rows.tokens[row] * layer_[rank].columns + static_cast<std::int64_t>(column);
          const double twice = value_at(doubled[rank], at);
          const double once = value_at(layer_[rank], at);
          const double base = value_at(base_[rank], at);
          const double bound =
              oracle_.rows
                  .bound[oracle_.place(static_cast<std::int64_t>(rank), row, columns[column])];
          const double room = 6 * bound + reference::spacing(number, twice) +
                              2 * reference::spacing(number, once) +
                              2 * reference::spacing(number, base);
          if (!(std::fabs(twice - base - 2 * (once - base)) <= room)) {
            return false;
          }
        }
      }
    }
    return true;
  }

  // x in another order, and the first adapter of the batch with a B of zeros.
  [[nodiscard]] LayerTensors other_tensors() const {
    LayerTensors other = tensors_;
    // An id that an adapter added is one of its own rows alone.
    if (problem_.layer.extra == 0) {
      other.lora.x.data = backwards_x();
      std::reverse(other.ids.begin(), other.ids.end());
    }
    if (problem_.lora.plan.active() == 0) {
      return other;
    }
    for (std::size_t slice = 0; slice < other.lora.b.size(); ++slice) {
      const std::int64_t bytes = problem_.lora.widths[slice] * problem_.lora.max_rank *
                                 size_bytes(problem_.lora.dtype[Role::kB]);
      std::fill_n(other.lora.b[slice].data.begin() + problem_.lora.plan.active_ids.front() * bytes,
                  bytes, std::byte{0});
    }
    return other;
  }

  // What changes between recording and replay is used, not what was there before.
  bool replayed() {
    LayerEngine engine(problem_, home_.places);
    engine.load_from(loaded_);
    home_.synchronize();
    engine.forward(*home_.communicator, Stream{});
    const auto replay = home_.places.front().memory.record(
        [&](void* stream) { engine.forward(*home_.communicator, Stream{stream}); });
    const auto replays = [&] {
      for (std::int64_t rank = 0; rank < engine.shards(); ++rank) {
        engine.poison_results(rank);
      }
      home_.synchronize();
      replay();
    };
    replays();
    if (outputs_of(engine) != layer_) {
      return false;
    }
    const LayerTensors other = other_tensors();
    if (loaded_.shard(0).looks_up) {
      engine.set_ids(other.ids);
    } else {
      engine.set_input(other.lora.x.data);
    }
    load_adapters(engine, problem_, other);
    replays();
    std::vector<std::int64_t> rows = oracle_.rows.tokens;
    rows.resize(std::min<std::size_t>(rows.size(), kRowsOfReplay));
    return wrong_rows(engine, problem_, other, layer_arithmetic(problem_, home_), rows).empty();
  }

  const LayerProblem& problem_;
  const LayerTensors& tensors_;
  const LayerHome& home_;
  const reference::LayerRows& oracle_;
  LayerEngine loaded_;
  Outputs base_, layer_;
};

}  // namespace

std::string broken_layer_relation(const LayerProblem& problem, const LayerTensors& tensors,
                                  const LayerHome& home, const reference::LayerRows& oracle) {
  return LayerRelations(problem, tensors, home, oracle).first_broken();
}

}  // namespace lora_bench
