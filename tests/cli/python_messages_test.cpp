#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "device/facts.h"
#include "support/python_door.h"

namespace lora_bench::test {
namespace {

const std::string kExample =
    std::string(LORA_BENCH_SOURCE_DIR) + "/examples/python/numpy_linear.py";

// The example with one line of it replaced, on the first case of smoke.
ProcessResult run_example(const std::string& python, const std::string& line,
                          const std::string& by) {
  const TemporaryFolder folder;
  std::string text = read_file(kExample);
  replace(text, line, by);
  return run_with(python, {"run", "smoke", "--case", "decode8-rank8", "--no-time", "--quiet",
                           "--backends", folder.write("mine.py", text)});
}

TEST_CASE("a value that a kernel in Python declares is refused with its line when it is loaded") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  struct Wrong {
    const char* declared;
    const char* told;
  };
  for (const Wrong& wrong :
       {Wrong{"intermediate=\"bf61\"", "intermediate is 'bf61'; allowed: fp32, bf16, fp16"},
        Wrong{"deterministic=\"no\"", "deterministic is 'no'; say True or False"},
        Wrong{"summation=3", "summation is 3; it is a sentence"},
        Wrong{"partials=\"4\"", "partials is '4'; it is a whole number"},
        Wrong{"unit_roundoff=\"2**-24\"", "unit_roundoff is '2**-24'; it is a number"},
        Wrong{"bias_added=\"later\"",
              "bias_added is 'later'; allowed: with_delta, before, after"}}) {
    const ProcessResult result = run_example(python, "intermediate=\"fp32\"", wrong.declared);
    CAPTURE(result.err);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, wrong.told));
    CHECK(contains(result.err, "mine.py:"));
  }
  const ProcessResult numbers = run_example(
      python, "intermediate=\"fp32\"",
      "intermediate=\"fp32\", partials=np.int64(1), unit_roundoff=2**-24, deterministic=1");
  CHECK(numbers.exit_code == 0);
  const ProcessResult later =
      run_example(python, "intermediate=\"fp32\"", "deterministic=lambda problem: \"no\"");
  CAPTURE(later.out);
  CHECK(later.exit_code == 2);
  CHECK(contains(later.out, "numerics: TypeError: deterministic is 'no'"));
}

TEST_CASE("two functions for one op are told with the places of both") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const ProcessResult result =
      run_example(python, "@lora_bench.backend(device=\"cpu\", intermediate=\"fp32\")\n",
                  "@lora_bench.backend(device=\"cpu\")\ndef linear(step): pass\n\n"
                  "@lora_bench.backend(device=\"cpu\", intermediate=\"fp32\")\n");
  CAPTURE(result.err);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "2 functions are for the op linear ("));
  const std::size_t first = result.err.find("mine.py:", result.err.find("for the op linear"));
  CHECK(result.err.find("mine.py:", first + 1) != std::string::npos);
}

TEST_CASE("a module that is not found is told with the interpreter that was asked") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const ProcessResult result =
      run_example(python, "import numpy as np\n", "import no_such_module\n");
  CAPTURE(result.err);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "No module named 'no_such_module'"));
  CHECK(contains(result.err, "python"));
  CHECK(contains(result.err, "was asked, --python or LORA_BENCH_PYTHON names another"));
}

TEST_CASE("a kernel in Python for a GPU that is not there is told how it is for a host") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  if (why_no_gpu().empty()) {
    return;
  }
  const ProcessResult result = run_example(python, "device=\"cpu\", ", "");
  CAPTURE(result.out);
  CHECK(contains(result.out, "SKIPPED"));
  CHECK(contains(result.out, "declares it: @lora_bench.backend(device=\"cpu\")"));
}

TEST_CASE("NumPy that is given a tensor of bf16 is told what to take") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const ProcessResult wrong =
      run_example(python, "    x, y, scale =", "    np.asarray(step.x)\n    x, y, scale =");
  CAPTURE(wrong.out);
  CHECK(wrong.exit_code == 2);
  CHECK(contains(wrong.out, "NumPy has no bf16"));
  CHECK(contains(wrong.out, "tensor.bits"));
  CHECK(contains(wrong.out, "mine.py:"));
  const ProcessResult right = run_example(
      python, "    x, y, scale =",
      "    assert np.asarray(step.x.bits).dtype == np.uint16\n"
      "    assert step.rank.__array__().tolist() == list(step.problem.rank)\n"
      "    assert np.asarray(step.rank, dtype=np.float64).dtype == np.float64\n    x, y, scale =");
  CAPTURE(right.out);
  CHECK(right.exit_code == 0);
}

}  // namespace
}  // namespace lora_bench::test
