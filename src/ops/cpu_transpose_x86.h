#pragma once

// B to panels with AVX2 shuffles, for both x86 sets; included after the body.

#include <immintrin.h>

namespace lora_bench {
namespace {

// Eight rows of eight 32-bit units -> eight columns.
void transpose_units(__m256i* v) {
  __m256i t[8];
  __m256i u[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    u[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    u[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
    v[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
  }
}

// The numbers of eight units, `half` 0 or 1 of each pair of 16-bit numbers.
__m256 half_of_units(Dtype dtype, __m256i units, int half) {
  if (dtype == Dtype::kBf16) {
    return _mm256_castsi256_ps(half == 0 ? _mm256_slli_epi32(units, 16)
                                         : _mm256_and_si256(units, _mm256_set1_epi32(-0x10000)));
  }
  const __m256i low =
      half == 0 ? _mm256_and_si256(units, _mm256_set1_epi32(0xffff)) : _mm256_srli_epi32(units, 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}

// Eight columns of the panel for lanes [first, first + lanes) of eight B rows.
void transpose_block(Dtype dtype, const char* const* rows, std::int64_t first, std::int64_t lanes,
                     float* panel) {
  const std::int64_t lanes_per_load = dtype == Dtype::kFp32 ? 8 : 16;
  __m256i units[8];
  for (int i = 0; i < 8; ++i) {
    const char* from = rows[i] == nullptr ? nullptr : rows[i] + bytes_of(dtype, first);
    if (from == nullptr) {
      units[i] = _mm256_setzero_si256();
    } else if (lanes >= lanes_per_load) {
      __builtin_prefetch(from + kAheadBytes);
      units[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    } else {
      alignas(32) char room[32] = {};
      std::memcpy(room, from, static_cast<std::size_t>(bytes_of(dtype, lanes)));
      units[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(room));
    }
  }
  transpose_units(units);
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    float* to = panel + (first + lane) * kTileColumns;
    if (dtype == Dtype::kFp32) {
      _mm256_storeu_ps(to, _mm256_castsi256_ps(units[lane]));
    } else {
      _mm256_storeu_ps(to, half_of_units(dtype, units[lane / 2], static_cast<int>(lane % 2)));
    }
  }
}

void transpose(Dtype dtype, const void* b, std::int64_t b_stride, std::int64_t columns,
               std::int64_t rank, float* panel) {
  const std::int64_t step = dtype == Dtype::kFp32 ? 8 : 16;
  for (std::int64_t column = 0; column < kTileColumns; column += 8) {
    const char* rows[8];
    for (std::int64_t i = 0; i < 8; ++i) {
      rows[i] = column + i < columns ? address(dtype, b, (column + i) * b_stride) : nullptr;
    }
    for (std::int64_t lane = 0; lane < rank; lane += step) {
      transpose_block(dtype, rows, lane, rank - lane < step ? rank - lane : step, panel + column);
    }
  }
}

}  // namespace
}  // namespace lora_bench
