#include "measure/layer_time.h"

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "measure/fake_clock.h"
#include "ops/backends.h"
#include "support/layer_case.h"
#include "support/observed_backend.h"
#include "support/timed_layer.h"
#include "verify/layer_proof.h"

using namespace lora_bench;

namespace {

using Key = std::vector<std::uint64_t>;
using KeyOf = std::function<Key(const Problem&, const Operands&)>;

Key addresses(const Problem& problem, const Operands& operands) {
  Key key{static_cast<std::uint64_t>(problem.op)};
  for (const void* address : {operands.x, static_cast<const void*>(operands.y),
                              static_cast<const void*>(operands.h), operands.b[0]}) {
    key.push_back(reinterpret_cast<std::uintptr_t>(address));
  }
  return key;
}

// Some numbers of everything, the plan and the scales.
Key probes(const Problem& problem, const Operands& operands) {
  constexpr std::int64_t kProbes = 8;
  Key key{static_cast<std::uint64_t>(problem.op)};
  const auto look = [&](const void* at, std::int64_t elements) {
    for (std::int64_t i = 0; at != nullptr && i < kProbes && elements > 0; ++i) {
      key.push_back(static_cast<const std::uint16_t*>(at)[elements * i / kProbes]);
    }
  };
  if (has_shrink(problem.op)) {
    look(operands.x, problem.tokens * problem.x_stride);
    look(operands.a[0], problem.slots * problem.max_rank * problem.in_features);
  }
  look(operands.b[0], problem.slots * problem.max_rank * problem.widths[0]);
  look(operands.scale, 2 * problem.slots);
  for (std::int64_t row = 0; row < problem.tokens; ++row) {
    key.push_back(static_cast<std::uint64_t>(operands.adapter_of_token[row]));
  }
  return key;
}

// Addresses, and every number of the first so many of B, A and x.
Key sees_tensors(std::size_t count, const Problem& problem, const Operands& operands) {
  Key key = addresses(problem, operands);
  const std::vector<std::pair<const void*, std::int64_t>> tensors{
      {operands.b[0], problem.slots * problem.max_rank * problem.widths[0]},
      {operands.a[0], problem.slots * problem.max_rank * problem.in_features},
      {operands.x, problem.tokens * problem.x_stride}};
  for (std::size_t tensor = 0; tensor < count; ++tensor) {
    std::uint64_t bits = 0;
    for (std::int64_t i = 0; i < tensors[tensor].second; ++i) {
      bits = bits * 31 + static_cast<const std::uint16_t*>(tensors[tensor].first)[i];
    }
    key.push_back(bits);
  }
  return key;
}

// Adds what it added when it last saw the same key.
class Remembers {
 public:
  explicit Remembers(KeyOf key_of) : key_of_(std::move(key_of)) {}

  [[nodiscard]] ObservedBackend backend() {
    return ObservedBackend(
        {.before = [this](const Problem& problem,
                          const Operands& operands) { return computes(problem, operands); },
         .after = [this](const Problem& problem,
                         const Operands& operands) { keep(problem, operands); }});
  }
  [[nodiscard]] std::int64_t served() const { return served_; }

 private:
  [[nodiscard]] static std::vector<float> read(const Problem& problem, const Operands& operands) {
    std::vector<float> y(static_cast<std::size_t>(problem.tokens * problem.y_stride));
    decode(problem.dtype[Role::kY], operands.y, y);
    return y;
  }

  bool computes(const Problem& problem, const Operands& operands) {
    if (!has_expand(problem.op)) {
      return true;
    }
    before_ = read(problem, operands);
    const auto known = kept_.find(key_of_(problem, operands));
    if (known == kept_.end()) {
      return true;
    }
    for (std::size_t i = 0; i < before_.size(); ++i) {
      before_[i] += known->second[i];
    }
    encode(problem.dtype[Role::kY], before_, operands.y);
    ++served_;
    return false;
  }

  void keep(const Problem& problem, const Operands& operands) {
    if (!has_expand(problem.op)) {
      return;
    }
    std::vector<float> delta = read(problem, operands);
    for (std::size_t i = 0; i < delta.size(); ++i) {
      delta[i] -= before_[i];
    }
    kept_[key_of_(problem, operands)] = std::move(delta);
  }

  KeyOf key_of_;
  std::map<Key, std::vector<float>> kept_;
  std::vector<float> before_;
  std::int64_t served_ = 0;
};

Measurement timed(const LayerProblem& problem, const Backend& lora, bool together,
                  bool phases = false) {
  LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 1);
  const LayerTensors untouched = tensors;
  MeasureSettings settings = so_many_samples(2);
  settings.phases = phases;
  FakeClock clock([](int, std::int64_t) { return 1e-3; });
  const LayerMeasurement measured = timed_layer(problem, tensors, clock, lora, settings, together);
  CHECK(tensors.lora.x.data == untouched.lora.x.data);
  CHECK(tensors.lora.a[0].data == untouched.lora.a[0].data);
  CHECK(tensors.lora.b[0].data == untouched.lora.b[0].data);
  CHECK(tensors.lora.scale == untouched.lora.scale);
  CHECK(tensors.ids == untouched.ids);
  return measured.layer;
}

std::vector<LayerProblem> some_layers() {
  std::vector<LayerProblem> some;
  for (const LayerProblem& problem : all_layers()) {
    if (problem.layer.tp <= 2) {
      some.push_back(problem);
    }
  }
  return some;
}

}  // namespace

TEST_CASE("honest backends pass with other numbers once layers of every kind are timed") {
  for (const LayerProblem& problem : some_layers()) {
    for (const bool together : {false, true}) {
      INFO(told(problem));
      INFO(together);
      const Measurement result = timed(problem, *make_cpu_backend({1, ""}), together);
      CHECK_MESSAGE(result.check_passed, result.check_message);
    }
  }
  for (const LayerProblem& problem : all_overlaps()) {
    if (problem.layer.tp <= 2) {
      INFO(told_overlap(problem));
      const Measurement result = timed(problem, *make_cpu_backend({1, ""}), false);
      CHECK_MESSAGE(result.check_passed, result.check_message);
    }
  }
}

TEST_CASE("a layer that was computed once and is remembered by address or by probes is found") {
  for (const LayerProblem& problem : some_layers()) {
    for (const bool together : {false, true}) {
      for (const KeyOf& key_of : {KeyOf(addresses), KeyOf(probes)}) {
        INFO(told(problem));
        INFO(together);
        Remembers remembers(key_of);
        const Measurement result = timed(problem, remembers.backend(), together);
        CHECK(remembers.served() > 0);
        CHECK_FALSE(result.check_passed);
        CHECK(result.check_message.starts_with("with another "));
      }
    }
  }
}

TEST_CASE("each change is found by itself: who sees all of some operands forgets another") {
  const std::vector<std::string> told{"with another number in B: ", "with another number in A: ",
                                      "with another number in x: ", "with other scales: "};
  for (const std::int64_t tp : {1, 2}) {
    for (std::size_t seen = 0; seen < told.size(); ++seen) {
      INFO(told[seen]);
      Remembers remembers([seen](const Problem& problem, const Operands& operands) {
        return sees_tensors(seen, problem, operands);
      });
      const Measurement result =
          timed(layer_problem(layer_of(LayerKind::kRow, tp, false)), remembers.backend(), false);
      CHECK_FALSE(result.check_passed);
      CHECK_MESSAGE(result.check_message.starts_with(told[seen]), result.check_message);
    }
  }
}

TEST_CASE(
    "who sees all of the weights but not the scales, or not who uses which adapter, is found") {
  for (const bool scales : {false, true}) {
    CAPTURE(scales);
    Remembers remembers([scales](const Problem& problem, const Operands& operands) {
      Key key = sees_tensors(3, problem, operands);
      for (std::int64_t slot = 0; scales && slot < problem.slots; ++slot) {
        key.push_back(std::bit_cast<std::uint32_t>(operands.scale[slot]));
      }
      for (std::int64_t row = 0; !scales && row < problem.tokens; ++row) {
        key.push_back(static_cast<std::uint64_t>(operands.adapter_of_token[row]));
      }
      return key;
    });
    const Measurement result =
        timed(layer_problem(layer_of(LayerKind::kRow, 1, false)), remembers.backend(), false);
    CHECK_FALSE(result.check_passed);
    CHECK_MESSAGE(
        result.check_message.starts_with(scales ? "with another batch: " : "with other scales: "),
        result.check_message);
  }
}

TEST_CASE("an expand that is remembered only where it is a launch of its own is found") {
  std::uint64_t launches = 0;
  Remembers remembers([&](const Problem& problem, const Operands& operands) {
    Key key = addresses(problem, operands);
    if (problem.op != Op::kExpand) {
      key.push_back(++launches);
    }
    return key;
  });
  for (const std::int64_t tp : {1, 2}) {
    const LayerProblem problem = layer_problem(layer_of(LayerKind::kColumn, tp, false));
    CHECK(timed(problem, *make_cpu_backend({1, ""}), false, true).check_passed);
    CHECK(timed(problem, remembers.backend(), false).check_passed);
    CHECK_THROWS_AS(static_cast<void>(timed(problem, remembers.backend(), false, true)), CaseError);
  }
}
