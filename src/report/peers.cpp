#include "report/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "report/doubts.h"
#include "report/screen.h"

namespace lora_bench {
namespace {

// Of rows of earlier versions the column peer says it, of others where the file of the backend
// lies.
bool is_peer(const Row& row) {
  return !row.id.peer.empty() || row.id.plugin.find("lora_bench/peers/") != std::string::npos;
}

// Whose kernel it is: the program's own, that of a file which the command line named, or a peer's.
enum class Side : std::uint8_t { kOurs, kNamed, kPeer };
Side side_of(const Row& row) {
  return is_peer(row) ? Side::kPeer : row.id.plugin.empty() ? Side::kOurs : Side::kNamed;
}

void add_speedup(Row& own, const CaseGroup& timed, const std::string& rank_by) {
  const std::optional<double> own_us = ranked_us(own, rank_by);
  for (const Row* peer : timed) {
    const std::optional<double> peer_us = ranked_us(*peer, rank_by);
    if (own_us && peer_us && is_peer(*peer) && timed_alike(own, *peer)) {
      const double speedup = *peer_us / *own_us;
      own.rates.speedup = std::min(own.rates.speedup.value_or(speedup), speedup);
    }
  }
}

// The median over its repeats stands for a backend.
struct Contender {
  std::string backend;
  Side side = Side::kOurs;
  std::vector<double> times_us;
  double noise_us = 0;

  [[nodiscard]] double time_us() const {
    std::vector<double> sorted = times_us;
    std::sort(sorted.begin(), sorted.end());
    return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  }
};

std::vector<Contender> contenders_of(const CaseGroup& timed, const std::string& rank_by) {
  std::vector<Contender> all;
  for (const Row* row : timed) {
    const std::optional<double> us = ranked_us(*row, rank_by);
    if (!us) {
      continue;
    }
    auto found = std::find_if(all.begin(), all.end(), [&](const Contender& known) {
      return known.backend == row->id.backend && known.side == side_of(*row);
    });
    if (found == all.end()) {
      found = all.insert(all.end(), Contender{row->id.backend, side_of(*row), {}, 0});
    }
    found->times_us.push_back(*us);
    found->noise_us = std::max(found->noise_us, ranked_noise_us(*row, rank_by));
  }
  return all;
}

// Of those of which `asked` is true; null = none.
template <typename Asked>
const Contender* fastest(const std::vector<Contender>& contenders, Asked asked) {
  const Contender* best = nullptr;
  for (const Contender& contender : contenders) {
    if (asked(contender) && (best == nullptr || contender.time_us() < best->time_us())) {
      best = &contender;
    }
  }
  return best;
}

// Time of the best peer over that of others.
struct Quotients {
  std::int64_t cases = 0;
  double logarithms = 0;
  double least = std::numeric_limits<double>::infinity(), most = 0;
};

void add(Quotients& quotients, double quotient) {
  ++quotients.cases;
  quotients.logarithms += std::log(quotient);
  quotients.least = std::min(quotients.least, quotient);
  quotients.most = std::max(quotients.most, quotient);
}

struct Wins {
  std::int64_t cases = 0;       // with a time of both sides, taken alike
  std::int64_t incomplete = 0;  // others
  std::int64_t undecided = 0;
  std::map<std::string, std::int64_t> by_backend;
  Quotients of_ours;                          // over the best of ours
  std::map<std::string, Quotients> of_named;  // over each kernel of a file
};

bool taken_alike(const CaseGroup& timed) {
  return std::all_of(timed.begin(), timed.end(),
                     [&](const Row* row) { return timed_alike(*timed.front(), *row); });
}

void count(Wins& wins, const CaseGroup& rows, const std::string& rank_by) {
  const CaseGroup timed = timed_rows(rows);
  const std::vector<Contender> contenders = contenders_of(timed, rank_by);
  const auto best_of = [&](auto asked) { return fastest(contenders, asked); };
  const Contender* peer = best_of([](const Contender& one) { return one.side == Side::kPeer; });
  const Contender* other = best_of([](const Contender& one) { return one.side != Side::kPeer; });
  if (other == nullptr || peer == nullptr || !taken_alike(timed)) {
    ++wins.incomplete;
    return;
  }
  ++wins.cases;
  const Contender* own = best_of([](const Contender& one) { return one.side == Side::kOurs; });
  if (own != nullptr) {
    add(wins.of_ours, peer->time_us() / own->time_us());
  }
  for (const Contender& one : contenders) {
    if (one.side == Side::kNamed) {
      add(wins.of_named[one.backend], peer->time_us() / one.time_us());
    }
  }
  const Contender* first = other->time_us() < peer->time_us() ? other : peer;
  // Kernels of one side are no rivals.
  const Contender* second = best_of([&](const Contender& one) { return one.side != first->side; });
  if (second->time_us() - first->time_us() <= std::max(first->noise_us, second->noise_us)) {
    ++wins.undecided;
  } else {
    ++wins.by_backend[first->backend];
  }
}

// Of layers that both have run: how much of a peer's tax one of ours is.
struct Taxes {
  std::set<std::pair<std::string, std::string>> cases;
  double pairs = 0;  // of rows: more than cases where they were repeated
  double logarithms = 0;
  double most = 0;
  // Left out, for no mean takes a tax below its noise: cases with such a tax of ours, of the peer,
  // of any. A case of several repetitions may be among `cases` as well.
  std::set<std::pair<std::string, std::string>> own_below, peer_below, below;
};

using TaxesByBackends = std::map<std::pair<std::string, std::string>, Taxes>;

void add_taxes(TaxesByBackends& taxes, const CaseGroup& timed) {
  for (const Row* own : timed) {
    for (const Row* peer : timed) {
      if (is_peer(*own) || !is_peer(*peer) || !timed_alike(*own, *peer) || !own->tax.base_us ||
          !peer->tax.base_us) {
        continue;
      }
      Taxes& known = taxes[{own->id.backend, peer->id.backend}];
      const std::pair name(own->id.scenario, own->id.case_id);
      if (!is_tax_known(*own)) {
        known.own_below.insert(name);
        known.below.insert(name);
      }
      if (!is_tax_known(*peer)) {
        known.peer_below.insert(name);
        known.below.insert(name);
      }
      if (!is_tax_known(*own) || !is_tax_known(*peer)) {
        continue;
      }
      const double share = *own->tax.us / *peer->tax.us;
      known.cases.insert(name);
      ++known.pairs;
      known.logarithms += std::log(share);
      known.most = std::max(known.most, share);
    }
  }
}

TaxesByBackends taxes_of(const std::vector<Row>& rows) {
  TaxesByBackends taxes;
  for (const ScenarioGroup& scenario : group_rows(rows)) {
    for (const CaseGroup& group : scenario.cases) {
      add_taxes(taxes, timed_rows(group));
    }
  }
  return taxes;
}

std::string cases_text(std::int64_t count) {
  return fmt::format("{} case{}", count, count == 1 ? "" : "s");
}

std::string taxes_text(const std::string& own, const std::string& peer, const Taxes& taxes) {
  std::string text =
      taxes.cases.empty()
          ? fmt::format("tax of {}: nowhere to be held against that of {}", own, peer)
          : fmt::format("tax of {}: {:.2f} of that of {} in geometric mean of {}, at most {:.2f}",
                        own, std::exp(taxes.logarithms / taxes.pairs), peer,
                        cases_text(std::ssize(taxes.cases)), taxes.most);
  if (taxes.below.empty()) {
    return text;
  }
  return text + fmt::format("; {} left out, tax below its noise: of {} in {}, of {} in {}",
                            cases_text(std::ssize(taxes.below)), own, taxes.own_below.size(), peer,
                            taxes.peer_below.size());
}

std::string wins_text(const Wins& wins) {
  std::vector<std::pair<std::int64_t, std::string>> most_first;
  for (const auto& [backend, won] : wins.by_backend) {
    most_first.emplace_back(won, backend);
  }
  std::stable_sort(most_first.begin(), most_first.end(),
                   [](const auto& left, const auto& right) { return left.first > right.first; });
  std::string text;
  const auto add = [&](const std::string& what, std::int64_t won) {
    text += text.empty() ? fmt::format("{} in {} of {}", what, won, cases_text(wins.cases))
                         : fmt::format(", {} in {}", what, won);
  };
  for (const auto& [won, backend] : most_first) {
    add(text.empty() ? backend + " fastest" : backend, won);
  }
  if (wins.undecided > 0) {
    add("within the noise", wins.undecided);
  }
  if (wins.incomplete > 0) {
    text += fmt::format("{}{} without a time of both sides", text.empty() ? "" : "; ",
                        cases_text(wins.incomplete));
  }
  return text;
}

std::string quotients_text(const std::string& whom, const Quotients& quotients) {
  return fmt::format(
      "the best peer takes {:.2f} times as long as {} in geometric mean of {}, {:.2f} to {:.2f}",
      std::exp(quotients.logarithms / static_cast<double>(quotients.cases)), whom,
      cases_text(quotients.cases), quotients.least, quotients.most);
}

// Of one case the column speedup says it.
void add_quotients(const Wins& wins, std::vector<std::string>& notes) {
  if (wins.of_ours.cases > 1) {
    notes.push_back(quotients_text("the best of ours", wins.of_ours));
  }
  for (const auto& [backend, quotients] : wins.of_named) {
    if (quotients.cases > 1) {
      notes.push_back(quotients_text(backend, quotients));
    }
  }
}

// Of what is shown the rivals too, which were timed as it was.
std::vector<Row> of_cases_shown(const std::vector<Row>& shown, const std::vector<Row>& all) {
  std::map<std::pair<std::string, std::string>, CaseGroup> cases;
  for (const Row& row : shown) {
    cases[{row.id.scenario, row.id.case_id}].push_back(&row);
  }
  std::vector<Row> rows;
  for (const Row& row : all) {
    const CaseGroup& group = cases[{row.id.scenario, row.id.case_id}];
    if (std::any_of(group.begin(), group.end(),
                    [&](const Row* known) { return timed_alike(*known, row); })) {
      rows.push_back(row);
    }
  }
  return rows;
}

// Rows of peers of earlier versions have no floor of their own.
void lend_floor(Row& peer, const Row& own) {
  peer.floor.us = own.floor.us;
  peer.floor.stream_us = own.floor.stream_us;
  peer.floor.bound_by = own.floor.bound_by;
  peer.tax.floor_us = own.tax.floor_us;
  derive_metrics(peer);
}

// What a plugin says behind its file and hash.
std::string versions_of(const Row& row) {
  const std::string& plugin = row.id.plugin;
  const std::size_t end = plugin.find(", ", plugin.rfind(" sha256:"));
  return end == std::string::npos ? plugin : plugin.substr(end + 2);
}

bool wants_floor(const Row& row) { return !row.id.peer.empty() && !row.floor.stream_us; }

}  // namespace

void lend_floors(Results& results) {
  if (results.timed_on.size() > 1) {  // the floor is that of a device
    return;
  }
  std::vector<Row>& rows = results.rows;
  for (const ScenarioGroup& scenario : group_rows(rows)) {
    for (const CaseGroup& group : scenario.cases) {
      for (const Row* own : group) {
        for (const Row* peer : group) {
          if (own->floor.stream_us && wants_floor(*peer) && timed_alike(*own, *peer) &&
              other_work(*own, *peer).empty()) {
            lend_floor(rows[static_cast<std::size_t>(peer - rows.data())], *own);
          }
        }
      }
    }
  }
}

void add_speedups(std::vector<Row>& rows, const std::string& rank_by) {
  for (Row& row : rows) {
    row.rates.speedup.reset();
  }
  for (const ScenarioGroup& scenario : group_rows(rows)) {
    for (const CaseGroup& group : scenario.cases) {
      const CaseGroup timed = timed_rows(group);
      for (const Row* row : timed) {
        if (!is_peer(*row)) {
          add_speedup(rows[static_cast<std::size_t>(row - rows.data())], timed, rank_by);
        }
      }
    }
  }
}

std::vector<std::string> notes_on_peers(const std::vector<Row>& shown, const std::vector<Row>& all,
                                        const std::string& rank_by) {
  const std::vector<Row> rows = of_cases_shown(shown, all);
  if (std::none_of(rows.begin(), rows.end(), is_peer)) {
    return {};
  }
  Wins wins;
  for (const ScenarioGroup& scenario : group_rows(rows)) {
    for (const CaseGroup& group : scenario.cases) {
      count(wins, group, rank_by);
    }
  }
  std::vector<std::string> notes;
  if (!std::all_of(rows.begin(), rows.end(), is_peer)) {
    notes.push_back(wins_text(wins));
  }
  add_quotients(wins, notes);
  for (const auto& [backends, taxes] : taxes_of(rows)) {
    notes.push_back(taxes_text(backends.first, backends.second, taxes));
  }
  if (rows.size() > shown.size()) {
    notes.push_back(fmt::format("counted over all {} rows of these cases", rows.size()));
  }
  for (const Row& row : rows) {
    const std::string note = fmt::format(
        "{} is {}", row.id.backend, one_line(row.id.peer.empty() ? versions_of(row) : row.id.peer));
    if (is_peer(row) && std::find(notes.begin(), notes.end(), note) == notes.end()) {
      notes.push_back(note);
    }
  }
  return notes;
}

}  // namespace lora_bench
