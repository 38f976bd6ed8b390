#include "core/bytes.h"

#include <sys/mman.h>
#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

namespace lora_bench {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;
constexpr std::int64_t kOfAThread = std::int64_t{2} << 20;

// The byte of each number that has its sign: the last one, in little endian.
template <typename Change>
void change_signs(std::span<std::byte> numbers, std::int64_t bytes_of_each, const Change& change) {
  const auto step = static_cast<std::size_t>(bytes_of_each);
  for (std::size_t last = step; last <= numbers.size(); last += step) {
    change(numbers[last - 1]);
  }
}

}  // namespace

void negate(std::span<std::byte> numbers, std::int64_t bytes_of_each) {
  change_signs(numbers, bytes_of_each, [](std::byte& byte) { byte ^= std::byte{0x80}; });
}

void make_positive(std::span<std::byte> numbers, std::int64_t bytes_of_each) {
  change_signs(numbers, bytes_of_each, [](std::byte& byte) { byte &= std::byte{0x7F}; });
}

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

void resize_bytes(std::vector<std::byte>& bytes, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  if (bytes.capacity() < size) {
    bytes = zero_bytes(count);
  }
  bytes.resize(size);
}

void copy_bytes(void* to, const void* from, std::int64_t count) {
  for_blocks(count, kOfAThread, 0, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

bool same_bytes(const void* left, const void* right, std::int64_t count) {
  std::atomic<bool> same = true;
  for_blocks(count, kOfAThread, 0, [&](std::int64_t begin, std::int64_t end) {
    if (std::memcmp(static_cast<const std::byte*>(left) + begin,
                    static_cast<const std::byte*>(right) + begin,
                    static_cast<std::size_t>(end - begin)) != 0) {
      same = false;
    }
  });
  return same;
}

void for_blocks(std::int64_t count, std::int64_t per_block, int threads,
                const std::function<void(std::int64_t, std::int64_t)>& work) {
  std::atomic<std::int64_t> next = 0;
  const auto take_blocks = [&] {
    for (std::int64_t begin = next.fetch_add(per_block); begin < count;
         begin = next.fetch_add(per_block)) {
      work(begin, std::min(count, begin + per_block));
    }
  };
  const std::int64_t most =
      threads > 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
  const std::int64_t blocks = (count + per_block - 1) / per_block;
  std::vector<std::future<void>> others;
  for (std::int64_t i = 1; i < std::min(most, blocks); ++i) {
    others.push_back(std::async(std::launch::async, take_blocks));
  }
  take_blocks();
  for (std::future<void>& other : others) {
    other.get();
  }
}

}  // namespace lora_bench
