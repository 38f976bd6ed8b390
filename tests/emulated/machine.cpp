#include "emulated/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "emulated/fibers.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace lora_bench::emulated {
namespace {

constexpr std::size_t kDynamicBytes = 232448;
constexpr std::size_t kSharedBytes = kDynamicBytes + (48 << 10);
constexpr unsigned kLanes = 32;

struct Block;
struct Thread;

struct Warp {
  unsigned alive = 0, arrived = 0, turn = 0;
  Brought brought[2][kLanes];
  std::vector<Thread*> waiting;
};

struct Barrier {
  unsigned arrived = 0;
  std::vector<Thread*> waiting;
};

using Copies = std::vector<std::function<void()>>;
using Groups = std::deque<Copies>;  // closed ones, and the open one

void do_all(Copies& copies) {
  for (const std::function<void()>& copy : copies) {
    copy();
  }
  copies.clear();
}

bool all_done(const Groups& groups) {
  return std::all_of(groups.begin(), groups.end(),
                     [](const Copies& group) { return group.empty(); });
}

void do_but_last(Groups& groups, unsigned count) {
  while (groups.size() > count + 1) {
    do_all(groups.front());
    groups.pop_front();
  }
}

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  std::map<std::uint32_t, Copies> for_barrier;
  unsigned alive = 0, arrived = 0, turn = 0;
  std::vector<Thread*> waiting;
};

struct Thread {
  void* stack_at = nullptr;
  void* stack = nullptr;
  uint3 index{};
  Block* block = nullptr;
  Warp* warp = nullptr;
  unsigned lane = 0, cluster_turn = 0;
  bool ended = false;
  Groups copies = Groups(1), products = Groups(1);
};

struct FreeShared {
  void operator()(void* at) const { std::free(at); }
};

struct Block {
  uint3 index{};
  unsigned rank = 0, alive = 0, read_in_turn = ~0U;  // the turn: of the cluster
  Cluster* cluster = nullptr;
  std::unique_ptr<std::byte, FreeShared> shared;
  std::map<const void*, std::size_t> statics;
  std::size_t static_end = kDynamicBytes;
  std::vector<Warp> warps;
  std::vector<Thread> threads;
  std::map<unsigned, Barrier> barriers;
};

class Machine {
 public:
  explicit Machine(const Launch& launch) : launch_(launch) {}

  void run() {
    blockDim = launch_.block;
    gridDim = launch_.grid;
    const unsigned clusters = launch_.grid.x / launch_.cluster * launch_.grid.y * launch_.grid.z;
    constexpr int kMostLooks = 10'000;
    int looks_in_vain = 0;
    unsigned started = 0;
    while (true) {
      if (!ready_.empty()) {
        go_on(*ready_.front());
      } else if (!looking_.empty() && gone_on_) {
        gone_on_ = false;
        looks_in_vain = 0;
        ready_.swap(looking_);
      } else if (!last_.empty()) {
        ready_.swap(last_);
      } else if (started < clusters) {
        start(started++);
      } else if (alive_ == 0) {
        for (const auto& [to, value] : unseen_) {
          *to = value;
        }
        return;
      } else if (!looking_.empty() && ++looks_in_vain < kMostLooks) {
        ready_.swap(looking_);  // who looks at a word may find what it needs, and look at the next
      } else {
        throw std::runtime_error(
            "all threads of an emulated launch wait: " + std::to_string(looking_.size()) + " of " +
            std::to_string(alive_) + " look at memory that nobody writes any more");
      }
    }
  }

  Thread& own() { return *current_; }
  void wake(std::vector<Thread*>& waiting) {
    ready_.insert(ahead_ ? ready_.begin() : ready_.end(), waiting.begin(), waiting.end());
    waiting.clear();
    gone_on_ = true;
  }
  void wait_in(std::vector<Thread*>& waiting) {
    waiting.push_back(current_);
    leave();
  }
  void look_later() {
    looking_.push_back(current_);
    leave();
  }
  // Until nobody else can go on.
  void go_on_last() {
    last_.push_back(current_);
    leave();
  }
  void has_gone_on() { gone_on_ = true; }
  // Of every eight copies that follow one another, four are late.
  bool next_is_late() { return (copies_++ * 5 / 8) % 2 != 0; }
  void write(std::uint32_t* to, std::uint32_t value) {
    if (next_is_late()) {
      unseen_[to] = value;
    } else {
      *to = value;
    }
  }
  void show(std::uint32_t* to) {
    if (const auto found = unseen_.find(to); found != unseen_.end()) {
      *to = found->second;
      unseen_.erase(found);
      gone_on_ = true;
    }
  }
  void body() { launch_.body(); }
  [[nodiscard]] std::size_t shared_bytes() const { return launch_.shared_bytes; }

  void end_thread() {
    Thread& thread = own();
    Block& block = *thread.block;
    Cluster& cluster = *block.cluster;
    for (Copies& copies : thread.copies) {
      do_all(copies);
    }
    thread.ended = true;
    --alive_;
    gone_on_ = true;
    if (--thread.warp->alive > 0 && thread.warp->arrived == thread.warp->alive) {
      release(*thread.warp);
    }
    Barrier& all = block.barriers[0];
    if (--block.alive > 0 && all.arrived == block.alive) {
      all.arrived = 0;
      wake(all.waiting);
    }
    if (--cluster.alive > 0 && block.alive == 0 && block.read_in_turn == cluster.turn) {
      trap("a block ends whose memory others may still read");
    }
    if (cluster.alive > 0 && cluster.arrived == cluster.alive) {
      release(cluster);
    }
    leave();
  }
  template <typename Group>
  void release(Group& group) {
    group.arrived = 0;
    ++group.turn;
    wake(group.waiting);
  }

 private:
  void leave() { switch_stack(&current_->stack_at, scheduler_); }

  void go_on(Thread& thread) {
    ready_.pop_front();
    current_ = &thread;
    threadIdx = thread.index;
    blockIdx = thread.block->index;
    switch_stack(&scheduler_, thread.stack_at);
    if (thread.ended) {
      stacks_.give_back(thread.stack);
      if (thread.block->cluster->alive == 0) {
        if (!thread.block->cluster->for_barrier.empty()) {
          throw std::runtime_error("blocks of an emulated launch end while copies are under way");
        }
        clusters_.erase(thread.block->cluster);
      }
    }
  }

  void start(unsigned number);

  const Launch& launch_;
  static Stacks stacks_;
  std::map<Cluster*, std::unique_ptr<Cluster>> clusters_;
  std::deque<Thread*> ready_, looking_, last_;
  std::map<std::uint32_t*, std::uint32_t> unseen_;
  Thread* current_ = nullptr;
  void* scheduler_ = nullptr;
  unsigned alive_ = 0;
  std::uint64_t copies_ = 0;
  bool gone_on_ = true;
  static inline std::uint64_t launches_ = 0;
  const bool ahead_ = launches_++ % 2 != 0;  // those let go on come before all others, or after
};

Stacks Machine::stacks_;
Machine* machine = nullptr;

void thread_main() {
  machine->body();
  machine->end_thread();
  std::abort();  // an ended thread does not go on
}

void Machine::start(unsigned number) {
  auto owned = std::make_unique<Cluster>();
  Cluster& cluster = *owned;
  clusters_.emplace(&cluster, std::move(owned));
  const unsigned along_x = launch_.grid.x / launch_.cluster;
  const unsigned threads = launch_.block.x * launch_.block.y * launch_.block.z;
  for (unsigned rank = 0; rank < launch_.cluster; ++rank) {
    cluster.blocks.push_back(std::make_unique<Block>());
    Block& block = *cluster.blocks.back();
    block.index = {number % along_x * launch_.cluster + rank, number / along_x % launch_.grid.y,
                   number / along_x / launch_.grid.y};
    block.rank = rank;
    block.alive = threads;
    block.cluster = &cluster;
    block.shared.reset(static_cast<std::byte*>(std::aligned_alloc(1024, kSharedBytes)));
    std::memset(block.shared.get(), 0xFF, kSharedBytes);  // NaN, of any type
    block.warps.resize((threads + kLanes - 1) / kLanes);
    block.threads.resize(threads);
    for (unsigned i = 0; i < threads; ++i) {
      Thread& thread = block.threads[i];
      thread.index = {i % launch_.block.x, i / launch_.block.x % launch_.block.y,
                      i / launch_.block.x / launch_.block.y};
      thread.block = &block;
      thread.warp = &block.warps[i / kLanes];
      thread.lane = i % kLanes;
      thread.stack = stacks_.take();
      thread.stack_at = beginning(thread.stack, thread_main);
      ++thread.warp->alive;
      ready_.push_back(&thread);
    }
    cluster.alive += threads;
    alive_ += threads;
  }
  gone_on_ = true;
}

}  // namespace

void run(const Launch& launch) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  Machine here(launch);
  machine = &here;
  here.run();
  machine = nullptr;
}

const Brought* meet_in_warp(const Brought& own) {
  Thread& thread = machine->own();
  Warp& warp = *thread.warp;
  const Brought* const all = warp.brought[warp.turn % 2];
  warp.brought[warp.turn % 2][thread.lane] = own;
  if (++warp.arrived == warp.alive) {
    machine->release(warp);
  } else {
    machine->wait_in(warp.waiting);
  }
  return all;
}

void meet_in_block() { meet_by_number(0, machine->own().block->alive); }

void meet_by_number(unsigned number, unsigned threads) {
  Barrier& barrier = machine->own().block->barriers[number];
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    machine->wake(barrier.waiting);
  } else {
    machine->wait_in(barrier.waiting);
  }
}

void arrive_in_cluster() {
  Thread& thread = machine->own();
  Cluster& cluster = *thread.block->cluster;
  thread.cluster_turn = cluster.turn;
  if (++cluster.arrived == cluster.alive) {
    machine->release(cluster);
  }
}

void await_cluster() {
  Thread& thread = machine->own();
  Cluster& cluster = *thread.block->cluster;
  while (cluster.turn == thread.cluster_turn) {
    machine->wait_in(cluster.waiting);
  }
}

void await(const std::function<bool()>& there) {
  while (!there()) {
    machine->look_later();
  }
  machine->has_gone_on();
}

void copy_of_thread(std::function<void()> copy) {
  if (machine->next_is_late()) {
    machine->own().copies.back().push_back(std::move(copy));
  } else {
    copy();
  }
}
void close_copies() { machine->own().copies.emplace_back(); }
void await_copies(unsigned open_groups) { do_but_last(machine->own().copies, open_groups); }

void product_of_thread(std::function<void()> product) {
  Groups& groups = machine->own().products;
  if (all_done(groups) && !machine->next_is_late()) {
    product();
  } else {
    groups.back().push_back(std::move(product));
  }
}
void close_products() { machine->own().products.emplace_back(); }
void await_products(unsigned open_groups) {
  Groups& groups = machine->own().products;
  if (!all_done(groups)) {
    machine->go_on_last();  // what they read may be gone where it was given back too early
  }
  do_but_last(groups, open_groups);
  constexpr unsigned kTogether = 128;      // threads
  constexpr unsigned kNumberOfFirst = 16;  // after those that a kernel can name
  meet_by_number(kNumberOfFirst + threadIdx.x / kTogether, kTogether);
}

void copy_for_barrier(std::uint32_t barrier, std::function<void()> copy) {
  if (machine->next_is_late()) {
    machine->own().block->cluster->for_barrier[barrier].push_back(std::move(copy));
  } else {
    copy();
  }
}
void do_copies_for(std::uint32_t barrier) {
  auto& late = machine->own().block->cluster->for_barrier;
  if (const auto found = late.find(barrier); found != late.end()) {
    Copies copies = std::move(found->second);
    late.erase(found);
    do_all(copies);
  }
}

void look_again() { machine->look_later(); }
void write_unordered(std::uint32_t* to, std::uint32_t value) { machine->write(to, value); }
void show_to_next(std::uint32_t* to) { machine->show(to); }

unsigned own_lane() { return machine->own().lane; }
unsigned rank_in_cluster() { return machine->own().block->rank; }

void* dynamic_shared() { return machine->own().block->shared.get(); }

void* static_shared(const void* key, std::size_t bytes) {
  Block& block = *machine->own().block;
  const auto [found, inserted] = block.statics.emplace(key, block.static_end);
  if (inserted) {
    constexpr std::size_t kAlignment = 1024;
    block.static_end += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (block.static_end > kSharedBytes) {
      trap("more static shared memory than a block has");
    }
  }
  return block.shared.get() + found->second;
}

std::uint32_t to_shared(const void* address) {
  const Block& block = *machine->own().block;
  const auto offset = static_cast<const std::byte*>(address) - block.shared.get();
  if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(kSharedBytes)) {
    trap("an address that is not in the block's shared memory");
  }
  return block.rank << kBlockBits | static_cast<std::uint32_t>(offset);
}

void* from_shared(std::uint32_t address) {
  const auto& blocks = machine->own().block->cluster->blocks;
  const unsigned rank = address >> kBlockBits;
  const std::uint32_t offset = address & ((1U << kBlockBits) - 1);
  if (rank >= blocks.size() || blocks[rank]->alive == 0 ||
      (offset >= machine->shared_bytes() &&
       (offset < kDynamicBytes || offset >= blocks[rank]->static_end))) {
    trap("an address in no block's shared memory, or in that of one that has ended");
  }
  return blocks[rank]->shared.get() + offset;
}

const void* shared_of_any(std::uint32_t address) {
  const void* const at = from_shared(address);
  Cluster& cluster = *machine->own().block->cluster;
  cluster.blocks[address >> kBlockBits]->read_in_turn = cluster.turn;
  return at;
}

void trap(const char* why) {
  std::fprintf(stderr, "emulated kernel, block %u %u %u, thread %u: %s\n", blockIdx.x, blockIdx.y,
               blockIdx.z, threadIdx.x, why);
  std::abort();
}

}  // namespace lora_bench::emulated
