#pragma once

#include <functional>

#include "device/memory.h"
#include "report/row.h"
#include "run/target.h"
#include "run/watch.h"

namespace lora_bench {

// False, and the row says so, when `work` did not come back; it keeps alive what it works on.
[[nodiscard]] bool came_back(Row& row, std::function<void()> work, const Pulse& pulse,
                             double timeout_s);

// A time below the floor counts against the kernel only when the ceilings were looked at again.
// `add_floor` puts the floor into a row that has its time, and judges it.
void judge_time(Row& row, Space space, Targets& targets,
                const std::function<void(Row&, const Ceilings&)>& add_floor);

}  // namespace lora_bench
