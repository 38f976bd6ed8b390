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

TEST_CASE("a tensor file in which two readers could see two things is refused") {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const std::string& header, const std::string& data) {
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size());
    const std::string path = folder.write("t.safetensors", file + header + data);
    try {
      static_cast<void>(read_safetensors(path));
    } catch (const UsageError& error) {
      return std::string(error.what()).substr(path.size() + 2);
    }
    return std::string("accepted");
  };
  const std::string t = R"("t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  const std::string u = R"("u":{"dtype":"U8","shape":[2],"data_offsets":[2,4]})";
  CHECK(refusal("{" + t + "," + u + "}", "abcd") == "accepted");
  CHECK(refusal("{" + t + "," + u + "}", "abcde") == "has 1 bytes behind its last tensor");
  CHECK(refusal("{" + t + "," + t + "}", "ab") == "its header has the key 't' twice");
  CHECK(refusal(R"({"t":{"dtype":"U8","dtype":"I8","shape":[2],"data_offsets":[0,2]}})", "ab") ==
        "its header has the key 'dtype' twice");
  CHECK(refusal("{" + t + R"(,"u":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})", "abcd") ==
        "tensor 'u' begins at byte 1 of the data, where byte 2 is next: tensors overlap");
  CHECK(
      refusal("{" + t + R"(,"u":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})", "abcd") ==
      "tensor 'u' begins at byte 3 of the data, where byte 2 is next: tensors leave bytes between "
      "them");
  CHECK(refusal(R"({"t":{"dtype":"U8","shape":[2.5],"data_offsets":[0,2]}})", "ab") ==
        "'shape' of tensor 't' holds 2.5, no whole number from 0 on");
  CHECK(refusal(R"({"t":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", "ab") ==
        "'shape' of tensor 't' holds -2, no whole number from 0 on");
  CHECK(refusal(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2.5]}})", "ab") ==
        "'data_offsets' of tensor 't' holds 2.5, no whole number from 0 on");
  CHECK(refusal(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,2]}})", "ab") ==
        "tensor 't' is F32 [2] in 2 bytes, which it does not fill");
  CHECK(refusal(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2,2]}})", "ab") ==
        "'shape' of tensor 't' is no list, or 'data_offsets' no list of two");
  CHECK(refusal("[]", "") == "is no safetensors file: its header is no JSON object");
}
