#include "workload/tensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>

#include "core/bytes.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/random.h"
#include "core/units.h"
#include "workload/fill_sizes.h"
#include "workload/uneven.h"
#include "workload/weight_scales.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kBlockElements = 1 << 16;
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// One row of a tensor: `drawn` leading elements follow the law, then come zeros, then poison.
struct RowRecipe {
  ElementLaw law = {};
  std::int64_t drawn = 0;
  std::int64_t zeros = 0;
  std::optional<RowBend> bend = {};
  std::int64_t as_row = -1;  // the row whose numbers this one repeats; -1 = it has its own
};

float real_element(std::uint64_t bits) {
  // 24 random bits, centred between multiples of 2^-23: never 0, both signs alike.
  const auto step = static_cast<std::int32_t>(bits >> 40) - (1 << 23);
  return (static_cast<float>(step) + 0.5F) * 0x1p-23F;
}

float integer_element(std::uint64_t bits, const ElementLaw& law) {
  const auto largest = static_cast<std::uint64_t>(law.integers);
  if ((bits & 0xffffffffU) / 2 % static_cast<std::uint64_t>(law.one_in) != 0) {
    return 0;
  }
  const auto magnitude = static_cast<std::int32_t>(1 + (((bits >> 32) * largest) >> 32));
  return static_cast<float>((bits & 1U) != 0 ? -magnitude : magnitude);
}

void draw_row(const RowRecipe& recipe, const RandomStream& random, std::uint64_t first_index,
              std::span<float> out) {
  const auto drawn = static_cast<std::size_t>(recipe.drawn);
  const float factor = recipe.law.factor;
  if (recipe.law.integers == 0) {
    for (std::size_t i = 0; i < drawn; ++i) {
      out[i] = real_element(random.bits(first_index + i)) * factor;
    }
  } else {
    for (std::size_t i = 0; i < drawn; ++i) {
      out[i] = integer_element(random.bits(first_index + i), recipe.law) * factor;
    }
  }
  if (recipe.bend) {
    bend_row(*recipe.bend, random, first_index, out.first(drawn));
  }
  const auto padding = out.subspan(drawn);
  std::fill(padding.begin(), padding.begin() + recipe.zeros, 0.0F);
  std::fill(padding.begin() + recipe.zeros, padding.end(), kPoison);
}

// A signalling NaN for every number: arithmetic on one, even times 0, leaves another NaN, and which
// element it is still shows in its sign and lowest bits.
template <typename Bits>
void replace_by_nan(HostTensor& tensor, Bits infinity, Bits quiet) {
  for (std::size_t at = 0; at < tensor.data.size(); at += sizeof(Bits)) {
    Bits bits = 0;
    std::memcpy(&bits, tensor.data.data() + at, sizeof bits);
    bits = static_cast<Bits>(((bits | infinity) & ~quiet) | 1U);
    std::memcpy(tensor.data.data() + at, &bits, sizeof bits);
  }
}

void replace_by_nan(HostTensor& tensor) {
  if (tensor.dtype == Dtype::kFp32) {
    replace_by_nan<std::uint32_t>(tensor, 0x7f800000U, 0x00400000U);
  } else if (tensor.dtype == Dtype::kBf16) {
    replace_by_nan<std::uint16_t>(tensor, 0x7f80U, 0x0040U);
  } else if (tensor.dtype == Dtype::kFp16) {
    replace_by_nan<std::uint16_t>(tensor, 0x7c00U, 0x0200U);
  }
}

template <typename RecipeOfRow>
HostTensor draw_tensor(Dtype dtype, std::int64_t elements, std::int64_t width,
                       const RandomStream& random, int threads, RecipeOfRow recipe_of_row) {
  HostTensor tensor;
  tensor.dtype = dtype;
  tensor.elements = elements;
  tensor.data = zero_bytes(elements * size_bytes(dtype));
  if (elements == 0) {
    return tensor;
  }
  const std::int64_t rows_per_block = std::max<std::int64_t>(1, kBlockElements / width);
  for_blocks(elements / width, rows_per_block, threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> block(static_cast<std::size_t>((end - begin) * width));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::span<float> out(block.data() + (row - begin) * width,
                                 static_cast<std::size_t>(width));
      const RowRecipe recipe = recipe_of_row(row);
      const std::int64_t numbers = recipe.as_row < 0 ? row : recipe.as_row;
      draw_row(recipe, random, static_cast<std::uint64_t>(numbers * width), out);
    }
    encode(dtype, block, tensor.data.data() + begin * width * size_bytes(dtype));
  });
  return tensor;
}

// Draws every operand of one problem with one fill.
class Drawer {
 public:
  Drawer(const Problem& problem, Fill fill, std::uint64_t seed, int threads)
      : problem_(problem),
        fill_(fill),
        sizes_(fill_sizes(problem, fill, seed)),
        seed_(seed),
        threads_(threads),
        poisons_(fill != Fill::kTiming),
        active_(static_cast<std::size_t>(problem.slots), !poisons_),
        slots_of_x_(slots_of_x_rows(problem)) {
    for (const std::int32_t id : problem.plan.active_ids) {
      active_[static_cast<std::size_t>(id)] = true;
    }
    if (is_uneven(fill)) {
      uneven_.emplace(problem, sizes_, fill, seed);
    }
  }

  [[nodiscard]] const FillSizes& sizes() const { return sizes_; }

  [[nodiscard]] HostTensor draw(const Operand& operand) const {
    switch (operand.role) {
      case Role::kX:
        return x(operand);
      case Role::kA:
        return a(operand);
      case Role::kB:
        return b(operand);
      case Role::kBias:
        return bias(operand);
      case Role::kH:
        return h(operand);
      case Role::kY:
        return y(operand);
      case Role::kAScale:
      case Role::kBScale:
        return scales(operand);
      case Role::kXScale:
      case Role::kHScale:
        return scales_of_rows(operand);
      case Role::kFactor:
        return factors(operand);
    }
    throw std::logic_error("an operand of no role");
  }

 private:
  [[nodiscard]] HostTensor x(const Operand& operand) const {
    const std::int64_t width = problem_.x_stride;
    const std::int64_t drawn = poisons_ ? problem_.in_features : width;
    return drawn_rows(operand, Draw::kX, [&](std::int64_t row) {
      const std::int64_t token = row % problem_.x_rows();
      const bool read = reads_x(token);
      RowRecipe recipe{.law = law_of(Role::kX, row, sizes_.x), .drawn = read ? drawn : 0};
      if (uneven_ && read) {
        recipe.bend = uneven_->row_of_x(token);
        recipe.as_row = row - token + uneven_->source_of(token);
      }
      return recipe;
    });
  }

  [[nodiscard]] HostTensor y(const Operand& operand) const {
    const std::int64_t width = problem_.y_stride;
    HostTensor y = drawn_rows(operand, Draw::kY, [&](std::int64_t token) {
      return RowRecipe{.law = sizes_.y,
                       .drawn = width,
                       .bend = bent([&] { return uneven_->row_of_y(problem_.x_row(0, token)); })};
    });
    if (poisons_ && !problem_.add_inputs && !uneven_) {
      replace_by_nan(y);
    }
    return y;
  }

  // Input of expand and embedding, and of a shrink that adds to it; elsewhere an output, which
  // starts poisoned (or zero).
  [[nodiscard]] HostTensor h(const Operand& operand) const {
    const bool given = operand.given;
    return drawn_rows(operand, Draw::kH, [&](std::int64_t row) {
      const std::int64_t token = row % problem_.tokens;
      if (!given) {
        return RowRecipe{.zeros = poisons_ ? 0 : problem_.max_rank};
      }
      // What an adding shrink leaves alone holds numbers too, in an uneven fill.
      const bool whole_row = uneven_ && problem_.adds_to_h();
      if (!needed(token)) {
        return RowRecipe{.law = sizes_.h, .drawn = whole_row ? problem_.max_rank : 0};
      }
      const std::int64_t zeros = lanes(adapter_of(token)) - own_lanes(adapter_of(token));
      const std::int64_t drawn =
          whole_row && zeros == 0 ? problem_.max_rank : own_lanes(adapter_of(token));
      RowRecipe recipe{.law = law_of(Role::kH, row, sizes_.h), .drawn = drawn, .zeros = zeros};
      if (!sizes_.added_to.empty() && adapter_of(token) != kNoAdapter) {
        recipe.law.factor *= sizes_.added_to[static_cast<std::size_t>(adapter_of(token))];
      }
      if (uneven_ && problem_.adds_to_h()) {
        recipe.bend = uneven_->row_of_added_h(token);
      } else if (uneven_) {
        recipe.bend = uneven_->row_of_h(token, drawn);
        recipe.as_row = row - token + uneven_->source_of(token);
      }
      return recipe;
    });
  }

  [[nodiscard]] HostTensor a(const Operand& operand) const {
    return drawn_rows(operand, Draw::kA, [&](std::int64_t row) {
      const std::int64_t slot = row / problem_.max_rank;
      const std::int64_t lane = row % problem_.max_rank;
      if (lane >= own_lanes(slot)) {
        return RowRecipe{.zeros = lane < lanes(slot) ? problem_.in_features : 0};
      }
      RowRecipe recipe{.law = law_of(Role::kA, slot, sizes_.a), .drawn = problem_.in_features};
      if (uneven_) {
        recipe.bend = uneven_->lane_of_a(lane);
        recipe.as_row = uneven_->slot_of_a(slot) * problem_.max_rank + lane;
      }
      return recipe;
    });
  }

  [[nodiscard]] HostTensor b(const Operand& operand) const {
    return drawn_rows(operand, Draw::kB, [&](std::int64_t row) {
      const std::int64_t width = operand.shape[1];
      const std::int64_t slot = row / width;
      const std::int64_t source = uneven_ ? uneven_->slot_of_b(slot) : slot;
      const std::int64_t drawn = own_lanes(slot);
      const ElementLaw& law =
          uneven_ ? uneven_->law_of_b(slot) : sizes_.b[static_cast<std::size_t>(slot)];
      RowRecipe recipe{
          .law = law_of(Role::kB, slot, law), .drawn = drawn, .zeros = lanes(slot) - drawn};
      if (uneven_) {
        recipe.bend = uneven_->column_of_b(source, row % width, width);
        recipe.as_row = source * width + row % width;
      }
      return recipe;
    });
  }

  [[nodiscard]] HostTensor bias(const Operand& operand) const {
    const std::int64_t width = operand.shape[1];
    return drawn_rows(operand, Draw::kBias, [&](std::int64_t slot) {
      return RowRecipe{.law = sizes_.bias,
                       .drawn = active_[static_cast<std::size_t>(slot)] ? width : 0,
                       .bend = bent([&] { return uneven_->bias(); })};
    });
  }

  [[nodiscard]] HostTensor scales(const Operand& operand) const {
    return draw_scales(problem_, sizes_, fill_, seed_, operand,
                       [&](std::int64_t slot) { return lanes(slot); });
  }

  // A row that repeats the numbers of another one has its scales too, or others: of every second
  // row.
  [[nodiscard]] HostTensor scales_of_rows(const Operand& operand) const {
    return draw_scales_of_rows(problem_, sizes_, fill_, seed_, operand, [&](std::int64_t token) {
      const std::int64_t source = uneven_ && token % 2 == 0 ? uneven_->source_of(token) : token;
      if (!needed(token)) {
        return NumbersOfRow{};
      }
      return NumbersOfRow{
          source, operand.role == Role::kXScale ? problem_.in_features : lanes(adapter_of(token))};
    });
  }

  // As the router gives them, or where sums are to be exact powers of two that a neighbour has not.
  [[nodiscard]] HostTensor factors(const Operand& operand) const {
    HostTensor factors{operand.dtype, operand.elements, zero_bytes(operand.bytes())};
    for (std::int64_t row = 0; row < operand.elements; ++row) {
      const float value = is_exact(fill_)
                              ? exact_factor(row)
                              : problem_.route.factor_of_row[static_cast<std::size_t>(row)];
      store(operand.dtype, factors.data.data(), row, needed(row) ? value : kPoison);
    }
    return factors;
  }

  // Of A or B of a slot, or of a row of x or h, where `law` is what they stand for.
  [[nodiscard]] ElementLaw law_of(Role role, std::int64_t of, const ElementLaw& law) const {
    return problem_.has_scales(role) ? stored_law(problem_, sizes_, fill_, role, of) : law;
  }

  template <typename RecipeOfRow>
  [[nodiscard]] HostTensor drawn_rows(const Operand& operand, Draw what,
                                      RecipeOfRow recipe_of_row) const {
    const RandomStream random(seed_, stream_of(what, std::max<std::int64_t>(operand.slice, 0)));
    return draw_tensor(operand.dtype, operand.elements, operand.shape.back(), random, threads_,
                       recipe_of_row);
  }

  template <typename Bend>
  [[nodiscard]] std::optional<RowBend> bent(Bend bend) const {
    return uneven_ ? std::optional(bend()) : std::nullopt;
  }

  [[nodiscard]] std::int32_t adapter_of(std::int64_t token) const {
    return problem_.plan.adapter_of_token[static_cast<std::size_t>(token)];
  }
  [[nodiscard]] bool needed(std::int64_t token) const {
    return !poisons_ || adapter_of(token) != kNoAdapter;
  }
  // Whether some row with an adapter reads a row of x.
  [[nodiscard]] bool reads_x(std::int64_t row) const {
    return !poisons_ || slots_of_x_[static_cast<std::size_t>(row)] != kNoAdapter;
  }
  // Those of them that hold numbers and not zeros.
  [[nodiscard]] std::int64_t own_lanes(std::int64_t slot) const {
    return problem_.own_rank.empty() || slot == kNoAdapter
               ? lanes(slot)
               : std::min(lanes(slot), problem_.own_rank[static_cast<std::size_t>(slot)]);
  }
  // Lanes of a slot that hold values.
  [[nodiscard]] std::int64_t lanes(std::int64_t slot) const {
    if (!poisons_) {
      return problem_.max_rank;
    }
    const auto index = static_cast<std::size_t>(slot);
    return active_[index] ? problem_.rank[index] : 0;
  }

  const Problem& problem_;
  Fill fill_;
  FillSizes sizes_;
  std::uint64_t seed_;
  int threads_;
  bool poisons_;
  std::vector<bool> active_;
  std::vector<std::int32_t> slots_of_x_;
  std::optional<Uneven> uneven_;
};

// Of Tensors, const or not.
template <typename Of>
auto& tensor_in(Of& tensors, const Operand& operand) {
  const auto slice = static_cast<std::size_t>(operand.slice);
  switch (operand.role) {
    case Role::kX:
      return tensors.x;
    case Role::kA:
      return tensors.a[slice];
    case Role::kB:
      return tensors.b[slice];
    case Role::kBias:
      return tensors.bias[slice];
    case Role::kH:
      return tensors.h;
    case Role::kY:
      return tensors.y;
    case Role::kAScale:
      return tensors.a_scale[slice];
    case Role::kBScale:
      return tensors.b_scale[slice];
    case Role::kXScale:
      return tensors.x_scale;
    case Role::kHScale:
      return tensors.h_scale;
    case Role::kFactor:
      return tensors.factor;
  }
  throw std::logic_error("an operand of no role");
}

}  // namespace

std::vector<Fill> fine_fills(const Problem& problem) {
  std::vector<Fill> fills;
  if (problem.has_scaled_activations()) {
    fills.push_back(problem.has_scaled_x() ? Fill::kFineX : Fill::kFineH);
  }
  if (problem.has_scaled_weights() && has_shrink(problem.op)) {
    fills.push_back(Fill::kFineA);
  }
  if (problem.has_scaled_weights() && has_expand(problem.op)) {
    fills.push_back(Fill::kFineB);
  }
  return fills;
}

HostTensor& Tensors::of(const Operand& operand) { return tensor_in(*this, operand); }

const HostTensor& Tensors::of(const Operand& operand) const { return tensor_in(*this, operand); }

Tensors empty_tensors(const Problem& problem, Fill fill) {
  Tensors tensors;
  tensors.fill = fill;
  if (is_uneven(fill)) {
    tensors.scratch = problem.h_quantiser ? kHugeByte : kNumberByte;
  }
  for (std::vector<HostTensor>* of_slices :
       {&tensors.a, &tensors.b, &tensors.bias, &tensors.a_scale, &tensors.b_scale}) {
    of_slices->resize(problem.widths.size());
  }
  return tensors;
}

Tensors draw_tensors(const Problem& problem, Fill fill, std::uint64_t seed, int threads) {
  const Drawer drawer(problem, fill, seed, threads);
  Tensors tensors = empty_tensors(problem, fill);
  for (const Operand& operand : operands_of(problem)) {
    tensors.of(operand) = drawer.draw(operand);
  }
  tensors.scale = drawer.sizes().scale;
  return tensors;
}

std::int64_t tensor_bytes(const Problem& problem) {
  std::int64_t total = problem.slots * static_cast<std::int64_t>(sizeof(float));
  for (const Operand& operand : operands_of(problem)) {
    const std::optional<std::int64_t> sum = checked_add(total, operand.bytes());
    if (!sum) {
      throw CaseError("the operands have more bytes than 64 bits can count");
    }
    total = *sum;
  }
  return total;
}

}  // namespace lora_bench
