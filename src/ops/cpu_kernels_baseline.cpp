// What every processor of the architecture has; on others than x86-64 also the only set.

#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kWidth = 4;
constexpr std::int64_t kTileRows = 3;
constexpr std::int64_t kPanelVectors = 2;

struct Vector {
  float lane[kWidth];
};

Vector zero() { return {}; }
Vector broadcast(float value) { return {{value, value, value, value}}; }
Vector load(const float* from) {
  Vector vector;
  std::memcpy(vector.lane, from, sizeof(vector.lane));
  return vector;
}
void store(Vector vector, float* to) { std::memcpy(to, vector.lane, sizeof(vector.lane)); }
Vector add(Vector a, Vector b) {
  for (std::int64_t i = 0; i < kWidth; ++i) {
    a.lane[i] += b.lane[i];
  }
  return a;
}
Vector multiply(Vector a, Vector b) {
  for (std::int64_t i = 0; i < kWidth; ++i) {
    a.lane[i] *= b.lane[i];
  }
  return a;
}
Vector multiply_add(Vector a, Vector b, Vector c) {
  for (std::int64_t i = 0; i < kWidth; ++i) {
    c.lane[i] += a.lane[i] * b.lane[i];
  }
  return c;
}
Vector load_bf16(const std::uint16_t* from) {
  Vector vector;
  for (std::int64_t i = 0; i < kWidth; ++i) {
    vector.lane[i] = float_from_bf16(from[i]);
  }
  return vector;
}
Vector load_fp16(const std::uint16_t* from) {
  Vector vector;
  for (std::int64_t i = 0; i < kWidth; ++i) {
    vector.lane[i] = float_from_fp16(from[i]);
  }
  return vector;
}
void store_bf16(Vector vector, std::uint16_t* to) {
  for (std::int64_t i = 0; i < kWidth; ++i) {
    to[i] = bf16_from_float(vector.lane[i]);
  }
}
void store_fp16(Vector vector, std::uint16_t* to) {
  for (std::int64_t i = 0; i < kWidth; ++i) {
    to[i] = fp16_from_float(vector.lane[i]);
  }
}

}  // namespace
}  // namespace lora_bench

#include "ops/cpu_kernels_body.inc"

namespace lora_bench {
namespace {

void transpose(Dtype dtype, const void* b, std::int64_t b_stride, std::int64_t columns,
               std::int64_t rank, float* panel) {
  for (std::int64_t column = 0; column < kTileColumns; ++column) {
    for (std::int64_t r = 0; r < rank; ++r) {
      panel[r * kTileColumns + column] =
          column < columns ? lora_bench::load(dtype, b, column * b_stride + r) : 0.0F;
    }
  }
}

}  // namespace
}  // namespace lora_bench

#define LORA_BENCH_ISA baseline
#include "ops/cpu_kernels_table.inc"
