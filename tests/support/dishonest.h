#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "measure/after_timing.h"
#include "measure/fake_clock.h"
#include "measure/rotation.h"
#include "ops/backends.h"
#include "run/case_runner.h"
#include "support/short_measure.h"

// Backends that are right only while they are looked at, and what is said of them after timing.
namespace lora_bench::test {

inline Problem decode(Op op = Op::kLinear, std::int64_t tokens = 6) {
  Problem problem;
  problem.op = op;
  problem.dtype = OperandDtypes(Dtype::kBf16);
  problem.tokens = tokens;
  problem.in_features = 64;
  problem.widths = {96};
  problem.x_stride = 64;
  problem.y_stride = 96;
  problem.slots = 3;
  problem.max_rank = 8;
  problem.rank = {8, 4, 8};
  problem.scale = {1, 1, 1};
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < tokens; ++token) {
    ids.push_back(token == 2 ? kNoAdapter : static_cast<std::int32_t>(token % 2));
  }
  problem.plan = make_plan(ids, 3);  // nobody uses slot 2
  return problem;
}

// Right while it is looked at; what it does else is told to it.
class Dishonest final : public Backend {
 public:
  using Trick = std::function<void(const Problem&, const Operands&, const Backend& honest)>;
  // With a unit roundoff it declares that, in each of so many steps as K has.
  explicit Dishonest(Trick trick, std::optional<double> unit_roundoff = {})
      : trick_(std::move(trick)), unit_roundoff_(unit_roundoff) {}
  [[nodiscard]] std::string_view name() const override { return "dishonest"; }
  [[nodiscard]] std::string_view summary() const override { return "for tests"; }
  [[nodiscard]] Space space() const override { return Space::kHost; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics = cpu_->numerics(problem);
    if (unit_roundoff_) {
      numerics.unit_roundoff = *unit_roundoff_;
      numerics.shrink_depth = problem.in_features;
    }
    return numerics;
  }
  // As a backend that gathers what does not lie together.
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return gathered_bytes(problem);
  }
  static std::int64_t gathered_bytes(const Problem& problem) {
    const std::vector<std::int32_t>& ids = problem.plan.adapter_of_token;
    return std::is_sorted(ids.begin(), ids.end()) ? 64 : 64 * problem.tokens;
  }
  void launch(const Problem& problem, const Operands& operands, Stream) const override {
    trick_(problem, operands, *cpu_);
  }

 private:
  std::unique_ptr<Backend> cpu_ = make_cpu_backend({1, ""});
  Trick trick_;
  std::optional<double> unit_roundoff_;
};

inline Look held_against_oracle(const Numerics& numerics, const Left& left) {
  Look look = check_left(numerics, left);
  look.wrong = look.wrong.empty() ? "" : "wrong values";
  return look;
}

inline Measurement measurement_of(const Problem& problem, const Dishonest& backend,
                                  CacheMode cache = CacheMode::kWeightsCold,
                                  std::vector<std::int64_t>* launches_on_y = nullptr,
                                  std::uint64_t secret = 12) {
  const MeasureSettings settings = short_measure(cache);
  const Numerics numerics = backend.numerics(problem);
  const auto check = [&](const Left& left) {
    CHECK(left.secret == secret);
    if (launches_on_y != nullptr) {
      launches_on_y->push_back(left.rounds * static_cast<std::int64_t>(left.sets.size()));
    }
    return held_against_oracle(numerics, left);
  };
  const MeasureRequest request{problem, settings, 1, check, nullptr, [=] { return secret; }};
  DeviceFacts device;
  device.kind = "cpu";
  device.cache_bytes = 4 * touched_bytes(problem, CacheMode::kWeightsCold);
  const std::unique_ptr<Memory> memory = make_host_memory();
  FakeClock clock([](int, std::int64_t) { return 1e-6; });
  return measure(request, backend, *memory, clock, device);
}

// What is said of the measurement.
inline std::string verdict_on(const Problem& problem, Dishonest::Trick trick,
                              CacheMode cache = CacheMode::kWeightsCold,
                              std::vector<std::int64_t>* launches_on_y = nullptr) {
  return measurement_of(problem, Dishonest(std::move(trick)), cache, launches_on_y).check_message;
}

inline void honest(const Problem& problem, const Operands& operands, const Backend& backend) {
  backend.launch(problem, operands, {});
}

inline std::uint64_t first_eight(const void* from) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// What a dishonest backend can tell of the clock around it: a sample begins with an h that is no
// number, as nobody else leaves it, and has as many launches as y may take of 13 sets.
class Sampled {
 public:
  bool operator()(const Operands& operands) {
    const bool begins = first_eight(operands.h) == UINT64_MAX;
    sampled_ = begins || (sampled_ && ++launches_ % (256 / 13 * 13) != 0);
    launches_ = begins ? 0 : launches_;
    return sampled_;
  }

 private:
  bool sampled_ = false;
  std::int64_t launches_ = 0;
};

}  // namespace lora_bench::test
