#include <doctest/doctest.h>

#include <string>

#include "core/error.h"
#include "report/json_row.h"
#include "report/peers.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

Context on(const std::string& identity, const std::string& kind = "cuda") {
  Context context = fixed_context();
  context.device_kind = kind;
  context.device_identity = identity;
  return context;
}

Results ours() {
  Results results = parse_results(
      to_json_line(on("GPU-1")) + "\n" + to_json_line(fixed_rows().front()) + "\n", "ours.jsonl");
  return results;
}

// A peer's row of that case, twice as long as ours, so that it has our floor where it may.
Row peer_row(const std::string& backend) {
  Row row = fixed_rows().front();
  row.id.backend = backend;
  row.id.peer = backend + " 1.2";
  const double time_us = 2 * *row.time.us;
  row.time.us = row.time.min_us = row.time.q1_us = row.time.q3_us = row.time.max_us = time_us;
  row.time.noise_us = 0;
  row.time.samples_us.assign(6, time_us);
  row.time.samples = 6;
  row.floor.us.reset();
  row.floor.ratio.reset();
  derive_metrics(row);
  return row;
}

Row skipped(const std::string& backend) {
  Row row = peer_row(backend);
  row.status = Status::kSkipped;
  for (auto* figure : {&row.time.us, &row.time.min_us, &row.time.q1_us, &row.time.q3_us,
                       &row.time.max_us, &row.time.noise_us}) {
    figure->reset();
  }
  row.time.samples_us.clear();
  row.time.samples.reset();
  derive_metrics(row);
  return row;
}

std::string lines(const Context& context, const Row& row) {
  return to_json_line(context) + "\n" + to_json_line(row) + "\n";
}

std::string refusal(const Results& peers) {
  try {
    static_cast<void>(with_peers(ours(), peers));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool has_floor(const Results& peers, const std::string& backend) {
  for (const Row& row : with_peers(ours(), peers).rows) {
    if (row.id.backend == backend) {
      return row.floor.us.has_value();
    }
  }
  return false;
}

}  // namespace

TEST_CASE("peers' times of two devices are refused, behind one another as in two files") {
  const std::string here = lines(on("GPU-1"), peer_row("vllm"));
  const std::string there = lines(on("GPU-2"), peer_row("sglang"));
  CHECK(refusal(parse_results(here, "p.jsonl")).empty());
  const std::string both = refusal(parse_results(here + there, "p.jsonl"));
  CHECK(both.starts_with("p.jsonl: has times of two devices, '"));
  CHECK(both.find("(GPU-1)") != std::string::npos);
  CHECK(both.find("(GPU-2); give rows of one of them") != std::string::npos);
  CHECK_FALSE(
      refusal(merge_results({parse_results(here, "p.jsonl"), parse_results(there, "q.jsonl")}))
          .empty());
}

TEST_CASE("a peer's floor is of the device of its times, whatever the file had before") {
  const std::string without = lines(on("", "cpu"), skipped("vllm"));
  const Results later = parse_results(without + lines(on("GPU-1"), peer_row("sglang")), "p.jsonl");
  CHECK(has_floor(later, "sglang"));
  const Results elsewhere = parse_results(
      lines(on("GPU-1"), skipped("vllm")) + lines(on("GPU-2"), peer_row("sglang")), "p.jsonl");
  CHECK(refusal(elsewhere).empty());
  CHECK_FALSE(has_floor(elsewhere, "sglang"));
}
