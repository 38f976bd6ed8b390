#if defined(__AVX512F__) && defined(__AVX512BW__)

#include <immintrin.h>

#include <cstdint>

namespace lora_bench {
namespace {

using Vector = __m512;
constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kTileRows = 6;  // 24 sums, 4 lanes and a row: 29 of 32 registers
constexpr std::int64_t kPanelVectors = 4;

Vector zero() { return _mm512_setzero_ps(); }
Vector broadcast(float value) { return _mm512_set1_ps(value); }
Vector load(const float* from) { return _mm512_loadu_ps(from); }
void store(Vector vector, float* to) { _mm512_storeu_ps(to, vector); }
Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }

Vector load_bf16(const std::uint16_t* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
Vector load_fp16(const std::uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
// To nearest even; a NaN keeps its sign and becomes quiet.
void store_bf16(Vector vector, std::uint16_t* to) {
  const __m512i bits = _mm512_castps_si512(vector);
  const __m512i high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(vector, vector, _CMP_UNORD_Q);
  const __m512i chosen = _mm512_mask_mov_epi32(rounded, nan, quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(chosen));
}
void store_fp16(Vector vector, std::uint16_t* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(vector, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

}  // namespace
}  // namespace lora_bench

#include "ops/cpu_kernels_body.inc"
#include "ops/cpu_transpose_avx512.inc"

#define LORA_BENCH_ISA avx512
#include "ops/cpu_kernels_table.inc"

#endif
