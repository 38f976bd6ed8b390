#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "measure/measure.h"
#include "ops/device_plan.h"

namespace lora_bench {
namespace {

// Of another backend only what sets h to zero.
class ZeroPart final : public BackendAround {
 public:
  using BackendAround::BackendAround;
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    inner().launch_zero(problem, operands, stream);
  }
};

constexpr int kRuns = 9;

// Enough to be long against the cost of starting a run; of large batches few take long enough.
std::size_t builds_in_a_run(std::int64_t tokens) {
  constexpr std::int64_t kTokensInARun = std::int64_t{1} << 20;
  return static_cast<std::size_t>(
      std::clamp<std::int64_t>(kTokensInARun / std::max<std::int64_t>(tokens, 1), 4, 64));
}

double median_build(const Launch& build, std::int64_t tokens, Clock& clock) {
  const std::size_t builds = builds_in_a_run(tokens);
  clock.load(0, std::vector<Launch>(builds, build));
  static_cast<void>(clock.run_seconds(0));  // warms caches and clocks
  std::vector<double> samples;
  for (int run = 0; run < kRuns; ++run) {
    samples.push_back(clock.run_seconds(0) / static_cast<double>(builds));
  }
  return summarize(samples).median;
}

// A plan's arrays in device memory, the ids filled in.
class DeviceArrays {
 public:
  DeviceArrays(Memory& memory, const Problem& problem)
      : ids_(memory, words(problem.tokens)), written_(memory, words(written_words(problem))) {
    ids_.upload(problem.plan.adapter_of_token.data(), words(problem.tokens));
  }

  [[nodiscard]] DevicePlan plan(const Problem& problem) const {
    DevicePlan plan;
    plan.adapter_of_token = static_cast<const std::int32_t*>(ids_.data());
    plan.token_order = static_cast<std::int32_t*>(written_.data());
    plan.active_ids = plan.token_order + problem.tokens;
    plan.group_starts = plan.active_ids + problem.slots + 1;
    plan.counts = plan.group_starts + problem.slots + 2;
    plan.active = plan.counts + problem.slots + 1;
    return plan;
  }

 private:
  static std::int64_t words(std::int64_t count) { return count * 4; }
  static std::int64_t written_words(const Problem& problem) {
    return problem.tokens + 3 * problem.slots + 5;
  }

  GuardedBuffer ids_;
  GuardedBuffer written_;
};

}  // namespace

Phases measure_phases(const MeasureRequest& request, const Backend& backend, Memory& memory,
                      Clock& clock, const DeviceFacts& device) {
  Phases phases;
  const auto seconds = [&](Op op, const Backend& part, bool checked) {
    const Problem problem = half_of(request.problem, op);
    MeasureRequest alone{.problem = problem,
                         .settings = request.settings,
                         .seed = request.seed,
                         .check = nullptr,
                         .stop = request.stop,
                         .alone = false};
    if (checked) {
      alone.check = request.check;
    }
    const Measurement measurement = measure(alone, part, memory, clock, device);
    if (!measurement.check_message.empty()) {
      throw CaseError(
          fmt::format("{} alone is wrong after timing: {}", name(op), measurement.check_message));
    }
    if (checked) {
      phases.replayed.push_back(measurement.replayed);
      phases.single.push_back(measurement.single);
      if (measurement.new_inputs) {
        phases.new_inputs.push_back(*measurement.new_inputs);
      }
    }
    return measurement.summary.median;
  };
  if (backend.zeroes(request.problem)) {
    phases.zero_s = seconds(Op::kShrink, ZeroPart(backend), false);
  }
  phases.shrink_s = seconds(Op::kShrink, backend, true) - phases.zero_s;
  phases.expand_s = seconds(Op::kExpand, backend, true);
  return phases;
}

std::optional<double> plan_seconds(const Problem& problem, Memory& memory, Clock& clock,
                                   const DeviceFacts& device) {
  if (memory.space() == Space::kHost) {
    // Kept, so that no compiler may leave the builds out.
    Plan built;
    const Launch build = [&](Stream) {
      built = make_plan(problem.plan.adapter_of_token, problem.slots);
    };
    return median_build(build, problem.tokens, clock);
  }
  const DevicePlanShape shape{problem.tokens, problem.slots, device.compute_capability};
  if (!device_plan_takes(shape).yes) {
    return std::nullopt;
  }
  const DeviceArrays arrays(memory, problem);
  const DevicePlan plan = arrays.plan(problem);
  const Launch build = [&](Stream stream) {
    launch_device_plan(plan, problem.tokens, shape, stream);
  };
  return median_build(build, problem.tokens, clock);
}

}  // namespace lora_bench
