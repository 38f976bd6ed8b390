#pragma once

#include <vector>

// What a thread that others wait for is made of: a stack of its own, and the switch to another one.
namespace lora_bench::emulated {

class Stacks {
 public:
  void* take();
  void give_back(void* stack) { free_.push_back(stack); }

 private:
  std::vector<void*> free_;
};

// What to switch to so that `body`, which never returns, begins on that stack.
[[nodiscard]] void* beginning(void* stack, void (*body)());

// Keeps where this one is in *from, and goes on where `to` did.
void switch_stack(void** from, void* to);

}  // namespace lora_bench::emulated
