#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
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

TEST_CASE("a guarded buffer may start with contents, and one look tells all, whatever its size") {
  const auto memory = lora_bench::make_host_memory();
  for (const std::int64_t bytes : {0, 1, 100, 65536, 65537, 300000}) {
    CAPTURE(bytes);
    std::vector<std::byte> contents(static_cast<std::size_t>(bytes));
    for (std::size_t i = 0; i < contents.size(); ++i) {
      contents[i] = static_cast<std::byte>(i * 7);
    }
    GuardedBuffer buffer(*memory, bytes, 2, contents.data());
    CHECK(buffer.look().contents == contents);
    CHECK(buffer.look().damage.empty());
    bytes_of(buffer)[bytes] ^= std::byte{1};
    CHECK(buffer.look().damage == "1 byte after the end, first at +0");
    CHECK(buffer.look().damage == buffer.damage());
    CHECK(buffer.look().contents == contents);
  }
}

namespace {

// Counts what is asked of the memory below.
struct Calls {
  int held = 0, copies_in = 0, copies_out = 0;
};

class Counting final : public lora_bench::Memory {
 public:
  explicit Counting(Calls& calls, std::int64_t room = std::int64_t{1} << 40)
      : calls_(calls), room_(room) {}
  lora_bench::Space space() const override { return inner_->space(); }
  void* allocate(std::int64_t bytes) override {
    if (bytes > room_) {
      throw CaseError("no room");
    }
    void* const block = inner_->allocate(bytes);
    ++calls_.held;
    room_ -= sizes_[block] = bytes;
    return block;
  }
  void release(void* address) noexcept override {
    --calls_.held;
    room_ += sizes_[address];
    inner_->release(address);
  }
  void copy_in(void* to, const void* from, std::int64_t bytes) override {
    calls_.copies_in += bytes > 0 ? 1 : 0;
    inner_->copy_in(to, from, bytes);
  }
  void copy_out(void* to, const void* from, std::int64_t bytes) override {
    calls_.copies_out += bytes > 0 ? 1 : 0;
    inner_->copy_out(to, from, bytes);
  }
  void copy_within(void* to, const void* from, std::int64_t bytes) override {
    inner_->copy_within(to, from, bytes);
  }
  void fill(void* to, std::byte value, std::int64_t bytes) override {
    inner_->fill(to, value, bytes);
  }
  void synchronize() override {}
  std::int64_t available_bytes() const override { return room_; }

 private:
  std::unique_ptr<lora_bench::Memory> inner_ = lora_bench::make_host_memory();
  Calls& calls_;
  std::int64_t room_;  // bytes
  std::map<void*, std::int64_t> sizes_;
};

// Writes as a kernel does: without asking the memory.
void launch(const GuardedBuffer& buffer, std::int64_t index, int value) {
  static_cast<std::byte*>(buffer.data())[index] = static_cast<std::byte>(value);
}

int byte_of(const GuardedBuffer& buffer, std::size_t index) {
  return std::to_integer<int>(buffer.download()[index]);
}

}  // namespace

TEST_CASE("mirrored memory sends small blocks in one copy and fetches them in one") {
  Calls calls;
  {
    const auto memory = lora_bench::make_mirrored_memory(std::make_unique<Counting>(calls));
    const std::vector<std::byte> contents(100, std::byte{5});
    std::vector<GuardedBuffer> buffers;
    for (int i = 0; i < 10; ++i) {
      buffers.emplace_back(*memory, 100, 2, contents.data());
    }
    CHECK(calls.copies_in == 0);
    memory->synchronize();
    CHECK(calls.copies_in == 1);
    for (int i = 0; i < 10; ++i) {
      CHECK(static_cast<std::byte*>(buffers[static_cast<std::size_t>(i)].data())[99] ==
            std::byte{5});
      launch(buffers[static_cast<std::size_t>(i)], 7, i);
    }
    memory->synchronize();
    for (int i = 0; i < 10; ++i) {
      CHECK(buffers[static_cast<std::size_t>(i)].damage().empty());
      CHECK(byte_of(buffers[static_cast<std::size_t>(i)], 7) == i);
      CHECK(byte_of(buffers[static_cast<std::size_t>(i)], 8) == 5);
    }
    CHECK(calls.copies_out == 1);
    CHECK(calls.held == 1);
  }
  CHECK(calls.held == 0);
}

TEST_CASE("what mirrored memory sends leaves what launches wrote beside it") {
  const auto memory = lora_bench::make_mirrored_memory(lora_bench::make_host_memory());
  const std::vector<std::byte> contents(64, std::byte{1});
  GuardedBuffer left(*memory, 64, 0, contents.data());
  GuardedBuffer middle(*memory, 64, 0, contents.data());
  GuardedBuffer right(*memory, 64, 0, contents.data());
  memory->synchronize();
  launch(middle, 3, 9);
  launch(middle, 64, 0);  // into its guard
  left.upload(std::vector<std::byte>(64, std::byte{2}));
  right.poison();
  memory->synchronize();
  CHECK(byte_of(left, 0) == 2);
  CHECK(byte_of(middle, 3) == 9);
  CHECK(byte_of(right, 63) == 0xFF);
  CHECK(middle.damage() == "1 byte after the end, first at +0");
  CHECK(left.damage().empty());
  launch(left, 0, 4);
  const auto run = memory->record([&](void*) { launch(right, 0, 6); });
  right.clear();
  run();
  CHECK(byte_of(right, 0) == 6);
  CHECK(byte_of(right, 1) == 0);
}

TEST_CASE(
    "mirrored memory has room again once blocks are given back, and large ones lie elsewhere") {
  Calls calls;
  {
    const auto memory = lora_bench::make_mirrored_memory(std::make_unique<Counting>(calls));
    for (int turn = 0; turn < 100; ++turn) {
      std::vector<GuardedBuffer> buffers;
      for (int i = 0; i < 50; ++i) {
        buffers.emplace_back(*memory, 60000);
      }
      CHECK(calls.held == 1);
    }
    const GuardedBuffer large(*memory, std::int64_t{3} << 20);
    CHECK(calls.held == 2);
    CHECK_THROWS_AS((void)memory->allocate(-1), CaseError);
  }
  CHECK(calls.held == 0);
}

TEST_CASE("mirrored memory keeps a large block for the next one of about that size") {
  Calls calls;
  {
    const auto memory = lora_bench::make_mirrored_memory(std::make_unique<Counting>(calls));
    constexpr std::int64_t kBytes = std::int64_t{3} << 20;
    const auto held_with = [&](std::int64_t bytes) {
      GuardedBuffer buffer(*memory, bytes);
      CHECK(buffer.damage().empty());
      CHECK(byte_of(buffer, static_cast<std::size_t>(bytes - 1)) == 0xFF);
      launch(buffer, bytes - 1, 1);
      launch(buffer, bytes, 1);  // into its guard
      return calls.held;
    };
    CHECK(held_with(kBytes) == 2);
    CHECK(held_with(kBytes) == 2);
    CHECK(held_with(kBytes - (64 << 10)) == 2);
    CHECK(held_with(kBytes + 1) == 3);
    CHECK(held_with(kBytes / 2) == 4);
    const GuardedBuffer first(*memory, kBytes);
    const GuardedBuffer second(*memory, kBytes);
    CHECK(calls.held == 4);
    const GuardedBuffer third(*memory, kBytes);
    CHECK(calls.held == 5);
  }
  CHECK(calls.held == 0);
}

TEST_CASE(
    "mirrored memory counts idle blocks as available and gives them back where there is no room") {
  Calls calls;
  const auto memory = lora_bench::make_mirrored_memory(std::make_unique<Counting>(calls, 60 << 20));
  memory->release(memory->allocate(30 << 20));
  CHECK(calls.held == 2);
  CHECK(memory->available_bytes() == 44 << 20);
  memory->release(memory->allocate(40 << 20));
  CHECK(calls.held == 2);
  CHECK(memory->available_bytes() == 44 << 20);
  CHECK_THROWS_AS((void)memory->allocate(50 << 20), CaseError);
}
