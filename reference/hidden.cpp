#include "reference/hidden.h"

#include <algorithm>
#include <cmath>

#include "reference/multiply.h"

namespace lora_bench::reference {
namespace {

// Sum of |x||A| in units of the lowest bit of its terms, the scale included.
double largest_shrink_partial(const Problem& problem, const Part& part, const Inputs& inputs,
                              const Buffer& a, const Buffer& size, bool scaled) {
  const std::int64_t k = problem.in_features;
  const double scale_in_units =
      scaled && part.scale != 0 ? std::fabs(part.scale) / lowest_bit(part.scale) : 1;
  Buffer a_bits;
  for (std::int64_t lane = 0; lane < part.rank; ++lane) {
    a_bits.push_back(lowest_bit(a.data() + lane * k, k));
  }
  double largest = 0;
  for (std::int64_t row = 0; row < part.count(); ++row) {
    const double x_bit = lowest_bit(inputs.value.data() + row * k, k);
    for (std::int64_t lane = 0; lane < part.rank; ++lane) {
      const double unit = x_bit * a_bits[at(lane)];
      largest = std::max(largest, size[at(row * part.rank + lane)] / unit * scale_in_units);
    }
  }
  return largest;
}

// Bound of a sum of K products, perhaps of partials in a narrow format; `size` is the sum of their
// magnitudes.
double sum_error(const Problem& problem, const Arithmetic& arithmetic, double sum, double size) {
  // Products of narrow numbers are exact in fp32; those of fp32 numbers are rounded once.
  const int product = problem.number == Number::kFp32 ? 1 : 0;
  double error =
      share(gamma(static_cast<double>(arithmetic.shrink_depth + product), arithmetic.unit_roundoff),
            size);
  const auto terms = static_cast<double>(problem.in_features);
  error += terms * (kSmallestFp32 + 0x1p-53 * size);
  const auto parts = static_cast<double>(arithmetic.terms_of_h);
  if (arithmetic.partial != Number::kFp32) {
    const Roundoff partial = roundoff(arithmetic.partial);
    const auto partials = static_cast<double>(arithmetic.partials);
    // One partial is the whole sum, which is far smaller than the sum of magnitudes.
    error += arithmetic.partials == 1 && arithmetic.terms_of_h == 1
                 ? partial.relative * (sum + error)
                 : share(gamma(partials, partial.relative), size + error);
    error += parts * partials * partial.absolute;
  }
  if (arithmetic.intermediate != Number::kFp32 && arithmetic.terms_of_h > 1) {
    const Roundoff stored = roundoff(arithmetic.intermediate);
    error += share(gamma(parts, stored.relative), size + error) + parts * stored.absolute;
  }
  return error;
}

void bound_hidden(const Problem& problem, const Arithmetic& arithmetic, const Part& part,
                  const Buffer& size, Hidden& hidden) {
  const double scale = problem.scale_at_shrink ? std::fabs(part.scale) : 1;
  const Roundoff stored = roundoff(arithmetic.intermediate);
  for (std::size_t i = 0; i < size.size(); ++i) {
    const double magnitude = std::fabs(hidden.value[i]);
    const double sum = scale == 0 ? 0 : magnitude / scale;
    double error = share(sum_error(problem, arithmetic, sum, size[i]), scale);
    if (problem.scale_at_shrink) {
      error += arithmetic.unit_roundoff * (magnitude + error) + kSmallestFp32;
    }
    if (arithmetic.intermediate != Number::kFp32) {
      error += stored.relative * (magnitude + error) + stored.absolute;
    }
    hidden.error[i] = error;
  }
}

}  // namespace

Inputs read_inputs(const Problem& problem, const Part& part) {
  Inputs inputs;
  inputs.value.resize(at(part.count() * problem.in_features));
  for (std::int64_t row = 0; row < part.count(); ++row) {
    read(problem.number, problem.x, part.tokens[at(row)] * problem.x_stride, problem.in_features,
         inputs.value.data() + row * problem.in_features);
  }
  inputs.magnitude = magnitudes(inputs.value);
  return inputs;
}

Hidden shrink(const Problem& problem, const Arithmetic& arithmetic, Rounding rounding,
              const Part& part, const Inputs& inputs, std::int64_t slice) {
  const std::int64_t k = problem.in_features;
  Buffer a(at(part.rank * k));
  read(problem.number, problem.a[at(slice)], part.adapter * problem.max_rank * k, part.rank * k,
       a.data());
  Hidden hidden;
  hidden.value.resize(at(part.count() * part.rank));
  hidden.error.resize(hidden.value.size());
  Buffer size(hidden.value.size());
  multiply().in_double(inputs.value.data(), a.data(), hidden.value.data(), part.count(), part.rank,
                       k);
  multiply().in_double(inputs.magnitude.data(), magnitudes(a).data(), size.data(), part.count(),
                       part.rank, k);
  if (problem.scale_at_shrink) {
    std::for_each(hidden.value.begin(), hidden.value.end(), [&](double& h) { h *= part.scale; });
  }
  if (rounding == Rounding::kBounded) {
    bound_hidden(problem, arithmetic, part, size, hidden);
    return hidden;
  }
  hidden.largest_partial =
      largest_shrink_partial(problem, part, inputs, a, size, problem.scale_at_shrink);
  for (double& h : hidden.value) {
    h = round_to(arithmetic.intermediate, h);
  }
  return hidden;
}

Hidden given_hidden(const Problem& problem, const Part& part, std::int64_t slice) {
  Hidden hidden;
  hidden.value.resize(at(part.count() * part.rank));
  hidden.error.resize(hidden.value.size());
  for (std::int64_t row = 0; row < part.count(); ++row) {
    const std::int64_t first = (slice * problem.tokens + part.tokens[at(row)]) * problem.max_rank;
    read(problem.intermediate, problem.h, first, part.rank, hidden.value.data() + row * part.rank);
  }
  return hidden;
}

}  // namespace lora_bench::reference
