#include "report/screen.h"

#include <fmt/format.h>
#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <utility>

namespace lora_bench {

namespace {

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

template <class Key, class Group, class Make>
Group& find_or_add(std::vector<Group>& groups, std::map<Key, std::size_t>& index, const Key& key,
                   Make&& make) {
  const auto [found, added] = index.emplace(key, groups.size());
  if (added) {
    groups.push_back(make());
  }
  return groups[found->second];
}

std::string shared_settings(const ScenarioGroup& group) {
  std::vector<std::string> shared;
  for (std::string Row::Step::*field :
       {&Row::Step::op, &Row::Step::dtype, &Row::Step::cache, &Row::Step::mode}) {
    const std::string& first = group.cases.front().front()->step.*field;
    bool same = !first.empty();
    for (const CaseGroup& rows : group.cases) {
      for (const Row* row : rows) {
        same = same && (row->step.*field == first || (row->step.*field).empty());
      }
    }
    if (same) {
      shared.push_back(first);
    }
  }
  return fmt::format("{}", fmt::join(shared, ", "));
}

void sort_by(CaseGroup& group, std::string_view rank_by) {
  const auto time_of = [&](const Row* row) {
    return ranked_us(*row, rank_by).value_or(std::numeric_limits<double>::infinity());
  };
  std::stable_sort(group.begin(), group.end(), [&](const Row* left, const Row* right) {
    return time_of(left) < time_of(right);
  });
}

}  // namespace

std::size_t screen_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string clipped(const std::string& text, std::size_t width) {
  if (screen_width(text) <= width) {
    return text;
  }
  const std::string_view mark = std::string_view("..").substr(0, std::min<std::size_t>(width, 2));
  std::size_t kept = 0;
  std::size_t bytes = 0;
  for (; bytes < text.size(); ++bytes) {
    if (starts_character(text[bytes]) && kept++ == width - mark.size()) {
      break;
    }
  }
  return text.substr(0, bytes).append(mark);
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += ' ';
    } else {
      line += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
    }
  }
  return line;
}

std::string_view rank_column(std::string_view rank_by) {
  return rank_by == "alone_us" ? "alone_us" : "time_us";
}

std::optional<double> ranked_us(const Row& row, std::string_view rank_by) {
  return rank_column(rank_by) == "alone_us" ? row.time.alone_us : row.time.us;
}

double ranked_noise_us(const Row& row, std::string_view rank_by) {
  return (rank_column(rank_by) == "alone_us" ? row.time.alone_noise_us : row.time.noise_us)
      .value_or(0);
}

std::vector<ScenarioGroup> group_rows(const std::vector<Row>& rows, std::string_view rank_by) {
  std::vector<ScenarioGroup> scenarios;
  std::map<std::string, std::size_t> scenario_index;
  std::map<std::pair<std::string, std::string>, std::size_t> case_index;
  for (const Row& row : rows) {
    ScenarioGroup& scenario = find_or_add(scenarios, scenario_index, row.id.scenario, [&] {
      return ScenarioGroup{row.id.scenario, "", {}};
    });
    const std::pair key{row.id.scenario, row.id.case_id};
    find_or_add(scenario.cases, case_index, key, [] { return CaseGroup{}; }).push_back(&row);
  }
  for (ScenarioGroup& scenario : scenarios) {
    scenario.settings = shared_settings(scenario);
    for (CaseGroup& group : scenario.cases) {
      if (!rank_by.empty()) {
        sort_by(group, rank_by);
      }
    }
  }
  return scenarios;
}

CaseGroup timed_rows(const CaseGroup& rows) {
  std::set<std::pair<std::string, bool>> fallen;  // backends, and whether they are peers
  const auto contender = [](const Row* row) {
    return std::pair(row->id.backend, row->id.peer.empty());
  };
  for (const Row* row : rows) {
    if (row->doubted || exit_code(row->status) != ExitCode::kPass) {
      fallen.insert(contender(row));
    }
  }
  CaseGroup timed;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(timed), [&](const Row* row) {
    return row->status == Status::kPassed && row->time.us && fallen.count(contender(row)) == 0;
  });
  return timed;
}

const Row* best_of(const CaseGroup& rows, std::string_view rank_by) {
  CaseGroup timed = timed_rows(rows);
  std::erase_if(timed, [&](const Row* row) { return !ranked_us(*row, rank_by); });
  const bool alike = std::all_of(timed.begin(), timed.end(), [&](const Row* row) {
    return row->step.cache == timed.front()->step.cache &&
           row->step.mode == timed.front()->step.mode;
  });
  const bool rivals = std::any_of(timed.begin(), timed.end(), [&](const Row* row) {
    return row->id.backend != timed.front()->id.backend;
  });
  if (!rivals || !alike) {
    return nullptr;
  }
  return *std::min_element(timed.begin(), timed.end(), [&](const Row* left, const Row* right) {
    return *ranked_us(*left, rank_by) < *ranked_us(*right, rank_by);
  });
}

std::string count_by_status(const std::vector<Row>& rows) {
  std::map<Status, int> counts;
  for (const Row& row : rows) {
    ++counts[row.status];
  }
  std::vector<std::string> parts;
  for (const auto& [status, count] : counts) {
    parts.push_back(fmt::format("{} {}", count, name(status)));
  }
  return fmt::format("{} row{}{}{}", rows.size(), rows.size() == 1 ? "" : "s",
                     parts.empty() ? "" : ": ", fmt::join(parts, ", "));
}

namespace {

// A warning without its figures: "limit reached: median known to 1.1 %" and "... 2.4 %" are one,
// and so are "tax < noise (1.1 us)" and "... (2.4 us)".
std::string kind_of(const std::string& warning) {
  std::string kind = warning.substr(0, warning.find_first_of(":("));
  std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
  return kind;
}

// "decode1-o auto, decode8-o auto and 5 more".
std::string names_of_some(const std::vector<std::string>& rows) {
  constexpr std::size_t kMost = 3;
  const std::size_t named = std::min(rows.size(), kMost);
  std::string text = fmt::format("{}", fmt::join(std::span(rows).first(named), ", "));
  return named == rows.size() ? text : text + fmt::format(" and {} more", rows.size() - named);
}

}  // namespace

std::vector<std::string> count_by_warning(const std::vector<Row>& rows) {
  struct Kind {
    int count = 0;
    std::string first;
    std::vector<std::string> rows;  // repeats are of one name
  };
  std::map<std::string, Kind> kinds;
  for (const Row& row : rows) {
    const std::string row_name = one_line(row.id.case_id + " " + row.id.backend);
    std::istringstream sentences(one_line(row.warning));
    std::set<std::string> of_row;
    for (std::string sentence; std::getline(sentences >> std::ws, sentence, ';');) {
      if (!of_row.insert(kind_of(sentence)).second) {
        continue;
      }
      Kind& kind = kinds[kind_of(sentence)];
      kind.first = kind.count++ == 0 ? sentence : kind.first;
      if (std::find(kind.rows.begin(), kind.rows.end(), row_name) == kind.rows.end()) {
        kind.rows.push_back(row_name);
      }
    }
  }
  std::vector<std::string> lines;
  lines.reserve(kinds.size());
  for (const auto& [text, kind] : kinds) {
    const std::string counted =
        kind.count == 1 ? "1 row" : fmt::format("{} rows, the first", kind.count);
    lines.push_back(fmt::format("{}: {} [{}]", counted, kind.first, names_of_some(kind.rows)));
  }
  return lines;
}

std::vector<std::string> notes_of(const Row& row) {
  std::vector<std::string> notes;
  if (row.status != Status::kPassed && !row.message.empty()) {
    notes.push_back(one_line(row.message));
  }
  if (!row.limits.missed.empty()) {
    notes.push_back("missed: " + one_line(row.limits.missed));
  }
  if (!row.limits.undecided.empty()) {
    notes.push_back("undecided: " + one_line(row.limits.undecided));
  }
  return notes;
}

std::string aligned_table(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], screen_width(line[i]));
    }
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      text += i == 0 ? "" : "  ";
      text.append(widths[i] - screen_width(line[i]), ' ').append(line[i]);
    }
    text += '\n';
  }
  return text;
}

std::string markdown_table(const std::vector<std::vector<std::string>>& lines) {
  std::string text;
  for (const auto& line : lines) {
    for (const std::string& cell : line) {
      text += fmt::format("| {} ", markdown_cell(cell));
    }
    text += "|\n";
    if (&line == &lines.front()) {
      for (std::size_t i = 0; i < line.size(); ++i) {
        text += "| ---: ";
      }
      text += "|\n";
    }
  }
  return text;
}

}  // namespace lora_bench
