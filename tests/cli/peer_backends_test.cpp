#include <doctest/doctest.h>

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "support/python_door.h"

namespace lora_bench::test {
namespace {

std::vector<std::string> lines_of_peers(const std::string& text) {
  std::vector<std::string> lines;
  const std::regex peer("\n  (peer:[^\n]*)");
  for (std::sregex_iterator at(text.begin(), text.end(), peer), end; at != end; ++at) {
    lines.push_back((*at)[1]);
  }
  return lines;
}

TEST_CASE("a peer is a backend by its name, and proved as ours are") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  for (const char* dtype : {"dtype=bf16", "dtype=fp16", "dtype=fp32"}) {
    const ProcessResult proved = run_with(
        python, {"verify", "smoke", "--set", dtype, "--backends", "peer:numpy", "--quiet"});
    CAPTURE(proved.out);
    CAPTURE(proved.err);
    CHECK(proved.exit_code == 0);
    CHECK(contains(proved.out, "6 PASSED"));
  }
}

TEST_CASE("rows of a peer say whose they are, and where its file lies") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const TemporaryFolder folder;
  const std::string file = folder.path("rows.jsonl");
  const ProcessResult result =
      run_with(python, {"run", "smoke", "--case", "decode1-rank8", "--quiet", "--isolate",
                        "--backends", "cpu,peer:numpy,mine=peer:numpy", "--out", file});
  CAPTURE(result.out);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "3 PASSED"));
  const std::string rows = read_file(file);
  CHECK(contains(rows, R"("backend":"peer:numpy")"));
  CHECK(contains(rows, R"("backend":"mine")"));
  CHECK(contains(rows, "\"plugin\":\"lora_bench/peers/numpy.py sha256:"));
  CHECK(std::regex_search(rows, std::regex("Python 3[0-9.]+, numpy [0-9]")));
}

TEST_CASE("a peer whose packages are not here is skipped with what to install") {
  LORA_BENCH_NEED_PYTHON_DOOR(python);
  const TemporaryFolder folder;
  folder.write("torch.py", "raise ImportError('not in this test')\n");
  ProcessOptions options;
  options.environment = {{"LORA_BENCH_PYTHON", python}, {"PYTHONPATH", folder.folder()}};
  for (const char* peer : {"peer:torch-loop", "peer:torch-bmm", "peer:torch-grouped", "peer:vllm",
                           "peer:sglang-csgmv", "peer:sglang-triton", "peer:sglang-triton-v2",
                           "peer:sglang-uno-cublas", "peer:flashinfer"}) {
    const ProcessResult result = run_tool({"run", "smoke", "--case", "decode8-rank8", "--no-time",
                                           "--quiet", "--backends", std::string("cpu,") + peer},
                                          options);
    CAPTURE(peer);
    CAPTURE(result.out);
    CAPTURE(result.err);
    CHECK(result.exit_code == 4);
    CHECK(contains(result.out, "1 PASSED, 1 SKIPPED"));
    CHECK(contains(result.out, "no module torch (not in this test): pip install torch"));
  }
}

TEST_CASE("tune for an engine that is not here says what to install, and writes nothing") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  folder.write("torch.py", "raise ImportError('not in this test')\n");
  ProcessOptions options;
  options.environment = {{"LORA_BENCH_PYTHON", python}, {"PYTHONPATH", folder.folder()}};
  for (const char* engine : {"vllm", "sglang"}) {
    const ProcessResult result =
        run_tool({"tune", "--for", engine, "smoke", "--out", folder.path("tuned")}, options);
    CAPTURE(result.err);
    CHECK(result.exit_code == 5);
    CHECK(contains(result.err, "no module torch (not in this test): pip install torch"));
    CHECK_FALSE(contains(result.err, "Traceback"));
    CHECK_FALSE(std::filesystem::exists(folder.path("tuned")));
  }
  const ProcessResult unknown = run_tool({"tune", "--for", "punica", "smoke", "--out", "tuned"});
  CHECK(unknown.exit_code == 1);
  const ProcessResult ranked = run_tool(
      {"tune", "--for", "vllm", "smoke", "--rank-by", "alone_us", "--out", folder.path("tuned")});
  CHECK(ranked.exit_code == 1);
  CHECK(contains(ranked.err, "leave out --rank-by and --filter"));
}

TEST_CASE("a peer that is not there is refused with the nearest, before any work") {
  const ProcessResult result =
      run_with("python3", {"run", "smoke", "--backends", "cpu,peer:nummpy"});
  CHECK(result.exit_code == 1);
  CHECK(result.out.empty());
  CHECK(contains(result.err, "unknown peer 'peer:nummpy'; allowed: "));
  CHECK(contains(result.err, "did you mean 'peer:numpy'?"));
}

TEST_CASE("list backends says what each peer is, and why it cannot run here") {
  LORA_BENCH_NEED_NUMPY(python);
  const ProcessResult listed = run_with(python, {"list", "backends"});
  const std::vector<std::string> peers = lines_of_peers(listed.out);
  CHECK(!peers.empty());
  for (const std::string& line : peers) {
    CAPTURE(line);
    CHECK(std::regex_search(line, std::regex("^peer:[a-z0-9-]+ {2,}[A-Za-z].{10}")));
  }
  const ProcessResult none = run_with("/no/such/python", {"list", "backends"});
  CHECK(none.exit_code == 0);
  CHECK(lines_of_peers(none.out).size() == peers.size());
  CHECK(contains(none.out,
                 "not here: no Python here answers; name one by --python or LORA_BENCH_PYTHON"));
}

}  // namespace
}  // namespace lora_bench::test
