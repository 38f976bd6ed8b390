#include "run/safetensors.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/process.h"
#include "support/safetensors_header.h"

using namespace lora_bench;

TEST_CASE("a safetensors file has its header length, aligned tensors without holes and metadata") {
  const test::TemporaryFolder folder;
  const std::vector<std::uint8_t> bytes{1, 2, 3};
  const std::vector<double> reals{1.5, -2.0};
  write_safetensors(folder.path("t.safetensors"),
                    {{"bytes", "U8", {3}, bytes.data(), 3},
                     {"empty", "F32", {0, 4}, nullptr, 0},
                     {"reals", "F64", {2, 1}, reals.data(), 16}},
                    {{"key", "value"}});
  const std::string file = test::read_file(folder.path("t.safetensors"));
  const nlohmann::json header = test::header_of(file);
  CHECK(header["__metadata__"]["key"] == "value");
  CHECK(header["reals"]["dtype"] == "F64");
  CHECK(header["reals"]["shape"] == nlohmann::json({2, 1}));
  CHECK(header["reals"]["data_offsets"] == nlohmann::json({0, 16}));
  CHECK(header["bytes"]["data_offsets"] == nlohmann::json({16, 19}));
  const nlohmann::json& empty = header["empty"]["data_offsets"];
  CHECK(empty[0] == empty[1]);
  CHECK((file.size() - 19) % 8 == 0);
  CHECK(file.substr(file.size() - 3) == "\x01\x02\x03");
}

TEST_CASE("a tensor file that cannot be written is an error of the environment") {
  CHECK_THROWS_AS(write_safetensors("/nonexistent/folder/t.safetensors", {}, {}), EnvironmentError);
}
