#include "emulated/fibers.h"

#include <sys/mman.h>

#include <cstddef>
#include <stdexcept>

// Keeps the registers that a call must keep and the stack in *from, and goes on where `to` did.
extern "C" void lora_bench_switch_stack(void** from, void* to);
asm(R"(
.text
.globl lora_bench_switch_stack
lora_bench_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace lora_bench::emulated {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;  // untouched pages cost nothing

}  // namespace

void* Stacks::take() {
  if (free_.empty()) {
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) {
      throw std::runtime_error("no room for the stack of an emulated thread");
    }
    return stack;
  }
  void* stack = free_.back();
  free_.pop_back();
  return stack;
}

void* beginning(void* stack, void (*body)()) {
  constexpr std::size_t kKept = 6;  // registers
  auto* top = reinterpret_cast<void**>(static_cast<std::byte*>(stack) + kStackBytes);
  *--top = nullptr;  // as a call leaves it: 8 beyond a multiple of 16
  *--top = reinterpret_cast<void*>(body);
  for (std::size_t i = 0; i < kKept; ++i) {
    *--top = nullptr;
  }
  return top;
}

void switch_stack(void** from, void* to) { lora_bench_switch_stack(from, to); }

}  // namespace lora_bench::emulated
