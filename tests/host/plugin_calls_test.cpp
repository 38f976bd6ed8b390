#include "ops/plugin.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "core/error.h"
#include "include/lora_bench_backend.h"
#include "support/plain_backend.h"
#include "support/problems.h"
#include "verify/metadata_proof.h"
#include "verify/quantise_proof.h"
#include "verify/verify.h"

using namespace lora_bench;

namespace {

int32_t supports(const lora_bench_problem*, const lora_bench_device*, char*, int64_t) {
  std::fesetround(FE_UPWARD);
  return 0;
}

void numerics(const lora_bench_problem*, lora_bench_numerics*) { std::fesetround(FE_UPWARD); }

int64_t workspace_bytes(const lora_bench_problem*) {
  std::fesetround(FE_UPWARD);
  return 0;
}

// Cuts y to bf16 where it is to be rounded, and has the bench cut after it too.
int32_t cutting(const lora_bench_problem*, const lora_bench_operands*, void*, char*, int64_t) {
  std::fesetround(FE_TOWARDZERO);
  return 0;
}

int32_t throwing(const lora_bench_problem*, const lora_bench_operands*, void*, char*, int64_t) {
  std::fesetround(FE_TOWARDZERO);
  throw 1;
}

// Each writes where its argument may only be read.
int32_t shortens_batch(const lora_bench_problem* p, const lora_bench_operands*, void*, char*,
                       int64_t) {
  *const_cast<int64_t*>(&p->tokens) = 1;
  return 0;
}
int32_t clears_rank(const lora_bench_problem* p, const lora_bench_operands*, void*, char*,
                    int64_t) {
  const_cast<int64_t*>(p->rank)[0] = 0;
  return 0;
}
int32_t clears_plan(const lora_bench_problem* p, const lora_bench_operands*, void*, char*,
                    int64_t) {
  const_cast<int32_t*>(p->token_order)[0] = 1;
  return 0;
}
int32_t clears_address(const lora_bench_problem*, const lora_bench_operands* o, void*, char*,
                       int64_t) {
  const_cast<lora_bench_operands*>(o)->y = o->h;
  return 0;
}
int32_t clears_list(const lora_bench_problem*, const lora_bench_operands* o, void*, char*,
                    int64_t) {
  const_cast<const void**>(o->a)[0] = o;
  return 0;
}
int32_t reads(const lora_bench_problem*, const lora_bench_operands*, void*, char*, int64_t) {
  return 0;
}

lora_bench_descriptor descriptor_with(decltype(&cutting) does) {
  return {LORA_BENCH_BACKEND_ABI,
          sizeof(lora_bench_descriptor),
          "rounding",
          "rounds elsewhere",
          LORA_BENCH_HOST,
          0,
          supports,
          numerics,
          workspace_bytes,
          does,
          nullptr,
          nullptr,
          0,
          nullptr,
          nullptr,
          0,
          0,
          nullptr,
          nullptr};
}

}  // namespace

TEST_CASE("plugin: no function of a plugin changes how the bench rounds") {
  const Problem problem = linear_problem();
  const Operands operands = no_operands(problem);
  for (const auto does : {cutting, throwing}) {
    const lora_bench_descriptor descriptor = descriptor_with(does);
    const std::unique_ptr<Backend> backend = make_plugin_backend("rounding", descriptor);
    CHECK(backend->supports(problem, cpu_facts()).yes);
    CHECK(std::fegetround() == FE_TONEAREST);
    CHECK(backend->numerics(problem).partials == 1);
    CHECK(std::fegetround() == FE_TONEAREST);
    CHECK(backend->workspace_bytes(problem) == 0);
    CHECK(std::fegetround() == FE_TONEAREST);
    try {
      backend->launch(problem, operands, {});
    } catch (const std::exception&) {
      const bool throws = does == throwing;
      CHECK(throws);
    }
    CHECK(std::fegetround() == FE_TONEAREST);
  }
}

namespace {

lora_bench_problem shown;

int32_t supports_and_keeps(const lora_bench_problem* problem, const lora_bench_device*, char*,
                           int64_t) {
  shown = *problem;
  return 0;
}

}  // namespace

TEST_CASE("plugin: a plan in a published form is given to one that names it, with its sizes") {
  Problem problem = linear_problem();
  problem.plan_form = PlanForm::kChunked;
  problem.chunk = 32;
  problem.idle_segments = true;
  lora_bench_descriptor descriptor = descriptor_with(reads);
  descriptor.supports = supports_and_keeps;
  CHECK(make_plugin_backend("sorted", descriptor)->supports(problem, cpu_facts()).why_not ==
        "plan.form: chunked: `takes` of its descriptor does not name "
        "LORA_BENCH_TAKES_CHUNKED_FORM, in Python \"chunked_form\"");
  descriptor.takes = LORA_BENCH_TAKES_CHUNKED_FORM;
  CHECK(make_plugin_backend("chunked", descriptor)->supports(problem, cpu_facts()).yes);
  CHECK(shown.plan_form == LORA_BENCH_PLAN_CHUNKED);
  CHECK(shown.chunk == 32);
  CHECK(shown.idle_segments == 1);
  CHECK(shown.groups == problem.groups());
  problem.plan_form = PlanForm::kKernel;
  CHECK_FALSE(make_plugin_backend("chunked", descriptor)->supports(problem, cpu_facts()).yes);
}

TEST_CASE("plugin: the tokens and factors of rows are told to one that names them") {
  Problem problem = linear_problem();
  problem.route.experts = 2;
  problem.route.choices = 3;
  problem.route.x_rows = 5;
  problem.route.token_of_row.assign(static_cast<std::size_t>(problem.tokens), 1);
  lora_bench_descriptor descriptor = descriptor_with(reads);
  descriptor.supports = supports_and_keeps;
  CHECK(make_plugin_backend("older", descriptor)->supports(problem, cpu_facts()).why_not ==
        "experts.part: w13: `takes` of its descriptor does not name LORA_BENCH_TAKES_SHARED_X, in "
        "Python \"shared_x\"");
  descriptor.takes = LORA_BENCH_TAKES_SHARED_X;
  CHECK(make_plugin_backend("shares", descriptor)->supports(problem, cpu_facts()).yes);
  CHECK(shown.experts == 2);
  CHECK(shown.choices == 3);
  CHECK(shown.x_rows == 5);
  CHECK(shown.shares_x == 1);
  CHECK(shown.has_factors == 0);
  problem.route.token_of_row.clear();
  problem.route.factor_of_row.assign(static_cast<std::size_t>(problem.tokens), 0.5F);
  CHECK(make_plugin_backend("shares", descriptor)->supports(problem, cpu_facts()).why_not ==
        "experts.weight_at: input or output: `takes` of its descriptor does not name "
        "LORA_BENCH_TAKES_ROW_FACTORS, in Python \"row_factors\"");
  descriptor.takes = LORA_BENCH_TAKES_ROW_FACTORS;
  CHECK(make_plugin_backend("multiplies", descriptor)->supports(problem, cpu_facts()).yes);
  CHECK(shown.x_rows == problem.tokens);
  CHECK(shown.has_factors == 1);
}

TEST_CASE("plugin: how h is quantised is told to one that names it, and what it keeps is read") {
  Problem problem = linear_problem();
  const QuantiserRule rule{.to = Dtype::kE5m2,
                           .convert = Convert::kMultiply,
                           .power_of_two = true,
                           .least_amax = 2,
                           .least_scale = 0.5F};
  problem.h_quantiser = {rule, 7};
  lora_bench_descriptor descriptor = descriptor_with(reads);
  descriptor.supports = supports_and_keeps;
  CHECK(
      make_plugin_backend("older", descriptor)->supports(problem, cpu_facts()).why_not ==
      "intermediate: e5m2 (multiply, least amax 2, least scale 0.5, powers of two): `takes` of its "
      "descriptor does not name LORA_BENCH_TAKES_QUANTISED_H, in Python \"quantised_h\"");
  descriptor.takes = LORA_BENCH_TAKES_QUANTISED_H;
  const auto takes = make_plugin_backend("takes", descriptor);
  CHECK(takes->supports(problem, cpu_facts()).yes);
  CHECK(shown.h_dtype == LORA_BENCH_FP32);
  CHECK(shown.quantises_h == 1);
  CHECK(shown.h_code_dtype == LORA_BENCH_E5M2);
  CHECK(shown.h_group == 7);
  CHECK(shown.h_multiply == 1);
  CHECK(shown.h_power_of_two == 1);
  CHECK(shown.h_least_amax == 2);
  CHECK(shown.h_least_scale == 0.5F);
  CHECK(takes->numerics(problem).intermediate == Dtype::kE5m2);
  descriptor.numerics = [](const lora_bench_problem*, lora_bench_numerics* out) {
    out->intermediate = LORA_BENCH_BF16;
  };
  CHECK(make_plugin_backend("keeps", descriptor)->numerics(problem).intermediate == Dtype::kBf16);
  descriptor.numerics = [](const lora_bench_problem*, lora_bench_numerics* out) {
    out->intermediate = LORA_BENCH_E4M3;
  };
  CHECK_THROWS_AS(static_cast<void>(make_plugin_backend("other", descriptor)->numerics(problem)),
                  CaseError);
  // Eight bits with a scale hold what fp16 cannot.
  descriptor.numerics = [](const lora_bench_problem*, lora_bench_numerics* out) {
    out->intermediate = LORA_BENCH_FP16;
  };
  CHECK_THROWS_WITH_AS(
      static_cast<void>(make_plugin_backend("half", descriptor)->numerics(problem)),
      "numerics declares intermediate = 2 of an h that is quantised to e5m2; allowed: that (4), or "
      "where it is kept instead LORA_BENCH_FP32 (0), LORA_BENCH_BF16 (1)",
      CaseError);
  problem.h_quantiser.reset();
  CHECK(takes->supports(problem, cpu_facts()).yes);
  CHECK(shown.quantises_h == 0);
  CHECK(shown.h_code_dtype == 0);
}

TEST_CASE("plugin: what it writes into what it is shown is told, and changes nothing") {
  const Problem problem = linear_problem();
  const Problem as_before = problem;
  Operands operands = no_operands(problem);
  int h = 0;
  operands.h = &h;
  struct Writer {
    decltype(&cutting) does;
    const char* where;
  };
  for (const Writer& writer : {Writer{shortens_batch, "launch wrote into problem,"},
                               Writer{clears_rank, "launch wrote into problem->rank,"},
                               Writer{clears_plan, "launch wrote into the plan of problem,"},
                               Writer{clears_address, "launch wrote into operands,"},
                               Writer{clears_list, "launch wrote into operands,"}}) {
    const lora_bench_descriptor descriptor = descriptor_with(writer.does);
    const std::unique_ptr<Backend> backend = make_plugin_backend("writer", descriptor);
    for (int launch = 0; launch < 2; ++launch) {
      std::string told;
      try {
        backend->launch(problem, operands, {});
      } catch (const CaseError& error) {
        told = error.what();
      }
      CHECK_MESSAGE(told.starts_with(writer.where), told);
    }
    CHECK(problem == as_before);
    CHECK(operands.a[0] == nullptr);
  }
  const lora_bench_descriptor descriptor = descriptor_with(reads);
  const std::unique_ptr<Backend> backend = make_plugin_backend("reader", descriptor);
  for (const Problem& asked : {problem, linear_problem(), problem}) {
    backend->launch(asked, operands, {});
  }
}

namespace {

// Form sampler as a user might write it; the wrong one points rows without an adapter at slot 0.
template <bool kWrong>
int32_t samples(const lora_bench_metadata* step, void*, char*, int64_t) {
  const auto* requests = static_cast<const int32_t*>(step->inputs[0]);
  const auto* slots = static_cast<const int32_t*>(step->inputs[1]);
  for (int64_t row = 0; row < step->samples; ++row) {
    const int32_t slot = requests[row] < 0 ? -1 : slots[requests[row]];
    static_cast<int32_t*>(step->outputs[0])[row] = slot;
    static_cast<int64_t*>(step->outputs[1])[row] =
        row + (slot < 0 ? (kWrong ? 0 : step->slots - 1) : slot) * step->samples;
  }
  return 0;
}

int32_t takes_sampler(const lora_bench_metadata* step, const lora_bench_device*, char* why,
                      int64_t why_bytes) {
  if (step->form == LORA_BENCH_FORM_SAMPLER) {
    return 0;
  }
  const std::string sentence = "form sampler alone";
  sentence.copy(why, static_cast<std::size_t>(why_bytes));
  return 1;
}

int32_t clears_outputs(const lora_bench_metadata* step, void*, char*, int64_t) {
  const_cast<void**>(step->outputs)[0] = nullptr;
  return 0;
}

int32_t tells_why(const lora_bench_metadata*, void*, char* error, int64_t) {
  std::string("no room").copy(error, 7);
  return 3;
}

}  // namespace

TEST_CASE("plugin: its builder of metadata is proved as ours are, form by form") {
  lora_bench_descriptor descriptor = descriptor_with(reads);
  descriptor.supports_metadata = takes_sampler;
  descriptor.metadata = samples<false>;
  lora_bench_descriptor wrong = descriptor;
  wrong.metadata = samples<true>;
  const auto memory = make_host_memory();
  const auto right_one = make_plugin_backend("right", descriptor);
  const auto wrong_one = make_plugin_backend("wrong", wrong);
  int proved = 0;
  for (const TellingMetadata& telling : telling_metadata()) {
    const MetadataProblem& problem = telling.step.problem;
    const Support support = metadata_support(*right_one, problem, facts_of(Space::kHost));
    CHECK(support.yes == (problem.form == Form::kSampler));
    if (!support.yes) {
      CHECK(support.why_not == "form sampler alone");
      continue;
    }
    CHECK(verify_metadata(telling.step, *right_one->metadata(), *memory, true).status ==
          Status::kPassed);
    const Verdict found = verify_metadata(telling.step, *wrong_one->metadata(), *memory, true);
    if (problem.slots > 1) {
      REQUIRE(found.failure);
      CHECK(found.failure->hypothesis == "none-row-grouped");
    }
    ++proved;
  }
  CHECK(proved >= 5);
}

TEST_CASE("plugin: of a library from before metadata nothing is asked of it") {
  lora_bench_descriptor descriptor = descriptor_with(reads);
  descriptor.struct_size = offsetof(lora_bench_descriptor, supports_metadata);
  descriptor.metadata = samples<false>;
  CHECK(make_plugin_backend("old", descriptor)->metadata() == nullptr);
  descriptor.struct_size = sizeof(descriptor);
  descriptor.metadata = nullptr;
  CHECK(make_plugin_backend("none", descriptor)->metadata() == nullptr);
}

TEST_CASE("plugin: what goes wrong when it makes metadata is told") {
  const MetadataStep step = telling_metadata().front().step;
  const auto memory = make_host_memory();
  const auto told = [&](auto function) {
    lora_bench_descriptor descriptor = descriptor_with(reads);
    descriptor.metadata = function;
    const auto backend = make_plugin_backend("p", descriptor);
    CHECK(metadata_support(*backend, step.problem, facts_of(Space::kHost)).yes);
    try {
      static_cast<void>(verify_metadata(step, *backend->metadata(), *memory, false));
    } catch (const CaseError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(told(tells_why) == "no room");
  CHECK(told(clears_outputs).starts_with("metadata wrote into inputs or outputs"));
}

namespace {

float scale_of(const lora_bench_quantise& step, float amax) {
  return std::max(std::max(amax, step.least_amax) / 448, step.least_scale);
}

// Scales of tokens and e4m3 from fp32, by a division; `kOff`: of the token before.
template <int kOff>
int32_t quantises(const lora_bench_quantise* step, void*, char*, int64_t) {
  const auto* const x = static_cast<const float*>(step->x);
  auto* const codes = static_cast<std::uint8_t*>(step->q);
  std::vector<float> scales;
  for (std::int64_t row = 0; row < step->rows; ++row) {
    float amax = 0;
    for (std::int64_t k = 0; k < step->columns; ++k) {
      amax = std::max(amax, std::fabs(x[row * step->x_stride + k]));
    }
    scales.push_back(step->scales_given != 0 ? step->x_scale[row] : scale_of(*step, amax));
    if (step->q_scale != nullptr) {
      step->q_scale[row] = scales.back();
    }
  }
  for (std::int64_t row = 0; row < step->rows; ++row) {
    const float scale = scales[static_cast<std::size_t>((row + kOff) % step->rows)];
    for (std::int64_t k = 0; k < step->columns; ++k) {
      const float value = x[row * step->x_stride + k] / scale;
      codes[row * step->columns + k] = e4m3_from_float(std::clamp(value, -448.0F, 448.0F));
    }
  }
  return 0;
}

int32_t takes_fp32(const lora_bench_quantise* step, const lora_bench_device*, char* why,
                   int64_t room) {
  const bool taken = step->x == nullptr && step->q == nullptr && step->power_of_two == 0 &&
                     step->x_dtype == LORA_BENCH_FP32 && step->q_dtype == LORA_BENCH_E4M3 &&
                     step->scale_columns == 1 && step->group == step->columns;
  std::snprintf(why, static_cast<std::size_t>(room), "fp32 by tokens alone");
  return taken ? 0 : 1;
}

int32_t quantise_changes_step(const lora_bench_quantise* step, void*, char*, int64_t) {
  const_cast<lora_bench_quantise*>(step)->rows = 0;
  return 0;
}

}  // namespace

TEST_CASE("plugin: its quantiser is proved, and refuses what it does not take") {
  const auto with = [](decltype(&quantises<0>) quantise) {
    lora_bench_descriptor descriptor = descriptor_with(reads);
    descriptor.supports_quantise = takes_fp32;
    descriptor.quantise = quantise;
    return descriptor;
  };
  const lora_bench_descriptor none = with(nullptr), right_one = with(quantises<0>),
                              wrong_one = with(quantises<1>), writing = with(quantise_changes_step);
  CHECK(make_plugin_backend("none", none)->quantiser() == nullptr);
  const auto right = make_plugin_backend("right", right_one);
  const auto wrong = make_plugin_backend("wrong", wrong_one);
  const auto writes = make_plugin_backend("writes", writing);
  const auto memory = make_host_memory();
  int proved = 0;
  for (const TellingQuantise& telling : telling_quantise()) {
    CAPTURE(telling.id);
    QuantiseStep step = telling.step;
    const Support asked = quantise_support(*right, step.problem, facts_of(Space::kHost));
    CHECK((step.problem.from == Dtype::kFp32 || !asked.yes));
    step.problem.from = Dtype::kFp32;
    if (!quantise_support(*right, step.problem, facts_of(Space::kHost)).yes ||
        step.problem.convert == Convert::kMultiply || !step.problem.scales.by_token) {
      continue;
    }
    CHECK(verify_quantise(step, *right->quantiser(), *memory, true).message == "");
    const Verdict found = verify_quantise(step, *wrong->quantiser(), *memory, false);
    REQUIRE(found.failure);
    CHECK(found.failure->hypothesis == "scale-of-next-row");
    CHECK_THROWS_WITH_AS(
        static_cast<void>(verify_quantise(step, *writes->quantiser(), *memory, false)),
        doctest::Contains("quantise wrote into step"), CaseError);
    ++proved;
  }
  CHECK(proved >= 3);
  lora_bench_descriptor old = right_one;
  old.struct_size = offsetof(lora_bench_descriptor, supports_quantise);
  CHECK(make_plugin_backend("old", old)->quantiser() == nullptr);
}

TEST_CASE("oracle: it rounds to nearest in a thread that does not, and leaves that as it was") {
  const Problem problem = linear_problem();
  const std::vector<std::int64_t> rows{0, 1, 2};
  for (const Fill fill : {Fill::kExact, Fill::kBounded}) {
    const Tensors tensors = draw_tensors(problem, fill, 1);
    const Numerics numerics = PlainBackend().numerics(problem);
    const auto wrong = [&] {
      return compare_output(problem, tensors, numerics, tensors.y.data.data(), rows);
    };
    const Comparison nearest = wrong();
    std::fesetround(FE_TOWARDZERO);
    const Comparison elsewhere = wrong();
    const int left = std::fegetround();
    std::fesetround(FE_TONEAREST);
    CHECK(left == FE_TOWARDZERO);
    CHECK(elsewhere.wrong == nearest.wrong);
    REQUIRE(elsewhere.first.size() == nearest.first.size());
    for (std::size_t i = 0; i < nearest.first.size(); ++i) {
      CHECK(elsewhere.first[i].expected == nearest.first[i].expected);
      CHECK(elsewhere.first[i].bound == nearest.first[i].bound);
    }
  }
}
