#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "core/error.h"
#include "device/memory.h"

namespace {

using lora_bench::CaseError;
using lora_bench::GuardedBuffer;

std::byte* bytes_of(const GuardedBuffer& buffer) { return static_cast<std::byte*>(buffer.data()); }

}  // namespace

TEST_CASE("host memory is aligned to 256 bytes, zero bytes included") {
  const auto memory = lora_bench::make_host_memory();
  for (const std::int64_t bytes : {0, 1, 255, 256, 257, 100'000}) {
    void* address = memory->allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(address) % 256 == 0);
    memory->release(address);
  }
}

TEST_CASE("host memory that cannot be had is refused with its size") {
  const auto memory = lora_bench::make_host_memory();
  for (const std::int64_t bytes :
       {std::int64_t{1} << 50, std::numeric_limits<std::int64_t>::max()}) {
    std::string message;
    try {
      memory->release(memory->allocate(bytes));
    } catch (const CaseError& error) {
      message = error.what();
    }
    CHECK(message.find(std::to_string(bytes)) != std::string::npos);
  }
  CHECK_THROWS_AS((void)memory->allocate(-1), CaseError);
  CHECK_THROWS_AS(GuardedBuffer(*memory, std::numeric_limits<std::int64_t>::max()), CaseError);
}

TEST_CASE("a guarded buffer starts as poison, with the alignment that was asked for") {
  const auto memory = lora_bench::make_host_memory();
  for (const std::int64_t misalign : {0, 2, 4, 254}) {
    const GuardedBuffer buffer(*memory, 1000, misalign);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256 ==
          static_cast<std::uintptr_t>(misalign));
    for (const std::byte byte : buffer.download()) {
      REQUIRE(byte == std::byte{0xFF});
    }
    CHECK(buffer.damage().empty());
  }
}

TEST_CASE("writing every byte of a guarded buffer damages nothing") {
  const auto memory = lora_bench::make_host_memory();
  GuardedBuffer buffer(*memory, 333, 2);
  const std::vector<std::byte> zeros(333, std::byte{0});
  buffer.upload(zeros);
  CHECK(buffer.damage().empty());
  CHECK(buffer.download() == zeros);
  buffer.poison();
  CHECK(buffer.download() == std::vector<std::byte>(333, std::byte{0xFF}));
  CHECK(buffer.damage().empty());
}

TEST_CASE("an overrun is told with its side, length and offset") {
  const auto memory = lora_bench::make_host_memory();
  for (const std::int64_t misalign : {0, 2}) {
    GuardedBuffer buffer(*memory, 100, misalign);
    bytes_of(buffer)[100] ^= std::byte{1};
    CHECK(buffer.damage() == "1 byte after the end, first at +0");
    for (int i = -8; i < -5; ++i) {
      bytes_of(buffer)[i] ^= std::byte{0x80};
    }
    CHECK(buffer.damage() ==
          "3 bytes before the start, first at -8; 1 byte after the end, first at +0");
  }
}

TEST_CASE("the first and the last guard byte are watched, whatever constant is written") {
  const auto memory = lora_bench::make_host_memory();
  for (int value = 0; value < 256; ++value) {
    GuardedBuffer buffer(*memory, 10);
    // Two neighbours never hold the same guard value, so one of them must change.
    bytes_of(buffer)[10 + GuardedBuffer::kGuardBytes - 1] = std::byte(value);
    bytes_of(buffer)[10 + GuardedBuffer::kGuardBytes - 2] = std::byte(value);
    CHECK_FALSE(buffer.damage().empty());
    GuardedBuffer other(*memory, 10);
    bytes_of(other)[-GuardedBuffer::kGuardBytes] = std::byte(value);
    bytes_of(other)[-GuardedBuffer::kGuardBytes + 1] = std::byte(value);
    CHECK_FALSE(other.damage().empty());
  }
}

TEST_CASE("an empty guarded buffer still has its bands") {
  const auto memory = lora_bench::make_host_memory();
  GuardedBuffer buffer(*memory, 0);
  CHECK(buffer.damage().empty());
  CHECK(buffer.download().empty());
  bytes_of(buffer)[0] ^= std::byte{1};
  CHECK(buffer.damage() == "1 byte after the end, first at +0");
}

TEST_CASE("a moved guarded buffer takes its memory along") {
  const auto memory = lora_bench::make_host_memory();
  GuardedBuffer first(*memory, 64);
  const void* address = first.data();
  GuardedBuffer second(std::move(first));
  CHECK(second.data() == address);
  GuardedBuffer third;
  CHECK(third.damage().empty());
  third = std::move(second);
  CHECK(third.data() == address);
  CHECK(third.bytes() == 64);
  CHECK(third.damage().empty());
}

TEST_CASE("an upload larger than the buffer is a mistake of the caller") {
  const auto memory = lora_bench::make_host_memory();
  GuardedBuffer buffer(*memory, 8);
  const std::vector<std::byte> nine(9);
  CHECK_THROWS_AS(buffer.upload(nine), std::logic_error);
  CHECK(buffer.damage().empty());
}

TEST_CASE("guarded buffers of any size start poisoned and tell damage on both sides") {
  const auto memory = lora_bench::make_host_memory();
  for (const std::int64_t bytes : {1, 100, 65536, 65537, 300000}) {
    CAPTURE(bytes);
    lora_bench::GuardedBuffer buffer(*memory, bytes, 2);
    const std::vector<std::byte> fresh = buffer.download();
    CHECK(static_cast<std::int64_t>(fresh.size()) == bytes);
    CHECK(std::count(fresh.begin(), fresh.end(), std::byte{0xFF}) == bytes);
    buffer.upload(std::vector<std::byte>(static_cast<std::size_t>(bytes)));
    CHECK(buffer.damage() == "");
    auto* const start = static_cast<std::byte*>(buffer.data());
    *(start - lora_bench::GuardedBuffer::kGuardBytes) ^= std::byte{1};
    CHECK(buffer.damage() == "1 byte before the start, first at -4096");
    *(start + bytes + lora_bench::GuardedBuffer::kGuardBytes - 1) ^= std::byte{1};
    CHECK(buffer.damage() ==
          "1 byte before the start, first at -4096; 1 byte after the end, first at +4095");
  }
}
