#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <utility>

#include "core/dtype.h"
#include "support/around_cpu.h"

namespace lora_bench::test {

// The cpu backend on a copy of A of the first slice, which it makes when it is to prepare weights.
class Copying final : public AroundCpu {
 public:
  // Asked whether to do as told when weights are prepared for the n-th time.
  // `more` says how many bytes it wants behind the copy, which it writes too.
  explicit Copying(std::function<bool(int)> prepares,
                   std::function<std::int64_t(const Problem&)> more = nullptr)
      : prepares_(std::move(prepares)), more_(std::move(more)) {}
  [[nodiscard]] std::string_view name() const override { return "copying"; }
  [[nodiscard]] std::int64_t prepared_bytes(const Problem& problem) const override {
    return copied_bytes(problem) + (more_ ? more_(problem) : 0);
  }
  void prepare(const Problem& problem, const Operands& operands, Stream) const override {
    CHECK(operands.x == nullptr);
    CHECK(operands.y == nullptr);
    CHECK(operands.adapter_of_token == nullptr);
    if (prepares_(prepared_++)) {
      std::memset(operands.prepared, 0, static_cast<std::size_t>(prepared_bytes(problem)));
      if (has_shrink(problem.op)) {
        std::memcpy(operands.prepared, operands.a[0],
                    static_cast<std::size_t>(copied_bytes(problem)));
      }
    }
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    Operands copied = operands;
    if (has_shrink(problem.op)) {
      copied.a[0] = operands.prepared;
    }
    inner().launch(problem, copied, stream);
  }
  [[nodiscard]] int prepared() const { return prepared_; }

 private:
  static std::int64_t copied_bytes(const Problem& problem) {
    return has_shrink(problem.op) ? problem.slots * problem.max_rank * problem.in_features *
                                        size_bytes(problem.dtype[Role::kA])
                                  : 0;
  }

  std::function<bool(int)> prepares_;
  std::function<std::int64_t(const Problem&)> more_;
  mutable int prepared_ = 0;
};

}  // namespace lora_bench::test
