#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "report/peers.h"
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
  row.backend = backend;
  row.peer = "1.2";
  row.time_us = row.time_q1_us = row.time_q3_us = time_us;
  row.time_min_us = time_us - noise_us;
  row.time_max_us = time_us + noise_us;
  row.noise_us = noise_us;
  row.samples_us.assign(6, time_us);
  row.floor_us.reset();
  row.floor_ratio.reset();
  row.bound_by.clear();
  derive_metrics(row);
  return row;
}

Results beside(const std::vector<Row>& rows, const std::string& identity = "example-cpu/8") {
  Results ours = one_row();
  ours.context.device_identity = identity;
  Results peers;
  peers.file = "peers.jsonl";
  peers.context = ours.context;
  peers.rows = rows;
  return with_peers(std::move(ours), peers);
}

}  // namespace

TEST_CASE("the best peer gives the speedup wherever it stands in its file") {
  const Row slow = of_peer("slow", 100);
  const Row quick = of_peer("quick", 50);
  for (const auto& order : {std::vector<Row>{slow, quick}, {quick, slow}}) {
    CHECK(beside(order).rows.front().speedup == doctest::Approx(2));
  }
}

TEST_CASE("the widest noise of its repeats is that of a backend, wherever it stands") {
  const Row wide = of_peer("vllm", 26, 1.5);
  const Row narrow = of_peer("vllm", 26, 0.25);
  for (const auto& order : {std::vector<Row>{wide, narrow}, {narrow, wide}}) {
    CHECK(notes_on_peers(beside(order).rows).front() == "within the noise in 1 of 1 case");
  }
  CHECK(notes_on_peers(beside({narrow, narrow}).rows).front() == "cpu fastest in 1 of 1 case");
}

TEST_CASE("files that name no device are of no one device: no floor is lent") {
  CHECK(beside({of_peer("vllm", 50)}).rows.back().floor_us == 20.0);
  CHECK_FALSE(beside({of_peer("vllm", 50)}, "").rows.back().floor_us.has_value());
}

TEST_CASE("a SKIPPED repetition of a peer stays where another one was run") {
  Row skipped = of_peer("vllm", 50);
  skipped.status = Status::kSkipped;
  skipped.time_us.reset();
  Row run = of_peer("vllm", 50);
  CHECK(beside({skipped, run}).rows.size() == 2);
  run.repetition = 1;
  CHECK(beside({skipped, run}).rows.size() == 3);
}
