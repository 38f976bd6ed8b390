#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/backends.h"
#include "scenario/scenario.h"
#include "verify/mutants.h"
#include "verify/verify.h"

using namespace lora_bench;

namespace {

constexpr const char* kPlain =
    "name: s\nlayer: {in: 48, out: [24, 8], offset_start: 2, y_stride: 40}\nbatch: {decode: 12}\n"
    "adapters: {slots: 4, rank: [8, 5, 3], scale: [0.5, 2.0]}\nno_adapter: 25%\nmeasure: false\n";

Problem problem_with(const std::vector<std::string>& overrides) {
  return make_problem(parse_scenario(kPlain, "s.yaml", {.overrides = overrides}).cases.front());
}

// The right kernel, which takes operands to lie otherwise than they do.
class Mistaken final : public Backend {
 public:
  explicit Mistaken(std::function<void(Layout&)> change) : change_(std::move(change)) {}
  std::string_view name() const override { return "mistaken"; }
  std::string_view summary() const override { return "takes another layout"; }
  Space space() const override { return Space::kHost; }
  Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
  Numerics numerics(const Problem& problem) const override { return right_->numerics(problem); }
  std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    Problem other = problem;
    change_(other.layout);
    right_->launch(other, operands, stream);
  }

 private:
  std::function<void(Layout&)> change_;
  std::unique_ptr<Backend> right_ = make_mutant("none");
};

Failure failure_of(const Backend& backend, const Problem& problem) {
  const Verdict verdict = verify(problem, backend, *make_host_memory(), {});
  REQUIRE(verdict.failure);
  return *verdict.failure;
}

std::string told(const Backend& backend, const Problem& problem) {
  const Failure failure = failure_of(backend, problem);
  CHECK(failure.hypothesis == "layout-misread");
  return failure.explanation;
}

}  // namespace

TEST_CASE("layouts told: weights of slices that share a buffer, read where they do not lie") {
  const Problem packed = problem_with({"adapters.placing=packed"});
  CHECK(told(*make_mutant("packed-at-largest-rank"), packed) ==
        "A of slots 1, 2 is read as if packed at the largest rank");
  for (const char* placing : {"adapters.placing=stacked", "adapters.placing=packed"}) {
    CHECK(told(*make_mutant("stacked-taken-apart"), problem_with({placing})) ==
          "B of slots 1, 2, 3 is read as if each slice lay apart");
  }
  const Mistaken apart([](Layout& layout) { layout.placing = Placing::kSeparate; });
  CHECK(told(apart, problem_with({"adapters.placing=stacked"})) ==
        "A and B of slots 1, 2, 3 are read as if each slice lay apart");
}

TEST_CASE("layouts told: NaN of gaps is named, with the reading that would bring it in") {
  const auto told_in_nan = [](const Backend& backend, const std::vector<std::string>& layout) {
    const Failure failure = failure_of(backend, problem_with(layout));
    CHECK(failure.hypothesis == "unused-memory-read");
    const std::string list = ", a gap between elements or a buffer that was not written yet";
    CHECK(failure.explanation.find(list) != std::string::npos);
    const std::size_t lead = failure.explanation.find("; it would be so if ");
    return lead == std::string::npos ? "" : failure.explanation.substr(lead + 20);
  };
  const std::vector<std::string> columns{"layer.x_column_stride=2", "layer.x_stride=96"};
  CHECK(told_in_nan(*make_mutant("x-columns-taken-dense"), columns) ==
        "x is read as if its columns lay side by side");
  const std::vector<std::string> gaps{"adapters.a_stride=50", "adapters.b_stride=11"};
  CHECK(told_in_nan(Mistaken([](Layout& layout) { layout.a_gap = 0; }), gaps) ==
        "A of slots 1, 2, 3 is read as if there were no gaps between its rows");
  const Failure plain = failure_of(*make_mutant("padding-lanes-read"), problem_with({}));
  CHECK(plain.hypothesis == "unused-memory-read");
  CHECK(plain.explanation.find("gap") == std::string::npos);
}

TEST_CASE("layouts told: a gap that is written is memory of nobody") {
  CHECK(failure_of(*make_mutant("gap-of-h-written"), problem_with({"layer.h_stride=11"}))
            .hypothesis == "written-outside");
}
