#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "support/process.h"
#include "support/small_scenario.h"

namespace lora_bench::test {
namespace {

TEST_CASE("exit 5: export with a backend that no device is there for") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  ProcessOptions without_gpu;
  without_gpu.environment["CUDA_VISIBLE_DEVICES"] = "";
  const ProcessResult result =
      run_tool({"export", file, "--backends", "naive", "--to", folder.path("to")}, without_gpu);
  CHECK(result.exit_code == 5);
  CHECK(contains(result.err, "backend naive cannot run here: "));
  CHECK(!std::filesystem::exists(folder.path("to")));
}

TEST_CASE(
    "exit 2: export with a backend that hangs or gives an error, and files of no case of it") {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("small.yaml", small_scenario("sweep: {product: {seed: [1, 2]}}\n"));
  const auto exported = [&](const std::string& backend) {
    return run_tool({"export", file, "--backends", backend, "--to", folder.path("to"), "--set",
                     "verify.timeout_s=0.2"});
  };
  const ProcessResult hung = exported("fake:hang");
  CHECK(hung.exit_code == 2);
  CHECK(contains(hung.err, "HUNG fake:hang on "));
  CHECK(contains(hung.err, ": did not return within 0.2 s\n"));
  CHECK(contains(hung.err, "nothing is launched after that; 1 of 2 cases are missing in "));
  const ProcessResult error = exported("fake:throw");
  CAPTURE(error.err);
  CHECK(error.exit_code == 2);
  CHECK(contains(error.err, "ERROR fake:throw on "));
  CHECK(!std::filesystem::exists(folder.path("to")));
}

TEST_CASE("an interrupted export writes whole files and names the cases that are missing") {
  std::string seeds = "1";
  for (int seed = 2; seed <= 400; ++seed) {
    seeds += ", " + std::to_string(seed);
  }
  for (const int signal : {SIGINT, SIGTERM}) {
    const TemporaryFolder folder;
    const std::string file =
        folder.write("long.yaml", small_scenario("sweep: {product: {seed: [" + seeds + "]}}\n"));
    ProcessOptions options;
    options.signal = signal;
    options.signal_when_said = ".json";
    const ProcessResult cut =
        run_tool({"export", file, "--backends", "cpu", "--to", folder.path("to")}, options);
    CHECK(cut.exit_code == 4);
    CHECK(contains(cut.err, " of 400 cases are missing in "));
    std::size_t written = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path("to"))) {
      if (entry.path().extension() == ".safetensors") {
        const std::string id = entry.path().stem().string();
        CHECK(std::filesystem::exists(folder.path("to/" + id + ".json")));
        CHECK(!contains(cut.err + ",", " " + id + ","));
        ++written;
      }
    }
    CHECK(written >= 1);
    CHECK(contains(cut.err, std::to_string(400 - written) + " of 400"));
  }
}

}  // namespace
}  // namespace lora_bench::test
