#include "verify/layer_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/fused_layer.h"
#include "verify/oracle.h"

namespace lora_bench {
namespace {

reference::Layer oracle_layer(const LayerProblem& problem, const LayerTensors& tensors) {
  reference::Problem lora = oracle_problem(problem.lora, tensors.lora);
  for (std::size_t block = 0; block < lora.a.size(); ++block) {
    lora.a[block] = lora.a[problem.first_of_pair(block)];
    if (problem.lora.has_scaled_weights()) {
      lora.a_scale[block] = lora.a_scale[problem.first_of_pair(block)];
    }
  }
  return {std::move(lora),
          tensors.w.data.data(),
          problem.adds_bias() ? tensors.bias.data.data() : nullptr,
          number_of(tensors.w.dtype),
          number_of(tensors.bias.dtype),
          static_cast<double>(problem.soft_cap),
          static_cast<double>(problem.logit_scale)};
}

double number_at(const Matrix& matrix, std::int64_t row, std::int64_t column) {
  std::uint32_t bits = 0;
  const std::int64_t bytes = size_bytes(matrix.dtype);
  std::memcpy(&bits, matrix.data.data() + (row * matrix.columns + column) * bytes,
              static_cast<std::size_t>(bytes));
  return reference::decode(number_of(matrix.dtype), bits);
}

// What the comparison of all shards comes to.
struct LayerComparison {
  std::int64_t compared = 0, wrong = 0;
  std::int64_t of_adapters = 0;     // elements to which an adapter adds
  std::int64_t proves_nothing = 0;  // of these, right without it too
  double bound_share = 0;
  std::vector<Mismatch> first;
  std::string told;  // the first in words
};

class ShardComparer {
 public:
  ShardComparer(const LayerProblem& problem, const reference::LayerRows& oracle)
      : problem_(problem), oracle_(oracle), number_(number_of(problem.lora.dtype[Role::kY])) {}

  void compare(std::int64_t rank, const Matrix& got) {
    const std::vector<std::int64_t> columns = columns_of_output(problem_.layer, rank);
    const std::vector<std::size_t> blocks = blocks_of(columns);
    for (std::size_t row = 0; row < oracle_.rows.tokens.size(); ++row) {
      const std::int64_t token = oracle_.rows.tokens[row];
      for (std::size_t column = 0; column < columns.size(); ++column) {
        const std::size_t index = oracle_.place(rank, row, columns[column]);
        const double value = number_at(got, token, static_cast<std::int64_t>(column));
        judge(index, value, adds_to(token, blocks[column]) && oracle_.rows.owned[index] != 0);
        if (!right(index, value)) {
          note_wrong(rank, token, columns[column], index, value);
        }
      }
    }
  }

  [[nodiscard]] const LayerComparison& found() const { return found_; }

 private:
  [[nodiscard]] std::int32_t adapter_of_token(std::int64_t token) const {
    return problem_.lora.plan.adapter_of_token[static_cast<std::size_t>(token)];
  }
  // Whether an adapter adds to a block of a row.
  [[nodiscard]] bool adds_to(std::int64_t token, std::size_t block) const {
    const std::int32_t adapter = adapter_of_token(token);
    return adapter >= 0 && problem_.lora.rank[static_cast<std::size_t>(adapter)] > 0 &&
           !problem_.lacks_block(adapter, block);
  }
  [[nodiscard]] std::vector<std::size_t> blocks_of(const std::vector<std::int64_t>& columns) const {
    const std::vector<std::int64_t>& widths = problem_.layer.widths;
    std::vector<std::size_t> blocks;
    for (std::int64_t column : columns) {
      std::size_t block = 0;
      while (column >= widths[block]) {
        column -= widths[block++];
      }
      blocks.push_back(block);
    }
    return blocks;
  }
  [[nodiscard]] bool right(std::size_t index, double value) const {
    const double expected = oracle_.rows.expected[index];
    const double bound = oracle_.rows.bound[index];
    return reference::round_to(number_, expected - bound) <= value &&
           value <= reference::round_to(number_, expected + bound);
  }
  void note_wrong(std::int64_t rank, std::int64_t token, std::int64_t column, std::size_t index,
                  double value) {
    const double expected = oracle_.rows.expected[index];
    const double bound = oracle_.rows.bound[index];
    if (found_.wrong++ == 0) {
      found_.told = fmt::format(
          "shard {}, token {} (adapter {}), column {} of the whole: expected {}, got {}, bound {}",
          rank, token, adapter_of_token(token), column, expected, value, bound);
    }
    if (found_.first.size() < kFirstShown) {
      Mismatch wrong;
      wrong.token = token;
      wrong.adapter = adapter_of_token(token);
      wrong.slice = 0;
      for (const std::int64_t width : problem_.layer.widths) {
        if (column < width) {
          break;
        }
        column -= width;
        ++wrong.slice;
      }
      wrong.column = column;
      wrong.expected = expected;
      wrong.got = value;
      wrong.bound = bound;
      found_.first.push_back(wrong);
    }
  }
  void judge(std::size_t index, double value, bool adapted) {
    const double bound = oracle_.rows.bound[index];
    ++found_.compared;
    found_.of_adapters += adapted ? 1 : 0;
    found_.proves_nothing += adapted && right(index, oracle_.base[index]) ? 1 : 0;
    if (right(index, value) && bound > 0) {
      const double needed =
          std::fabs(value - oracle_.rows.expected[index]) - reference::spacing(number_, value) / 2;
      found_.bound_share = std::max(found_.bound_share, std::min(1.0, needed / bound));
    }
  }

  const LayerProblem& problem_;
  const reference::LayerRows& oracle_;
  reference::Number number_;
  LayerComparison found_;
};

Verdict verdict_of(const LayerComparison& found, double rows_checked, Level level) {
  Verdict verdict;
  verdict.compared = found.compared;
  verdict.bound_share = found.bound_share;
  verdict.rows_checked = rows_checked;
  if (found.wrong > 0) {
    verdict.status = Status::kFailed;
    verdict.message = fmt::format("{}: {} of {} elements are wrong; {}", name(level), found.wrong,
                                  found.compared, found.told);
    Failure failure;
    failure.level = level;
    failure.what = "wrong values";
    failure.wrong = found.wrong;
    failure.compared = found.compared;
    failure.first = found.first;
    verdict.failure = std::move(failure);
    return verdict;
  }
  const double unproved = found.of_adapters == 0 ? 0
                                                 : static_cast<double>(found.proves_nothing) /
                                                       static_cast<double>(found.of_adapters);
  if (proves_too_little(unproved)) {
    verdict.message =
        fmt::format("{:.0f} % of the elements to which an adapter adds would be right without it",
                    100 * unproved);
    return verdict;
  }
  verdict.status = Status::kPassed;
  verdict.passed = {level, Level::kMemory};
  return verdict;
}

}  // namespace

reference::LayerRows layer_oracle(const LayerProblem& problem, const LayerTensors& tensors,
                                  const reference::LayerArithmetic& arithmetic,
                                  const std::vector<std::int64_t>& rows) {
  return reference::evaluate_layer(oracle_layer(problem, tensors), arithmetic, rows);
}

reference::LayerArithmetic layer_arithmetic(const LayerProblem& problem, const LayerHome& home) {
  reference::LayerArithmetic arithmetic = layer_arithmetic(problem, home.base(), home.lora());
  arithmetic.rounds_each_sum = home.communicator->rounds_each_sum();
  return arithmetic;
}

reference::LayerArithmetic layer_arithmetic(const LayerProblem& problem, const Backend& base,
                                            const Backend& lora) {
  const ShardProblem part = shard_problem(problem, 0);
  const Numerics of_lora = numerics_of_adapters(problem, part, base, lora);
  reference::LayerArithmetic arithmetic;
  if (part.looks_up) {
    arithmetic.base_unit_roundoff = 0;  // what is read is exact, and zeros are added to it
  } else {
    const Numerics of_base = base.numerics(part.base);
    arithmetic.base_unit_roundoff = of_base.unit_roundoff;
    arithmetic.base_depth = problem.overlap == Overlap::kFused
                                ? base.fused()->base_depth(part.base, part.lora)
                                : of_base.shrink_depth;
  }
  arithmetic.lora = oracle_arithmetic(part.lora, of_lora);
  if (part.expand) {
    arithmetic.lora.expand_depth = lora.numerics(*part.expand).expand_depth;
    arithmetic.lora.intermediate = number_of(problem.lora.dtype[Role::kH]);
  }
  arithmetic.lora.rounds_delta = arithmetic.lora.rounds_delta || part.delta_apart;
  // Of a layer with room behind its rows some may be left to an expand.
  arithmetic.base_rounded =
      (problem.overlap != Overlap::kEpilogue && problem.overlap != Overlap::kFused) ||
      (part.room > 0 && base.fused()->left_over(part.base, part.lora).has_value());
  if (part.h == Exchange::kReduce) {
    arithmetic.lora.shrink_depth += problem.layer.tp;
    arithmetic.lora.terms_of_h = problem.layer.tp;
  }
  if (description_of(problem.layer.kind).y == Exchange::kReduce && !part.looks_up) {
    arithmetic.terms = problem.layer.tp;
    arithmetic.terms_apart = keeps_terms(problem.layer);
    arithmetic.delta_at_once = problem.layer.fully_sharded;
  }
  return arithmetic;
}

ShardOutputs outputs_of(const LayerEngine& engine) {
  ShardOutputs outputs;
  for (std::int64_t rank = 0; rank < engine.shards(); ++rank) {
    outputs.push_back(engine.output(rank));
  }
  return outputs;
}

namespace {

Verdict compare_rows(const LayerProblem& problem, const reference::LayerRows& oracle,
                     const ShardOutputs& got, Level level) {
  ShardComparer comparer(problem, oracle);
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    comparer.compare(static_cast<std::int64_t>(rank), got[rank]);
  }
  const auto all = static_cast<double>(std::max<std::int64_t>(problem.lora.tokens, 1));
  return verdict_of(comparer.found(), static_cast<double>(oracle.rows.tokens.size()) / all, level);
}

}  // namespace

Verdict compare_shards(const LayerProblem& problem, const reference::LayerRows& oracle,
                       const ShardOutputs& got, Level level, const MoreRows& more) {
  Verdict verdict = compare_rows(problem, oracle, got, level);
  ShardScan scan = scan_shards(problem, got);
  if (verdict.status != Status::kFailed && scan.nan) {
    verdict.status = Status::kFailed;
    verdict.passed.clear();
    verdict.message = describe(*scan.nan);
    verdict.failure = std::move(scan.nan);
  }
  std::vector<std::int64_t> rows = more.rows;
  rows.insert(rows.end(), scan.infinite_rows.begin(), scan.infinite_rows.end());
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  if (verdict.status == Status::kFailed || !more.oracle || rows.empty()) {
    return verdict;
  }
  // Too few to say how much of a bound proves nothing.
  Verdict others = compare_rows(problem, more.oracle(rows), got, level);
  return others.status == Status::kFailed ? others : verdict;
}

Verdict compare_layer(const LayerEngine& engine, const LayerProblem& problem,
                      const reference::LayerRows& oracle, Level level, const MoreRows& more) {
  Verdict verdict = compare_shards(problem, oracle, outputs_of(engine), level, more);
  if (const std::string damage = engine.damage(); !damage.empty()) {
    verdict.status = Status::kFailed;
    verdict.message = "memory: " + damage;
  }
  return verdict;
}

std::string wrong_rows(const LayerEngine& engine, const LayerProblem& problem,
                       const LayerTensors& tensors, const reference::LayerArithmetic& arithmetic,
                       const std::vector<std::int64_t>& rows) {
  const Verdict verdict =
      compare_layer(engine, problem, layer_oracle(problem, tensors, arithmetic, rows));
  return verdict.status == Status::kFailed ? verdict.message : "";
}

void name_fault(Verdict& verdict, const LayerStory& story, const reference::LayerRows& oracle,
                const ShardOutputs& got) {
  if (!verdict.failure || verdict.failure->level == Level::kMemory) {
    return;
  }
  const Hypothesis fits = diagnose_layer(story, oracle, got);
  verdict.failure->hypothesis = fits.key;
  verdict.failure->explanation = fits.sentence;
  verdict.message += fits.key.empty() ? "" : fmt::format("; {}: {}", fits.key, fits.sentence);
}

Verdict prove_layer(LayerEngine& engine, const LayerEngine& untouched, const LayerProblem& problem,
                    const LayerTensors& tensors, const reference::LayerRows& oracle,
                    const LayerHome& home, Level level, const MoreRows& more) {
  home.synchronize();
  engine.forward(*home.communicator, Stream{});
  home.synchronize();
  Verdict verdict = compare_layer(engine, problem, oracle, level, more);
  if (const std::string changed = engine.changed_input(untouched); !changed.empty()) {
    verdict.status = Status::kFailed;
    verdict.message = "memory: the launch changed " + changed;
  }
  if (problem.skip_bias_add && !(engine.returned_bias() == tensors.bias)) {
    verdict.status = Status::kFailed;
    verdict.message = "the base's bias, which is not added, is not returned";
  }
  return verdict;
}

void add_relations(Verdict& verdict, const LayerProblem& problem, const LayerTensors& tensors,
                   const LayerHome& home, const reference::LayerRows& oracle) {
  if (verdict.status != Status::kPassed) {
    return;
  }
  const std::string broken = broken_layer_relation(problem, tensors, home, oracle);
  if (broken.empty()) {
    verdict.passed.insert(verdict.passed.end() - 1, Level::kRelations);
    return;
  }
  verdict.status = Status::kFailed;
  verdict.message = fmt::format("relations: '{}' does not hold", broken);
  Failure failure;
  failure.level = Level::kRelations;
  failure.what = fmt::format("relation '{}'", broken);
  verdict.failure = std::move(failure);
}

namespace {

// The two proofs of one layer.
class LayerProof {
 public:
  LayerProof(const LayerProblem& problem, const LayerHome& home, const VerifyOptions& options)
      : problem_(problem),
        home_(home),
        seed_(options.seed),
        relations_(options.relations),
        rows_(sample_rows(problem.lora, options.max_rows, options.seed)),
        arithmetic_(layer_arithmetic(problem, home)) {}

  Verdict run() {
    const bool exact = takes_integers() && proves(Fill::kExact);
    const Verdict of_integers = verdict_;
    if (of_integers.status == Status::kFailed && !of_integers.failure) {
      return of_integers;
    }
    static_cast<void>(proves(Fill::kBounded));
    if (of_integers.failure) {
      return named_by(of_integers, verdict_);
    }
    if (exact && verdict_.status == Status::kPassed) {
      verdict_.passed.insert(verdict_.passed.begin(), Level::kExact);
    }
    return std::move(verdict_);
  }

 private:
  static bool is_power_of_two(float value) {
    int exponent = 0;
    return std::fabs(std::frexp(value, &exponent)) == 0.5F;
  }

  // In fp16 the base would overflow; a sum of terms of a narrow h, and an h in two parts of bf16,
  // round where no one models it.
  [[nodiscard]] bool takes_integers() const {
    const bool wide = problem_.lora.dtype[Role::kH] == Dtype::kFp32 ||
                      shard_problem(problem_, 0).h != Exchange::kReduce;
    const bool in_parts = shard_problem(problem_, 0).room > 0;
    return !home_.communicator->rounds_each_sum() &&
           problem_.lora.dtype[Role::kY] != Dtype::kFp16 && wide && !in_parts &&
           problem_.soft_cap == 0 && is_power_of_two(problem_.logit_scale);
  }

  // Integers tell that something is wrong in the last bit, other numbers better what.
  static Verdict named_by(Verdict failed, const Verdict& other) {
    if (other.failure && !other.failure->hypothesis.empty()) {
      failed.failure->hypothesis = other.failure->hypothesis;
      failed.failure->explanation = other.failure->explanation;
      failed.message +=
          fmt::format("; {}: {}", other.failure->hypothesis, other.failure->explanation);
    }
    return failed;
  }

  // Whether the layer passed; of integers, whether that says anything.
  bool proves(Fill fill) {
    const LayerTensors tensors = draw_layer_tensors(problem_, fill, seed_);
    const LayerTensors before = draw_earlier_tensors(problem_, fill, seed_);
    reference::LayerArithmetic arithmetic = arithmetic_;
    arithmetic.exact = fill == Fill::kExact;
    const reference::LayerRows oracle = layer_oracle(problem_, tensors, arithmetic, rows_);
    if (arithmetic.exact && oracle.largest_partial > reference::exact_limit(arithmetic.lora)) {
      return false;
    }
    LayerEngine untouched(problem_, home_.places);
    load_adapters(untouched, earlier_problem(problem_), before);
    load_layer(untouched, problem_, tensors);
    LayerEngine engine(problem_, home_.places);
    engine.load_from(untouched);
    const auto of_rows = [&](const std::vector<std::int64_t>& rows) {
      return layer_oracle(problem_, tensors, arithmetic, rows);
    };
    verdict_ = prove_layer(engine, untouched, problem_, tensors, oracle, home_,
                           arithmetic.exact ? Level::kExact : Level::kBounded, {of_rows, {}});
    if (!arithmetic.exact) {
      name_fault(verdict_, {problem_, tensors, before}, oracle, outputs_of(engine));
    }
    if (!arithmetic.exact && relations_) {
      add_relations(verdict_, problem_, tensors, home_, oracle);
    }
    return verdict_.status == Status::kPassed;
  }

  const LayerProblem& problem_;
  const LayerHome& home_;
  std::uint64_t seed_;
  bool relations_;
  std::vector<std::int64_t> rows_;
  reference::LayerArithmetic arithmetic_;
  Verdict verdict_;
};

}  // namespace

Verdict verify_layer(const LayerProblem& problem, const LayerHome& home,
                     const VerifyOptions& options) {
  return LayerProof(problem, home, options).run();
}

Verdict verify_layer(const LayerProblem& problem, const Backend& base, const Backend& lora,
                     Memory& memory, const VerifyOptions& options) {
  return verify_layer(problem, one_home(base, lora, memory), options);
}

}  // namespace lora_bench
