#include <doctest/doctest.h>

#include "support/plain_backend.h"
#include "support/problems.h"
#include "verify/oracle.h"
#include "verify/step.h"
#include "verify/verify.h"

using namespace lora_bench;

namespace {

// Every owned element is the outermost value that the bound reaches on one side, or a spacing more.
Comparison compare_at_the_edge(Dtype dtype, int side, int spacings_beyond) {
  Problem problem = linear_problem();
  problem.dtype = OperandDtypes(dtype, problem.dtype[Role::kH]);
  const Tensors tensors = draw_tensors(problem, Fill::kBounded, 1);
  const Numerics numerics = PlainBackend().numerics(problem);
  const std::vector<std::int64_t> all = all_rows(problem);
  const reference::Rows right = evaluate_rows(problem, tensors, numerics, all);
  std::vector<std::byte> got = tensors.y.data;
  for (std::size_t at = 0; at < right.expected.size(); ++at) {
    if (right.owned[at] == 0) {
      continue;
    }
    const auto row = static_cast<std::int64_t>(at) / right.columns;
    const auto column = static_cast<std::int64_t>(at) % right.columns;
    const double edge =
        reference::round_to(number_of(dtype), right.expected[at] + side * right.bound[at]);
    const double beyond = side * spacings_beyond * reference::spacing(number_of(dtype), edge);
    store(dtype, got.data(), output_index(problem, row, column), static_cast<float>(edge + beyond));
  }
  return compare_output(problem, tensors, numerics, got.data(), all);
}

}  // namespace

TEST_CASE("bounded: what the bound reaches is right, the next value of the dtype is wrong") {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
    for (const int side : {-1, 1}) {
      CAPTURE(name(dtype));
      CAPTURE(side);
      CHECK(compare_at_the_edge(dtype, side, 0).wrong == 0);
      const Comparison beyond = compare_at_the_edge(dtype, side, 1);
      CHECK(beyond.owned > 200);
      CHECK(beyond.wrong == beyond.owned);
    }
  }
}
