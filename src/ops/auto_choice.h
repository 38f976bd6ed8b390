#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/clustered/clustered_tuning.h"
#include "kernels/panel/panel_tuning.h"
#include "workload/problem.h"

namespace lora_bench {

// What the choice of kernels knows of a device; of itself it is an H200.
struct AutoDevice {
  int compute_capability = 90;
  std::int64_t multiprocessors = 132;
  std::int64_t shared_bytes = 227 << 10;          // that a block may have
  std::int64_t multiprocessor_bytes = 228 << 10;  // shared memory of each
};

// The kernel families of backend `auto`. All keep one order of sums, so that what is chosen changes
// no bit of a row.
enum class AutoFamily : std::uint8_t {
  kClustered,  // one launch, a cluster of blocks an adapter: the linear op of few rows on sm_90
  kPanel,      // many rows of an adapter, and any other op, alignment and device
};
[[nodiscard]] std::string_view name(AutoFamily family);

// What decides. All but the first are for kPanel.
enum class AutoReason : std::uint8_t {
  kFewRows,
  kNoClusters,
  kNotLinear,
  kNoVectors,
  kManyRows,
  kNoRoom,
};

// From the device, sizes and limits alone, never from who uses which adapter. Addresses that do not
// start on 16 bytes are seen later, and go to kPanel.
[[nodiscard]] AutoReason auto_reason(const AutoDevice& device, const Problem& problem);
[[nodiscard]] AutoFamily auto_family(const AutoDevice& device, const Problem& problem);

[[nodiscard]] kernels::ClusteredShape auto_clustered_shape(const AutoDevice& device,
                                                           const Problem& problem);
// `vectors`: operands can be read 16 bytes at a time.
[[nodiscard]] kernels::PanelShape auto_panel_shape(const AutoDevice& device, const Problem& problem,
                                                   bool vectors);

// Of both families: whether an address begins on 16 bytes is known only with it.
[[nodiscard]] std::int64_t auto_workspace_bytes(const AutoDevice& device, const Problem& problem);

}  // namespace lora_bench
