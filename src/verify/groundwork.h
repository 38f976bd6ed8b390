#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "reference/reference.h"
#include "workload/tensors.h"

namespace lora_bench {

// What the proofs of one case share whatever their backends: its operands as drawn, and what the
// oracle says of rows of them. All of it follows from the problem, the seed and the declared
// arithmetic; no result of a backend is kept. For one proof at a time.
class Groundwork {
 public:
  // Operands and values are kept up to so many bytes; what is beyond is made anew each time.
  Groundwork(Problem problem, std::uint64_t seed, std::int64_t most_bytes);

  [[nodiscard]] const Problem& problem() const { return problem_; }
  // Another tuning of the same problem: nothing that is kept depends on it.
  void tell(const Tuning& tuning) { problem_.tuning = tuning; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] std::int64_t kept_bytes() const { return kept_bytes_; }

  [[nodiscard]] std::shared_ptr<const Tensors> tensors(Fill fill);
  // `tensors` are those of this groundwork.
  [[nodiscard]] std::shared_ptr<const reference::Rows> rows(const Tensors& tensors,
                                                            const Numerics& numerics,
                                                            std::span<const std::int64_t> rows);

 private:
  struct Known {
    Fill fill = Fill::kExact;
    reference::Arithmetic arithmetic;
    std::shared_ptr<const reference::Rows> rows;
  };
  [[nodiscard]] bool take_room(std::int64_t bytes);

  Problem problem_;
  std::uint64_t seed_;
  std::int64_t most_bytes_;
  std::int64_t kept_bytes_ = 0;
  std::vector<std::shared_ptr<const Tensors>> tensors_;
  std::vector<Known> known_;
};

}  // namespace lora_bench
