#include "report/doubts.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/rows.h"
#include "verify/verify.h"

using namespace lora_bench;

TEST_CASE("rows of one name are of two cases where any column that says which differs") {
  const Row row = fixed_rows().front();
  const std::vector<std::pair<std::string, std::function<void(Row&)>>> edits{
      {"op 'linear' and 'shrink'", [](Row& other) { other.step.op = "shrink"; }},
      {"dtype 'bf16' and 'fp16'", [](Row& other) { other.step.dtype = "fp16"; }},
      {"tokens '8' and '9'", [](Row& other) { other.step.tokens = 9; }},
      {"in_features '4096' and '8192'", [](Row& other) { other.step.in_features = 8192; }},
      {"out_features '4096+1024+1024' and '6144'",
       [](Row& other) { other.step.out_features = "6144"; }},
      {"rank '16' and '32'", [](Row& other) { other.step.rank = 32; }},
      {"ranks '16' and '8,16'", [](Row& other) { other.step.ranks = "8,16"; }},
      {"seed '1' and '2'", [](Row& other) { other.step.seed = 2; }}};
  CHECK(other_case(row, row).empty());
  for (const auto& edit : edits) {
    Row other = row;
    edit.second(other);
    CHECK(other_case(row, other) == "another case of the same name: " + edit.first);
    CHECK(other_work(row, other) == other_case(row, other));
  }
}

TEST_CASE("any levels that are proved, in their order, are no doubt") {
  const std::vector<Level> all{Level::kExact, Level::kBounded, Level::kRelations, Level::kMemory};
  for (unsigned chosen = 1; chosen < 16; ++chosen) {
    Row row = fixed_rows().front();
    row.proof.levels.clear();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((chosen >> i) % 2 == 1) {
        row.proof.levels += (row.proof.levels.empty() ? "" : "+") + std::string(name(all[i]));
      }
    }
    CAPTURE(row.proof.levels);
    CHECK(doubt_about_stored(row).empty());
  }
}
