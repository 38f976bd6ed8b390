#include "ops/exchange.h"

#include <fmt/format.h>

#include "core/error.h"
#include "device/facts.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/exchange/exchange.h"
#include "ops/kernel_params.h"
#endif

namespace lora_bench {

#ifdef LORA_BENCH_HAVE_CUDA
namespace {

kernels::ExchangeParams exchange_params(const ExchangedParts& exchanged) {
  if (exchanged.parts.size() > kernels::kMaxShards || exchanged.to.size() > kernels::kMaxShards) {
    throw CaseError(fmt::format("{} shards on one device: at most {}", exchanged.parts.size(),
                                kernels::kMaxShards));
  }
  kernels::ExchangeParams params;
  for (std::size_t i = 0; i < exchanged.parts.size(); ++i) {
    params.part[i] = exchanged.parts[i];
  }
  for (std::size_t i = 0; i < exchanged.to.size(); ++i) {
    params.to[i] = exchanged.to[i];
  }
  params.rows = exchanged.rows;
  params.columns = exchanged.columns;
  params.parts = static_cast<std::int32_t>(exchanged.parts.size());
  params.targets = static_cast<std::int32_t>(exchanged.to.size());
  return params;
}

}  // namespace

void launch_sum(const ExchangedParts& exchanged, Stream stream) {
  LORA_BENCH_CUDA_CHECK(kernels::launch_sum_parts(kernel_number(exchanged.dtype),
                                                  exchange_params(exchanged),
                                                  static_cast<cudaStream_t>(stream.handle)));
}

void launch_gather(const ExchangedParts& exchanged, Stream stream) {
  LORA_BENCH_CUDA_CHECK(kernels::launch_gather_parts(kernel_number(exchanged.dtype),
                                                     exchange_params(exchanged),
                                                     static_cast<cudaStream_t>(stream.handle)));
}

void launch_add_delta(const DeltaToAdd& added, Stream stream) {
  const kernels::AddDeltaParams params{.delta = added.delta,
                                       .y = added.y,
                                       .adapter_of_token = added.adapter_of_token,
                                       .rank = added.rank,
                                       .tokens = added.rows,
                                       .stride = added.stride,
                                       .first_column = added.first_column,
                                       .columns = added.columns};
  LORA_BENCH_CUDA_CHECK(kernels::launch_add_delta(kernel_number(added.dtype), params,
                                                  static_cast<cudaStream_t>(stream.handle)));
}

#else

void launch_sum(const ExchangedParts&, Stream) { throw EnvironmentError(why_no_gpu()); }
void launch_gather(const ExchangedParts&, Stream) { throw EnvironmentError(why_no_gpu()); }
void launch_add_delta(const DeltaToAdd&, Stream) { throw EnvironmentError(why_no_gpu()); }

#endif

}  // namespace lora_bench
