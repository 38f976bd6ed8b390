#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lora_bench {

enum class Space : std::uint8_t { kHost, kDevice };

// Of everything that is allocated.
constexpr std::int64_t kAlignmentBytes = 256;

// Memory of one space. Host and CUDA are the two implementations; everything above (guards,
// poison, rotation) is written once on top. Copies are synchronous.
class Memory {
 public:
  virtual ~Memory() = default;
  [[nodiscard]] virtual Space space() const = 0;
  // At least kAlignmentBytes aligned; throws CaseError naming the size when there is no room.
  [[nodiscard]] virtual void* allocate(std::int64_t bytes) = 0;
  virtual void release(void* address) noexcept = 0;
  virtual void copy_in(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void copy_out(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void copy_within(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void fill(void* to, std::byte value, std::int64_t bytes) = 0;
  // Puts a copy within this memory on a stream, behind the launches that are there, and does not
  // wait for it: it may be recorded as they are. A host copies at once.
  virtual void enqueue_copy(void* stream, void* to, const void* from, std::int64_t bytes);
  // Called before a launch, so that it finds what was copied in, and after it: surfaces its errors.
  virtual void synchronize() = 0;
  // Calls `enqueue` with a stream that waits for no other stream, then waits for the whole device.
  // A host has no streams: null.
  virtual void enqueue_and_wait(const std::function<void(void* stream)>& enqueue);
  [[nodiscard]] virtual std::int64_t available_bytes() const = 0;
  // What `enqueue` puts on a stream, recorded without being run (a CUDA graph), to be run later any
  // number of times; a run ends before it returns. On a host a run is `enqueue` itself.
  [[nodiscard]] virtual std::function<void()> record(std::function<void(void* stream)> enqueue);
};

[[nodiscard]] std::unique_ptr<Memory> make_host_memory();
// From now on the C library keeps up to a GiB that is freed for who asks next: a proof takes and
// frees megabytes many times, and a system that hands them out anew clears each page.
void keep_freed_memory();
// What this process has taken from its heap and not given back.
[[nodiscard]] std::int64_t heap_bytes();
// What it has mapped, heaps and stacks included, and how many file descriptors it has open.
[[nodiscard]] std::int64_t mapped_bytes();
[[nodiscard]] std::int64_t open_descriptors();
// How many objects an interpreter in this process holds, each of them too small for the above; 0
// without one. `settled`: what it would free later by itself is freed first.
using CountObjects = std::function<std::int64_t(bool settled)>;
void count_objects_by(CountObjects count);
[[nodiscard]] std::int64_t interpreter_objects(bool settled);
// Of one of this host's GPUs. Throws EnvironmentError with the reason (no driver, no device, built
// without CUDA).
[[nodiscard]] std::unique_ptr<Memory> make_device_memory(int gpu = 0);
// Keeps small blocks side by side with their image on the host: what is copied in goes there when a
// launch is next, and what a launch left comes back at once, however many ask. Large blocks that
// are given back are kept for the next who asks. For processes that prove thousands of small cases,
// where calls of a GPU's driver take longer than a kernel.
[[nodiscard]] std::unique_ptr<Memory> make_mirrored_memory(std::unique_ptr<Memory> inner);

// A buffer between two guard bands of a known pattern. Its contents start as given, or as 0xFF
// bytes, which is NaN in every dtype. Move-only.
class GuardedBuffer {
 public:
  static constexpr std::int64_t kGuardBytes = 4096;
  static constexpr std::byte kPoison{0xFF};

  GuardedBuffer() = default;
  // `misalign` shifts the start by so many bytes from a 256-byte boundary, to prove that a backend
  // asks for no more alignment than the dtype's own. `contents` has as many bytes, or is null.
  GuardedBuffer(Memory& memory, std::int64_t bytes, std::int64_t misalign = 0,
                const void* contents = nullptr);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&& other) noexcept;
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  // All that was allocated: the contents, the guards, and what is left over behind them.
  [[nodiscard]] std::span<std::byte> allocation() const;
  void upload(const void* from, std::int64_t bytes);
  void upload(std::span<const std::byte> from) {
    upload(from.data(), static_cast<std::int64_t>(from.size()));
  }
  [[nodiscard]] std::vector<std::byte> download() const;
  // The same into an array that is used again.
  void download_to(std::vector<std::byte>& contents) const;
  void copy_from(const GuardedBuffer& other);                    // of the same memory and size
  [[nodiscard]] bool same_as(const GuardedBuffer& other) const;  // contents, bit for bit
  // The same of rows of so many bytes, whatever lies behind each.
  [[nodiscard]] bool same_rows(const GuardedBuffer& other, std::int64_t row_bytes,
                               std::int64_t room_bytes) const;
  void fill(std::byte value);           // every byte of the contents
  void poison() { fill(kPoison); }      // contents to 0xFF
  void clear() { fill(std::byte{0}); }  // contents to 0, which is +0 in every dtype

  // "" if both bands are intact, else "3 bytes before the start, first at -8" and the like.
  [[nodiscard]] std::string damage() const;
  // What damage() and download() say, in one copy where that is quicker; `room` is an array that
  // may be used again.
  struct Look {
    std::string damage;
    std::vector<std::byte> contents;
  };
  [[nodiscard]] Look look(std::vector<std::byte> room = {}) const;

 private:
  void lay_out(const void* contents);
  [[nodiscard]] bool same_pieces(const GuardedBuffer& other, std::int64_t compared_bytes,
                                 std::int64_t stride_bytes) const;

  Memory* memory_ = nullptr;
  std::byte* base_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace lora_bench
