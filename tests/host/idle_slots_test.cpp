#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "measure/fake_clock.h"
#include "measure/measure.h"
#include "measure/operand_sets.h"
#include "measure/rotation.h"
#include "ops/backends.h"
#include "support/plain_backend.h"
#include "support/problems.h"
#include "workload/excerpt.h"

using namespace lora_bench;

namespace {

constexpr std::int64_t kGiga = std::int64_t{1} << 30;

// A device of which nothing is asked but how much there is.
class RoomyMemory : public Memory {
 public:
  explicit RoomyMemory(std::int64_t bytes) : bytes_(bytes) {}
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] void* allocate(std::int64_t) override { return nullptr; }
  void release(void*) noexcept override {}
  void copy_in(void*, const void*, std::int64_t) override {}
  void copy_out(void*, const void*, std::int64_t) override {}
  void copy_within(void*, const void*, std::int64_t) override {}
  void fill(void*, std::byte, std::int64_t) override {}
  void synchronize() override {}
  [[nodiscard]] std::int64_t available_bytes() const override { return bytes_; }

 private:
  std::int64_t bytes_;
};

class WaitingMemory final : public RoomyMemory {
 public:
  WaitingMemory() : RoomyMemory(kGiga) {}
  [[nodiscard]] void* allocate(std::int64_t bytes) override {
    return kept_.emplace_back(static_cast<std::size_t>(bytes)).data();
  }
  void synchronize() override { ++waited; }
  int waited = 0;

 private:
  std::deque<std::vector<std::byte>> kept_;
};

// 64 rows of four adapters of rank 16, 8 MB of weights a slot.
Problem decode_over(std::int64_t slots) {
  Problem problem;
  problem.tokens = 64;
  problem.in_features = problem.x_stride = 1 << 17;
  problem.widths = {1 << 17};
  problem.y_stride = 1 << 17;
  problem.slots = slots;
  problem.max_rank = 16;
  problem.rank.assign(static_cast<std::size_t>(slots), 16);
  problem.scale.assign(static_cast<std::size_t>(slots), 1);
  std::vector<std::int32_t> ids;
  for (std::int64_t row = 0; row < problem.tokens; ++row) {
    ids.push_back(static_cast<std::int32_t>(row % 4 * (slots / 4)));
  }
  problem.plan = make_plan(ids, slots);
  return problem;
}

// A of half a MB a slot, so that slots are copied one by one; B of few.
Problem large_slots() {
  Problem problem = linear_problem();
  problem.in_features = problem.x_stride = 1 << 15;
  return problem;
}

std::byte* place_in(const void* operand, std::int64_t at) {
  return static_cast<std::byte*>(const_cast<void*>(operand)) + at;
}

}  // namespace

TEST_CASE("slots that no row uses hold NaN in every set, the others that set's numbers") {
  for (const Problem& problem : {linear_problem(), large_slots()}) {  // nobody uses slot 2 of 4
    const Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
    const auto memory = make_host_memory();
    OperandSets sets(*memory, problem, tensors, plain_backend(), CacheMode::kWeightsCold, 3);
    const std::size_t slot_bytes = tensors.a[0].data.size() / 4;
    for (std::int64_t set = 0; set < 3; ++set) {
      CAPTURE(set);
      const auto* const a = static_cast<const std::byte*>(sets.operands(set).a[0]);
      for (std::int64_t slot = 0; slot < 4; ++slot) {
        CAPTURE(slot);
        std::vector<std::byte> expected(slot_bytes, std::byte{0xFF});
        if (slot != 2) {
          copy_turned_slot({problem, Role::kA, tensors.a[0]}, slot, set, expected.data());
        }
        CHECK(std::memcmp(a + static_cast<std::size_t>(slot) * slot_bytes, expected.data(),
                          slot_bytes) == 0);
      }
      CHECK(sets.changed_inputs(set) == "");
    }
  }
}

TEST_CASE("a changed byte of the weights is told where it lies, in any set and slot") {
  const Problem problem = large_slots();
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const auto memory = make_host_memory();
  OperandSets sets(*memory, problem, tensors, plain_backend(), CacheMode::kWeightsCold, 3);
  const auto bytes = static_cast<std::int64_t>(tensors.a[1].data.size());
  for (const std::int64_t set : {0, 1, 2}) {
    for (const std::int64_t at : {std::int64_t{0}, bytes / 4 - 1, bytes / 2, bytes * 5 / 8,
                                  bytes * 3 / 4 + 4711, bytes - 1}) {
      CAPTURE(set);
      CAPTURE(at);
      std::byte* const place = place_in(sets.operands(set).a[1], at);
      *place ^= std::byte{1};
      CHECK(sets.changed_inputs(set) ==
            "input a[1] was changed, first at byte " + std::to_string(at));
      *place ^= std::byte{1};
    }
    CHECK(sets.changed_inputs(set) == "");
  }
}

TEST_CASE("a changed byte of a given h is told, and of a set that is not the first one looked at") {
  Problem problem = linear_problem();
  problem.op = Op::kExpand;
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const auto memory = make_host_memory();
  OperandSets sets(*memory, problem, tensors, plain_backend(), CacheMode::kWeightsCold, 3);
  std::byte* const h = place_in(sets.operands(0).h, 5);
  *h ^= std::byte{1};
  CHECK(sets.changed_inputs(0) == "input h was changed, first at byte 5");
  *h ^= std::byte{1};
  CHECK(sets.changed_inputs(0) == "");
  *place_in(sets.operands(2).b[0], 7) ^= std::byte{1};
  CHECK(sets.changed_inputs(0) == "input b[0] was changed, first at byte 7");
}

TEST_CASE("small slots side by side are uploaded together, however many") {
  Problem problem = linear_problem();
  problem.in_features = problem.x_stride = 8192;  // of A 128 KiB a slot
  problem.slots = problem.tokens = 12;
  problem.rank.assign(12, 8);
  problem.scale.assign(12, 1);
  problem.plan =
      make_plan(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, problem.slots);
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const auto memory = make_host_memory();
  OperandSets sets(*memory, problem, tensors, plain_backend(), CacheMode::kWeightsCold, 2);
  CHECK(sets.changed_inputs(0) == "");
  CHECK(sets.changed_inputs(1) == "");
}

TEST_CASE("what is looked at after timing is looked at once all launches have ended") {
  const Problem problem = linear_problem();
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  WaitingMemory memory;
  OperandSets sets(memory, problem, tensors, plain_backend(), CacheMode::kWeightsCold, 1);
  std::vector<std::byte> output;
  sets.download_output(0, output);
  CHECK(memory.waited == 1);
  static_cast<void>(sets.damage());
  CHECK(memory.waited == 2);
  static_cast<void>(sets.changed_inputs(0));
  CHECK(memory.waited == 3);
}

TEST_CASE("numbers that are renewed alone lie where a whole set has them") {
  const Problem problem = linear_problem();
  Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const auto memory = make_host_memory();
  OperandSets sets(*memory, problem, tensors, plain_backend(), CacheMode::kWeightsCold, 3);
  Replaced replaced;
  const SmallChange change{problem, 2, {0, 2}, 17, &replaced};
  change_a(change, tensors);
  change_b(change, tensors);
  change_rows(change, tensors);
  CHECK(replaced.size() == 6);
  const auto holds = [&](const void* operand, Role role, const HostTensor& tensor) {
    const std::size_t slot_bytes = tensor.data.size() / 4;
    std::vector<std::byte> expected(slot_bytes);
    bool same = true;
    for (const std::int64_t slot : {0, 1, 3}) {
      copy_turned_slot({problem, role, tensor}, slot, 2, expected.data());
      same = same && std::memcmp(place_in(operand, slot * std::ssize(expected)), expected.data(),
                                 slot_bytes) == 0;
    }
    return same;
  };
  const auto all_hold = [&] {
    const Operands& operands = sets.operands(2);
    return std::memcmp(operands.x, tensors.x.data.data(), tensors.x.data.size()) == 0 &&
           holds(operands.a[0], Role::kA, tensors.a[0]) &&
           holds(operands.a[1], Role::kA, tensors.a[1]) &&
           holds(operands.b[0], Role::kB, tensors.b[0]) &&
           holds(operands.b[1], Role::kB, tensors.b[1]);
  };
  CHECK_FALSE(all_hold());
  sets.renew(2, replaced);
  CHECK(all_hold());
  put_back(replaced);
  CHECK_FALSE(all_hold());
  sets.renew(2, replaced);
  for (const std::int64_t set : {0, 1, 2}) {
    CHECK(sets.changed_inputs(set) == "");
  }
}

TEST_CASE("writing into a slot that no row uses is a changed input") {
  const Problem problem = linear_problem();
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const auto memory = make_host_memory();
  OperandSets sets(*memory, problem, tensors, plain_backend(), CacheMode::kWeightsCold, 1);
  auto* const b = static_cast<std::byte*>(const_cast<void*>(sets.operands(0).b[1]));
  const std::size_t slot_bytes = tensors.b[1].data.size() / 4;
  b[2 * slot_bytes] = std::byte{0};
  CHECK(sets.changed_inputs(0).find("input b[1] was changed") == 0);
}

TEST_CASE("of many slots as many sets rotate as of those in use, where a device has the room") {
  const auto backend = make_cpu_backend({1, ""});
  const std::int64_t cache = 50 << 20;
  const auto sets_of = [&](std::int64_t slots, std::int64_t room) {
    RoomyMemory memory(room);
    return affordable_sets(decode_over(slots), *backend, CacheMode::kWeightsCold, cache, memory);
  };
  const std::int64_t few = sets_of(4, 100 * kGiga);
  CHECK(few > 3);
  CHECK(sets_of(512, 100 * kGiga) == few);
  CHECK(sets_of(512, 8 * kGiga) == 1);  // a set has 4 GiB
}

TEST_CASE("sets beyond the first take half of the memory that a measurement leaves") {
  const auto backend = make_cpu_backend({1, ""});
  const std::int64_t cache = 50 << 20;
  const Problem problem = decode_over(512);
  const std::int64_t least = measurement_bytes(problem, CacheMode::kWeightsCold, cache) +
                             backend->workspace_bytes(problem);
  const std::int64_t set = rotating_allocation_bytes(problem, CacheMode::kWeightsCold) + 1;
  const auto sets_in = [&](std::int64_t room) {
    RoomyMemory memory(room);
    return affordable_sets(problem, *backend, CacheMode::kWeightsCold, cache, memory);
  };
  CHECK(sets_in(least + 4 * set) == 3);
  CHECK(sets_in(least + 4 * set - 1) == 2);
  CHECK(sets_in(least) == 1);
  CHECK_THROWS_AS(static_cast<void>(sets_in(least - 1)), CaseError);
}

TEST_CASE("of weights that no row uses two sets rotate, in samples of many launches") {
  Problem problem = linear_problem();
  problem.plan = make_plan(std::vector<std::int32_t>(12, kNoAdapter), problem.slots);
  const auto backend = make_cpu_backend({1, ""});
  MeasureSettings settings;
  settings.warmup_ms = 1;
  settings.min_time_ms = 1;
  settings.max_samples = 10;
  settings.min_samples = 6;
  FakeClock clock([](int, std::int64_t) { return 1e-6; });
  const auto memory = make_host_memory();
  DeviceFacts facts;
  facts.cache_bytes = 1 << 20;
  const Measurement result =
      measure({problem, settings, 1, nullptr, nullptr, nullptr}, *backend, *memory, clock, facts);
  CHECK(result.rotation_sets == 2);
  CHECK(result.launches > 64);
}
