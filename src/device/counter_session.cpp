#include "device/counter_session.h"

#include <memory>
#include <vector>

#include "core/error.h"

namespace lora_bench {

CounterSession::CounterSession() {
  try {
    setup_ = set_up_counters();
    // Some calls refuse who has no permission only when something was counted.
    static_cast<void>(count_by_cupti(
        setup_, [] {}, [] {}));
  } catch (const CountersFailed& failed) {
    throw EnvironmentError(failed.what());
  }
}

LaunchCounters CounterSession::count(const std::function<void()>& prepare,
                                     const std::function<void()>& launch) const {
  const std::vector<double> values = count_by_cupti(setup_, prepare, launch);
  if (values.empty()) {
    throw CountersFailed(
        "the GPU's counters cannot be read (cuptiRangeProfilerGetCounterDataInfo: no range)");
  }
  return counters_of(setup_.metrics, values);
}

std::string why_no_counters() {
  try {
    static_cast<void>(CounterSession());
    return "";
  } catch (const EnvironmentError& error) {
    return error.what();
  }
}

CountLaunch count_by_own_session() {
  const auto session = std::make_shared<std::unique_ptr<const CounterSession>>();
  return [session](const std::function<void()>& prepare, const std::function<void()>& launch) {
    if (!*session) {
      *session = std::make_unique<const CounterSession>();
    }
    return (*session)->count(prepare, launch);
  };
}

}  // namespace lora_bench
