#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/dtype.h"
#include "device/gpu_group.h"

namespace lora_bench {

// "" when NCCL can be used, else the sentence. Looked for at run time, as cuBLAS is.
[[nodiscard]] std::string why_no_nccl();

// What one rank brings and gets.
struct NcclPart {
  const void* from = nullptr;
  void* to = nullptr;
};

// One communicator for each GPU of a group, in this process. Calls enqueue on the streams of the
// group, for all ranks at once; they may be captured.
class Nccl {
 public:
  // Throws EnvironmentError with the reason.
  explicit Nccl(std::shared_ptr<const GpuGroup> gpus);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  [[nodiscard]] std::string version() const;  // "2.28.9"
  // Every `to` becomes the sum of all; it may be the part itself.
  void all_reduce(Dtype dtype, std::int64_t elements, std::span<const NcclPart> parts);
  // Every `to` becomes all parts, one after another; of each `elements`.
  void all_gather(Dtype dtype, std::int64_t elements, std::span<const NcclPart> parts);
  // `to` of the first rank becomes all parts, one after another; of each `elements`.
  void gather(Dtype dtype, std::int64_t elements, std::span<void* const> parts, void* to);

 private:
  struct State;
  std::shared_ptr<const GpuGroup> gpus_;
  std::unique_ptr<State> state_;
};

}  // namespace lora_bench
