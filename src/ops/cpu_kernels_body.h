#pragma once

// Included once by each cpu_kernels_<isa>.cpp after its vector type. Everything lives in an unnamed
// namespace and nothing of the standard library is called: an inline function compiled here for
// AVX-512 must never be the copy that the linker gives to the rest of the program.

#include <cstdint>
#include <cstring>

#include "ops/cpu_kernels.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kTileLanes = 4;
constexpr std::int64_t kTileColumns = kPanelVectors * kWidth;
// The tables below have an entry for every count up to these.
static_assert(kTileRows == 3 || kTileRows == 6);

Vector load_as(Dtype dtype, const void* from, std::int64_t index) {
  if (dtype == Dtype::kBf16) {
    return load_bf16(static_cast<const std::uint16_t*>(from) + index);
  }
  if (dtype == Dtype::kFp16) {
    return load_fp16(static_cast<const std::uint16_t*>(from) + index);
  }
  return load(static_cast<const float*>(from) + index);
}

void store_as(Dtype dtype, Vector value, void* to, std::int64_t index) {
  if (dtype == Dtype::kBf16) {
    store_bf16(value, static_cast<std::uint16_t*>(to) + index);
  } else if (dtype == Dtype::kFp16) {
    store_fp16(value, static_cast<std::uint16_t*>(to) + index);
  } else {
    store(value, static_cast<float*>(to) + index);
  }
}

std::int64_t bytes_of(Dtype dtype, std::int64_t count) {
  return count * (dtype == Dtype::kFp32 ? 4 : 2);
}

const char* address(Dtype dtype, const void* from, std::int64_t index) {
  return static_cast<const char*>(from) + bytes_of(dtype, index);
}

char* address(Dtype dtype, void* from, std::int64_t index) {
  return static_cast<char*>(from) + bytes_of(dtype, index);
}

// The first `count` < kWidth numbers; the others are 0.
Vector load_some(Dtype dtype, const void* from, std::int64_t index, std::int64_t count) {
  alignas(64) float room[kWidth] = {};
  std::memcpy(room, address(dtype, from, index), static_cast<std::size_t>(bytes_of(dtype, count)));
  return load_as(dtype, room, 0);
}

void store_some(Dtype dtype, Vector value, void* to, std::int64_t index, std::int64_t count) {
  alignas(64) float room[kWidth];
  store_as(dtype, value, room, 0);
  std::memcpy(address(dtype, to, index), room, static_cast<std::size_t>(bytes_of(dtype, count)));
}

// Hardware stops to prefetch at the end of a 4 KiB page, which is half a row of A. Beyond the end
// of an operand a prefetch does nothing.
constexpr std::int64_t kAheadBytes = 2048;

void decode(Dtype dtype, const void* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    __builtin_prefetch(address(dtype, from, i) + kAheadBytes);
    store(load_as(dtype, from, i), to + i);
  }
  if (i < count) {
    store(load_some(dtype, from, i, count - i), to + i);
  }
}

void encode(Dtype dtype, const float* from, std::int64_t count, void* to) {
  std::int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    store_as(dtype, load(from + i), to, i);
  }
  if (i < count) {
    store_some(dtype, load_some(Dtype::kFp32, from, i, count - i), to, i, count - i);
  }
}

template <int kRows, int kLanes>
void dot_tile(std::int64_t k, const float* x, std::int64_t x_stride, const float* a,
              std::int64_t a_stride, float* partial, std::int64_t partial_stride) {
  Vector sums[kRows][kLanes];
  for (int row = 0; row < kRows; ++row) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sums[row][lane] = load(partial + row * partial_stride + lane * kWidth);
    }
  }
  for (std::int64_t i = 0; i < k; i += kWidth) {
    Vector lanes[kLanes];
#pragma GCC unroll 4
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = load(a + lane * a_stride + i);
    }
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
      const Vector of_row = load(x + row * x_stride + i);
#pragma GCC unroll 4
      for (int lane = 0; lane < kLanes; ++lane) {
        sums[row][lane] = multiply_add(of_row, lanes[lane], sums[row][lane]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int lane = 0; lane < kLanes; ++lane) {
      store(sums[row][lane], partial + row * partial_stride + lane * kWidth);
    }
  }
}

template <int kRows>
void dot_rows(std::int64_t lanes, std::int64_t k, const float* x, std::int64_t x_stride,
              const float* a, std::int64_t a_stride, float* partial, std::int64_t partial_stride) {
  using Tile = void (*)(std::int64_t, const float*, std::int64_t, const float*, std::int64_t,
                        float*, std::int64_t);
  static constexpr Tile kTiles[kTileLanes] = {dot_tile<kRows, 1>, dot_tile<kRows, 2>,
                                              dot_tile<kRows, 3>, dot_tile<kRows, 4>};
  kTiles[lanes - 1](k, x, x_stride, a, a_stride, partial, partial_stride);
}

void dot(std::int64_t rows, std::int64_t lanes, std::int64_t k, const float* x,
         std::int64_t x_stride, const float* a, std::int64_t a_stride, float* partial,
         std::int64_t partial_stride) {
  using Rows = void (*)(std::int64_t, std::int64_t, const float*, std::int64_t, const float*,
                        std::int64_t, float*, std::int64_t);
  static constexpr Rows kRows[6] = {dot_rows<1>,
                                    dot_rows<2>,
                                    dot_rows<3>,
                                    dot_rows < kTileRows == 6 ? 4 : 3 >
                                    , dot_rows < kTileRows == 6 ? 5 : 3 >, dot_rows<kTileRows>};
  kRows[rows - 1](lanes, k, x, x_stride, a, a_stride, partial, partial_stride);
}

float sum(const float* partial) {
  float halves[kWidth];
  std::memcpy(halves, partial, sizeof(halves));
  for (std::int64_t half = kWidth / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half; ++i) {
      halves[i] += halves[i + half];
    }
  }
  return halves[0];
}

template <int kRows>
void multiply_rows(std::int64_t rank, const float* h, std::int64_t h_stride, const float* panel,
                   float* out) {
  Vector sums[kRows][kPanelVectors];
  for (int row = 0; row < kRows; ++row) {
    for (int part = 0; part < kPanelVectors; ++part) {
      sums[row][part] = zero();
    }
  }
  for (std::int64_t r = 0; r < rank; ++r) {
    Vector columns[kPanelVectors];
#pragma GCC unroll 4
    for (int part = 0; part < kPanelVectors; ++part) {
      columns[part] = load(panel + r * kTileColumns + part * kWidth);
    }
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
      const Vector lane = broadcast(h[row * h_stride + r]);
#pragma GCC unroll 4
      for (int part = 0; part < kPanelVectors; ++part) {
        sums[row][part] = multiply_add(lane, columns[part], sums[row][part]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int part = 0; part < kPanelVectors; ++part) {
      store(sums[row][part], out + row * kTileColumns + part * kWidth);
    }
  }
}

void multiply_panel(std::int64_t rows, std::int64_t rank, const float* h, std::int64_t h_stride,
                    const float* panel, float* out) {
  using Rows = void (*)(std::int64_t, const float*, std::int64_t, const float*, float*);
  static constexpr Rows kRows[6] = {multiply_rows<1>,
                                    multiply_rows<2>,
                                    multiply_rows<3>,
                                    multiply_rows < kTileRows == 6 ? 4 : 3 >,
                                    multiply_rows < kTileRows == 6 ? 5 : 3 >,
                                    multiply_rows<kTileRows>};
  kRows[rows - 1](rank, h, h_stride, panel, out);
}

Vector finish_vector(Vector delta, Vector scale, Vector bias, bool has_bias, Vector before,
                     bool add) {
  Vector value = multiply(delta, scale);
  if (has_bias) {
    value = lora_bench::add(value, bias);
  }
  if (add) {
    value = lora_bench::add(before, value);
  }
  return value;
}

void finish(Dtype dtype, const float* delta, float scale, const float* bias, bool add,
            std::int64_t count, void* y) {
  const Vector scales = broadcast(scale);
  std::int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const Vector before = add ? load_as(dtype, y, i) : zero();
    const Vector of_bias = bias != nullptr ? load(bias + i) : zero();
    store_as(dtype, finish_vector(load(delta + i), scales, of_bias, bias != nullptr, before, add),
             y, i);
  }
  if (i < count) {
    const std::int64_t rest = count - i;
    const Vector before = add ? load_some(dtype, y, i, rest) : zero();
    const Vector of_bias = bias != nullptr ? load_some(Dtype::kFp32, bias, i, rest) : zero();
    const Vector of_delta = load_some(Dtype::kFp32, delta, i, rest);
    store_some(dtype, finish_vector(of_delta, scales, of_bias, bias != nullptr, before, add), y, i,
               rest);
  }
}

std::uint64_t read_stream(const void* from, std::int64_t bytes) {
  constexpr std::int64_t kBlock = 64;  // 512 bytes
  std::uint64_t sums[kBlock] = {};
  const char* next = static_cast<const char*>(from);
  for (std::int64_t done = 0; done + 512 <= bytes; done += 512) {
    std::uint64_t block[kBlock];
    std::memcpy(block, next + done, sizeof(block));
    for (std::int64_t i = 0; i < kBlock; ++i) {
      sums[i] += block[i];
    }
  }
  std::uint64_t total = 0;
  for (const std::uint64_t part : sums) {
    total += part;
  }
  return total;
}

double spin_flops(std::int64_t rounds) {
  constexpr int kChains = 12;  // as many as hide the latency and fit 16 registers
  Vector chains[kChains];
  for (int chain = 0; chain < kChains; ++chain) {
    chains[chain] = broadcast(1.0F + static_cast<float>(chain));
  }
  Vector shrink = broadcast(0.5F);
  const Vector shift = broadcast(0.25F);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int chain = 0; chain < kChains; ++chain) {
      chains[chain] = multiply_add(chains[chain], shrink, shift);
    }
  }
  Vector all = zero();
  for (int chain = 0; chain < kChains; ++chain) {
    all = lora_bench::add(all, chains[chain]);
  }
  alignas(64) float kept[kWidth];
  store(all, kept);
  // The condition never holds, but only the sums can tell: the loop cannot be left out.
  const double unused = kept[0] > 1e30F ? 1 : 0;
  return 2.0 * static_cast<double>(kChains * kWidth * rounds) + unused;
}

}  // namespace
}  // namespace lora_bench
