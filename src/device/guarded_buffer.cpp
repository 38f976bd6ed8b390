#include <fmt/format.h>

#include <array>
#include <limits>
#include <stdexcept>
#include <utility>

#include "core/bytes.h"
#include "device/memory.h"

namespace lora_bench {
namespace {

using Band = std::array<std::byte, GuardedBuffer::kGuardBytes>;

constexpr std::byte kPoison{0xFF};

// Every byte differs from its neighbours, so that rows shifted from one guard into another, or a
// constant written over one, still show; none is the poison.
Band guard_pattern() {
  Band band{};
  for (std::size_t i = 0; i < band.size(); ++i) {
    band[i] = static_cast<std::byte>((i * 37 + 89) % 255);
  }
  return band;
}

std::string count_bytes(std::int64_t bytes) {
  return fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
}

struct Overrun {
  std::int64_t bytes = 0;
  std::int64_t first = 0;  // index in the band
};

Overrun compare(Memory& memory, const std::byte* band, std::int64_t size) {
  static const Band kExpected = guard_pattern();
  Band got{};
  memory.copy_out(got.data(), band, size);
  Overrun overrun;
  for (std::int64_t i = 0; i < size; ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (got[index] != kExpected[index] && overrun.bytes++ == 0) {
      overrun.first = i;
    }
  }
  return overrun;
}

}  // namespace

GuardedBuffer::GuardedBuffer(Memory& memory, std::int64_t bytes, std::int64_t misalign)
    : memory_(&memory), bytes_(bytes) {
  if (bytes < 0 || misalign < 0 || misalign >= kAlignmentBytes) {
    throw std::logic_error("guarded buffer: sizes must be >= 0, misalign below 256");
  }
  constexpr std::int64_t kExtra = kAlignmentBytes + 2 * kGuardBytes;
  // A size near the limit is left to the allocator, which refuses it by name.
  const bool absurd = bytes > std::numeric_limits<std::int64_t>::max() - kExtra;
  base_ = static_cast<std::byte*>(memory.allocate(absurd ? bytes : bytes + kExtra));
  std::byte* start = base_ + kGuardBytes + misalign;
  data_ = start;
  try {
    const Band band = guard_pattern();
    memory.copy_in(start - kGuardBytes, band.data(), kGuardBytes);
    memory.copy_in(start + bytes, band.data(), kGuardBytes);
    poison();
  } catch (...) {
    memory.release(base_);
    throw;
  }
}

GuardedBuffer::~GuardedBuffer() {
  if (base_ != nullptr) {
    memory_->release(base_);
  }
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      base_(std::exchange(other.base_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(base_, other.base_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void GuardedBuffer::upload(const void* from, std::int64_t bytes) {
  if (bytes > bytes_) {
    throw std::logic_error(
        fmt::format("upload of {} bytes into a buffer of {} bytes", bytes, bytes_));
  }
  if (bytes > 0) {
    memory_->copy_in(data_, from, bytes);
  }
}

std::vector<std::byte> GuardedBuffer::download() const {
  std::vector<std::byte> contents = zero_bytes(bytes_);
  if (bytes_ > 0) {
    memory_->copy_out(contents.data(), data_, bytes_);
  }
  return contents;
}

void GuardedBuffer::poison() {
  if (bytes_ > 0) {
    memory_->fill(data_, kPoison, bytes_);
  }
}

std::string GuardedBuffer::damage() const {
  if (base_ == nullptr) {
    return {};
  }
  const auto* start = static_cast<const std::byte*>(data_);
  const Overrun before = compare(*memory_, start - kGuardBytes, kGuardBytes);
  const Overrun after = compare(*memory_, start + bytes_, kGuardBytes);
  std::string text;
  if (before.bytes > 0) {
    text = fmt::format("{} before the start, first at {}", count_bytes(before.bytes),
                       before.first - kGuardBytes);
  }
  if (after.bytes > 0) {
    text += fmt::format("{}{} after the end, first at +{}", text.empty() ? "" : "; ",
                        count_bytes(after.bytes), after.first);
  }
  return text;
}

}  // namespace lora_bench
