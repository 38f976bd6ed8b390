#ifdef LORA_BENCH_HAVE_CUBLAS
#include "ops/cublaslt_trial.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "core/error.h"
#include "device/cuda_handles.h"

namespace lora_bench {
namespace {

using DeviceBlock = CudaHandle<void*, cudaFree>;

DeviceBlock device_block(std::int64_t bytes) {
  void* address = nullptr;
  LORA_BENCH_CUDA_CHECK(
      cudaMalloc(&address, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
  DeviceBlock block(address);
  // A number of every dtype, the same everywhere, that is no 0.
  constexpr int kPattern = 0x3c;
  LORA_BENCH_CUDA_CHECK(cudaMemset(address, kPattern, static_cast<std::size_t>(bytes)));
  return block;
}

// Times algorithms of one shape on numbers that are all alike, the weights not in the cache.
class LtTrial {
 public:
  LtTrial(const LtShape& shape, std::int64_t workspace_bytes)
      : bytes_of_w_(shape.columns * shape.w_stride * size_bytes(shape.dtype)),
        copies_(1 + 3 * cache_bytes() / std::max<std::int64_t>(bytes_of_w_, 1)),
        x_(device_block(shape.rows * shape.x_stride * size_bytes(shape.dtype))),
        w_(device_block(copies_ * bytes_of_w_)),
        bias_(device_block(shape.columns * size_bytes(shape.out))),
        addend_(device_block(shape.rows * shape.columns * size_bytes(shape.out))),
        out_(device_block(shape.rows * shape.columns * size_bytes(shape.out))),
        workspace_(device_block(workspace_bytes)),
        operands_{.x = x_.get(),
                  .w = nullptr,
                  .bias = shape.bias ? bias_.get() : nullptr,
                  .addend = shape.adds ? addend_.get() : nullptr,
                  .out = out_.get(),
                  .workspace = workspace_.get()} {}

  // The least of a few runs, in milliseconds.
  float milliseconds(const LtMultiply& multiply) {
    constexpr int kRuns = 5;
    constexpr std::int64_t kLaunches = 8;
    float least = std::numeric_limits<float>::infinity();
    for (int run = 0; run < kRuns; ++run) {
      LORA_BENCH_CUDA_CHECK(cudaEventRecord(start_.get(), stream_.get()));
      for (std::int64_t launch = 0; launch < std::max(kLaunches, copies_); ++launch) {
        operands_.w = static_cast<const char*>(w_.get()) + launch % copies_ * bytes_of_w_;
        multiply(operands_, stream_.get());
      }
      LORA_BENCH_CUDA_CHECK(cudaEventRecord(stop_.get(), stream_.get()));
      LORA_BENCH_CUDA_CHECK(cudaEventSynchronize(stop_.get()));
      float taken = 0;
      LORA_BENCH_CUDA_CHECK(cudaEventElapsedTime(&taken, start_.get(), stop_.get()));
      least = std::min(least, taken);
    }
    return least;
  }

 private:
  static std::int64_t cache_bytes() {
    int device = 0;
    int bytes = 0;
    LORA_BENCH_CUDA_CHECK(cudaGetDevice(&device));
    LORA_BENCH_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device));
    return bytes;
  }

  std::int64_t bytes_of_w_, copies_;
  DeviceBlock x_, w_, bias_, addend_, out_, workspace_;
  LtOperands operands_;
  CudaStream stream_ = make_cuda_stream();
  CudaEvent start_ = make_cuda_event();
  CudaEvent stop_ = make_cuda_event();
};

// What a product with a term to add is to be: 1 more than a number of 16 bits, which the terms
// carry over the middle between it and the next, where a product rounded before them would stay
// below.
struct RoundingProbe {
  float x, w;
  float rounded_once;
};
constexpr float kProbeTerms = 8;

RoundingProbe rounding_probe_of(Dtype dtype) {
  return dtype == Dtype::kFp16 ? RoundingProbe{145, 113, 16400} : RoundingProbe{63, 63, 3984};
}

// Sets so many elements that lie a stride apart.
void put(void* to, Dtype dtype, std::int64_t count, std::int64_t stride, float value) {
  std::vector<std::byte> values(static_cast<std::size_t>(count * size_bytes(dtype)));
  encode(dtype, std::vector<float>(static_cast<std::size_t>(count), value), values.data());
  const std::size_t width =
      stride == 1 ? values.size() : static_cast<std::size_t>(size_bytes(dtype));
  const std::size_t pitch = std::max(width, static_cast<std::size_t>(stride * size_bytes(dtype)));
  LORA_BENCH_CUDA_CHECK(cudaMemcpy2D(to, pitch, values.data(), width, width, values.size() / width,
                                     cudaMemcpyHostToDevice));
}

DeviceBlock zeroed_block(std::int64_t elements, Dtype dtype) {
  const std::int64_t bytes = elements * size_bytes(dtype);
  DeviceBlock block = device_block(bytes);
  LORA_BENCH_CUDA_CHECK(cudaMemset(block.get(), 0, static_cast<std::size_t>(bytes)));
  return block;
}

void* element_of(const DeviceBlock& block, Dtype dtype, std::int64_t element) {
  return static_cast<char*>(block.get()) + element * size_bytes(dtype);
}

bool all_are(float value, const void* device, Dtype dtype, std::int64_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_bytes(dtype)));
  LORA_BENCH_CUDA_CHECK(cudaMemcpy(bytes.data(), device, bytes.size(), cudaMemcpyDeviceToHost));
  std::vector<float> values(static_cast<std::size_t>(count));
  decode(dtype, bytes.data(), values);
  return std::count(values.begin(), values.end(), value) == count;
}

}  // namespace

bool rounds_once(const LtShape& shape, std::int64_t workspace_bytes, const LtMultiply& multiply) {
  if (!shape.rounds_sums() || shape.rows * shape.columns * shape.depth == 0) {
    return true;
  }
  const RoundingProbe probe = rounding_probe_of(shape.out);
  const float term = shape.bias && shape.adds ? kProbeTerms / 2 : kProbeTerms;
  const std::int64_t outputs = shape.rows * shape.columns;
  const DeviceBlock x = zeroed_block(shape.rows * shape.x_stride, shape.dtype);
  const DeviceBlock w = zeroed_block(shape.columns * shape.w_stride, shape.dtype);
  const DeviceBlock bias = zeroed_block(shape.columns, shape.out);
  const DeviceBlock addend = zeroed_block(outputs, shape.out);
  const DeviceBlock out = zeroed_block(outputs, shape.out);
  const DeviceBlock workspace = device_block(workspace_bytes);
  put(w.get(), shape.dtype, shape.columns, shape.w_stride, probe.w);
  put(bias.get(), shape.out, shape.columns, 1, term);
  const std::array<std::int64_t, 2> looked_at{0, shape.rows - 1};
  for (const std::int64_t row : looked_at) {
    put(element_of(x, shape.dtype, row * shape.x_stride), shape.dtype, 1, 1, probe.x);
    put(element_of(addend, shape.out, row * shape.columns), shape.out, shape.columns, 1, term);
  }
  const CudaStream stream = make_cuda_stream();
  LORA_BENCH_CUDA_CHECK(cudaDeviceSynchronize());  // the blocks are filled
  multiply({.x = x.get(),
            .w = w.get(),
            .bias = shape.bias ? bias.get() : nullptr,
            .addend = shape.adds ? addend.get() : nullptr,
            .out = out.get(),
            .workspace = workspace.get()},
           stream.get());
  LORA_BENCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  return std::all_of(looked_at.begin(), looked_at.end(), [&](std::int64_t row) {
    const void* const sums = element_of(out, shape.out, row * shape.columns);
    return all_are(probe.rounded_once, sums, shape.out, shape.columns);
  });
}

std::size_t quickest_of(const std::vector<LtMultiply>& ways, const LtShape& shape,
                        std::int64_t workspace_bytes) {
  LtTrial trial(shape, workspace_bytes);
  LORA_BENCH_CUDA_CHECK(cudaDeviceSynchronize());  // the blocks are filled
  std::size_t quickest = 0;
  float least = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const float taken = trial.milliseconds(ways[i]);
    if (taken < 0.99F * least) {
      quickest = i;
      least = taken;
    }
  }
  return quickest;
}

}  // namespace lora_bench
#endif
