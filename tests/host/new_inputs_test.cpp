#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/dishonest.h"

using namespace lora_bench;
using namespace lora_bench::test;

namespace {

// Microseconds that a backend says it worked, so that no test waits.
struct TimeWorked {
  double us = 0;
  std::int64_t rests = 0;  // of the clock
};

class WorkClock final : public Clock {
 public:
  explicit WorkClock(TimeWorked& work) : work_(work) {}
  void load(int slot, std::vector<Launch> sequence) override {
    sequences_[slot] = std::move(sequence);
  }
  [[nodiscard]] double run_seconds(int slot) override {
    const double before = work_.us;
    for (const Launch& launch : loaded_in(sequences_, slot)) {
      launch(Stream{});
    }
    return (work_.us - before) * 1e-6;
  }
  [[nodiscard]] Conditions conditions() override { return {}; }
  [[nodiscard]] double resolution_seconds() const override { return 1e-9; }
  [[nodiscard]] double now_seconds() override { return work_.us * 1e-6; }
  void rest(double /*seconds*/) override { ++work_.rests; }

 private:
  TimeWorked& work_;
  std::map<int, std::vector<Launch>> sequences_;
};

Measurement measured(const Problem& problem, const Backend& backend, TimeWorked& work,
                     CacheMode cache) {
  const MeasureSettings settings = short_measure(cache);
  const Numerics numerics = backend.numerics(problem);
  const auto check = [&](const Left& left) { return held_against_oracle(numerics, left); };
  DeviceFacts device;
  device.kind = "cpu";
  device.cache_bytes = 4 * touched_bytes(problem, CacheMode::kWeightsCold);
  const std::unique_ptr<Memory> memory = make_host_memory();
  WorkClock clock(work);
  return measure({problem, settings, 1, check, nullptr, nullptr}, backend, *memory, clock, device);
}

constexpr double kComputed = 10, kRemembered = 2;

// Compares all that it is given, in little time, and adds what it remembers of the same. It may
// compare row by row, and stop for good once rows were new after it knew them for so many launches.
struct Memo {
  bool by_row = false;
  std::int64_t patience = 0;  // 0: never stops

  std::map<std::string, std::vector<float>> known = {};
  std::int64_t in_a_row = 0;
  bool stopped = false;
  TimeWorked work = {};

  std::vector<float>& delta_of(const std::string& key, const Problem& problem,
                               const Operands& operands, const Backend& backend) {
    const bool is_known = known.contains(key) && !stopped;
    stopped = stopped || (patience > 0 && !is_known && in_a_row > patience);
    in_a_row = is_known ? in_a_row + 1 : 0;
    work.us += is_known ? kRemembered : kComputed;
    std::vector<float>& delta = known[key];
    if (!is_known) {
      const auto elements = problem.tokens * problem.y_stride;
      std::vector<std::byte> y(static_cast<std::size_t>(elements) * sizeof(float));
      Operands alone = operands;
      alone.y = y.data();
      Problem overwriting = problem;
      overwriting.add_inputs = false;
      backend.launch(overwriting, alone, {});
      delta.resize(static_cast<std::size_t>(elements));
      decode(Dtype::kFp32, y.data(), delta);
    }
    return delta;
  }

  void operator()(const Problem& problem, const Operands& operands, const Backend& backend) {
    const bool shrinks = has_shrink(problem.op);
    const std::int64_t row_bytes = 4 * (shrinks ? problem.x_stride : problem.max_rank);
    const auto* rows = static_cast<const char*>(shrinks ? operands.x : operands.h);
    const auto bytes_of = [](const void* from, std::int64_t numbers) {
      return std::string(static_cast<const char*>(from), static_cast<std::size_t>(4 * numbers));
    };
    std::string step =
        bytes_of(operands.b[0], problem.slots * problem.widths[0] * problem.max_rank);
    step += shrinks
                ? bytes_of(operands.a[0], problem.slots * problem.max_rank * problem.in_features)
                : "";
    step += bytes_of(operands.rank, problem.slots) + bytes_of(operands.scale, problem.slots) +
            bytes_of(operands.adapter_of_token, problem.tokens);
    for (std::int64_t row = 0; row < problem.tokens; row += by_row ? 1 : problem.tokens) {
      const std::int64_t count = by_row ? 1 : problem.tokens;
      const std::string key =
          step + std::to_string(row) +
          std::string(rows + row * row_bytes, static_cast<std::size_t>(count * row_bytes));
      const std::vector<float>& delta = delta_of(key, problem, operands, backend);
      auto* const y = static_cast<float*>(operands.y);
      for (std::int64_t index = row * problem.y_stride; index < (row + count) * problem.y_stride;
           ++index) {
        if (problem.acts_on(index / problem.y_stride)) {
          y[index] = (problem.add_inputs ? y[index] : 0) + delta[static_cast<std::size_t>(index)];
        }
      }
    }
  }
};

Problem in_fp32(Op op) {
  Problem problem = decode(op, 4);
  problem.dtype = OperandDtypes(Dtype::kFp32);
  return problem;
}

}  // namespace

TEST_CASE("a time that holds only while x stays the same is told, however all of it is compared") {
  for (const Op op : {Op::kLinear, Op::kExpand}) {
    for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
      for (const bool adds : {true, false}) {
        for (const Memo& kind : {Memo{}, Memo{.by_row = true}, Memo{.patience = 30}}) {
          Problem problem = in_fp32(op);
          problem.add_inputs = adds;
          Memo memo = kind;
          const Dishonest backend([&](const Problem& whole, const Operands& operands,
                                      const Backend& honest) { memo(whole, operands, honest); });
          const Measurement found = measured(problem, backend, memo.work, cache);
          CAPTURE(name(op));
          CAPTURE(name(cache));
          CAPTURE(adds);
          CAPTURE(kind.by_row);
          CAPTURE(kind.patience);
          CHECK(found.check_message == "");  // its results are right
          REQUIRE(found.new_inputs);
          CHECK(depends_on_new_inputs(*found.new_inputs));
        }
      }
    }
  }
}

TEST_CASE("a launch that takes as long for a new x is not doubted") {
  for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
    TimeWorked work;
    const Dishonest backend(
        [&](const Problem& problem, const Operands& operands, const Backend& honest) {
          work.us += kComputed;
          honest.launch(problem, operands, {});
        });
    const Measurement found = measured(in_fp32(Op::kLinear), backend, work, cache);
    CHECK(found.check_message == "");
    REQUIRE(found.new_inputs);
    CHECK_FALSE(depends_on_new_inputs(*found.new_inputs));
    CHECK(found.new_inputs->new_s == doctest::Approx(found.new_inputs->known_s));
  }
}

TEST_CASE("slow runs of a machine that does other things are no doubt") {
  // New rows are slow until the clock has rested a few times.
  constexpr std::int64_t kDisturbedRests = 4;
  std::int64_t news = 0;
  std::string last;
  TimeWorked work;
  const Dishonest backend(
      [&](const Problem& problem, const Operands& operands, const Backend& honest) {
        std::string x(static_cast<const char*>(operands.x),
                      static_cast<std::size_t>(4 * problem.tokens * problem.x_stride));
        news += x != last ? 1 : 0;
        last = std::move(x);
        work.us += news > 1 && work.rests < kDisturbedRests ? 2 * kComputed : kComputed;
        honest.launch(problem, operands, {});
      });
  const Measurement found = measured(in_fp32(Op::kLinear), backend, work, CacheMode::kHot);
  REQUIRE(found.new_inputs);
  CHECK(work.rests == kDisturbedRests);
  CHECK_FALSE(depends_on_new_inputs(*found.new_inputs));
}
