#include "verify/step.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/bytes.h"
#include "core/dtype.h"
#include "core/random.h"
#include "verify/evidence.h"

namespace lora_bench {
namespace {

// Block i of the result is block from[i]; all blocks have the same number of elements.
HostTensor take_blocks(const HostTensor& tensor, std::span<const std::int64_t> from,
                       std::int64_t block_elements) {
  const std::size_t block = at(block_elements * size_bytes(tensor.dtype));
  HostTensor result{tensor.dtype, static_cast<std::int64_t>(from.size()) * block_elements, {}};
  if (tensor.elements == 0) {
    result.elements = 0;
    return result;
  }
  result.data.resize(from.size() * block);
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::memcpy(result.data.data() + i * block, tensor.data.data() + at(from[i]) * block, block);
  }
  return result;
}

void double_elements(HostTensor& tensor) {
  for (std::int64_t i = 0; i < tensor.elements; ++i) {
    store(tensor.dtype, tensor.data.data(), i, 2 * load(tensor.dtype, tensor.data.data(), i));
  }
}

float largest_of(const HostTensor& tensor) {
  float largest = 0;
  for (std::int64_t i = 0; i < tensor.elements; ++i) {
    const float value = std::fabs(load(tensor.dtype, tensor.data.data(), i));
    largest = std::isnan(value) ? largest : std::max(largest, value);
  }
  return largest;
}

// Times a power of two, so that the largest is about 2^15, or so many times less.
void enlarge(HostTensor& tensor, float less = 1) {
  const float largest = largest_of(tensor) * less;
  const float factor = largest > 0 ? std::exp2(std::floor(std::log2(0x1p15F / largest))) : 1.0F;
  for (std::int64_t i = 0; i < tensor.elements; ++i) {
    store(tensor.dtype, tensor.data.data(), i, factor * load(tensor.dtype, tensor.data.data(), i));
  }
}

// By way of their scales, where the numbers have some.
void enlarge_weights(HostTensor& weights, HostTensor& scales) {
  if (scales.elements == 0) {
    enlarge(weights);
  } else {
    enlarge(scales, largest_of(weights));
  }
}

HostTensor nothing_of(Dtype dtype) { return {dtype, 0, {}}; }

// What stands behind rows that became longer: NaN, or where the row begins with a number those that
// are in it, whole or so much smaller that the copies of one add up to no more than it.
enum class Behind : std::uint8_t { kNan, kNumbers, kShares };

// Rows of `width` elements become rows of `width` + `more`. The new elements stand after the first
// `kept` of each row.
HostTensor lengthen(const HostTensor& tensor, std::int64_t width, std::int64_t kept,
                    std::int64_t more, Behind behind) {
  if (tensor.elements == 0) {
    return tensor;
  }
  const std::int64_t rows = tensor.elements / width;
  const std::int64_t bytes = size_bytes(tensor.dtype);
  const auto copies = static_cast<std::uint64_t>((more + kept - 1) / kept);
  const float share =
      behind == Behind::kShares ? 1 / static_cast<float>(std::bit_ceil(copies)) : 1.0F;
  HostTensor result{tensor.dtype, rows * (width + more), {}};
  result.data.resize(at(result.elements * bytes), std::byte{0xFF});
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::byte* from = tensor.data.data() + row * width * bytes;
    std::byte* to = result.data.data() + row * (width + more) * bytes;
    std::memcpy(to, from, at(kept * bytes));
    std::memcpy(to + (kept + more) * bytes, from + kept * bytes, at((width - kept) * bytes));
    const bool numbers = behind != Behind::kNan && !std::isnan(load(tensor.dtype, from, 0));
    for (std::int64_t i = 0; i < more && numbers; ++i) {
      std::byte* const added = to + (kept + i) * bytes;
      std::memcpy(added, from + i % kept * bytes, at(bytes));
      if (share != 1) {
        store(tensor.dtype, added, 0, share * load(tensor.dtype, added, 0));
      }
      added[bytes - 1] ^= i % 2 == 0 ? std::byte{0} : std::byte{0x80};  // the sign of any dtype
    }
  }
  return result;
}

// Whole rows of NaN after the first `kept` of every `block` rows.
HostTensor add_rows(const HostTensor& tensor, std::int64_t block_elements, std::int64_t more) {
  return tensor.elements == 0
             ? tensor
             : lengthen(tensor, block_elements, block_elements, more, Behind::kNan);
}

// Whether rows and columns that are new hold numbers, or else NaN.
struct NewNumbers {
  bool rows = false, columns = false;
};

// The scales of A or B of which a slot has `now` blocks and had `before`: those of new numbers are
// the last ones before, those of NaN are that.
HostTensor more_scales(const HostTensor& tensor, std::int64_t slots, const ScaleBlocks& before,
                       const ScaleBlocks& now, const NewNumbers& numbers) {
  HostTensor result{tensor.dtype, tensor.elements == 0 ? 0 : slots * now.of_slot(), {}};
  result.data.resize(at(result.elements * size_bytes(result.dtype)), std::byte{0xFF});
  for (std::int64_t index = 0; index < result.elements; ++index) {
    const std::int64_t slot = index / now.of_slot();
    const std::int64_t down = index % now.of_slot() / now.across, across = index % now.across;
    if ((numbers.rows || down < before.down) && (numbers.columns || across < before.across)) {
      const std::int64_t from = slot * before.of_slot() +
                                std::min(down, before.down - 1) * before.across +
                                std::min(across, before.across - 1);
      store(result.dtype, result.data.data(), index, load(tensor.dtype, tensor.data.data(), from));
    }
  }
  return result;
}

// Of activations whose rows had so many scales: behind them those of new columns, which of x have
// the last one again, and of h, where they are NaN, that.
HostTensor more_scales_of_rows(const HostTensor& tensor, const Problem& before,
                               const Problem& now) {
  if (tensor.elements == 0) {
    return tensor;
  }
  const std::int64_t had = before.scales_of_rows().across, has = now.scales_of_rows().across;
  HostTensor result{tensor.dtype, tensor.elements / had * has, {}};
  result.data.resize(at(result.elements * size_bytes(result.dtype)), std::byte{0xFF});
  for (std::int64_t index = 0; index < result.elements; ++index) {
    const std::int64_t place = index % has;
    if (place < had || now.has_scaled_x()) {
      const std::int64_t from = index / has * had + std::min(place, had - 1);
      store(result.dtype, result.data.data(), index, load(tensor.dtype, tensor.data.data(), from));
    }
  }
  return result;
}

void take_some(HostTensor& tensor, const HostTensor& other, std::uint64_t seed,
               std::uint64_t stream) {
  constexpr std::int64_t kSmall = 64;
  constexpr std::int64_t kOfAThread = std::int64_t{1} << 18U;
  constexpr std::uint64_t kQuarter = std::uint64_t{1} << 62U;  // of all values of random bits
  const std::int64_t bytes = size_bytes(tensor.dtype);
  const RandomStream random(seed, stream);
  for_blocks(tensor.elements, kOfAThread, 0, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (tensor.elements <= kSmall || random.bits(static_cast<std::uint64_t>(i)) < kQuarter) {
        std::memcpy(tensor.data.data() + i * bytes, other.data.data() + i * bytes, at(bytes));
      }
    }
  });
}

// Of eight bits by the largest numbers that there are: they outweigh all that belongs to a row.
void replace_nan(HostTensor& tensor) {
  const bool eight_bits = size_bytes(tensor.dtype) == 1;
  const auto unit = static_cast<float>(eight_bits ? largest_finite(tensor.dtype) / 7 : 1);
  for (std::int64_t i = 0; i < tensor.elements; ++i) {
    if (std::isnan(load(tensor.dtype, tensor.data.data(), i))) {
      store(tensor.dtype, tensor.data.data(), i, unit * static_cast<float>(i % 7 + 1));
    }
  }
}

}  // namespace

Step select_rows(const Step& step, std::span<const std::int64_t> tokens) {
  Step result{step.problem, empty_tensors(step.problem, step.tensors.fill)};
  Problem& problem = result.problem;
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> rows_of_slices;
  for (const std::int64_t token : tokens) {
    ids.push_back(step.problem.plan.adapter_of_token[at(token)]);
  }
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    for (const std::int64_t token : tokens) {
      rows_of_slices.push_back(slice * step.problem.tokens + token);
    }
  }
  for (const Operand& operand : operands_of(step.problem)) {
    const HostTensor& from = step.tensors.of(operand);
    const bool of_x = operand.role == Role::kX || operand.role == Role::kXScale;
    const bool of_h = operand.role == Role::kH || operand.role == Role::kHScale;
    const bool of_slices = of_h || (of_x && step.problem.own_inputs());
    result.tensors.of(operand) =
        operand.per_slot || operand.of_all_rows
            ? from
            : take_blocks(from, of_slices ? rows_of_slices : tokens, operand.shape.back());
  }
  result.tensors.scale = step.tensors.scale;
  problem.tokens = static_cast<std::int64_t>(tokens.size());
  problem.route = step.problem.route.of_rows(tokens);
  problem.plan = make_plan(ids, problem.slots);
  return result;
}

Step relabel_adapters(const Step& step) {
  Step result = step;
  Problem& problem = result.problem;
  std::vector<std::int64_t> old_slot(at(problem.slots));
  for (std::int64_t slot = 0; slot < problem.slots; ++slot) {
    const std::int64_t moved = (slot + 1) % problem.slots;
    old_slot[at(moved)] = slot;
    problem.rank[at(moved)] = step.problem.rank[at(slot)];
    if (!problem.own_rank.empty()) {
      problem.own_rank[at(moved)] = step.problem.own_rank[at(slot)];
    }
    problem.scale[at(moved)] = step.problem.scale[at(slot)];
    result.tensors.scale[at(moved)] = step.tensors.scale[at(slot)];
  }
  std::vector<std::int32_t> ids;
  for (const std::int32_t id : step.problem.plan.adapter_of_token) {
    const std::int64_t moved = (id + 1) % problem.slots;
    ids.push_back(id == kNoAdapter ? kNoAdapter : static_cast<std::int32_t>(moved));
  }
  problem.plan = make_plan(ids, problem.slots);
  for (const Operand& operand : operands_of(problem)) {
    if (operand.per_slot) {
      HostTensor& tensor = result.tensors.of(operand);
      tensor = take_blocks(tensor, old_slot, tensor.elements / problem.slots);
    }
  }
  return result;
}

Step double_inputs(const Step& step) {
  Step result = step;
  // By way of their scales, where activations have some.
  double_elements(step.problem.has_scaled_x()   ? result.tensors.x_scale
                  : step.problem.has_scaled_h() ? result.tensors.h_scale
                  : has_shrink(step.problem.op) ? result.tensors.x
                                                : result.tensors.h);
  if (step.problem.adds_to_h()) {
    double_elements(result.tensors.h);
  }
  double_elements(result.tensors.y);
  for (HostTensor& bias : result.tensors.bias) {
    double_elements(bias);
  }
  return result;
}

Step beyond_fp16(const Step& step) {
  Step result = step;
  Tensors& into = result.tensors;
  enlarge(into.y);
  const bool of_b = has_expand(step.problem.op);
  for (std::size_t slice = 0; slice < step.problem.widths.size(); ++slice) {
    enlarge_weights(of_b ? into.b[slice] : into.a[slice],
                    of_b ? into.b_scale[slice] : into.a_scale[slice]);
    enlarge(into.bias[slice]);
  }
  return result;
}

Step fill_unused(const Step& step) {
  Step result = step;
  for (const Operand& operand : operands_of(step.problem)) {
    if (!operand.written) {
      replace_nan(result.tensors.of(operand));
    }
  }
  result.tensors.gap = kNumberByte;
  return result;
}

Step single_slice(const Step& step, std::int64_t slice) {
  Step result = step;
  Problem& problem = result.problem;
  problem.bias = problem.has_bias(slice);
  problem.bias_slices.clear();
  problem.widths = {step.problem.widths[at(slice)]};
  problem.offset_start = std::accumulate(step.problem.widths.begin(),
                                         step.problem.widths.begin() + slice, problem.offset_start);
  result.tensors.a = {step.tensors.a[at(slice)]};
  result.tensors.b = {step.tensors.b[at(slice)]};
  result.tensors.bias = {step.tensors.bias[at(slice)]};
  result.tensors.a_scale = {step.tensors.a_scale[at(slice)]};
  result.tensors.b_scale = {step.tensors.b_scale[at(slice)]};
  const std::vector<std::int64_t> block{slice};
  if (step.problem.own_inputs()) {
    result.tensors.x =
        take_blocks(step.tensors.x, block, step.problem.tokens * step.problem.x_stride);
  }
  if (step.problem.own_activations()) {
    const ScalesOfRows scales = step.problem.scales_of_rows();
    for (HostTensor* of_rows : {&result.tensors.x_scale, &result.tensors.h_scale}) {
      *of_rows = take_blocks(*of_rows, block, scales.rows * scales.across);
    }
  }
  result.tensors.h =
      take_blocks(step.tensors.h, block, step.problem.tokens * step.problem.max_rank);
  return result;
}

Step shrink_half(const Step& step) {
  Step result = step;
  result.problem = half_of(step.problem, Op::kShrink);
  result.problem.bias = false;
  result.tensors.factor = {};
  result.tensors.y = nothing_of(step.problem.dtype[Role::kY]);
  for (std::size_t slice = 0; slice < step.problem.widths.size(); ++slice) {
    result.tensors.b[slice] = nothing_of(step.problem.dtype[Role::kB]);
    result.tensors.b_scale[slice] = nothing_of(step.problem.dtype[Role::kBScale]);
    result.tensors.bias[slice] = nothing_of(step.problem.dtype[Role::kBias]);
  }
  return result;
}

Step expand_half(const Step& step, std::span<const std::byte> h) {
  Step result = step;
  result.problem = half_of(step.problem, Op::kExpand);
  result.tensors.x = nothing_of(step.problem.dtype[Role::kX]);
  result.tensors.x_scale = nothing_of(step.problem.dtype[Role::kXScale]);
  for (std::size_t slice = 0; slice < step.problem.widths.size(); ++slice) {
    result.tensors.a[slice] = nothing_of(step.problem.dtype[Role::kA]);
    result.tensors.a_scale[slice] = nothing_of(step.problem.dtype[Role::kAScale]);
  }
  result.tensors.h = {
      step.problem.dtype[Role::kH], operand_of(step.problem, Role::kH).elements, {}};
  result.tensors.h.data.assign(h.begin(), h.end());
  return result;
}

Step widen(const Step& step, std::int64_t lanes, std::int64_t features) {
  Step result = step;
  Problem& problem = result.problem;
  const std::int64_t k = problem.in_features;
  const std::int64_t rank = problem.max_rank;
  problem.max_rank += lanes;
  problem.in_features += features;
  const std::int64_t more_of_x = features * problem.layout.x_column_stride;
  problem.x_stride += more_of_x;
  // An h of fp16 stays finite.
  result.tensors.x = lengthen(step.tensors.x, step.problem.x_stride, k, more_of_x, Behind::kShares);
  result.tensors.x_scale = more_scales_of_rows(step.tensors.x_scale, step.problem, problem);
  result.tensors.h_scale = more_scales_of_rows(step.tensors.h_scale, step.problem, problem);
  result.tensors.h = lengthen(step.tensors.h, rank, rank, lanes, Behind::kNan);
  for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
    result.tensors.a[slice] =
        add_rows(lengthen(step.tensors.a[slice], k, k, features, Behind::kNumbers),
                 rank * problem.in_features, lanes * problem.in_features);
    result.tensors.b[slice] = lengthen(step.tensors.b[slice], rank, rank, lanes, Behind::kNan);
    const auto of_slice = static_cast<std::int64_t>(slice);
    result.tensors.a_scale[slice] =
        more_scales(step.tensors.a_scale[slice], problem.slots, step.problem.scales_of_a(),
                    problem.scales_of_a(), {.rows = false, .columns = true});
    result.tensors.b_scale[slice] =
        more_scales(step.tensors.b_scale[slice], problem.slots, step.problem.scales_of_b(of_slice),
                    problem.scales_of_b(of_slice), {.rows = true, .columns = false});
  }
  return result;
}

Tensors mixed(const Step& step, const Tensors& other, std::uint64_t seed) {
  constexpr std::uint64_t kMixStream = 0x6D6978;  // "mix"
  Tensors result = step.tensors;
  std::uint64_t stream = kMixStream << 8U;
  for (const Operand& operand : operands_of(step.problem)) {
    if (!operand.written) {
      take_some(result.of(operand), other.of(operand), seed, stream++);
    }
  }
  for (float& scale : result.scale) {
    scale *= -0.5F;
  }
  return result;
}

void take_input(const Problem& problem, std::string_view input, const Tensors& from,
                Tensors& into) {
  if (input == "scale") {
    into.scale = from.scale;
  }
  for (const Operand& operand : operands_of(problem)) {
    if (!operand.written && name(operand.role) == input) {
      into.of(operand) = from.of(operand);
    }
  }
}

Problem rotate_adapters(const Problem& problem) {
  Problem result = problem;
  std::vector<std::int32_t> ids = problem.plan.adapter_of_token;
  if (!ids.empty()) {
    std::rotate(ids.begin(), ids.begin() + 1, ids.end());
  }
  result.plan = make_plan(ids, problem.slots);
  return result;
}

Problem without_adapters(const Problem& problem) {
  Problem result = problem;
  result.plan = make_plan(std::vector(at(problem.tokens), kNoAdapter), problem.slots);
  return result;
}

Problem with_every_slot(const Problem& problem) {
  Problem result = problem;
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    ids.push_back(static_cast<std::int32_t>(token % problem.slots));
  }
  result.plan = make_plan(ids, problem.slots);
  return result;
}

Problem with_one_adapter(const Problem& problem) {
  Problem result = problem;
  std::vector<std::int32_t> ids = problem.plan.adapter_of_token;
  for (std::int32_t& id : ids) {
    id = id == kNoAdapter ? kNoAdapter : problem.plan.active_ids[0];
  }
  result.plan = make_plan(ids, problem.slots);
  return result;
}

Problem with_other_ranks(const Problem& problem) {
  Problem result = problem;
  for (std::int64_t slot = 0; slot < problem.slots && problem.max_rank > 0; ++slot) {
    std::int64_t& rank = result.rank[at(slot)];
    rank = 1 + (rank + slot) % problem.max_rank;
  }
  return result;
}

std::vector<std::int64_t> all_rows(const Problem& problem) {
  std::vector<std::int64_t> rows(at(problem.tokens));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

}  // namespace lora_bench
