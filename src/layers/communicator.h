#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/dtype.h"
#include "device/memory.h"
#include "ops/backend.h"

namespace lora_bench {

// A result of which each shard has a part: [rows, columns], dense, of one dtype.
struct PartShape {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, columns = 0;
};

// Exchanges what the shards that run here have, in one call for all of them, in the order of their
// ranks: so one device can hold them all, and a library of collectives can group its calls.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Every `to` becomes the sum of the parts; it may be the part itself.
  virtual void all_reduce(const PartShape& shape, std::span<void* const> parts,
                          std::span<void* const> to, Stream stream) = 0;
  // Every `to` [rows, shards * columns] becomes the parts side by side.
  virtual void all_gather(const PartShape& shape, std::span<void* const> parts,
                          std::span<void* const> to, Stream stream) = 0;
};

// All shards in one memory, of a host or of a device. Sums are made in fp32 in the order of the
// ranks and rounded once.
[[nodiscard]] std::unique_ptr<Communicator> make_local_communicator(Space space);

}  // namespace lora_bench
