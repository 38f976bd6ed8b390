#include "core/bytes.h"

#include <sys/mman.h>

namespace lora_bench {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;

}  // namespace

std::vector<std::byte> zero_bytes(std::int64_t count) {
  std::vector<std::byte> bytes;
  const auto size = static_cast<std::size_t>(count);
  bytes.reserve(size);
  const auto start = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = (start + kLargePage - 1) / kLargePage * kLargePage;
  const std::uintptr_t past = (start + size) / kLargePage * kLargePage;
  if (first < past) {
    // A wish: without such pages everything works, more slowly.
    static_cast<void>(::madvise(bytes.data() + (first - start), past - first, MADV_HUGEPAGE));
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace lora_bench
