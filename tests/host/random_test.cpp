#include "core/random.h"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

using namespace lora_bench;

TEST_CASE("random bits keep their golden values") {
  struct Golden {
    std::uint64_t seed, stream, index, bits;
  };
  // Computed outside this code base from the definition of the generator.
  constexpr std::array<Golden, 6> kGolden{
      {{0, 0, 0, 0x932e99a0e7545b27U},
       {1, 0, 0, 0xafd889d78d966773U},
       {0, 1, 0, 0xe50b5c824e56935bU},
       {0, 0, 1, 0x80b926b24c812183U},
       {1, 100, 7, 0x10e4a5471e950748U},
       {0xdeadbeefU, 3ULL << 32, 1ULL << 40, 0x49ea3eaf11a9315cU}}};
  for (const Golden& golden : kGolden) {
    CHECK(random_bits(golden.seed, golden.stream, golden.index) == golden.bits);
    CHECK(RandomStream(golden.seed, golden.stream).bits(golden.index) == golden.bits);
  }
}

TEST_CASE("every bit is as often set as not, and neighbours in any argument are unrelated") {
  constexpr std::uint64_t kDraws = 20000;
  std::array<std::int64_t, 64> set{};
  std::array<std::int64_t, 3> differing{};
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const std::uint64_t bits = random_bits(5, 6, i);
    for (std::size_t bit = 0; bit < 64; ++bit) {
      set[bit] += static_cast<std::int64_t>((bits >> bit) & 1U);
    }
    differing[0] += std::popcount(bits ^ random_bits(5, 6, i + 1));
    differing[1] += std::popcount(bits ^ random_bits(5, 7, i));
    differing[2] += std::popcount(bits ^ random_bits(6, 6, i));
  }
  for (const std::int64_t count : set) {
    CHECK(std::abs(static_cast<double>(count) - kDraws / 2.0) < 6 * std::sqrt(kDraws / 4.0));
  }
  for (const std::int64_t count : differing) {
    CHECK(std::abs(static_cast<double>(count) - 32.0 * kDraws) < 6 * std::sqrt(16.0 * kDraws));
  }
}

TEST_CASE("random_unit is uniform between 0 and 1") {
  constexpr std::uint64_t kDraws = 20000;
  std::array<std::int64_t, 10> bins{};
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double unit = random_unit(1, 2, i);
    REQUIRE(unit >= 0.0);
    REQUIRE(unit < 1.0);
    ++bins[static_cast<std::size_t>(unit * 10)];
  }
  for (const std::int64_t count : bins) {
    CHECK(std::abs(static_cast<double>(count) - 2000.0) < 6 * std::sqrt(2000.0));
  }
}

TEST_CASE("random_below reaches every value below its bound and none other") {
  std::vector<std::int64_t> seen(7);
  for (std::uint64_t i = 0; i < 7000; ++i) {
    const std::uint64_t value = random_below(9, 9, i, 7);
    REQUIRE(value < 7);
    ++seen[value];
  }
  for (const std::int64_t count : seen) {
    CHECK(std::abs(static_cast<double>(count) - 1000.0) < 200.0);
  }
  CHECK(random_below(1, 1, 1, 1) == 0);
}
