#include "measure/measure.h"

#include <doctest/doctest.h>

#include <set>

#include "measure/fake_clock.h"
#include "support/near.h"
#include "support/workload_case.h"

namespace lora_bench {
namespace {

// Knows which part it was asked for last; costs what the script says of that part.
class PartsBackend final : public Backend {
 public:
  explicit PartsBackend(bool zeroes) : zeroes_(zeroes) {}
  [[nodiscard]] std::string_view name() const override { return "parts"; }
  [[nodiscard]] std::string_view summary() const override { return ""; }
  [[nodiscard]] Space space() const override { return Space::kHost; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
  [[nodiscard]] Numerics numerics(const Problem&) const override { return {}; }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  [[nodiscard]] bool zeroes(const Problem&) const override { return zeroes_; }
  void launch_zero(const Problem&, const Operands&, Stream) const override { seconds = 1e-3; }
  void launch(const Problem& problem, const Operands&, Stream) const override {
    seconds = problem.op == Op::kShrink ? 4e-3 : (problem.op == Op::kExpand ? 8e-3 : 100);
  }
  mutable double seconds = 0;

 private:
  bool zeroes_;
};

// Runs its sequence, and says that each launch took what the backend noted.
class PartsClock final : public Clock {
 public:
  explicit PartsClock(const PartsBackend& backend) : backend_(backend) {}
  void load(int slot, std::vector<Launch> sequence) override { slots_[slot] = std::move(sequence); }
  [[nodiscard]] double run_seconds(int slot) override {
    double seconds = 0;
    for (const Launch& launch : slots_[slot]) {
      launch({});
      seconds += backend_.seconds;
    }
    now_ += seconds;
    return seconds;
  }
  [[nodiscard]] double now_seconds() override { return now_; }
  [[nodiscard]] double resolution_seconds() const override { return 1e-9; }
  [[nodiscard]] Conditions conditions() override { return {}; }

 private:
  const PartsBackend& backend_;
  std::vector<Launch> slots_[2];
  double now_ = 0;
};

Phases phases_of(const PartsBackend& backend) {
  Problem problem = problem_of(random_case(3));
  problem.op = Op::kLinear;
  MeasureSettings settings;
  settings.cache = CacheMode::kHot;
  settings.warmup_ms = 0;
  PartsClock clock(backend);
  const auto memory = make_host_memory();
  return measure_phases(
      {.problem = problem, .settings = settings, .check = nullptr, .stop = nullptr}, backend,
      *memory, clock, {});
}

}  // namespace

TEST_CASE("the parts of a linear op are timed by themselves") {
  const Phases phases = phases_of(PartsBackend(false));
  CHECK(phases.zero_s == 0);
  CHECK(phases.shrink_s == near(4e-3));
  CHECK(phases.expand_s == near(8e-3));
}

TEST_CASE("what sets h to zero is no part of shrink") {
  const Phases phases = phases_of(PartsBackend(true));
  CHECK(phases.zero_s == near(1e-3));
  CHECK(phases.shrink_s == near(3e-3));
  CHECK(phases.expand_s == near(8e-3));
}

}  // namespace lora_bench
