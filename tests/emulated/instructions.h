#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "emulated/machine.h"

// The instructions that kernels write as text, one function each; operands in their order there.
namespace lora_bench::emulated {

// --- products ---

enum class Element { kBf16, kHalf, kTf32 };

void mma_16_8_16(Element element, float& d0, float& d1, float& d2, float& d3, std::uint32_t a0,
                 std::uint32_t a1, std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                 std::uint32_t b1);
void mma_16_8_8(float& d0, float& d1, float& d2, float& d3, std::uint32_t a0, std::uint32_t a1,
                std::uint32_t a2, std::uint32_t a3, std::uint32_t b0, std::uint32_t b1);
void ldmatrix(std::uint32_t& r0, std::uint32_t& r1, std::uint32_t& r2, std::uint32_t& r3,
              std::uint32_t row);
// `d`: as many numbers as half the columns; both operands as rows of 128 bytes, swizzled.
void wgmma_shared(Element element, int columns, float* d, std::uint64_t a, std::uint64_t b,
                  bool add);
void wgmma_registers(Element element, int columns, float* d, const std::uint32_t* a,
                     std::uint64_t b, bool add);

enum class Code : std::uint8_t { kE4m3, kE5m2 };
// Two numbers of eight bits, `high` in the upper byte: to nearest even, none beyond the largest.
[[nodiscard]] std::uint16_t two_codes(Code format, float high, float low);

// Two numbers of e4m3, in the lower 16 bits, as fp16.
[[nodiscard]] std::uint32_t halves_of_e4m3(std::uint32_t codes);

// --- copies and barriers ---

void copy_async(std::uint32_t to, const void* from, int bytes, int there);
void await_all_copies();  // of this thread
void arrive_with_copies(std::uint32_t barrier);
void copy_bulk(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier);
void begin_barrier(std::uint32_t barrier, int arrivals);
void arrive(std::uint32_t barrier, int bytes_to_come);
void expect(std::uint32_t barrier, int bytes_to_come);
[[nodiscard]] bool has_ended(std::uint32_t barrier, unsigned parity);
void send(std::uint32_t to, const float* values, int count, std::uint32_t barrier);
[[nodiscard]] std::uint32_t in_block(std::uint32_t address, unsigned rank);

// --- what the compiler has names for ---

template <typename T>
T shuffled(T value, unsigned from) {
  static_assert(sizeof(T) <= sizeof(Brought) && std::is_trivially_copyable_v<T>);
  Brought own = {};
  __builtin_memcpy(&own, &value, sizeof(T));
  const Brought* const all = meet_in_warp(own);
  __builtin_memcpy(&value, &all[from], sizeof(T));
  return value;
}
template <typename T>
T look_at(const T* at) {  // of memory that others may write meanwhile
  look_again();
  return *const_cast<const volatile T*>(at);
}
inline uint4 look_at_four(std::uint32_t* at) {
  look_again();
  const uint4 seen = {at[0], at[1], at[2], at[3]};
  for (int i = 0; i < 4; ++i) {
    show_to_next(at + i);
  }
  return seen;
}

}  // namespace lora_bench::emulated
