#include "workload/quantise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "core/bytes.h"
#include "core/random.h"
#include "workload/fill_sizes.h"

namespace lora_bench {
namespace {

// The largest number of a group, and another one of the group that is converted to one code by a
// division and to another by a product.
struct TellingPair {
  float amax = 0, x = 0;
};

std::uint8_t code_of(Dtype to, float value) {
  const auto largest = static_cast<float>(largest_finite(to));
  const float held = std::clamp(value, -largest, largest);
  return to == Dtype::kE4m3 ? e4m3_from_float(held) : e5m2_from_float(held);
}

// With amax in [1, 2), of numbers of so many significant bits; at most `kMost`.
std::vector<TellingPair> telling_pairs(Dtype to, int bits) {
  constexpr std::size_t kMost = 32;
  constexpr int kBinades = 12;
  const auto largest = static_cast<float>(largest_finite(to));
  const int one = 1 << (bits - 1);
  std::vector<TellingPair> pairs;
  // Odd steps, so that not all pairs have the same leading bits.
  const int step = bits > 8 ? 37 : 1;
  for (int a = one; a < 2 * one && pairs.size() < kMost; a += step) {
    const float amax = std::ldexp(static_cast<float>(a), 1 - bits);
    const float scale = amax / largest;
    const float inverse = 1 / scale;
    for (int x = one; x < 2 * one; ++x) {
      for (int binade = 0; binade < kBinades; ++binade) {
        const float number = std::ldexp(static_cast<float>(x), 1 - bits - binade);
        if (number <= amax && code_of(to, number / scale) != code_of(to, number * inverse)) {
          pairs.push_back({amax, number});
          x = 2 * one;  // one of each amax
          break;
        }
      }
    }
  }
  return pairs;
}

const std::vector<TellingPair>& pairs_for(Dtype from, Dtype to) {
  // fp16 has 11 bits, and so has fp32 of these pairs.
  static const std::vector<TellingPair> kOfBf16[] = {telling_pairs(Dtype::kE4m3, 8),
                                                     telling_pairs(Dtype::kE5m2, 8)};
  static const std::vector<TellingPair> kOfOthers[] = {telling_pairs(Dtype::kE4m3, 11),
                                                       telling_pairs(Dtype::kE5m2, 11)};
  const auto of_format = static_cast<std::size_t>(to == Dtype::kE5m2);
  return from == Dtype::kBf16 ? kOfBf16[of_format] : kOfOthers[of_format];
}

// What the numbers of one scale are like: zeros; so small that the least scale counts; ties between
// codes, by a scale that is a power of two; with a scale just above a power of two; pairs that tell
// a division from a product; far beyond the largest number of eight bits; any.
enum class Group : std::uint8_t { kZeros, kTiny, kTies, kAbove, kTelling, kHuge, kOrdinary };

struct GroupLaw {
  Group group = Group::kOrdinary;
  TellingPair pair;
  float size = 1;  // a power of two; of ordinary numbers the largest is below twice of it
  Dtype from = Dtype::kBf16, to = Dtype::kE4m3;
};

// So small that the least scale counts where it is positive.
constexpr float kTiny = 0x1p-20F;
// The largest number of both formats is this times a power of two: so is an amax whose scale is
// one.
constexpr float kOfLargest = 1.75F;

// Kinds of groups by chance; and of the one group of a tensor by its seed, so that launches with
// seeds that follow each other have all of them.
constexpr std::array<Group, 16> kOfGroups{
    Group::kZeros,   Group::kTiny,    Group::kHuge,     Group::kAbove,
    Group::kTelling, Group::kTelling, Group::kTelling,  Group::kTelling,
    Group::kTelling, Group::kTelling, Group::kTies,     Group::kTies,
    Group::kTies,    Group::kTies,    Group::kOrdinary, Group::kOrdinary};
constexpr std::array<Group, 6> kOfTensors{Group::kTelling, Group::kTies, Group::kAbove,
                                          Group::kTiny,    Group::kHuge, Group::kOrdinary};
static_assert(kOfTensors.size() == kQuantiseDraws);

GroupLaw law_of(const QuantiseProblem& problem, std::uint64_t seed, const RandomStream& random,
                std::int64_t group) {
  const std::uint64_t bits = random.bits(static_cast<std::uint64_t>(group));
  const std::vector<TellingPair>& pairs = pairs_for(problem.from, problem.to);
  GroupLaw law;
  law.group = problem.scale_count() == 1 ? kOfTensors[seed % kOfTensors.size()]
                                         : kOfGroups[bits % kOfGroups.size()];
  if (law.group == Group::kTelling && pairs.empty()) {
    law.group = Group::kOrdinary;
  }
  law.pair = pairs.empty() ? TellingPair{1, 1} : pairs[(bits >> 8U) % pairs.size()];
  int exponent = static_cast<int>((bits >> 16U) % 13) - 6;
  if (law.group == Group::kHuge) {
    // Below 2^15 in fp16, of which the largest is 65504.
    exponent = problem.from == Dtype::kFp16 ? 14 : 14 + static_cast<int>((bits >> 20U) % 17);
  }
  law.size = std::ldexp(1.0F, exponent);
  law.from = problem.from;
  law.to = problem.to;
  return law;
}

// Times the scale, which is a power of two: an odd half of the distance of two codes.
float tie(const GroupLaw& law, std::uint64_t bits, int binade) {
  const bool e4m3 = law.to == Dtype::kE4m3;
  const auto scale = law.size * kOfLargest / static_cast<float>(largest_finite(law.to));
  const unsigned steps = e4m3 ? 8 : 4;  // of codes in a binade
  const auto odd = static_cast<float>(2 * ((bits >> 9U) % steps) + 1);
  if ((bits >> 14U) % 4 == 0) {
    return scale * odd * (e4m3 ? 0x1p-10F : 0x1p-17F);  // of subnormal codes
  }
  return law.size * std::ldexp(1 + odd / static_cast<float>(2 * steps), -1 - binade);
}

// The least number of the format above what has a scale that is a power of two.
float just_above(Dtype from) {
  return kOfLargest + (from == Dtype::kBf16 ? 0x1p-7F : from == Dtype::kFp16 ? 0x1p-10F : 0x1p-23F);
}

// The number at a place of a group, from 64 random bits of its own.
float number_of(const GroupLaw& law, std::uint64_t bits, bool largest) {
  const float sign = (bits & 1U) != 0 ? -1.0F : 1.0F;
  const auto unit = static_cast<float>(static_cast<double>(bits >> 40U) * 0x1p-24);
  // Most numbers are within four binades of the largest, some far below.
  const int binade = static_cast<int>((bits >> 1U) % 8 == 0 ? (bits >> 4U) % 20 : (bits >> 4U) % 4);
  const float ordinary = std::ldexp(1 + unit, -1 - binade);
  switch (law.group) {
    case Group::kZeros:
      return sign * 0.0F;
    case Group::kTiny:
      return sign * kTiny * ordinary;
    case Group::kTies:
      return sign * (largest ? law.size * kOfLargest : tie(law, bits, binade));
    case Group::kAbove:
      return sign * law.size * (largest ? just_above(law.from) : ordinary);
    case Group::kTelling:
      if (largest || (bits >> 9U) % 4 == 0) {
        return sign * law.size * (largest ? law.pair.amax : law.pair.x);
      }
      return sign * law.size * std::min(ordinary, law.pair.amax);
    case Group::kHuge:
    case Group::kOrdinary:
      break;
  }
  return sign * law.size * (largest ? 1 + unit : ordinary);
}

// Where the largest number of each group stands: anywhere in it, or last.
std::vector<std::int64_t> places_of_largest(const QuantiseProblem& problem,
                                            const RandomStream& random) {
  std::vector<std::int64_t> places(static_cast<std::size_t>(problem.scale_count()));
  const std::int64_t rows = problem.scales.by_token ? 1 : problem.rows;
  for (std::int64_t group = 0; group < problem.scale_count(); ++group) {
    const std::uint64_t bits = random.bits(static_cast<std::uint64_t>(group)) >> 32U;
    const std::int64_t across = problem.scales.across;
    const std::int64_t first = group % across * problem.scales.columns;
    const std::int64_t columns = std::min(problem.scales.columns, problem.columns - first);
    const std::int64_t within = rows * columns;
    const std::int64_t place =
        bits % 3 == 0 ? within - 1
                      : static_cast<std::int64_t>(bits / 3 % static_cast<std::uint64_t>(within));
    const std::int64_t row = (problem.scales.by_token ? group / across : 0) + place / columns;
    places[static_cast<std::size_t>(group)] = row * problem.columns + first + place % columns;
  }
  return places;
}

std::vector<std::byte> bytes_of(Dtype dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_bytes(dtype)));
  encode(dtype, values, bytes.data());
  return bytes;
}

// Given scales are these times the one that holds every number of the group. By half of it some
// numbers are held at the largest, by 2^-80 all are, and by 2^80 all become 0.
constexpr std::array<float, 7> kOfGiven{1.0F, 0.5F, 2.0F, 0x1p-80F, 1.0F, 0x1p80F, 0.5F};

std::vector<float> given_scales(const QuantiseProblem& problem, std::uint64_t seed,
                                const std::vector<GroupLaw>& laws, const RandomStream& random) {
  const auto largest = static_cast<float>(largest_finite(problem.to));
  std::vector<float> scales;
  for (std::size_t group = 0; group < laws.size(); ++group) {
    const GroupLaw& law = laws[group];
    const float amax = law.group == Group::kTelling ? law.size * law.pair.amax
                       : law.group == Group::kTies  ? law.size * kOfLargest
                                                    : law.size;
    const std::uint64_t drawn = laws.size() == 1 ? seed : random.bits(group) >> 20U;
    scales.push_back(amax / largest * kOfGiven[drawn % kOfGiven.size()]);
  }
  return scales;
}

}  // namespace

QuantiseStep draw_quantise(const Case& spec, const Problem& problem) {
  QuantiseProblem made;
  static_cast<QuantiserRule&>(made) =
      quantiser_rule_of(spec, spec.activations.dtype.value_or(Dtype::kE4m3));
  made.rows = problem.tokens;
  made.columns = problem.in_features;
  made.stride = problem.x_stride;
  made.from = spec.dtype;
  made.scales = problem.scales_of_rows();
  made.scales_given = spec.quantiser.scales == ScalesOfX::kGiven;
  return {made, spec.seed};
}

std::string quantiser_text(const QuantiseProblem& problem) {
  return problem.scales_given ? fmt::format("scales given, {}", name(problem.convert))
                              : fmt::format("scales made, {}", rule_text(problem));
}

ArrayShapes inputs_of(const QuantiseProblem& problem) {
  ArrayShapes arrays{{"x", problem.rows * problem.stride, size_bytes(problem.from)}};
  if (problem.scales_given) {
    arrays.push_back({"x_scale", problem.scale_count(), size_bytes(Dtype::kFp32)});
  }
  return arrays;
}

ArrayShapes outputs_of(const QuantiseProblem& problem) {
  ArrayShapes arrays{{"q", problem.rows * problem.columns, size_bytes(problem.to)}};
  if (!problem.scales_given) {
    arrays.push_back({"q_scale", problem.scale_count(), size_bytes(Dtype::kFp32)});
  }
  return arrays;
}

namespace {

// Calls work(row) for each row, on all cores where there are many numbers.
template <typename Work>
void over_rows(const QuantiseProblem& problem, Work work) {
  constexpr std::int64_t kNumbersAtOnce = 1 << 15;
  const std::int64_t at_once = kNumbersAtOnce / std::max<std::int64_t>(problem.stride, 1) + 1;
  for_blocks(problem.rows, at_once, 0, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      work(row);
    }
  });
}

}  // namespace

QuantiseArrays draw_quantise_inputs(const QuantiseProblem& problem, std::uint64_t seed,
                                    XGaps gaps) {
  const RandomStream groups(seed, stream_of(Draw::kXScale));
  const RandomStream numbers(seed, stream_of(Draw::kX));
  std::vector<GroupLaw> laws;
  for (std::int64_t group = 0; group < problem.scale_count(); ++group) {
    laws.push_back(law_of(problem, seed, groups, group));
  }
  const std::vector<std::int64_t> largest = places_of_largest(problem, groups);
  const float huge = problem.from == Dtype::kFp16 ? 60000.0F : 0x1p100F;
  const float in_gaps = gaps == XGaps::kNan ? std::numeric_limits<float>::quiet_NaN() : huge;
  const std::int64_t row_bytes = problem.stride * size_bytes(problem.from);
  QuantiseArrays inputs{std::vector<std::byte>(static_cast<std::size_t>(problem.rows * row_bytes))};
  over_rows(problem, [&](std::int64_t row) {
    std::vector<float> x(static_cast<std::size_t>(problem.stride), in_gaps);
    for (std::int64_t column = 0; column < problem.columns; ++column) {
      const std::int64_t place = row * problem.columns + column;
      const auto group = static_cast<std::size_t>(problem.scale_at(row, column));
      x[static_cast<std::size_t>(column)] = number_of(
          laws[group], numbers.bits(static_cast<std::uint64_t>(place)), place == largest[group]);
    }
    encode(problem.from, x, inputs[0].data() + row * row_bytes);
  });
  if (problem.scales_given) {
    inputs.push_back(bytes_of(Dtype::kFp32, given_scales(problem, seed, laws, groups)));
  }
  return inputs;
}

namespace {

template <typename Change>
QuantiseArrays changed(const QuantiseProblem& problem, QuantiseArrays inputs, Change change) {
  over_rows(problem, [&](std::int64_t row) {
    for (std::int64_t column = 0; column < problem.columns; ++column) {
      const std::int64_t at = row * problem.stride + column;
      store(problem.from, inputs[0].data(), at, change(load(problem.from, inputs[0].data(), at)));
    }
  });
  return inputs;
}

}  // namespace

QuantiseArrays smaller(const QuantiseProblem& problem, QuantiseArrays inputs) {
  return changed(problem, std::move(inputs), [](float value) { return value * 0.125F; });
}

QuantiseArrays of_zeros(const QuantiseProblem& problem, QuantiseArrays inputs) {
  return changed(problem, std::move(inputs),
                 [](float value) { return std::copysign(0.0F, value); });
}

QuantiseArrays with_one_number_changed(const QuantiseProblem& problem, QuantiseArrays inputs,
                                       std::uint64_t secret) {
  const auto drawn = [&](std::uint64_t index, std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(secret, stream_of(Draw::kX), index, static_cast<std::uint64_t>(bound)));
  };
  if (problem.rows == 0) {
    return inputs;
  }
  const std::int64_t at = drawn(0, problem.rows) * problem.stride + drawn(1, problem.columns);
  store(problem.from, inputs[0].data(), at, -load(problem.from, inputs[0].data(), at));
  return inputs;
}

QuantiseArrays with_one_scale_changed(const QuantiseProblem& problem, QuantiseArrays inputs,
                                      std::uint64_t secret) {
  if (problem.rows == 0) {
    return inputs;
  }
  const auto group = static_cast<std::int64_t>(random_below(
      secret, stream_of(Draw::kXScale), 0, static_cast<std::uint64_t>(problem.scale_count())));
  const std::int64_t across = problem.scales.across;
  const std::int64_t first_row = problem.scales.by_token ? group / across : 0;
  const std::int64_t rows = problem.scales.by_token ? 1 : problem.rows;
  const std::int64_t first = group % across * problem.scales.columns;
  const std::int64_t columns = std::min(problem.scales.columns, problem.columns - first);
  float amax = 0;
  const auto place = [&](std::int64_t number) {
    return (first_row + number / columns) * problem.stride + first + number % columns;
  };
  for (std::int64_t number = 0; number < rows * columns; ++number) {
    amax = std::max(amax, std::fabs(load(problem.from, inputs[0].data(), place(number))));
  }
  if (problem.scales_given) {
    // The scale that holds every number, or four times that where it is about as large already.
    const float holds = amax / static_cast<float>(largest_finite(problem.to));
    const float scale = load(Dtype::kFp32, inputs[1].data(), group);
    const bool about = scale > holds / 4 && scale < holds * 4;
    store(Dtype::kFp32, inputs[1].data(), group, amax == 0 || about ? scale * 4 : holds);
    return inputs;
  }
  // One number of the group becomes larger than all others.
  const auto number = static_cast<std::int64_t>(random_below(
      secret, stream_of(Draw::kXScale), 1, static_cast<std::uint64_t>(rows * columns)));
  store(problem.from, inputs[0].data(), place(number), amax == 0 ? 1.0F : amax * 1.5F);
  return inputs;
}

}  // namespace lora_bench
