#include "verify/verify.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "support/plain_backend.h"
#include "support/problems.h"
#include "verify/oracle.h"
#include "verify/staging.h"

using namespace lora_bench;

namespace {

Verdict verdict_of(const Problem& problem, const PlainBackend::Faults& faults = {}) {
  const auto memory = make_host_memory();
  return verify(problem, PlainBackend(faults), *memory, {});
}

bool has(const Verdict& verdict, Level level) {
  return std::find(verdict.passed.begin(), verdict.passed.end(), level) != verdict.passed.end();
}

// The backend, with another declaration of what it does.
class Declaring : public PlainBackend {
 public:
  explicit Declaring(Numerics numerics, Faults faults = {})
      : PlainBackend(std::move(faults)), numerics_(std::move(numerics)) {}
  Numerics numerics(const Problem&) const override { return numerics_; }

 private:
  Numerics numerics_;
};

}  // namespace

TEST_CASE("verify: a correct backend passes and the verdict says what was shown") {
  const Verdict verdict = verdict_of(linear_problem());
  CHECK(verdict.message == "");
  CHECK(verdict.status == Status::kPassed);
  CHECK(verdict.passed == std::vector<Level>{Level::kExact, Level::kBounded, Level::kMemory});
  CHECK(verdict.rows_checked == 1);
  CHECK(verdict.compared == 4 * 12 * 36);  // exact, shifted, bounded, uneven
}

TEST_CASE("verify: correct fp32 sums are never flagged and stay below the bound") {
  std::map<Status, int> seen;
  std::string messages;
  double worst = 0;
  int both = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Verdict verdict = verdict_of(random_problem(seed));
    ++seen[verdict.status];
    both += has(verdict, Level::kExact) && has(verdict, Level::kBounded) ? 1 : 0;
    worst = std::max(worst, verdict.bound_share);
    if (verdict.status != Status::kPassed) {
      messages += std::to_string(seed) + ": " + verdict.message + "\n";
    }
  }
  CHECK(messages == "");
  CHECK(seen[Status::kPassed] == 200);
  CHECK(both > 150);
  CHECK(worst > 0);
  CHECK(worst < 1);
}

TEST_CASE("verify: wrong results are found at the level that must find them") {
  struct Wrong {
    std::string what;
    Level level;
    PlainBackend::Faults faults;
  };
  const std::vector<Wrong> wrongs{
      {"the last element of K", Level::kExact, {.loses_last_k = true}},
      {"undeclared bf16 partials", Level::kExact, {.bf16_partials = true}},
      {"undeclared bf16 intermediate", Level::kExact, {.bf16_hidden = true}},
      {"one row with another adapter", Level::kExact, {.token_with_wrong_adapter = 4}},
      {"one row without its delta", Level::kExact, {.token_without_delta = 10}},
      {"rows without adapter written", Level::kExact, {.writes_rows_without_adapter = true}},
      {"a lane above the rank read", Level::kExact, {.reads_padding_lane = true}},
      {"scale forgotten", Level::kExact, {.ignores_scale = true}},
      {"write past y", Level::kMemory, {.writes_past_y = true}},
      {"x changed", Level::kMemory, {.changes_x = true}},
  };
  for (const Wrong& wrong : wrongs) {
    CAPTURE(wrong.what);
    const Verdict verdict = verdict_of(linear_problem(), wrong.faults);
    CHECK(verdict.status == Status::kFailed);
    REQUIRE(verdict.failure.has_value());
    CHECK(verdict.failure->level == wrong.level);
    CHECK(verdict.passed.empty());
  }
}

TEST_CASE("verify: NaN in the result is wrong") {
  Problem problem = linear_problem();
  problem.plan = make_plan(std::vector<std::int32_t>(12, 1), problem.slots);
  const Verdict verdict = verdict_of(problem, {.writes_nan = true});
  REQUIRE(verdict.failure.has_value());
  CHECK(verdict.failure->wrong == 32);
  CHECK(verdict.failure->first.front().token == 11);
}

TEST_CASE("verify: a failure is told in the words of the domain") {
  const Verdict verdict = verdict_of(linear_problem(), {.token_without_delta = 4});
  REQUIRE(verdict.failure.has_value());
  CHECK(verdict.failure->compared == 12 * 36);
  CHECK(verdict.failure->wrong > 16);
  CHECK(verdict.failure->wrong <= 32);
  CHECK(verdict.failure->first.size() == 10);
  CHECK(verdict.failure->first.front().adapter == 1);
  CHECK(verdict.message.find("exact: ") == 0);
  CHECK(verdict.message.find("token 4, adapter 1, slice 0, column ") != std::string::npos);
  CHECK(verdict.message.find('\n') == std::string::npos);
}

TEST_CASE("verify: rows that were not sampled are still guarded") {
  Problem problem = linear_problem();
  problem.tokens = 400;
  std::vector<std::int32_t> ids(400, 1);
  ids[200] = -1;
  for (int i = 201; i < 300; ++i) {
    ids[static_cast<std::size_t>(i)] = -1;
  }
  problem.plan = make_plan(ids, problem.slots);
  const std::vector<std::int64_t> sampled = sample_rows(problem, 20, 1);
  std::int64_t hidden = 201;
  while (std::find(sampled.begin(), sampled.end(), hidden) != sampled.end()) {
    ++hidden;
  }
  const auto memory = make_host_memory();
  const auto touch = [&](const Problem& step, const Operands& operands) {
    store(step.dtype[Role::kY], operands.y, hidden * step.y_stride + 5, 77);
  };
  const Verdict verdict = verify(problem, PlainBackend({.then = touch}), *memory, {.max_rows = 20});
  REQUIRE(verdict.failure.has_value());
  CHECK(verdict.failure->level == Level::kMemory);
  CHECK(verdict.failure->first.front().token == hidden);
  CHECK(verdict.failure->first.front().got == 77);
  CHECK(verify(problem, PlainBackend(), *memory, {.max_rows = 20}).status == Status::kPassed);
}

TEST_CASE("verify: a lane of h that was never written shows, h of other lanes is free") {
  Problem problem = linear_problem();
  problem.op = Op::kShrink;
  CHECK(verdict_of(problem).status == Status::kPassed);
  const auto scribble = [](const Problem& step, const Operands& operands) {
    store(step.dtype[Role::kH], operands.h, 1 * step.max_rank + 7, 5);  // rank of its adapter is 3
  };
  CHECK(verdict_of(problem, {.then = scribble}).status == Status::kPassed);
  const auto forget = [](const Problem& step, const Operands& operands) {
    store(step.dtype[Role::kH], operands.h, 1 * step.max_rank + 2, std::nanf(""));
  };
  CHECK(verdict_of(problem, {.then = forget}).status == Status::kFailed);
}

TEST_CASE("verify: inputs of the plan may not be changed either") {
  const auto reorder = [](const Problem&, const Operands& operands) {
    const_cast<std::int32_t*>(operands.token_order)[0] = 3;
  };
  const Verdict verdict = verdict_of(linear_problem(), {.then = reorder});
  REQUIRE(verdict.failure.has_value());
  CHECK(verdict.failure->what == "input token_order changed");
}

TEST_CASE("verify: wrong values and a damaged guard are told together, values first") {
  const auto past_and_wrong = [](const Problem& step, const Operands& operands) {
    store(step.dtype[Role::kY], operands.y, 2, 5);
    store(step.dtype[Role::kY], operands.y, step.tokens * step.y_stride, 5);
  };
  const Verdict verdict = verdict_of(linear_problem(), {.then = past_and_wrong});
  REQUIRE(verdict.failure.has_value());
  CHECK(verdict.failure->level == Level::kExact);
  CHECK(verdict.failure->what.find("guard of y damaged") != std::string::npos);
}

TEST_CASE("verify: a changed input is the name of wrong values that no arithmetic explains") {
  PlainBackend::Faults faults;
  faults.changes_x = true;
  faults.then = [](const Problem& step, const Operands& operands) {
    for (std::int64_t token = 0; token < step.tokens; ++token) {
      if (operands.adapter_of_token[token] >= 0) {
        store(step.dtype[Role::kY], operands.y, token * step.y_stride + step.offset_start,
              static_cast<float>(37 + token * token));
      }
    }
  };
  const Verdict verdict = verdict_of(linear_problem(), faults);
  REQUIRE(verdict.failure.has_value());
  CHECK(verdict.failure->level == Level::kExact);
  CHECK(verdict.failure->hypothesis == "input-changed");
}

TEST_CASE("verify: what is declared is allowed, what is not is found") {
  const Problem problem = linear_problem();
  const auto memory = make_host_memory();
  Numerics declared = PlainBackend().numerics(problem);
  declared.partial = Dtype::kBf16;
  declared.partials = 2;
  const Verdict allowed =
      verify(problem, Declaring(declared, {.bf16_partials = true}), *memory, {});
  CHECK(allowed.status == Status::kPassed);
  CHECK_FALSE(has(allowed, Level::kExact));  // bf16 partials cannot be exact
  CHECK(allowed.message.find("exact: sums need") == 0);

  // Declared or not: the case asks for an fp32 h.
  declared = PlainBackend().numerics(problem);
  declared.intermediate = Dtype::kBf16;
  CHECK(verify(problem, Declaring(declared, {.bf16_hidden = true}), *memory, {}).status ==
        Status::kFailed);

  // Nobody sums 96 products in fp32 with an error so small.
  Problem plain = problem;
  plain.dtype = OperandDtypes(Dtype::kFp32, problem.dtype[Role::kH]);
  declared = PlainBackend().numerics(plain);
  declared.shrink_depth = declared.expand_depth = 0;
  declared.unit_roundoff = 0x1p-30;
  const Verdict boast = verify(plain, Declaring(declared), *memory, {});
  REQUIRE(boast.failure.has_value());
  CHECK(boast.failure->level == Level::kBounded);
}

TEST_CASE("verify: each operand has a dtype of its own, and who reads one as another's fails") {
  // Reads or writes one operand as if it had the dtype of another.
  class Confusing : public PlainBackend {
   public:
    explicit Confusing(Role role) : role_(role) {}
    void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
      Problem confused = problem;
      confused.dtype[role_] = problem.dtype[role_] == Dtype::kBf16 ? Dtype::kFp16 : Dtype::kBf16;
      PlainBackend::launch(confused, operands, stream);
    }

   private:
    Role role_;
  };
  const auto memory = make_host_memory();
  for (const Role role : {Role::kX, Role::kA, Role::kB, Role::kBias, Role::kH, Role::kY}) {
    for (const Dtype dtype : {Dtype::kFp16, Dtype::kFp32, Dtype::kBf16}) {
      Problem problem = linear_problem();
      problem.bias = true;
      problem.dtype = OperandDtypes(dtype == Dtype::kBf16 ? Dtype::kFp16 : Dtype::kBf16);
      problem.dtype[role] = dtype;
      CAPTURE(name(role));
      CAPTURE(name(dtype));
      const Verdict right = verify(problem, PlainBackend(), *memory, {.relations = true});
      CHECK(right.status == Status::kPassed);
      CHECK_MESSAGE(right.passed.size() == 4, right.message);
      if (dtype != Dtype::kFp32) {
        const Verdict wrong = verify(problem, Confusing(role), *memory, {});
        CHECK(wrong.status == Status::kFailed);
      }
    }
  }
}

TEST_CASE("verify: right backends that declare narrow sums or a rounded delta raise no alarm") {
  struct Declared {
    std::string what;
    PlainBackend::Faults does;
    Dtype partial = Dtype::kFp32;
    std::int64_t partials = 1;
    bool rounds_delta = false;
  };
  const std::vector<Declared> all{{"delta rounded", {.rounds_delta = true}, Dtype::kFp32, 1, true},
                                  {"one bf16 sum", {.bf16_sum = true}, Dtype::kBf16, 1, false},
                                  {"two", {.bf16_partials = true}, Dtype::kBf16, 2, false}};
  const auto memory = make_host_memory();
  for (const Declared& declared : all) {
    int exact = 0;
    int bounded = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      const Problem problem = random_problem(seed);
      Numerics numerics = PlainBackend().numerics(problem);
      numerics.partial = declared.partial;
      numerics.partials = declared.partials;
      numerics.rounds_delta = declared.rounds_delta;
      const Verdict verdict = verify(problem, Declaring(numerics, declared.does), *memory, {});
      CAPTURE(declared.what);
      CAPTURE(seed);
      CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
      exact += has(verdict, Level::kExact) ? 1 : 0;
      bounded += has(verdict, Level::kBounded) ? 1 : 0;
    }
    CHECK(bounded > 70);
    CHECK((exact > 70) == declared.rounds_delta);
  }
}

TEST_CASE("verify: what a declaration leaves no result out of proves nothing") {
  // As far as a plugin may go.
  const Problem problem = linear_problem();
  Numerics loose;
  loose.unit_roundoff = 0x1p-8;
  loose.shrink_depth = 2 * problem.in_features + 64;
  loose.expand_depth = 2 * problem.max_rank + 64;
  loose.partial = Dtype::kBf16;
  loose.partials = problem.in_features;
  loose.deterministic = loose.batch_invariant = loose.graph_safe = false;
  const auto memory = make_host_memory();
  const auto garbage = [](const Problem& step, const Operands& operands) {
    for (std::int64_t token = 0; token < step.tokens; ++token) {
      for (std::int64_t column = 2;
           column < 34 && step.plan.adapter_of_token[static_cast<std::size_t>(token)] >= 0;
           ++column) {
        store(step.dtype[Role::kY], operands.y, token * step.y_stride + column, 12345);
      }
    }
  };
  // Rows of zeros have no bound, whatever is declared.
  CHECK(verify(problem, Declaring(loose, {.then = garbage}), *memory, {}).status ==
        Status::kFailed);
  const Verdict verdict = verify(problem, Declaring(loose), *memory, {});
  CHECK(verdict.status == Status::kMistrusted);
  CHECK_FALSE(has(verdict, Level::kExact));
  CHECK_FALSE(has(verdict, Level::kBounded));
  CHECK(verdict.message.find("exact: sums need") == 0);
  CHECK(verdict.message.find("bounded: doing nothing would pass in 100 %") != std::string::npos);
}

TEST_CASE("verify: a declaration that would hide 20 % of one row is no pass, wrong or not") {
  const Problem problem = linear_problem();
  const auto memory = make_host_memory();
  const auto twenty_percent = [](const Problem& step, const Operands& operands) {
    // Of the first row that has an adapter, whatever y held before.
    const std::int64_t row = step.plan.token_order[0];
    for (std::int64_t column = 2; column < 34; ++column) {
      const std::int64_t index = row * step.y_stride + column;
      store(step.dtype[Role::kY], operands.y, index,
            1.2F * load(step.dtype[Role::kY], operands.y, index));
    }
  };
  Problem overwriting = problem;
  overwriting.add_inputs = false;
  for (const std::int64_t partials : {2, 16, 64, 96}) {
    CAPTURE(partials);
    Numerics declared = PlainBackend().numerics(overwriting);
    declared.partial = Dtype::kBf16;
    declared.partials = partials;
    const Verdict wrong =
        verify(overwriting, Declaring(declared, {.then = twenty_percent}), *memory, {});
    CAPTURE(wrong.message);
    CHECK(wrong.status == (partials < 64 ? Status::kFailed : Status::kMistrusted));
    const Verdict right = verify(overwriting, Declaring(declared), *memory, {});
    CHECK(right.status == (partials < 64 ? Status::kPassed : Status::kMistrusted));
  }
  // Integers are summed exactly whatever is declared: that says nothing of other numbers.
  Numerics declared = PlainBackend().numerics(problem);
  declared.unit_roundoff = 0x1p-8;
  const Verdict loose = verify(problem, Declaring(declared), *memory, {});
  CHECK(has(loose, Level::kExact));
  CHECK(loose.status == Status::kMistrusted);
  CHECK(loose.message.find("would hide an error of an eighth") != std::string::npos);
}

TEST_CASE("verify: an h of fp16 that its scale makes tiny is told apart from a loose declaration") {
  Problem problem = linear_problem();
  problem.dtype = OperandDtypes(Dtype::kFp16, Dtype::kFp16);
  problem.scale_at = ScaleAt::kShrink;
  problem.in_features = problem.x_stride = 4;
  const auto memory = make_host_memory();
  const auto verdict_now = [&] {
    Numerics declared = PlainBackend().numerics(problem);
    declared.intermediate = Dtype::kFp16;
    return verify(problem, Declaring(declared), *memory, {});
  };
  const auto verdict_with = [&](float scale) {
    problem.scale.assign(static_cast<std::size_t>(problem.slots), scale);
    return verdict_now();
  };
  for (const float scale : {1.0F, 0x1p-10F, 0x1p-20F, 0x1p-24F}) {
    CHECK(verdict_with(scale).status == Status::kPassed);
  }
  const Verdict tiny = verdict_with(0x1p-40F);
  CHECK(tiny.status == Status::kMistrusted);
  CHECK(tiny.message.find("h is so small that fp16 keeps few bits of it") != std::string::npos);
  CHECK(tiny.message.find("looser") == std::string::npos);
  // Beside a scale near 1 h must not leave fp16 at the other end.
  problem.in_features = problem.x_stride = 40000;
  problem.rank = {1, 1, 1, 1};
  problem.scale = {-0.7F, 0x1p-20F, 1, 0x1p-20F};
  const Verdict beside = verdict_now();
  CHECK_MESSAGE(beside.status == Status::kPassed, beside.message);
}

TEST_CASE("verify: a step whose sums cancel passes by numbers of one sign") {
  Problem problem = linear_problem();
  problem.in_features = problem.x_stride = 4096;
  Numerics declared = PlainBackend().numerics(problem);
  declared.partial = Dtype::kBf16;
  declared.partials = 2;
  const auto memory = make_host_memory();
  const Tensors tensors = draw_tensors(problem, Fill::kBounded, 1);
  const std::vector<std::int64_t> rows = sample_rows(problem, 256, 1);
  const Declaring backend(declared, {.bf16_partials = true});
  Stage stage(*memory, problem, tensors, {64});
  stage.launch(backend);
  CHECK(compare_output(problem, tensors, declared, stage.output().data(), rows).coarse_rows > 0);
  const Verdict verdict = verify(problem, backend, *memory, {});
  CAPTURE(verdict.message);
  CHECK(verdict.status == Status::kPassed);
}

TEST_CASE("compare: an element whose bound reaches what was there before proves nothing") {
  const Problem problem = linear_problem();
  const Tensors tensors = draw_tensors(problem, Fill::kBounded, 1);
  const auto share = [&](double unit_roundoff) {
    Numerics numerics = PlainBackend().numerics(problem);
    numerics.unit_roundoff = unit_roundoff;
    const Comparison comparison =
        compare_output(problem, tensors, numerics, tensors.y.data.data(), {0, 1, 2});
    // Nothing was done: the elements that pass are those that prove nothing.
    CHECK(static_cast<double>(comparison.owned - comparison.wrong) ==
          doctest::Approx(comparison.zero_share * static_cast<double>(comparison.owned)));
    return comparison.zero_share;
  };
  CHECK(share(0x1p-24) < 0.05);
  CHECK(share(0x1p-11) > 0.05);
  CHECK(share(0x1p-11) < 0.9);
  CHECK(share(0x1p-7) == 1);
}

TEST_CASE("verify: a comparison proves nothing where more than nine elements in ten pass idle") {
  Comparison comparison;
  comparison.zero_share = 0.9;
  CHECK(why_no_proof(comparison) == "");
  comparison.zero_share = 0.91;
  CHECK(why_no_proof(comparison) == "doing nothing would pass in 91 % of the elements");
}

TEST_CASE(
    "verify: an infinity in a row that is not sampled is wrong where the oracle has a number") {
  Problem problem = linear_problem();
  problem.tokens = 400;
  problem.plan = make_plan(std::vector<std::int32_t>(400, 1), problem.slots);
  const std::vector<std::int64_t> sampled = sample_rows(problem, 8, 1);
  std::int64_t row = 200;
  while (std::count(sampled.begin(), sampled.end(), row) > 0) {
    ++row;
  }
  const PlainBackend backend({.then = [&](const Problem& whole, const Operands& operands) {
    if (whole.tokens == 400) {
      store(whole.dtype[Role::kY], operands.y, row * whole.y_stride + whole.offset_start,
            std::numeric_limits<float>::infinity());
    }
  }});
  const auto memory = make_host_memory();
  const Verdict verdict = verify(problem, backend, *memory, {.max_rows = 8});
  CHECK(verdict.status == Status::kFailed);
  REQUIRE(verdict.failure);
  CHECK(verdict.failure->first.front().token == row);
}

TEST_CASE("verify: legal cases with nothing to write pass and say so") {
  Problem problem = linear_problem();
  problem.plan = make_plan(std::vector<std::int32_t>(12, -1), problem.slots);
  const Verdict none = verdict_of(problem);
  CHECK(none.status == Status::kPassed);
  CHECK(none.message == "no row with an adapter: launched, nothing written");
  CHECK(none.compared > 0);
  CHECK(verdict_of(problem, {.writes_rows_without_adapter = true}).status == Status::kFailed);

  problem.tokens = 0;
  problem.plan = make_plan({}, problem.slots);
  const Verdict empty = verdict_of(problem);
  CHECK(empty.status == Status::kPassed);
  CHECK(empty.message == "empty batch: launched, nothing to write");
}

TEST_CASE("verify: a comparison that nothing could fail is mistrusted") {
  Problem problem = linear_problem();
  problem.scale = {0, 0, 0, 0};
  // A scale of 0 is kept by no fill of exact integers, so only the comparison itself can show it.
  Tensors tensors = draw_tensors(problem, Fill::kBounded, 1);
  tensors.scale.assign(4, 0.0F);
  std::vector<std::int64_t> rows{0, 1, 2};
  const Comparison comparison = compare_output(problem, tensors, PlainBackend().numerics(problem),
                                               tensors.y.data.data(), rows);
  CHECK(comparison.wrong == 0);
  CHECK(comparison.zero_share == 1);
}

TEST_CASE("compare: at the exact level -0 is 0, and one unit in the last place is wrong") {
  Problem problem = linear_problem();
  problem.op = Op::kExpand;
  problem.add_inputs = false;
  Tensors tensors = draw_tensors(problem, Fill::kExact, 1);
  const auto memory = make_host_memory();
  const std::vector<std::int64_t> rows{0};
  const Numerics numerics = PlainBackend().numerics(problem);
  const reference::Rows right = evaluate_rows(problem, tensors, numerics, rows);
  std::vector<std::byte> got = tensors.y.data;
  for (std::int64_t column = 0; column < problem.y_stride; ++column) {
    if (const auto at = static_cast<std::size_t>(column); right.owned[at] != 0) {
      store(problem.dtype[Role::kY], got.data(), column, static_cast<float>(right.expected[at]));
    }
  }
  CHECK(compare_output(problem, tensors, numerics, got.data(), rows).wrong == 0);
  std::uint16_t bits = 0;
  std::memcpy(&bits, got.data() + 10, 2);
  ++bits;
  std::memcpy(got.data() + 10, &bits, 2);
  const Comparison off = compare_output(problem, tensors, numerics, got.data(), rows);
  CHECK(off.wrong == 1);
  CHECK(off.first.front().slice == 0);
  CHECK(off.first.front().column == 3);
  CHECK(off.wrong_rows == std::vector<std::int64_t>{0});
}

TEST_CASE("compare: a column has its slice and its place in it") {
  const Problem problem = linear_problem();  // widths 24, 8 from column 2 on
  CHECK(place_of(problem, 1).slice == -1);
  CHECK(place_of(problem, 2).slice == 0);
  CHECK(place_of(problem, 25).column == 23);
  CHECK(place_of(problem, 26).slice == 1);
  CHECK(place_of(problem, 34).slice == -1);
  CHECK(place_of(problem, 34).column == 34);
}

TEST_CASE("sampling: all rows when they are few") {
  const std::vector<std::int64_t> rows = sample_rows(linear_problem(), 12, 1);
  CHECK(rows.size() == 12);
  CHECK(rows.front() == 0);
  CHECK(rows.back() == 11);
}

TEST_CASE("sampling: first and last row of every group, tile boundaries, rows without adapter") {
  Problem problem = linear_problem();
  problem.tokens = 1000;
  std::vector<std::int32_t> ids;
  for (std::int32_t token = 0; token < 1000; ++token) {
    ids.push_back(token % 5 == 0 ? -1 : token * 7 % 4);
  }
  problem.plan = make_plan(ids, problem.slots);
  for (const std::int64_t max_rows : {1, 40, 200, 999}) {
    CAPTURE(max_rows);
    const std::vector<std::int64_t> rows = sample_rows(problem, max_rows, 3);
    const std::set<std::int64_t> set(rows.begin(), rows.end());
    CHECK(set.size() == rows.size());
    CHECK(std::is_sorted(rows.begin(), rows.end()));
    CHECK(static_cast<std::int64_t>(rows.size()) <= std::max<std::int64_t>(max_rows, 10));
    for (std::int32_t adapter = -1; adapter < 4; ++adapter) {
      const auto first = std::find(ids.begin(), ids.end(), adapter) - ids.begin();
      const auto last = 999 - (std::find(ids.rbegin(), ids.rend(), adapter) - ids.rbegin());
      CHECK(set.count(first) == 1);
      CHECK(set.count(last) == 1);
    }
  }
  const std::vector<std::int64_t> rows = sample_rows(problem, 200, 3);
  const std::int64_t boundary = problem.plan.token_order[16];
  CHECK(std::find(rows.begin(), rows.end(), boundary) != rows.end());
  CHECK(sample_rows(problem, 200, 3) == rows);
  CHECK(sample_rows(problem, 200, 4) != rows);
}

TEST_CASE("verify: rows on both sides of what 15 and 16 bits count are sampled") {
  Problem problem = linear_problem();
  problem.tokens = 70000;
  std::vector<std::int32_t> ids(70000, 2);
  std::fill_n(ids.begin(), 40, 1);
  problem.plan = make_plan(ids, problem.slots);
  const std::vector<std::int64_t> rows = sample_rows(problem, 64, 1);
  for (const std::int64_t edge : {32768, 65536}) {
    for (const std::int64_t row : {edge - 1, edge}) {
      CAPTURE(row);
      CHECK(std::count(rows.begin(), rows.end(), row) == 1);
      CHECK(std::count(rows.begin(), rows.end(), row + 40) == 1);  // that place in its group
    }
  }
}

TEST_CASE("scan: every lane of h that the op owns is looked at") {
  Problem problem = linear_problem();
  problem.op = Op::kShrink;
  const Tensors tensors = draw_tensors(problem, Fill::kBounded, 1);
  std::vector<float> h(static_cast<std::size_t>(operand_of(problem, Role::kH).elements), 1);
  REQUIRE(problem.dtype[Role::kH] == Dtype::kFp32);
  CHECK_FALSE(scan_all_rows(problem, tensors, h.data()).has_value());
  for (std::int64_t column = 0; column < problem.slices() * problem.max_rank; ++column) {
    for (std::int64_t token = 0; token < problem.tokens; ++token) {
      float& lane = h[static_cast<std::size_t>(output_index(problem, token, column))];
      const float before = std::exchange(lane, std::nanf(""));
      CHECK(scan_all_rows(problem, tensors, h.data()).has_value() ==
            owns_lane(problem, token, column));
      lane = before;
    }
  }
}
