#include <doctest/doctest.h>

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "include/lora_bench_backend.h"
#include "support/python_door.h"

namespace lora_bench::test {
namespace {

const std::string kExample =
    std::string(LORA_BENCH_SOURCE_DIR) + "/examples/python/numpy_linear.py";
const std::string kEightBits =
    std::string(LORA_BENCH_SOURCE_DIR) + "/examples/python/numpy_eight_bits.py";

// The example with one line of it replaced.
std::string changed(const TemporaryFolder& folder, const std::string& line, const std::string& by) {
  std::string text = read_file(kExample);
  replace(text, line, by);
  return folder.write("mine.py", text);
}

// Runs the example with one line replaced on the first case of smoke.
ProcessResult run_changed(const std::string& python, const std::string& line, const std::string& by,
                          const std::vector<std::string>& more = {"--no-time"}) {
  const TemporaryFolder folder;
  std::vector<std::string> words{"run",
                                 "smoke",
                                 "--case",
                                 "decode8-rank8",
                                 "--quiet",
                                 "--backends",
                                 "cpu," + changed(folder, line, by)};
  words.insert(words.end(), more.begin(), more.end());
  return run_with(python, words);
}

TEST_CASE("a kernel in Python is proved at every level, and timed") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  for (const char* dtype : {"dtype=bf16", "dtype=fp16", "dtype=fp32"}) {
    const ProcessResult proved =
        run_with(python, {"verify", "smoke", "--set", dtype, "--backends", kExample, "--quiet"});
    CAPTURE(proved.out);
    CAPTURE(proved.err);
    CHECK(proved.exit_code == 0);
    CHECK(contains(proved.out, "6 PASSED"));
  }
  const ProcessResult timed = run_with(
      python, {"run", "smoke", "--case", "decode1-rank8", "--backends", kExample, "--quiet"});
  CAPTURE(timed.out);
  CHECK(std::regex_search(timed.out, std::regex("numpy_linear +PASSED +1 +1 +8 +[0-9.]+")));
}

TEST_CASE("a kernel in Python passes cases that nobody thought of") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const TemporaryFolder folder;
  const ProcessResult result = run_with(python, {"fuzz", "--cases", "100", "--seed", "3", "--quiet",
                                                 "--backends", kExample, "--out", folder.folder()});
  CAPTURE(result.out);
  CHECK(result.exit_code == 0);
}

TEST_CASE("a kernel in Python is given weights of eight bits with their scales") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const std::string scenario =
      std::string(LORA_BENCH_SOURCE_DIR) + "/scenarios/verify/eight-bits.yaml";
  const auto run = [&](const std::string& read_b) {
    const TemporaryFolder folder;
    std::string text = read_file(kExample);
    replace(text, "intermediate=\"fp32\"",
            "intermediate=\"fp32\", takes=[\"scaled_weights\"], batch_invariant=False");
    replace(text, "memory_of, numbers, stored", "memory_of, numbers, stored, weights_of");
    replace(text, "numbers(memory_of(step.a[i])[adapter, :rank])",
            "weights_of(step, \"a\", i, adapter)[:rank]");
    replace(text, "numbers(memory_of(step.b[i])[adapter, :, :rank])", read_b);
    std::vector<std::string> words{"verify", scenario, "--quiet", "--backends",
                                   folder.write("mine.py", text)};
    for (const char* name : {"tensor-e5m2", "channel", "block", "block-of-one-row"}) {
      words.insert(words.end(), {"--case", name});
    }
    return run_with(python, words);
  };
  const ProcessResult right = run("weights_of(step, \"b\", i, adapter)[:, :rank]");
  CAPTURE(right.out);
  CAPTURE(right.err);
  CHECK(right.exit_code == 0);
  CHECK(contains(right.out, "2 PASSED"));
  const ProcessResult wrong = run("weights_of(step, \"b\", i, adapter)[:, :rank] / 2");
  CHECK(wrong.exit_code == 2);
}

TEST_CASE("a kernel in Python is given an x of eight bits with its scales") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const std::string scenario =
      std::string(LORA_BENCH_SOURCE_DIR) + "/scenarios/verify/eight-bits-activations.yaml";
  const auto run = [&](const std::string& read_x) {
    const TemporaryFolder folder;
    std::string text = read_file(kExample);
    replace(text, "intermediate=\"fp32\"",
            "intermediate=\"fp32\", takes=[\"scaled_weights\", \"scaled_activations\", "
            "\"own_inputs\"], batch_invariant=False");
    replace(text, "memory_of, numbers, stored", "memory_of, numbers, stored, weights_of, x_of");
    replace(text, "        inputs = numbers(x[rows, :step.in_features])\n", "");
    replace(text, "(inputs @ a.T)", "(" + read_x + " @ a.T)");
    replace(text, "numbers(memory_of(step.a[i])[adapter, :rank])",
            "weights_of(step, \"a\", i, adapter)[:rank]");
    replace(text, "numbers(memory_of(step.b[i])[adapter, :, :rank])",
            "weights_of(step, \"b\", i, adapter)[:, :rank]");
    std::vector<std::string> words{"verify", scenario, "--quiet", "--backends",
                                   folder.write("mine.py", text)};
    for (const char* name : {"tensor-e5m2", "token", "block-of-another-length", "own-inputs"}) {
      words.insert(words.end(), {"--case", name});
    }
    return run_with(python, words);
  };
  const ProcessResult right = run("x_of(step, i)[rows]");
  CAPTURE(right.out);
  CAPTURE(right.err);
  CHECK(right.exit_code == 0);
  CHECK(contains(right.err, "4 PASSED"));
  const ProcessResult wrong = run("x_of(step, i)[np.roll(rows, 1)]");
  CHECK(wrong.exit_code == 2);
}

TEST_CASE("a kernel in Python keeps an h that it is asked to quantise, and says so") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const auto run = [&](const std::string& declares) {
    const TemporaryFolder folder;
    std::string text = read_file(kEightBits);
    replace(text, "intermediate=kept", declares);
    replace(text, "if step.quantises_h:", "if False:");
    return run_with(
        python, {"run", "verify/eight-bits-hidden", "--no-time", "--quiet", "--case", "token",
                 "--columns", "case,numerics,status", "--backends", folder.write("mine.py", text)});
  };
  const ProcessResult kept = run("intermediate=\"fp32\"");
  CAPTURE(kept.out);
  CAPTURE(kept.err);
  CHECK(kept.exit_code == 0);
  CHECK(contains(kept.out, "h kept in fp32, not quantised"));
  const ProcessResult silent = run("intermediate=kept");
  CHECK(silent.exit_code == 2);
  CHECK(contains(silent.out, "h-misquantised"));
}

TEST_CASE("the example of eight bits is right in every case that it takes, by every rule for h") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const ProcessResult right =
      run_with(python, {"verify", "verify/eight-bits-hidden", "verify/eight-bits-activations",
                        "--backends", kEightBits, "--quiet"});
  CAPTURE(right.out);
  CAPTURE(right.err);
  CHECK(right.exit_code == 0);
  CHECK(contains(right.err, "44 PASSED, 26 SKIPPED"));
  CHECK_FALSE(contains(right.err, "Warning"));
  std::string text = read_file(kEightBits);
  replace(text, "on_host.quantised(step, h)", "on_host.quantised(step, h * 1.02) / 1.02");
  const TemporaryFolder folder;
  const ProcessResult wrong =
      run_with(python, {"verify", "verify/eight-bits-hidden", "--case", "powers-of-two", "--quiet",
                        "--backends", folder.write("mine.py", text)});
  CAPTURE(wrong.out);
  CHECK(wrong.exit_code == 2);
}

TEST_CASE("the example of experts is right in every case of op linear, and its faults are named") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const std::string example =
      std::string(LORA_BENCH_SOURCE_DIR) + "/examples/python/numpy_experts.py";
  const ProcessResult right =
      run_with(python, {"verify", "verify/experts", "--backends", example, "--quiet"});
  CAPTURE(right.out);
  CAPTURE(right.err);
  CHECK(right.exit_code == 0);
  CHECK_FALSE(contains(right.err, "FAILED"));
  CHECK(contains(right.err, "30 PASSED"));
  const auto wrong = [&](const std::string& line, const std::string& by, const char* case_id) {
    const TemporaryFolder folder;
    std::string text = read_file(example);
    replace(text, line, by);
    const ProcessResult result =
        run_with(python, {"verify", "verify/experts", "--case", case_id, "--quiet", "--backends",
                          folder.write("mine.py", text)});
    CHECK(result.exit_code == 2);
    return result.out;
  };
  CHECK(contains(wrong("tokens[pairs]", "(tokens[pairs] + 1) % step.x_rows", "w13-uniform"),
                 "x-of-other-token"));
  CHECK(contains(wrong(" * factor[pairs, None]", "", "w2-uniform"), "factor-misread"));
  CHECK(contains(
      wrong("(step.a[i])[slot, :rank]", "(step.a[i])[slot // 8 * 8, :rank]", "w13-no-base-rows"),
      ", expert "));
}

TEST_CASE("a kernel in Python is given an h of eight bits with its scales") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const std::string scenario =
      std::string(LORA_BENCH_SOURCE_DIR) + "/scenarios/verify/eight-bits-activations.yaml";
  const auto run = [&](const std::string& read_h, const std::string& takes = "scaled_h") {
    const TemporaryFolder folder;
    std::string text = read_file(kExample);
    replace(text, "intermediate=\"fp32\"",
            "takes=[\"scaled_weights\", \"" + takes + "\"], batch_invariant=False");
    replace(text, "memory_of, numbers, stored", "memory_of, numbers, stored, weights_of, h_of");
    replace(text, "def linear(step)", "def expand(step)");
    replace(text, "x, y, scale = memory_of(step.x), memory_of", "y, scale = memory_of");
    replace(text, "        inputs = numbers(x[rows, :step.in_features])\n", "");
    replace(text, "            a = numbers(memory_of(step.a[i])[adapter, :rank])\n", "");
    replace(text, "(inputs @ a.T)", read_h);
    replace(text, " * scale[adapter]", "");
    replace(text, "numbers(memory_of(step.b[i])[adapter, :, :rank])",
            "weights_of(step, \"b\", i, adapter)[:, :rank]");
    std::vector<std::string> words{"verify", scenario, "--quiet", "--backends",
                                   folder.write("mine.py", text)};
    for (const char* name :
         {"expand-tensor", "expand-token-e5m2-bias", "expand-block", "expand-block-usual"}) {
      words.insert(words.end(), {"--case", name});
    }
    return run_with(python, words);
  };
  const ProcessResult right = run("h_of(step, i)[rows, :rank]");
  CAPTURE(right.out);
  CAPTURE(right.err);
  CHECK(right.exit_code == 0);
  CHECK(contains(right.err, "4 PASSED"));
  const ProcessResult wrong = run("h_of(step, 0)[rows, :rank]");
  CHECK(wrong.exit_code == 2);
  // Who has heard of an x of eight bits alone is never given such an h.
  const ProcessResult older = run("h_of(step, i)[rows, :rank]", "scaled_activations");
  CAPTURE(older.out);
  CHECK(older.exit_code == 4);
  CHECK(contains(older.out, "LORA_BENCH_TAKES_SCALED_H, in Python \"scaled_h\""));
}

TEST_CASE("a wrong kernel in Python is told its fault") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  struct Wrong {
    const char* line;
    const char* by;
    const char* told;
  };
  for (const Wrong& wrong : {
           Wrong{"* scale[adapter]", "", "scale"},
           Wrong{"numbers(memory_of(step.a[i])[adapter, :rank])",
                 "numbers(memory_of(step.a[i])[(adapter + 1) % step.slots, :rank])", "adapter"},
           Wrong{"token_order[first:last]", "token_order[first:last - 1]", "nothing was added"},
           Wrong{"            y[rows, columns] = stored(delta, y.dtype)\n", "",
                 "nothing was added"},
           Wrong{"            begin += width\n",
                 "            begin += width\n            x[rows] = 0\n", "x"},
       }) {
    const ProcessResult result = run_changed(python, wrong.line, wrong.by);
    CAPTURE(wrong.by);
    CAPTURE(result.out);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.out, "FAILED"));
    CHECK(contains(result.out, wrong.told));
  }
}

TEST_CASE("what a kernel in Python does wrong beside its numbers costs its own row") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const std::string line = "    x, y, scale =";
  const ProcessResult throws =
      run_changed(python, line, "    raise RuntimeError('no luck')\n" + line);
  CAPTURE(throws.out);
  CHECK(throws.exit_code == 2);
  CHECK(contains(throws.out, "RuntimeError: no luck"));
  CHECK(contains(throws.out, "mine.py:"));
  CHECK(contains(throws.out, "in linear"));
  CHECK(contains(throws.out, "1 PASSED"));
  const ProcessResult undeclared =
      run_changed(python, "intermediate=\"fp32\"", "intermediate=lambda problem: problem.nothing");
  CAPTURE(undeclared.out);
  CHECK(undeclared.exit_code == 2);
  CHECK(contains(undeclared.out, "numerics: AttributeError"));
  const ProcessResult hangs = run_changed(python, line, "    while True: pass\n" + line,
                                          {"--no-time", "--set", "verify.timeout_s=0.5"});
  CHECK(hangs.exit_code == 2);
  CHECK(contains(hangs.out, "HUNG"));
  const ProcessResult ends =
      run_changed(python, line, "    import os; os._exit(0)\n" + line, {"--no-time", "--isolate"});
  CAPTURE(ends.out);
  CHECK(ends.exit_code == 2);
  CHECK(contains(ends.out, "ended the program: exit code 0 in launch"));
  const ProcessResult prints =
      run_changed(python, line, "    print('a line of the kernel')\n" + line);
  CHECK(prints.exit_code == 0);
  CHECK(!contains(prints.out, "a line of the kernel"));
  CHECK(contains(prints.err, "a line of the kernel"));
}

// The example, which reads A of the first slice from a copy that it makes when it is to prepare
// weights; `made` is the body of what makes it.
std::string preparing(const std::string& python, const std::string& made) {
  const TemporaryFolder folder;
  std::string text = read_file(kExample);
  replace(text, "@lora_bench.backend(device=\"cpu\",",
          "def bytes_of(problem):\n"
          "    size = 4 if problem.a_dtype == 'fp32' else 2\n"
          "    return problem.slots * problem.max_rank * problem.in_features * size\n\n"
          "def make(step):\n"
          "    as_bytes = memory_of(step.a[0]).view(np.uint8).reshape(-1)\n" +
              made +
              "\n@lora_bench.backend(device=\"cpu\", prepare=make, prepared_bytes=bytes_of,");
  replace(text, "memory_of(step.a[i])[adapter, :rank]",
          "(memory_of(step.a[i]) if i else np.asarray(step.prepared).view("
          "memory_of(step.a[0]).dtype).reshape(step.a[0].shape))[adapter, :rank]");
  const ProcessResult result =
      run_with(python, {"run", "smoke", "--case", "decode8-rank8", "--relations", "--backends",
                        folder.write("mine.py", text), "--quiet"});
  CHECK(result.exit_code == (contains(result.out, "1 PASSED") ? 0 : 2));
  return result.out;
}

TEST_CASE("a kernel in Python that wants its weights in another layout makes it out of the time") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  CHECK(contains(preparing(python, "    np.asarray(step.prepared)[:] = as_bytes\n"), "1 PASSED"));
  const std::string once = preparing(python,
                                     "    if not hasattr(step, 'made'):\n"
                                     "        np.asarray(step.prepared)[:] = as_bytes\n"
                                     "    step.made = True\n");
  CAPTURE(once);
  CHECK(contains(once, "FAILED"));
  CHECK(contains(once, "1 FAILED"));
}

TEST_CASE("a row tells the libraries of a kernel in Python and how long its first call took") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const TemporaryFolder folder;
  const std::string file = folder.path("rows.jsonl");
  const ProcessResult result = run_with(python, {"run", "smoke", "--case", "decode1-rank8",
                                                 "--backends", kExample, "--quiet", "--out", file});
  CHECK(result.exit_code == 0);
  const std::string rows = read_file(file);
  CAPTURE(rows);
  CHECK(std::regex_search(
      rows,
      std::regex("\"plugin\":\"[^\"]*sha256:[0-9a-f]{64}, Python 3[0-9.]+, numpy [0-9.]+\"")));
  CHECK(std::regex_search(rows, std::regex("\"first_call_ms\":[0-9.]+")));
}

TEST_CASE("metadata made in Python is proved, timed and told its fault") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const std::string example =
      std::string(LORA_BENCH_SOURCE_DIR) + "/examples/python/numpy_metadata.py";
  const ProcessResult proved =
      run_with(python, {"verify", "metadata", "--backends", example, "--quiet"});
  CAPTURE(proved.out);
  CHECK(proved.exit_code == 0);
  CHECK(contains(proved.out, "4 PASSED, 16 SKIPPED"));
  const ProcessResult timed = run_with(
      python, {"run", "metadata", "--case", "rows64-kernel", "--backends", example, "--quiet"});
  CHECK(std::regex_search(timed.out, std::regex("numpy_metadata +PASSED +64 +20 +16 +[0-9.]+")));
  std::string text = read_file(example);
  const std::string line = "kind=\"stable\"";
  replace(text, line, "kind=\"stable\")[::-1");
  replace(text, "[::-1)", "[::-1]");
  const TemporaryFolder folder;
  const ProcessResult wrong =
      run_with(python, {"run", "metadata", "--case", "rows64-kernel", "--no-time", "--quiet",
                        "--backends", folder.write("mine.py", text)});
  CAPTURE(wrong.out);
  CHECK(wrong.exit_code == 2);
  CHECK(contains(wrong.out, "token_order"));
}

TEST_CASE("a quantiser in Python is proved by every rule, timed and told its fault") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const std::string example =
      std::string(LORA_BENCH_SOURCE_DIR) + "/examples/python/numpy_quantise.py";
  const ProcessResult proved =
      run_with(python, {"verify", "verify/quantise", "--backends", example, "--quiet"});
  CAPTURE(proved.out);
  CHECK(proved.exit_code == 0);
  CHECK(contains(proved.out, "33 PASSED"));
  const ProcessResult timed = run_with(python, {"run", "quantise", "--case", "token-decode1-in4096",
                                                "--backends", "cpu," + example, "--quiet"});
  CHECK(contains(timed.out, "2 PASSED"));
  std::string text = read_file(example);
  replace(text, "x / each", "x * (np.float32(1) / each)");
  const TemporaryFolder folder;
  const ProcessResult wrong =
      run_with(python, {"verify", "verify/quantise", "--case", "rows300", "--quiet", "--backends",
                        folder.write("mine.py", text)});
  CAPTURE(wrong.out);
  CHECK(wrong.exit_code == 2);
  CHECK(contains(wrong.out, "multiplies-by-inverse"));
}

TEST_CASE("two files find each its own siblings, and a row has the hashes of both") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const TemporaryFolder right, wrong;
  right.write("helper.py", "FACTOR = 1\n");
  wrong.write("helper.py", "FACTOR = 2\n");
  std::string text = read_file(kExample);
  replace(text, "import numpy as np\n", "import numpy as np\nfrom helper import FACTOR\n");
  replace(text, "* scale[adapter]", "* scale[adapter] * FACTOR * late()");
  text += "\n\ndef late():\n    import helper\n    return 1 if helper.FACTOR == FACTOR else 3\n";
  const std::string one = right.write("mine.py", text);
  const std::string other = wrong.write("mine.py", text);
  const std::string file = right.path("rows.jsonl");
  for (const std::string& backends : {"a=" + one + ",z=" + other, "z=" + one + ",a=" + other}) {
    const ProcessResult result =
        run_with(python, {"run", "smoke", "--case", "decode8-rank8", "--no-time", "--quiet",
                          "--backends", backends, "--out", file});
    CAPTURE(result.out);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.out, "1 PASSED, 1 FAILED"));
    CHECK(contains(result.out, backends.starts_with("a=" + one) ? "on z" : "on a"));
  }
  CHECK(contains(read_file(file), "helper.py sha256:"));
}

TEST_CASE("a question that a file of Python answers wrongly is an ERROR, at the line of the file") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  for (const char* answer : {"True", "problem.no_such_field", "np.broadcast_to(np.ones(3), 2)"}) {
    const ProcessResult result =
        run_changed(python, "device=\"cpu\",",
                    std::string("device=\"cpu\", supports=lambda problem: ") + answer + ",");
    CAPTURE(result.out);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.out, "supports: "));
    CHECK(contains(result.out, "1 PASSED, 1 ERROR"));
    CHECK(contains(result.out, answer == std::string("True") ? "supports of linear returned True"
                                                             : "mine.py:"));
  }
  const ProcessResult taken =
      run_changed(python, "device=\"cpu\",", "device=\"cpu\", takes=\"reads_padding\",");
  CHECK(taken.exit_code == 1);
  CHECK(contains(taken.err, "takes is a list: takes=['reads_padding']"));
}

// A file that mends itself while its first turn runs, and asks to end in the last.
TEST_CASE("a watched file is proved again when it has changed, and so is what it imports") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const TemporaryFolder folder;
  const std::string factor = folder.write("factor.py", "FACTOR = 2\n");
  std::string text = read_file(kExample);
  replace(text, "import numpy as np\n",
          "import numpy as np\nimport os, signal\nfrom factor import FACTOR\n");
  replace(text, "* scale[adapter]", "* scale[adapter] * FACTOR");
  replace(text, "    x, y, scale =",
          "    if FACTOR == 1: os.kill(os.getppid(), signal.SIGINT)\n"
          "    with open('" +
              factor +
              "', 'w') as file: file.write('FACTOR = 1 # mended\\n')\n"
              "    x, y, scale =");
  const ProcessResult result =
      run_with(python, {"run", "smoke", "--case", "decode8-rank8", "--no-time", "--quiet",
                        "--watch", "--backends", folder.write("mine.py", text)});
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(contains(result.err, "waiting for a change of "));
  const std::size_t failed = result.out.find("FAILED smoke decode8-rank8 on mine");
  const std::size_t table = result.out.find("1 FAILED");
  const std::size_t passed = result.out.find("1 PASSED");
  CHECK(failed < table);
  CHECK(table < passed);
  CHECK(passed != std::string::npos);
}

// It has the mended file in its place before it begins to hang.
TEST_CASE("a watched file that hangs while it is imported is tried again when it has changed") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const TemporaryFolder folder;
  std::string text = read_file(kExample);
  replace(text, "    x, y, scale =",
          "    import os, signal\n    os.kill(os.getppid(), signal.SIGINT)\n    x, y, scale =");
  const std::string mended = folder.write("mended.txt", text);
  const std::string file = folder.write(
      "mine.py", "import os\nos.replace('" + mended + "', __file__)\nwhile True: pass\n");
  const ProcessResult result =
      run_with(python, {"run", "smoke", "--case", "decode8-rank8", "--no-time", "--quiet", "--set",
                        "verify.timeout_s=1", "--watch", "--backends", file});
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(contains(result.err, "loading did not return within 1 s"));
  CHECK(contains(result.out, "1 PASSED"));
}

TEST_CASE("what cannot be watched is refused before any work") {
  const ProcessResult nothing = run_tool({"run", "smoke", "--watch", "--backends", "cpu"});
  CHECK(nothing.exit_code == 1);
  CHECK(contains(nothing.err, "--watch waits for the file of a plugin to change"));
  const ProcessResult stored =
      run_tool({"run", "smoke", "--watch", "--backends", kExample, "--out", "rows.jsonl"});
  CHECK(stored.exit_code == 1);
  CHECK(contains(stored.err, "leave them out"));
}

TEST_CASE("memory that a kernel in Python keeps is seen") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const ProcessResult leaks =
      run_changed(python, "import numpy as np\n",
                  "import numpy as np\nkept = []\nmemory = np.asarray\n"
                  "np.asarray = lambda it: (kept.append(bytearray(1 << 16)), memory(it))[1]\n",
                  {"--no-time", "--relations"});
  CAPTURE(leaks.out);
  CHECK(leaks.exit_code == 2);
  CHECK(contains(leaks.out, "memory"));
}

TEST_CASE(
    "small objects that a kernel in Python keeps are seen, and such as are freed later are not") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const auto run_with_each = [&](const char* statement) {
    return run_changed(python,
                       "    x, y, scale =", std::string("    ") + statement + "\n    x, y, scale =",
                       {"--no-time", "--relations"});
  };
  const ProcessResult leaks =
      run_changed(python, "import numpy as np\n",
                  "import numpy as np\nkept = []\nmemory = np.asarray\n"
                  "np.asarray = lambda it: (kept.append(object()), memory(it))[1]\n",
                  {"--no-time", "--relations"});
  CAPTURE(leaks.out);
  CHECK(leaks.exit_code == 2);
  CHECK(contains(leaks.out, "objects of Python for good"));
  CHECK(contains(leaks.out, "memory-kept"));
  // Objects that hold each other wait for the collector of garbage.
  const ProcessResult garbage =
      run_with_each("ring = []; ring.append(ring); ring.append(object())");
  CAPTURE(garbage.out);
  CHECK(garbage.exit_code == 0);
}

TEST_CASE("a file of Python that cannot be used is refused before any work, with what to do") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  struct Unusable {
    const char* line;
    const char* by;
    const char* told;
  };
  for (const Unusable& one : {
           Unusable{"import numpy as np\n", "import no_such_module\n",
                    "No module named 'no_such_module'"},
           Unusable{"@lora_bench.backend(device=\"cpu\", intermediate=\"fp32\")\n", "",
                    "no function has the decorator"},
           Unusable{"intermediate=\"fp32\"", "intermediat=\"fp32\"", "declares no 'intermediat'"},
           Unusable{"device=\"cpu\"", "device=\"gpu\"", "allowed: cpu, cuda"},
           Unusable{"def linear(step)", "def forward(step)", "name the function after"},
       }) {
    const ProcessResult result = run_changed(python, one.line, one.by);
    CAPTURE(one.by);
    CAPTURE(result.err);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "backend mine: "));
    CHECK(contains(result.err, one.told));
  }
  const ProcessResult nobody =
      run_with("/no/such/python", {"run", "smoke", "--no-time", "--backends", kExample});
  CHECK(nobody.exit_code == 1);
  CHECK(contains(nobody.err, "LORA_BENCH_PYTHON"));
  const ProcessResult nothing =
      run_with(python, {"run", "smoke", "--no-time", "--backends", "./no_such_file.py"});
  CHECK(nothing.exit_code == 1);
  CHECK(contains(nothing.err, "there is no such file"));
}

TEST_CASE("an option names the interpreter, whatever the environment says") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const std::vector<std::string> rest{"run",        "smoke",         "--no-time",
                                      "--case",     "decode8-rank8", "--quiet",
                                      "--backends", kExample,        "--isolate"};
  std::vector<std::string> words{"--python", python};
  words.insert(words.end(), rest.begin(), rest.end());
  const ProcessResult named = run_with("/no/such/python", words);
  CAPTURE(named.err);
  CHECK(named.exit_code == 0);
  CHECK(contains(named.out, "1 PASSED"));
  words[1] = "/another/python";
  const ProcessResult nobody = run_with(python, words);
  CHECK(nobody.exit_code == 1);
  CHECK(contains(nobody.err, "'/another/python' does not answer"));
}

TEST_CASE("a program in a virtual environment takes the interpreter of that") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("bin"));
  const std::string program = folder.path("bin/lora-bench");
  std::filesystem::copy_file(tool_path(), program);
  const std::string beside = folder.write("bin/python3", "#!/bin/sh\nexit 3\n");
  std::filesystem::permissions(beside, std::filesystem::perms::owner_all);
  ProcessOptions options;
  options.environment["LORA_BENCH_SCENARIOS"] = LORA_BENCH_SOURCE_DIR "/scenarios";
  std::vector<std::string> command{"env",         "-u", "LORA_BENCH_PYTHON", "-u",
                                   "VIRTUAL_ENV", "-u", "CONDA_PREFIX"};
  const std::vector<std::string> run{program, "run", "smoke", "--no-time", "--backends", kExample};
  command.insert(command.end(), run.begin(), run.end());
  const std::string told = "'" + std::filesystem::canonical(beside).string() + "' does not answer";
  CHECK(!contains(run_process(command, options).err, told));  // no such environment yet
  static_cast<void>(folder.write("pyvenv.cfg", ""));
  const ProcessResult result = run_process(command, options);
  CAPTURE(result.err);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, told));
  options.environment["VIRTUAL_ENV"] = folder.folder();
  command.erase(command.begin() + 3, command.begin() + 5);  // -u VIRTUAL_ENV
  CHECK(!contains(run_process(command, options).err, told));
}

TEST_CASE("isolated rows of a kernel in Python are those of one process") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const TemporaryFolder folder;
  const auto rows = [&](const std::vector<std::string>& more) {
    const std::string file = folder.path("rows.csv");
    std::vector<std::string> words{"run",        "smoke",           "--no-time", "--quiet",
                                   "--backends", "cpu," + kExample, "--out",     file};
    words.insert(words.end(), more.begin(), more.end());
    CHECK(run_with(python, words).exit_code == 0);
    return std::regex_replace(read_file(file), std::regex(",[0-9.e-]+,lora-bench"), ",lora-bench");
  };
  CHECK(rows({"--isolate"}) == rows({}));
}

// Read from the header at run time: a struct that is laid out otherwise would have another size.
TEST_CASE("the structs that Python sees are those of the interface") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const ProcessResult result =
      run_changed(python, "    x, y, scale =",
                  "    from lora_bench import _interface as it\n    import ctypes\n"
                  "    assert step.problem.struct_size == ctypes.sizeof(it.Problem)\n"
                  "    assert ctypes.sizeof(it.Operands) == " +
                      std::to_string(sizeof(lora_bench_operands)) +
                      "\n"
                      "    assert it.TAKES['other_layouts'] == 1 << 8 and it.ABI == 2\n"
                      "    x, y, scale =");
  CAPTURE(result.out);
  CHECK(result.exit_code == 0);
}

}  // namespace
}  // namespace lora_bench::test
