#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace lora_bench {

// The metadata of vLLM's LoRA kernels; the published names beside ours. Unlike in Plan, rows
// without an adapter are a group of their own, id -1, and it is the first one. docs/plan.md.
struct KernelForm {
  std::vector<std::int32_t> adapter_of_token;  // token_lora_mapping [tokens]
  std::vector<std::int32_t> token_order;       // token_indices_sorted_by_lora_ids [tokens]
  std::vector<std::int32_t> active_ids;        // active_lora_ids [slots + 1], -1 padded
  std::vector<std::int32_t> counts;            // num_tokens_per_lora [slots + 1], 0 padded
  std::vector<std::int32_t> starts;            // lora_token_start_loc [slots + 2], 0 padded
  std::int32_t active = 0;                     // num_active_loras: groups, that of -1 included
  bool no_adapter = false;                     // no_lora_flag: nothing to launch
};

[[nodiscard]] KernelForm make_kernel_form(const Plan& plan, std::int64_t slots);

// The number of groups that a graph is replayed for: the least captured number that is enough, or
// `active` itself when none is. `captured` ascends.
[[nodiscard]] std::int32_t captured_active(std::int32_t active,
                                           std::span<const std::int32_t> captured);

}  // namespace lora_bench
