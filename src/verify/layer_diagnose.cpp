#include "verify/layer_proof.h"

#include <algorithm>
#include <cmath>

#include "core/dtype.h"
#include "verify/oracle.h"

namespace lora_bench {
namespace {

// Products of the base for one prediction; there are as many predictions as faults.
constexpr std::int64_t kMostLayerProducts = std::int64_t{1} << 24;

std::int64_t products(const LayerProblem& problem, std::size_t rows) {
  const bool repeated = description_of(problem.layer.kind).base == Cut::kNone;
  return static_cast<std::int64_t>(rows) * problem.columns() * problem.layer.in_features *
         (repeated ? problem.layer.tp : 1);
}

struct Fit {
  bool with_got = true;
  bool with_expected = true;  // the fault changes nothing here
};

// A prediction is as good as the bound of the right result says, and a fault may enlarge that.
Fit fit_of(const LayerStory& story, const reference::LayerRows& oracle, const ShardOutputs& got,
           const ShardRows& predicted) {
  Fit fit;
  const reference::Number number = number_of(story.problem.lora.dtype[Role::kY]);
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    const std::vector<std::int64_t> columns =
        columns_of_output(story.problem.layer, static_cast<std::int64_t>(rank));
    for (std::size_t row = 0; row < oracle.rows.tokens.size(); ++row) {
      for (std::size_t column = 0; column < columns.size(); ++column) {
        const std::size_t of_whole = row * static_cast<std::size_t>(oracle.rows.columns) +
                                     static_cast<std::size_t>(columns[column]);
        const double value =
            load(got[rank].dtype, got[rank].data.data(),
                 oracle.rows.tokens[row] * got[rank].columns + static_cast<std::int64_t>(column));
        const double guess = predicted[rank][row * columns.size() + column];
        const double room = 2 * oracle.rows.bound[of_whole] + 2 * reference::spacing(number, guess);
        const auto near = [room](double one, double other) {
          return std::fabs(one - other) <= room || (std::isnan(one) && std::isnan(other));
        };
        fit.with_got = fit.with_got && near(value, guess);
        fit.with_expected = fit.with_expected && near(oracle.rows.expected[of_whole], guess);
      }
    }
  }
  return fit;
}

}  // namespace

Hypothesis diagnose_layer(const LayerStory& story, const reference::LayerRows& oracle,
                          const ShardOutputs& got) {
  if (products(story.problem, oracle.rows.tokens.size()) > kMostLayerProducts) {
    return {};
  }
  for (const LayerFaultDoc& doc : layer_faults()) {
    const Fit fit = fit_of(story, oracle, got, model_layer(story, doc.fault, oracle.rows.tokens));
    if (fit.with_got && !fit.with_expected) {
      return {std::string(doc.key), std::string(doc.meaning)};
    }
  }
  return {};
}

}  // namespace lora_bench
