#include "reference/hidden.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "reference/multiply.h"
#include "reference/parallel.h"
#include "reference/quantise.h"

namespace lora_bench::reference {
namespace {

// Lanes that one thread multiplies in one go have so many elements of A, and at least eight lanes.
constexpr std::int64_t kElementsPerBlock = 1 << 18;

// x of a part, read once for all lanes.
struct Inputs {
  Buffer value, magnitude;  // [rows, K]
  Buffer lowest_bits;       // [rows], kModelled
};

// A row of x or h, as it is counted over all slices that have one, and how many columns it has.
struct RowPlace {
  std::int64_t row = 0, columns = 0;
};

// Its first `count` numbers times their scales, where there are any.
void multiply_by_scales_of_row(const Problem& problem, const RowScales& scales, RowPlace at,
                               std::int64_t count, double* numbers) {
  if (scales.scales == nullptr) {
    return;
  }
  const std::int64_t of_group = scales.group == 0 ? at.columns : scales.group;
  const std::int64_t groups = at.columns == 0 ? 0 : (at.columns - 1) / of_group + 1;
  const std::int64_t row_of_scales = scales.one ? at.row / problem.tokens : at.row;
  for (std::int64_t column = 0; column < count; ++column) {
    numbers[column] *=
        static_cast<double>(scales.scales[row_of_scales * groups + column / of_group]);
  }
}

Inputs read_inputs(const Problem& problem, const Part& part, std::int64_t slice, Rounding rounding,
                   double least, std::int64_t threads) {
  const std::int64_t k = problem.in_features;
  const std::int64_t first_row = problem.own_inputs ? slice * problem.tokens : 0;
  Inputs inputs;
  inputs.value.resize(at(part.count() * k));
  inputs.magnitude.resize(inputs.value.size());
  inputs.lowest_bits.resize(at(part.count()));
  parallel(part.count(), threads, [&](std::int64_t row) {
    double* const x = inputs.value.data() + row * k;
    const std::int64_t token = part.tokens[at(row)];
    const std::int64_t row_of_x =
        problem.row_of_x.empty() ? first_row + token : problem.row_of_x[at(token)];
    read(problem.numbers.x, problem.x, row_of_x * problem.x_stride, k, x);
    multiply_by_scales_of_row(problem, problem.x_scale, {row_of_x, k}, k, x);
    std::transform(x, x + k, inputs.magnitude.data() + row * k,
                   [least](double v) { return v == 0 ? 0 : std::max(std::fabs(v), least); });
    inputs.lowest_bits[at(row)] = rounding == Rounding::kModelled ? lowest_bit(x, k) : 0;
  });
  return inputs;
}

// What the bound of each lane follows from: sums of magnitudes of the products of x and A, of the
// terms of h (equal runs of K), and the most that a sum of some of the terms can come to.
struct Sizes {
  Buffer products, terms, some_terms;  // [rows, lanes]
};

// Some lanes of A, as read.
struct Lanes {
  std::int64_t slice = 0, first = 0, count = 0;
  Buffer a;      // [count, K]
  Buffer value;  // [rows, count], sums of the products with x, then h
  Sizes sizes;
  Buffer error;  // [rows, count], of h
};

// Columns first ... first + count - 1 of rows of `k`.
Buffer run_of(const Buffer& whole, std::int64_t k, std::int64_t first, std::int64_t count) {
  Buffer run;
  for (auto row = whole.begin(); row != whole.end(); row += k) {
    run.insert(run.end(), row + first, row + first + count);
  }
  return run;
}

void size_terms(const Inputs& inputs, std::int64_t k, std::int64_t terms, Lanes& lanes) {
  if (terms == 1) {
    lanes.sizes.terms = lanes.sizes.some_terms = magnitudes(lanes.value);
    return;
  }
  if (k % terms != 0) {  // which runs they are of is not known
    lanes.sizes.terms = lanes.sizes.some_terms = lanes.sizes.products;
    return;
  }
  const std::int64_t count = k / terms;
  const std::int64_t rows = std::ssize(inputs.lowest_bits);
  Buffer above(lanes.value.size());
  Buffer below(lanes.value.size());
  Buffer term(lanes.value.size());
  for (std::int64_t first = 0; first < k; first += count) {
    multiply().in_double(run_of(inputs.value, k, first, count).data(),
                         run_of(lanes.a, k, first, count).data(), term.data(), rows, lanes.count,
                         count);
    for (std::size_t i = 0; i < term.size(); ++i) {
      (term[i] > 0 ? above : below)[i] += std::fabs(term[i]);
    }
  }
  for (std::size_t i = 0; i < term.size(); ++i) {
    lanes.sizes.terms.push_back(above[i] + below[i]);
    lanes.sizes.some_terms.push_back(std::max(above[i], below[i]));
  }
}

void multiply_lanes(const Problem& problem, const Part& part, const Inputs& inputs, double least,
                    Lanes& lanes) {
  const std::int64_t k = problem.in_features;
  lanes.a.resize(at(lanes.count * k));
  read(problem.numbers.a, problem.a[at(lanes.slice)],
       (part.adapter * problem.max_rank + lanes.first) * k, lanes.count * k, lanes.a.data());
  if (!problem.a_scale.empty()) {
    const std::int64_t all = problem.columns_of_scaled_a > 0 ? problem.columns_of_scaled_a : k;
    multiply_by_scales(problem,
                       {problem.a_scale[at(lanes.slice)], part.adapter, problem.max_rank, all,
                        lanes.first, lanes.count, k, problem.first_of_a},
                       lanes.a);
  }
  lanes.value.resize(at(part.count() * lanes.count));
  multiply().in_double(inputs.value.data(), lanes.a.data(), lanes.value.data(), part.count(),
                       lanes.count, k);
  lanes.sizes.products.resize(lanes.value.size());
  multiply().in_double(inputs.magnitude.data(), magnitudes(lanes.a, least).data(),
                       lanes.sizes.products.data(), part.count(), lanes.count, k);
}

// Sum of |x||A| in units of the lowest bit of its terms, the scale included.
double largest_shrink_partial(const Problem& problem, const Part& part, const Inputs& inputs,
                              const Lanes& lanes) {
  const std::int64_t k = problem.in_features;
  const double scale_in_units = problem.scale_at_shrink && part.scale != 0
                                    ? std::fabs(part.scale) / lowest_bit(part.scale)
                                    : 1;
  double largest = 0;
  for (std::int64_t lane = 0; lane < lanes.count; ++lane) {
    const double a_bit = lowest_bit(lanes.a.data() + lane * k, k);
    for (std::int64_t row = 0; row < part.count(); ++row) {
      const double unit = inputs.lowest_bits[at(row)] * a_bit;
      largest = std::max(
          largest, lanes.sizes.products[at(row * lanes.count + lane)] / unit * scale_in_units);
    }
  }
  return largest;
}

// Sizes of one lane of one row.
struct Size {
  double products = 0, terms = 0, some_terms = 0;
};

// Bound of the sums of products, perhaps of partials in a narrow format, of all terms together.
double sum_error(const Problem& problem, const Arithmetic& arithmetic, const Size& size) {
  // Products of narrow numbers are exact in fp32; those of fp32 numbers are rounded once. Numbers
  // with a scale are multiplied by it before or after, which may be rounded too.
  const bool wide = problem.numbers.x == Number::kFp32 || problem.numbers.a == Number::kFp32;
  const int of_x = problem.x_scale.scales != nullptr ? 1 : 0;
  const int product = of_x + (!problem.a_scale.empty() ? 2 : wide ? 1 : 0);
  double error =
      share(gamma(static_cast<double>(arithmetic.shrink_depth + product), arithmetic.unit_roundoff),
            size.products);
  const auto products = static_cast<double>(problem.in_features);
  error += products * (kSmallestFp32 + 0x1p-53 * size.products);
  if (arithmetic.partial != Number::kFp32) {
    const Roundoff partial = roundoff(arithmetic.partial);
    const auto partials = static_cast<double>(arithmetic.partials);
    // One partial is a whole term, which is far smaller than the sum of its products' magnitudes.
    error += arithmetic.partials == 1
                 ? partial.relative * (size.terms + error)
                 : share(gamma(partials, partial.relative), size.products + error);
    error += static_cast<double>(arithmetic.terms_of_h) * partials * partial.absolute;
  }
  return error;
}

// Bound of a sum of terms that are stored in a narrow format before they are added, as may be what
// has been added, in any order; `error` is what was lost in the terms, and the last rounding is not
// counted. Each term is rounded once. Whatever the order, n terms take n - 1 additions, the last of
// which gives the result; each of the others gives a sum of some of the terms, so no more than all
// that are positive, or all that are negative, come to, and what was lost before it.
double error_of_stored_terms(const Roundoff& stored, double terms, const Size& size, double error) {
  error += stored.relative * (size.terms + error) + terms * stored.absolute;
  return error + share(gamma(terms - 2, stored.relative), size.some_terms + error) +
         terms * kSmallestFp32;
}

// `value` is h.
double bound(const Problem& problem, const Arithmetic& arithmetic, const Part& part, Size size,
             double value) {
  const double scale = problem.scale_at_shrink ? std::fabs(part.scale) : 1;
  const Roundoff stored = roundoff(arithmetic.intermediate);
  const auto terms = static_cast<double>(arithmetic.terms_of_h);
  double error = scale == 0 ? 0 : scale * sum_error(problem, arithmetic, size);
  size.terms *= scale;
  size.some_terms *= scale;
  if (problem.scale_at_shrink) {
    error += arithmetic.unit_roundoff * (size.terms + error) + terms * kSmallestFp32;
  }
  if (arithmetic.intermediate != Number::kFp32) {
    if (arithmetic.terms_of_h > 1) {
      error = error_of_stored_terms(stored, terms, size, error);
    }
    error += stored.relative * (std::fabs(value) + error) + stored.absolute;
  }
  return error;
}

// Makes h of the sums of products, and its bound or its roundings.
void finish_lanes(const Problem& problem, const Arithmetic& arithmetic, Rounding rounding,
                  const Part& part, const Inputs& inputs, Lanes& lanes) {
  if (rounding == Rounding::kBounded) {
    size_terms(inputs, problem.in_features, arithmetic.terms_of_h, lanes);
  }
  lanes.error.resize(lanes.value.size());
  for (std::size_t i = 0; i < lanes.value.size(); ++i) {
    double& value = lanes.value[i];
    value *= problem.scale_at_shrink ? part.scale : 1;
    if (rounding == Rounding::kBounded) {
      const Size size{lanes.sizes.products[i], lanes.sizes.terms[i], lanes.sizes.some_terms[i]};
      lanes.error[i] = bound(problem, arithmetic, part, size, value);
    } else {
      value = round_to(arithmetic.intermediate, value);
    }
  }
}

}  // namespace

std::vector<Hidden> shrink(const Problem& problem, const Arithmetic& arithmetic, Rounding rounding,
                           const Part& part, std::int64_t threads) {
  const double least = rounding == Rounding::kBounded
                           ? std::max(least_magnitude(problem.numbers.x, arithmetic),
                                      least_magnitude(problem.numbers.a, arithmetic))
                           : 0;
  std::vector<Hidden> hidden(problem.widths.size());
  std::vector<Inputs> inputs;
  for (std::size_t slice = 0; slice < (problem.own_inputs ? hidden.size() : 1); ++slice) {
    inputs.push_back(
        read_inputs(problem, part, static_cast<std::int64_t>(slice), rounding, least, threads));
  }
  std::vector<Lanes> blocks;
  const std::int64_t most =
      std::max<std::int64_t>(8, kElementsPerBlock / std::max<std::int64_t>(1, problem.in_features));
  for (std::size_t slice = 0; slice < hidden.size(); ++slice) {
    if (problem.widths[slice] == 0) {
      continue;
    }
    hidden[slice].value.resize(at(part.count() * part.rank));
    hidden[slice].error.resize(hidden[slice].value.size());
    for (std::int64_t first = 0; first < part.rank; first += most) {
      Lanes& lanes = blocks.emplace_back();
      lanes.slice = static_cast<std::int64_t>(slice);
      lanes.first = first;
      lanes.count = std::min(most, part.rank - first);
    }
  }
  std::vector<double> largest(blocks.size());
  parallel(static_cast<std::int64_t>(blocks.size()), threads, [&](std::int64_t block) {
    Lanes lanes = blocks[at(block)];
    const Inputs& of_slice = inputs[problem.own_inputs ? at(lanes.slice) : 0];
    multiply_lanes(problem, part, of_slice, least, lanes);
    if (rounding == Rounding::kModelled) {
      largest[at(block)] = largest_shrink_partial(problem, part, of_slice, lanes);
    }
    finish_lanes(problem, arithmetic, rounding, part, of_slice, lanes);
    Hidden& whole = hidden[at(lanes.slice)];
    for (std::int64_t row = 0; row < part.count(); ++row) {
      const std::int64_t from = row * lanes.count;
      const std::int64_t to = row * part.rank + lanes.first;
      std::copy_n(lanes.value.begin() + from, lanes.count, whole.value.begin() + to);
      std::copy_n(lanes.error.begin() + from, lanes.count, whole.error.begin() + to);
    }
  });
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    double& of_slice = hidden[at(blocks[block].slice)].largest_partial;
    of_slice = std::max(of_slice, largest[block]);
  }
  return hidden;
}

namespace {

// The least and the largest scale that the lanes of a group may come to have, and the one that they
// have as they are.
struct GroupScales {
  double least = 0, own = 0, most = 0;
};

GroupScales scales_of_group(const QuantiserRule& rule, std::span<const double> values,
                            std::span<const double> errors) {
  double least = 0, own = 0, most = 0;
  for (std::size_t lane = 0; lane < values.size(); ++lane) {
    const double size = std::fabs(values[lane]);
    least = std::max(least, size - errors[lane]);
    own = std::max(own, round_to(Number::kFp32, size));
    most = std::max(most, size + errors[lane]);
  }
  return {scale_for(rule, least), scale_for(rule, own), scale_for(rule, most)};
}

// A lane before it is quantised: anything from `least` to `most`.
struct Range {
  double least = 0, most = 0;
};

// How far the lane with a scale of `low` to `high` may lie from `expected`. Codes fall as scales
// grow and grow as numbers do, so those at the ends enclose all.
double furthest(const QuantiserRule& rule, double expected, const Range& lane, double low,
                double high) {
  double distance = 0;
  for (const double x : {lane.least, lane.most}) {
    for (const double code : {code_for(rule, x, low), code_for(rule, x, high)}) {
      for (const double scale : {low, high}) {
        distance = std::max(distance, std::fabs(code * scale - expected));
      }
    }
  }
  return distance;
}

// The same with any scale of the group.
double furthest(const QuantiserRule& rule, double expected, const Range& lane,
                const GroupScales& scales) {
  if (!(scales.least > 0) || !std::isfinite(scales.most)) {
    return std::numeric_limits<double>::infinity();
  }
  if (!rule.power_of_two) {
    return furthest(rule, expected, lane, scales.least, scales.most);
  }
  // Powers of two are few, and a code goes with its own scale alone.
  double distance = 0;
  for (double scale = scales.least; scale <= scales.most; scale *= 2) {
    distance = std::max(distance, furthest(rule, expected, lane, scale, scale));
  }
  return distance;
}

void quantise_group(const QuantiserRule& rule, std::span<double> values, std::span<double> errors) {
  const GroupScales scales = scales_of_group(rule, values, errors);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Range lane{values[i] - errors[i], values[i] + errors[i]};
    values[i] = code_for(rule, round_to(Number::kFp32, values[i]), scales.own) * scales.own;
    errors[i] = furthest(rule, values[i], lane, scales);
  }
}

}  // namespace

void quantise(const HiddenQuantiser& quantiser, const Part& part, Hidden& hidden) {
  const std::int64_t group = quantiser.group > 0 ? quantiser.group : part.rank;
  for (std::int64_t row = 0; row < std::ssize(hidden.value); row += part.rank) {
    for (std::int64_t lane = 0; lane < part.rank; lane += group) {
      const auto count = at(std::min(group, part.rank - lane));
      quantise_group(quantiser.rule, {hidden.value.data() + row + lane, count},
                     {hidden.error.data() + row + lane, count});
    }
  }
}

std::vector<Hidden> given_hidden(const Problem& problem, const Part& part) {
  std::vector<Hidden> hidden(problem.widths.size());
  for (std::size_t slice = 0; slice < hidden.size(); ++slice) {
    if (problem.widths[slice] == 0) {
      continue;
    }
    hidden[slice].value.resize(at(part.count() * part.rank));
    hidden[slice].error.resize(hidden[slice].value.size());
    for (std::int64_t row = 0; row < part.count(); ++row) {
      const std::int64_t row_of_h =
          static_cast<std::int64_t>(slice) * problem.tokens + part.tokens[at(row)];
      double* const lanes = hidden[slice].value.data() + row * part.rank;
      read(problem.numbers.h, problem.h, row_of_h * problem.max_rank, part.rank, lanes);
      multiply_by_scales_of_row(problem, problem.h_scale, {row_of_h, problem.max_rank}, part.rank,
                                lanes);
    }
  }
  return hidden;
}

bool quantises_h(const Problem& problem, const Arithmetic& arithmetic) {
  return problem.shrink && problem.expand && has_eight_bits(arithmetic.intermediate);
}

void add_given(const Arithmetic& arithmetic, const Hidden& given, Hidden& hidden) {
  for (std::size_t i = 0; i < hidden.value.size(); ++i) {
    const double before = given.value[i];
    const double made = hidden.value[i];
    const double size = std::fabs(made) + std::fabs(before);
    const double unit = std::min(lowest_bit(made), lowest_bit(before));
    hidden.largest_partial = std::max(hidden.largest_partial, size == 0 ? 0 : size / unit);
    hidden.error[i] += arithmetic.unit_roundoff * (size + hidden.error[i]) + kSmallestFp32;
    hidden.value[i] = made + before;
  }
}

void cast_to_b(const Problem& problem, const Arithmetic& arithmetic, Rounding rounding,
               Hidden& hidden) {
  const Number stored = problem.shrink ? arithmetic.intermediate : problem.numbers.h;
  const Number into = number_of_cast(problem);
  if (!problem.expand || !arithmetic.casts_h || stored == into) {
    return;
  }
  const Roundoff cast = roundoff(into);
  for (std::size_t i = 0; i < hidden.value.size(); ++i) {
    if (rounding == Rounding::kModelled) {
      hidden.value[i] = round_to(into, hidden.value[i]);
    } else {
      hidden.error[i] +=
          cast.relative * (std::fabs(hidden.value[i]) + hidden.error[i]) + cast.absolute;
    }
  }
}

}  // namespace lora_bench::reference
