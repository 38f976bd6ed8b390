#pragma once

#include <optional>
#include <string>

#include "ops/auto_choice.h"
#include "scenario/scenario.h"

namespace lora_bench {

// What no device launches: a number or tile that is not compiled, or one of another family than
// the tuning asks for. For LoadOptions.
[[nodiscard]] std::optional<SettingFault> tuning_fault(const Tuning& tuning);

// Why the device does not launch the case just as problem.tuning says, with what it would; "" where
// it does.
[[nodiscard]] std::string why_not_tuned(const AutoDevice& device, const Problem& problem);

// "few rows an adapter: 64 tokens over 64 adapters".
[[nodiscard]] std::string reason_text(const AutoDevice& device, const Problem& problem);

}  // namespace lora_bench
