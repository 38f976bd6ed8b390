#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "device/memory.h"
#include "device/system_files.h"

#ifdef LORA_BENCH_SANITIZED
// Not every compiler that has the sanitizers has their header.
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace lora_bench {
namespace {

// A page that the processor translates once for 512 of the common size: what streams through a
// large buffer reads it as fast as the ceilings, which are measured on such pages.
constexpr std::int64_t kLargePage = std::int64_t{2} << 20;
// What fills one begins on one: whole pages can be watched (device/write_watch.h).
constexpr std::int64_t kPage = 4096;

// Linux promises more memory than it has and kills the process on touch: larger requests are
// checked first. Smaller ones are not worth reading /proc for.
constexpr std::int64_t kCheckedFromBytes = std::int64_t{16} << 20;

class HostMemory final : public Memory {
 public:
  [[nodiscard]] Space space() const override { return Space::kHost; }

  [[nodiscard]] void* allocate(std::int64_t bytes) override {
    if (bytes < 0) {
      throw CaseError(fmt::format("cannot allocate {} bytes of host memory: negative size", bytes));
    }
    if (bytes >= kCheckedFromBytes && bytes > available_bytes()) {
      refuse(bytes);
    }
    const bool large = bytes >= kLargePage;
    const auto size = static_cast<std::size_t>(bytes) + 1;
    void* address = nullptr;
    const std::int64_t alignment = large ? kLargePage : bytes >= kPage ? kPage : kAlignmentBytes;
    if (::posix_memalign(&address, static_cast<std::size_t>(alignment), size) != 0) {
      refuse(bytes);
    }
    if (large) {
      // A wish: without such pages everything works, more slowly.
      static_cast<void>(::madvise(address, size, MADV_HUGEPAGE));
    }
    return address;
  }

  void release(void* address) noexcept override { std::free(address); }

  void copy_in(void* to, const void* from, std::int64_t bytes) override { copy(to, from, bytes); }
  void copy_out(void* to, const void* from, std::int64_t bytes) override { copy(to, from, bytes); }
  void copy_within(void* to, const void* from, std::int64_t bytes) override {
    copy(to, from, bytes);
  }

  void fill(void* to, std::byte value, std::int64_t bytes) override {
    if (bytes > 0) {
      std::memset(to, std::to_integer<int>(value), static_cast<std::size_t>(bytes));
    }
  }

  void synchronize() override {}

  [[nodiscard]] std::int64_t available_bytes() const override { return available_memory_bytes(); }

 private:
  static void copy(void* to, const void* from, std::int64_t bytes) {
    if (bytes > 0) {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
  }

  [[noreturn]] void refuse(std::int64_t bytes) const {
    throw CaseError(fmt::format("no room for {} ({} bytes) of host memory; {} are available",
                                format_bytes(static_cast<double>(bytes)), bytes,
                                format_bytes(static_cast<double>(available_bytes()))));
  }
};

}  // namespace

// The sanitizers have a heap of their own.
void keep_freed_memory() {
#ifndef LORA_BENCH_SANITIZED
  constexpr int kLargestBlock = 32 << 20;  // the most that the C library takes
  constexpr int kMostKept = 1 << 30;
  ::mallopt(M_ARENA_MAX, 1);  // those of other threads have no room for large blocks
  ::mallopt(M_MMAP_THRESHOLD, kLargestBlock);
  ::mallopt(M_TRIM_THRESHOLD, kMostKept);
#endif
}

std::int64_t heap_bytes() {
#ifdef LORA_BENCH_SANITIZED
  return static_cast<std::int64_t>(__sanitizer_get_current_allocated_bytes());
#else
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<std::int64_t>(heap.uordblks + heap.hblkhd);
#endif
}

std::int64_t mapped_bytes() {
  std::int64_t pages = 0;  // the first number
  std::istringstream(read_text("/proc/self/statm")) >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

std::int64_t open_descriptors() {
  std::error_code none;
  const std::filesystem::directory_iterator open("/proc/self/fd", none);
  return none ? 0 : std::distance(begin(open), end(open));
}

namespace {

CountObjects& counted_objects() {
  static CountObjects count;
  return count;
}

}  // namespace

void count_objects_by(CountObjects count) { counted_objects() = std::move(count); }

std::int64_t interpreter_objects(bool settled) {
  return counted_objects() ? counted_objects()(settled) : 0;
}

void Memory::enqueue_copy(void* /*stream*/, void* to, const void* from, std::int64_t bytes) {
  copy_within(to, from, bytes);
}

void Memory::enqueue_and_wait(const std::function<void(void* stream)>& enqueue) {
  synchronize();
  enqueue(nullptr);
  synchronize();
}

std::function<void()> Memory::record(std::function<void(void* stream)> enqueue) {
  return [enqueue = std::move(enqueue)] { enqueue(nullptr); };
}

std::unique_ptr<Memory> make_host_memory() { return std::make_unique<HostMemory>(); }

}  // namespace lora_bench
