// A complete CUDA kernel for lora-bench: `make libminecuda.so`, then
// `lora-bench run smoke --backends ./libminecuda.so`. One thread an element; nothing is tuned.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#include "lora_bench_backend.h"

namespace {

constexpr int kMostSlices = 8;
constexpr int kThreads = 128;

// By value into the kernel: nothing of the host's memory is read once launch has returned.
struct Step {
  const __nv_bfloat16 *x, *a[kMostSlices], *b[kMostSlices], *bias[kMostSlices];
  float* h;
  __nv_bfloat16* y;
  const int32_t *adapter_of_token, *rank;
  const float* scale;
  int64_t tokens, in_features, x_stride, y_stride, offset_start, max_rank, slices;
  int64_t widths[kMostSlices];
  bool add_inputs, scale_at_shrink;
};

// Block (token, slice), threads over lanes.
__global__ void shrink(Step s) {
  const int64_t token = blockIdx.x;
  const int64_t slice = blockIdx.y;
  const int64_t adapter = s.adapter_of_token[token];
  const int64_t rank = adapter < 0 ? 0 : s.rank[adapter];
  for (int64_t lane = threadIdx.x; lane < rank; lane += blockDim.x) {
    const __nv_bfloat16* a = s.a[slice] + (adapter * s.max_rank + lane) * s.in_features;
    float sum = 0;
    for (int64_t k = 0; k < s.in_features; ++k) {
      sum += __bfloat162float(s.x[token * s.x_stride + k]) * __bfloat162float(a[k]);
    }
    s.h[(slice * s.tokens + token) * s.max_rank + lane] =
        s.scale_at_shrink ? s.scale[adapter] * sum : sum;
  }
}

// Block (token, slice), threads over columns.
__global__ void expand(Step s) {
  const int64_t token = blockIdx.x;
  const int64_t slice = blockIdx.y;
  const int64_t adapter = s.adapter_of_token[token];
  const int64_t rank = adapter < 0 ? 0 : s.rank[adapter];
  int64_t first = token * s.y_stride + s.offset_start;
  for (int64_t before = 0; before < slice; ++before) {
    first += s.widths[before];
  }
  const float* h = s.h + (slice * s.tokens + token) * s.max_rank;
  const int64_t columns = rank == 0 ? 0 : s.widths[slice];
  for (int64_t column = threadIdx.x; column < columns; column += blockDim.x) {
    const int64_t row = adapter * s.widths[slice] + column;
    float sum = 0;
    for (int64_t lane = 0; lane < rank; ++lane) {
      sum += h[lane] * __bfloat162float(s.b[slice][row * s.max_rank + lane]);
    }
    sum = s.scale_at_shrink ? sum : s.scale[adapter] * sum;
    sum += s.bias[slice] == nullptr ? 0.0F : __bfloat162float(s.bias[slice][row]);
    sum += s.add_inputs ? __bfloat162float(s.y[first + column]) : 0.0F;
    s.y[first + column] = __float2bfloat16(sum);
  }
}

template <typename T>
const T* as(const void* address) {
  return static_cast<const T*>(address);
}

Step step_of(const lora_bench_problem& p, const lora_bench_operands& o) {
  Step s{};
  s.x = as<__nv_bfloat16>(o.x);
  s.h = static_cast<float*>(o.h);
  s.y = static_cast<__nv_bfloat16*>(o.y);
  s.adapter_of_token = o.adapter_of_token;
  s.rank = o.rank;
  s.scale = o.scale;
  s.tokens = p.tokens;
  s.in_features = p.in_features;
  s.x_stride = p.x_stride;
  s.y_stride = p.y_stride;
  s.offset_start = p.offset_start;
  s.max_rank = p.max_rank;
  s.slices = p.slices;
  s.add_inputs = p.add_inputs != 0;
  s.scale_at_shrink = p.scale_at == LORA_BENCH_SCALE_AT_SHRINK;
  for (int64_t i = 0; i < p.slices; ++i) {
    s.a[i] = as<__nv_bfloat16>(o.a[i]);
    s.b[i] = as<__nv_bfloat16>(o.b[i]);
    s.bias[i] = p.has_bias != 0 ? as<__nv_bfloat16>(o.bias[i]) : nullptr;
    s.widths[i] = p.widths[i];
  }
  return s;
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
  if (!all_bf16(*p) || p->h_dtype != LORA_BENCH_FP32 ||
      p->slices > kMostSlices) {
    std::snprintf(why, static_cast<size_t>(bytes),
                  "minecuda takes bf16 with h in fp32 and at most %d slices", kMostSlices);
    return 1;
  }
  return 0;
}

void numerics(const lora_bench_problem*, lora_bench_numerics* n) {
  std::snprintf(n->summation, sizeof n->summation, "fp32, one sum in index order");
}

int32_t launch(const lora_bench_problem* p, const lora_bench_operands* o, void* stream, char* error,
               int64_t bytes) {
  if (p->tokens == 0 || p->slices == 0) {
    return 0;  // a grid of nothing is an error of CUDA's
  }
  const Step step = step_of(*p, *o);
  const dim3 grid(static_cast<unsigned>(p->tokens), static_cast<unsigned>(p->slices));
  const auto queue = static_cast<cudaStream_t>(stream);
  if (p->op == LORA_BENCH_SHRINK || p->op == LORA_BENCH_LINEAR || p->op == LORA_BENCH_LOGITS) {
    shrink<<<grid, kThreads, 0, queue>>>(step);
  }
  if (p->op != LORA_BENCH_SHRINK) {
    expand<<<grid, kThreads, 0, queue>>>(step);
  }
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) {
    std::snprintf(error, static_cast<size_t>(bytes), "minecuda: %s", cudaGetErrorString(status));
    return 1;
  }
  return 0;
}

const lora_bench_descriptor kDescriptor = {LORA_BENCH_BACKEND_ABI,
                                           sizeof(lora_bench_descriptor),
                                           "minecuda",
                                           "CUDA, a thread an element, an example",
                                           LORA_BENCH_CUDA,
                                           0,
                                           supports,
                                           numerics,
                                           nullptr,  // no workspace
                                           launch,
                                           nullptr,  // makes no metadata
                                           nullptr,
                                           0,        // plain ops alone
                                           nullptr,  // takes weights as they lie
                                           nullptr,
                                           0,
                                           0};

}  // namespace

const lora_bench_descriptor* lora_bench_backend(void) { return &kDescriptor; }
