#include "reference/hidden.h"

#include <algorithm>
#include <cmath>

#include "reference/multiply.h"
#include "reference/parallel.h"

namespace lora_bench::reference {
namespace {

// Lanes that one thread multiplies in one go have so many elements of A, and at least eight lanes.
constexpr std::int64_t kElementsPerBlock = 1 << 18;

// x of a part, read once for all lanes.
struct Inputs {
  Buffer value, magnitude;  // [rows, K]
  Buffer lowest_bits;       // [rows], kModelled
};

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
    read(problem.numbers.x, problem.x, (first_row + part.tokens[at(row)]) * problem.x_stride, k, x);
    std::transform(x, x + k, inputs.magnitude.data() + row * k,
                   [least](double v) { return v == 0 ? 0 : std::max(std::fabs(v), least); });
    inputs.lowest_bits[at(row)] = rounding == Rounding::kModelled ? lowest_bit(x, k) : 0;
  });
  return inputs;
}

// Some lanes of A, as read.
struct Lanes {
  std::int64_t slice = 0, first = 0, count = 0;
  Buffer a;            // [count, K]
  Buffer value, size;  // [rows, count]: sums of the products with x, and of their magnitudes
};

void multiply_lanes(const Problem& problem, const Part& part, const Inputs& inputs, double least,
                    Lanes& lanes) {
  const std::int64_t k = problem.in_features;
  lanes.a.resize(at(lanes.count * k));
  read(problem.numbers.a, problem.a[at(lanes.slice)],
       (part.adapter * problem.max_rank + lanes.first) * k, lanes.count * k, lanes.a.data());
  lanes.value.resize(at(part.count() * lanes.count));
  lanes.size.resize(lanes.value.size());
  multiply().in_double(inputs.value.data(), lanes.a.data(), lanes.value.data(), part.count(),
                       lanes.count, k);
  multiply().in_double(inputs.magnitude.data(), magnitudes(lanes.a, least).data(),
                       lanes.size.data(), part.count(), lanes.count, k);
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
      largest = std::max(largest, lanes.size[at(row * lanes.count + lane)] / unit * scale_in_units);
    }
  }
  return largest;
}

// Bound of a sum of K products, perhaps of partials in a narrow format; `size` is the sum of their
// magnitudes.
double sum_error(const Problem& problem, const Arithmetic& arithmetic, double sum, double size) {
  // Products of narrow numbers are exact in fp32; those of fp32 numbers are rounded once.
  const bool wide = problem.numbers.x == Number::kFp32 || problem.numbers.a == Number::kFp32;
  const int product = wide ? 1 : 0;
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
  std::vector<Buffer> sizes(hidden.size());
  std::vector<Lanes> blocks;
  const std::int64_t most =
      std::max<std::int64_t>(8, kElementsPerBlock / std::max<std::int64_t>(1, problem.in_features));
  for (std::size_t slice = 0; slice < hidden.size(); ++slice) {
    if (problem.widths[slice] == 0) {
      continue;
    }
    hidden[slice].value.resize(at(part.count() * part.rank));
    hidden[slice].error.resize(hidden[slice].value.size());
    sizes[slice].resize(hidden[slice].value.size());
    for (std::int64_t first = 0; first < part.rank; first += most) {
      blocks.push_back(
          {static_cast<std::int64_t>(slice), first, std::min(most, part.rank - first), {}, {}, {}});
    }
  }
  std::vector<double> largest(blocks.size());
  parallel(static_cast<std::int64_t>(blocks.size()), threads, [&](std::int64_t block) {
    Lanes lanes = blocks[at(block)];
    const Inputs& of_slice = inputs[problem.own_inputs ? at(lanes.slice) : 0];
    multiply_lanes(problem, part, of_slice, least, lanes);
    for (std::int64_t row = 0; row < part.count(); ++row) {
      const std::int64_t from = row * lanes.count;
      const std::int64_t to = row * part.rank + lanes.first;
      std::copy_n(lanes.value.begin() + from, lanes.count,
                  hidden[at(lanes.slice)].value.begin() + to);
      std::copy_n(lanes.size.begin() + from, lanes.count, sizes[at(lanes.slice)].begin() + to);
    }
    if (rounding == Rounding::kModelled) {
      largest[at(block)] = largest_shrink_partial(problem, part, of_slice, lanes);
    }
  });
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    double& of_slice = hidden[at(blocks[block].slice)].largest_partial;
    of_slice = std::max(of_slice, largest[block]);
  }
  for (std::size_t slice = 0; slice < hidden.size(); ++slice) {
    Buffer& values = hidden[slice].value;
    if (problem.scale_at_shrink) {
      std::for_each(values.begin(), values.end(), [&](double& h) { h *= part.scale; });
    }
    if (rounding == Rounding::kBounded) {
      bound_hidden(problem, arithmetic, part, sizes[slice], hidden[slice]);
    } else {
      std::for_each(values.begin(), values.end(),
                    [&](double& h) { h = round_to(arithmetic.intermediate, h); });
    }
  }
  return hidden;
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
      read(problem.numbers.h, problem.h, row_of_h * problem.max_rank, part.rank,
           hidden[slice].value.data() + row * part.rank);
    }
  }
  return hidden;
}

}  // namespace lora_bench::reference
