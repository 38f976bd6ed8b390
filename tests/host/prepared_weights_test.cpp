#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "support/copying_backend.h"
#include "support/dishonest.h"
#include "support/timed_layer.h"
#include "verify/verify.h"

using namespace lora_bench;
using namespace lora_bench::test;

namespace {

// What is said of it after timing.
std::string wrong_after_timing(const Backend& backend, CacheMode cache) {
  const Problem problem = decode(Op::kLinear, 40);
  const MeasureSettings settings = short_measure(cache);
  const Numerics numerics = backend.numerics(problem);
  const auto check = [&](const Left& left) { return held_against_oracle(numerics, left); };
  DeviceFacts device;
  device.kind = "cpu";
  device.cache_bytes = 4 * touched_bytes(problem, CacheMode::kWeightsCold);
  const std::unique_ptr<Memory> memory = make_host_memory();
  FakeClock clock([](int, std::int64_t) { return 1e-6; });
  return measure({problem, settings, 1, check, nullptr, nullptr}, backend, *memory, clock, device)
      .check_message;
}

}  // namespace

TEST_CASE("prepared weights: a backend that makes them when it is told to is proved and timed") {
  const Copying backend([](int) { return true; });
  const std::unique_ptr<Memory> memory = make_host_memory();
  VerifyOptions options;
  options.relations = true;
  const Verdict verdict = verify(decode(Op::kLinear, 40), backend, *memory, options);
  CHECK(verdict.message == "");
  CHECK(verdict.status == Status::kPassed);
  for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
    CHECK(wrong_after_timing(backend, cache) == "");
  }
}

TEST_CASE("prepared weights: one that never makes them is wrong") {
  const Copying backend([](int) { return false; });
  const std::unique_ptr<Memory> memory = make_host_memory();
  CHECK(verify(decode(), backend, *memory, {}).status == Status::kFailed);
}

TEST_CASE("prepared weights: one that keeps those of before the weights changed is found out") {
  // Once for each of the sets that are timed; what comes after is a change.
  for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold}) {
    const Problem problem = decode(Op::kLinear, 40);
    const std::int64_t sets = rotation_sets(problem, CacheMode::kWeightsCold,
                                            4 * touched_bytes(problem, CacheMode::kWeightsCold));
    const Copying backend([sets](int time) { return time < sets; });
    CHECK(wrong_after_timing(backend, cache) != "");
    CHECK(backend.prepared() > sets);
  }
}

TEST_CASE("prepared weights: a layer has them made for the whole, its halves and each shard") {
  for (const bool fully_sharded : {false, true}) {
    for (const bool together : {false, true}) {
      const Copying backend([](int) { return true; });
      FakeClock clock([](int slot, std::int64_t) { return slot == 0 ? 10e-6 : 13e-6; });
      const LayerProblem problem = row_layer(2, fully_sharded);
      LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 1);
      MeasureSettings settings = six_samples();
      settings.phases = !together;
      const LayerMeasurement measured =
          timed_layer(problem, tensors, clock, backend, settings, together);
      CHECK(measured.layer.check_message == "");
      CHECK(backend.prepared() > 0);
    }
  }
}

TEST_CASE("prepared weights: a layer tells one that keeps those of before an adapter was set") {
  const LayerProblem problem = row_layer(1, false);
  const auto wrong_with = [&](int most) {
    const Copying backend([most](int time) { return time < most; });
    FakeClock clock([](int slot, std::int64_t) { return slot == 0 ? 10e-6 : 13e-6; });
    LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 1);
    const LayerMeasurement measured =
        timed_layer(problem, tensors, clock, backend, six_samples(), false);
    return std::pair(measured.layer.check_message, backend.prepared());
  };
  const auto [right, times] = wrong_with(1 << 30);
  CHECK(right == "");
  CHECK(wrong_with(times / 2).first != "");
}

TEST_CASE("prepared weights: a batch of lower ranks may want more or fewer bytes of them") {
  const auto all_at_most = [](const Problem& problem, std::int64_t most) {
    return *std::max_element(problem.rank.begin(), problem.rank.end()) <= most;
  };
  for (const bool lower_want_more : {false, true}) {
    const Copying backend([](int) { return true; },
                          [=](const Problem& problem) -> std::int64_t {
                            return all_at_most(problem, 4) == lower_want_more ? 4096 : 0;
                          });
    CHECK(wrong_after_timing(backend, CacheMode::kWeightsCold) == "");
  }
}

TEST_CASE("prepared weights: they are not made anew where other operands change") {
  const Copying backend([](int) { return true; });
  const Problem problem = decode();
  Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const std::unique_ptr<Memory> memory = make_host_memory();
  OperandSets sets(*memory, problem, tensors, backend, CacheMode::kWeightsCold, 2);
  CHECK(backend.prepared() == 2);
  Replaced replaced;
  const SmallChange change{problem, 1, {0, 1}, 3, &replaced};
  change_rows(change, tensors);
  sets.renew(1, replaced);
  sets.renew_inputs();
  CHECK(backend.prepared() == 2);
  change_a(change, tensors);
  sets.renew(1, replaced);
  CHECK(backend.prepared() == 3);
}
