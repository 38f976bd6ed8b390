#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>

// A GPU of one host thread: every thread of a kernel is a fiber that runs until it has to wait for
// another. What a kernel may read of itself stands in the globals at the end.
namespace lora_bench::emulated {

struct Launch {
  dim3 grid, block;
  unsigned cluster = 1;  // blocks, along x
  std::size_t shared_bytes = 0;
  std::function<void()> body;  // of one thread
};
// Returns when all threads have ended. Clusters start in turn, one more whenever all that have
// started wait. Throws std::runtime_error where all wait and none is left to start.
void run(const Launch& launch);

// What follows is called by the threads of a launch.

// Waits until all lanes of the warp that have not ended are here; what each has brought, by lane.
struct Brought {
  std::uint32_t words[8];
};
const Brought* meet_in_warp(const Brought& own);
void meet_in_block();
void meet_by_number(unsigned number, unsigned threads);
void arrive_in_cluster();
void await_cluster();
// Until `there` holds. It is asked again when others have gone on.
void await(const std::function<bool()>& there);
// A copy in the background, which may be done at once or as late as those who wait allow: both
// happen, in turn. Of the thread, until it waits for its own; of a barrier, until somebody looks
// whether its phase has ended.
void copy_of_thread(std::function<void()> copy);
void close_copies();
void await_copies(unsigned open_groups);
void copy_for_barrier(std::uint32_t barrier, std::function<void()> copy);
void do_copies_for(std::uint32_t barrier);
// The same of products of four warps together, one after the other. Who waits also waits until the
// other three have done theirs.
void product_of_thread(std::function<void()> product);
void close_products();
void await_products(unsigned open_groups);
// Has looked at memory that another block may write, in a loop: lets others go on.
void look_again();
// A write that no other is ordered with: it may be there at once, or not before somebody has looked
// and found what was there before; both happen, in turn.
void write_unordered(std::uint32_t* to, std::uint32_t value);
void show_to_next(std::uint32_t* to);  // has been looked at
[[nodiscard]] unsigned own_lane();

// Addresses in shared memory: number of the block in its cluster, and bytes from its first on.
[[nodiscard]] void* dynamic_shared();
[[nodiscard]] void* static_shared(const void* key, std::size_t bytes);
[[nodiscard]] std::uint32_t to_shared(const void* address);
[[nodiscard]] void* from_shared(std::uint32_t address);
// To be read, also of another block: all of the cluster have to meet before that one ends.
[[nodiscard]] const void* shared_of_any(std::uint32_t address);
constexpr unsigned kBlockBits = 24;
[[nodiscard]] unsigned rank_in_cluster();

[[noreturn]] void trap(const char* why);

}  // namespace lora_bench::emulated

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
