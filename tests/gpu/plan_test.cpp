#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "device/facts.h"
#include "measure/clock.h"
#include "ops/device_plan.h"
#include "support/device_plans.h"
#include "support/need_gpu.h"

using namespace lora_bench;

TEST_CASE("a plan built on the device is the host's, bit for bit, on 10000 batches") {
  LORA_BENCH_NEED_GPU()
  const auto memory = make_device_memory();
  const int capability = gpu_facts().compute_capability;
  PlanBed bed(*memory);
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 10000 && wrong < 5; ++seed) {
    const std::int64_t tokens = drawn_size(seed, 1, 0, kMostTokens);
    const std::int64_t slots = drawn_size(seed, 2, 1, kMostSlots);
    const Ids ids = drawn_ids(seed, tokens, slots);
    // A launch for more than there is must do as well as one that fits.
    const std::int64_t most = seed % 2 == 0 ? tokens : kMostTokens;
    bed.set(ids);
    launch_device_plan(bed.plan(tokens, slots), tokens, {most, slots, capability}, {});
    memory->synchronize();
    const bool agrees = bed.agrees(ids, slots);
    CAPTURE(seed);
    CAPTURE(tokens);
    CAPTURE(slots);
    CAPTURE(most);
    CHECK(agrees);
    wrong += agrees ? 0 : 1;
  }
}

TEST_CASE("a plan of more slots than 16 warps can count is the host's too, and without clusters") {
  LORA_BENCH_NEED_GPU()
  const auto memory = make_device_memory();
  const int capability = gpu_facts().compute_capability;
  constexpr std::int64_t kWord = 4;
  for (const std::int64_t slots : {600, 900, 2000, 4031}) {
    for (const int as : {capability, 80}) {
      CAPTURE(slots);
      CAPTURE(as);
      const Ids ids = drawn_ids(static_cast<std::uint64_t>(slots), 10000, slots);
      const Ids expected = expected_words(ids, slots);
      const auto words = static_cast<std::int64_t>(expected.size());
      GuardedBuffer in(*memory, 10000 * kWord);
      GuardedBuffer out(*memory, words * kWord);
      in.upload(ids.data(), 10000 * kWord);
      DevicePlan plan;
      plan.adapter_of_token = static_cast<const std::int32_t*>(in.data());
      plan.token_order = static_cast<std::int32_t*>(out.data());
      plan.active_ids = plan.token_order + 10000;
      plan.group_starts = plan.active_ids + slots + 1;
      plan.counts = plan.group_starts + slots + 2;
      plan.active = plan.counts + slots + 1;
      launch_device_plan(plan, 10000, {10000, slots, as}, {});
      memory->synchronize();
      const std::vector<std::byte> got = out.download();
      CHECK(std::memcmp(got.data(), expected.data(), got.size()) == 0);
      CHECK(out.damage().empty());
    }
  }
}

TEST_CASE("a captured plan serves later ids: more adapters, fewer, none, and padded rows") {
  LORA_BENCH_NEED_GPU()
  const auto memory = make_device_memory();
  const int capability = gpu_facts().compute_capability;
  constexpr std::int64_t kTokens = 3000;
  constexpr std::int64_t kSlots = 100;
  PlanBed bed(*memory);
  Ids ids(kTokens, 7);
  bed.set(ids);
  const auto clock = make_device_clock(LaunchMode::kGraph);
  clock->load(0, {[&](Stream stream) {
                launch_device_plan(bed.plan(kTokens, kSlots), kTokens,
                                   {kTokens, kSlots, capability}, stream);
              }});
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    ids = seed == 0 ? Ids(kTokens, -1) : drawn_ids(seed, kTokens, kSlots);
    std::fill(ids.begin() + kTokens - static_cast<std::int64_t>(seed) * 40, ids.end(), -1);
    bed.set(ids);
    CHECK(clock->run_seconds(0) > 0);
    CHECK(bed.agrees(ids, kSlots));
  }
}

TEST_CASE("ids that name no slot count as none") {
  LORA_BENCH_NEED_GPU()
  const auto memory = make_device_memory();
  PlanBed bed(*memory);
  bed.set(Ids{1, 5, -7, 0, 2147483647, 1});
  launch_device_plan(bed.plan(6, 2), 6, {6, 2, gpu_facts().compute_capability}, {});
  memory->synchronize();
  // The ids on the device are not those that the host takes, so only what is written is compared.
  CHECK(bed.agrees(Ids{1, -1, -1, 0, -1, 1}, 2));
  CHECK_THROWS_AS(launch_device_plan(bed.plan(7, 2), 7, {6, 2, 90}, {}), CaseError);
}

TEST_CASE("the time of a plan on the device is told") {
  LORA_BENCH_NEED_GPU()
  const auto memory = make_device_memory();
  const int capability = gpu_facts().compute_capability;
  PlanBed bed(*memory);
  const auto clock = make_device_clock(LaunchMode::kGraph);
  struct Size {
    std::int64_t tokens, slots;
  };
  for (const Size size : {Size{64, 64}, Size{1024, 64}, Size{4096, 256}, Size{16384, 512}}) {
    Ids ids(static_cast<std::size_t>(size.tokens));
    const RandomStream stream(1, 1);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(stream.bits(i) % static_cast<std::uint64_t>(size.slots));
    }
    bed.set(ids);
    constexpr std::size_t kLaunches = 400;
    clock->load(0, std::vector<Launch>(kLaunches, [&](Stream on) {
                  launch_device_plan(bed.plan(size.tokens, size.slots), size.tokens,
                                     {size.tokens, size.slots, capability}, on);
                }));
    double least = clock->run_seconds(0);
    for (int i = 0; i < 20; ++i) {
      least = std::min(least, clock->run_seconds(0));
    }
    CHECK(bed.agrees(ids, size.slots));
    MESSAGE(size.tokens << " tokens, " << size.slots << " slots: " << least / kLaunches * 1e6
                        << " us a plan, ids in L2");
  }
}
