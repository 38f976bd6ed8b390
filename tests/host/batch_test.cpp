#include "workload/batch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "core/error.h"
#include "support/workload_case.h"

using namespace lora_bench;

namespace {

std::vector<std::int32_t> adapters_of(const Batch& batch) {
  std::vector<std::int32_t> ids;
  for (const Sequence& sequence : batch.sequences) {
    ids.push_back(sequence.adapter);
  }
  return ids;
}

std::vector<std::int32_t> drawn_ids(Case spec, Skew skew, double parameter = 0) {
  spec.skew = {.kind = skew, .parameter = parameter, .trace_file = "", .trace = {}};
  spec.prefill_skew = spec.skew;
  return adapters_of(draw_batch(spec));
}

std::map<std::int32_t, std::int64_t> counts_of(const std::vector<std::int32_t>& ids) {
  std::map<std::int32_t, std::int64_t> counts;
  for (const std::int32_t id : ids) {
    ++counts[id];
  }
  return counts;
}

std::int64_t touched(const Batch& batch) {
  std::set<std::int32_t> ids(batch.adapter_of_token.begin(), batch.adapter_of_token.end());
  ids.erase(kNoAdapter);
  return static_cast<std::int64_t>(ids.size());
}

using Ids = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("laws without chance give the ids that they promise") {
  CHECK(drawn_ids(workload_case(5, 3), Skew::kIdentical) == Ids{0, 0, 0, 0, 0});
  CHECK(drawn_ids(workload_case(5, 3), Skew::kDistinct) == Ids{0, 1, 2, 0, 1});
  CHECK(drawn_ids(workload_case(4, 3), Skew::kOneVsRest) == Ids{0, 1, 1, 1});
  CHECK(drawn_ids(workload_case(3, 1), Skew::kOneVsRest) == Ids{0, 0, 0});
  CHECK(drawn_ids(workload_case(6, 3), Skew::kBlocks) == Ids{0, 0, 1, 1, 2, 2});
  CHECK(drawn_ids(workload_case(7, 3), Skew::kBlocks) == Ids{0, 0, 0, 1, 1, 2, 2});
}

TEST_CASE("a trace is followed in order, cycled, and checked against the slots") {
  Case spec = workload_case(5, 8);
  spec.skew = {.kind = Skew::kTrace, .parameter = 0, .trace_file = "t.csv", .trace = {7, -1, 2}};
  spec.prefill_skew = spec.skew;
  CHECK(adapters_of(draw_batch(spec)) == Ids{7, -1, 2, 7, -1});
  spec.adapters.slots = 7;
  CHECK_THROWS_AS(static_cast<void>(draw_batch(spec)), CaseError);
  spec.skew.trace.clear();
  spec.prefill_skew.trace.clear();
  CHECK_THROWS_AS(static_cast<void>(draw_batch(spec)), CaseError);
}

TEST_CASE("uniform draws reach every slot about equally, the highest too") {
  const auto counts = counts_of(drawn_ids(workload_case(16000, 16), Skew::kUniform));
  REQUIRE(counts.size() == 16);
  for (const auto& count_of_id : counts) {
    CAPTURE(count_of_id.first);
    CHECK(std::abs(count_of_id.second - 1000) < 200);
  }
}

TEST_CASE("zipf draws fall off as 1 / rank^a") {
  const auto counts = counts_of(drawn_ids(workload_case(40000, 8), Skew::kZipf, 1.0));
  double harmonic = 0;
  for (int i = 1; i <= 8; ++i) {
    harmonic += 1.0 / i;
  }
  for (std::int32_t id = 0; id < 8; ++id) {
    CAPTURE(id);
    const double expected = 40000 / harmonic / (id + 1);
    CHECK(std::abs(static_cast<double>(counts.at(id)) - expected) < 6 * std::sqrt(expected));
    CHECK((id == 0 || counts.at(id) < counts.at(id - 1)));
  }
}

TEST_CASE("zipf with exponent 0 is uniform, and a large one nearly identical") {
  const auto flat = counts_of(drawn_ids(workload_case(8000, 8), Skew::kZipf, 0.0));
  CHECK(flat.size() == 8);
  CHECK(flat.at(7) > 800);
  CHECK(counts_of(drawn_ids(workload_case(8000, 8), Skew::kZipf, 30.0)).at(0) > 7990);
}

TEST_CASE("hot gives adapter 0 its share and the others the rest") {
  const auto counts = counts_of(drawn_ids(workload_case(20000, 5), Skew::kHot, 0.6));
  CHECK(std::abs(counts.at(0) - 12000) < 500);
  for (std::int32_t id = 1; id < 5; ++id) {
    CHECK(std::abs(counts.at(id) - 2000) < 300);
  }
  CHECK(counts_of(drawn_ids(workload_case(100, 5), Skew::kHot, 1.0)).at(0) == 100);
  CHECK(counts_of(drawn_ids(workload_case(100, 5), Skew::kHot, 0.0)).count(0) == 0);
  CHECK(counts_of(drawn_ids(workload_case(100, 1), Skew::kHot, 0.0)).at(0) == 100);
}

TEST_CASE("prefill sequences follow their own law and keep their tokens together") {
  Case spec = workload_case(3, 4);
  spec.batch.prefill = {5, 2};
  spec.skew.kind = Skew::kIdentical;
  spec.prefill_skew.kind = Skew::kDistinct;
  CHECK(draw_batch(spec).adapter_of_token == Ids{0, 0, 0, 0, 0, 0, 0, 0, 1, 1});
  spec.skew = spec.prefill_skew;
  CHECK(adapters_of(draw_batch(spec)) == Ids{0, 1, 2, 3, 0});
}

TEST_CASE("every token belongs to exactly one sequence, whatever the order") {
  for (const Order order : {Order::kShuffled, Order::kSorted, Order::kAsArrived}) {
    Case spec = workload_case(10, 4);
    spec.order = order;
    spec.batch.prefill = {3, 17, 1};
    spec.no_adapter = 0.3;
    const Batch batch = draw_batch(spec);
    REQUIRE(batch.adapter_of_token.size() == 31);
    std::int64_t next = 0;
    for (const Sequence& sequence : batch.sequences) {
      CHECK(sequence.first_token == next);
      for (std::int64_t i = 0; i < sequence.tokens; ++i, ++next) {
        CHECK(batch.adapter_of_token[static_cast<std::size_t>(next)] == sequence.adapter);
      }
    }
    CHECK(next == 31);
  }
}

TEST_CASE("order changes where sequences stand, not which they are") {
  Case spec = workload_case(50, 6);
  spec.no_adapter = 0.2;
  Ids arrived = adapters_of(draw_batch(spec));
  spec.order = Order::kShuffled;
  Ids shuffled = adapters_of(draw_batch(spec));
  spec.order = Order::kSorted;
  Ids sorted = adapters_of(draw_batch(spec));
  CHECK(shuffled != arrived);
  CHECK(std::all_of(sorted.end() - 10, sorted.end(), [](std::int32_t id) { return id == -1; }));
  CHECK(std::is_sorted(sorted.begin(), sorted.end() - 10));
  for (Ids* ids : {&arrived, &shuffled, &sorted}) {
    std::sort(ids->begin(), ids->end());
  }
  CHECK(arrived == shuffled);
  CHECK(arrived == sorted);
}

TEST_CASE("exactly the rounded share of sequences has no adapter") {
  for (const double share : {0.0, 0.1, 0.25, 0.5, 1.0}) {
    CAPTURE(share);
    Case spec = workload_case(30, 4);
    spec.no_adapter = share;
    const Ids ids = adapters_of(draw_batch(spec));
    CHECK(std::count(ids.begin(), ids.end(), -1) == std::llround(share * 30));
  }
}

TEST_CASE("exactly `active` slots are touched under every law, and any slot may be among them") {
  std::set<std::int32_t> seen;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    for (int kind = 0; kind < 7; ++kind) {
      CAPTURE(kind);
      Case spec = workload_case(20, 10);
      spec.seed = seed;
      spec.order = Order::kShuffled;
      spec.no_adapter = 0.25;
      spec.skew = {
          .kind = static_cast<Skew>(kind), .parameter = 0.9, .trace_file = "", .trace = {}};
      spec.prefill_skew = spec.skew;
      spec.adapters.active = 1 + static_cast<std::int64_t>(seed % 10);
      const Batch batch = draw_batch(spec);
      CHECK(touched(batch) == spec.adapters.active);
      seen.insert(batch.adapter_of_token.begin(), batch.adapter_of_token.end());
    }
  }
  CHECK(*seen.begin() == -1);
  CHECK(seen.size() == 11);
}

TEST_CASE("an active count that a law reaches by itself leaves the law as it is") {
  Case spec = workload_case(8, 4);
  spec.adapters.active = 4;
  CHECK(drawn_ids(spec, Skew::kBlocks) == Ids{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(drawn_ids(spec, Skew::kDistinct) == Ids{0, 1, 2, 3, 0, 1, 2, 3});
  const auto counts = counts_of(drawn_ids(spec, Skew::kIdentical));
  CHECK(counts.at(0) == 5);
}

TEST_CASE("more active adapters than sequences or slots is refused") {
  Case spec = workload_case(4, 10);
  spec.adapters.active = 5;
  CHECK_THROWS_AS(static_cast<void>(draw_batch(spec)), CaseError);
  spec.adapters.active = 11;
  CHECK_THROWS_AS(static_cast<void>(draw_batch(spec)), CaseError);
}

TEST_CASE("logits has one row per sequence") {
  Case spec = workload_case(3, 2);
  spec.op = Op::kLogits;
  spec.batch.prefill = {100, 7};
  CHECK(draw_batch(spec).adapter_of_token.size() == 5);
}

TEST_CASE("no sequences and no slots are legal") {
  CHECK(draw_batch(workload_case(0, 3)).adapter_of_token.empty());
  CHECK(draw_batch(workload_case(2, 0)).adapter_of_token == Ids{-1, -1});
}

TEST_CASE("a batch keeps its golden values, and another seed draws another") {
  const Ids golden{-1, 44, 67, 49, 34, 28, 38, 44, -1, -1, 40, 77};
  Case spec = workload_case(12, 100);
  spec.order = Order::kShuffled;
  spec.no_adapter = 0.25;
  CHECK(adapters_of(draw_batch(spec)) == golden);
  spec.seed = 2;
  CHECK(adapters_of(draw_batch(spec)) != golden);
}
