#include "verify/array_proof.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace lora_bench {
namespace {

// What is damaged or changed, with the hypothesis that says so.
std::optional<std::pair<std::string, Hypothesis>> memory_fault(const ArrayBuffers& buffers) {
  if (const std::string damage = buffers.damage(); !damage.empty()) {
    return {{damage, written_outside()}};
  }
  const std::string changed = buffers.changed_input();
  return changed.empty()
             ? std::nullopt
             : std::optional(std::pair{fmt::format("input {} changed", changed), input_changed()});
}

std::string joined(const std::string& left, const char* between, const std::string& right) {
  return left + (left.empty() || right.empty() ? "" : between) + right;
}

}  // namespace

void ArrayVerdict::pass(Level level) {
  if (!failed()) {
    verdict_.passed.push_back(level);
  }
}

void ArrayVerdict::note(const ArrayBuffers& buffers, Level level, const std::string& what,
                        const EntriesCompared& entries,
                        const std::function<Hypothesis()>& diagnose) {
  verdict_.compared += entries.compared;
  const auto memory = memory_fault(buffers);
  if (failed() || (entries.wrong == 0 && !memory)) {
    return;
  }
  Hypothesis hypothesis = entries.wrong > 0 ? diagnose() : Hypothesis{};
  Failure failure{entries.wrong > 0 ? level : Level::kMemory,
                  joined(what, ": ", entries.first),
                  entries.wrong,
                  entries.compared,
                  {},
                  {},
                  {}};
  if (memory) {
    failure.what = joined(failure.what, "; ", memory->first);
    hypothesis = hypothesis.key.empty() ? memory->second : hypothesis;
  }
  failure.hypothesis = hypothesis.key;
  failure.explanation = hypothesis.sentence;
  verdict_.passed.clear();
  verdict_.status = Status::kFailed;
  verdict_.message = describe(failure);
  verdict_.failure = std::move(failure);
}

Verdict ArrayVerdict::conclude() {
  verdict_.rows_checked = 1;
  verdict_.status = failed() ? Status::kFailed : Status::kPassed;
  return std::move(verdict_);
}

}  // namespace lora_bench
