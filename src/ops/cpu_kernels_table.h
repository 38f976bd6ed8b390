#pragma once

// The last lines of each cpu_kernels_<isa>.cpp, after its vector type, the body and `transpose`.

#include "ops/cpu_kernels.h"

namespace lora_bench::LORA_BENCH_ISA {

#define LORA_BENCH_NAME_OF(isa) #isa
#define LORA_BENCH_NAME(isa) LORA_BENCH_NAME_OF(isa)

const CpuKernels& kernels() {
  static constexpr CpuKernels kKernels{
      LORA_BENCH_NAME(LORA_BENCH_ISA),
      kWidth,
      kTileRows,
      kTileLanes,
      kTileColumns,
      &decode,
      &encode,
      &dot,
      &sum,
      &transpose,
      &multiply_panel,
      &finish,
      &read_stream,
      &spin_flops,
  };
  return kKernels;
}

}  // namespace lora_bench::LORA_BENCH_ISA
