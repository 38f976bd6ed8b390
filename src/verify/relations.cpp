#include "verify/relations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/bytes.h"
#include "core/dtype.h"
#include "verify/diagnose.h"
#include "verify/oracle.h"
#include "verify/verify.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kRowsAlone = 3;
// Rows that are judged after a change of one operand, and how many multiply-adds they may take.
constexpr std::int64_t kRowsOfChange = 4;
constexpr std::int64_t kProductsOfChange = std::int64_t{1} << 24;

}  // namespace

Relations::Relations(Groundwork& groundwork, const Backend& backend, Memory& memory,
                     std::int64_t max_rows, Part without, const std::optional<Numerics>& declared)
    : backend_(backend),
      memory_(memory),
      load_(memory),
      seed_(groundwork.seed()),
      without_(without),
      origin_(sample_rows(groundwork.problem(), max_rows, seed_)),
      groundwork_(groundwork),
      of_base_(groundwork.derived(
          fmt::format("{} rows", max_rows),
          [&] {
            Step whole{groundwork.problem(), *groundwork.tensors(Fill::kBounded)};
            const bool all = origin_ == all_rows(whole.problem);
            return all ? whole : select_rows(whole, origin_);
          })),
      base_(of_base_->step),
      same_rows_(all_rows(base_.problem)),
      // Of fewer rows another thing may be declared.
      numerics_(declared && base_.problem.tokens == groundwork.problem().tokens
                    ? *declared
                    : backend.numerics(base_.problem)) {}

Relations::Bits Relations::launch_in(Stage& stage) {
  stage.launch(backend_);
  note_damage(stage.damage());
  return stage.output();
}

void Relations::note_damage(const std::string& damage) {
  if (without_ != Part::kMemory && !damage.empty() && !failed_) {
    failed_ = true;
    damaged_ = true;
    failure_.what += ": " + damage;
  }
}

Relations::Bits Relations::launch(const Step& step) {
  Stage stage(memory_, step.problem, step.tensors, scratch_bytes(backend_, step.problem));
  return launch_in(stage);
}

// Holds the first of two steps, with room for the other: each array of the plan stays where it is,
// whatever the size of the batch.
Stage Relations::stage_for(const Step& first, const Step& second) const {
  const ScratchBytes scratch =
      largest_of(scratch_bytes(backend_, first.problem), scratch_bytes(backend_, second.problem));
  return {memory_, first.problem,        first.tensors,
          scratch, Alignment::kBoundary, PlanRoom::kAllSlots};
}

// Bit for bit where that is declared, else as the oracle says.
void Relations::expect_same_or_right(const Bits& got) {
  if (numerics_.deterministic) {
    expect_repeated(got, base_.problem, same_rows_);
  } else {
    expect_base(numerics_, got);
  }
}

// The bounded fill of the problem, drawn from the seed.
std::shared_ptr<DerivedStep> Relations::drawn(const std::string& name, const Problem& problem,
                                              std::uint64_t seed) {
  return groundwork_.derived(name, [&] {
    return Step{problem, draw_tensors(problem, Fill::kBounded, seed)};
  });
}

void Relations::expect_base(const Numerics& numerics, const Bits& got) {
  if (right_ && right_->numerics == numerics && same_bytes(right_->bits, got)) {
    failure_.compared += right_->compared;
    return;
  }
  const std::int64_t before = failure_.compared;
  expect_right(*of_base_, numerics, got, same_rows_);
  if (!failed_) {
    right_ = Right{numerics, got, failure_.compared - before};
  }
}

void Relations::expect_right(DerivedStep& derived, const Numerics& numerics, const Bits& got,
                             const std::vector<std::int64_t>& base_rows) {
  if (without_ == Part::kBounded) {
    return;
  }
  const Comparison comparison = compare_output(derived, numerics, got.data());
  failed_ = failed_ || comparison.wrong > 0;
  failure_.wrong = comparison.wrong;
  failure_.compared += comparison.compared;
  failure_.first = comparison.first;
  for (Mismatch& mismatch : failure_.first) {
    const std::int64_t base_row = base_rows[static_cast<std::size_t>(mismatch.token)];
    mismatch.token = origin_[static_cast<std::size_t>(base_row)];
  }
}

// Of the base with other numbers in one input, in some of its rows.
void Relations::expect_rows_right(const Tensors& tensors, const Bits& got,
                                  const std::string& changed) {
  if (failed_ || without_ == Part::kBounded) {
    return;
  }
  std::int64_t columns = base_.problem.slices() * base_.problem.in_features;
  for (const std::int64_t width : base_.problem.widths) {
    columns += width;
  }
  const std::int64_t products = std::max<std::int64_t>(1, columns * base_.problem.max_rank);
  const std::int64_t rows =
      std::clamp<std::int64_t>(kProductsOfChange / products, 1, kRowsOfChange);
  const Comparison comparison = compare_output(base_.problem, tensors, numerics_, got.data(),
                                               sample_rows(base_.problem, rows, seed_));
  failure_.compared += comparison.compared;
  if (comparison.wrong > 0) {
    failed_ = true;
    failure_.what += ": wrong with other numbers in " + changed;
    failure_.wrong = comparison.wrong;
    failure_.first = comparison.first;
    for (Mismatch& mismatch : failure_.first) {
      mismatch.token = origin_[static_cast<std::size_t>(mismatch.token)];
    }
  }
}

// Other rows and other weights in the same slots went through the same buffers before: of the same
// adapters, of groups of other sizes, of one adapter alone. Then the same rows and weights where
// only the ranks or the plan were others, as when an adapter is replaced or an engine goes on to
// the next batch: what that launch leaves is not looked at, since lanes and rows that it reads may
// hold NaN.
void Relations::after_another_step() {
  const Problem& problem = base_.problem;
  std::vector<Derived> others{drawn("another step", rotate_adapters(problem), seed_ + 1),
                              drawn("other counts", with_other_counts(problem), seed_ + 1)};
  if (problem.plan.active() > 1) {
    others.push_back(drawn("fewer adapters", with_one_adapter(problem), seed_ + 1));
  }
  const std::array<Step, 3> alike{Step{with_other_ranks(problem), base_.tensors},
                                  Step{rotate_adapters(problem), base_.tensors},
                                  Step{with_other_counts(problem), base_.tensors}};
  std::vector<const Step*> earlier;
  for (const Derived& step : others) {
    earlier.push_back(&step->step);
  }
  for (const Step& step : alike) {
    if (supports(step.problem)) {
      earlier.push_back(&step);
    }
  }
  ScratchBytes scratch = scratch_bytes(backend_, problem);
  for (const Step* const step : earlier) {
    scratch = largest_of(scratch, scratch_bytes(backend_, step->problem));
  }
  // Each array of the plan stays where it is, whatever the size of the batch.
  Stage stage(memory_, problem, base_.tensors, scratch, Alignment::kBoundary, PlanRoom::kAllSlots);
  for (const Step* const step : earlier) {
    if (!failed_) {
      stage.reload(step->problem, step->tensors);
      stage.launch(backend_);
      stage.reload(problem, base_.tensors);
      expect_same_or_right(launch_in(stage));
    }
  }
  after_a_change_of_one_operand(stage);
}

Relations::Derived Relations::some_other_numbers() {
  return groundwork_.derived("some other numbers", [&] {
    const Derived all = drawn("other numbers", base_.problem, seed_ + 2);
    return Step{base_.problem, mixed(base_, all->step.tensors, seed_)};
  });
}

// A step is the base with other numbers in one operand. Who keeps what was first seen with the
// operands that are the same is right in the base and wrong here.
void Relations::one_operand_after_the_other() {
  const Derived other = some_other_numbers();
  Stage stage(memory_, base_.problem, base_.tensors, scratch_bytes(backend_, base_.problem));
  Tensors tensors = base_.tensors;
  for (const std::string& input : stage.inputs()) {
    if (!failed_) {
      stage.change(input, other->step.tensors);
      stage.restore_output();
      take_input(base_.problem, input, other->step.tensors, tensors);
      expect_rows_right(tensors, launch_in(stage), input);
      take_input(base_.problem, input, base_.tensors, tensors);
      stage.change(input, base_.tensors);
    }
  }
}

// The step before differs in one operand alone, as when an engine writes one of them in place: who
// looks at something else to see whether a step is new keeps what is old. Before that one a step
// where every operand is another, so that what is kept is of the step before.
void Relations::after_a_change_of_one_operand(Stage& stage) {
  const Derived other = some_other_numbers();
  const std::vector<std::string> inputs = stage.inputs();
  for (const std::string& last : inputs) {
    if (failed_) {
      return;
    }
    for (const std::string& input : inputs) {
      stage.change(input, other->step.tensors);
    }
    stage.launch(backend_);
    for (const std::string& input : inputs) {
      if (input != last) {
        stage.change(input, base_.tensors);
      }
    }
    stage.launch(backend_);
    stage.change(last, base_.tensors);
    stage.restore_output();
    expect_same_or_right(launch_in(stage));
  }
}

void Relations::other_values_in_unused_places() {
  expect_repeated(launch(fill_unused(base_)), base_.problem, same_rows_);
}

void Relations::idle_after_busy() {
  Step idle = base_;
  idle.problem = without_adapters(base_.problem);
  const Derived busy = drawn("other numbers", base_.problem, seed_ + 2);
  Stage stage = stage_for(busy->step, idle);
  stage.launch(backend_);
  stage.reload(idle.problem, idle.tensors);
  const Bits got = launch_in(stage);
  if (std::optional<Failure> written = scan_all_rows(idle.problem, idle.tensors, got.data())) {
    failed_ = true;
    written->what = failure_.what;
    failure_ = std::move(*written);
    failure_.level = Level::kRelations;
    return;
  }
  stage.reload(base_.problem, base_.tensors);
  expect_same_or_right(launch_in(stage));
}

void Relations::permuted_rows() {
  const std::vector<std::int64_t> backwards(same_rows_.rbegin(), same_rows_.rend());
  const Step permuted = select_rows(base_, backwards);
  expect_repeated(launch(permuted), permuted.problem, backwards);
}

void Relations::relabelled_adapters() {
  const Step relabelled = relabel_adapters(base_);
  expect_repeated(launch(relabelled), relabelled.problem, same_rows_);
}

void Relations::rows_alone() {
  std::vector<std::int64_t> candidates;
  for (std::int64_t token = 0; token < base_.problem.tokens; ++token) {
    if (base_.problem.acts_on(token)) {
      candidates.push_back(token);
    }
  }
  for (std::uint64_t pick = 0; pick < kRowsAlone && !failed_; ++pick) {
    const std::int64_t token = candidates[pick * (candidates.size() - 1) / (kRowsAlone - 1)];
    const std::vector<std::int64_t> row{token};
    const Step alone = select_rows(base_, row);
    expect_repeated(launch(alone), alone.problem, row);
  }
}

// Row i of `got` must repeat row base_rows[i] of the base.
void Relations::expect_repeated(const Bits& got, const Problem& problem,
                                const std::vector<std::int64_t>& base_rows, bool doubled) {
  const bool expands = has_expand(problem.op);
  const std::int64_t columns = expands ? problem.y_stride : problem.slices() * problem.max_rank;
  const Dtype dtype = output_dtype(problem);
  if (expands && !doubled && base_rows == same_rows_ && same_bytes(got, base_bits_)) {
    failure_.compared += problem.tokens * columns;
    return;
  }
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    const std::int64_t base_row = base_rows[static_cast<std::size_t>(token)];
    for (std::int64_t column = 0; column < columns; ++column) {
      if (!expands && !owns_lane(problem, token, column)) {
        continue;
      }
      ++failure_.compared;
      const std::int64_t base_index = output_index(base_.problem, base_row, column);
      const std::int64_t index = output_index(problem, token, column);
      if (!follows(got, index, base_index, doubled)) {
        const double expected = (doubled ? 2.0 : 1.0) * load(dtype, base_bits_.data(), base_index);
        note(base_row, base_.problem.plan.adapter_of_token[static_cast<std::size_t>(base_row)],
             column, expected, load(dtype, got.data(), index));
      }
    }
  }
}

void Relations::expect_same(const Problem& problem, const Bits& expected, const Bits& got,
                            const std::vector<std::int64_t>& base_rows) {
  const bool expands = has_expand(problem.op);
  const std::int64_t columns = expands ? problem.y_stride : problem.slices() * problem.max_rank;
  const Dtype dtype = output_dtype(problem);
  const auto bytes = static_cast<std::size_t>(size_bytes(dtype));
  failure_.compared += problem.tokens * columns;
  if (same_bytes(expected, got)) {
    return;
  }
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    const auto row = static_cast<std::size_t>(token);
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t index = output_index(problem, token, column);
      const std::size_t at = static_cast<std::size_t>(index) * bytes;
      if ((expands || owns_lane(problem, token, column)) &&
          std::memcmp(expected.data() + at, got.data() + at, bytes) != 0) {
        note(base_rows[row], problem.plan.adapter_of_token[row], column,
             load(dtype, expected.data(), index), load(dtype, got.data(), index));
      }
    }
  }
}

bool Relations::follows(const Bits& got, std::int64_t index, std::int64_t base_index,
                        bool doubled) const {
  const Dtype dtype = output_dtype(base_.problem);
  const auto bytes = static_cast<std::size_t>(size_bytes(dtype));
  if (!doubled) {
    return std::memcmp(got.data() + static_cast<std::size_t>(index) * bytes,
                       base_bits_.data() + static_cast<std::size_t>(base_index) * bytes,
                       bytes) == 0;
  }
  const float base = load(dtype, base_bits_.data(), base_index);
  const float value = load(dtype, got.data(), index);
  // Numbers near the ends of fp16 round otherwise when they are doubled.
  const bool near_an_end =
      dtype == Dtype::kFp16 && (std::fabs(base) < 0x1p-13F || !std::isfinite(value));
  // What nobody owns stays the NaN that it was.
  return near_an_end || value == 2 * base || (std::isnan(value) && std::isnan(base));
}

void Relations::note(std::int64_t base_row, std::int32_t adapter, std::int64_t column,
                     double expected, double got) {
  failed_ = true;
  ++failure_.wrong;
  if (failure_.first.size() < kFirstShown) {
    const auto row = static_cast<std::size_t>(base_row);
    const Place place = place_of(base_.problem, column);
    failure_.first.push_back({origin_[row], adapter, place.slice, place.column, expected, got, 0});
  }
}

std::optional<Failure> Relations::run() {
  const bool repeats = numerics_.deterministic;
  const bool invariant = repeats && numerics_.batch_invariant;
  const bool expands = has_expand(base_.problem.op);
  // An fp16 h or delta that falls below the normal range is not doubled exactly.
  const bool fp16_h =
      (has_shrink(base_.problem.op) && base_.problem.dtype[Role::kH] == Dtype::kFp16) ||
      (numerics_.casts_h && base_.problem.dtype_of_cast() == Dtype::kFp16);
  const bool rounds_between =
      numerics_.rounds_delta || numerics_.bias_added != BiasAdded::kWithDelta;
  // A quantiser that holds scales up does not double what it makes, nor has either half one.
  const bool quantises = base_.problem.h_quantiser.has_value();
  const bool doubles = repeats && !fp16_h && !quantises &&
                       !(rounds_between && base_.problem.dtype[Role::kY] == Dtype::kFp16);
  // A delta or a partial sum in fp16 may be infinite before the result is.
  const bool may_be_infinite = output_dtype(base_.problem) == Dtype::kFp16 && !rounds_between &&
                               !numerics_.casts_h && numerics_.partial != Dtype::kFp16;
  const std::vector<Relation> relations{
      {"run twice", repeats, &Relations::run_twice, "not-repeatable"},
      {"after another step in the same buffers", true, &Relations::after_another_step,
       "state-left"},
      {"recorded once, run over other numbers",
       numerics_.graph_safe && memory_.space() == Space::kDevice, &Relations::recorded_once,
       "state-left"},
      {"no adapters after a busy step", expands, &Relations::idle_after_busy, "state-left"},
      {"other values in unused places", repeats, &Relations::other_values_in_unused_places,
       "unused-memory-read"},
      {"permuted rows", invariant, &Relations::permuted_rows, "depends-on-batch"},
      {"relabelled adapters", invariant, &Relations::relabelled_adapters, ""},
      {"a row alone", invariant, &Relations::rows_alone, "depends-on-batch"},
      {"doubled inputs", doubles, &Relations::doubled_inputs, ""},
      {"slices one by one", base_.problem.slices() > 1, &Relations::slices_one_by_one, ""},
      {"many runs", true, &Relations::many_runs, "not-repeatable"},
      {"recorded with one batch, run with another", numerics_.graph_safe, &Relations::other_batches,
       "state-left"},
      {"shrink, then expand", has_shrink(base_.problem.op) && expands && !quantises,
       &Relations::shrink_then_expand, ""},
      {"wider padding", true, &Relations::wider_padding, ""},
      {"some operands shifted", without_ != Part::kShifted, &Relations::operands_apart, ""},
      {"results beyond fp16", may_be_infinite, &Relations::results_beyond_fp16, ""},
      {"right behind another step of its stream", true, &Relations::behind_another_step,
       "out-of-turn"},
      {"several steps in one workspace", true, &Relations::in_a_row, "state-left"},
      {"other numbers in one operand", true, &Relations::one_operand_after_the_other, "state-left"},
      {"memory given back", true, &Relations::memory_given_back, "memory-kept"},
  };
  base_bits_ = launch(base_);
  for (const Relation& relation : relations) {
    if (!relation.holds_for_this_backend) {
      continue;
    }
    failure_ = {};
    failure_.level = Level::kRelations;
    failure_.what = fmt::format("relation '{}'", relation.name);
    (this->*relation.check)();
    if (failed_) {
      const Hypothesis hypothesis =
          damaged_ ? written_outside()
                   : hypothesis_of(seen_ != nullptr ? seen_ : relation.hypothesis);
      failure_.hypothesis = hypothesis.key;
      failure_.explanation = hypothesis.sentence;
      return failure_;
    }
  }
  return std::nullopt;
}

std::optional<Failure> check_relations(Groundwork& groundwork, const Backend& backend,
                                       Memory& memory, std::int64_t max_rows, Part without,
                                       const std::optional<Numerics>& declared) {
  if (owned_elements(groundwork.problem()) == 0) {
    return std::nullopt;
  }
  return Relations(groundwork, backend, memory, max_rows, without, declared).run();
}

}  // namespace lora_bench
