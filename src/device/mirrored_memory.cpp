#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "core/bytes.h"
#include "core/error.h"
#include "device/memory.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include "device/pinned_pieces.h"
#endif

namespace lora_bench {
namespace {

// Blocks beyond this size are few, and their copies take longer than getting them.
constexpr std::int64_t kLargestMirrored = std::int64_t{128} << 10;
constexpr std::int64_t kSlabBytes = std::int64_t{16} << 20;
// What is kept for the next one who asks.
constexpr std::int64_t kMostIdleBytes = std::int64_t{2} << 30;

class MirroredMemory final : public Memory {
 public:
  explicit MirroredMemory(std::unique_ptr<Memory> inner)
      : inner_(std::move(inner)),
        slab_(static_cast<std::byte*>(inner_->allocate(kSlabBytes))),
        mirror_(zero_bytes(kSlabBytes)) {
#ifdef LORA_BENCH_HAVE_CUDA
    if (space() == Space::kDevice) {
      pinned_.emplace(mirror_.data(), kSlabBytes);
    }
#endif
  }
  ~MirroredMemory() override {
    give_idle_back();
    inner_->release(slab_);
  }
  MirroredMemory(const MirroredMemory&) = delete;
  MirroredMemory& operator=(const MirroredMemory&) = delete;

  [[nodiscard]] Space space() const override { return inner_->space(); }

  [[nodiscard]] void* allocate(std::int64_t bytes) override {
    const std::int64_t size = (std::max<std::int64_t>(bytes, 1) + kAlignmentBytes - 1) /
                              kAlignmentBytes * kAlignmentBytes;
    if (bytes < 0 || bytes > kLargestMirrored || end() + size > kSlabBytes) {
      return allocate_apart(bytes);
    }
    if (blocks_.empty()) {
      fresh_ = true;  // nobody asks what was there
      changed_first_ = changed_past_ = 0;
    }
    const std::int64_t first = end();
    blocks_[first] = size;
    return slab_ + first;
  }

  void release(void* address) noexcept override {
    if (mirrored(address)) {
      blocks_.erase(offset(address));
    } else {
      release_apart(address);
    }
  }

  void copy_in(void* to, const void* from, std::int64_t bytes) override {
    if (!mirrored(to)) {
      inner_->copy_in(to, from, bytes);
    } else if (bytes > 0) {
      std::memcpy(changed(to, bytes), from, static_cast<std::size_t>(bytes));
    }
  }

  void copy_out(void* to, const void* from, std::int64_t bytes) override {
    if (!mirrored(from)) {
      inner_->copy_out(to, from, bytes);
    } else if (bytes > 0) {
      fetch();
      std::memcpy(to, mirror_.data() + offset(from), static_cast<std::size_t>(bytes));
    }
  }

  void copy_within(void* to, const void* from, std::int64_t bytes) override {
    if (!mirrored(to) && !mirrored(from)) {
      inner_->copy_within(to, from, bytes);
    } else if (bytes > 0) {
      std::vector<std::byte> contents = zero_bytes(bytes);
      copy_out(contents.data(), from, bytes);
      copy_in(to, contents.data(), bytes);
    }
  }

  void fill(void* to, std::byte value, std::int64_t bytes) override {
    if (!mirrored(to)) {
      inner_->fill(to, value, bytes);
    } else if (bytes > 0) {
      std::fill_n(changed(to, bytes), bytes, value);
    }
  }

  // Of launches, which come between what is sent and what is fetched.
  void enqueue_copy(void* stream, void* to, const void* from, std::int64_t bytes) override {
    inner_->enqueue_copy(stream, to, from, bytes);
  }

  void synchronize() override {
    send();
    inner_->synchronize();
  }

  void enqueue_and_wait(const std::function<void(void* stream)>& enqueue) override {
    synchronize();
    inner_->enqueue_and_wait(enqueue);
  }

  [[nodiscard]] std::int64_t available_bytes() const override {
    return inner_->available_bytes() + idle_bytes_;
  }

  [[nodiscard]] std::function<void()> record(std::function<void(void* stream)> enqueue) override {
    synchronize();
    return [this, run = inner_->record(std::move(enqueue))] {
      send();
      run();
    };
  }

 private:
  // An idle block of about that size, or a new one.
  [[nodiscard]] void* allocate_apart(std::int64_t bytes) {
    const auto found = idle_.lower_bound(bytes);
    if (found != idle_.end() && found->first / 5 * 4 <= bytes) {
      const auto [size, address] = *found;
      idle_.erase(found);
      idle_bytes_ -= size;
      apart_[address] = size;
      return address;
    }
    void* address = nullptr;
    try {
      address = inner_->allocate(bytes);
    } catch (const CaseError&) {
      if (idle_.empty()) {
        throw;
      }
      give_idle_back();
      address = inner_->allocate(bytes);
    }
    apart_[address] = bytes;
    return address;
  }

  void release_apart(void* address) noexcept {
    const auto found = apart_.find(address);
    const std::int64_t size = found->second;
    apart_.erase(found);
    if (idle_bytes_ + size > kMostIdleBytes) {
      inner_->release(address);
      return;
    }
    idle_.emplace(size, address);
    idle_bytes_ += size;
  }

  void give_idle_back() noexcept {
    for (const auto& [size, address] : idle_) {
      inner_->release(address);
    }
    idle_.clear();
    idle_bytes_ = 0;
  }

  [[nodiscard]] bool mirrored(const void* address) const {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= slab_ && byte < slab_ + kSlabBytes;
  }
  [[nodiscard]] std::int64_t offset(const void* address) const {
    return static_cast<const std::byte*>(address) - slab_;
  }
  [[nodiscard]] std::int64_t end() const {
    return blocks_.empty() ? 0 : blocks_.rbegin()->first + blocks_.rbegin()->second;
  }

  // What launches left, unless none can have been since it was last asked for.
  void fetch() {
    if (!fresh_) {
      inner_->copy_out(mirror_.data(), slab_, end());
      fresh_ = true;
    }
  }

  // Where the mirror is to be written, after what stands around it is known: it is sent as well.
  std::byte* changed(void* to, std::int64_t bytes) {
    fetch();
    const std::int64_t first = offset(to);
    const bool none = changed_first_ == changed_past_;
    changed_first_ = none ? first : std::min(changed_first_, first);
    changed_past_ = none ? first + bytes : std::max(changed_past_, first + bytes);
    return mirror_.data() + first;
  }

  void send() {
    inner_->copy_in(slab_ + changed_first_, mirror_.data() + changed_first_,
                    changed_past_ - changed_first_);
    changed_first_ = changed_past_ = 0;
    fresh_ = false;
  }

  std::unique_ptr<Memory> inner_;
  std::byte* slab_;
  std::vector<std::byte> mirror_;
#ifdef LORA_BENCH_HAVE_CUDA
  std::optional<PinnedRange> pinned_;
#endif
  std::map<std::int64_t, std::int64_t> blocks_;  // in use: sizes by where they begin
  std::map<void*, std::int64_t> apart_;          // in use: sizes of what is not mirrored
  std::multimap<std::int64_t, void*> idle_;      // not in use, by size
  std::int64_t idle_bytes_ = 0;
  bool fresh_ = true;                                  // the mirror has what the slab has, or newer
  std::int64_t changed_first_ = 0, changed_past_ = 0;  // newer
};

}  // namespace

std::unique_ptr<Memory> make_mirrored_memory(std::unique_ptr<Memory> inner) {
  return std::make_unique<MirroredMemory>(std::move(inner));
}

}  // namespace lora_bench
