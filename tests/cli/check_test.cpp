#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/need_numpy.h"
#include "support/process.h"
#include "support/safetensors_header.h"
#include "support/small_scenario.h"

namespace lora_bench::test {
namespace {

const std::string kSource = LORA_BENCH_SOURCE_DIR;

std::string file_of(nlohmann::json header, const std::string& data) {
  const std::string text = header.dump();
  std::string length(8, '\0');
  const std::uint64_t bytes = text.size();
  std::memcpy(length.data(), &bytes, length.size());
  return length + text + data;
}

// One tensor of an exported file as a file of its own.
struct Extracted {
  nlohmann::json entry;
  std::string data;
  [[nodiscard]] std::string file() const {
    nlohmann::json placed = entry;
    placed["data_offsets"] = {0, data.size()};
    return file_of({{"output", placed}}, data);
  }
};

Extracted extract(const std::string& exported, const std::string& name) {
  const nlohmann::json entry = header_of(exported)[name];
  const auto end = data_begin(exported) + entry["data_offsets"][1].get<std::size_t>();
  const std::size_t begin = place_of(exported, name);
  return {entry, exported.substr(begin, end - begin)};
}

std::string export_case(const TemporaryFolder& folder, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"export", "smoke/decode8-rank8", "--backends", "cpu",
                                     "--to",   folder.folder()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ProcessResult result = run_tool(arguments);
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return folder.path("decode8-rank8.safetensors");
}

ProcessResult check(const std::string& exported, const std::string& output,
                    const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"check", exported, "--output", output};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_tool(arguments);
}

TEST_CASE("check proves what a backend wrote, for every op") {
  const TemporaryFolder folder;
  for (const std::string op : {"linear", "shrink", "expand", "embedding"}) {
    const std::string exported = export_case(folder, {"--set", "op=" + op});
    const ProcessResult result = check(exported, exported);
    CAPTURE(op);
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(contains(result.out, "PASSED decode8-rank8: "));
  }
}

TEST_CASE("check proves a case of every layout, padding and form of a plan") {
  for (const std::string set :
       {"adapters.placing=stacked", "adapters.placing=packed", "adapters.a_stride=8192",
        "adapters.b_stride=100", "layer.h_stride=1000", "adapters.padding=zeros",
        "plan.form=kernel", "plan.form=chunked"}) {
    const TemporaryFolder folder;
    const std::string exported = export_case(
        folder, {"--set", set, "--set", "measure=false", "--set", "adapters.max_rank=16"});
    const ProcessResult result = check(exported, exported);
    CAPTURE(set);
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(contains(result.out, "PASSED decode8-rank8: "));
  }
}

TEST_CASE("check proves an h that is quantised again, and one that is declared to be kept") {
  const TemporaryFolder folder, of_kept;
  const std::vector<std::string> eight_bits{"--set", "weights.dtype=e4m3", "--set",
                                            "activations.dtype=e4m3"};
  std::vector<std::string> quantised = eight_bits;
  quantised.insert(quantised.end(),
                   {"--set", "intermediate=e4m3", "--set", "quantiser.power_of_two=true"});
  const std::string exported = export_case(folder, quantised);
  const std::string kept = export_case(of_kept, eight_bits);
  CHECK(check(exported, exported).exit_code == 0);
  const ProcessResult undone = check(exported, kept);
  CHECK(undone.exit_code == 2);
  CHECK(contains(undone.out, "h-misquantised"));
  CHECK(check(exported, kept, {"--intermediate", "fp32"}).exit_code == 0);
  CHECK(check(kept, exported).exit_code == 2);
}

TEST_CASE("check proves both products of experts, and names a factor that was forgotten") {
  const TemporaryFolder folder, of_plain;
  for (const std::string part : {"w13", "w2"}) {
    const std::vector<std::string> experts{
        "--set", "experts.count=4", "--set", "experts.top_k=2", "--set", "experts.part=" + part};
    const std::string exported = export_case(folder, experts);
    const ProcessResult result = check(exported, exported);
    CAPTURE(part);
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    std::vector<std::string> unweighted = experts;
    unweighted.insert(unweighted.end(), {"--set", "experts.weight_at=none"});
    const ProcessResult other = check(exported, export_case(of_plain, unweighted));
    CHECK(other.exit_code == (part == "w13" ? 0 : 2));
    CHECK(contains(other.out, "factor-misread: the factors of rows are left out") ==
          (part == "w2"));
    const std::string of_one =
        export_case(of_plain, {"--set", "experts.count=1", "--set", "experts.part=" + part});
    CHECK(check(of_one, of_one).exit_code == 0);
  }
}

TEST_CASE("one element that is doubled is not taken for rounded partial sums") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  const Extracted output = extract(read_file(exported), "output");
  int tried = 0;
  for (std::size_t element = 0; element < 64; ++element) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, output.data.data() + 2 * element, 2);
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
    if (std::fabs(value) < 0.01F || std::fabs(value) > 0.1F) {
      continue;
    }
    ++tried;
    Extracted doubled = output;
    bits = static_cast<std::uint16_t>(bits + 0x80);  // the exponent of bf16
    std::memcpy(doubled.data.data() + 2 * element, &bits, 2);
    const ProcessResult result = check(exported, folder.write("doubled", doubled.file()));
    CAPTURE(value);
    CHECK(result.exit_code == 2);
    CHECK_FALSE(contains(result.out, "low-precision-partials"));
  }
  CHECK(tried > 0);
}

TEST_CASE("export says how many files of an earlier one it replaced") {
  const TemporaryFolder folder;
  const std::vector<std::string> arguments{"export", "smoke/decode8-rank8", "--backends", "cpu",
                                           "--to",   folder.folder()};
  CHECK_FALSE(contains(run_tool(arguments).err, "replaced"));
  CHECK(contains(run_tool(arguments).err, "replaced 2 files in " + folder.folder()));
}

TEST_CASE("export refuses cases that would share a file before it writes one") {
  const TemporaryFolder folder;
  const std::string file = folder.write(
      "names.yaml", small_scenario("cases: [{name: 'a=b'}, {name: 'a:b'}, {name: 'a-b'}]\n"));
  const auto exported = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"export", file, "--backends", "cpu", "--to", folder.path("to")});
    return run_tool(more);
  };
  const ProcessResult all = exported({});
  CHECK(all.exit_code == 1);
  CHECK(contains(all.err, "cases 'a=b' and 'a:b' would both be written to a_b.safetensors; name"));
  CHECK(read_file(folder.path("to/a_b.json")).empty());
  CHECK(exported({"--case", "a=b", "--case", "a-b"}).exit_code == 0);
}

TEST_CASE("a tensor that is named must be in the file, also when another is alone there") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  const Extracted output = extract(read_file(exported), "output");
  nlohmann::json placed = output.entry;
  placed["data_offsets"] = {0, output.data.size()};
  const std::string alone = folder.write("alone", file_of({{"mine", placed}}, output.data));
  CHECK(check(exported, alone).exit_code == 0);
  CHECK(check(exported, alone, {"--tensor", "mine"}).exit_code == 0);
  for (const std::string name : {"yours", "output"}) {
    const ProcessResult result = check(exported, alone, {"--tensor", name});
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "there is no tensor '" + name + "'; name one with --tensor: mine"));
  }
}

TEST_CASE("check tells what is wrong with a result and where") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  Extracted output = extract(read_file(exported), "output");
  const Extracted before = extract(read_file(exported), "y_before");

  const ProcessResult idle = check(exported, folder.write("idle", before.file()));
  CHECK(idle.exit_code == 2);
  CHECK(contains(idle.out, "FAILED decode8-rank8"));
  CHECK(contains(idle.out, "token "));

  output.data[0] = static_cast<char>(output.data[0] ^ 0x40);
  const ProcessResult one = check(exported, folder.write("one", output.file()));
  CHECK(one.exit_code == 2);
  CHECK(contains(one.out, "bounded: 1 of "));
}

TEST_CASE("check holds a result to what is declared") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder, {"--set", "op=shrink"});
  const std::vector<std::string> exact{"--unit-roundoff", "1e-15", "--shrink-depth", "0",
                                       "--expand-depth",  "0"};
  CHECK(check(exported, exported).exit_code == 0);
  // fp32 sums over 512 products, stored in fp32, held to the error of fp64.
  CHECK(check(exported, exported, exact).exit_code == 2);
}

TEST_CASE("check allows an h in a narrower type than the case has, where that is declared") {
  const TemporaryFolder folder;
  const std::string exported = folder.path("decode8-rank8.safetensors");
  const ProcessResult made = run_tool({"export", "smoke/decode8-rank8", "--backends",
                                       "mutant:h-rounded-to-bf16", "--to", folder.folder()});
  REQUIRE_MESSAGE(made.exit_code == 0, made.err);
  const ProcessResult strict = check(exported, exported);
  CHECK(strict.exit_code == 2);
  CHECK(contains(strict.out, "low-precision-intermediate"));
  CHECK(check(exported, exported, {"--intermediate", "bf16"}).exit_code == 0);
  CHECK(check(exported, exported, {"--casts-h"}).exit_code == 0);  // to bf16, as B is
}

TEST_CASE("check allows a bias that is added by a rounding of its own, where that is declared") {
  const TemporaryFolder folder;
  const std::string exported = folder.path("decode8-rank8.safetensors");
  const ProcessResult made =
      run_tool({"export", "smoke/decode8-rank8", "--backends", "mutant:bias-rounded-apart", "--set",
                "adapters.bias=true", "--to", folder.folder()});
  REQUIRE_MESSAGE(made.exit_code == 0, made.err);
  CHECK(check(exported, exported).exit_code == 2);
  CHECK(check(exported, exported, {"--bias-added", "before"}).exit_code == 0);
  CHECK(check(exported, exported, {"--bias-added", "later"}).exit_code == 1);
}

TEST_CASE("check allows the terms of shards that are summed in 16 bits, where that is declared") {
  const TemporaryFolder folder;
  const std::string exported = folder.path("decode8-rank8.safetensors");
  const ProcessResult made = run_tool({"export", "smoke/decode8-rank8", "--backends",
                                       "mutant:bf16-running-sum", "--to", folder.folder()});
  REQUIRE_MESSAGE(made.exit_code == 0, made.err);
  CHECK(check(exported, exported, {"--intermediate", "bf16"}).exit_code == 2);
  CHECK(check(exported, exported, {"--intermediate", "bf16", "--terms", "16"}).exit_code == 0);
  CHECK(check(exported, exported, {"--terms", "0"}).exit_code == 1);
}

namespace {

// What a layer leaves that goes on from its base product into what adapters add: `base` is y before
// the op, off by `of_spacing` times the distance of bf16 numbers, as F64.
std::string fused_result(const std::string& exported, double of_spacing, double error) {
  const Extracted y = extract(exported, "y_before"), expected = extract(exported, "expected"),
                  owned = extract(exported, "owned");
  std::string before, output;
  for (std::size_t i = 0; i < owned.data.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, y.data.data() + i * sizeof bits, sizeof bits);
    const double rounded = std::bit_cast<float>(std::uint32_t{bits} << 16U);
    double right = 0;
    std::memcpy(&right, expected.data.data() + i * sizeof right, sizeof right);
    const double off = owned.data[i] != 0 ? std::ldexp(1.0, std::ilogb(rounded) - 7) : 0;
    const double base = rounded + of_spacing * off;
    const double sum = right + (of_spacing + error) * off;
    before.append(reinterpret_cast<const char*>(&base), sizeof base);
    output.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  }
  const nlohmann::json shape = y.entry["shape"];
  return file_of(
      {{"before", {{"dtype", "F64"}, {"shape", shape}, {"data_offsets", {0, before.size()}}}},
       {"output",
        {{"dtype", "F64"},
         {"shape", shape},
         {"data_offsets", {before.size(), before.size() + output.size()}}}}},
      before + output);
}

// An exported case of op quantise, and what it expects as tensors of a result.
struct QuantiseResult {
  Extracted codes, scales;
  [[nodiscard]] std::string file(bool with_scales = true) const {
    nlohmann::json header{{"q", codes.entry}};
    header["q"]["data_offsets"] = {0, codes.data.size()};
    if (with_scales) {
      header["q_scale"] = scales.entry;
      header["q_scale"]["data_offsets"] = {codes.data.size(),
                                           codes.data.size() + scales.data.size()};
    }
    return file_of(header, codes.data + (with_scales ? scales.data : ""));
  }
};

std::string export_quantise(const TemporaryFolder& folder, const std::string& rules) {
  const std::string scenario = folder.write(
      "q.yaml", "op: quantise\nlayer: {in: 33, x_stride: 40}\nbatch.decode: 5\n" + rules);
  const ProcessResult result =
      run_tool({"export", scenario, "--backends", "cpu", "--to", folder.folder()});
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return folder.path("q.safetensors");
}

}  // namespace

TEST_CASE(
    "check allows a base that was not rounded before delta was added, where that is declared") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  const std::string fused = folder.write("fused", fused_result(read_file(exported), 0.45, 0));
  CHECK(check(exported, fused, {"--before", "before"}).exit_code == 2);
  CHECK(check(exported, fused, {"--before", "before", "--rounds-once"}).exit_code == 0);
  // What a rounding cannot take is as wrong as ever.
  const std::string wrong = folder.write("wrong", fused_result(read_file(exported), 0.45, 4));
  CHECK(check(exported, wrong, {"--before", "before", "--rounds-once"}).exit_code == 2);
  const ProcessResult both = check(exported, fused, {"--rounds-once", "--rounds-delta"});
  CHECK(both.exit_code == 1);
  CHECK(contains(both.err, "exclude each other"));
}

TEST_CASE("check takes no looser declaration than a plugin may make") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  const std::vector<std::pair<std::vector<std::string>, const char*>> beyond{
      {{"--expand-depth", "2000000000"}, "declared expand_depth = 2000000000; allowed: 0 to "},
      {{"--shrink-depth", "2000000000"}, "declared shrink_depth = 2000000000; allowed: 0 to "},
      {{"--partial", "bf16", "--partials", "1000000"}, "declared partials = 1000000; allowed: 1 "},
      {{"--shrink-depth", "8", "--terms", "1000000"}, "declared terms = 1000000; allowed: 1 "}};
  for (const auto& [options, message] : beyond) {
    const ProcessResult result = check(exported, exported, options);
    CAPTURE(result.err);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, message));
  }
}

TEST_CASE("check proves nothing where what is declared forgives that nothing was done") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  const std::string before =
      folder.write("before", extract(read_file(exported), "y_before").file());
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--unit-roundoff", "0.00390625"},
        std::vector<std::string>{"--partial", "bf16", "--partials", "512"}}) {
    const ProcessResult result = check(exported, before, options);
    CAPTURE(result.out);
    CHECK(result.exit_code == 4);
    CHECK(contains(result.out, "MISTRUSTED decode8-rank8"));
    CHECK(contains(result.out, "doing nothing would pass in 100 % of the elements"));
  }
}

TEST_CASE("check prints its verdict as a row of a results file, of the case that was exported") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  const nlohmann::json passed = nlohmann::json::parse(check(exported, exported, {"--json"}).out);
  CHECK(passed["kind"] == "row");
  CHECK(passed["scenario"] == "smoke");
  CHECK(passed["case"] == "decode8-rank8");
  CHECK(passed["status"] == "PASSED");
  CHECK(passed["tokens"] == 8);
  CHECK(passed["content"].get<std::string>().size() == 16);
  const std::string idle = folder.write("idle", extract(read_file(exported), "y_before").file());
  const ProcessResult result = check(exported, idle, {"--json"});
  CHECK(result.exit_code == 2);
  const nlohmann::json failed = nlohmann::json::parse(result.out);
  CHECK(failed["status"] == "FAILED");
  CHECK(failed["hypothesis"] == "zero-delta");
  CHECK(contains(failed["first_wrong"].get<std::string>(), "token "));
}

TEST_CASE("check refuses tensors of another case than their metadata tells") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  std::string edited = read_file(exported);
  const std::size_t ids = place_of(edited, "adapter_of_token");
  std::int32_t first = 0;
  std::memcpy(&first, edited.data() + ids, sizeof first);
  first = first == 0 ? -1 : 0;
  std::memcpy(edited.data() + ids, &first, sizeof first);
  const ProcessResult result = check(folder.write("edited", edited), exported);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "the tensors are not those of the case"));
}

TEST_CASE("check refuses a row that tells another case, or another figure") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  const std::string whole = read_file(exported);
  const nlohmann::json header = header_of(whole);
  for (const char* key : {"case", "op", "dtype", "tokens", "bytes", "content"}) {
    CAPTURE(key);
    nlohmann::json edited = header;
    auto row = nlohmann::json::parse(header["__metadata__"]["row"].get<std::string>());
    REQUIRE(row.contains(key));
    if (row[key].is_string()) {
      row[key] = row[key].get<std::string>() + "x";
    } else {
      row[key] = row[key].get<std::int64_t>() + 1;
    }
    edited["__metadata__"]["row"] = row.dump();
    const ProcessResult result =
        check(folder.write("edited", file_of(edited, whole.substr(data_begin(whole)))), exported);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "'row' of its metadata was changed"));
  }
}

TEST_CASE("check proves nothing of what was added to no number") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  std::string edited = read_file(exported);
  std::vector<std::int32_t> ids(8);
  std::memcpy(ids.data(), edited.data() + place_of(edited, "adapter_of_token"),
              8 * sizeof(std::int32_t));
  const auto token = static_cast<std::size_t>(
      std::find_if(ids.begin(), ids.end(), [](std::int32_t id) { return id >= 0; }) - ids.begin());
  const std::size_t columns = header_of(edited)["y_before"]["shape"][1].get<std::size_t>();
  const std::uint16_t infinity = 0x7F80;
  std::memcpy(edited.data() + place_of(edited, "y_before") + 2 * columns * token, &infinity, 2);
  const ProcessResult result =
      check(exported, folder.write("edited", edited), {"--before", "y_before"});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "y before the op is inf at token " + std::to_string(token)));
}

TEST_CASE("check wants every row of a case once, and says what share they are") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  const std::string whole = read_file(exported);
  const std::size_t at = place_of(whole, "rows");
  const auto with_rows = [&](const std::vector<std::int64_t>& rows) {
    std::string edited = whole;
    std::memcpy(edited.data() + at, rows.data(), rows.size() * sizeof(std::int64_t));
    return folder.write("edited", edited);
  };
  CHECK(contains(check(exported, exported).out, " 100 % of the rows in full"));
  for (const std::vector<std::int64_t>& rows :
       {std::vector<std::int64_t>(8, 3), {1, 0, 2, 3, 4, 5, 6, 7}}) {
    const ProcessResult result = check(with_rows(rows), exported);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "'rows' must ascend, each row once"));
  }
}

TEST_CASE("files that do not fit together are a usage error that says what is wrong") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  const std::string whole = read_file(exported);
  const std::vector<std::pair<std::string, const char*>> wrong{
      {folder.path("missing"), "cannot be read"},
      {folder.folder(), "is a folder"},
      {folder.write("empty", ""), "is no safetensors file"},
      {folder.write("cut", whole.substr(0, whole.size() / 2)), "cut short"},
      {folder.write("text", std::string("\x02\0\0\0\0\0\0\0[]", 10)),
       "its header is no JSON object"},
      {folder.write("more", whole + "x"), "has 1 bytes behind its last tensor"},
      {folder.write("x", extract(whole, "x").file()), "the result is BF16 ["},
      {folder.write("ids", extract(whole, "rank").file()), "the result is I64 ["},
  };
  for (const auto& [file, message] : wrong) {
    const ProcessResult result = check(exported, file);
    CAPTURE(result.err);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, message));
  }
  const ProcessResult swapped = check(folder.path("x"), exported);
  CHECK(swapped.exit_code == 1);
  CHECK(contains(swapped.err, "a case is a file that `lora-bench export` wrote"));
}

TEST_CASE("NumPy's result of an exported case is proved") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  const ProcessResult made = run_process(
      {python, kSource + "/scripts/produce_output.py", exported, folder.path("got.safetensors")});
  REQUIRE_MESSAGE(made.exit_code == 0, made.err);
  const ProcessResult result = check(exported, folder.path("got.safetensors"));
  CHECK_MESSAGE(result.exit_code == 0, result.out, result.err);
}

TEST_CASE("docs/export.md shows the producer as the script has it") {
  const std::string docs = read_file(kSource + "/docs/export.md");
  const std::size_t begin = docs.rfind("```python\n") + 10;
  const std::string shown = docs.substr(begin, docs.find("```", begin) - begin);
  CHECK(shown.size() > 100);
  CHECK(contains(read_file(kSource + "/scripts/produce_output.py"), shown));
}

}  // namespace

TEST_CASE("check refuses sizes that are no whole numbers, and a plan of other ids") {
  const TemporaryFolder folder;
  const std::string exported = export_case(folder);
  const std::string whole = read_file(exported);
  const nlohmann::json header = header_of(whole);
  const std::string data = whole.substr(data_begin(whole));
  for (const auto& entry : std::vector<std::pair<std::string, std::string>>{
           {"tokens", "8.9"}, {"slots", "true"}, {"widths", "[768.5]"}, {"max_rank", "1e300"}}) {
    const auto& key = entry.first;
    const auto& value = entry.second;
    CAPTURE(key);
    nlohmann::json edited = header;
    REQUIRE(edited["__metadata__"].contains(key));
    edited["__metadata__"][key] = value;
    const ProcessResult result = check(folder.write("edited", file_of(edited, data)), exported);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "'" + key + "' of its metadata is "));
  }
  for (const auto& entry : std::vector<std::pair<std::string, std::string>>{
           {"own_rank", "[1]"},
           {"layout", "[]"},
           {"layout", R"({"placing": "apart"})"},
           {"layout", R"({"placing": "packed", "x_column_stride": 0})"},
           {"layout", R"({"placing": "packed", "x_column_stride": 1, "a_stride": 1})"}}) {
    CAPTURE(entry.second);
    nlohmann::json edited = header;
    edited["__metadata__"][entry.first] = entry.second;
    const ProcessResult result = check(folder.write("edited", file_of(edited, data)), exported);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "'" + entry.first + "' of its metadata "));
  }
  for (const std::string name : {"token_order", "active_ids", "group_starts"}) {
    std::string edited = whole;
    const std::size_t at = place_of(whole, name);
    edited[at] = static_cast<char>(edited[at] ^ 1);
    const ProcessResult result = check(folder.write("edited", edited), exported);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "'" + name + "' does not follow from 'adapter_of_token'"));
  }
}

TEST_CASE("check proves codes and scales of an exported x bit for bit, and names the fault") {
  const TemporaryFolder folder;
  const std::string exported = export_quantise(folder, "activations: {scale: block, group: 8}\n");
  const std::string file = read_file(exported);
  QuantiseResult result{extract(file, "expected_q"), extract(file, "expected_q_scale")};
  const ProcessResult right = check(exported, folder.write("got.safetensors", result.file()));
  CHECK(right.exit_code == 0);
  CHECK(right.out == "PASSED q: 190 codes and scales, bit for bit\n");
  result.codes.entry["dtype"] = "U8";
  CHECK(check(exported, folder.write("bytes.safetensors", result.file())).exit_code == 0);

  QuantiseResult wrong = result;
  wrong.codes.data[40] = static_cast<char>(wrong.codes.data[40] ^ 1);
  const ProcessResult code = check(exported, folder.write("got.safetensors", wrong.file()));
  CHECK(code.exit_code == 2);
  CHECK(contains(code.out, "q[1, 7]: expected 0x"));
  CHECK(contains(code.out, "1 of 190 wrong"));
  wrong = result;
  for (std::size_t at = 0; at < wrong.scales.data.size(); at += sizeof(float)) {
    float scale = 0;
    std::memcpy(&scale, wrong.scales.data.data() + at, sizeof(scale));
    scale = 1 / scale;
    std::memcpy(wrong.scales.data.data() + at, &scale, sizeof(scale));
  }
  const ProcessResult inverted = check(exported, folder.write("got.safetensors", wrong.file()));
  CHECK(inverted.exit_code == 2);
  CHECK(contains(inverted.out, "scale-inverted"));
}

TEST_CASE("check asks of codes no scales that were given, and of no rows nothing") {
  const TemporaryFolder folder;
  const std::string exported = export_quantise(folder, "quantiser.scales: given\n");
  const QuantiseResult result{extract(read_file(exported), "expected_q"), {}};
  const ProcessResult right = check(exported, folder.write("got.safetensors", result.file(false)));
  CHECK(right.out == "PASSED q: 165 codes and scales, bit for bit\n");
  const std::string none = export_quantise(folder, "seed: 2\n");
  const ProcessResult lacking = check(none, folder.write("got.safetensors", result.file(false)));
  CHECK(lacking.exit_code == 1);
  CHECK(contains(lacking.err, "there is no tensor 'q_scale'"));
}

TEST_CASE("check refuses what does not fit a case of op quantise, and every case of op metadata") {
  const TemporaryFolder folder;
  const std::string exported = export_quantise(folder, "");
  const std::string file = read_file(exported);
  QuantiseResult result{extract(file, "expected_q"), extract(file, "expected_q_scale")};
  const std::string got = folder.write("got.safetensors", result.file());
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--tensor", "q"}, {"--before", "q"}, {"--rounds-delta"}}) {
    const ProcessResult declared = check(exported, got, more);
    CHECK(declared.exit_code == 1);
    CHECK(contains(declared.err, "is compared bit for bit, so nothing is declared of it"));
  }
  nlohmann::json header = header_of(file);
  header["__metadata__"]["convert"] = "multiply";
  const ProcessResult changed = check(
      folder.write("edited.safetensors", file_of(header, file.substr(data_begin(file)))), got);
  CHECK(changed.exit_code == 1);
  CHECK(contains(changed.err, "its metadata was changed"));
  result.codes.entry["shape"] = {33, 5};
  const ProcessResult turned = check(exported, folder.write("got.safetensors", result.file()));
  CHECK(turned.exit_code == 1);
  CHECK(contains(turned.err, "tensor 'q' is F8_E4M3 [33, 5], must be F8_E4M3 (or U8) [5, 33]"));

  const ProcessResult written =
      run_tool({"export", "metadata/rows64-kernel", "--backends", "cpu", "--to", folder.folder()});
  REQUIRE_MESSAGE(written.exit_code == 0, written.err);
  const ProcessResult metadata = check(folder.path("rows64-kernel.safetensors"), got);
  CHECK(metadata.exit_code == 1);
  CHECK(contains(metadata.err, "`check` reads no case of op metadata"));
}

TEST_CASE("docs/export.md names every tensor and key that export of op quantise writes") {
  const std::string docs = read_file(kSource + "/docs/export.md");
  const std::string section = docs.substr(docs.find("### Of op quantise"));
  const TemporaryFolder folder;
  for (const char* rules : {"", "quantiser.scales: given\n"}) {
    const nlohmann::json header = header_of(read_file(export_quantise(folder, rules)));
    for (const nlohmann::json* names : {&header, &header["__metadata__"]}) {
      for (const auto& [name, entry] : names->items()) {
        CAPTURE(name);
        CHECK((name == "__metadata__" ||
               contains(section.substr(0, section.find("## The check")), "`" + name + "`")));
      }
    }
  }
}

}  // namespace lora_bench::test
