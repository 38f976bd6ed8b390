#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "measure/timed_sequence.h"
#include "support/copying_backend.h"
#include "support/dishonest.h"
#include "support/timed_layer.h"
#include "verify/verify.h"

using namespace lora_bench;
using namespace lora_bench::test;

namespace {

// What is said of it after timing.
std::string wrong_after_timing(const Backend& backend, CacheMode cache,
                               const Problem& problem = decode(Op::kLinear, 40)) {
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

TEST_CASE("prepared weights: a proof tells their guard from that of the workspace") {
  class Overrunning final : public BackendAround {
   public:
    Overrunning(const Backend& inner, std::int64_t byte) : BackendAround(inner), byte_(byte) {}
    [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 8; }
    void prepare(const Problem& problem, const Operands& operands, Stream stream) const override {
      inner().prepare(problem, operands, stream);
      const std::int64_t byte = byte_ < 0 ? byte_ : prepared_bytes(problem);
      static_cast<std::byte*>(operands.prepared)[byte] = std::byte{1};
    }

   private:
    std::int64_t byte_;
  };
  class Spilling final : public BackendAround {
   public:
    using BackendAround::BackendAround;
    [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 8; }
    void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
      inner().launch(problem, operands, stream);
      static_cast<std::byte*>(operands.workspace)[8] = std::byte{1};
    }
  };
  const Copying right([](int) { return true; });
  const std::unique_ptr<Memory> memory = make_host_memory();
  const auto told = [&](const Backend& backend) {
    const Verdict verdict = verify(decode(), backend, *memory, {});
    REQUIRE(verdict.failure);
    CHECK(verdict.failure->hypothesis == "written-outside");
    return verdict.message;
  };
  CHECK(told(Overrunning(right, 1)).find("guard of prepared damaged: 1 byte after the end") !=
        std::string::npos);
  CHECK(told(Overrunning(right, -1)).find("guard of prepared damaged: 1 byte before the start") !=
        std::string::npos);
  CHECK(told(Spilling(right)).find("guard of workspace damaged: 1 byte after the end") !=
        std::string::npos);
}

TEST_CASE("prepared weights: one that keeps those of the first launch is named in the proof") {
  class Keeping final : public BackendAround {
   public:
    using BackendAround::BackendAround;
    void prepare(const Problem& problem, const Operands& operands, Stream stream) const override {
      const auto bytes = static_cast<std::size_t>(prepared_bytes(problem));
      inner().prepare(problem, operands, stream);
      auto* prepared = static_cast<std::byte*>(operands.prepared);
      if (kept_.empty()) {
        kept_.assign(prepared, prepared + bytes);
      }
      std::copy(kept_.begin(), kept_.end(), prepared);
    }

   private:
    mutable std::vector<std::byte> kept_;
  };
  const Copying right([](int) { return true; });
  const std::unique_ptr<Memory> memory = make_host_memory();
  const Verdict verdict = verify(decode(Op::kLinear, 40), Keeping(right), *memory, {});
  REQUIRE(verdict.failure);
  CHECK(verdict.failure->hypothesis == "stale-weights");
  CHECK(verdict.failure->explanation ==
        "numbers of A are those of a launch before, and not of this one: they were kept");
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

TEST_CASE("prepared weights: a layer has them made for the whole, its halves and each shard") {
  for (const bool fully_sharded : {false, true}) {
    for (const bool together : {false, true}) {
      const Copying backend([](int) { return true; });
      FakeClock clock([](int slot, std::int64_t) { return slot == 0 ? 10e-6 : 13e-6; });
      const LayerProblem problem = row_layer(2, fully_sharded);
      LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 1);
      MeasureSettings settings = six_samples();
      settings.phases = !together;
      const LayerMeasurement measured =
          timed_layer(problem, tensors, clock, backend, settings, together);
      CHECK(measured.layer.check_message == "");
      CHECK(backend.prepared() > 0);
    }
  }
}

TEST_CASE("prepared weights: a layer tells one that keeps those of before an adapter was set") {
  const LayerProblem problem = row_layer(1, false);
  const auto wrong_with = [&](int most) {
    const Copying backend([most](int time) { return time < most; });
    FakeClock clock([](int slot, std::int64_t) { return slot == 0 ? 10e-6 : 13e-6; });
    LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 1);
    const LayerMeasurement measured =
        timed_layer(problem, tensors, clock, backend, six_samples(), false);
    return std::pair(measured.layer.check_message, backend.prepared());
  };
  const auto [right, times] = wrong_with(1 << 30);
  CHECK(right == "");
  CHECK(wrong_with(times / 2).first != "");
}

TEST_CASE("prepared weights: a batch of lower ranks may want more or fewer bytes of them") {
  const auto all_at_most = [](const Problem& problem, std::int64_t most) {
    return *std::max_element(problem.rank.begin(), problem.rank.end()) <= most;
  };
  for (const bool lower_want_more : {false, true}) {
    const Copying backend([](int) { return true; },
                          [=](const Problem& problem) -> std::int64_t {
                            return all_at_most(problem, 4) == lower_want_more ? 4096 : 0;
                          });
    CHECK(wrong_after_timing(backend, CacheMode::kWeightsCold) == "");
  }
}

namespace {

// Keeps what a launch of a set left in y, and leaves it there again while nothing that it was told
// of is new: it compares all of x, and hears of weights when it is to prepare them.
class Remembering final : public BackendAround {
 public:
  // `news`: asked with the bytes of A, whether these are new weights.
  Remembering(const Backend& inner, std::function<bool(const std::string&)> news)
      : BackendAround(inner), news_(std::move(news)) {}
  void prepare(const Problem& problem, const Operands& operands, Stream stream) const override {
    inner().prepare(problem, operands, stream);
    const auto bytes = static_cast<std::size_t>(problem.max_rank * problem.in_features * 2);
    if (news_(std::string(static_cast<const char*>(operands.a[0]), bytes))) {
      kept_.clear();
    }
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    const auto bytes_of = [&](std::int64_t stride) {
      return static_cast<std::size_t>(problem.tokens * stride * 2);
    };
    const std::string x(static_cast<const char*>(operands.x), bytes_of(problem.x_stride));
    auto& [of_x, left] = kept_[operands.prepared];
    if (of_x != x || left.empty()) {
      of_x = x;
      inner().launch(problem, operands, stream);
      left.assign(static_cast<const char*>(operands.y), bytes_of(problem.y_stride));
      return;
    }
    ++reused_;
    std::memcpy(operands.y, left.data(), left.size());
  }
  [[nodiscard]] int reused() const { return reused_; }

 private:
  std::function<bool(const std::string&)> news_;
  mutable std::map<const void*, std::pair<std::string, std::string>> kept_;
  mutable int reused_ = 0;
};

Problem overwriting() {
  Problem problem = decode(Op::kLinear, 40);
  problem.add_inputs = false;
  problem.plan = make_plan(std::vector<std::int32_t>(40, 1), problem.slots);
  return problem;
}

}  // namespace

TEST_CASE("prepared weights: results that are kept until weights are new are kept for no sample") {
  const Problem problem = overwriting();
  const Copying honest([](int) { return true; });
  const Remembering backend(honest, [](const std::string&) { return true; });
  Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const std::unique_ptr<Memory> memory = make_host_memory();
  const MeasureSettings settings = short_measure(CacheMode::kWeightsCold);
  FakeClock clock([](int, std::int64_t) { return 1e-6; });
  DeviceFacts device;
  device.kind = "cpu";
  device.cache_bytes = 4 * touched_bytes(problem, CacheMode::kWeightsCold);
  const MeasureRequest request{problem, settings, 1, nullptr, nullptr, nullptr};
  TimedSequence sequence(request, backend, *memory, clock, device);
  clock.load(0, sequence.sequence_to(0));
  for (int run = 0; run < 3; ++run) {
    for (std::int64_t set = 0; set < sequence.sets().count(); ++set) {
      sequence.launch_of(set)(Stream{});
    }
    CHECK(backend.reused() == run * sequence.sets().count());
    for (std::int64_t set = 0; set < sequence.sets().count(); ++set) {
      sequence.launch_of(set)(Stream{});
    }
    CHECK(backend.reused() == (run + 1) * sequence.sets().count());
    sequence.prepare();
  }
}

TEST_CASE(
    "prepared weights: who takes some of what is prepared for no news is wrong after timing") {
  // It knows the weights of each set; whatever is nearly the same is prepared for nobody.
  const Copying honest([](int) { return true; });
  std::vector<std::string> known;
  const Remembering backend(honest, [&](const std::string& a) {
    const bool near = std::any_of(known.begin(), known.end(), [&](const std::string& other) {
      std::size_t differ = 0;
      for (std::size_t byte = 0; byte < a.size(); ++byte) {
        differ += a[byte] != other[byte];
      }
      return differ <= 2;
    });
    if (!near) {
      known.push_back(a);
    }
    return !near;
  });
  CHECK(wrong_after_timing(backend, CacheMode::kWeightsCold, overwriting()) != "");
  CHECK(backend.reused() > 0);
}

TEST_CASE("prepared weights: scales that are kept for the same weights and ranks are found out") {
  // Prepares the scales alone, by what the weights and the ranks were when it first saw them.
  class KeepingScales final : public BackendAround {
   public:
    using BackendAround::BackendAround;
    [[nodiscard]] std::int64_t prepared_bytes(const Problem& problem) const override {
      return problem.slots * static_cast<std::int64_t>(sizeof(float));
    }
    void prepare(const Problem& problem, const Operands& operands, Stream) const override {
      const auto slots = static_cast<std::size_t>(problem.slots);
      std::string key(static_cast<const char*>(operands.a[0]),
                      slots * static_cast<std::size_t>(problem.max_rank * problem.in_features) * 2);
      for (std::size_t slot = 0; slot < slots; ++slot) {
        key += std::to_string(operands.rank[slot]) + ' ';
      }
      const std::vector<float> scales(operands.scale, operands.scale + slots);
      const std::vector<float>& kept = kept_.emplace(key, scales).first->second;
      std::memcpy(operands.prepared, kept.data(), slots * sizeof(float));
    }
    void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
      Operands prepared = operands;
      prepared.scale = static_cast<const float*>(operands.prepared);
      inner().launch(problem, prepared, stream);
    }

   private:
    mutable std::map<std::string, std::vector<float>> kept_;
  };
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  CHECK(wrong_after_timing(KeepingScales(*cpu), CacheMode::kWeightsCold)
            .starts_with("with other scales: wrong values"));
}

TEST_CASE("prepared weights: a launch that writes there is told") {
  class Writing final : public BackendAround {
   public:
    using BackendAround::BackendAround;
    void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
      inner().launch(problem, operands, stream);
      static_cast<std::byte*>(operands.prepared)[prepared_bytes(problem) - 1] = std::byte{1};
    }
  };
  const Copying copying([](int) { return true; }, [](const Problem&) { return 64; });
  CHECK(wrong_after_timing(copying, CacheMode::kWeightsCold) == "");
  CHECK(wrong_after_timing(Writing(copying), CacheMode::kWeightsCold) ==
        "left by the timed launches: prepared is not what prepare makes of these weights, first "
        "at byte 3135: a launch wrote there, or prepare does not make the same twice");
}

TEST_CASE("prepared weights: addresses that are kept there are told, in the proof") {
  // Launches with the A whose address prepare() left.
  class Pointing final : public BackendAround {
   public:
    using BackendAround::BackendAround;
    [[nodiscard]] std::int64_t prepared_bytes(const Problem&) const override {
      return static_cast<std::int64_t>(sizeof(const void*));
    }
    void prepare(const Problem&, const Operands& operands, Stream) const override {
      std::memcpy(operands.prepared, &operands.a[0], sizeof(const void*));
    }
    void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
      Operands given = operands;
      std::memcpy(&given.a[0], operands.prepared, sizeof(const void*));
      inner().launch(problem, given, stream);
    }
  };
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  const std::unique_ptr<Memory> memory = make_host_memory();
  const Verdict verdict = verify(decode(Op::kLinear, 40), Pointing(*cpu), *memory, {});
  REQUIRE(verdict.failure);
  CHECK(verdict.failure->level == Level::kExact);
  CHECK(wrong_after_timing(Pointing(*cpu), CacheMode::kHot) != "");
}

TEST_CASE("prepared weights: a launch that writes there and puts it back is told") {
  class PuttingBack final : public BackendAround {
   public:
    using BackendAround::BackendAround;
    void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
      auto* const first = static_cast<volatile unsigned char*>(operands.prepared);
      const unsigned char before = *first;
      *first = static_cast<unsigned char>(before + 1);
      *first = before;
      inner().launch(problem, operands, stream);
    }
  };
  const Copying copying([](int) { return true; });
  const std::unique_ptr<Memory> memory = make_host_memory();
  const Verdict verdict = verify(decode(), PuttingBack(copying), *memory, {});
  REQUIRE(verdict.failure);
  CHECK(verdict.failure->hypothesis == "input-changed");
  CHECK(verdict.failure->what == "prepared weights written by a launch");
}

TEST_CASE("prepared weights: what prepares them knows of no row's adapter") {
  class Asking final : public BackendAround {
   public:
    using BackendAround::BackendAround;
    [[nodiscard]] std::int64_t prepared_bytes(const Problem& problem) const override {
      CHECK(problem.plan.active() == 0);
      CHECK(problem.tokens == 40);
      return inner().prepared_bytes(problem);
    }
    void prepare(const Problem& problem, const Operands& operands, Stream stream) const override {
      CHECK(problem.plan.rows_with_adapter() == 0);
      inner().prepare(problem, operands, stream);
    }
  };
  const Copying copying([](int) { return true; });
  const Asking backend(copying);
  CHECK(wrong_after_timing(backend, CacheMode::kWeightsCold) == "");
  const std::unique_ptr<Memory> memory = make_host_memory();
  CHECK(verify(decode(Op::kLinear, 40), backend, *memory, {}).status == Status::kPassed);
}

TEST_CASE("prepared weights: they are not made anew where other operands change") {
  const Copying backend([](int) { return true; });
  const Problem problem = decode();
  Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const std::unique_ptr<Memory> memory = make_host_memory();
  OperandSets sets(*memory, problem, tensors, backend, CacheMode::kWeightsCold, 2);
  CHECK(backend.prepared() == 2);
  Replaced replaced;
  const SmallChange change{problem, 1, {0, 1}, 3, &replaced};
  change_rows(change, tensors);
  sets.renew(1, replaced);
  sets.renew_inputs();
  CHECK(backend.prepared() == 2);
  change_a(change, tensors);
  sets.renew(1, replaced);
  CHECK(backend.prepared() == 3);
}
