#include "run/fuzz.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>

#include "core/error.h"
#include "core/units.h"
#include "ops/plugin.h"
#include "run/contestant.h"
#include "run/describe.h"
#include "run/progress.h"
#include "run/select.h"
#include "run/watch.h"
#include "scenario/scenario.h"
#include "verify/random_case.h"

namespace lora_bench {
namespace {

// What one failure may cost in making it smaller.
constexpr std::int64_t kMostTries = 1000;
constexpr double kMostSeconds = 30;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool failing(Status status) {
  return status == Status::kFailed || status == Status::kError || status == Status::kHung;
}

const char* what_became(Status status) {
  return status == Status::kHung    ? "hung"
         : status == Status::kError ? "gave an error"
                                    : "was wrong";
}

struct Entrant {
  Contestant contestant;
  FuzzCount count;
  bool out = false;
  bool unusable = false;  // it said so of its machine
};

std::vector<Entrant> entrants(const FuzzRequest& request) {
  std::vector<Entrant> all;
  const auto common = std::make_shared<Prover>(request.timeout_s);
  for (const std::string& spelling :
       request.backends.empty() ? usable_backends() : request.backends) {
    Entrant entrant{.contestant = Contestant(spelling, request.timeout_s, common), .count = {}};
    entrant.count.backend = entrant.contestant.name();
    const bool twice = std::any_of(all.begin(), all.end(), [&](const Entrant& other) {
      return other.count.backend == entrant.count.backend;
    });
    if (twice) {
      throw UsageError(fmt::format("backend '{}' is named twice; tell plugins apart by NAME=PATH",
                                   entrant.count.backend));
    }
    all.push_back(std::move(entrant));
  }
  for (Entrant& entrant : all) {
    entrant.count.remark = entrant.contestant.why_not_here();
  }
  return all;
}

void make_writable_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || access(folder.c_str(), W_OK) != 0) {
    throw EnvironmentError(
        fmt::format("cannot write into '{}': name another folder for failed cases with --out",
                    folder.string()));
  }
}

// As the lines of a YAML comment.
std::string comment(const std::string& text) {
  std::string lines = "# ";
  for (const char c : text) {
    lines += c;
    lines += c == '\n' ? "#   " : "";
  }
  return lines + "\n";
}

// The file names its backend itself, but for a plugin, whose path a scenario does not take.
std::string command_for(const std::string& spelling, const std::filesystem::path& file,
                        const Proof& proof) {
  std::string command = "lora-bench verify " + shell_quoted(file.string());
  command += names_plugin(spelling) ? " --backends " + shell_quoted(spelling) : "";
  return command + (proof.crashed || proof.unusable ? " --isolate" : "");
}

class Fuzzer {
 public:
  explicit Fuzzer(const FuzzRequest& request)
      : request_(request), entrants_(entrants(request)), progress_(request.cases, request.quiet) {
    make_writable_folder(request.folder);
  }

  FuzzReport run();

 private:
  [[nodiscard]] bool out_of_time() const {
    return request_.time_limit_s && now_s() - started_ > *request_.time_limit_s;
  }
  [[nodiscard]] bool anyone_left() const {
    return std::any_of(entrants_.begin(), entrants_.end(),
                       [](const Entrant& one) { return !one.out; });
  }
  void over_all_cases();
  void one_case(std::uint64_t index);
  void one_case_of(Entrant& entrant, const Case& spec);
  void count(Entrant& entrant, const Proof& proof) const;
  void keep(Entrant& entrant, const Case& drawn, const Proof& proof);
  void keep_mistrusted(Entrant& entrant, const Case& drawn, const Proof& proof);
  FuzzFailure written(const Entrant& entrant, const Case& smallest, const Proof& last,
                      const Proof& as_drawn, std::string how_written);
  Case make_smaller(Entrant& entrant, const Case& drawn, Proof& last, std::string& how);
  [[nodiscard]] Case drawn(std::uint64_t index) const;
  [[nodiscard]] std::string file_text(const FuzzFailure& failure, const Case& spec) const;
  [[nodiscard]] std::filesystem::path free_path(const std::string& stem) const;
  void judge();

  const FuzzRequest& request_;
  std::vector<Entrant> entrants_;
  Progress progress_;
  FuzzReport report_;
  // Of the backend, its fault and the case but for its name: failures made small often are one
  // case.
  std::map<std::string, std::filesystem::path> written_;
  std::uint64_t index_ = 0;  // of the case in hand
  double started_ = now_s();
};

Case Fuzzer::drawn(std::uint64_t index) const {
  Case spec = fuzz_case(request_.seed, index);
  spec.id = fmt::format("fuzz-{}-{}", request_.seed, index);
  spec.scenario = spec.id;
  spec.verify.relations = request_.relations;
  spec.verify.timeout_s = request_.timeout_s;
  return spec;
}

std::string Fuzzer::file_text(const FuzzFailure& failure, const Case& spec) const {
  return comment(fmt::format("{} {}: {}", failure.backend, name(failure.status), failure.message)) +
         comment(fmt::format("case {} of `lora-bench fuzz --seed {}`, {}", failure.index,
                             request_.seed, failure.how_written)) +
         (failure.as_drawn == failure.message
              ? ""
              : comment(fmt::format("as drawn: {}: {}", name(failure.status_as_drawn),
                                    failure.as_drawn))) +
         comment("again: " + failure.command) + scenario_text(spec);
}

// A second backend that fails on the same case gets a file of its own, and what an earlier run
// found stays.
std::filesystem::path Fuzzer::free_path(const std::string& stem) const {
  std::filesystem::path path = request_.folder / (stem + ".yaml");
  std::error_code unknown;
  for (int next = 2; std::filesystem::exists(path, unknown); ++next) {
    path = request_.folder / fmt::format("{}-{}.yaml", stem, next);
  }
  return path;
}

void Fuzzer::count(Entrant& entrant, const Proof& proof) const {
  FuzzCount& count = entrant.count;
  const Status status = proof.row.status;
  ++count.cases;
  count.passed += status == Status::kPassed ? 1 : 0;
  count.mistrusted += status == Status::kMistrusted ? 1 : 0;
  count.skipped += status == Status::kSkipped ? 1 : 0;
  count.failed += failing(status) ? 1 : 0;
  if (status == Status::kSkipped) {
    ++count.skipped_because[proof.row.message];
  }
  entrant.unusable = entrant.unusable || proof.unusable;
  if (status == Status::kHung) {
    entrant.out = true;
    count.remark = "hung: left out of the rest";
  } else if (failing(status) && count.failed >= request_.failures_enough) {
    entrant.out = true;
    count.remark = "left out of the rest (--max-failures)";
  }
}

// The case as drawn must fail in a fresh process, and so must the one that is written: what it
// needs of earlier cases no command would bring back. Where it fails otherwise there, as a kernel
// may that is wrong when warm and crashes when not, that is the failure which a command shows.
Case Fuzzer::make_smaller(Entrant& entrant, const Case& spec, Proof& last, std::string& how) {
  const double begun = now_s();
  Proof first = last;
  std::int64_t tries = 0;
  const auto stop = [&] {
    return interrupted() || out_of_time() || tries >= kMostTries || now_s() - begun > kMostSeconds;
  };
  const auto fails_from = [&](const Case& smaller, Start start) {
    Proof proof = entrant.contestant.prove(smaller, start);
    if (proof.row.status != first.row.status || proof.crashed != first.crashed) {
      return false;
    }
    last = std::move(proof);
    return true;
  };
  how = "as drawn";
  if (first.row.status == Status::kHung) {
    return spec;  // every try would take as long
  }
  const Proof again = entrant.contestant.prove(spec, Start::kFreshProcess);
  if (!failing(again.row.status)) {
    how = "as drawn: it did not fail a second time, in a process that ran nothing before";
    return spec;
  }
  std::string otherwise;
  if (again.row.status != first.row.status || again.crashed != first.crashed) {
    otherwise = fmt::format("the second time, in a process that ran nothing before, it {}; ",
                            again.crashed ? again.row.message : what_became(again.row.status));
  }
  first = last = again;
  if (first.row.status == Status::kHung) {
    how = otherwise + "as drawn";
    return spec;
  }
  const Shrunk shrunk = shrink_case(
      spec,
      [&](const Case& smaller) {
        ++tries;
        return fails_from(smaller, Start::kFreshBackend);
      },
      stop);
  if (!fails_from(shrunk.spec, Start::kFreshProcess)) {
    how =
        otherwise + "as drawn: made smaller, it did not fail in a process that ran nothing before";
    last = again;
    return spec;
  }
  how = fmt::format("{}made smaller in {} of {} tries{}", otherwise, shrunk.steps, shrunk.tries,
                    stop() ? ", then ended early" : "");
  return shrunk.spec;
}

// Writes `smallest` to a file of its own, unless that was done, and tells of it. Throws
// EnvironmentError where it cannot.
FuzzFailure Fuzzer::written(const Entrant& entrant, const Case& smallest, const Proof& last,
                            const Proof& as_drawn, std::string how_written) {
  FuzzFailure failure;
  failure.how_written = std::move(how_written);
  failure.backend = entrant.count.backend;
  failure.index = index_;
  failure.status = last.row.status;
  failure.status_as_drawn = as_drawn.row.status;
  Case nameless = smallest;
  nameless.scenario = nameless.id = "";
  const auto [known, is_new] =
      written_.emplace(fmt::format("{} {} {} {}", failure.backend, name(failure.status),
                                   last.row.proof.hypothesis, scenario_text(nameless)),
                       free_path(fmt::format("fuzz-{}-{}", request_.seed, index_)));
  failure.file = known->second;
  failure.how_written += is_new ? "" : ", which is the case of " + failure.file.filename().string();
  failure.command = command_for(entrant.contestant.spelling(), failure.file, last);
  failure.message = last.row.message;
  failure.as_drawn = as_drawn.row.message;
  progress_.clear();
  request_.tell(fmt::format("{} {} on case {}: {}\n  {}", name(failure.status), failure.backend,
                            failure.index, failure.message, failure.command));
  if (is_new) {
    std::ofstream file(failure.file);
    file << file_text(failure, smallest);
    file.close();
    if (!file) {
      throw EnvironmentError("cannot write '" + failure.file.string() + "'");
    }
  }
  return failure;
}

void Fuzzer::keep(Entrant& entrant, const Case& spec, const Proof& proof) {
  Proof last = proof;
  std::string how;
  const Case smallest = make_smaller(entrant, spec, last, how);
  report_.failures.push_back(written(entrant, smallest, last, proof, how));
}

void Fuzzer::keep_mistrusted(Entrant& entrant, const Case& spec, const Proof& proof) {
  if (entrant.count.mistrusted <= request_.failures_enough) {
    report_.mistrusted.push_back(written(entrant, spec, proof, proof, "as drawn"));
  }
}

void Fuzzer::one_case_of(Entrant& entrant, const Case& spec) {
  const Proof proof = entrant.contestant.prove(spec, Start::kOn);
  count(entrant, proof);
  if (failing(proof.row.status)) {
    keep(entrant, spec, proof);
  } else if (proof.row.status == Status::kMistrusted) {
    keep_mistrusted(entrant, spec, proof);
  }
}

void Fuzzer::one_case(std::uint64_t index) {
  index_ = index;
  Case spec = drawn(index);
  for (Entrant& entrant : entrants_) {
    if (entrant.out || interrupted()) {
      continue;
    }
    progress_.begin(fmt::format("case {} {}", index, entrant.count.backend));
    const std::string& spelling = entrant.contestant.spelling();
    spec.backends = names_plugin(spelling) ? std::vector<std::string>{} : std::vector{spelling};
    one_case_of(entrant, spec);
  }
  ++report_.cases;
  progress_.end();
}

void Fuzzer::over_all_cases() {
  for (std::int64_t index = 0; index < request_.cases; ++index) {
    if (interrupted()) {
      report_.ending = "interrupted";
      return;
    }
    if (out_of_time()) {
      report_.ending = fmt::format("the time limit of {} s ended it", *request_.time_limit_s);
      return;
    }
    if (!anyone_left()) {
      report_.ending = "no backend is left";
      return;
    }
    one_case(static_cast<std::uint64_t>(index));
  }
}

void Fuzzer::judge() {
  bool any_passed = false;
  bool unusable = false;
  for (const Entrant& entrant : entrants_) {
    const FuzzCount& count = entrant.count;
    any_passed = any_passed || count.passed > 0;
    unusable = unusable || entrant.unusable;
    report_.exit = worse(report_.exit, count.failed > 0       ? exit_code(Status::kFailed)
                                       : count.mistrusted > 0 ? exit_code(Status::kMistrusted)
                                                              : ExitCode::kPass);
    report_.counts.push_back(count);
  }
  if (!any_passed || interrupted()) {
    report_.exit = worse(report_.exit, ExitCode::kInconclusive);
  }
  // One that loses its device may be to blame itself, unless nothing else works either.
  if (!any_passed && unusable) {
    report_.exit = worse(report_.exit, ExitCode::kEnvironment);
  }
}

FuzzReport Fuzzer::run() {
  try {
    over_all_cases();
  } catch (const EnvironmentError& error) {
    report_.ending = error.what();
    report_.exit = ExitCode::kEnvironment;
  }
  progress_.clear();
  judge();
  report_.seconds = now_s() - started_;
  return report_;
}

}  // namespace

FuzzReport fuzz(const FuzzRequest& request) { return Fuzzer(request).run(); }

}  // namespace lora_bench
