#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "device/gpu_group.h"
#include "device/memory.h"
#include "ops/backend.h"

namespace lora_bench {

// A result of which each shard has a part: [rows, columns], dense, of one dtype.
struct PartShape {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, columns = 0;
};

// Exchanges what the shards that run here have, in one call for all of them, in the order of their
// ranks: so one device can hold them all, and a library of collectives can group its calls. The
// stream is that of the one device; where each shard has a GPU, its stream is known.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual std::string version() const { return ""; }
  // Whether the sum of the parts is rounded to their dtype after each of them, in an order that
  // nobody knows; else it is made in fp32 in the order of the ranks and rounded once.
  [[nodiscard]] virtual bool rounds_each_sum() const { return false; }
  // Every `to` becomes the sum of the parts; it may be the part itself.
  virtual void all_reduce(const PartShape& shape, std::span<void* const> parts,
                          std::span<void* const> to, Stream stream) = 0;
  // Every `to` [rows, shards * columns] becomes the parts side by side.
  virtual void all_gather(const PartShape& shape, std::span<void* const> parts,
                          std::span<void* const> to, Stream stream) = 0;
  // `to`, which lies where the first shard does, becomes the parts side by side.
  virtual void gather(const PartShape& shape, std::span<void* const> parts, void* to,
                      Stream stream) = 0;
};

// All shards in one memory, of a host or of a device.
[[nodiscard]] std::unique_ptr<Communicator> make_local_communicator(Space space);

// A shard on each GPU of a group, which exchange through NCCL. `why_no_...` is "" where there are
// as many GPUs and the library, else the sentence.
[[nodiscard]] std::string why_no_nccl_communicator(std::int64_t gpus);
// Throws EnvironmentError with the reason.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_communicator(
    const std::shared_ptr<const GpuGroup>& gpus);

}  // namespace lora_bench
