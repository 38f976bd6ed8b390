#include "report/output_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/process.h"

using lora_bench::OutputFile;

TEST_CASE("what is written once a file was shortened follows what was left") {
  for (const bool append : {false, true}) {
    CAPTURE(append);
    const lora_bench::test::TemporaryFolder scratch;
    const std::string path = scratch.path("rows.txt");
    OutputFile file(path, append);
    file.write("first\nsecond\n");
    file.truncate(6);
    file.write("third\n");
    file.truncate(0);
    file.write("whole\n");
    file.write("again\n");
    file.close();
    CHECK(lora_bench::test::read_file(path) == "whole\nagain\n");
  }
}

TEST_CASE("a file that is being written is refused to others, and keeps what it holds") {
  const lora_bench::test::TemporaryFolder scratch;
  const std::string path = scratch.path("rows.txt");
  {
    OutputFile first(path, false);
    first.write("first\n");
    for (const bool append : {false, true}) {
      CAPTURE(append);
      CHECK_THROWS_WITH_AS(OutputFile(path, append),
                           doctest::Contains("another lora-bench is writing it"),
                           lora_bench::EnvironmentError);
    }
    CHECK(lora_bench::test::read_file(path) == "first\n");
  }
  OutputFile(path, true).write("second\n");
  CHECK(lora_bench::test::read_file(path) == "first\nsecond\n");
  OutputFile(path, false).write("third\n");
  CHECK(lora_bench::test::read_file(path) == "third\n");
}

TEST_CASE("two may write where nothing is kept, and a pipe that nobody reads is an error at once") {
  const OutputFile one("/dev/null", false);
  CHECK_NOTHROW(OutputFile("/dev/null", false));
  const lora_bench::test::TemporaryFolder scratch;
  REQUIRE(::mkfifo(scratch.path("pipe.txt").c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(OutputFile(scratch.path("pipe.txt"), false),
                       doctest::Contains("cannot open"), lora_bench::EnvironmentError);
}

TEST_CASE("what somebody else writes into a result file is told, wherever it lies") {
  struct Foreign {
    std::string what;
    std::function<void(const std::string& path)> write;
  };
  const std::vector<Foreign> writers{
      {"behind", [](const std::string& path) { std::ofstream(path, std::ios::app) << "{}\n"; }},
      {"over it",
       [](const std::string& path) {
         std::fstream(path, std::ios::in | std::ios::out).write("F", 1);
       }},
      {"nothing left", [](const std::string& path) { std::ofstream empties(path); }}};
  for (const Foreign& foreign : writers) {
    for (const bool append : {false, true}) {
      CAPTURE(foreign.what);
      CAPTURE(append);
      const lora_bench::test::TemporaryFolder scratch;
      const std::string path = scratch.path("rows.txt");
      OutputFile file(path, append);
      file.write("first\n");
      file.write("second\n");
      foreign.write(path);
      const bool told_at_once = foreign.what != "over it";
      if (told_at_once) {
        CHECK_THROWS_WITH_AS(file.write("third\n"), doctest::Contains("did not write there"),
                             lora_bench::EnvironmentError);
      }
      CHECK_THROWS_WITH_AS(file.close(), doctest::Contains("rows.txt' holds what"),
                           lora_bench::EnvironmentError);
    }
  }
}
