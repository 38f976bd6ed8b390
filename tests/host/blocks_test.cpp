#include "core/bytes.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "support/problems.h"
#include "verify/oracle.h"
#include "verify/verify.h"

using namespace lora_bench;

namespace {

// 4000 rows of 1036 columns: many blocks of each pass over a result. All but y is empty, as nothing
// here launches.
struct TallResult {
  Problem problem = linear_problem();
  Tensors tensors;
  std::vector<std::byte> got;

  TallResult() {
    problem.tokens = 4000;
    problem.y_stride = 1036;
    std::vector<std::int32_t> ids(4000, 0);
    ids[3999] = kNoAdapter;
    problem.plan = make_plan(ids, problem.slots);
    tensors.y.dtype = problem.dtype[Role::kY];
    tensors.y.elements = problem.tokens * problem.y_stride;
    tensors.y.data = zero_bytes(tensors.y.elements * 2);
    got = tensors.y.data;
  }

  void spoil(std::int64_t token, std::int64_t column) {
    const auto element = static_cast<std::size_t>(token * problem.y_stride + column);
    got[2 * element] = got[2 * element + 1] = std::byte{0xFF};  // NaN
  }
};

}  // namespace

TEST_CASE("blocks: every index is worked on once, for any number of threads and any block") {
  for (const int threads : {0, 1, 2, 7}) {
    for (const std::int64_t per_block : {1, 3, 1000, 5000}) {
      CAPTURE(threads);
      CAPTURE(per_block);
      std::vector<std::atomic<int>> times(1000);
      for_blocks(1000, per_block, threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t index = begin; index < end; ++index) {
          ++times[static_cast<std::size_t>(index)];
        }
      });
      CHECK(std::all_of(times.begin(), times.end(), [](const auto& time) { return time == 1; }));
    }
  }
  for_blocks(0, 4, 0, [](std::int64_t, std::int64_t) { FAIL("there is nothing to work on"); });
}

TEST_CASE("blocks: what one block throws is thrown where all were asked for") {
  CHECK_THROWS_WITH_AS(for_blocks(100, 1, 4,
                                  [](std::int64_t begin, std::int64_t) {
                                    if (begin == 63) {
                                      throw std::runtime_error("block 63");
                                    }
                                  }),
                       "block 63", std::runtime_error);
}

TEST_CASE("bytes: zeros, as many as were asked for, small and large") {
  for (const std::int64_t count : {0, 1, 4096, 5 << 20}) {
    const std::vector<std::byte> bytes = zero_bytes(count);
    CHECK(static_cast<std::int64_t>(bytes.size()) == count);
    CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_CASE("bytes: many are copied whole, and one that differs is found wherever it lies") {
  for (const std::int64_t count :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{5} << 20, (std::int64_t{17} << 20) + 3}) {
    CAPTURE(count);
    std::vector<std::byte> from = zero_bytes(count);
    for (std::size_t i = 0; i < from.size(); ++i) {
      from[i] = static_cast<std::byte>(i % 251);
    }
    std::vector<std::byte> to;
    resize_bytes(to, count);
    copy_bytes(to.data(), from.data(), count);
    CHECK(to == from);
    CHECK(same_bytes(to.data(), from.data(), count));
    for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
      if (at >= 0 && at < count) {
        to[static_cast<std::size_t>(at)] ^= std::byte{1};
        CHECK_FALSE(same_bytes(to.data(), from.data(), count));
        to[static_cast<std::size_t>(at)] ^= std::byte{1};
      }
    }
  }
}

TEST_CASE("scan: a fault in any row of a tall result is found, the first of many told first") {
  TallResult clean;
  CHECK_FALSE(scan_all_rows(clean.problem, clean.tensors, clean.got.data()));
  for (const std::int64_t token : {0, 1011, 1012, 2500, 3998}) {
    CAPTURE(token);
    TallResult result;
    result.spoil(token, 5);
    const std::optional<Failure> found =
        scan_all_rows(result.problem, result.tensors, result.got.data());
    REQUIRE(found);
    CHECK(found->wrong == 1);
    REQUIRE(found->first.size() == 1);
    CHECK(found->first.front().token == token);
    CHECK(found->first.front().column == 3);  // slice 0 starts at column 2
  }
  TallResult many;
  for (std::int64_t token = 0; token < 4000; token += 100) {
    many.spoil(token, 4);
  }
  many.spoil(3999, 0);  // a row without adapter
  const std::optional<Failure> found = scan_all_rows(many.problem, many.tensors, many.got.data());
  REQUIRE(found);
  CHECK(found->wrong == 41);
  CHECK(found->compared == 4000 * 1036);
  CHECK(found->what == "NaN in the result, perhaps never written");
  REQUIRE(found->first.size() == kFirstShown);
  for (std::size_t i = 0; i < kFirstShown; ++i) {
    CHECK(found->first[i].token == static_cast<std::int64_t>(i) * 100);
  }
}

TEST_CASE("compare: what is wrong in rows of many blocks is told in the order of the rows") {
  TallResult result;
  result.problem.op = Op::kExpand;
  result.problem.y_stride = 1036;
  result.tensors = draw_tensors(result.problem, Fill::kBounded, 1);
  result.got = result.tensors.y.data;
  std::vector<std::int64_t> rows;
  for (std::int64_t token = 3999; token >= 0; token -= 10) {
    rows.push_back(token);
  }
  Numerics numerics;
  numerics.expand_depth = result.problem.max_rank + 2;
  const Comparison found =
      compare_output(result.problem, result.tensors, numerics, result.got.data(), rows);
  // Nothing was launched: 32 owned columns of the rows with an adapter.
  CHECK(found.compared == 400 * 1036);
  CHECK(found.owned == 399 * 32);
  CHECK(found.wrong > found.owned * 9 / 10);
  REQUIRE(found.wrong_rows.size() == 399);
  CHECK(found.wrong_rows.front() == 9);
  CHECK(found.wrong_rows.back() == 3989);
  CHECK(std::is_sorted(found.wrong_rows.begin(), found.wrong_rows.end()));
  REQUIRE(found.first.size() == kFirstShown);
  CHECK(found.first.front().token == 9);
}

TEST_CASE("blocks: a byte that differs in any of them is seen") {
  std::vector<std::byte> left(std::size_t{9} << 20);
  const std::vector<std::byte> right = left;
  CHECK(same_bytes(left.data(), right.data(), std::ssize(left)));
  for (const std::size_t at : {std::size_t{0}, std::size_t{4} << 20, left.size() - 1}) {
    CAPTURE(at);
    left[at] = std::byte{1};
    CHECK_FALSE(same_bytes(left.data(), right.data(), std::ssize(left)));
    left[at] = std::byte{0};
  }
}

TEST_CASE(
    "blocks: a row with an infinity is found in the last of many rows, one with a NaN is not") {
  TallResult result;
  const auto store_at = [&](std::int64_t token, float value) {
    store(result.problem.dtype[Role::kY], result.got.data(), token * result.problem.y_stride + 5,
          value);
  };
  store_at(17, HUGE_VALF);
  store_at(3000, NAN);
  store_at(3998, -HUGE_VALF);
  store_at(3999, HUGE_VALF);  // nobody's
  CHECK(infinite_rows(result.problem, result.got.data()) == std::vector<std::int64_t>{17, 3998});
}

TEST_CASE("the share of the bound that is told is that of the worst element") {
  Problem problem = linear_problem();
  problem.dtype = OperandDtypes(Dtype::kFp32, problem.dtype[Role::kH]);
  const Tensors tensors = draw_tensors(problem, Fill::kBounded, 1);
  Numerics numerics;
  numerics.unit_roundoff = 0x1p-10;  // far above the spacing of y
  numerics.shrink_depth = problem.in_features;
  numerics.expand_depth = problem.max_rank + 2;
  const std::vector<std::int64_t> rows{0};
  const reference::Rows right = evaluate_rows(problem, tensors, numerics, rows);
  std::vector<std::byte> got = tensors.y.data;
  const auto off_by = [&](std::size_t column, double share) {
    store(problem.dtype[Role::kY], got.data(), static_cast<std::int64_t>(column),
          static_cast<float>(right.expected[column] + share * right.bound[column]));
  };
  for (std::size_t column = 2; column < 34; ++column) {
    off_by(column, 0.01);
  }
  off_by(3, 0.5);
  off_by(9, -0.7);
  off_by(33, 0.6);
  const Comparison found = compare_output(problem, tensors, numerics, got.data(), rows);
  CHECK(found.wrong == 0);
  CHECK(found.bound_share == doctest::Approx(0.7).epsilon(0.01));
}
