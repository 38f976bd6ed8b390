#include "ops/idle_rows.h"

#include <cstring>
#include <numeric>

#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/idle/idle.h"
#include "ops/kernel_params.h"
#endif

namespace lora_bench {

void zero_idle_rows(const Problem& problem, const Operands& operands, std::int64_t first_row,
                    std::int64_t past_row) {
  if (!problem.zeroes_idle_rows()) {
    return;
  }
  const std::int64_t columns =
      std::accumulate(problem.widths.begin(), problem.widths.end(), std::int64_t{0});
  const std::int64_t bytes = size_bytes(problem.dtype[Role::kY]);
  for (std::int64_t row = first_row; row < past_row; ++row) {
    // By what the launch is given: a recording may be of another batch.
    const std::int32_t adapter = operands.adapter_of_token[row];
    if (adapter < 0 || !problem.acts(adapter, operands.rank[adapter])) {
      std::memset(static_cast<std::byte*>(operands.y) +
                      (row * problem.y_stride + problem.offset_start) * bytes,
                  0, static_cast<std::size_t>(columns * bytes));
    }
  }
}

#ifdef LORA_BENCH_HAVE_CUDA
void enqueue_zero_idle_rows(const Problem& problem, const Operands& operands, Stream stream) {
  if (problem.zeroes_idle_rows()) {
    LORA_BENCH_CUDA_CHECK(kernels::launch_zero_idle_rows(expand_params(problem, operands),
                                                         size_bytes(problem.dtype[Role::kY]),
                                                         static_cast<cudaStream_t>(stream.handle)));
  }
}
#endif

}  // namespace lora_bench
