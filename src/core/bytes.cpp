#include "core/bytes.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
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

bool same_bytes(const std::vector<std::byte>& left, const std::vector<std::byte>& right) {
  return left.size() == right.size() &&
         same_bytes(left.data(), right.data(), static_cast<std::int64_t>(left.size()));
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

namespace {

// FIPS 180-4. The constants are the fraction bits of roots of the first primes.
std::uint32_t fraction_bits(long double root) {
  return static_cast<std::uint32_t>((root - std::floor(root)) * 0x1p32L);
}

std::array<std::uint32_t, 64> first_primes() {
  std::array<std::uint32_t, 64> primes{};
  std::size_t found = 0;
  for (std::uint32_t candidate = 2; found < primes.size(); ++candidate) {
    const auto end = primes.begin() + static_cast<std::ptrdiff_t>(found);
    if (std::none_of(primes.begin(), end, [&](std::uint32_t p) { return candidate % p == 0; })) {
      primes[found++] = candidate;
    }
  }
  return primes;
}

using State = std::array<std::uint32_t, 8>;

struct Constants {
  State start{};
  std::array<std::uint32_t, 64> rounds{};
};

const Constants& constants() {
  static const Constants kConstants = [] {
    Constants made;
    const std::array<std::uint32_t, 64> primes = first_primes();
    for (std::size_t i = 0; i < primes.size(); ++i) {
      made.rounds[i] = fraction_bits(std::cbrt(static_cast<long double>(primes[i])));
    }
    for (std::size_t i = 0; i < made.start.size(); ++i) {
      made.start[i] = fraction_bits(std::sqrt(static_cast<long double>(primes[i])));
    }
    return made;
  }();
  return kConstants;
}

std::array<std::uint32_t, 64> schedule_of(const std::uint8_t* block) {
  std::array<std::uint32_t, 64> words{};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t byte = 0; byte < 4; ++byte) {
      words[i] = words[i] << 8 | block[4 * i + byte];
    }
  }
  for (std::size_t i = 16; i < words.size(); ++i) {
    const std::uint32_t a = words[i - 15];
    const std::uint32_t b = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + words[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  return words;
}

void absorb(State& state, const std::uint8_t* block) {
  const std::array<std::uint32_t, 64> words = schedule_of(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                ((e & f) ^ (~e & g)) + constants().rounds[i] + words[i];
    const std::uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const State added{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) {
    state[i] += added[i];
  }
}

}  // namespace

std::string sha256(std::span<const char> bytes) {
  std::vector<std::uint8_t> padded(bytes.begin(), bytes.end());
  padded.push_back(0x80);
  while (padded.size() % 64 != 56) {
    padded.push_back(0);
  }
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) {
    padded.push_back(static_cast<std::uint8_t>(bits >> shift));
  }
  State state = constants().start;
  for (std::size_t block = 0; block < padded.size(); block += 64) {
    absorb(state, padded.data() + block);
  }
  std::string text;
  for (const std::uint32_t word : state) {
    text += fmt::format("{:08x}", word);
  }
  return text;
}

}  // namespace lora_bench
