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

// A row as scripts/peers writes it: no floor, and the time of a peer.
Row peer_row(const Row& own, const char* backend, double time_us) {
  Row row = own;
  row.id.backend = backend;
  row.id.peer = std::string(backend) + " 1.2";
  row.proof.levels = "bounded";
  row.time.us = row.time.q1_us = row.time.q3_us = time_us;
  row.time.min_us = time_us - *own.time.noise_us;
  row.time.max_us = time_us + *own.time.noise_us;
  row.time.samples_us.assign(6, time_us);
  row.time.samples = 6;
  row.warning.clear();
  row.limits.missed.clear();
  row.floor.us.reset();
  row.floor.ratio.reset();
  row.floor.bound_by.clear();
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

Results peers(std::vector<Row> rows) {
  Results results;
  results.file = "peers.jsonl";
  results.context = fixed_context();
  results.rows = std::move(rows);
  return results;
}

const Row& find(const Results& results, const std::string& backend, std::size_t nth = 0) {
  for (const Row& row : results.rows) {
    if (row.id.backend == backend && nth-- == 0) {
      return row;
    }
  }
  throw std::logic_error("no such row");
}

std::string refusal(const Results& other) {
  try {
    static_cast<void>(with_peers(ours(), other));
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
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
      with_peers(ours(), peers({peer_row(own, "slow", 100), failed, peer_row(own, "quick", 50)}));
  CHECK(all.rows.size() == 7);
  CHECK(*find(all, "cpu").rates.speedup == doctest::Approx(2));
  CHECK(*find(all, "naive").rates.speedup == doctest::Approx(50 / 50.5));
  CHECK_FALSE(find(all, "cpu", 1).rates.speedup.has_value());  // no peer ran that case
  CHECK_FALSE(find(all, "quick").rates.speedup.has_value());
  CHECK(all.warnings.empty());
}

TEST_CASE(
    "a SKIPPED row of a peer goes once the same case was run further down, and no other does") {
  const Row own = ours().rows.front();
  Row skipped = peer_row(own, "peer", 1);
  skipped.status = Status::kSkipped;
  skipped.id.peer = "not here";
  skipped.time.us.reset();
  const auto statuses = [&](const std::vector<Row>& rows) {
    std::string all;
    for (const Row& row : with_peers(ours(), peers(rows)).rows) {
      all += row.id.peer.empty() ? "" : fmt::format("{} ", name(row.status));
    }
    return all;
  };
  const Row run = peer_row(own, "peer", 50);
  CHECK(statuses({skipped, run}) == "PASSED ");
  CHECK(*find(with_peers(ours(), peers({skipped, run})), "cpu").rates.speedup ==
        doctest::Approx(2));
  CHECK(told_of(with_peers(ours(), peers({skipped, run})).rows).back() == "peer is peer 1.2");
  Row failed = run;
  failed.status = Status::kFailed;
  CHECK(statuses({skipped, failed}) == "FAILED ");
  CHECK(statuses({run, skipped}) == "PASSED SKIPPED ");
  CHECK(statuses({skipped, skipped}) == "SKIPPED SKIPPED ");
  CHECK(statuses({skipped, peer_row(own, "another", 50)}) == "SKIPPED PASSED ");
  CHECK(statuses({failed, run}) == "FAILED PASSED ");
  const Row elsewhere = peer_row(ours().rows.back(), "peer", 50);
  CHECK(statuses({skipped, elsewhere}) == "SKIPPED PASSED ");
}

TEST_CASE("a peer that was timed in another way gives no speedup") {
  Row other = peer_row(ours().rows.front(), "peer", 50);
  other.step.cache = "hot";
  CHECK_FALSE(find(with_peers(ours(), peers({other})), "cpu").rates.speedup.has_value());
}

TEST_CASE("a peer's row of another case of the same name is refused with what to do") {
  const Row own = ours().rows.front();
  Row other = peer_row(own, "peer", 50);
  other.step.tokens = own.step.tokens + 1;
  CHECK(refusal(peers({other})) ==
        "peers.jsonl: qkv/decode=8 on peer cannot stand beside ours.jsonl: another case of the "
        "same name: tokens '8' and '9'; export the case anew from the scenario that was run there");
  Results hashed = ours();
  hashed.rows.front().step.content = "0123456789abcdef";
  Row drawn = peer_row(own, "peer", 50);
  drawn.step.content = "fedcba9876543210";
  CHECK_THROWS_AS(static_cast<void>(with_peers(hashed, peers({drawn}))), UsageError);
}

TEST_CASE("a peer's row that moved other bytes or did other work than ours is refused") {
  const Row own = ours().rows.front();
  for (std::int64_t Row::Step::*const field :
       {&Row::Step::bytes, &Row::Step::weight_bytes, &Row::Step::flops}) {
    Row edited = peer_row(own, "peer", 50);
    edited.step.*field /= 2;
    derive_metrics(edited);
    CHECK(refusal(peers({edited}))
              .find("cannot stand beside ours.jsonl: another case of the same name: other bytes, "
                    "weight_bytes or flops; export the case anew") != std::string::npos);
  }
}

TEST_CASE("a peer's row that contradicts itself is INVALID, wherever it was measured") {
  const Row own = ours().rows.front();
  const std::vector<std::pair<std::string, std::function<void(Row&)>>> edits{
      {"time_us is not the median of samples_us", [](Row& row) { row.time.us = 40; }},
      {"PASSED with a time of fewer than two samples",
       [](Row& row) {
         row.time.samples_us = {50};
         row.time.samples = 1;
       }},
      {"PASSED with too few samples to know the median, and no warning",
       [](Row& row) {
         row.time.samples_us.resize(3);
         row.time.samples = 3;
       }},
      {"tokens_per_s is not tokens over time_us", [](Row& row) { *row.rates.tokens_per_s *= 2; }},
      {"bandwidth_GBps is not bytes over time_us",
       [](Row& row) { *row.rates.bandwidth_GBps *= 2; }},
      {"floor_ratio is not time_us over floor_us",
       [](Row& row) {
         row.floor.us = 20;
         row.floor.ratio = 1.1;
       }},
      {"PASSED without a level that was proved", [](Row& row) { row.proof.levels.clear(); }},
      {"PASSED with wrong elements", [](Row& row) { row.proof.first_wrong = "token 3"; }}};
  for (const bool one_device : {true, false}) {
    CAPTURE(one_device);
    for (const auto& edit : edits) {
      const std::string& doubt = edit.first;
      CAPTURE(doubt);
      Results theirs = peers({peer_row(own, "peer", 50)});
      theirs.context.device_identity = one_device ? theirs.context.device_identity : "another";
      CHECK(find(with_peers(ours(), theirs), "cpu").rates.speedup == doctest::Approx(2));
      edit.second(theirs.rows.front());
      const Results all = with_peers(ours(), theirs);
      CHECK(find(all, "peer").status == Status::kInvalid);
      CHECK(find(all, "peer").message == doubt);
      CHECK_FALSE(find(all, "cpu").rates.speedup.has_value());
    }
  }
}

TEST_CASE("a file of our own rows is no file of peers") {
  CHECK(refusal(ours()).find("on cpu is no row of a peer (its 'peer' is empty)") !=
        std::string::npos);
}

TEST_CASE("a peer's case that we have not is left out, and said so") {
  Row unknown = peer_row(ours().rows.front(), "peer", 50);
  unknown.id.case_id = "elsewhere";
  const Results all = with_peers(ours(), peers({unknown}));
  CHECK(all.rows.size() == 4);
  REQUIRE(all.warnings.size() == 1);
  CHECK(all.warnings.front() ==
        "peers.jsonl: 1 case that ours.jsonl has not, left out; the first: elsewhere of decode; "
        "no peer is left to show: run them on the cases of decode");
}

TEST_CASE("a file of peers of another scenario is told by the scenario to give") {
  Row known = peer_row(ours().rows.front(), "peer", 50);
  Row unknown = known;
  unknown.id.scenario = "other";
  const std::string left_out =
      "peers.jsonl: 1 case that ours.jsonl has not, left out; the first: " + unknown.id.case_id +
      " of other";
  CHECK(with_peers(ours(), peers({known, unknown})).warnings == std::vector<std::string>{left_out});
  CHECK(with_peers(ours(), peers({unknown})).warnings ==
        std::vector<std::string>{left_out +
                                 "; no peer is left to show: run them on the cases of decode"});
}

TEST_CASE("a peer gets our floor on one device alone, and a time below it is INVALID") {
  const Row own = ours().rows.front();
  const Results right = with_peers(ours(), peers({peer_row(own, "peer", 30)}));
  CHECK(*find(right, "peer").floor.ratio == doctest::Approx(1.5));
  CHECK(find(right, "peer").status == Status::kPassed);

  const Results impossible = with_peers(ours(), peers({peer_row(own, "peer", 10)}));
  CHECK(find(impossible, "peer").status == Status::kInvalid);
  CHECK_FALSE(find(impossible, "cpu").rates.speedup.has_value());

  Results elsewhere = peers({peer_row(own, "peer", 30)});
  elsewhere.context.device_identity = "another";
  const Results apart = with_peers(ours(), elsewhere);
  CHECK_FALSE(find(apart, "peer").floor.us.has_value());
  CHECK(apart.warnings.size() == 1);
}

TEST_CASE("what a file of peers says of a floor is not taken") {
  Row edited = peer_row(ours().rows.front(), "peer", 10);
  edited.floor.us = 1;
  edited.floor.bound_by = "launch";
  derive_metrics(edited);
  Results theirs = peers({edited});
  const Results all = with_peers(ours(), theirs);
  CHECK(find(all, "peer").floor.us == 20.0);
  CHECK(find(all, "peer").floor.bound_by == "memory");
  CHECK(find(all, "peer").status == Status::kInvalid);
  CHECK(find(all, "peer").message == "PASSED in a time below what the floor allows");
  theirs.context.device_identity = "another";
  const Results apart = with_peers(ours(), theirs);
  CHECK_FALSE(find(apart, "peer").floor.us.has_value());
  CHECK_FALSE(find(apart, "peer").floor.ratio.has_value());
}

TEST_CASE("a peer's tax has our floor, and the share of it that ours is is told") {
  Results own = ours();
  Results theirs = peers({});
  for (Row* const row : taxed(own)) {
    theirs.rows.push_back(peer_tax(*row, "other", 16));
    row->tax.floor_us = 2;
  }
  const Results merged = with_peers(own, theirs);
  CHECK(find(merged, "other").tax.floor_us == 2.0);
  CHECK(find(merged, "other").tax.ratio == 8.0);
  const std::vector<std::string> notes = told_of(merged.rows);
  CHECK(std::count(
            notes.begin(), notes.end(),
            "tax of cpu: 0.25 of that of other in geometric mean of 2 cases, at most 0.25") == 1);
  // What is no layer has none.
  for (Row& row : theirs.rows) {
    row.tax.us.reset();
    row.tax.base_us.reset();
  }
  CHECK(told_of(with_peers(own, theirs).rows).size() == notes.size() - 1);
}

TEST_CASE("cases whose tax is below its noise are in no mean, but told, with whose tax it is") {
  Results own = ours();
  Results theirs = peers({});
  for (const Row* const row : taxed(own)) {
    theirs.rows.push_back(peer_tax(*row, "other", 8));
  }
  REQUIRE(theirs.rows.size() == 2);
  const auto told = [&] {
    std::string text;
    for (const std::string& note : told_of(with_peers(own, theirs).rows)) {
      text += note.starts_with("tax of ") ? note : "";
    }
    return text;
  };
  theirs.rows[1].tax.us.reset();
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
  Results theirs = peers({});
  double share = 2;
  for (const Row* const row : taxed(own)) {
    for (int repetition = 0; repetition < share; repetition += 2) {
      theirs.rows.push_back(peer_tax(*row, "other", 4 * share));
    }
    theirs.rows.push_back(theirs.rows.back());
    theirs.rows.back().id.backend = "warm";
    theirs.rows.back().step.cache = "hot";
    theirs.rows.push_back(theirs.rows.back());
    theirs.rows.back().id.backend = "wrong";
    theirs.rows.back().step.cache = row->step.cache;
    theirs.rows.back().status = Status::kFailed;
    share *= 2;
  }
  std::vector<std::string> told;
  for (const std::string& note : told_of(with_peers(own, theirs).rows)) {
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
    return told_of(with_peers(own, peers(rows)).rows).front();
  };
  const Row& at_8 = own.rows[0];
  const Row& at_64 = own.rows[2];
  CHECK(first_note({peer_row(at_8, "vllm", 50), peer_row(at_64, "vllm", 40)}) ==
        "cpu fastest in 1 of 2 cases, vllm in 1");
  // 50 us beside 25 of cpu, 40 beside 65 of naive.
  CHECK(told_of(
            with_peers(own, peers({peer_row(at_8, "vllm", 50), peer_row(at_64, "vllm", 40)})).rows)
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
    all = with_peers(all, peers(of_peers));
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

TEST_CASE("times that were taken otherwise neither lend a floor nor decide a case") {
  const Results own = ours();
  Row warm = peer_row(own.rows.front(), "vllm", 50);
  warm.step.cache = "hot";
  const Results all = with_peers(own, peers({warm}));
  CHECK_FALSE(find(all, "vllm").floor.us.has_value());
  CHECK(told_of(all.rows).front() == "2 cases without a time of both sides");
}

TEST_CASE("a win is one beyond the noise of either side, of the median of repeats") {
  Results own = ours();
  own.rows.resize(1);  // cpu in 25 us, known to 0.25
  const auto first_note = [&](const std::vector<Row>& rows) {
    return told_of(with_peers(own, peers(rows)).rows).front();
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

TEST_CASE("what is doubted in a file of peers is told beside ours") {
  Results theirs = peers({peer_row(ours().rows.front(), "vllm", 50)});
  theirs.warnings = {"peers.jsonl:3: the same row once more"};
  CHECK(with_peers(ours(), theirs).warnings == theirs.warnings);
}

TEST_CASE("a table with peers says what they are, and keeps one that failed") {
  const Results own = ours();
  Row failed = peer_row(own.rows[2], "vllm", 40);
  failed.status = Status::kFailed;
  failed.message = "bounded: 3 of 4096 wrong; token 5, adapter 2, slice 0, column 7";
  failed.time.us.reset();
  failed.time.samples_us.clear();
  const Results all = with_peers(own, peers({peer_row(own.rows[0], "vllm", 50), failed}));
  check_golden("table_peers.txt", rendered(all, false));
  check_golden("peers.md", rendered(all, true));
}
