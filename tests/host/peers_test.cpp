#include "report/peers.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "support/golden.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

// The rows of `cpu` and `naive` in two cases: 25 and 50.5 us, 70.125 and 65 us; floor 20 us.
Results ours() {
  Results results;
  results.file = "ours.jsonl";
  results.context = fixed_context();
  for (const Row& row : fixed_rows()) {
    if (row.status == Status::kPassed) {
      results.rows.push_back(row);
    }
  }
  return results;
}

// A row of a peer, as a run makes it.
Row peer_row(const Row& own, const char* backend, double time_us) {
  Row row = own;
  row.id.backend = backend;
  row.id.plugin = fmt::format("/lib/lora_bench/peers/{}.py sha256:1, {} 1.2", backend, backend);
  row.time.us = row.time.q1_us = row.time.q3_us = time_us;
  row.time.min_us = time_us - *own.time.noise_us;
  row.time.max_us = time_us + *own.time.noise_us;
  row.time.samples_us.assign(6, time_us);
  row.time.samples = 6;
  row.warning.clear();
  row.limits.missed.clear();
  derive_metrics(row);
  return row;
}

// The same of an earlier version: no floor, and what it is in a column of its own.
Row old_row(const Row& own, const char* backend, double time_us) {
  Row row = peer_row(own, backend, time_us);
  row.id.plugin.clear();
  row.id.peer = std::string(backend) + " 1.2";
  row.floor = {};
  derive_metrics(row);
  return row;
}

// The rows of `cpu`, each with a tax of 4 us now.
std::vector<Row*> taxed(Results& results) {
  std::vector<Row*> rows;
  for (Row& row : results.rows) {
    if (row.id.backend == "cpu") {
      row.tax.base_us = *row.time.us - 4;
      row.tax.us = 4;
      rows.push_back(&row);
    }
  }
  return rows;
}

// A peer's row of such a case, with a tax of its own.
Row peer_tax(const Row& own, const char* backend, double tax_us) {
  Row row = peer_row(own, backend, *own.tax.base_us + tax_us);
  row.tax.us = tax_us;
  return row;
}

// Rows of one file.
Results together(Results own, const std::vector<Row>& peers) {
  own.rows.insert(own.rows.end(), peers.begin(), peers.end());
  lend_floors(own);
  add_speedups(own.rows);
  return own;
}

const Row& find(const Results& results, const std::string& backend, std::size_t nth = 0) {
  for (const Row& row : results.rows) {
    if (row.id.backend == backend && nth-- == 0) {
      return row;
    }
  }
  throw std::logic_error("no such row");
}

std::vector<std::string> told_of(const std::vector<Row>& rows) {
  return notes_on_peers(rows, rows);
}

std::string rendered(const Results& results, bool markdown) {
  std::ostringstream out;
  const auto sink = markdown ? make_markdown_sink(out) : make_table_sink(out, {});
  render(results, results.rows, *sink);
  return out.str();
}

}  // namespace

TEST_CASE("the speedup of ours is over the best peer that passed") {
  const Row own = ours().rows.front();
  Row failed = peer_row(own, "wrong", 1);
  failed.status = Status::kFailed;
  const Results all =
      together(ours(), {peer_row(own, "slow", 100), failed, peer_row(own, "quick", 50)});
  CHECK(all.rows.size() == 7);
  CHECK(*find(all, "cpu").rates.speedup == doctest::Approx(2));
  CHECK(*find(all, "naive").rates.speedup == doctest::Approx(50 / 50.5));
  CHECK_FALSE(find(all, "cpu", 1).rates.speedup.has_value());  // no peer ran that case
  CHECK_FALSE(find(all, "quick").rates.speedup.has_value());
}

TEST_CASE("a peer that was timed in another way gives no speedup") {
  Row other = peer_row(ours().rows.front(), "peer", 50);
  other.step.cache = "hot";
  CHECK_FALSE(find(together(ours(), {other}), "cpu").rates.speedup.has_value());
}

TEST_CASE("a peer of an earlier version gets the floor of its case, on one device alone") {
  Results own = ours();
  own.timed_on = {own.context};
  const Row old = old_row(own.rows.front(), "old", 30);
  const Row lent = find(together(own, {old}), "old");
  CHECK(lent.floor.us == 20.0);
  CHECK(lent.floor.ratio == 1.5);
  Row other = old;
  other.step.cache = "hot";
  CHECK_FALSE(find(together(own, {other}), "old").floor.us.has_value());
  other = old;
  other.step.weight_bytes += 1;
  CHECK_FALSE(find(together(own, {other}), "old").floor.us.has_value());
  own.timed_on.push_back(own.context);
  CHECK_FALSE(find(together(own, {old}), "old").floor.us.has_value());
}

TEST_CASE("the share of a peer's tax that ours is is told") {
  Results own = ours();
  std::vector<Row> theirs;
  for (Row* const row : taxed(own)) {
    theirs.push_back(peer_tax(*row, "other", 16));
  }
  const Results merged = together(own, theirs);
  const std::vector<std::string> notes = told_of(merged.rows);
  CHECK(std::count(
            notes.begin(), notes.end(),
            "tax of cpu: 0.25 of that of other in geometric mean of 2 cases, at most 0.25") == 1);
  // What is no layer has none.
  for (Row& row : theirs) {
    row.tax.us.reset();
    row.tax.base_us.reset();
  }
  CHECK(told_of(together(own, theirs).rows).size() == notes.size() - 1);
}

TEST_CASE("cases whose tax is below its noise are in no mean, but told, with whose tax it is") {
  Results own = ours();
  std::vector<Row> theirs;
  for (const Row* const row : taxed(own)) {
    theirs.push_back(peer_tax(*row, "other", 8));
  }
  REQUIRE(theirs.size() == 2);
  const auto told = [&] {
    std::string text;
    for (const std::string& note : told_of(together(own, theirs).rows)) {
      text += note.starts_with("tax of ") ? note : "";
    }
    return text;
  };
  theirs[1].tax.us.reset();
  CHECK(told() ==
        "tax of cpu: 0.50 of that of other in geometric mean of 1 case, at most 0.50; 1 case left "
        "out, tax below its noise: of cpu in 0, of other in 1");
  for (Row& row : own.rows) {
    row.tax.us.reset();
  }
  CHECK(told() ==
        "tax of cpu: nowhere to be held against that of other; 2 cases left out, tax below its "
        "noise: of cpu in 2, of other in 1");
}

TEST_CASE("the share of a tax is the mean of what can be compared, its most that of any case") {
  Results own = ours();
  std::vector<Row> theirs;
  double share = 2;
  for (const Row* const row : taxed(own)) {
    for (int repetition = 0; repetition < share; repetition += 2) {
      theirs.push_back(peer_tax(*row, "other", 4 * share));
    }
    theirs.push_back(theirs.back());
    theirs.back().id.backend = "warm";
    theirs.back().step.cache = "hot";
    theirs.push_back(theirs.back());
    theirs.back().id.backend = "wrong";
    theirs.back().step.cache = row->step.cache;
    theirs.back().status = Status::kFailed;
    share *= 2;
  }
  std::vector<std::string> told;
  for (const std::string& note : told_of(together(own, theirs).rows)) {
    if (note.starts_with("tax of ")) {
      told.push_back(note);
    }
  }
  // A half once, a quarter twice.
  CHECK(told ==
        std::vector<std::string>{
            "tax of cpu: 0.31 of that of other in geometric mean of 2 cases, at most 0.50"});
}

TEST_CASE("the fastest are counted by case, and what nobody can tell is no win") {
  const Results own = ours();
  const auto first_note = [&](const std::vector<Row>& rows) {
    return told_of(together(own, rows).rows).front();
  };
  const Row& at_8 = own.rows[0];
  const Row& at_64 = own.rows[2];
  CHECK(first_note({peer_row(at_8, "vllm", 50), peer_row(at_64, "vllm", 40)}) ==
        "cpu fastest in 1 of 2 cases, vllm in 1");
  // 50 us beside 25 of cpu, 40 beside 65 of naive.
  CHECK(told_of(together(own, {peer_row(at_8, "vllm", 50), peer_row(at_64, "vllm", 40)}).rows)
            .at(1) ==
        "the best peer takes 1.11 times as long as the best of ours in geometric mean of 2 cases, "
        "0.62 to 2.00");
  // 25.1 and 25 us differ by less than the noise of 0.25 us.
  CHECK(first_note({peer_row(at_8, "vllm", 25.1), peer_row(at_64, "vllm", 400)}) ==
        "naive fastest in 1 of 2 cases, within the noise in 1");
  Row failed = peer_row(at_64, "vllm", 40);
  failed.status = Status::kFailed;
  CHECK(first_note({peer_row(at_8, "vllm", 50), failed}) ==
        "cpu fastest in 1 of 1 case; 1 case without a time of both sides");
  CHECK(told_of(own.rows).empty());
}

TEST_CASE("a kernel of a file is counted under its own name, and is none of ours") {
  Results own = ours();
  const Row at_8 = own.rows[0], at_64 = own.rows[2];
  const auto mine = [](const Row& like, double time_us) {
    Row row = peer_row(like, "mine", time_us);
    row.id.plugin = "/home/me/mine.py sha256:00, Python 3.11.7";
    return row;
  };
  own.rows.push_back(mine(at_8, 10));
  own.rows.push_back(mine(at_64, 20));
  const std::vector<std::string> told =
      told_of(together(own, {peer_row(at_8, "vllm", 50), peer_row(at_64, "vllm", 40)}).rows);
  CHECK(told[0] == "mine fastest in 2 of 2 cases");
  CHECK(told[1] ==
        "the best peer takes 1.11 times as long as the best of ours in geometric mean of 2 cases, "
        "0.62 to 2.00");
  CHECK(told[2] ==
        "the best peer takes 3.16 times as long as mine in geometric mean of 2 cases, 2.00 to "
        "5.00");
}

TEST_CASE("a repeat that did not pass stands for its backend: no win, speedup or share of a tax") {
  Results own = ours();
  own.rows.resize(2);  // one case: cpu in 25 us, naive in 50.5
  for (Row& row : own.rows) {
    row.tax.base_us = *row.time.us - 4;
    row.tax.us = 4;
  }
  std::vector<Row> theirs{peer_row(own.rows[0], "vllm", 40)};
  theirs.front().tax.us = 40 - *theirs.front().tax.base_us;
  const auto notes = [&](const std::vector<Row>& ours_too, const std::vector<Row>& theirs_too) {
    Results all = own;
    all.rows.insert(all.rows.end(), ours_too.begin(), ours_too.end());
    std::vector<Row> of_peers = theirs;
    of_peers.insert(of_peers.end(), theirs_too.begin(), theirs_too.end());
    all = together(all, of_peers);
    std::vector<std::string> told = told_of(all.rows);
    told.push_back(find(all, "cpu").rates.speedup ? "cpu has a speedup" : "cpu has none");
    return told;
  };
  CHECK(notes({}, {}).front() == "cpu fastest in 1 of 1 case");
  for (const Status status : {Status::kFailed, Status::kInvalid}) {
    Row wrong = own.rows[0];
    wrong.id.repetition = 1;
    wrong.status = status;
    const std::vector<std::string> without_ours = notes({wrong}, {});
    CHECK(without_ours.front() == "vllm fastest in 1 of 1 case");
    CHECK(without_ours[1].starts_with("tax of naive: "));
    CHECK(without_ours.back() == "cpu has none");
    Row of_peer = theirs.front();
    of_peer.id.repetition = 1;
    of_peer.status = status;
    const std::vector<std::string> without_theirs = notes({}, {of_peer});
    CHECK(without_theirs.front() == "1 case without a time of both sides");
    CHECK(without_theirs[1] == "vllm is vllm 1.2");
    CHECK(without_theirs.back() == "cpu has none");
  }
  Row skipped = own.rows[0];
  skipped.id.repetition = 1;
  skipped.status = Status::kSkipped;
  CHECK(notes({skipped}, {}).front() == "cpu fastest in 1 of 1 case");
}

TEST_CASE("times that were taken otherwise decide no case") {
  const Results own = ours();
  Row warm = peer_row(own.rows.front(), "vllm", 50);
  warm.step.cache = "hot";
  const Results all = together(own, {warm});
  CHECK(told_of(all.rows).front() == "2 cases without a time of both sides");
}

TEST_CASE("a win is one beyond the noise of either side, of the median of repeats") {
  Results own = ours();
  own.rows.resize(1);  // cpu in 25 us, known to 0.25
  const auto first_note = [&](const std::vector<Row>& rows) {
    return told_of(together(own, rows).rows).front();
  };
  Row peer = peer_row(own.rows.front(), "vllm", 26);
  CHECK(first_note({peer}) == "cpu fastest in 1 of 1 case");
  peer.time.min_us = 24;
  peer.time.max_us = 28;
  peer.time.noise_us = 1.5;
  CHECK(first_note({peer}) == "within the noise in 1 of 1 case");
  peer.time.noise_us = 0.25;
  own.rows.front().time.noise_us = 1.5;
  CHECK(first_note({peer}) == "within the noise in 1 of 1 case");
  own = ours();
  own.rows.resize(1);
  const auto repeated = [&](const char* backend) {
    return first_note({peer_row(own.rows.front(), backend, 23),
                       peer_row(own.rows.front(), backend, 30),
                       peer_row(own.rows.front(), backend, 31)});
  };
  CHECK(repeated("vllm") == "cpu fastest in 1 of 1 case");
  CHECK(repeated("cpu") == "cpu fastest in 1 of 1 case");  // of the name of ours
}

TEST_CASE("a table with peers says what they are, and keeps one that failed") {
  const Results own = ours();
  Row failed = peer_row(own.rows[2], "vllm", 40);
  failed.status = Status::kFailed;
  failed.message = "bounded: 3 of 4096 wrong; token 5, adapter 2, slice 0, column 7";
  failed.time = {};
  failed.floor.ratio.reset();
  failed.floor.stream_ratio.reset();
  failed.rates = {};
  const Results all = together(own, {peer_row(own.rows[0], "vllm", 50), failed});
  check_golden("table_peers.txt", rendered(all, false));
  check_golden("peers.md", rendered(all, true));
}
