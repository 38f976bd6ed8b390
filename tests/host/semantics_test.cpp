#include "workload/semantics.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "include/lora_bench_backend.h"
#include "measure/ceilings.h"
#include "ops/backends.h"
#include "ops/plugin.h"
#include "scenario/scenario.h"
#include "support/cpu_case.h"
#include "support/plain_backend.h"
#include "verify/mutants.h"
#include "verify/random_case.h"
#include "verify/verify.h"

using namespace lora_bench;

namespace {

constexpr const char* kPlain =
    "name: s\nlayer: {in: 48, out: [24, 8], offset_start: 2, y_stride: 40}\nbatch: {decode: 12}\n"
    "adapters: {slots: 4, rank: [8, 0, 3], scale: [0.5, 2.0]}\nno_adapter: 25%\n";
constexpr const char* kZeroed = "add_inputs: false\nidle_rows: zeroed\n";

// Lines of fields that come last, as with --set.
Problem problem_with(const std::string& more) {
  std::vector<std::string> overrides;
  std::istringstream lines(more);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    overrides.push_back(line.substr(0, colon) + "=" + line.substr(colon + 2));
  }
  return make_problem(parse_scenario(kPlain, "s.yaml", {.overrides = overrides}).cases.front());
}

std::string why_refused(const std::string& more) {
  try {
    static_cast<void>(problem_with(more));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Verdict verdict_of(const Backend& backend, const Problem& problem) {
  const auto memory = make_host_memory();
  return verify(problem, backend, *memory, {});
}

}  // namespace

TEST_CASE("semantics: a plain step asks nothing, and its content is what it always was") {
  const Problem plain = problem_with("add_inputs: false\n");
  CHECK(semantics_text(plain).empty());
  CHECK(semantics_refused(plain, {}).empty());
  const Problem zeroed = problem_with(kZeroed);
  CHECK(semantics_text(zeroed) == "idle_rows: zeroed");
  CHECK(contains(semantics_refused(zeroed, {}), "idle_rows: zeroed: "));
  CHECK(semantics_refused(zeroed, Semantics(Semantic::kZeroedIdleRows)).empty());
  CHECK(content_of(plain) != content_of(zeroed));
}

TEST_CASE("idle rows: cpu zeroes the columns of slices in rows that no adapter acts on") {
  const Problem problem = problem_with(kZeroed);
  const Tensors tensors = draw_tensors(problem, Fill::kExact, 3);
  const test::HostResult got = test::launch_on_host(*make_cpu_backend(), problem, tensors);
  std::int64_t idle = 0;
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    if (problem.acts_on(token)) {
      continue;
    }
    ++idle;
    for (std::int64_t column = 0; column < problem.y_stride; ++column) {
      const std::int64_t at = token * problem.y_stride + column;
      const bool owned = column >= 2 && column < 34;
      CHECK(owned == (load(got.y.dtype, got.y.data.data(), at) == 0));
    }
  }
  CHECK(idle > 3);  // without an adapter, and of rank 0
}

TEST_CASE("idle rows: proof passes what zeroes them and fails what does not") {
  for (const char* more : {"", "dtype: fp32\n", "no_adapter: 1\n", "adapters.rank: 0\n"}) {
    CAPTURE(more);
    const Problem problem = problem_with(std::string(kZeroed) + more);
    CHECK(verdict_of(*make_cpu_backend(), problem).status == Status::kPassed);
    CHECK(verdict_of(*make_mutant("none"), problem).status == Status::kPassed);
    const Verdict kept = verdict_of(*make_mutant("idle-rows-kept"), problem);
    REQUIRE(kept.failure);
    CHECK(kept.failure->hypothesis == "stale-output");
    const Verdict kept_numbers = verdict_of(*make_mutant("idle-rows-kept-unless-nan"), problem);
    REQUIRE(kept_numbers.failure);
    CHECK(kept_numbers.failure->hypothesis == "stale-output");
  }
  // Rows that are kept must be kept still.
  const Problem plain = problem_with("add_inputs: false\n");
  CHECK(verdict_of(*make_mutant("idle-rows-kept"), plain).status == Status::kPassed);
}

TEST_CASE("what is overwritten holds numbers in one launch, which nobody may add to") {
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const char* op : {"linear", "expand", "shrink"}) {
      CAPTURE(dtype);
      CAPTURE(op);
      const bool shrinks_alone = std::string(op) == "shrink";
      const Problem problem = problem_with(std::string("dtype: ") + dtype + "\nop: " + op + "\n" +
                                           (shrinks_alone ? "" : "add_inputs: false\n"));
      CHECK(verdict_of(*make_mutant("none"), problem).status == Status::kPassed);
      if (has_expand(problem.op)) {
        const Verdict added = verdict_of(*make_mutant("adds-old-y-unless-nan"), problem);
        REQUIRE(added.failure);
        CHECK(added.failure->level == Level::kBounded);
        CHECK(added.failure->hypothesis == "unasked-add");
      }
      if (has_shrink(problem.op)) {
        const Verdict added = verdict_of(*make_mutant("adds-old-h-unless-nan"), problem);
        REQUIRE(added.failure);
        CHECK(added.failure->level == Level::kBounded);
        CHECK((has_expand(problem.op) || added.failure->hypothesis == "unasked-add"));
      }
    }
  }
}

TEST_CASE("idle rows: zeros are asked of an op that overwrites y alone") {
  CHECK(contains(why_refused("idle_rows: zeroed\n"), "the op overwrites no y"));
  CHECK(contains(why_refused("idle_rows: zeroed\nadd_inputs: false\nop: shrink\n"),
                 "the op overwrites no y"));
  CHECK(contains(why_refused("idle_rows: zeroed\nop: layer\nlayer.kind: column\n"), "op linear"));
  CHECK(why_refused(kZeroed).empty());
}

TEST_CASE("idle rows: bytes of zeros are counted once") {
  const Work kept = count_work(problem_with("add_inputs: false\n"));
  const Work zeroed = count_work(problem_with(kZeroed));
  const std::int64_t idle = 12 - kept.rows;
  CHECK(zeroed.rows == kept.rows);
  CHECK(zeroed.bytes - kept.bytes == idle * 32 * 2);
}

namespace {

int32_t takes_all(const lora_bench_problem*, const lora_bench_device*, char*, int64_t) { return 0; }

int32_t sees_zeroes(const lora_bench_problem* problem, const lora_bench_operands*, void*,
                    char* error, int64_t) {
  error[0] = problem->zeroes_idle_rows != 0 ? 'z' : 'k';
  error[1] = '\0';
  return 1;
}

std::string seen_by(const Backend& backend, const Problem& problem) {
  try {
    backend.launch(problem, no_operands(problem), {});
  } catch (const CaseError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("semantics: a plugin is given what its descriptor names, and nothing else") {
  lora_bench_descriptor descriptor{};
  descriptor.abi_version = LORA_BENCH_BACKEND_ABI;
  descriptor.struct_size = sizeof(descriptor);
  descriptor.name = descriptor.summary = "p";
  descriptor.supports = takes_all;
  descriptor.launch = sees_zeroes;
  const Problem plain = problem_with("add_inputs: false\n");
  const Problem zeroed = problem_with(kZeroed);
  const DeviceFacts& here = facts_of(Space::kHost);
  const auto unaware = make_plugin_backend("p", descriptor);
  CHECK(unaware->supports(plain, here).yes);
  CHECK(contains(unaware->supports(zeroed, here).why_not, "LORA_BENCH_TAKES_ZEROED_IDLE_ROWS"));
  CHECK(seen_by(*unaware, plain) == "k");

  descriptor.takes = LORA_BENCH_TAKES_ZEROED_IDLE_ROWS;
  const auto aware = make_plugin_backend("p", descriptor);
  CHECK(aware->supports(zeroed, here).yes);
  CHECK(seen_by(*aware, zeroed) == "z");
  // What lies where `takes` would is not read of a library that was built before.
  descriptor.struct_size = offsetof(lora_bench_descriptor, takes);
  CHECK_FALSE(make_plugin_backend("p", descriptor)->supports(zeroed, here).yes);
  descriptor.struct_size = sizeof(descriptor);
  descriptor.takes = LORA_BENCH_READS_PADDING;
  const auto reads = make_plugin_backend("p", descriptor);
  CHECK(contains(reads->supports(plain, here).why_not, "adapters.padding: zero"));
  CHECK(reads->supports(problem_with("adapters.padding: zeros\n"), here).yes);
}

TEST_CASE("adding shrink: proof passes what adds to h and fails what overwrites it") {
  for (const char* more :
       {"", "intermediate: bf16\n", "dtype: fp32\nscale_at: expand\n",
        "adapters.scale: [-9.5e-7, 1.0]\n", "adapters.scale: [-9.5e-7]\nintermediate: bf16\n",
        "adapters.scale: [12000, 0.002]\n"}) {
    CAPTURE(more);
    const Problem problem =
        problem_with(std::string("op: shrink\nshrink_adds: true\nmeasure: false\n") + more);
    CHECK(semantics_text(problem) == "shrink_adds: true");
    CHECK(verdict_of(*make_cpu_backend(), problem).status == Status::kPassed);
    const Verdict overwritten = verdict_of(*make_mutant("given-h-overwritten"), problem);
    REQUIRE(overwritten.failure);
    CHECK(overwritten.failure->hypothesis == "missing-add");
    const Verdict nothing = verdict_of(*make_mutant("no-op"), problem);
    REQUIRE(nothing.failure);
    CHECK(nothing.failure->hypothesis == "zero-delta");
    for (const char* at_zero : {"given-h-lost-at-zero-sum", "given-h-of-zero-kept"}) {
      CAPTURE(at_zero);
      CHECK(verdict_of(*make_mutant(at_zero), problem).status == Status::kFailed);
    }
    for (const char* beside : {"lanes-above-rank-added-to", "base-rows-of-h-added-to"}) {
      CAPTURE(beside);
      CHECK(verdict_of(*make_mutant(beside), problem).status == Status::kFailed);
    }
  }
}

TEST_CASE("adding shrink: it is asked of op shrink alone, and not timed") {
  CHECK(contains(why_refused("shrink_adds: true\nmeasure: false\n"), "with op linear"));
  CHECK(contains(why_refused("op: shrink\nshrink_adds: true\n"), "measure: false"));
  const Problem plain = problem_with("op: shrink\n");
  const Problem adds = problem_with("op: shrink\nshrink_adds: true\nmeasure: false\n");
  CHECK(count_work(adds).bytes - count_work(plain).bytes == count_work(plain).written_bytes);
}

TEST_CASE(
    "bias of some slices: proof passes what leaves the others alone and fails what does not") {
  for (const char* more : {"", "dtype: fp32\nadd_inputs: false\n", "op: expand\n"}) {
    CAPTURE(more);
    const Problem problem =
        problem_with(std::string("adapters.bias: true\nadapters.bias_slices: [1]\n") + more);
    CHECK(problem.has_bias(1));
    CHECK_FALSE(problem.has_bias(0));
    CHECK(operand_of(problem, Role::kBias, 0).elements == 0);
    CHECK(operand_of(problem, Role::kBias, 1).elements == 4 * 8);
    CHECK(verdict_of(*make_cpu_backend(), problem).status == Status::kPassed);
    CHECK(verdict_of(*make_mutant("bias-where-none-is"), problem).status == Status::kFailed);
    CHECK(verdict_of(*make_mutant("bias-forgotten"), problem).status == Status::kFailed);
  }
  // A slice without columns has none that anybody could ask for.
  CHECK(semantics_text(problem_with("adapters.bias: true\nadapters.bias_slices: [0]\n"
                                    "layer.out: [32, 0]\n"))
            .empty());
}

TEST_CASE("bias of some slices: what names no slice, or no bias, is refused") {
  CHECK(contains(why_refused("adapters.bias_slices: [0]\n"), "there is no bias"));
  CHECK(contains(why_refused("adapters.rank0_bias: true\n"), "there is no bias"));
  CHECK(
      contains(why_refused("adapters.bias: true\nadapters.bias_slices: [0, 2]\n"), "of 2 slices"));
  CHECK(contains(why_refused("adapters.bias: true\nadapters.bias_slices: [1, 0]\n"), "ascending"));
}

TEST_CASE("bias of rank 0: proof passes what adds it and fails what leaves the rows alone") {
  for (const char* more :
       {"", "dtype: fp32\n", "adapters.rank: 0\n", "adapters.bias_slices: [1]\n",
        "adapters.rank: 0\nadapters.bias_slices: [1]\nlayer.out: [31, 1]\n",
        "plan: {form: chunked, idle_segments: true}\n", "add_inputs: false\nidle_rows: zeroed\n"}) {
    CAPTURE(more);
    const Problem problem =
        problem_with(std::string("adapters.bias: true\nadapters.rank0_bias: true\n") + more);
    CHECK(contains(semantics_text(problem), "adapters.rank0_bias: true"));
    CHECK(verdict_of(*make_cpu_backend(), problem).status == Status::kPassed);
    CHECK(verdict_of(*make_mutant("rank-zero-bias-forgotten"), problem).status == Status::kFailed);
    CHECK(owned_elements(problem) == 32 * problem.plan.rows_with_adapter());
  }
}

TEST_CASE("adapters of another dtype: proof passes who reads it and fails who takes it for x's") {
  for (const char* more :
       {"adapters.dtype: fp16\n", "adapters.dtype: fp32\nintermediate: bf16\n",
        "dtype: fp32\nadapters.dtype: bf16\n", "dtype: fp16\nadapters.dtype: bf16\nop: expand\n"}) {
    CAPTURE(more);
    const Problem problem = problem_with(std::string("adapters.bias: true\n") + more);
    CHECK(contains(semantics_text(problem), "adapters.dtype: "));
    CHECK(verdict_of(*make_cpu_backend(), problem).status == Status::kPassed);
    CHECK(verdict_of(*make_mutant("none"), problem).status == Status::kPassed);
  }
  const Problem problem = problem_with("adapters.dtype: fp16\n");
  CHECK(verdict_of(*make_mutant("weights-taken-for-x"), problem).status == Status::kFailed);
  CHECK(semantics_text(problem_with("adapters.dtype: bf16\n")).empty());
}

namespace {

// Says of itself what a test has it say.
class Saying : public PlainBackend {
 public:
  Saying(Faults faults, bool casts_h) : PlainBackend(std::move(faults)), casts_h_(casts_h) {}
  Numerics numerics(const Problem& problem) const override {
    Numerics numerics = PlainBackend::numerics(problem);
    numerics.casts_h = casts_h_;
    return numerics;
  }

 private:
  bool casts_h_;
};

}  // namespace

TEST_CASE("h cast to the dtype of B: who declares it passes, who does not fails") {
  for (const char* more : {"", "scale_at: expand\n", "dtype: fp32\nadapters.dtype: bf16\n"}) {
    CAPTURE(more);
    const Problem problem = problem_with(more);
    CHECK(verdict_of(Saying({.bf16_hidden = true}, true), problem).status == Status::kPassed);
    CHECK(verdict_of(Saying({.bf16_hidden = true}, false), problem).status == Status::kFailed);
    // Where the exact fill shows it, a declaration that is not kept is found out, and told as that.
    const Verdict undone = verdict_of(Saying({}, true), problem);
    REQUIRE(undone.failure);
    CHECK(undone.failure->hypothesis == "rounding-not-done");
    CHECK(undone.failure->explanation ==
          "casts_h is declared, but h was not rounded to bf16 before it was multiplied with B");
  }
}

namespace {

// Adds the bias by a rounding of its own.
class BiasApart final : public Backend {
 public:
  BiasApart(BiasAdded does, BiasAdded says) : does_(does), says_(says) {}
  std::string_view name() const override { return "apart"; }
  std::string_view summary() const override { return "bias by itself"; }
  Space space() const override { return Space::kHost; }
  Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
  Numerics numerics(const Problem& problem) const override {
    Numerics numerics = plain_formula_numerics(problem);
    numerics.bias_added = says_;
    return numerics;
  }
  std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  void launch(const Problem& problem, const Operands& operands, Stream) const override {
    Problem without = problem;
    without.bias = false;
    if (does_ == BiasAdded::kBefore) {
      add_bias(problem, operands, problem.add_inputs);
      without.add_inputs = true;
      apply_plain_formula(without, operands);
    } else {
      apply_plain_formula(without, operands);
      add_bias(problem, operands, true);
    }
  }

 private:
  static void add_bias(const Problem& problem, const Operands& operands, bool adds) {
    const Dtype dtype = problem.dtype[Role::kY];
    for (std::int64_t token = 0; token < problem.tokens; ++token) {
      const std::int64_t adapter = operands.adapter_of_token[token];
      std::int64_t at = token * problem.y_stride + problem.offset_start;
      for (std::size_t slice = 0; problem.acts_on(token) && slice < problem.widths.size();
           ++slice) {
        for (std::int64_t column = 0; column < problem.widths[slice]; ++column, ++at) {
          const float bias = load(problem.dtype[Role::kBias], operands.bias[slice],
                                  adapter * problem.widths[slice] + column);
          store(dtype, operands.y, at, (adds ? load(dtype, operands.y, at) : 0) + bias);
        }
      }
    }
  }

  BiasAdded does_, says_;
};

// Declares roundings that it does not do.
class Undoing final : public PlainBackend {
 public:
  using PlainBackend::PlainBackend;
  Numerics numerics(const Problem& problem) const override {
    Numerics numerics = PlainBackend::numerics(problem);
    numerics.casts_h = true;
    numerics.bias_added = BiasAdded::kAfter;
    return numerics;
  }
};

}  // namespace

TEST_CASE("bias by a rounding of its own: what is declared and done otherwise is told as that") {
  const Problem problem = problem_with("adapters.bias: true\n");
  const auto told = [&](const Backend& backend) {
    const Verdict verdict = verdict_of(backend, problem);
    REQUIRE(verdict.failure);
    CHECK(verdict.failure->hypothesis == "rounding-not-done");
    return verdict.failure->explanation;
  };
  CHECK(told(BiasApart(BiasAdded::kAfter, BiasAdded::kBefore)) ==
        "bias_added is declared as before, but the bias was added after delta");
  // Of the exact fill y + bias is exact, so that a rounding of it does not show.
  const char* const unrounded =
      "bias_added is declared as after, but y was not rounded before the bias was added";
  CHECK(told(BiasApart(BiasAdded::kBefore, BiasAdded::kAfter)) == unrounded);
  CHECK(told(*make_mutant("bias-declared-apart")) == unrounded);
  CHECK(told(Undoing()) == "none of the declared roundings was done: casts_h, bias_added");
}

TEST_CASE("bias by a rounding of its own: who declares it passes, who does not fails") {
  for (const BiasAdded does : {BiasAdded::kBefore, BiasAdded::kAfter}) {
    for (const char* more : {"", "dtype: fp16\n", "dtype: fp32\nadapters.dtype: bf16\n"}) {
      CAPTURE(more);
      const Problem problem = problem_with(std::string("adapters.bias: true\n") + more);
      CHECK(verdict_of(BiasApart(does, does), problem).status == Status::kPassed);
      const bool rounds = problem.dtype[Role::kY] != Dtype::kFp32;
      const Verdict quiet = verdict_of(BiasApart(does, BiasAdded::kWithDelta), problem);
      CHECK((quiet.status == Status::kFailed) == rounds);
      const Verdict boasts = verdict_of(*make_cpu_backend(), problem);
      CHECK(boasts.status == Status::kPassed);
    }
    const Problem overwrites = problem_with("adapters.bias: true\nadd_inputs: false\n");
    CHECK(verdict_of(BiasApart(does, does), overwrites).status == Status::kPassed);
  }
}

TEST_CASE("own inputs: proof passes who reads each and fails who reads the first alone") {
  for (const char* more : {"", "op: shrink\n", "dtype: fp32\nlayer.x_stride: 53\n"}) {
    CAPTURE(more);
    const Problem problem = problem_with(std::string("inputs: per_slice\n") + more);
    CHECK(operand_of(problem, Role::kX).elements == 2 * 12 * problem.x_stride);
    CHECK(verdict_of(*make_cpu_backend(), problem).status == Status::kPassed);
    CHECK(verdict_of(*make_mutant("x-of-first-slice"), problem).status == Status::kFailed);
    const Work shared = count_work(problem_with(more));
    CHECK(count_work(problem).bytes - shared.bytes ==
          shared.rows * 48 * size_bytes(problem.dtype[Role::kX]));
  }
  CHECK(contains(why_refused("inputs: per_slice\nop: expand\n"), "it has no x"));
  CHECK_FALSE(problem_with("inputs: per_slice\nlayer.out: 24\n").own_inputs());
}

TEST_CASE("semantics: fuzz draws each of them, and one or none in most cases") {
  std::set<std::string> seen;
  int plain = 0, few = 0;
  for (std::uint64_t index = 0; index < 400; ++index) {
    const Problem problem = make_problem(random_case(5, index));
    int of_case = 0;
    for (const SemanticDoc& doc : semantic_docs()) {
      const std::string asked = doc.asked(problem);
      seen.insert(asked.substr(0, asked.find(':')));
      of_case += asked.empty() ? 0 : 1;
    }
    plain += of_case == 0 ? 1 : 0;
    few += of_case <= 1 ? 1 : 0;
  }
  CHECK(seen == std::set<std::string>{
                    "", "idle_rows", "shrink_adds", "adapters.bias_slices", "adapters.rank0_bias",
                    "adapters.dtype", "inputs", "plan.form", "adapters.placing",
                    "adapters.a_stride", "adapters.b_stride", "layer.h_stride",
                    "layer.x_column_stride", "weights.dtype", "activations.dtype", "intermediate"});
  CHECK(plain > 100);
  CHECK(few > 240);
}
