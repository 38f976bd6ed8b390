#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "measure/ceilings.h"
#include "measure/measure.h"
#include "measure/rotation.h"
#include "support/near.h"

using namespace lora_bench;

namespace {

Plan grouped(std::vector<std::int32_t> ids, std::vector<std::int32_t> rows_of_id) {
  Plan plan;
  plan.group_starts.push_back(0);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    plan.active_ids.push_back(ids[i]);
    plan.group_starts.push_back(plan.group_starts.back() + rows_of_id[i]);
  }
  return plan;
}

Problem qkv(Plan plan, std::vector<std::int64_t> rank) {
  Problem problem;
  problem.in_features = 4096;
  problem.widths = {4096, 1024, 1024};
  problem.x_stride = 4096;
  problem.y_stride = 6144;
  problem.slots = static_cast<std::int64_t>(rank.size());
  problem.max_rank = 16;
  problem.rank = std::move(rank);
  problem.scale.assign(problem.rank.size(), 1.0F);
  problem.plan = std::move(plan);
  problem.tokens = problem.plan.group_starts.back();
  return problem;
}

Ceilings machine() {
  Ceilings ceilings;
  ceilings.memory_curve = {{1000, 10e-6}, {1000000, 100e-6}, {2000000, 200e-6}};
  ceilings.cache_curve = {{1000, 1e-6}, {1000000, 20e-6}, {2000000, 40e-6}};
  ceilings.cache_bytes = ceilings.kept_bytes = 2000000;
  ceilings.launch_seconds = ceilings.update_launch_seconds = 2e-6;
  ceilings.peaks = {{Dtype::kFp32, 1e12}};
  return ceilings;
}

}  // namespace

TEST_CASE("one decode token over qkv at rank 16 moves the bytes counted by hand") {
  const Work work = count_work(qkv(grouped({0}, {1}), {16}));
  CHECK(work.weight_bytes == 3 * 16 * 4096 * 2 + 6144 * 16 * 2);
  CHECK(work.weight_bytes == 589824);
  CHECK(work.bytes == 589824 + 8192 + 24576);
  CHECK(work.written_bytes == 12288);
  CHECK(work.flops == 2 * 16 * (3 * 4096 + 6144));
  CHECK(work.rows == 1);
}

TEST_CASE("an adapter counts once however many rows use it, and at its own rank") {
  const Work one = count_work(qkv(grouped({0}, {1}), {16, 4}));
  const Work many = count_work(qkv(grouped({0}, {64}), {16, 4}));
  CHECK(many.weight_bytes == one.weight_bytes);
  CHECK(many.flops == 64 * one.flops);
  const Work small = count_work(qkv(grouped({1}, {1}), {16, 4}));
  CHECK(small.weight_bytes * 4 == one.weight_bytes);
}

TEST_CASE("rows of a rank-0 adapter need nothing") {
  const Work work = count_work(qkv(grouped({0, 1}, {3, 5}), {16, 0}));
  CHECK(work.rows == 3);
  CHECK(work.bytes == count_work(qkv(grouped({0}, {3}), {16, 0})).bytes);
}

TEST_CASE("the intermediate counts where it is an operand, and nowhere else") {
  Problem problem = qkv(grouped({0}, {8}), {16});
  const std::int64_t h_bytes = 8 * 3 * 16 * 4;
  problem.op = Op::kShrink;
  CHECK(count_work(problem).bytes == 3 * 16 * 4096 * 2 + 8 * 4096 * 2 + h_bytes);
  problem.op = Op::kExpand;
  CHECK(count_work(problem).bytes == 6144 * 16 * 2 + h_bytes + 2 * 8 * 6144 * 2);
  problem.add_inputs = false;
  CHECK(count_work(problem).bytes == 6144 * 16 * 2 + h_bytes + 8 * 6144 * 2);
  problem.bias = true;
  CHECK(count_work(problem).bytes == 6144 * 17 * 2 + h_bytes + 8 * 6144 * 2);
}

TEST_CASE("a slice without columns needs nothing, its A included") {
  Problem problem = qkv(grouped({0}, {1}), {16});
  problem.widths = {4096, 0, 1024};
  CHECK(count_work(problem).weight_bytes == (2 * 16 * 4096 + 5120 * 16) * 2);
  problem.op = Op::kShrink;
  CHECK(count_work(problem).weight_bytes == 2 * 16 * 4096 * 2);
  CHECK(count_work(problem).written_bytes == 2 * 16 * 4);
  CHECK(count_work(problem).flops == 2 * 2 * 16 * 4096);
}

TEST_CASE("an empty batch needs nothing and its floor is one launch") {
  const Problem problem = qkv(grouped({}, {}), {16});
  const Work work = count_work(problem);
  CHECK(work.bytes == 0);
  const Floor floor = floor_of(work, problem, CacheMode::kCold, machine());
  CHECK(floor.seconds == 2e-6);
  CHECK(floor.bound_by == "launch");
  CHECK(floor.stream_seconds == 2e-6);
}

TEST_CASE("read time meets the measured points and is log-linear between them") {
  const auto curve = machine().memory_curve;
  CHECK(read_seconds(curve, 1000) == near(10e-6));
  CHECK(read_seconds(curve, 1000000) == near(100e-6));
  CHECK(read_seconds(curve, 31622.7766) == near(31.622777e-6));  // half way in logs
  CHECK(read_seconds(curve, 4000000) == near(400e-6));           // at the last slope
  CHECK(read_seconds(curve, 500) == near(5e-6));
  CHECK(read_seconds(curve, 0) == 0);
  CHECK(read_seconds({}, 1000) == 0);
}

TEST_CASE("the floor is the largest of memory, cache, flops and launch, and says which") {
  const Problem problem = qkv(grouped({0}, {1}), {16});
  const auto floor = [&](const Work& work) {
    return floor_of(work, problem, CacheMode::kWeightsCold, machine());
  };
  CHECK(floor({.bytes = 1000000, .weight_bytes = 900000, .flops = 1}).bound_by == "memory");
  CHECK(floor({.bytes = 1000000, .weight_bytes = 10, .flops = 1}).bound_by == "cache");
  CHECK(floor({.bytes = 1000, .flops = 1000000000}).bound_by == "flops");
  CHECK(floor({.bytes = 1000, .flops = 1000000000}).seconds == near(1e-3));
  CHECK(floor({.bytes = 1}).bound_by == "launch");
  CHECK(floor({.bytes = 1}).seconds == near(2e-6));
}

TEST_CASE("what launches share is charged to the cache, and the stream charges all to the memory") {
  const Problem problem = qkv(grouped({0}, {1}), {16});
  const Work work{.bytes = 2000000, .weight_bytes = 1000000, .written_bytes = 500000};
  const Floor floor = floor_of(work, problem, CacheMode::kWeightsCold, machine());
  CHECK(floor.seconds == near(100e-6));  // of the weights
  CHECK(floor.stream_seconds == near(200e-6));
  const Floor cold = floor_of(work, problem, CacheMode::kCold, machine());
  CHECK(cold.seconds == near(150e-6));  // of all that is read
  CHECK(cold.stream_seconds == near(200e-6));
  const Floor hot = floor_of(work, problem, CacheMode::kHot, machine());
  CHECK(hot.seconds == near(40e-6));
  CHECK(hot.bound_by == "cache");
}

TEST_CASE("of what launches share the memory sees what exceeds the cache") {
  constexpr std::int64_t kKept = 1000;
  // x 600, y 500 read and 500 written: 1100 bytes lie in the cache, 100 of x too many.
  const Work work{.bytes = 4600, .weight_bytes = 3000, .written_bytes = 500, .updated_bytes = 500};
  CHECK(bytes_from_memory(work, CacheMode::kWeightsCold, kKept) == 3000 + 100);
  CHECK(bytes_from_memory(work, CacheMode::kWeightsCold, 1100) == 3000);
  // All of x and 300 of y too many; what is read and written back passes twice.
  CHECK(bytes_from_memory(work, CacheMode::kWeightsCold, 200) == 3000 + 600 + 2 * 300);
  CHECK(bytes_from_memory(work, CacheMode::kWeightsCold, 0) == 4600);
  CHECK(bytes_from_memory(work, CacheMode::kHot, 5000) == 0);
  CHECK(bytes_from_memory(work, CacheMode::kHot, kKept) == 3100);
  CHECK(bytes_from_memory(work, CacheMode::kHot, 0) == 4600);
  CHECK(bytes_from_memory(work, CacheMode::kCold, 5000) == 4100);
}

TEST_CASE("what a linear op adds to is counted as read and written") {
  Problem problem = qkv(grouped({0}, {8}), {16});
  CHECK(count_work(problem).updated_bytes == 8 * 6144 * 2);
  problem.add_inputs = false;
  CHECK(count_work(problem).updated_bytes == 0);
  problem.op = Op::kShrink;
  problem.add_inputs = true;
  CHECK(count_work(problem).updated_bytes == 0);
}

TEST_CASE("bytes that a launch may touch early pass the cache at its best rate, without latency") {
  Ceilings ceilings;
  ceilings.cache_bytes = 1600;
  ceilings.cache_curve = {{50, 1.0}, {100, 1.1}, {200, 3.1}, {400, 5.1}, {800, 10.1}, {1600, 90}};
  // From 100 to 400 bytes and from 100 to 800: 300 in 4 and 700 in 9 seconds. What starting costs
  // (50 to 100 bytes) is no rate.
  const double rate = std::max(300 / 4.0, 700 / 9.0);
  const double best = std::max(rate, 100 / 1.1);
  CHECK(cache_seconds(ceilings, 1600, 0) == near(1600 / best));
}

TEST_CASE("bytes that wait for the launch before take as long as the cache curve says") {
  Ceilings ceilings;
  ceilings.cache_bytes = 1600;
  ceilings.cache_curve = {{100, 2.0}, {200, 3.0}, {400, 5.0}, {800, 9.0}, {1600, 90}};
  CHECK(cache_seconds(ceilings, 400, 400) == near(5.0));
  CHECK(cache_seconds(ceilings, 5000, 400) == near(5000 / 100.0));  // the rest at the best rate
  // Beyond what the cache holds (half its size) the curve goes on at the best rate.
  CHECK(cache_seconds(ceilings, 1600, 1600) == near(9.0 + 800 / 100.0));
  CHECK(cache_seconds({}, 1600, 1600) == 0);
}

TEST_CASE("a launch that adds to y waits for the one before, one that overwrites need not") {
  Problem problem = qkv(grouped({0}, {1}), {16});
  Ceilings slow = machine();
  slow.update_launch_seconds = 1;
  CHECK(floor_of(count_work(problem), problem, CacheMode::kWeightsCold, slow).seconds == 1);
  CHECK(floor_of(count_work(problem), problem, CacheMode::kHot, slow).seconds == 1);
  // Each launch of `cold` has a y of its own.
  CHECK(floor_of(count_work(problem), problem, CacheMode::kCold, slow).seconds < 0.1);
  problem.add_inputs = false;
  CHECK(floor_of(count_work(problem), problem, CacheMode::kWeightsCold, slow).seconds < 0.1);
}

TEST_CASE("bytes that come again and that no cache holds take as long as was measured") {
  Problem problem = qkv(grouped({0}, {1}), {16});
  Ceilings ceilings = machine();
  ceilings.again_curve = {{1000000, 30e-6}, {4000000, 230e-6}};
  CHECK(again_seconds(ceilings, 999999) == 0);  // the cache holds nearly all of them
  CHECK(again_seconds(ceilings, 4000000) == near(230e-6));
  CHECK(again_seconds(machine(), 4000000) == 0);
  // Of y, which is read and written, each byte comes again once: 4000000 of them are distinct.
  const Work work{
      .bytes = 5000000, .weight_bytes = 500000, .written_bytes = 1000000, .updated_bytes = 1000000};
  const Floor floor = floor_of(work, problem, CacheMode::kWeightsCold, ceilings);
  CHECK(floor.bound_by == "cache");
  CHECK(floor.seconds == near(230e-6));
  // Nor is it slower than one pass over all bytes.
  ceilings.again_curve = {{1000000, 30e-6}, {4000000, 2.0}};
  CHECK(floor_of(work, problem, CacheMode::kWeightsCold, ceilings).seconds ==
        near(floor.stream_seconds));
}

TEST_CASE("a cache that was measured slower than the memory does not raise the floor") {
  const Problem problem = qkv(grouped({0}, {1}), {16});
  const Work work{.bytes = 2000000, .weight_bytes = 1000000, .written_bytes = 500000};
  Ceilings strange = machine();
  std::swap(strange.cache_curve, strange.memory_curve);
  for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
    const Floor floor = floor_of(work, problem, cache, strange);
    CHECK(floor.seconds <= floor.stream_seconds);
  }
}

TEST_CASE("what rotates exceeds three times the last cache") {
  const Problem problem = qkv(grouped({0}, {1}), {16});
  const std::int64_t cache = 32 << 20;
  const std::int64_t sets = rotation_sets(problem, CacheMode::kWeightsCold, cache);
  CHECK(sets * touched_bytes(problem, CacheMode::kWeightsCold) > 3 * cache);
  CHECK((sets - 1) * touched_bytes(problem, CacheMode::kWeightsCold) <= 3 * cache);
  CHECK(rotation_sets(problem, CacheMode::kCold, cache) < sets);
  CHECK(rotation_sets(problem, CacheMode::kHot, cache) == 1);
  CHECK(rotation_sets(problem, CacheMode::kWeightsCold, 1) == 2);
}

TEST_CASE("slots that no token uses do not count as rotated") {
  Problem problem = qkv(grouped({0}, {1}), {16});
  const std::int64_t lean = rotation_sets(problem, CacheMode::kWeightsCold, 32 << 20);
  problem.slots = 64;
  problem.rank.assign(64, 16);
  CHECK(rotation_sets(problem, CacheMode::kWeightsCold, 32 << 20) == lean);
}
