#include <doctest/doctest.h>

#include <cstdint>
#include <iterator>
#include <vector>

#include "core/bytes.h"
#include "device/memory.h"
#include "support/need_gpu.h"

TEST_CASE("copies of any size and place between host and device bring every byte, and no other") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  constexpr std::int64_t kMega = std::int64_t{1} << 20;
  for (const std::int64_t bytes : {std::int64_t{1}, 4 * kMega - 1, 4 * kMega, 16 * kMega,
                                   16 * kMega + 1, 32 * kMega, 49 * kMega - 3, 100 * kMega + 7}) {
    for (const std::int64_t misalign : {0, 1, 6}) {
      CAPTURE(bytes);
      CAPTURE(misalign);
      std::vector<std::byte> sent(static_cast<std::size_t>(bytes));
      for (std::size_t i = 0; i < sent.size(); ++i) {
        sent[i] = static_cast<std::byte>((i * 2654435761U) >> 13U);
      }
      lora_bench::GuardedBuffer buffer(*memory, bytes, misalign);
      buffer.upload(sent);
      std::vector<std::byte> back;
      buffer.download_to(back);
      REQUIRE(std::ssize(back) == bytes);
      CHECK(lora_bench::same_bytes(back.data(), sent.data(), bytes));
      // A part of it, into another place.
      const std::int64_t part = bytes / 3;
      buffer.upload(sent.data() + (bytes - part), part);
      buffer.download_to(back);
      CHECK(lora_bench::same_bytes(back.data(), sent.data() + (bytes - part), part));
      CHECK(lora_bench::same_bytes(back.data() + part, sent.data() + part, bytes - part));
      CHECK(buffer.damage() == "");
    }
  }
}

TEST_CASE("a copy to the host sees what was put on the device just before it") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  constexpr std::int64_t kBytes = (std::int64_t{96} << 20) + 5;
  lora_bench::GuardedBuffer buffer(*memory, kBytes);
  lora_bench::GuardedBuffer other(*memory, kBytes);
  std::vector<std::byte> back;
  for (int turn = 0; turn < 5; ++turn) {
    other.clear();
    turn % 2 == 0 ? buffer.poison() : buffer.clear();
    other.copy_from(buffer);
    other.download_to(back);
    const std::vector<std::byte> expected(back.size(),
                                          turn % 2 == 0 ? std::byte{0xFF} : std::byte{0});
    CHECK(lora_bench::same_bytes(back.data(), expected.data(), kBytes));
  }
}
