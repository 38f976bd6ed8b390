#pragma once

#include "emulated/machine.h"

namespace cooperative_groups {

struct cluster_group {
  static void sync() {
    lora_bench::emulated::arrive_in_cluster();
    lora_bench::emulated::await_cluster();
  }
  static void barrier_arrive() { lora_bench::emulated::arrive_in_cluster(); }
  static void barrier_wait() { lora_bench::emulated::await_cluster(); }
  template <typename T>
  static T* map_shared_rank(T* own, unsigned rank) {
    namespace emulated = lora_bench::emulated;
    const std::uint32_t at = emulated::to_shared(own) & ((1U << emulated::kBlockBits) - 1);
    return static_cast<T*>(
        const_cast<void*>(emulated::shared_of_any(rank << emulated::kBlockBits | at)));
  }
};
inline cluster_group this_cluster() { return {}; }

}  // namespace cooperative_groups
