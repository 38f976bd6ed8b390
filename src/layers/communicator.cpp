#include "layers/communicator.h"

#include <cstring>
#include <map>
#include <vector>

#include "core/dtype.h"
#include "ops/exchange.h"
#include "ops/nccl_library.h"

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
  void gather(const PartShape& shape, std::span<void* const> parts, void* to,
              Stream stream) override {
    all_gather(shape, parts, std::span<void* const>(&to, 1), stream);
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
  void gather(const PartShape& shape, std::span<void* const> parts, void* to,
              Stream stream) override {
    all_gather(shape, parts, std::span<void* const>(&to, 1), stream);
  }
};

}  // namespace

std::unique_ptr<Communicator> make_local_communicator(Space space) {
  if (space == Space::kHost) {
    return std::make_unique<HostCommunicator>();
  }
  return std::make_unique<DeviceCommunicator>();
}

namespace {

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(const std::shared_ptr<const GpuGroup>& gpus)
      : gpus_(gpus), nccl_(gpus) {}

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] std::string version() const override { return "NCCL " + nccl_.version(); }
  // What has been added goes from GPU to GPU in the dtype of the parts.
  [[nodiscard]] bool rounds_each_sum() const override { return true; }

  void all_reduce(const PartShape& shape, std::span<void* const> parts, std::span<void* const> to,
                  Stream) override {
    std::vector<NcclPart> ranks;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      ranks.push_back({parts[rank], to[rank]});
    }
    nccl_.all_reduce(shape.dtype, shape.rows * shape.columns, ranks);
  }

  // NCCL puts whole parts one after another; each GPU then puts their rows side by side.
  void all_gather(const PartShape& shape, std::span<void* const> parts, std::span<void* const> to,
                  Stream) override {
    std::vector<GuardedBuffer>* const stacked = stacked_for(shape);
    std::vector<NcclPart> ranks;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      ranks.push_back({parts[rank], stacked == nullptr ? to[rank] : (*stacked)[rank].data()});
    }
    nccl_.all_gather(shape.dtype, shape.rows * shape.columns, ranks);
    for (std::size_t rank = 0; stacked != nullptr && rank < parts.size(); ++rank) {
      put_side_by_side(shape, (*stacked)[rank].data(), to.subspan(rank, 1), rank);
    }
  }

  void gather(const PartShape& shape, std::span<void* const> parts, void* to, Stream) override {
    std::vector<GuardedBuffer>* const stacked = stacked_for(shape);
    void* const whole = stacked == nullptr ? to : stacked->front().data();
    nccl_.gather(shape.dtype, shape.rows * shape.columns, parts, whole);
    if (stacked != nullptr) {
      put_side_by_side(shape, whole, std::span<void* const>(&to, 1), 0);
    }
  }

 private:
  // Where parts that were put one after another are the parts side by side: null.
  std::vector<GuardedBuffer>* stacked_for(const PartShape& shape) {
    if (shape.rows <= 1 || gpus_->size() == 1) {
      return nullptr;
    }
    return &stacked_of(shape.rows * shape.columns * size_bytes(shape.dtype) * gpus_->size());
  }

  void put_side_by_side(const PartShape& shape, void* stacked, std::span<void* const> to,
                        std::size_t rank) const {
    const std::int64_t bytes = shape.rows * shape.columns * size_bytes(shape.dtype);
    std::vector<void*> one_after_another;
    for (std::int64_t part = 0; part < gpus_->size(); ++part) {
      one_after_another.push_back(static_cast<char*>(stacked) + part * bytes);
    }
    const CurrentGpu current(static_cast<int>(rank));
    launch_gather({shape.dtype, shape.rows, shape.columns, one_after_another, to},
                  Stream{gpus_->stream(static_cast<std::int64_t>(rank))});
  }

  // Of each size one, which stays: graphs know its address. Made before anything is captured, since
  // everything runs once before.
  std::vector<GuardedBuffer>& stacked_of(std::int64_t bytes) {
    std::vector<GuardedBuffer>& found = stacked_[bytes];
    while (static_cast<std::int64_t>(found.size()) < gpus_->size()) {
      found.emplace_back(*gpus_->memory(static_cast<std::int64_t>(found.size())), bytes);
    }
    return found;
  }

  std::shared_ptr<const GpuGroup> gpus_;
  Nccl nccl_;
  std::map<std::int64_t, std::vector<GuardedBuffer>> stacked_;  // by bytes
};

}  // namespace

std::string why_no_nccl_communicator(std::int64_t gpus) {
  const std::string no_library = why_no_nccl();
  return no_library.empty() ? why_no_gpus(gpus) : no_library;
}

std::unique_ptr<Communicator> make_nccl_communicator(const std::shared_ptr<const GpuGroup>& gpus) {
  return std::make_unique<NcclCommunicator>(gpus);
}

}  // namespace lora_bench
