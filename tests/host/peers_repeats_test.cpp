#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "report/json_row.h"
#include "report/peers.h"
#include "report/screen.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

// `cpu` in 25 us, known to 0.25, and its floor of 20 us.
Results one_row() {
  Results results;
  results.file = "ours.jsonl";
  results.context = fixed_context();
  results.rows = {fixed_rows().front()};
  return results;
}

Row of_peer(const char* backend, double time_us, double noise_us = 0.25) {
  Row row = fixed_rows().front();
  row.id.backend = backend;
  row.id.plugin = "/lib/lora_bench/peers/x.py sha256:1";
  row.time.us = row.time.q1_us = row.time.q3_us = time_us;
  row.time.min_us = time_us - noise_us;
  row.time.max_us = time_us + noise_us;
  row.time.noise_us = noise_us;
  row.time.samples_us.assign(6, time_us);
  derive_metrics(row);
  return row;
}

Results beside(const std::vector<Row>& rows) {
  Results all = one_row();
  all.rows.insert(all.rows.end(), rows.begin(), rows.end());
  add_speedups(all.rows);
  return all;
}

std::vector<std::string> told_of(const std::vector<Row>& rows) {
  return notes_on_peers(rows, rows);
}

}  // namespace

TEST_CASE("rows that are not shown change nobody's place in the cases that are") {
  Row again = of_peer("vllm", 20);
  again.id.repetition = 1;
  again.status = Status::kFailed;
  std::vector<Row> all = beside({of_peer("vllm", 20), again, of_peer("torch", 50)}).rows;
  REQUIRE(all.size() == 4);
  Row elsewhere = all.front();
  elsewhere.id.case_id = "elsewhere";
  all.push_back(elsewhere);
  // Of vLLM, which would be the fastest, one repeat is wrong.
  const std::vector<std::string> first{"cpu fastest in 1 of 1 case",
                                       "counted over all 4 rows of these cases"};
  const std::vector<Row> passed{all[0], all[1], all[3]};
  for (const std::vector<Row>& shown : {passed, {all[0]}, {all[1]}}) {
    const std::vector<std::string> told = notes_on_peers(shown, all);
    REQUIRE(told.size() == 4);
    CHECK(std::vector(told.begin(), told.begin() + 2) == first);
  }
  // Of rows timed otherwise, those that are shown alone count.
  for (std::size_t i : {0U, 1U}) {
    Row hot = all[i];
    hot.step.cache = "hot";
    all.push_back(hot);
  }
  CHECK(notes_on_peers(passed, all).front() == first.front());
  all.resize(5);
  const std::vector<std::string> whole = told_of(all);
  CHECK(whole.front() == "cpu fastest in 1 of 1 case; 1 case without a time of both sides");
  CHECK(whole.size() == 3);
}

TEST_CASE("a row that was read and contradicts itself is nobody's best time") {
  Row edited = fixed_rows().front();
  edited.time.us = 2.5;  // of samples of 25
  const Results read =
      parse_results(to_json_line(fixed_context()) + "\n" + to_json_line(fixed_rows().front()) +
                        "\n" + to_json_line(edited) + "\n",
                    "ours.jsonl");
  const Row& sound = read.rows.front();
  CHECK_FALSE(sound.doubted);
  REQUIRE(read.rows.back().doubted);
  const Row peer = of_peer("vllm", 50);
  CHECK(timed_rows({&sound, &peer}).size() == 2);
  CHECK(timed_rows({&read.rows.back(), &peer}).size() == 1);
  CHECK(timed_rows({&sound, &read.rows.back(), &peer}).size() == 1);
  Results ours = read;
  ours.rows.erase(ours.rows.begin());
  std::vector<Row> all = ours.rows;
  all.push_back(peer);
  add_speedups(all);
  CHECK_FALSE(all.front().rates.speedup);
  CHECK(told_of(all).front() == "1 case without a time of both sides");
}

TEST_CASE("the best peer gives the speedup wherever it stands in its file") {
  const Row slow = of_peer("slow", 100);
  const Row quick = of_peer("quick", 50);
  for (const auto& order : {std::vector<Row>{slow, quick}, {quick, slow}}) {
    CHECK(beside(order).rows.front().rates.speedup == doctest::Approx(2));
  }
}

TEST_CASE("the widest noise of its repeats is that of a backend, wherever it stands") {
  const Row wide = of_peer("vllm", 26, 1.5);
  const Row narrow = of_peer("vllm", 26, 0.25);
  for (const auto& order : {std::vector<Row>{wide, narrow}, {narrow, wide}}) {
    CHECK(told_of(beside(order).rows).front() == "within the noise in 1 of 1 case");
  }
  CHECK(told_of(beside({narrow, narrow}).rows).front() == "cpu fastest in 1 of 1 case");
}
