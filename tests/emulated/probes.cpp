#include "kernels/measure/probes.h"

// What finds out how much a device can do at best finds nothing here, and nothing runs beside.
namespace lora_bench::kernels {

cudaError_t launch_empty(Start, cudaStream_t) { return cudaSuccess; }
cudaError_t launch_read_stream(const void*, std::int64_t, unsigned*, ProbeGrid, Start,
                               cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t launch_read_again(const void*, std::int64_t, std::int64_t, bool, unsigned*,
                              cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t launch_update_stream(void*, std::int64_t, ProbeGrid, Start, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t launch_touch(const TouchParams&, int, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t launch_copy(void*, const void*, std::int64_t, ProbeGrid, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t launch_fill_random(void*, std::int64_t, unsigned, ProbeGrid, cudaStream_t) {
  return cudaErrorNotSupported;
}
PeakProbe peak_probe(Number, int) { return {}; }
cudaError_t launch_peak(Number, int, int, float*, ProbeGrid, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t launch_gate(const volatile unsigned*, volatile unsigned*, std::uint64_t, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t launch_mark_clocks(std::int64_t*, std::int64_t*, unsigned, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_copy_late(const LateCopies& copies, int, cudaStream_t stream) {
  for (int copy = 0; copy < copies.count; ++copy) {
    const cudaError_t result =
        cudaMemcpyAsync(copies.to[copy], copies.from[copy],
                        static_cast<std::size_t>(copies.bytes[copy]), cudaMemcpyDefault, stream);
    if (result != cudaSuccess) {
      return result;
    }
  }
  return cudaSuccess;
}
cudaError_t launch_separator(int, ProbeGrid, cudaStream_t) { return cudaSuccess; }
cudaError_t launch_antagonist(const void*, std::int64_t, unsigned*, unsigned*, int, ProbeGrid,
                              cudaStream_t) {
  return cudaSuccess;
}

}  // namespace lora_bench::kernels
