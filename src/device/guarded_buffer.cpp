#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "core/bytes.h"
#include "device/memory.h"

namespace lora_bench {
namespace {

using Band = std::array<std::byte, GuardedBuffer::kGuardBytes>;

// Every byte differs from its neighbours, so that rows shifted from one guard into another, or a
// constant written over one, still show; none is the poison.
const Band& guard_pattern() {
  static const Band kPattern = [] {
    Band band{};
    for (std::size_t i = 0; i < band.size(); ++i) {
      band[i] = static_cast<std::byte>((i * 37 + 89) % 255);
    }
    return band;
  }();
  return kPattern;
}

constexpr std::int64_t kPageBytes = 4096;
// What is allocated beside the contents: the guards, room to shift between them, and a page more,
// so that behind the contents at least one page is whole (device/write_watch.h).
constexpr std::int64_t kExtraBytes = kAlignmentBytes + 2 * GuardedBuffer::kGuardBytes + kPageBytes;

// Up to this size one copy of everything takes less than a copy of each part: on a device each is a
// call that waits.
constexpr std::int64_t kOneCopyBytes = std::int64_t{64} << 10;

std::string count_bytes(std::int64_t bytes) {
  return fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
}

struct Overrun {
  std::int64_t bytes = 0;
  std::int64_t first = 0;  // index in the band
};

Overrun compare(const std::byte* got) {
  const Band& expected = guard_pattern();
  Overrun overrun;
  if (std::memcmp(got, expected.data(), expected.size()) == 0) {
    return overrun;
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got[i] != expected[i] && overrun.bytes++ == 0) {
      overrun.first = static_cast<std::int64_t>(i);
    }
  }
  return overrun;
}

// "" if both bands hold the pattern, else where they do not.
std::string damage_of(const std::byte* band_before, const std::byte* band_after) {
  const Overrun before = compare(band_before);
  const Overrun after = compare(band_after);
  std::string text;
  if (before.bytes > 0) {
    text = fmt::format("{} before the start, first at {}", count_bytes(before.bytes),
                       before.first - GuardedBuffer::kGuardBytes);
  }
  if (after.bytes > 0) {
    text += fmt::format("{}{} after the end, first at +{}", text.empty() ? "" : "; ",
                        count_bytes(after.bytes), after.first);
  }
  return text;
}

}  // namespace

GuardedBuffer::GuardedBuffer(Memory& memory, std::int64_t bytes, std::int64_t misalign,
                             const void* contents)
    : memory_(&memory), bytes_(bytes) {
  if (bytes < 0 || misalign < 0 || misalign >= kAlignmentBytes) {
    throw std::logic_error("guarded buffer: sizes must be >= 0, misalign below 256");
  }
  // A size near the limit is left to the allocator, which refuses it by name.
  const bool absurd = bytes > std::numeric_limits<std::int64_t>::max() - kExtraBytes;
  base_ = static_cast<std::byte*>(memory.allocate(absurd ? bytes : bytes + kExtraBytes));
  std::byte* start = base_ + kGuardBytes + misalign;
  data_ = start;
  try {
    lay_out(contents);
  } catch (...) {
    memory.release(base_);
    throw;
  }
}

std::span<std::byte> GuardedBuffer::allocation() const {
  return {base_, base_ == nullptr ? 0 : static_cast<std::size_t>(bytes_ + kExtraBytes)};
}

// The guards, and the contents or poison between them.
void GuardedBuffer::lay_out(const void* contents) {
  const Band& band = guard_pattern();
  std::byte* const start = static_cast<std::byte*>(data_);
  if (bytes_ > kOneCopyBytes) {
    memory_->copy_in(start - kGuardBytes, band.data(), kGuardBytes);
    memory_->copy_in(start + bytes_, band.data(), kGuardBytes);
    if (contents == nullptr) {
      poison();
    } else {
      memory_->copy_in(start, contents, bytes_);
    }
    return;
  }
  std::vector<std::byte> all(static_cast<std::size_t>(bytes_ + 2 * kGuardBytes), kPoison);
  if (contents != nullptr) {
    std::memcpy(all.data() + kGuardBytes, contents, static_cast<std::size_t>(bytes_));
  }
  std::copy(band.begin(), band.end(), all.begin());
  std::copy(band.begin(), band.end(), all.end() - kGuardBytes);
  memory_->copy_in(start - kGuardBytes, all.data(), bytes_ + 2 * kGuardBytes);
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
  std::vector<std::byte> contents;
  download_to(contents);
  return contents;
}

void GuardedBuffer::download_to(std::vector<std::byte>& contents) const {
  resize_bytes(contents, bytes_);
  if (bytes_ > 0) {
    memory_->copy_out(contents.data(), data_, bytes_);
  }
}

void GuardedBuffer::copy_from(const GuardedBuffer& other) {
  if (other.bytes_ != bytes_ || other.memory_ != memory_) {
    throw std::logic_error("a copy between buffers of other sizes or memories");
  }
  if (bytes_ > 0) {
    memory_->copy_within(data_, other.data_, bytes_);
  }
}

bool GuardedBuffer::same_as(const GuardedBuffer& other) const {
  constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20;
  return same_pieces(other, kPieceBytes, kPieceBytes);
}

bool GuardedBuffer::same_rows(const GuardedBuffer& other, std::int64_t row_bytes,
                              std::int64_t room_bytes) const {
  return same_pieces(other, row_bytes, row_bytes + room_bytes);
}

// Piece by piece: of what is as large as this memory the host may not hold two.
bool GuardedBuffer::same_pieces(const GuardedBuffer& other, std::int64_t compared_bytes,
                                std::int64_t stride_bytes) const {
  constexpr std::int64_t kLeastBytes = std::int64_t{16} << 20;
  if (bytes_ != other.bytes_) {
    return false;
  }
  const std::int64_t most = std::max(kLeastBytes / stride_bytes, std::int64_t{1}) * stride_bytes;
  std::vector<std::byte> mine = zero_bytes(std::min(bytes_, most));
  std::vector<std::byte> others = mine;
  for (std::int64_t done = 0; done < bytes_; done += most) {
    const std::int64_t piece = std::min(bytes_ - done, most);
    memory_->copy_out(mine.data(), static_cast<const std::byte*>(data_) + done, piece);
    other.memory_->copy_out(others.data(), static_cast<const std::byte*>(other.data_) + done,
                            piece);
    for (std::int64_t row = 0; row < piece; row += stride_bytes) {
      if (std::memcmp(mine.data() + row, others.data() + row,
                      static_cast<std::size_t>(std::min(compared_bytes, piece - row))) != 0) {
        return false;
      }
    }
  }
  return true;
}

void GuardedBuffer::fill(std::byte value) {
  if (bytes_ > 0) {
    memory_->fill(data_, value, bytes_);
  }
}

GuardedBuffer::Look GuardedBuffer::look(std::vector<std::byte> room) const {
  Look look{"", std::move(room)};
  if (base_ == nullptr) {
    look.contents.clear();
    return look;
  }
  const auto* start = static_cast<const std::byte*>(data_);
  if (bytes_ > kOneCopyBytes) {
    download_to(look.contents);
    look.damage = damage();
    return look;
  }
  std::vector<std::byte> all = zero_bytes(bytes_ + 2 * kGuardBytes);
  memory_->copy_out(all.data(), start - kGuardBytes, bytes_ + 2 * kGuardBytes);
  look.damage = damage_of(all.data(), all.data() + (all.size() - kGuardBytes));
  look.contents.assign(all.begin() + kGuardBytes, all.end() - kGuardBytes);
  return look;
}

std::string GuardedBuffer::damage() const {
  if (base_ == nullptr) {
    return {};
  }
  if (bytes_ <= kOneCopyBytes) {
    return look().damage;
  }
  const auto* start = static_cast<const std::byte*>(data_);
  std::vector<std::byte> bands(2 * kGuardBytes);
  memory_->copy_out(bands.data(), start - kGuardBytes, kGuardBytes);
  memory_->copy_out(bands.data() + kGuardBytes, start + bytes_, kGuardBytes);
  return damage_of(bands.data(), bands.data() + kGuardBytes);
}

}  // namespace lora_bench
