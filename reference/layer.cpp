#include "reference/layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/multiply.h"
#include "reference/parallel.h"
#include "reference/rounding.h"
#include "reference/rounding_mode.h"

namespace lora_bench::reference {
namespace {

constexpr std::int64_t kColumnsPerPart = 256;

// One term of the base: x W^T over a run of K, with the bias in the first.
struct BaseTerm {
  Buffer value;  // [rows, columns], real
  Buffer error;  // of the code under test, before it is rounded to the number of y
  double largest_partial = 0;
};

double largest(std::span<const double> values) {
  double most = 0;
  for (const double value : values) {
    most = std::max(most, value);
  }
  return most;
}

// What sums of integers come to at most, in units of one; none of other numbers is exact.
double partial_of(const Buffer& values, double largest_sum) {
  const bool whole = std::all_of(values.begin(), values.end(),
                                 [](double value) { return std::rint(value) == value; });
  return whole ? largest_sum : std::numeric_limits<double>::infinity();
}

struct Run {
  std::int64_t first = 0, count = 0;
};

std::int64_t number_bytes(Number number) {
  return number == Number::kFp32 ? 4 : number == Number::kBf16 || number == Number::kFp16 ? 2 : 1;
}

void store(Number number, double value, std::byte* array, std::int64_t index) {
  const std::uint32_t bits = encode(number, value);
  const std::int64_t bytes = number_bytes(number);
  std::memcpy(array + index * bytes, &bits, static_cast<std::size_t>(bytes));
}

BaseTerm base_term(const Layer& layer, const LayerArithmetic& arithmetic,
                   std::span<const std::int64_t> tokens, Run run, bool with_bias) {
  const Problem& lora = layer.lora;
  const auto rows = static_cast<std::int64_t>(tokens.size());
  const std::int64_t columns = lora.y_stride;
  const bool wide = lora.numbers.x == Number::kFp32 || layer.w_number == Number::kFp32;
  const double product = wide ? 1 : 0;
  const double roundings = gamma(static_cast<double>(arithmetic.base_depth) + product + 1,
                                 arithmetic.base_unit_roundoff) +
                           static_cast<double>(run.count) * 0x1p-53;
  Buffer x(at(rows * run.count));
  for (std::int64_t row = 0; row < rows; ++row) {
    read(lora.numbers.x, lora.x, tokens[at(row)] * lora.x_stride + run.first, run.count,
         x.data() + row * run.count);
  }
  const Buffer x_size = magnitudes(x);
  BaseTerm term;
  term.value.resize(at(rows * columns));
  term.error.resize(term.value.size());
  std::vector<double> partials(at((columns + kColumnsPerPart - 1) / kColumnsPerPart));
  const auto part = [&](std::int64_t index) {
    const std::int64_t first = index * kColumnsPerPart;
    const std::int64_t width = std::min(kColumnsPerPart, columns - first);
    Buffer w(at(width * run.count));
    Buffer bias(at(width));
    for (std::int64_t column = 0; column < width; ++column) {
      read(layer.w_number, layer.w, (first + column) * lora.in_features + run.first, run.count,
           w.data() + column * run.count);
    }
    if (with_bias && layer.bias != nullptr) {
      read(layer.bias_number, layer.bias, first, width, bias.data());
    }
    Buffer value(at(rows * width));
    Buffer size(value.size());
    multiply().in_double(x.data(), w.data(), value.data(), rows, width, run.count);
    multiply().in_double(x_size.data(), magnitudes(w).data(), size.data(), rows, width, run.count);
    if (arithmetic.exact) {
      const double largest_bias = largest(magnitudes(bias));
      partials[at(index)] =
          std::max(partial_of(w, largest(size) + largest_bias), partial_of(bias, largest_bias));
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < width; ++column) {
        const std::size_t from = at(row * width + column);
        const std::size_t to = at(row * columns + first + column);
        term.value[to] = value[from] + bias[at(column)];
        term.error[to] = share(roundings, size[from] + std::fabs(bias[at(column)])) +
                         static_cast<double>(run.count) * kSmallestFp32;
      }
    }
  };
  parallel(static_cast<std::int64_t>(partials.size()), available_threads(), part);
  term.largest_partial = std::max(largest(partials), arithmetic.exact ? partial_of(x, 0) : 0);
  return term;
}

// The adapters' part over a run of K: A cut to it.
struct CutLora {
  std::vector<std::vector<std::byte>> a;
  Problem problem;
};

CutLora cut_lora(const Problem& whole, Run run) {
  CutLora part{{}, whole};
  if (run.count == whole.in_features) {
    return part;
  }
  const std::int64_t bytes = number_bytes(whole.numbers.a);
  const std::int64_t lanes = whole.slots * whole.max_rank;
  for (std::size_t slice = 0; slice < whole.a.size(); ++slice) {
    std::vector<std::byte> a(at(lanes * run.count * bytes));
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      std::memcpy(a.data() + lane * run.count * bytes,
                  static_cast<const std::byte*>(whole.a[slice]) +
                      (lane * whole.in_features + run.first) * bytes,
                  at(run.count * bytes));
    }
    part.a.push_back(std::move(a));
    part.problem.a[slice] = part.a.back().data();
  }
  if (whole.x != nullptr) {  // null of no rows
    part.problem.x =
        static_cast<const std::byte*>(whole.x) + run.first * number_bytes(whole.numbers.x);
  }
  part.problem.first_of_a = run.first;
  part.problem.columns_of_scaled_a = whole.in_features;
  part.problem.in_features = run.count;
  return part;
}

class Evaluation {
 public:
  Evaluation(const Layer& layer, const LayerArithmetic& arithmetic,
             std::span<const std::int64_t> tokens)
      : layer_(layer),
        arithmetic_(arithmetic),
        tokens_(tokens),
        columns_(layer.lora.y_stride),
        output_(roundoff(layer.lora.numbers.y)),
        y0_(at(layer.lora.tokens * columns_ * number_bytes(layer.lora.numbers.y))) {
    result_.results = arithmetic.terms_apart ? arithmetic.terms : 1;
    result_.base.resize(at(result_.results) * tokens.size() * at(columns_));
    result_.rows.columns = columns_;
    result_.rows.tokens.assign(tokens.begin(), tokens.end());
    result_.rows.expected.resize(result_.base.size());
    result_.rows.bound.resize(result_.base.size());
    result_.rows.owned.assign(result_.base.size(), 1);
    sizes_.resize(result_.base.size());
  }

  LayerRows run() {
    for (std::int64_t term = 0; term < arithmetic_.terms; ++term) {
      const std::int64_t k = layer_.lora.in_features / arithmetic_.terms;
      const Run run{term * k, k};
      const BaseTerm base = base_term(layer_, arithmetic_, tokens_, run, term == 0);
      first_ = result_.place(term, 0, 0);
      add_term(base, deltas_of(base, run, term));
    }
    const auto terms = static_cast<double>(arithmetic_.terms);
    const bool narrow = arithmetic_.rounds_each_sum;
    const double sums = narrow ? gamma(terms - 1, output_.relative) : gamma(terms, kUnitFp32);
    const bool bounded = arithmetic_.terms > 1 && !arithmetic_.exact && !arithmetic_.terms_apart;
    for (std::size_t i = 0; i < sizes_.size() && bounded; ++i) {
      result_.rows.bound[i] += share(sums, sizes_[i]) + (narrow ? terms * output_.absolute : 0);
    }
    if (layer_.soft_cap > 0 || layer_.output_scale != 1) {
      finish();
    }
    return std::move(result_);
  }

 private:
  // What the adapters add to a base that is rounded to the number of y first, or by itself.
  Rows deltas_of(const BaseTerm& base, Run run, std::int64_t term) {
    const Number number = layer_.lora.numbers.y;
    for (std::size_t row = 0; row < tokens_.size(); ++row) {
      for (std::int64_t column = 0; column < columns_; ++column) {
        store(number, base.value[row * at(columns_) + at(column)], y0_.data(),
              tokens_[row] * columns_ + column);
      }
    }
    const bool once = arithmetic_.delta_at_once;
    CutLora lora = cut_lora(layer_.lora, once ? Run{0, layer_.lora.in_features} : run);
    if (!once && term > 0) {
      lora.problem.bias.clear();  // the first term has it
    }
    lora.problem.y = y0_.data();
    lora.problem.add_inputs = arithmetic_.base_rounded;
    Rows deltas = evaluate(lora.problem, arithmetic_.lora, tokens_,
                           arithmetic_.exact ? Rounding::kModelled : Rounding::kBounded);
    result_.largest_partial = std::max(result_.largest_partial, deltas.largest_partial);
    for (std::size_t i = 0; i < deltas.owned.size(); ++i) {
      const auto column = static_cast<std::int64_t>(i) % columns_;
      if (once && column / (columns_ / arithmetic_.terms) != term) {
        deltas.owned[i] = 0;
      }
      if (arithmetic_.terms_apart) {
        result_.rows.owned[first_ + i] = deltas.owned[i];
      }
    }
    return deltas;
  }

  // y as the code under test has it: rounded after the base, after the adapters, after the sum of
  // the terms, which is made in fp32 in their order.
  void add_exact_term(const BaseTerm& base, const Rows& deltas) {
    const Number number = layer_.lora.numbers.y;
    const auto add = [&](double& to, double value) {
      const double rounded = round_to(number, value);
      to = arithmetic_.terms == 1 ? rounded : static_cast<double>(static_cast<float>(to + rounded));
    };
    result_.largest_partial = std::max(result_.largest_partial, base.largest_partial);
    for (std::size_t i = 0; i < base.value.size(); ++i) {
      add(result_.base[first_ + i], base.value[i]);
      const double unrounded = arithmetic_.base_rounded ? 0 : base.value[i];
      add(result_.rows.expected[first_ + i],
          deltas.owned[i] != 0 ? unrounded + deltas.expected[i] : base.value[i]);
    }
  }

  // The slope of cap * tanh(y / cap) is 1 at most, so errors grow with the scale alone; fp32 adds
  // those of a division, a tanh and two products.
  void finish() {
    const double steps = gamma(8, kUnitFp32);
    const double scale = std::fabs(layer_.output_scale);
    const Number number = layer_.lora.numbers.y;
    const auto capped = [&](double value) {
      const double cap = layer_.soft_cap;
      return layer_.output_scale * (cap > 0 ? cap * std::tanh(value / cap) : value);
    };
    for (std::size_t i = 0; i < result_.base.size(); ++i) {
      double& value = result_.rows.expected[i];
      double& bound = result_.rows.bound[i];
      if (arithmetic_.exact) {
        value = round_to(number, value);
        result_.base[i] = round_to(number, result_.base[i]);
      } else {
        bound = round_once(value, bound);
        bound = scale * (bound + steps * (std::fabs(value) + bound));
      }
      value = capped(value);
      result_.base[i] = capped(result_.base[i]);
    }
  }

  void add_term(const BaseTerm& base, const Rows& deltas) {
    if (arithmetic_.exact) {
      add_exact_term(base, deltas);
      return;
    }
    for (std::size_t i = 0; i < base.value.size(); ++i) {
      const bool owned = deltas.owned[i] != 0;
      const double rounded = round_to(layer_.lora.numbers.y, base.value[i]);
      double value = base.value[i];
      double error = base.error[i];
      if (owned && !arithmetic_.base_rounded) {
        error += deltas.bound[i];
        value += deltas.expected[i];
        error += kUnitFp32 * (std::fabs(value) + error);
      } else if (owned) {
        // The expand's own bound was taken at the rounded base of the oracle, so a little more.
        error = round_once(value, error) * (1 + 0x1p-10) + deltas.bound[i];
        value += deltas.expected[i] - rounded;
      }
      if (arithmetic_.terms > 1 && !arithmetic_.terms_apart) {
        error = round_once(value, error);
      }
      result_.base[first_ + i] += base.value[i];
      result_.rows.expected[first_ + i] += value;
      result_.rows.bound[first_ + i] += error;
      sizes_[first_ + i] += std::fabs(value) + error;
    }
  }

  // The error of a number that is stored as y is.
  [[nodiscard]] double round_once(double value, double error) const {
    return error + output_.relative * (std::fabs(value) + error) + output_.absolute;
  }

  const Layer& layer_;
  const LayerArithmetic& arithmetic_;
  std::span<const std::int64_t> tokens_;
  std::int64_t columns_;
  Roundoff output_;
  std::vector<std::byte> y0_;
  LayerRows result_;
  std::size_t first_ = 0;  // of the result that the term in hand belongs to
  Buffer sizes_;           // sums of the terms' magnitudes
};

}  // namespace

LayerRows evaluate_layer(const Layer& layer, const LayerArithmetic& arithmetic,
                         std::span<const std::int64_t> tokens) {
  const DefaultRounding nearest;
  return Evaluation(layer, arithmetic, tokens).run();
}

}  // namespace lora_bench::reference
