#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "reference/hidden.h"
#include "reference/multiply.h"
#include "reference/parallel.h"
#include "reference/rounding_mode.h"

namespace lora_bench::reference {
namespace {

constexpr std::int64_t kRowsPerPart = 64;
constexpr std::int64_t kColumnsPerTile = 512;

// Columns first ... first + width - 1 of one slice.
struct Tile {
  std::int64_t slice = 0, first = 0, width = 0;
  std::int64_t column_in_y = 0;
  Buffer b;     // [width, rank]
  Buffer bias;  // [width], 0 without bias
};

Tile read_tile(const Problem& problem, const Part& part, std::int64_t slice, std::int64_t first,
               std::int64_t column_in_y) {
  const std::int64_t slice_width = problem.widths[at(slice)];
  Tile tile{slice, first, std::min(kColumnsPerTile, slice_width - first), column_in_y, {}, {}};
  tile.b.resize(at(tile.width * part.rank));
  for (std::int64_t column = 0; column < tile.width; ++column) {
    const std::int64_t row_of_b = part.adapter * slice_width + first + column;
    read(problem.numbers.b, problem.b[at(slice)], row_of_b * problem.max_rank, part.rank,
         tile.b.data() + column * part.rank);
  }
  if (!problem.b_scale.empty() && tile.width > 0) {
    multiply_by_scales(problem,
                       {problem.b_scale[at(slice)], part.adapter, slice_width, problem.max_rank,
                        first, tile.width, part.rank},
                       tile.b);
  }
  tile.bias.resize(at(tile.width));
  if (!problem.bias.empty() && problem.bias[at(slice)] != nullptr) {
    read(problem.numbers.bias, problem.bias[at(slice)], part.adapter * slice_width + first,
         tile.width, tile.bias.data());
  }
  return tile;
}

// What the second product needs of h: its values with the scale, and beside them the weights whose
// product with |B| is the bound (kBounded) or the sum of |terms| (kModelled).
struct ScaledHidden {
  Buffer value, weight;  // [rows, rank]
  Buffer lowest_bits;    // [rows], kModelled
};

// Roundings between h and y: the declared depth, each product, the scales of a number of B and of
// one of h, that of the adapter if it is applied here, and the factor of the row.
double expand_gamma(const Problem& problem, const Arithmetic& arithmetic) {
  const bool scaled_h = problem.h_scale.scales != nullptr || quantises_h(problem, arithmetic);
  const int others = 1 + (problem.b_scale.empty() ? 0 : 1) + (scaled_h ? 1 : 0) +
                     (problem.scale_at_shrink ? 0 : 1) + (problem.factor.empty() ? 0 : 1);
  return gamma(static_cast<double>(arithmetic.expand_depth + others), arithmetic.unit_roundoff);
}

// An fp16 h may be infinite where its value rounds to no finite number.
bool overflows(const Problem& problem, const Arithmetic& arithmetic, double largest) {
  constexpr double kNoFiniteFp16 = 65520;
  const bool stored = problem.shrink && arithmetic.intermediate == Number::kFp16;
  const bool cast = arithmetic.casts_h && number_of_cast(problem) == Number::kFp16;
  return (stored || cast) && largest >= kNoFiniteFp16;
}

ScaledHidden scale_hidden(const Problem& problem, const Arithmetic& arithmetic, Rounding rounding,
                          const Part& part, const Hidden& hidden) {
  const double of_adapter = problem.scale_at_shrink ? 1 : part.scale;
  const auto scale_of = [&](std::size_t row) {
    return of_adapter *
           (problem.factor.empty() ? 1 : static_cast<double>(problem.factor[at(part.tokens[row])]));
  };
  const double roundings =
      expand_gamma(problem, arithmetic) + 0x1p-53 * static_cast<double>(part.rank);
  const double least = least_magnitude(problem.numbers.b, arithmetic);
  ScaledHidden scaled{hidden.value, magnitudes(hidden.value), {}};
  for (std::size_t i = 0; i < scaled.value.size(); ++i) {
    const double scale = scale_of(i / at(part.rank));
    scaled.value[i] *= scale;
    if (rounding == Rounding::kBounded) {
      const double error = hidden.error[i];
      const double largest = std::max(scaled.weight[i] + error, scaled.weight[i] == 0 ? 0 : least);
      scaled.weight[i] = overflows(problem, arithmetic, largest)
                             ? std::numeric_limits<double>::infinity()
                             : error + share(roundings, largest);
    }
    scaled.weight[i] = share(scaled.weight[i], std::fabs(scale));
  }
  // None of a slice of width 0.
  if (rounding == Rounding::kModelled && (part.rank == 0 || !hidden.value.empty())) {
    for (std::int64_t row = 0; row < part.count(); ++row) {
      const double scale = scale_of(at(row));
      const double scale_bit = scale == 0 ? 1 : lowest_bit(scale);
      const double* lanes = hidden.value.data() + row * part.rank;
      scaled.lowest_bits.push_back(scale_bit * lowest_bit(lanes, part.rank));
    }
  }
  return scaled;
}

struct Products {
  Buffer delta, weight;  // [rows, width]
};

Products multiply_tile(const Part& part, const ScaledHidden& hidden, const Tile& tile,
                       double least_of_b) {
  Products products;
  products.delta.resize(at(part.count() * tile.width));
  products.weight.resize(products.delta.size());
  multiply().in_double(hidden.value.data(), tile.b.data(), products.delta.data(), part.count(),
                       tile.width, part.rank);
  multiply().in_double(hidden.weight.data(), magnitudes(tile.b, least_of_b).data(),
                       products.weight.data(), part.count(), tile.width, part.rank);
  return products;
}

// y of its terms as the code under test rounds them on the way, but for the last rounding.
double rounded_sum(const Problem& problem, const Arithmetic& arithmetic, double before,
                   double delta, double bias) {
  const auto stored = [&](double value) { return round_to(problem.numbers.y, value); };
  const bool apart = arithmetic.bias_added != BiasAdded::kWithDelta;
  delta += apart ? 0 : bias;
  delta = arithmetic.rounds_delta ? stored(delta) : delta;
  switch (arithmetic.bias_added) {
    case BiasAdded::kWithDelta:
      return before + delta;
    case BiasAdded::kBefore:
      return stored(before + bias) + delta;
    case BiasAdded::kAfter:
      return stored(before + delta) + bias;
  }
  return before + delta;
}

// What a rounding of y that stands between the two additions can lose; nothing without a bias.
double error_between(const Problem& problem, const Arithmetic& arithmetic, double before,
                     double delta, double bias) {
  if (arithmetic.bias_added == BiasAdded::kWithDelta || bias == 0) {
    return 0;
  }
  const Roundoff output = roundoff(problem.numbers.y);
  const double first = arithmetic.bias_added == BiasAdded::kBefore ? bias : delta;
  return output.relative * std::fabs(before + first) + output.absolute;
}

void keep_bounded(const Problem& problem, const Arithmetic& arithmetic, const Part& part,
                  const Products& products, const Tile& tile, Rows& result) {
  const double roundings = expand_gamma(problem, arithmetic);
  const double underflow = static_cast<double>(part.rank + 2) * kSmallestFp32;
  const Roundoff output = roundoff(problem.numbers.y);
  for (std::int64_t row = 0; row < part.count(); ++row) {
    const std::int64_t first = part.rows[at(row)] * result.columns + tile.column_in_y;
    for (std::int64_t column = 0; column < tile.width; ++column) {
      double& expected = result.expected[at(first + column)];
      const double before = problem.add_inputs ? expected : 0;
      const double bias = tile.bias[at(column)];
      const double delta = products.delta[at(row * tile.width + column)] + bias;
      double error = products.weight[at(row * tile.width + column)] + underflow +
                     share(roundings, std::fabs(before) + std::fabs(bias));
      if (arithmetic.rounds_delta) {
        error += output.relative * (std::fabs(delta) + error) + output.absolute;
      }
      if (problem.add_inputs && arithmetic.rounds_once) {
        error += output.relative * std::fabs(before) + output.absolute;
      }
      const double between = error_between(problem, arithmetic, before, delta - bias, bias);
      error += between + (between > 0 ? output.relative * error : 0);
      expected = before + delta;
      // A weight without end times a B of 0, of which the product knows nothing better.
      result.bound[at(first + column)] =
          std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
      result.owned[at(first + column)] = 1;
    }
  }
}

// Returns the largest partial.
double keep_modelled(const Problem& problem, const Arithmetic& arithmetic, const Part& part,
                     const ScaledHidden& hidden, const Products& products, const Tile& tile,
                     Rows& result) {
  double largest = 0;
  Buffer b_bits;
  for (std::int64_t column = 0; column < tile.width; ++column) {
    b_bits.push_back(lowest_bit(tile.b.data() + column * part.rank, part.rank));
  }
  for (std::int64_t row = 0; row < part.count(); ++row) {
    const std::int64_t first = part.rows[at(row)] * result.columns + tile.column_in_y;
    for (std::int64_t column = 0; column < tile.width; ++column) {
      double& expected = result.expected[at(first + column)];
      const double before = problem.add_inputs ? expected : 0;
      const double bias = tile.bias[at(column)];
      const double delta = products.delta[at(row * tile.width + column)];
      const double unit = std::min(
          {hidden.lowest_bits[at(row)] * b_bits[at(column)], lowest_bit(before), lowest_bit(bias)});
      const double size =
          products.weight[at(row * tile.width + column)] + std::fabs(before) + std::fabs(bias);
      largest = std::max(largest, size / unit);
      expected = rounded_sum(problem, arithmetic, before, delta, bias);
      result.owned[at(first + column)] = 1;
    }
  }
  return largest;
}

// Where a tile begins.
struct TilePlace {
  std::int64_t slice = 0, first = 0, column_in_y = 0;
};

std::vector<TilePlace> tiles_of(const Problem& problem) {
  std::vector<TilePlace> places;
  std::int64_t column = problem.offset_start;
  for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
    for (std::int64_t first = 0; first < problem.widths[slice]; first += kColumnsPerTile) {
      places.push_back({static_cast<std::int64_t>(slice), first, column + first});
    }
    column += problem.widths[slice];
  }
  return places;
}

double expand(const Problem& problem, const Arithmetic& arithmetic, Rounding rounding,
              const Part& part, const std::vector<Hidden>& hidden, std::int64_t threads,
              Rows& result) {
  std::vector<ScaledHidden> scaled;
  for (const Hidden& of_slice : hidden) {
    scaled.push_back(scale_hidden(problem, arithmetic, rounding, part, of_slice));
  }
  const std::vector<TilePlace> places = tiles_of(problem);
  std::vector<double> largest(places.size());
  parallel(static_cast<std::int64_t>(places.size()), threads, [&](std::int64_t index) {
    const TilePlace& place = places[at(index)];
    const ScaledHidden& of_slice = scaled[at(place.slice)];
    const Tile tile = read_tile(problem, part, place.slice, place.first, place.column_in_y);
    const Products products = multiply_tile(
        part, of_slice, tile,
        rounding == Rounding::kBounded ? least_magnitude(problem.numbers.b, arithmetic) : 0);
    if (rounding == Rounding::kBounded) {
      keep_bounded(problem, arithmetic, part, products, tile, result);
    } else {
      largest[at(index)] =
          keep_modelled(problem, arithmetic, part, of_slice, products, tile, result);
    }
  });
  return places.empty() ? 0 : *std::max_element(largest.begin(), largest.end());
}

void keep_hidden(const Problem& problem, const Part& part, const Hidden& hidden, std::int64_t slice,
                 Rows& result) {
  for (std::int64_t row = 0; row < part.count(); ++row) {
    for (std::int64_t lane = 0; lane < part.rank; ++lane) {
      const std::size_t to =
          at(part.rows[at(row)] * result.columns + slice * problem.max_rank + lane);
      result.expected[to] = hidden.value[at(row * part.rank + lane)];
      result.bound[to] = hidden.error[at(row * part.rank + lane)];
      result.owned[to] = 1;
    }
  }
}

double evaluate_part(const Problem& problem, const Arithmetic& arithmetic, Rounding rounding,
                     const Part& part, std::int64_t threads, Rows& result) {
  Arithmetic of_shrink = arithmetic;
  if (has_eight_bits(arithmetic.intermediate)) {
    of_shrink.intermediate = Number::kFp32;
  }
  std::vector<Hidden> hidden = problem.shrink ? shrink(problem, of_shrink, rounding, part, threads)
                                              : given_hidden(problem, part);
  if (problem.adds_to_h) {
    const std::vector<Hidden> given = given_hidden(problem, part);
    for (std::size_t slice = 0; slice < hidden.size(); ++slice) {
      add_given(arithmetic, given[slice], hidden[slice]);
    }
  }
  // A scale that is made need not be a power of two, so no sum of what it scales is exact.
  const Rounding of_expand = quantises_h(problem, arithmetic) ? Rounding::kBounded : rounding;
  double largest = 0;
  for (std::size_t slice = 0; slice < hidden.size(); ++slice) {
    if (quantises_h(problem, arithmetic)) {
      quantise(problem.quantiser_of_h, part, hidden[slice]);
    }
    cast_to_b(problem, arithmetic, of_expand, hidden[slice]);
    largest = std::max(largest, hidden[slice].largest_partial);
    if (!problem.expand && problem.widths[slice] > 0) {
      keep_hidden(problem, part, hidden[slice], static_cast<std::int64_t>(slice), result);
    }
  }
  return problem.expand ? std::max(largest, expand(problem, arithmetic, of_expand, part, hidden,
                                                   threads, result))
                        : largest;
}

// On one thread, roughly: weights that are read, and what they are multiplied with.
double seconds_of(const Problem& problem, const std::vector<Part>& parts) {
  constexpr double kRead = 3e-9;
  constexpr double kMultiplied = 0.25e-9;
  double of_rank = 0;
  for (const std::int64_t width : problem.widths) {
    of_rank += static_cast<double>((problem.shrink && width > 0 ? problem.in_features : 0) +
                                   (problem.expand ? width : 0));
  }
  double seconds = 0;
  for (const Part& part : parts) {
    seconds += static_cast<double>(part.rank) * of_rank *
               (kRead + kMultiplied * static_cast<double>(part.count()));
  }
  return seconds;
}

bool acts(const Problem& problem, std::int64_t adapter) {
  return adapter >= 0 && (problem.rank[at(adapter)] > 0 || problem.rank0_bias);
}

std::vector<Part> split_by_adapter(const Problem& problem, std::span<const std::int64_t> tokens) {
  std::vector<Part> parts;
  std::map<std::int64_t, std::size_t> open;  // adapter -> its part that still has room
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const std::int64_t adapter = problem.adapter_of_token[at(tokens[row])];
    if (!acts(problem, adapter)) {
      continue;
    }
    const auto found = open.find(adapter);
    if (found == open.end() || parts[found->second].count() == kRowsPerPart) {
      open[adapter] = parts.size();
      parts.push_back({adapter,
                       problem.rank[at(adapter)],
                       static_cast<double>(problem.scale[at(adapter)]),
                       {},
                       {}});
    }
    parts[open[adapter]].rows.push_back(static_cast<std::int64_t>(row));
    parts[open[adapter]].tokens.push_back(tokens[row]);
  }
  return parts;
}

// Of large arrays in large pages, as far as the kernel grants the wish: most of the time of small
// ones is the kernel's.
template <typename Element>
void fill_with_zeros(std::vector<Element>& array, std::size_t elements) {
  constexpr std::uintptr_t kLargePage = std::uintptr_t{2} << 20;
  array.reserve(elements);
  const auto start = reinterpret_cast<std::uintptr_t>(array.data());
  const std::uintptr_t first = (start + kLargePage - 1) / kLargePage * kLargePage;
  const std::uintptr_t past = (start + elements * sizeof(Element)) / kLargePage * kLargePage;
  if (first < past) {
    static_cast<void>(::madvise(reinterpret_cast<char*>(array.data()) + (first - start),
                                past - first, MADV_HUGEPAGE));
  }
  array.resize(elements);
}

Rows rows_as_before(const Problem& problem, std::span<const std::int64_t> tokens,
                    std::int64_t threads) {
  constexpr std::size_t kManyElements = 1 << 20;
  Rows rows;
  rows.columns = problem.expand
                     ? problem.y_stride
                     : static_cast<std::int64_t>(problem.widths.size()) * problem.max_rank;
  rows.tokens.assign(tokens.begin(), tokens.end());
  const std::size_t elements = tokens.size() * at(rows.columns);
  fill_with_zeros(rows.expected, elements);
  fill_with_zeros(rows.bound, elements);
  fill_with_zeros(rows.owned, elements);
  if (problem.expand) {
    parallel(std::ssize(tokens), elements < kManyElements ? 1 : threads, [&](std::int64_t row) {
      read(problem.numbers.y, problem.y, tokens[at(row)] * problem.y_stride, problem.y_stride,
           rows.expected.data() + row * rows.columns);
    });
  }
  return rows;
}

void zero_idle_rows(const Problem& problem, Rows& rows) {
  std::int64_t columns = 0;
  for (const std::int64_t width : problem.widths) {
    columns += width;
  }
  for (std::size_t row = 0; row < rows.tokens.size(); ++row) {
    const std::int64_t adapter = problem.adapter_of_token[at(rows.tokens[row])];
    if (acts(problem, adapter)) {
      continue;
    }
    const std::size_t first = row * at(rows.columns) + at(problem.offset_start);
    for (std::size_t place = first; place < first + at(columns); ++place) {
      rows.expected[place] = 0;
      rows.owned[place] = 1;
    }
  }
}

}  // namespace

Rows evaluate(const Problem& problem, const Arithmetic& arithmetic,
              std::span<const std::int64_t> tokens, Rounding rounding, std::int64_t threads) {
  const DefaultRounding nearest;
  const std::int64_t most = threads > 0 ? threads : available_threads();
  Rows result = rows_as_before(problem, tokens, most);
  if (problem.zeroes_idle_rows) {
    zero_idle_rows(problem, result);
  }
  const std::vector<Part> parts = split_by_adapter(problem, tokens);
  std::vector<double> largest(parts.size());
  // Below this, threads cost more than they save.
  constexpr double kWorthThreads = 1e-3;
  const std::int64_t used = seconds_of(problem, parts) < kWorthThreads ? 1 : most;
  const auto count = std::max<std::int64_t>(std::ssize(parts), 1);
  const std::int64_t of_part = (used + count - 1) / count;  // of few parts each takes some
  parallel(std::ssize(parts), used, [&](std::int64_t part) {
    largest[at(part)] =
        evaluate_part(problem, arithmetic, rounding, parts[at(part)], of_part, result);
  });
  for (const double value : largest) {
    result.largest_partial = std::max(result.largest_partial, value);
  }
  return result;
}

double exact_limit(const Arithmetic& arithmetic) {
  return 1 / roundoff(arithmetic.partial).relative;
}

}  // namespace lora_bench::reference
