#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include <cstdint>

namespace lora_bench {
namespace {

using Vector = __m256;
constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kTileRows = 3;  // 12 sums, 4 lanes: the 16 registers
constexpr std::int64_t kPanelVectors = 4;

Vector zero() { return _mm256_setzero_ps(); }
Vector broadcast(float value) { return _mm256_set1_ps(value); }
Vector load(const float* from) { return _mm256_loadu_ps(from); }
void store(Vector vector, float* to) { _mm256_storeu_ps(to, vector); }
Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }

Vector load_bf16(const std::uint16_t* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
Vector load_fp16(const std::uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
// To nearest even; a NaN keeps its sign and becomes quiet.
void store_bf16(Vector vector, std::uint16_t* to) {
  const __m256i bits = _mm256_castps_si256(vector);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(vector, vector, _CMP_UNORD_Q));
  const __m256i chosen = _mm256_blendv_epi8(rounded, quiet, nan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(chosen, chosen), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
}
void store_fp16(Vector vector, std::uint16_t* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(vector, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

}  // namespace
}  // namespace lora_bench

#include "ops/cpu_kernels_body.inc"
#include "ops/cpu_transpose_avx2.inc"

#define LORA_BENCH_ISA avx2
#include "ops/cpu_kernels_table.inc"

#endif
