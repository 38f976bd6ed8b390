#include "verify/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "core/bytes.h"
#include "core/dtype.h"
#include "verify/diagnose.h"
#include "verify/groundwork.h"
#include "verify/oracle.h"
#include "verify/relations.h"
#include "verify/staging.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kRowsOfShiftedLaunch = 32;
constexpr std::int64_t kRowsOfRelations = 64;
// Eight of each kind (see workload/uneven.h).
constexpr std::int64_t kRowsOfUneven = 128;
constexpr std::int64_t kRowsOfFine = 64;

struct MemoryFault {
  std::string what;  // "" = none
  Hypothesis hypothesis;
};

// What is damaged still, or was before it was put back.
MemoryFault memory_fault(const Stage::Look& look, const Stage::Touched& touched) {
  if (!look.damage.empty()) {
    return {look.damage, written_outside()};
  }
  if (!look.changed_input.empty()) {
    return {look.changed_input, input_changed()};
  }
  if (!touched.damage.empty()) {
    return {touched.damage, written_outside()};
  }
  if (!touched.outside.empty()) {
    return {fmt::format("{} written and put back", touched.outside), written_outside()};
  }
  if (touched.input == kPrepared) {  // what it held before is not known
    return {"prepared weights written by a launch", input_changed()};
  }
  return touched.input.empty()
             ? MemoryFault{}
             : MemoryFault{fmt::format("input {} written and put back", touched.input),
                           input_changed()};
}

std::vector<std::int64_t> joined(std::vector<std::int64_t> rows,
                                 const std::vector<std::int64_t>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

// Sums that are kept in bf16 or fp32 reach as far as those of the oracle.
Fill uneven_for(Dtype partial) {
  const bool far = partial == Dtype::kFp32 || partial == Dtype::kBf16;
  return far ? Fill::kUneven : Fill::kUnevenNarrow;
}

// One backend on one case: launches, and what they proved.
class Proof {
 public:
  Proof(Groundwork& groundwork, const Backend& backend, Memory& memory,
        const VerifyOptions& options)
      : groundwork_(groundwork),
        problem_(groundwork.problem()),
        backend_(backend),
        preparing_(preparing_in_each_launch(backend)),
        memory_(memory),
        options_(options),
        numerics_(options.declared ? *options.declared : backend.numerics(problem_)),
        scratch_(scratch_bytes(backend, problem_)) {}

  Verdict run();

 private:
  bool check_fill(Level level, Fill fill);
  bool check_launch(Level level, const Tensors& tensors, Alignment alignment,
                    std::int64_t max_rows);
  bool check_values(Level level, const Tensors& tensors, const std::vector<std::byte>& got,
                    const MemoryFault& memory, const std::vector<std::int64_t>& rows);
  bool check_one_sign();
  [[nodiscard]] bool is_coarse_by_h(const Tensors& tensors) const;
  [[nodiscard]] Hypothesis hypothesis_of_values(const Tensors& tensors,
                                                const std::vector<std::byte>& got,
                                                const Comparison& comparison) const;
  void judge(Level level, const Comparison& comparison);
  bool fail(Failure failure);
  void conclude();

  Groundwork& groundwork_;
  const Problem& problem_;
  const Backend& backend_;
  std::unique_ptr<Backend> preparing_;  // where nobody looks whether it may prepare elsewhere
  Memory& memory_;
  const VerifyOptions& options_;
  Numerics numerics_;
  ScratchBytes scratch_;
  Verdict verdict_;
  std::vector<std::string> doubts_;
  std::map<Level, bool> judged_;
  bool coarse_ = false;       // the bound hides errors that nothing has shown yet
  bool coarse_by_h_ = false;  // ... whatever were declared of sums
  Stage::Look look_;          // at the last launch
};

bool Proof::fail(Failure failure) {
  for (Mismatch& mismatch : failure.first) {
    mismatch.experts = problem_.route.experts;
    mismatch.choices = problem_.route.choices;
  }
  verdict_.status = Status::kFailed;
  verdict_.message = describe(failure);
  verdict_.passed.clear();
  verdict_.failure = std::move(failure);
  return false;
}

// A level counts as passed only by a comparison that a wrong result could not have survived: the
// first, of the most rows.
void Proof::judge(Level level, const Comparison& comparison) {
  if (std::exchange(judged_[level], true)) {
    return;
  }
  coarse_ = level == Level::kBounded && comparison.coarse_rows > 0;
  const double limit = reference::exact_limit(oracle_arithmetic(problem_, numerics_));
  const std::string why_not = why_no_proof(comparison);
  if (!why_not.empty()) {
    doubts_.push_back(fmt::format("{}: {}", name(level), why_not));
  } else if (level == Level::kExact && comparison.largest_partial > limit) {
    doubts_.push_back(fmt::format("exact: sums need {:.3g} units, exact up to {:.3g}",
                                  comparison.largest_partial, limit));
  } else if (comparison.owned > 0) {
    verdict_.passed.push_back(level);
  }
}

// Within wide bounds many hypotheses agree, the wrong ones too. Where what is declared is coarse
// the fault is looked for as if sums were kept in fp32; where they are not, none is named.
Hypothesis Proof::hypothesis_of_values(const Tensors& tensors, const std::vector<std::byte>& got,
                                       const Comparison& comparison) const {
  Numerics numerics = numerics_;
  if (coarse_) {
    numerics.partial = Dtype::kFp32;
    numerics.unit_roundoff = std::min(numerics.unit_roundoff, 0x1p-23);
  }
  const Hypothesis found = diagnose(problem_, tensors, numerics, got.data(), comparison);
  // The exact fill is launched first; what a backend keeps of it shows in the others.
  return found.key.empty() && tensors.fill != Fill::kExact
             ? diagnose_stale_weights(problem_, tensors, *groundwork_.tensors(Fill::kExact),
                                      numerics, got.data(), comparison)
             : found;
}

bool Proof::check_values(Level level, const Tensors& tensors, const std::vector<std::byte>& got,
                         const MemoryFault& memory, const std::vector<std::int64_t>& rows) {
  const Comparison comparison = compare_output(groundwork_, tensors, numerics_, got.data(), rows);
  verdict_.compared += comparison.compared;
  verdict_.bound_share = std::max(verdict_.bound_share, comparison.bound_share);
  judge(level, comparison);
  const double limit = reference::exact_limit(oracle_arithmetic(problem_, numerics_));
  const bool decided = level != Level::kExact || comparison.largest_partial <= limit;
  if (comparison.wrong == 0 || !decided) {
    return true;
  }
  Failure failure{
      level, "wrong values", comparison.wrong, comparison.compared, comparison.first, {}, {}};
  Hypothesis hypothesis = hypothesis_of_values(tensors, got, comparison);
  if (!memory.what.empty()) {
    failure.what += "; " + memory.what;
    // What was written beside explains values that no arithmetic does.
    hypothesis = hypothesis.key.empty() ? memory.hypothesis : hypothesis;
  }
  failure.hypothesis = hypothesis.key;
  failure.explanation = hypothesis.sentence;
  return fail(std::move(failure));
}

bool Proof::check_launch(Level level, const Tensors& tensors, Alignment alignment,
                         std::int64_t max_rows) {
  Stage stage(memory_, problem_, tensors, scratch_, alignment);
  const Stage::Touched touched = stage.launch_watched(backend_);
  look_ = stage.look(std::move(look_));
  const std::vector<std::byte>& got = look_.output;
  const MemoryFault memory = memory_fault(look_, touched);
  const std::vector<std::int64_t> rows =
      joined(sample_rows(problem_, max_rows, options_.seed), infinite_rows(problem_, got.data()));
  if (!check_values(level, tensors, got, memory, rows)) {
    return false;
  }
  if (options_.without == Part::kMemory) {
    return true;
  }
  if (!memory.what.empty()) {
    return fail(
        {Level::kMemory, memory.what, 0, 0, {}, memory.hypothesis.key, memory.hypothesis.sentence});
  }
  if (std::optional<Failure> failure = scan_all_rows(problem_, tensors, got.data())) {
    return fail(std::move(*failure));
  }
  return true;
}

bool Proof::check_fill(Level level, Fill fill) {
  const std::shared_ptr<const Tensors> tensors = groundwork_.tensors(fill);
  const bool uneven = is_uneven(fill);
  const bool left_out = (level == Level::kExact && options_.without == Part::kExact) ||
                        (level == Level::kBounded && options_.without == Part::kBounded) ||
                        (uneven && options_.without == Part::kUneven) ||
                        (is_fine(fill) && options_.without == Part::kFine);
  const std::int64_t rows = uneven          ? std::min(options_.max_rows, kRowsOfUneven)
                            : is_fine(fill) ? std::min(options_.max_rows, kRowsOfFine)
                                            : options_.max_rows;
  if (!left_out && !check_launch(level, *tensors, Alignment::kBoundary, rows)) {
    return false;
  }
  const Fill of_shifted = options_.without == Part::kExact ? Fill::kBounded : Fill::kExact;
  return fill != of_shifted || options_.without == Part::kShifted ||
         check_launch(level, *tensors, Alignment::kElement,
                      std::min(options_.max_rows, kRowsOfShiftedLaunch));
}

// Where signs cancel, the bound of a sum reaches far beyond it, whatever is declared. Where all
// numbers of x, A, h and B have one sign, and bias and y are 0, it reaches as far as what is
// declared.
bool Proof::check_one_sign() {
  Tensors tensors = *groundwork_.tensors(Fill::kBounded);
  const auto without_signs = [](HostTensor& tensor) {
    make_positive(tensor.data, size_bytes(tensor.dtype));
  };
  without_signs(tensors.x);
  without_signs(tensors.h);
  std::for_each(tensors.a.begin(), tensors.a.end(), without_signs);
  std::for_each(tensors.b.begin(), tensors.b.end(), without_signs);
  const auto clear = [](HostTensor& tensor) {
    std::fill(tensor.data.begin(), tensor.data.end(), std::byte{0});
  };
  std::for_each(tensors.bias.begin(), tensors.bias.end(), clear);
  if (problem_.add_inputs) {
    clear(tensors.y);
  }
  Stage stage(memory_, problem_, tensors, scratch_);
  stage.launch(*preparing_);
  look_ = stage.look(std::move(look_));
  const Comparison comparison =
      compare_output(problem_, tensors, numerics_, look_.output.data(),
                     sample_rows(problem_, options_.max_rows, options_.seed));
  verdict_.compared += comparison.compared;
  if (comparison.wrong == 0) {
    coarse_ = comparison.coarse_rows > 0;
    coarse_by_h_ = coarse_ && is_coarse_by_h(tensors);
    return true;
  }
  const Hypothesis hypothesis = hypothesis_of_values(tensors, look_.output, comparison);
  return fail({Level::kBounded, "wrong values", comparison.wrong, comparison.compared,
               comparison.first, hypothesis.key, hypothesis.sentence});
}

// Whether the bound of a kernel that sums without a visible error and keeps h as this one does
// would hide as much: h is then so small that its type keeps few bits of it.
bool Proof::is_coarse_by_h(const Tensors& tensors) const {
  Numerics exact_sums;
  exact_sums.intermediate = numerics_.intermediate;
  exact_sums.casts_h = numerics_.casts_h;
  return compare_output(problem_, tensors, exact_sums, look_.output.data(),
                        sample_rows(problem_, options_.max_rows, options_.seed))
             .coarse_rows > 0;
}

void Proof::conclude() {
  const bool proved = !verdict_.passed.empty() && !coarse_;
  verdict_.status = proved ? Status::kPassed : Status::kMistrusted;
  if (coarse_by_h_) {
    doubts_.push_back(fmt::format(
        "h is so small that {} keeps few bits of it and an error of an eighth of the result would "
        "not show, whatever the kernel; only an h of more bits, or larger scales, could tell",
        name(problem_.dtype[Role::kH])));
  } else if (coarse_) {
    doubts_.emplace_back(
        "what is declared would hide an error of an eighth of the result; declare numerics no "
        "looser than the kernel is");
  }
  if (owned_elements(problem_) == 0) {
    // Legal, and all there is to prove: it was launched and nothing was touched.
    verdict_.status = Status::kPassed;
    verdict_.message = problem_.tokens == 0 ? "empty batch: launched, nothing to write"
                                            : "no row with an adapter: launched, nothing written";
  } else if (!doubts_.empty()) {
    verdict_.message = fmt::format("{}", fmt::join(doubts_, "; "));
  }
  verdict_.passed.push_back(Level::kMemory);
}

Verdict Proof::run() {
  const auto checked =
      static_cast<double>(sample_rows(problem_, options_.max_rows, options_.seed).size());
  verdict_.rows_checked = problem_.tokens == 0 ? 1 : checked / static_cast<double>(problem_.tokens);
  std::vector<Fill> fills = fine_fills(problem_);
  fills.insert(fills.begin(), Fill::kExact);
  fills.insert(fills.end(), {Fill::kBounded, uneven_for(numerics_.partial)});
  for (const Fill fill : fills) {
    if (!check_fill(is_exact(fill) ? Level::kExact : Level::kBounded, fill)) {
      return verdict_;
    }
  }
  if (coarse_ && !check_one_sign()) {
    return verdict_;
  }
  conclude();
  if (options_.relations && options_.without != Part::kRelations) {
    if (std::optional<Failure> failure = check_relations(
            groundwork_, *preparing_, memory_, kRowsOfRelations, options_.without, numerics_)) {
      fail(std::move(*failure));
      return verdict_;
    }
    verdict_.passed.push_back(Level::kRelations);
  }
  std::sort(verdict_.passed.begin(), verdict_.passed.end());
  return verdict_;
}

}  // namespace

std::string_view name(Level level) {
  switch (level) {
    case Level::kExact:
      return "exact";
    case Level::kBounded:
      return "bounded";
    case Level::kRelations:
      return "relations";
    case Level::kMemory:
      return "memory";
  }
  return "";
}

std::string describe(const Mismatch& mismatch) {
  Route route;
  route.experts = mismatch.experts;
  route.choices = mismatch.choices;
  std::string place = row_named(route, mismatch.token) + ", ";
  place +=
      mismatch.adapter == kNoAdapter ? "no adapter, " : slot_named(route, mismatch.adapter) + ", ";
  place += mismatch.slice < 0 ? "outside every slice, " : fmt::format("slice {}, ", mismatch.slice);
  return fmt::format("{}column {}: expected {:.9g}, got {:.9g} (bound {:.3g})", place,
                     mismatch.column, mismatch.expected, mismatch.got, mismatch.bound);
}

std::string describe(const Failure& failure) {
  std::string text = fmt::format("{}: ", name(failure.level));
  if (failure.what != "wrong values") {
    text += failure.what + (failure.wrong > 0 ? "; " : "");
  }
  if (failure.wrong > 0) {
    text += fmt::format("{} of {} wrong", failure.wrong, failure.compared);
  }
  if (!failure.first.empty()) {
    text += "; " + describe(failure.first.front());
  }
  if (!failure.hypothesis.empty()) {
    text += fmt::format("; {}: {}", failure.hypothesis, failure.explanation);
  }
  return text;
}

Verdict verify(const Problem& problem, const Backend& backend, Memory& memory,
               const VerifyOptions& options) {
  Groundwork groundwork(problem, options.seed, 0);  // nobody comes back for it
  return verify(groundwork, backend, memory, options);
}

Verdict verify(Groundwork& groundwork, const Backend& backend, Memory& memory,
               VerifyOptions options) {
  options.seed = groundwork.seed();
  return Proof(groundwork, backend, memory, options).run();
}

}  // namespace lora_bench
