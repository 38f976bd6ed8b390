#pragma once

#include <cstdint>

// Copies in the background, the barriers that tell their end, and blocks of a cluster. All but
// copies of 16 bytes are for sm_90.
namespace lora_bench::kernels {

__device__ inline std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// A barrier that ends its phase when so many threads have arrived, and all the bytes that they said
// to expect.
__device__ inline void begin_barrier(std::uint32_t barrier, int arrivals = 1) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// To other threads, copies and blocks of the cluster.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void expect_bytes(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// The same in two: more bytes to come, any number of times, then that no more will be added.
__device__ inline void expect_more(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
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

// Weights are read once: the L2 should rather keep what comes again.
__device__ inline std::uint64_t evict_first() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Addresses and `bytes` are multiples of 16.
__device__ inline void copy_bulk(std::uint32_t to, const void* from, int bytes,
                                 std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ inline void copy_bulk(std::uint32_t to, const void* from, int bytes,
                                 std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// 16 bytes by this thread, zeros beyond `bytes`; await_own_copies waits for all of them.
__device__ inline void copy_sixteen(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
// The same of 4 whole bytes.
__device__ inline void copy_four(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// The same of 8 bytes.
__device__ inline void copy_eight(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void copy_sixteen(void* to, const void* from, int bytes) {
  copy_sixteen(shared_address(to), from, bytes);
}
// The same of 16 whole bytes.
__device__ inline void copy_sixteen(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Arrives as soon as all copies that this thread has asked for are there.
__device__ inline void arrive_with_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void await_own_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Copies of a thread since the last call are a group ...
__device__ inline void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// ... and this waits until at most `kOpen` of its closed groups are still under way.
template <int kOpen>
__device__ inline void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

// A place of a ring, and the parity of the phase that is awaited there.
template <int kPlaces>
struct RingPlace {
  int at = 0;
  unsigned parity;
  __device__ explicit RingPlace(unsigned first) : parity(first) {}
  __device__ void next() {
    if (++at == kPlaces) {
      at = 0;
      parity ^= 1;
    }
  }
};

// Between the two calls the blocks of a cluster find out that all of them are there.
__device__ inline void arrive_in_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void await_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address in another block of the cluster of what lies here at `address`.
__device__ inline std::uint32_t in_block(std::uint32_t address, int block) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}
// 8 bytes that count on `barrier` when they have arrived; both in the same block.
__device__ inline void send_two(std::uint32_t to, float x, float y, std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "f"(x), "f"(y), "r"(barrier)
      : "memory");
}
__device__ inline void send_four(std::uint32_t to, const float4& value, std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
      : "memory");
}

}  // namespace lora_bench::kernels
