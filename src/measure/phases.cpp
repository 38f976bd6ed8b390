#include "measure/measure.h"

#include <fmt/format.h>

#include "core/error.h"

namespace lora_bench {
namespace {

// Of another backend only what sets h to zero.
class ZeroPart final : public Backend {
 public:
  explicit ZeroPart(const Backend& whole) : whole_(whole) {}
  [[nodiscard]] std::string_view name() const override { return whole_.name(); }
  [[nodiscard]] std::string_view summary() const override { return whole_.summary(); }
  [[nodiscard]] Space space() const override { return whole_.space(); }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    return whole_.supports(problem, device);
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return whole_.numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return whole_.workspace_bytes(problem);
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    whole_.launch_zero(problem, operands, stream);
  }

 private:
  const Backend& whole_;
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
                         .alone = false,
                         .highest_mhz = request.highest_mhz};
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

}  // namespace lora_bench
