#include <cstring>
#include <vector>

#include "core/dtype.h"
#include "layers/communicator.h"
#include "ops/exchange.h"

namespace lora_bench {
namespace {

class HostCommunicator final : public Communicator {
 public:
  [[nodiscard]] std::string_view name() const override { return "local"; }

  void all_reduce(const PartShape& shape, std::span<void* const> parts, std::span<void* const> to,
                  Stream stream) override {
    if (parts.size() == 1) {
      all_gather(shape, parts, to, stream);  // a sum of one
      return;
    }
    const std::int64_t row_bytes = shape.columns * size_bytes(shape.dtype);
    std::vector<float> sum(static_cast<std::size_t>(shape.columns));
    std::vector<float> term(sum.size());
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      const std::int64_t at = row * row_bytes;
      decode(shape.dtype, static_cast<const char*>(parts[0]) + at, sum);
      for (std::size_t shard = 1; shard < parts.size(); ++shard) {
        decode(shape.dtype, static_cast<const char*>(parts[shard]) + at, term);
        for (std::size_t i = 0; i < sum.size(); ++i) {
          sum[i] += term[i];
        }
      }
      for (void* whole : to) {
        encode(shape.dtype, sum, static_cast<char*>(whole) + at);
      }
    }
  }

  void all_gather(const PartShape& shape, std::span<void* const> parts, std::span<void* const> to,
                  Stream) override {
    const auto bytes = static_cast<std::size_t>(shape.columns * size_bytes(shape.dtype));
    if (bytes == 0) {
      return;
    }
    for (void* whole : to) {
      auto* next = static_cast<char*>(whole);
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        for (void* part : parts) {
          std::memmove(next, static_cast<const char*>(part) + static_cast<std::size_t>(row) * bytes,
                       bytes);
          next += bytes;
        }
      }
    }
  }
};

class DeviceCommunicator final : public Communicator {
 public:
  [[nodiscard]] std::string_view name() const override { return "local"; }

  void all_reduce(const PartShape& shape, std::span<void* const> parts, std::span<void* const> to,
                  Stream stream) override {
    const bool in_place = parts.size() == 1 && to.size() == 1 && parts[0] == to[0];
    if (!in_place) {
      launch_sum({shape.dtype, shape.rows, shape.columns, parts, to}, stream);
    }
  }
  void all_gather(const PartShape& shape, std::span<void* const> parts, std::span<void* const> to,
                  Stream stream) override {
    launch_gather({shape.dtype, shape.rows, shape.columns, parts, to}, stream);
  }
};

}  // namespace

std::unique_ptr<Communicator> make_local_communicator(Space space) {
  if (space == Space::kHost) {
    return std::make_unique<HostCommunicator>();
  }
  return std::make_unique<DeviceCommunicator>();
}

}  // namespace lora_bench
