#include "workload/tensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "core/blocks.h"
#include "core/bytes.h"
#include "core/convert.h"
#include "core/error.h"
#include "core/random.h"
#include "core/units.h"
#include "workload/fill_sizes.h"
#include "workload/streams.h"
#include "workload/uneven.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kBlockElements = 1 << 16;
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// One row of a tensor: `drawn` leading elements follow the law, the others are poison.
struct RowRecipe {
  ElementLaw law;
  std::int64_t drawn = 0;
  std::optional<RowBend> bend = {};
  std::int64_t as_row = -1;  // the row whose numbers this one repeats; -1 = it has its own
};

float real_element(std::uint64_t bits) {
  // 24 random bits, centred between multiples of 2^-23: never 0, both signs alike.
  const auto step = static_cast<std::int32_t>(bits >> 40) - (1 << 23);
  return (static_cast<float>(step) + 0.5F) * 0x1p-23F;
}

float integer_element(std::uint64_t bits, std::uint64_t largest) {
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
    const auto largest = static_cast<std::uint64_t>(recipe.law.integers);
    for (std::size_t i = 0; i < drawn; ++i) {
      out[i] = integer_element(random.bits(first_index + i), largest) * factor;
    }
  }
  if (recipe.bend) {
    bend_row(*recipe.bend, random, first_index, out.first(drawn));
  }
  std::fill(out.begin() + recipe.drawn, out.end(), kPoison);
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
        sizes_(fill_sizes(problem, fill, seed)),
        counts_(operand_sizes(problem)),
        seed_(seed),
        threads_(threads),
        poisons_(fill != Fill::kTiming),
        active_(static_cast<std::size_t>(problem.slots), !poisons_) {
    for (const std::int32_t id : problem.plan.active_ids) {
      active_[static_cast<std::size_t>(id)] = true;
    }
    if (fill == Fill::kUneven || fill == Fill::kUnevenNarrow) {
      uneven_.emplace(problem, sizes_, fill, seed);
    }
  }

  [[nodiscard]] const FillSizes& sizes() const { return sizes_; }

  [[nodiscard]] HostTensor x() const {
    const std::int64_t width = problem_.x_stride;
    const std::int64_t drawn = poisons_ ? problem_.in_features : width;
    return draw(problem_.dtype, counts_.x, width, Draw::kX, 0, [&](std::int64_t token) {
      RowRecipe recipe{sizes_.x, needed(token) ? drawn : 0};
      if (uneven_ && needed(token)) {
        recipe.bend = uneven_->row_of_x(token);
        recipe.as_row = uneven_->source_of(token);
      }
      return recipe;
    });
  }

  [[nodiscard]] HostTensor y() const {
    const std::int64_t width = problem_.y_stride;
    HostTensor y = draw(problem_.dtype, counts_.y, width, Draw::kY, 0, [&](std::int64_t token) {
      return RowRecipe{sizes_.y, width, bent([&] { return uneven_->row_of_y(token); })};
    });
    if (poisons_ && !problem_.add_inputs) {
      replace_by_nan(y);
    }
    return y;
  }

  // Input of expand and embedding; elsewhere an output, which starts poisoned (or zero).
  [[nodiscard]] HostTensor h() const {
    const bool given = !has_shrink(problem_.op);
    return draw(problem_.intermediate, counts_.h, problem_.max_rank, Draw::kH, 0,
                [&](std::int64_t row) {
                  const std::int64_t token = row % problem_.tokens;
                  if (!given) {
                    return RowRecipe{{0, 0.0F}, poisons_ ? 0 : problem_.max_rank};
                  }
                  if (!needed(token)) {
                    return RowRecipe{sizes_.h, 0};
                  }
                  const std::int64_t drawn = lanes(adapter_of(token));
                  RowRecipe recipe{sizes_.h, drawn};
                  if (uneven_) {
                    recipe.bend = uneven_->row_of_h(token, drawn);
                    recipe.as_row = row - token + uneven_->source_of(token);
                  }
                  return recipe;
                });
  }

  [[nodiscard]] HostTensor a(std::size_t slice) const {
    return draw(problem_.dtype, counts_.a[slice], problem_.in_features, Draw::kA, slice,
                [&](std::int64_t row) {
                  const std::int64_t slot = row / problem_.max_rank;
                  const std::int64_t lane = row % problem_.max_rank;
                  RowRecipe recipe{sizes_.a, lane < lanes(slot) ? problem_.in_features : 0};
                  if (uneven_) {
                    recipe.bend = uneven_->lane_of_a(lane);
                    recipe.as_row = uneven_->slot_of_a(slot) * problem_.max_rank + lane;
                  }
                  return recipe;
                });
  }

  [[nodiscard]] HostTensor b(std::size_t slice) const {
    return draw(problem_.dtype, counts_.b[slice], problem_.max_rank, Draw::kB, slice,
                [&](std::int64_t row) {
                  const std::int64_t width = problem_.widths[slice];
                  const std::int64_t slot = row / width;
                  const std::int64_t source = uneven_ ? uneven_->slot_of_b(slot) : slot;
                  RowRecipe recipe{sizes_.b[static_cast<std::size_t>(source)], lanes(slot)};
                  if (uneven_) {
                    recipe.bend = uneven_->column_of_b(source, row % width, width);
                    recipe.as_row = source * width + row % width;
                  }
                  return recipe;
                });
  }

  [[nodiscard]] HostTensor bias(std::size_t slice) const {
    const std::int64_t width = problem_.widths[slice];
    return draw(problem_.dtype, counts_.bias[slice], width, Draw::kBias, slice,
                [&](std::int64_t slot) {
                  return RowRecipe{sizes_.bias, active_[static_cast<std::size_t>(slot)] ? width : 0,
                                   bent([&] { return uneven_->bias(); })};
                });
  }

 private:
  template <typename RecipeOfRow>
  [[nodiscard]] HostTensor draw(Dtype dtype, std::int64_t elements, std::int64_t width, Draw what,
                                std::size_t slice, RecipeOfRow recipe_of_row) const {
    const RandomStream random(seed_, stream_of(what, static_cast<std::int64_t>(slice)));
    return draw_tensor(dtype, elements, width, random, threads_, recipe_of_row);
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
  // Lanes of a slot that hold values.
  [[nodiscard]] std::int64_t lanes(std::int64_t slot) const {
    if (!poisons_) {
      return problem_.max_rank;
    }
    const auto index = static_cast<std::size_t>(slot);
    return active_[index] ? problem_.rank[index] : 0;
  }

  const Problem& problem_;
  FillSizes sizes_;
  OperandSizes counts_;
  std::uint64_t seed_;
  int threads_;
  bool poisons_;
  std::vector<bool> active_;
  std::optional<Uneven> uneven_;
};

}  // namespace

Tensors draw_tensors(const Problem& problem, Fill fill, std::uint64_t seed, int threads) {
  const Drawer drawer(problem, fill, seed, threads);
  Tensors tensors;
  tensors.fill = fill;
  tensors.x = drawer.x();
  tensors.h = drawer.h();
  tensors.y = drawer.y();
  for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
    tensors.a.push_back(drawer.a(slice));
    tensors.b.push_back(drawer.b(slice));
    tensors.bias.push_back(drawer.bias(slice));
  }
  tensors.scale = drawer.sizes().scale;
  return tensors;
}

std::int64_t tensor_bytes(const Problem& problem) {
  const OperandSizes sizes = operand_sizes(problem);
  std::int64_t total = 0;
  const auto add = [&](std::int64_t elements, std::int64_t element_bytes) {
    const std::optional<std::int64_t> bytes = checked_multiply(elements, element_bytes);
    const std::optional<std::int64_t> sum = bytes ? checked_add(total, *bytes) : std::nullopt;
    if (!sum) {
      throw CaseError("the operands have more bytes than 64 bits can count");
    }
    total = *sum;
  };
  const std::int64_t element = size_bytes(problem.dtype);
  add(sizes.x, element);
  add(sizes.y, element);
  add(sizes.h, size_bytes(problem.intermediate));
  for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
    add(sizes.a[slice], element);
    add(sizes.b[slice], element);
    add(sizes.bias[slice], element);
  }
  add(problem.slots, static_cast<std::int64_t>(sizeof(float)));
  return total;
}

}  // namespace lora_bench
