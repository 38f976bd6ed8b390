#pragma once

#include <cstdint>

namespace lora_bench::kernels {

// Where the sums of one part of K go when several blocks share an element of h.
enum class Combine : std::uint8_t {
  kNone,     // one block has the whole sum: scaled into h
  kAtomic,   // scaled and added to an fp32 h that was set to zero, in the order of arrival
  kOrdered,  // into a place of its own; `launch_combine` adds the parts in ascending order
};

struct ShrinkStore {
  Combine combine = Combine::kNone;
  bool wide = true;        // h is fp32, else the dtype of x
  float* parts = nullptr;  // kOrdered: [split][slices][tokens][max_rank]
};

}  // namespace lora_bench::kernels
