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
#include "plan/plan.h"
#include "support/need_gpu.h"

using lora_bench::DevicePlan;
using lora_bench::DevicePlanShape;
using lora_bench::Stream;

namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kMostTokens = 16384;
constexpr std::int64_t kMostSlots = 512;

// All that is written, array after array without gaps: an overrun of one shows in the next.
std::int64_t words_written(std::int64_t tokens, std::int64_t slots) {
  return tokens + (slots + 1) + (slots + 2) + (slots + 1) + 1;
}

Ids expected_words(const Ids& ids, std::int64_t slots) {
  const lora_bench::Plan plan = lora_bench::make_plan(ids, slots);
  const auto groups = static_cast<std::size_t>(slots) + 1;
  const auto active = plan.active_ids.size();
  Ids padded = plan.active_ids;
  padded.resize(groups, -1);
  Ids starts = plan.group_starts;
  starts.resize(groups + 1, static_cast<std::int32_t>(plan.rows_with_adapter()));
  Ids counts;
  for (std::size_t group = 0; group < active; ++group) {
    counts.push_back(plan.group_starts[group + 1] - plan.group_starts[group]);
  }
  counts.resize(groups, 0);
  Ids words = plan.token_order;
  words.insert(words.end(), padded.begin(), padded.end());
  words.insert(words.end(), starts.begin(), starts.end());
  words.insert(words.end(), counts.begin(), counts.end());
  words.push_back(static_cast<std::int32_t>(active));
  return words;
}

// Room for the largest batch; what a launch leaves alone keeps the poison.
class Bed {
 public:
  explicit Bed(lora_bench::Memory& memory)
      : ids_(memory, kMostTokens * kWord),
        out_(memory, words_written(kMostTokens, kMostSlots) * kWord) {}

  void set(const Ids& ids) {
    ids_.upload(ids.data(), static_cast<std::int64_t>(ids.size()) * kWord);
    out_.poison();
  }

  [[nodiscard]] DevicePlan plan(std::int64_t tokens, std::int64_t slots) const {
    DevicePlan plan;
    plan.adapter_of_token = static_cast<const std::int32_t*>(ids_.data());
    plan.token_order = static_cast<std::int32_t*>(out_.data());
    plan.active_ids = plan.token_order + tokens;
    plan.group_starts = plan.active_ids + slots + 1;
    plan.counts = plan.group_starts + slots + 2;
    plan.active = plan.counts + slots + 1;
    return plan;
  }

  // Whether all is as the host has it, the rest still poison, and the ids and bands as they were.
  [[nodiscard]] bool agrees(const Ids& ids, std::int64_t slots) const {
    Ids expected = expected_words(ids, slots);
    const std::vector<std::byte> got = out_.download();
    expected.resize(got.size() / kWord, -1);
    return std::memcmp(got.data(), expected.data(), got.size()) == 0 && ids_.damage().empty() &&
           out_.damage().empty();
  }

 private:
  static constexpr std::int64_t kWord = 4;
  lora_bench::GuardedBuffer ids_;
  lora_bench::GuardedBuffer out_;
};

// Sizes at which tiles, blocks and clusters begin and end, and any between them.
std::int64_t drawn_size(std::uint64_t seed, std::uint64_t stream, std::int64_t least,
                        std::int64_t most) {
  const std::int64_t edges[] = {least, least + 1, 31, 32, 33, 2047, 2048, 2049, most - 1, most};
  const auto draw = [&](std::uint64_t index, std::int64_t bound) {
    return static_cast<std::int64_t>(
        lora_bench::random_below(seed, stream, index, static_cast<std::uint64_t>(bound)));
  };
  if (draw(0, 4) == 0) {
    return std::clamp(edges[draw(1, std::size(edges))], least, most);
  }
  // As many small ones as large ones.
  const std::int64_t magnitude = draw(2, std::bit_width(static_cast<std::uint64_t>(most)) + 1);
  return std::min(least + draw(3, std::int64_t{1} << magnitude), most);
}

Ids drawn_ids(std::uint64_t seed, std::int64_t tokens, std::int64_t slots) {
  const std::uint64_t law = lora_bench::random_below(seed, 3, 0, 6);
  const std::uint64_t none_of_four = lora_bench::random_below(seed, 3, 1, 5);  // share of -1
  const std::uint64_t run = 1 + lora_bench::random_below(seed, 3, 2, 300);
  const lora_bench::RandomStream stream(seed, 4);
  Ids ids(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t bits = stream.bits(law == 1 ? i / run : i);
    const auto below = [&](std::uint64_t bound) { return (bits >> 32) % bound; };
    const auto all = static_cast<std::uint64_t>(slots);
    std::uint64_t id = below(all);                  // 0: uniform; 1: in runs
    id = law == 2 ? all - 1 : id;                   // the last slot alone
    id = law == 3 ? below(1 + id) : id;             // low ones more often
    id = law == 4 ? i % all : id;                   // each in turn
    id = law == 5 ? all - 1 - below(2) % all : id;  // two of many
    ids[i] = bits % 4 < none_of_four ? -1 : static_cast<std::int32_t>(id);
  }
  return ids;
}

}  // namespace

TEST_CASE("a plan built on the device is the host's, bit for bit, on 10000 batches") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  const int capability = lora_bench::gpu_facts().compute_capability;
  Bed bed(*memory);
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
  const auto memory = lora_bench::make_device_memory();
  const int capability = lora_bench::gpu_facts().compute_capability;
  constexpr std::int64_t kWord = 4;
  for (const std::int64_t slots : {600, 900, 2000, 4031}) {
    for (const int as : {capability, 80}) {
      CAPTURE(slots);
      CAPTURE(as);
      const Ids ids = drawn_ids(static_cast<std::uint64_t>(slots), 10000, slots);
      const Ids expected = expected_words(ids, slots);
      const auto words = static_cast<std::int64_t>(expected.size());
      lora_bench::GuardedBuffer in(*memory, 10000 * kWord);
      lora_bench::GuardedBuffer out(*memory, words * kWord);
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
  const auto memory = lora_bench::make_device_memory();
  const int capability = lora_bench::gpu_facts().compute_capability;
  constexpr std::int64_t kTokens = 3000;
  constexpr std::int64_t kSlots = 100;
  Bed bed(*memory);
  Ids ids(kTokens, 7);
  bed.set(ids);
  const auto clock = lora_bench::make_device_clock(lora_bench::LaunchMode::kGraph);
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
  const auto memory = lora_bench::make_device_memory();
  Bed bed(*memory);
  bed.set(Ids{1, 5, -7, 0, 2147483647, 1});
  launch_device_plan(bed.plan(6, 2), 6, {6, 2, lora_bench::gpu_facts().compute_capability}, {});
  memory->synchronize();
  // The ids on the device are not those that the host takes, so only what is written is compared.
  CHECK(bed.agrees(Ids{1, -1, -1, 0, -1, 1}, 2));
  CHECK_THROWS_AS(launch_device_plan(bed.plan(7, 2), 7, {6, 2, 90}, {}), lora_bench::CaseError);
}

TEST_CASE("the time of a plan on the device is told") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  const int capability = lora_bench::gpu_facts().compute_capability;
  Bed bed(*memory);
  const auto clock = lora_bench::make_device_clock(lora_bench::LaunchMode::kGraph);
  struct Size {
    std::int64_t tokens, slots;
  };
  for (const Size size : {Size{64, 64}, Size{1024, 64}, Size{4096, 256}, Size{16384, 512}}) {
    Ids ids(static_cast<std::size_t>(size.tokens));
    const lora_bench::RandomStream stream(1, 1);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(stream.bits(i) % static_cast<std::uint64_t>(size.slots));
    }
    bed.set(ids);
    constexpr std::size_t kLaunches = 400;
    clock->load(0, std::vector<lora_bench::Launch>(kLaunches, [&](Stream on) {
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
