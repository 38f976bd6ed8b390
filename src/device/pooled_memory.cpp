#include <bit>
#include <map>
#include <vector>

#include "device/memory.h"

namespace lora_bench {
namespace {

// Larger ones are few, and their copies take longer than getting them.
constexpr std::int64_t kLargestKept = std::int64_t{1} << 20;

class PooledMemory final : public Memory {
 public:
  explicit PooledMemory(std::unique_ptr<Memory> inner) : inner_(std::move(inner)) {}
  ~PooledMemory() override {
    for (const auto& [size, blocks] : idle_) {
      for (void* const block : blocks) {
        inner_->release(block);
      }
    }
  }
  PooledMemory(const PooledMemory&) = delete;
  PooledMemory& operator=(const PooledMemory&) = delete;

  [[nodiscard]] Space space() const override { return inner_->space(); }

  [[nodiscard]] void* allocate(std::int64_t bytes) override {
    if (bytes < 0 || bytes > kLargestKept) {
      return inner_->allocate(bytes);
    }
    const auto size = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
    std::vector<void*>& idle = idle_[size];
    void* block = nullptr;
    if (idle.empty()) {
      block = inner_->allocate(size);
    } else {
      block = idle.back();
      idle.pop_back();
    }
    size_of_[block] = size;
    return block;
  }

  void release(void* address) noexcept override {
    const auto found = size_of_.find(address);
    if (found == size_of_.end()) {
      inner_->release(address);
      return;
    }
    idle_[found->second].push_back(address);
    size_of_.erase(found);
  }

  void copy_in(void* to, const void* from, std::int64_t bytes) override {
    inner_->copy_in(to, from, bytes);
  }
  void copy_out(void* to, const void* from, std::int64_t bytes) override {
    inner_->copy_out(to, from, bytes);
  }
  void fill(void* to, std::byte value, std::int64_t bytes) override {
    inner_->fill(to, value, bytes);
  }
  void synchronize() override { inner_->synchronize(); }
  [[nodiscard]] std::int64_t available_bytes() const override { return inner_->available_bytes(); }
  [[nodiscard]] std::function<void()> record(std::function<void(void* stream)> enqueue) override {
    return inner_->record(std::move(enqueue));
  }

 private:
  std::unique_ptr<Memory> inner_;
  std::map<std::int64_t, std::vector<void*>> idle_;  // by size
  std::map<void*, std::int64_t> size_of_;            // of those in use
};

}  // namespace

std::unique_ptr<Memory> make_pooled_memory(std::unique_ptr<Memory> inner) {
  return std::make_unique<PooledMemory>(std::move(inner));
}

}  // namespace lora_bench
