#include <doctest/doctest.h>

#include <limits>
#include <numeric>

#include "core/dtype.h"
#include "run/case_runner.h"
#include "support/problems.h"

using namespace lora_bench;

namespace {

// The whole y of one launch that added nothing, as the check after timing is asked about it.
struct WholeOutput {
  Problem problem = linear_problem();
  Tensors tensors = draw_tensors(linear_problem(), Fill::kTiming, 1);
  std::vector<std::byte> output = tensors.y.data;

  [[nodiscard]] std::string wrong() const {
    const std::vector<const Tensors*> sets{&tensors};
    std::vector<std::int64_t> all(static_cast<std::size_t>(problem.tokens));
    std::iota(all.begin(), all.end(), 0);
    return check_left({}, {problem, sets, output, 1, {}, all, 0}).wrong;
  }
  void write(std::int64_t token, std::int64_t column, float value) {
    store(problem.dtype[Role::kY], output.data(), token * problem.y_stride + column, value);
  }
};

}  // namespace

TEST_CASE("left by timed launches: a write where nobody owns the element is wrong in the whole") {
  WholeOutput output;
  CHECK(output.wrong() == "");
  output.write(0, 5, 1.0F);  // of slice 0
  CHECK(output.wrong() == "");
  output.write(4, 35, 3.0F);  // past the last slice
  CHECK(output.wrong().starts_with("written where nobody owns the element: 1 of "));
  CHECK(output.wrong().find("token 4, column 35: ") != std::string::npos);
}

TEST_CASE("left by timed launches: a row without adapter that changed is wrong in the whole") {
  WholeOutput output;
  output.write(3, 5, 1.0F);  // column 3 of slice 0
  CHECK(output.wrong().find("token 3, column 3: ") != std::string::npos);
}

TEST_CASE("left by timed launches: an element that is no number is wrong in the whole") {
  WholeOutput output;
  output.write(10, 2, std::numeric_limits<float>::quiet_NaN());
  CHECK(output.wrong().starts_with("NaN in the result, perhaps never written: 1 of "));
}
