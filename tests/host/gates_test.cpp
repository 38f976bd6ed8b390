#include "compare/compare.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

Results results(std::vector<Row> rows) { return {"r.jsonl", fixed_context(), std::move(rows), {}}; }

}  // namespace

TEST_CASE("repeats of another case are not pooled") {
  Row first = fixed_rows().front();
  first.step.content = "one";
  Row other = first;
  other.id.repetition = 1;
  other.step.content = "another";
  const CompareReport found = compare(results({first}), results({first, other}), {});
  CHECK(found.exit == ExitCode::kInconclusive);
  CHECK(found.rows.front().reason ==
        "new: repeat 1 is another case of the same name: content 'one' and 'another' (the first: "
        "repeat 0)");
}

TEST_CASE("rows that contradict themselves in work, proof or floor get no verdict") {
  const Row base = fixed_rows().front();
  Row edited = base;
  std::string why;
  SUBCASE("weights") {
    edited.step.weight_bytes = 0;
    why = "weight_bytes is 0 beside flops, which need weights";
  }
  SUBCASE("floor") {
    for (auto* figure : {&edited.floor.us, &edited.floor.ratio, &edited.floor.stream_us,
                         &edited.floor.stream_ratio}) {
      figure->reset();
    }
    why = "PASSED with a time and without floor_us";
  }
  SUBCASE("bound") {
    edited.proof.bound_share = 40;
    why = "bound_share is no share from 0 to 1";
  }
  const auto reason = [](const Row& left, const Row& right) {
    const CompareReport report = compare(results({left}), results({right}), {});
    CHECK(report.exit == ExitCode::kInconclusive);
    return report.rows.front().reason;
  };
  CHECK(reason(base, edited) == "new: " + why);
  CHECK(reason(edited, base) == "base: " + why);
}

TEST_CASE("what new was not held to and base was is said, and refused when strict") {
  const auto warned = [](const Results& base, const Results& fresh) {
    CompareOptions strict;
    strict.strict = true;
    const std::vector<std::string> warnings = compare(base, fresh, {}).warnings;
    if (warnings.empty()) {
      CHECK_NOTHROW(static_cast<void>(compare(base, fresh, strict)));
      return std::string();
    }
    CHECK(warnings.size() == 1);
    CHECK_THROWS_WITH_AS(static_cast<void>(compare(base, fresh, strict)),
                         doctest::Contains(warnings.front().c_str()), UsageError);
    return warnings.front();
  };
  Row sampled = fixed_rows().front();
  sampled.step.content = "0123456789abcdef";
  sampled.time.samples_us.assign(9, *sampled.time.us);
  sampled.time.samples = 9;
  Results base = results(repeats_like(sampled));
  for (Row repeat : repeats_like(sampled)) {
    repeat.id.backend = "naive";
    base.rows.push_back(std::move(repeat));
  }
  const auto edited = [&](const auto& edit) {
    Results changed = base;
    for (Row& row : changed.rows) {
      edit(row);
    }
    return changed;
  };
  const Results limited = edited([](Row& row) { row.limits.max_regression = 0.05; });
  const Results looser = edited([](Row& row) { row.limits.max_regression = 0.5; });
  CHECK(warned(base, base).empty());
  CHECK(warned(base, limited) ==
        "new was held to less than base: max_regression is 0.05 in new, none (0.03) in base (16 "
        "rows, the first: qkv/decode=8 on cpu)");
  CHECK(warned(base, edited([](Row& row) { row.limits.max_regression = 0.02; })).empty());
  CHECK(warned(looser, limited).empty());
  CHECK(warned(limited, looser) ==
        "new was held to less than base: max_regression is 0.5 in new, 0.05 in base (16 rows, the "
        "first: qkv/decode=8 on cpu)");
  CHECK(warned(limited, base).find("max_regression is none in new") != std::string::npos);
  const Results less = edited([](Row& row) { row.proof.levels = "bounded+memory"; });
  CHECK(warned(base, less).find("not proved in new: exact (16 rows") != std::string::npos);
  CHECK(warned(less, base).empty());
  const Results whole = edited([](Row& row) { row.proof.rows_checked = 1; });
  const Results part = edited([](Row& row) { row.proof.rows_checked = 0.25; });
  CHECK(warned(whole, part).find("rows_checked is 0.25 in new, 1 in base") != std::string::npos);
  CHECK(warned(part, whole).empty());
  const auto rotated = [&](std::int64_t sets) {
    return edited([=](Row& row) {
      row.time.launches = row.time.rotation_sets = sets;
      row.time.rotated_bytes.reset();
    });
  };
  CHECK(warned(rotated(32), rotated(1)).find("rotation_sets are 1 in new, 32 in base (16 rows") !=
        std::string::npos);
  CHECK(warned(rotated(1), rotated(32)).empty());

  Results gated = base;
  gated.context.argv = {"lora-bench", "run", "decode", "--threshold", "max_floor_ratio=1.5"};
  Results open = base;
  open.context.argv = {"lora-bench", "run", "decode", "--threshold=max_floor_ratio=100"};
  CHECK(warned(gated, open) ==
        "what was asked of rows differs: base '--threshold=max_floor_ratio=1.5', new "
        "'--threshold=max_floor_ratio=100'; run both with the same options to hold them to the "
        "same");
}
