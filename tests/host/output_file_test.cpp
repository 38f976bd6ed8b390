#include "report/output_file.h"

#include <doctest/doctest.h>

#include <string>

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
