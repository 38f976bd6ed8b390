#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "support/process.h"

namespace lora_bench::test {
namespace {

const char* const kLayers =
    "name: layers\n"
    "op: layer\n"
    "layer: {in: 64, out: [64, 16, 0], kind: merged_qkv, kv_heads: 2, bias: true}\n"
    "batch: {decode: 6}\n"
    "adapters: {slots: 3, rank: [8, 3, 0]}\n"
    "no_adapter: 20%\n"
    "measure: {cache: hot, warmup_ms: 1, min_time_ms: 1, max_time_ms: 30, min_samples: 6, "
    "max_samples: 8}\n"
    "sweep: {product: {layer.tp: [1, 4], layer.fully_sharded: [false, true]}}\n";

}  // namespace

TEST_CASE("a layer is proved and timed, each row with its base, shards and tax") {
  const TemporaryFolder folder;
  const std::string out = folder.path("rows.jsonl");
  const ProcessResult result = run_tool(
      {"run", folder.write("layers.yaml", kLayers), "--backends", "cpu", "--quiet", "--out", out});
  INFO(result.out, result.err);
  std::istringstream lines(read_file(out));
  std::int64_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (!row.contains("case")) {
      continue;
    }
    ++rows;
    // A clock that others disturb may make a row INVALID, which is no matter of layers.
    const std::string status = row["status"];
    CHECK((status == "PASSED" || status == "INVALID"));
    CHECK(row["levels"] == "bounded+memory");
    CHECK(row["op"] == "layer");
    CHECK(row["layer_kind"] == "merged_qkv");
    CHECK(row["comm"] == "none");
    CHECK(row["tp"].get<int>() * 2 > row["shard"].get<int>());
    CHECK(row["base_us"].get<double>() > 0);
    CHECK(row["tax_noise_us"].get<double>() >= 0);
    CHECK(row["tax_floor_us"].get<double>() > 0);
    if (!row["tax_us"].is_null()) {
      CHECK(row["tax_us"].get<double>() ==
            doctest::Approx(row["time_us"].get<double>() - row["base_us"].get<double>()));
    }
  }
  CHECK(rows == 4);
}

TEST_CASE("layers of a step that was run in two goes are added up") {
  const TemporaryFolder folder;
  folder.write("models.yaml",
               "tiny:\n  source: here\n  blocks: 3\n"
               "  layers: {o: {in: 64, out: [64]}, down: {in: 128, out: [64]}}\n");
  const std::string file = folder.write(
      "steps.yaml",
      "name: steps\nop: layer\nmodel: tiny\nlayers: [o, down]\nbatch.decode: 4\n"
      "adapters: {slots: 2, rank: 8}\n"
      "measure: {cache: hot, warmup_ms: 1, min_time_ms: 1, max_time_ms: 30, min_samples: 6, "
      "max_samples: 8}\n");
  const std::string out = folder.path("rows.jsonl");
  ProcessOptions options;
  options.environment = {{"LORA_BENCH_SCENARIOS", folder.folder()}};
  const std::vector<std::string> run{"run", file, "--backends", "cpu", "--quiet", "--resume", out};
  std::vector<std::string> first = run;
  first.insert(first.end(), {"--filter", "layer=down"});
  const ProcessResult one = run_tool(first, options);
  CHECK_FALSE(contains(one.out, "Linear layers of a step"));
  const ProcessResult both = run_tool(run, options);
  INFO(one.err, both.out, both.err);
  CHECK(contains(both.out, "3 down + 3 o"));
  CHECK_FALSE(contains(both.out, "two machines"));
}

TEST_CASE("a layer whose adapters are wrong fails") {
  const TemporaryFolder folder;
  const ProcessResult result = run_tool({"run", folder.write("layers.yaml", kLayers), "--no-time",
                                         "--backends", "mutant:no-op", "--case", "tp4*"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "shard 0, token"));
}

// A kernel that is right, and from then on adds what it added before where the operands lie at the
// addresses of before.
constexpr const char* kRemembers = R"(#define lora_bench_backend right_backend
#include "mine.cpp"
#undef lora_bench_backend
#include <map>
#include <tuple>
#include <vector>
namespace {
std::map<std::tuple<const void*, const void*, const void*>, std::vector<float>> known;
int32_t remember(const lora_bench_problem* p, const lora_bench_operands* o, void*, char*, int64_t) {
  std::vector<float>& delta = known[{o->x, o->y, o->b[0]}];
  const bool first = delta.empty();
  delta.resize(static_cast<size_t>(p->tokens * p->y_stride));
  for (size_t i = 0; i < delta.size(); ++i) {
    const float y = load_bf16(o->y, static_cast<int64_t>(i));
    first ? void(delta[i] = y) : store_bf16(o->y, static_cast<int64_t>(i), y + delta[i]);
  }
  if (first) {
    launch(p, o, nullptr, nullptr, 0);
    for (size_t i = 0; i < delta.size(); ++i) {
      delta[i] = load_bf16(o->y, static_cast<int64_t>(i)) - delta[i];
    }
  }
  return 0;
}
}  // namespace
extern "C" const lora_bench_descriptor* lora_bench_backend(void) {
  static lora_bench_descriptor descriptor = kDescriptor;
  descriptor.launch = remember;
  return &descriptor;
}
)";

TEST_CASE("a kernel that remembers what it added to a layer is FAILED once that is timed") {
  const std::string source = LORA_BENCH_SOURCE_DIR;
  const TemporaryFolder folder;
  const std::string library = folder.path("libmine.so");
  const ProcessResult built = run_process(
      {"c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-I" + source + "/include",
       "-I" + source + "/examples/plugin", "-o", library, folder.write("m.cpp", kRemembers)});
  REQUIRE_MESSAGE(built.exit_code == 0, built.err);
  const ProcessResult result =
      run_tool({"run", folder.write("layers.yaml", kLayers), "--backends", library, "--filter",
                "tp=1", "--filter", "fully_sharded=false"});
  CHECK(result.exit_code == 2);
  CHECK_MESSAGE(
      contains(result.out, "wrong after timing, right before it: with another number in B: "),
      result.out, result.err);
}

TEST_CASE("shards that are to exchange on GPUs are skipped where they have none, never passed") {
  const TemporaryFolder folder;
  const ProcessResult result = run_tool({"run", folder.write("layers.yaml", kLayers), "--backends",
                                         "cpu", "--case", "tp4*", "--set", "layer.comm=nccl"});
  CHECK(result.exit_code == 4);
  CHECK(contains(result.out, "comm nccl gives each shard a GPU, and cpu runs on the host"));
  CHECK_FALSE(contains(result.out, "PASSED"));
}

TEST_CASE("what only some kinds of layers have is refused for the others") {
  const TemporaryFolder folder;
  const std::string file = folder.write("layers.yaml", kLayers);
  const auto refused = [&](const std::string& setting) {
    const ProcessResult result = run_tool({"run", file, "--set", setting});
    CHECK(result.exit_code == 1);
    return result.err;
  };
  CHECK(contains(refused("layer.soft_cap=30"), "'layer.soft_cap' of a merged_qkv layer"));
  CHECK(contains(refused("layer.padding=8"), "'layer.padding' of a merged_qkv layer"));
  CHECK(contains(refused("layer.kind=vocab_embedding"), "'layer.bias' of a vocab_embedding layer"));
}

TEST_CASE("a layer that cannot be divided as asked is an error before anything runs") {
  const TemporaryFolder folder;
  const std::string file = folder.write("layers.yaml", kLayers);
  const ProcessResult result = run_tool({"run", file, "--set", "adapters.max_rank=10"});
  CHECK(result.exit_code == 1);
  CHECK(result.out.empty());
  CHECK_MESSAGE(contains(result.err, file + ":8:33: max_rank 10 is not divisible by tp 4"),
                result.err);
  CHECK(contains(result.err, "allowed: adapters.max_rank 12; or layer.tp 1, 2; or "));
}

TEST_CASE("a layer that cannot be divided stops no run that leaves it out") {
  const TemporaryFolder folder;
  const std::string file = folder.write("layers.yaml", kLayers);
  const std::vector<std::string> run{"run",      file,        "--set",      "adapters.max_rank=10",
                                     "--quiet",  "--no-time", "--backends", "cpu",
                                     "--isolate"};
  std::vector<std::string> filtered = run;
  filtered.insert(filtered.end(), {"--filter", "fully_sharded=false"});
  const ProcessResult rest = run_tool(filtered);
  CHECK_MESSAGE(rest.exit_code == 0, rest.err);
  CHECK(contains(rest.out, "2 rows: 2 PASSED"));
  std::vector<std::string> other = run;
  other.insert(other.end(), {"--filter", "tp=4"});
  CHECK(run_tool(other).exit_code == 1);
}

TEST_CASE("an overlap that a layer cannot have is an error before anything runs, others are told") {
  const TemporaryFolder folder;
  const std::string file = folder.write("layers.yaml", kLayers);
  const ProcessResult refused = run_tool({"run", file, "--set", "layer.overlap=delta"});
  CHECK(refused.exit_code == 1);
  CHECK_MESSAGE(contains(refused.err,
                         "--set layer.overlap=delta: layer.overlap delta: shards exchange h "
                         "between shrink and expand; allowed: serial, shrink or auto"),
                refused.err);
  const std::string out = folder.path("rows.jsonl");
  const ProcessResult taken =
      run_tool({"run", file, "--set", "layer.overlap=epilogue", "--case", "tp4-fully_sharded=false",
                "--no-time", "--backends", "cpu", "--out", out});
  CHECK(taken.exit_code == 0);
  CHECK(contains(read_file(out), "\"overlap\":\"epilogue\""));
  CHECK(contains(read_file(out), "their delta rounded to bf16 before the base adds it"));
}

TEST_CASE("a backend that no base launches for is not launched by the name of fused") {
  const TemporaryFolder folder;
  const ProcessResult result =
      run_tool({"run", folder.write("layers.yaml", kLayers), "--set", "layer.overlap=fused",
                "--case", "tp1-fully_sharded=false", "--no-time", "--backends", "cpu"});
  CHECK(result.exit_code == 4);
  CHECK(contains(result.out, "SKIPPED"));
  CHECK(contains(result.out,
                 "layer.overlap fused: the base's launch makes the adapters' part, and cpu none; "
                 "backend auto, or another overlap"));
}

TEST_CASE(
    "what only layers have is refused elsewhere, and what they have not is refused for them") {
  const TemporaryFolder folder;
  const std::string file = folder.write("layers.yaml", kLayers);
  const ProcessResult linear = run_tool({"run", file, "--set", "op=linear"});
  CHECK(linear.exit_code == 1);
  CHECK(contains(linear.err, "'layer.kind' with op linear; allowed: op layer"));
  const ProcessResult adds = run_tool({"run", file, "--set", "add_inputs=false"});
  CHECK(adds.exit_code == 1);
  CHECK(contains(adds.err, "'add_inputs' with op layer"));
  const ProcessResult exported =
      run_tool({"export", file, "--backends", "cpu", "--to", folder.path("cases")});
  CHECK(exported.exit_code == 1);
  CHECK(contains(exported.err, "is a layer that is not exported:\n"));
}

}  // namespace lora_bench::test
