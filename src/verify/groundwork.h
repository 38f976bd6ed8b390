#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "reference/reference.h"
#include "verify/step.h"
#include "workload/tensors.h"

namespace lora_bench {

// Bytes that several keepers share; what would go beyond them is made anew each time.
class Room {
 public:
  explicit Room(std::int64_t most_bytes) : most_bytes_(most_bytes) {}
  [[nodiscard]] bool take(std::int64_t bytes);
  void give_back(std::int64_t bytes) { taken_bytes_ -= bytes; }
  [[nodiscard]] std::int64_t taken_bytes() const { return taken_bytes_; }

 private:
  std::int64_t most_bytes_;
  std::int64_t taken_bytes_ = 0;
};

// What the oracle has said of rows of one problem, by fill, declaration and rows.
class KnownRows {
 public:
  explicit KnownRows(std::shared_ptr<Room> room) : room_(std::move(room)) {}
  KnownRows(KnownRows&&) noexcept = default;
  KnownRows& operator=(KnownRows&&) = delete;
  KnownRows(const KnownRows&) = delete;
  KnownRows& operator=(const KnownRows&) = delete;
  ~KnownRows();  // gives its room back
  // `problem` and the operands of a fill are the same ones each time.
  [[nodiscard]] std::shared_ptr<const reference::Rows> rows(const Problem& problem,
                                                            const Tensors& tensors,
                                                            const Numerics& numerics,
                                                            std::span<const std::int64_t> rows);

 private:
  struct Known {
    Fill fill = Fill::kExact;
    reference::Arithmetic arithmetic;
    std::shared_ptr<const reference::Rows> rows;
  };
  std::shared_ptr<Room> room_;
  std::vector<Known> known_;
};

// A step made from that of a case, and what the oracle says of it.
struct DerivedStep {
  Step step;
  KnownRows known;
};

// What the proofs of one case share whatever their backends: its operands as drawn, steps made from
// them, and what the oracle says of rows of both. All of it follows from the problem, the seed and
// the declared arithmetic; no result of a backend is kept. For one proof at a time.
class Groundwork {
 public:
  // Operands and values are kept up to so many bytes.
  Groundwork(Problem problem, std::uint64_t seed, std::int64_t most_bytes);

  [[nodiscard]] const Problem& problem() const { return problem_; }
  // Another tuning of the same problem, on which the derived steps alone depend.
  void tell(const Tuning& tuning);
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] std::int64_t kept_bytes() const { return room_->taken_bytes(); }

  [[nodiscard]] std::shared_ptr<const Tensors> tensors(Fill fill);
  // `tensors` are those of this groundwork.
  [[nodiscard]] std::shared_ptr<const reference::Rows> rows(const Tensors& tensors,
                                                            const Numerics& numerics,
                                                            std::span<const std::int64_t> rows);
  // The step of this name, made once: who gives the same name makes the same step.
  [[nodiscard]] std::shared_ptr<DerivedStep> derived(const std::string& name,
                                                     const std::function<Step()>& make);

 private:
  Problem problem_;
  std::uint64_t seed_;
  std::shared_ptr<Room> room_;
  std::vector<std::shared_ptr<const Tensors>> tensors_;
  KnownRows known_;
  std::map<std::string, std::shared_ptr<DerivedStep>> derived_;
};

}  // namespace lora_bench
