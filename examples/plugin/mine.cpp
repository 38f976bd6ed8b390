// A complete host kernel for lora-bench: `make`, then
// `lora-bench run smoke --backends ./libmine.so`. docs/your-kernel.md goes through it.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "lora_bench_backend.h"

namespace {

#ifdef MINE_LOSES_K_TAIL
constexpr int64_t kLost = 1;
#else
constexpr int64_t kLost = 0;
#endif

float load_bf16(const void* base, int64_t index) {
  const uint32_t bits = uint32_t{static_cast<const uint16_t*>(base)[index]} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// To the nearest, ties to even; infinity stays, NaN stays NaN.
void store_bf16(void* base, int64_t index, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  static_cast<uint16_t*>(base)[index] =
      static_cast<uint16_t>(std::isnan(value) ? (bits >> 16) | 0x40 : rounded >> 16);
}

void shrink_row(const lora_bench_problem& p, const lora_bench_operands& o, int64_t token) {
  const int64_t adapter = o.adapter_of_token[token];
  const float scale = p.scale_at == LORA_BENCH_SCALE_AT_SHRINK ? o.scale[adapter] : 1.0F;
  for (int64_t slice = 0; slice < p.slices; ++slice) {
    float* h = static_cast<float*>(o.h) + (slice * p.tokens + token) * p.max_rank;
    for (int64_t lane = 0; lane < o.rank[adapter]; ++lane) {
      const int64_t row_of_a = (adapter * p.max_rank + lane) * p.in_features;
      float sum = 0;
      for (int64_t k = 0; k < p.in_features - kLost; ++k) {
        sum += load_bf16(o.x, token * p.x_stride + k) * load_bf16(o.a[slice], row_of_a + k);
      }
      h[lane] = scale * sum;
    }
  }
}

// Only where it is asked: without `takes` in the descriptor it would never be.
void zero_row(const lora_bench_problem& p, const lora_bench_operands& o, int64_t token) {
  int64_t first = token * p.y_stride + p.offset_start;
  for (int64_t slice = 0; p.zeroes_idle_rows != 0 && slice < p.slices; ++slice) {
    for (int64_t column = 0; column < p.widths[slice]; ++column) {
      store_bf16(o.y, first++, 0.0F);
    }
  }
}

void expand_row(const lora_bench_problem& p, const lora_bench_operands& o, int64_t token) {
  const int64_t adapter = o.adapter_of_token[token];
  const float scale = p.scale_at == LORA_BENCH_SCALE_AT_EXPAND ? o.scale[adapter] : 1.0F;
  int64_t first = token * p.y_stride + p.offset_start;
  for (int64_t slice = 0; slice < p.slices; first += p.widths[slice++]) {
    const float* h = static_cast<const float*>(o.h) + (slice * p.tokens + token) * p.max_rank;
    for (int64_t column = 0; column < p.widths[slice]; ++column) {
      const int64_t row_of_b = adapter * p.widths[slice] + column;
      float sum = 0;
      for (int64_t lane = 0; lane < o.rank[adapter]; ++lane) {
        sum += h[lane] * load_bf16(o.b[slice], row_of_b * p.max_rank + lane);
      }
      sum *= scale;
      sum += p.has_bias ? load_bf16(o.bias[slice], row_of_b) : 0.0F;
      sum += p.add_inputs ? load_bf16(o.y, first + column) : 0.0F;
      store_bf16(o.y, first + column, sum);
    }
  }
}

bool all_bf16(const lora_bench_problem& p) {
  for (const int32_t dtype : {p.x_dtype, p.a_dtype, p.b_dtype, p.bias_dtype, p.y_dtype}) {
    if (dtype != LORA_BENCH_BF16) {
      return false;
    }
  }
  return true;
}

int32_t supports(const lora_bench_problem* p, const lora_bench_device*, char* why, int64_t bytes) {
  if (!all_bf16(*p) || p->h_dtype != LORA_BENCH_FP32) {
    std::snprintf(why, static_cast<size_t>(bytes), "mine takes bf16 with h in fp32 alone");
    return 1;
  }
  return 0;
}

void numerics(const lora_bench_problem*, lora_bench_numerics* n) {
  std::snprintf(n->summation, sizeof n->summation, "fp32, one sum in index order");
}

// What goes wrong in real kernels, to try the bench with: make FAULT=-DMINE_CRASHES
void misbehave(const lora_bench_problem& p) {
#if defined(MINE_CRASHES)
  if (p.tokens > 1) {
    *static_cast<volatile int*>(nullptr) = 1;
  }
#elif defined(MINE_HANGS)
  for (volatile bool forever = p.tokens > 0; forever;) {
  }
#elif defined(MINE_THROWS)
  throw std::runtime_error("no room for " + std::to_string(p.tokens) + " tokens");
#endif
  (void)p;
}

// A right kernel that takes so many percent longer: make FAULT=-DMINE_SLOWER_PCT=20
void take_longer(std::chrono::steady_clock::time_point start) {
#ifdef MINE_SLOWER_PCT
  const auto now = std::chrono::steady_clock::now();
  const auto end = now + (now - start) * (MINE_SLOWER_PCT) / 100;
  while (std::chrono::steady_clock::now() < end) {
  }
#endif
  (void)start;
}

int32_t launch(const lora_bench_problem* p, const lora_bench_operands* o, void* /*stream*/,
               char* error, int64_t bytes) {
#ifdef MINE_REFUSES
  std::snprintf(error, static_cast<size_t>(bytes), "mine refuses %d slices",
                static_cast<int>(p->slices));
  return 1;
#endif
  (void)error;
  (void)bytes;
  misbehave(*p);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t token = 0; token < p->tokens; ++token) {
    const int32_t adapter = o->adapter_of_token[token];
    if (adapter < 0 || o->rank[adapter] == 0) {
      zero_row(*p, *o, token);
      continue;
    }
    if (p->op == LORA_BENCH_SHRINK || p->op == LORA_BENCH_LINEAR || p->op == LORA_BENCH_LOGITS) {
      shrink_row(*p, *o, token);
    }
    if (p->op != LORA_BENCH_SHRINK) {
      expand_row(*p, *o, token);
    }
  }
  take_longer(start);
  return 0;
}

const lora_bench_descriptor kDescriptor = {LORA_BENCH_BACKEND_ABI,
                                           sizeof(lora_bench_descriptor),
                                           "mine",
                                           "plain loops on the host, an example",
                                           LORA_BENCH_HOST,
                                           0,
                                           supports,
                                           numerics,
                                           nullptr,  // no workspace
                                           launch,
                                           nullptr,  // makes no metadata
                                           nullptr,
                                           LORA_BENCH_TAKES_ZEROED_IDLE_ROWS,
                                           nullptr,  // takes weights as they lie
                                           nullptr,
                                           0,
                                           0};

}  // namespace

const lora_bench_descriptor* lora_bench_backend(void) { return &kDescriptor; }
