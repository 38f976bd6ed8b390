#pragma once

#include <cstdint>

// Barriers in shared memory that end a phase when as many have arrived as it was begun with, and
// what blocks of a cluster send to each other. sm_90; addresses are those of shared memory.
namespace lora_bench::kernels {

__device__ inline void begin_barrier_of(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// To other threads, copies and blocks of the cluster.
__device__ inline void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive_at(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// As soon as all copies that this thread has asked for are there.
__device__ inline void arrive_with_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and the phase waits for so many bytes that are sent as well.
__device__ inline void arrive_for_bytes(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Until the phase of that parity has ended; the first has parity 0.
__device__ inline void await_phase(std::uint32_t barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Between the two the blocks of a cluster find out that all of them are there.
__device__ inline void tell_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void hear_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The address in another block of the cluster of what lies here at `address`.
__device__ inline std::uint32_t address_in(int block, std::uint32_t address) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}
// 16 bytes that count on `barrier` when they are there; both in the same block.
__device__ inline void send_sixteen(std::uint32_t to, const float (&value)[4],
                                    std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "f"(value[0]), "f"(value[1]), "f"(value[2]), "f"(value[3]), "r"(barrier)
      : "memory");
}

}  // namespace lora_bench::kernels
