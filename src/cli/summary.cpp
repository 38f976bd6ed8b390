#include "cli/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

namespace lora_bench {
namespace {

constexpr std::array<Status, 7> kStatuses{Status::kPassed,  Status::kFailed,  Status::kMistrusted,
                                          Status::kSkipped, Status::kInvalid, Status::kHung,
                                          Status::kError};

std::string counts_text(const std::map<Status, std::int64_t>& counts) {
  std::string text;
  for (const Status status : kStatuses) {
    const auto found = counts.find(status);
    if (found != counts.end()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", found->second, name(status));
    }
  }
  return text;
}

}  // namespace

std::string meaning(ExitCode code) {
  switch (code) {
    case ExitCode::kPass:
      return "pass";
    case ExitCode::kUsage:
      return "usage or scenario error";
    case ExitCode::kWrongResult:
      return "wrong result";
    case ExitCode::kRegression:
      return "threshold missed or regression";
    case ExitCode::kInconclusive:
      return "inconclusive";
    case ExitCode::kEnvironment:
      return "device or environment";
  }
  return "";
}

std::string run_summary(const RunReport& report) {
  std::map<Status, std::int64_t> counts;
  std::int64_t missed = 0;
  std::int64_t undecided = 0;
  for (const Row& row : report.rows) {
    ++counts[row.status];
    missed += row.limits.missed.empty() ? 0 : 1;
    undecided += row.limits.undecided.empty() ? 0 : 1;
  }
  std::string text = fmt::format("{} row{}: {}", report.rows.size(),
                                 report.rows.size() == 1 ? "" : "s", counts_text(counts));
  if (missed > 0) {
    text += fmt::format("; {} missed a threshold", missed);
  }
  if (undecided > 0) {
    text += fmt::format("; {} too near a threshold to tell", undecided);
  }
  text += fmt::format("; exit {} ({})", static_cast<int>(report.exit), meaning(report.exit));
  for (const std::string& note : report.notes) {
    text += "\n" + note;
  }
  if (!report.ending.empty()) {
    text += "\n" + report.ending;
  }
  return text;
}

std::string failure_report(const std::vector<Row>& rows, std::size_t most) {
  std::string text;
  std::size_t told = 0;
  std::size_t left = 0;
  for (const Row& row : rows) {
    if (row.status == Status::kPassed || row.status == Status::kSkipped) {
      continue;
    }
    if (told == most) {
      ++left;
      continue;
    }
    ++told;
    text += fmt::format("\n{} {} {} on {}\n  {}\n", name(row.status), row.id.scenario,
                        row.id.case_id, row.id.backend, row.message);
    std::istringstream elements(row.proof.first_wrong);
    for (std::string element; std::getline(elements >> std::ws, element, ';');) {
      text += fmt::format("    {}\n", element);
    }
    text += fmt::format("  again: {}\n", row.repro);
  }
  if (left > 0) {
    text += fmt::format("\n... and {} more; --out FILE.jsonl keeps them all\n", left);
  }
  return text;
}

std::string skip_reasons(const std::vector<Row>& rows) {
  std::map<std::pair<std::string, std::string>, std::int64_t> counts;
  for (const Row& row : rows) {
    if (row.status == Status::kSkipped) {
      ++counts[{row.id.backend, row.message}];
    }
  }
  std::string text;
  for (const auto& [key, count] : counts) {
    text += fmt::format("SKIPPED on {}: {} case{}: {}\n", key.first, count, count == 1 ? "" : "s",
                        key.second);
  }
  return text;
}

std::string proof_table(const std::vector<Row>& rows) {
  struct Group {
    std::map<Status, std::int64_t> counts;
    std::int64_t cases = 0;
    double worst_share = 0;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;
  std::size_t backend_width = 7;
  for (const Row& row : rows) {
    Group& group = groups[{row.id.backend, row.step.dtype}];
    ++group.cases;
    ++group.counts[row.status];
    group.worst_share = std::max(group.worst_share, row.proof.bound_share.value_or(0));
    backend_width = std::max(backend_width, row.id.backend.size());
  }
  std::string text = fmt::format("{:<{}}  {:<5}  {:>5}  {:>11}  {}\n", "backend", backend_width,
                                 "dtype", "cases", "bound share", "verdicts");
  for (const auto& [key, group] : groups) {
    text += fmt::format(
        "{:<{}}  {:<5}  {:>5}  {:>11}  {}\n", key.first, backend_width, key.second, group.cases,
        group.counts.count(Status::kPassed) > 0 ? fmt::format("{:.1f}%", group.worst_share * 100)
                                                : "-",
        counts_text(group.counts));
  }
  return text;
}

}  // namespace lora_bench
