#include "workload/stored.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "ops/backends.h"
#include "ops/operand_set.h"
#include "scenario/scenario.h"
#include "verify/mutants.h"
#include "verify/verify.h"
#include "workload/semantics.h"

using namespace lora_bench;

namespace {

constexpr const char* kPlain =
    "name: s\nlayer: {in: 48, out: [24, 0, 8], offset_start: 2}\nbatch: {decode: 9}\n"
    "adapters: {slots: 4, rank: [8, 0, 3], scale: [0.5, 2.0]}\nno_adapter: 25%\nmeasure: false\n";

Case case_with(const std::vector<std::string>& overrides) {
  return parse_scenario(kPlain, "s.yaml", {.overrides = overrides}).cases.front();
}

Problem problem_with(const std::vector<std::string>& overrides) {
  return make_problem(case_with(overrides));
}

std::string why_refused(const std::vector<std::string>& overrides) {
  try {
    static_cast<void>(case_with(overrides));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

const std::vector<std::vector<std::string>> kLayouts{
    {"adapters.placing=stacked"},
    {"adapters.placing=packed"},
    {"adapters.placing=packed", "adapters.a_stride=50", "adapters.b_stride=11",
     "layer.h_stride=29"},
    {"adapters.placing=stacked", "adapters.bias=true", "adapters.bias_slices=[2]"},
    {"adapters.a_stride=49", "layer.h_stride=9"},
    {"layer.x_column_stride=3"},
    {"layer.x_column_stride=2", "layer.x_stride=100", "inputs=per_slice"}};

Status status_of(const Backend& backend, const Problem& problem) {
  const auto memory = make_host_memory();
  return verify(problem, backend, *memory, {.relations = true}).status;
}

}  // namespace

TEST_CASE("layouts: every element of an operand has a place of its own in its buffer") {
  for (const std::vector<std::string>& overrides : kLayouts) {
    CAPTURE(overrides.back());
    const Problem problem = problem_with(overrides);
    CHECK_FALSE(problem.layout.plain());
    bool laid_out = false;
    for (const StoredOperand& stored : stored_operands(problem)) {
      std::set<std::int64_t> places;
      std::int64_t elements = 0;
      for (const StoredPart& part : stored.parts) {
        for (const StoredRun& run : part.runs) {
          elements += run.count;
          for (std::int64_t index = 0; index < run.count; ++index) {
            const std::int64_t place = run.to + index * part.column_stride;
            CHECK(place < stored.whole.elements);
            CHECK(run.from + index < part.operand.elements);
            places.insert(place);
          }
        }
      }
      CHECK(std::ssize(places) == elements);
      laid_out = laid_out || !stored.as_tensor;
    }
    CHECK(laid_out);
  }
}

TEST_CASE("layouts: what is laid out comes back, and gaps hold what was asked") {
  const Problem problem = problem_with(kLayouts[2]);
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 5);
  for (const StoredOperand& stored : stored_operands(problem)) {
    if (stored.as_tensor || stored.whole.role != Role::kA) {
      continue;
    }
    const std::vector<std::byte> bytes = stored_bytes(stored, tensors, std::byte{0x5A});
    CHECK(std::count(bytes.begin(), bytes.end(), std::byte{0x5A}) > 0);
    REQUIRE(stored.parts.size() == 3);
    // Slice 2 of slot 0, which has rank 8: behind two slices of as many lanes.
    const std::int64_t place = 2 * 8 * 50 + 3;
    CHECK(load(Dtype::kBf16, bytes.data(), place) ==
          load(Dtype::kBf16, tensors.a[2].data.data(), 3));
    // Of slot 2, of rank 3.
    CHECK(load(Dtype::kBf16, bytes.data(), (2 * 24 + 2 * 3 + 1) * 50) ==
          load(Dtype::kBf16, tensors.a[2].data.data(), (2 * 8 + 1) * 48));
  }
}

TEST_CASE("layouts: a written gap of h is damage, and names its row") {
  const Problem problem = problem_with({"op=shrink", "layer.h_stride=11"});
  const auto memory = make_host_memory();
  const OperandSet set(*memory, problem, draw_tensors(problem, Fill::kExact, 1), {});
  CHECK(set.damage().empty());
  auto* const h = static_cast<float*>(set.of(Role::kH).data());
  h[2 * 11 + 7] = 1;  // the last lane of row 2
  CHECK(set.damage().empty());
  h[2 * 11 + 8] = 1;
  CHECK(set.damage() == "guard of h damaged: the gap behind row 2 was written");
}

TEST_CASE("layouts: proof passes what follows them and fails what does not") {
  for (const std::vector<std::string>& overrides : kLayouts) {
    for (const char* op : {"op=linear", "op=shrink", "op=expand"}) {
      std::vector<std::string> with = overrides;
      const std::string all = fmt::format("{}", overrides.back());
      if ((all.find("inputs") == 0 && std::string(op) == "op=expand") ||
          (all.find("bias") != std::string::npos && std::string(op) == "op=shrink")) {
        continue;
      }
      with.emplace_back(op);
      CAPTURE(all);
      CAPTURE(op);
      CHECK(status_of(*make_cpu_backend(), problem_with(with)) == Status::kPassed);
      CHECK(status_of(*make_mutant("none"), problem_with(with)) == Status::kPassed);
    }
  }
  const Problem packed = problem_with(kLayouts[2]);
  CHECK(status_of(*make_mutant("packed-at-largest-rank"), packed) == Status::kFailed);
  CHECK(status_of(*make_mutant("stacked-taken-apart"), packed) == Status::kFailed);
  CHECK(status_of(*make_mutant("gap-of-h-written"), packed) == Status::kFailed);
  CHECK(status_of(*make_mutant("x-columns-taken-dense"), problem_with(kLayouts[5])) ==
        Status::kFailed);
}

namespace {

// Adds to what lies behind rows of h, or adds what lies behind a lane of A unless that is NaN.
class InGaps final : public Backend {
 public:
  explicit InGaps(bool writes) : writes_(writes) {}
  std::string_view name() const override { return "in-gaps"; }
  std::string_view summary() const override { return "looks where nobody may"; }
  Space space() const override { return Space::kHost; }
  Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
  Numerics numerics(const Problem& problem) const override {
    return plain_formula_numerics(problem);
  }
  std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  void launch(const Problem& problem, const Operands& operands, Stream) const override {
    apply_plain_formula(problem, operands);
    auto* const h = static_cast<float*>(operands.h);
    for (std::int64_t token = 0; token < problem.tokens; ++token) {
      if (!problem.acts_on(token)) {
        continue;
      }
      const std::int32_t slot = operands.adapter_of_token[token];
      const float behind = load(problem.dtype[Role::kA], operands.a[0],
                                problem.a_at(0, slot, 0, 0) + problem.in_features);
      if (writes_) {
        h[problem.h_at(0, token, 0, problem.h_pitch() - 1)] += 1;
      } else if (!std::isnan(behind)) {
        h[problem.h_at(0, token, 0, 0)] += behind;
      }
    }
  }

 private:
  bool writes_;
};

}  // namespace

TEST_CASE("layouts: gaps hold numbers too, so that who adds to one or reads one fails") {
  const Problem problem = problem_with({"op=shrink", "layer.h_stride=11", "adapters.a_stride=50"});
  CHECK(status_of(InGaps(true), problem) == Status::kFailed);
  CHECK(status_of(InGaps(false), problem) == Status::kFailed);
  CHECK(status_of(InGaps(false), problem_with({"op=shrink"})) == Status::kFailed);
}

TEST_CASE("layouts: a stride that is too short, and time, are refused") {
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(why_refused({"adapters.a_stride=47"}), "at least 48"));
  CHECK(has(why_refused({"adapters.b_stride=7"}), "at least 8"));
  CHECK(has(why_refused({"adapters.placing=stacked", "layer.h_stride=23"}), "at least 24"));
  CHECK(has(why_refused({"layer.x_column_stride=2", "layer.x_stride=94"}), "layer.x_stride"));
  CHECK(has(why_refused({"adapters.placing=packed", "measure=true"}), "proved, not timed"));
  CHECK(has(why_refused({"adapters.placing=packed", "op=layer", "layer.kind=row"}), "op linear"));
  CHECK(has(why_refused({"adapters.b_stride=9", "measure=true"}), "proved, not timed"));
  CHECK(why_refused({"adapters.a_stride=48", "layer.h_stride=8", "measure=true"}).empty());
  // Where nothing is timed no case need say so.
  CHECK(parse_scenario(kPlain, "s.yaml",
                       {.overrides = {"adapters.placing=packed", "measure=true"}, .timed = false})
            .cases.size() == 1);
  CHECK(why_refused({"adapters.a_stride=48"}).empty());
  CHECK(problem_with({"adapters.a_stride=48", "layer.h_stride=8"}).layout.plain());
}

TEST_CASE("layouts: who does not take one says which") {
  const Problem problem = problem_with(kLayouts[2]);
  CHECK(semantics_refused(problem, {}) ==
        "adapters.placing: packed, adapters.a_stride: 50, adapters.b_stride: 11, layer.h_stride: "
        "29: operands lie apart and without gaps there");
  CHECK(content_of(problem) != content_of(problem_with({"adapters.placing=packed"})));
}
