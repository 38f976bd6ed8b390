#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/dishonest.h"
#include "verify/verify.h"

using namespace lora_bench;
using namespace lora_bench::test;

namespace {

// The cpu backend on a copy of A of the only slice, which it makes when it is to prepare weights.
class Copying final : public Backend {
 public:
  // Asked whether to do as told when weights are prepared for the n-th time.
  explicit Copying(std::function<bool(int)> prepares) : prepares_(std::move(prepares)) {}
  [[nodiscard]] std::string_view name() const override { return "copying"; }
  [[nodiscard]] std::string_view summary() const override { return "for tests"; }
  [[nodiscard]] Space space() const override { return Space::kHost; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return cpu_->numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return cpu_->workspace_bytes(problem);
  }
  [[nodiscard]] std::int64_t prepared_bytes(const Problem& problem) const override {
    return has_shrink(problem.op) ? problem.slots * problem.max_rank * problem.in_features *
                                        size_bytes(problem.dtype[Role::kA])
                                  : 0;
  }
  void prepare(const Problem& problem, const Operands& operands, Stream) const override {
    CHECK(operands.x == nullptr);
    CHECK(operands.y == nullptr);
    CHECK(operands.adapter_of_token == nullptr);
    if (prepares_(prepared_++)) {
      std::memcpy(operands.prepared, operands.a[0],
                  static_cast<std::size_t>(prepared_bytes(problem)));
    }
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    Operands copied = operands;
    if (has_shrink(problem.op)) {
      copied.a[0] = operands.prepared;
    }
    cpu_->launch(problem, copied, stream);
  }
  [[nodiscard]] int prepared() const { return prepared_; }

 private:
  std::unique_ptr<Backend> cpu_ = make_cpu_backend({1, ""});
  std::function<bool(int)> prepares_;
  mutable int prepared_ = 0;
};

// What is said of it after timing.
std::string wrong_after_timing(const Backend& backend, CacheMode cache) {
  const Problem problem = decode(Op::kLinear, 40);
  const MeasureSettings settings = short_measure(cache);
  const Numerics numerics = backend.numerics(problem);
  const auto check = [&](const Left& left) { return held_against_oracle(numerics, left); };
  DeviceFacts device;
  device.kind = "cpu";
  device.cache_bytes = 4 * touched_bytes(problem, CacheMode::kWeightsCold);
  const std::unique_ptr<Memory> memory = make_host_memory();
  FakeClock clock([](int, std::int64_t) { return 1e-6; });
  return measure({problem, settings, 1, check, nullptr, nullptr}, backend, *memory, clock, device)
      .check_message;
}

}  // namespace

TEST_CASE("prepared weights: a backend that makes them when it is told to is proved and timed") {
  const Copying backend([](int) { return true; });
  const std::unique_ptr<Memory> memory = make_host_memory();
  VerifyOptions options;
  options.relations = true;
  const Verdict verdict = verify(decode(Op::kLinear, 40), backend, *memory, options);
  CHECK(verdict.message == "");
  CHECK(verdict.status == Status::kPassed);
  for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
    CHECK(wrong_after_timing(backend, cache) == "");
  }
}

TEST_CASE("prepared weights: one that never makes them is wrong") {
  const Copying backend([](int) { return false; });
  const std::unique_ptr<Memory> memory = make_host_memory();
  CHECK(verify(decode(), backend, *memory, {}).status == Status::kFailed);
}

TEST_CASE("prepared weights: one that keeps those of before the weights changed is found out") {
  // Once for each of the sets that are timed; what comes after is a change.
  for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold}) {
    const Problem problem = decode(Op::kLinear, 40);
    const std::int64_t sets = rotation_sets(problem, CacheMode::kWeightsCold,
                                            4 * touched_bytes(problem, CacheMode::kWeightsCold));
    const Copying backend([sets](int time) { return time < sets; });
    CHECK(wrong_after_timing(backend, cache) != "");
    CHECK(backend.prepared() > sets);
  }
}
