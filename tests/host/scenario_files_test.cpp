#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "ops/auto_tuning.h"
#include "scenario/scenario.h"

namespace {

namespace fs = std::filesystem;
using namespace lora_bench;

const fs::path kRoot = LORA_BENCH_SOURCE_DIR;

std::string read(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::vector<fs::path> yaml_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml" && entry.path().stem() != "models") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

struct Anchor {
  const char* id;
  std::int64_t tokens, active, rank, weight_bytes, x_bytes, y_bytes_read_and_written;
};

// As measured; see the comment at the head of anchors.yaml.
constexpr std::array<Anchor, 17> kAnchors{{
    {"decode1-qkv-r16", 1, 1, 16, 589824, 8192, 24576},
    {"decode1-gateup-r16", 1, 1, 16, 1179648, 8192, 114688},
    {"decode32-qkv-distinct-r16", 32, 32, 16, 18874368, 262144, 786432},
    {"decode64-qkv-distinct-r16", 64, 64, 16, 37748736, 524288, 1572864},
    {"decode64-o-zipf1.5-r64", 64, 12, 64, 12582912, 524288, 1048576},
    {"decode128-down-uniform8-r32", 128, 8, 32, 9437184, 3670016, 2097152},
    {"decode256-gateup-uniform64-r16", 256, 64, 16, 75497472, 2097152, 29360128},
    {"decode256-down-identical-r64", 256, 1, 64, 2359296, 7340032, 4194304},
    {"decode256-qkv-zipf1.0x128-r8", 256, 80, 8, 23592960, 2097152, 6291456},
    {"prefill2048-qkv-1-r16", 2048, 1, 16, 589824, 16777216, 50331648},
    {"prefill4096-qkv-4-r64", 4096, 4, 64, 9437184, 33554432, 100663296},
    {"prefill8192-gateup-8-r16", 8192, 8, 16, 9437184, 67108864, 939524096},
    {"prefill2048-o-32-r128", 2048, 32, 128, 67108864, 16777216, 33554432},
    {"mixed128+4x992-qkv-r32", 4096, 16, 32, 18874368, 33554432, 100663296},
    {"mixed128+4x992-down-r32", 4096, 16, 32, 18874368, 117440512, 67108864},
    {"70b-decode64-qkv-distinct-r32", 64, 64, 32, 142606336, 1048576, 2621440},
    {"70b-decode64-gateup-distinct-r16", 64, 64, 16, 150994944, 1048576, 14680064},
}};

}  // namespace

TEST_CASE("every scenario that ships loads, says its question and has unique ids") {
  const auto files = yaml_files(kRoot / "scenarios");
  CHECK(files.size() >= 15);
  for (const fs::path& file : files) {
    CAPTURE(file.string());
    const std::string text = read(file);
    CHECK(text.starts_with("# "));
    const Scenario scenario = load_scenario(file, {.tuning = tuning_rules()});
    CHECK(scenario.question.ends_with("?"));
    std::set<std::string> ids;
    for (const Case& spec : scenario.cases) {
      CHECK(ids.insert(spec.id).second);
    }
    CHECK(!ids.empty());
  }
}

TEST_CASE("the anchors have the published names, tokens, adapters, ranks and bytes") {
  const Scenario scenario = load_scenario(kRoot / "scenarios" / "anchors.yaml", {});
  REQUIRE(scenario.cases.size() == kAnchors.size());
  for (std::size_t i = 0; i < kAnchors.size(); ++i) {
    const Case& spec = scenario.cases[i];
    const Anchor& anchor = kAnchors.at(i);
    CAPTURE(anchor.id);
    CHECK(spec.id == anchor.id);
    const std::int64_t tokens =
        std::accumulate(spec.batch.prefill.begin(), spec.batch.prefill.end(), spec.batch.decode);
    CHECK(tokens == anchor.tokens);
    CHECK(spec.adapters.active == anchor.active);
    CHECK(spec.adapters.rank.list == std::vector<std::int64_t>{anchor.rank});
    CHECK(spec.adapters.max_rank == anchor.rank);
    CHECK(spec.dtype == Dtype::kBf16);
    CHECK(spec.order == Order::kAsArrived);
    const std::vector<std::int64_t>& widths = spec.layer.widths;
    const std::int64_t columns = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
    const std::int64_t a = spec.layer.in_features * static_cast<std::int64_t>(widths.size());
    CHECK(2 * anchor.active * anchor.rank * (a + columns) == anchor.weight_bytes);
    CHECK(2 * tokens * spec.layer.in_features == anchor.x_bytes);
    CHECK(4 * tokens * columns == anchor.y_bytes_read_and_written);
  }
}

TEST_CASE("models name where their sizes were read and agree with themselves") {
  const auto rows = load_models();
  CHECK(rows.size() == 66);
  for (const ModelLayer& row : rows) {
    CAPTURE(row.model);
    CAPTURE(row.layer);
    CHECK(row.source.find("config.json") != std::string::npos);
    CHECK(row.count_per_step >=
          (row.model == "deepseek-v3" || row.model.starts_with("nemotron") ? 3 : 24));
    for (const ModelLayer& other : rows) {
      if (other.model == row.model && row.layer == "qkv" && other.layer == "o") {
        CHECK(row.widths.front() == other.in_features);
        CHECK(other.widths.front() == row.in_features);
      }
      if (other.model == row.model &&
          ((row.layer == "gate_up" && other.layer == "down") ||
           (row.layer == "shared_gate_up" && other.layer == "shared_down"))) {
        CHECK(row.widths == std::vector<std::int64_t>(2, other.in_features));
      }
    }
  }
}

TEST_CASE("a model of which a part alone is listed names the rest, so that no sum is its step") {
  const auto layers = layers_of_models();
  CHECK(layers.at("deepseek-v3") == std::vector<std::string>{"gate_up", "down", "shared_gate_up",
                                                             "shared_down", "experts_w13",
                                                             "experts_w2", "attention"});
  CHECK(layers.at("nemotron-3-nano-30b-a3b").back() == "mamba");
  CHECK(layers.at("gpt-oss-20b") ==
        std::vector<std::string>{"qkv", "o", "experts_w13", "experts_w2"});
  CHECK(layers.at("qwen3-8b") == std::vector<std::string>{"qkv", "o", "gate_up", "down"});
  for (const auto& model : layers) {  // an MLP, or the name of what stands for it
    CAPTURE(model.first);
    CHECK(model.second.size() >= 3);
  }
}

TEST_CASE(
    "a trace is a list, or the column `adapter` of a table, and may begin with a byte order mark") {
  const fs::path folder =
      fs::temp_directory_path() / fmt::format("lora-bench-trace-{}", ::getpid());
  fs::create_directory(folder);
  const auto ids = [&](const std::string& text) {
    std::ofstream(folder / "t.csv", std::ios::binary) << text;
    const std::string scenario =
        "layer: {in: 64, out: 64}\nadapters.slots: 8\nbatch.decode: 4\nskew: {trace: t.csv}\n";
    return parse_scenario(scenario, folder / "test.yaml", {}).cases.front().skew.trace;
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(ids("3, 0 1\n") == Ids{3, 0, 1});
  CHECK(ids("3\n0\n1\n") == Ids{3, 0, 1});
  CHECK(ids("3,0,\n1\n") == Ids{3, 0, 1});
  CHECK(ids("\xEF\xBB\xBF"
            "3\n0\n") == Ids{3, 0});
  CHECK(ids("\xEF\xBB\xBF"
            "adapter\r\n3\r\n0\r\n") == Ids{3, 0});
  CHECK(ids("# of a day\nwhen, adapter, prompt\n17, 2, 900\n\n18, -1, 70000\n") == Ids{2, -1});
  fs::remove_all(folder);
}

TEST_CASE("kv heads of a layer are those of its model, or of the scenario that says so") {
  const auto kv_heads = [](const std::string& model, const std::vector<std::string>& more = {}) {
    LoadOptions options;
    options.overrides = {"model=" + model, "layers=qkv", "layer.tp=8"};
    options.overrides.insert(options.overrides.end(), more.begin(), more.end());
    const fs::path file = kRoot / "scenarios" / "layers.yaml";
    return load_scenario(file, options).cases.front().setup.kv_heads;
  };
  CHECK(kv_heads("gpt-oss-20b") == 8);  // of 64 columns each
  CHECK(kv_heads("phi-3-medium", {"layer.tp=2"}) == 10);
  CHECK(kv_heads("gpt-oss-20b", {"layer.kv_heads=4"}) == 4);
  CHECK(kv_heads("phi-3-medium", {"layer.tp=2", "layer.v_head_size=64"}) == 10);
}

TEST_CASE("k and v that are not heads of 128 columns ask for their number of heads") {
  const auto heads_of = [](const std::string& out, const std::string& kind = "qkv") {
    const std::string layer = fmt::format("{{kind: {}, in: 512, out: {}}}", kind, out);
    LoadOptions options;
    options.overrides = {"layer=" + layer};
    return load_scenario(kRoot / "scenarios" / "layers.yaml", options).cases.front().setup.kv_heads;
  };
  CHECK(heads_of("[512, 256, 256]") == 2);
  CHECK(heads_of("[512, 256, 0]") == 2);
  CHECK(heads_of("[512, 256, 250]") == 0);
  CHECK(heads_of("[512, 256, 128]") == 0);
  CHECK(heads_of("[512, 200, 200]", "merged_qkv") == 0);
  CHECK(heads_of("[200, 200]", "column") == 1);  // part of the hash of stored rows
}

TEST_CASE(
    "no scenario that is timed asks for one shard that is fully sharded, which divides nothing") {
  std::size_t layers = 0;
  for (const fs::path& file : yaml_files(kRoot / "scenarios")) {
    for (const Case& spec : load_scenario(file, {.tuning = tuning_rules()}).cases) {
      const bool timed = spec.op == Op::kLayer && spec.measure.enabled;
      layers += timed ? 1 : 0;
      CAPTURE(spec.scenario + " " + spec.id);
      CHECK_FALSE((timed && spec.setup.tp == 1 && spec.setup.fully_sharded));
    }
  }
  CHECK(layers > 100);
}

TEST_CASE("each invalid file gives exactly the errors that stand at its head") {
  std::size_t files = 0;
  for (const fs::path& file : yaml_files(kRoot / "tests" / "golden" / "invalid")) {
    CAPTURE(file.string());
    const std::string text = read(file);
    std::string expected;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line) && line.starts_with("# expect: ");) {
      expected += (expected.empty() ? "" : "\n") + line.substr(std::string("# expect: ").size());
    }
    CHECK(!expected.empty());
    std::string got = "accepted";
    try {
      static_cast<void>(load_scenario(file, {.tuning = tuning_rules()}));
    } catch (const UsageError& error) {
      got = error.what();
    }
    const std::string folder = file.parent_path().string() + "/";
    for (std::size_t at = got.find(folder); at != std::string::npos; at = got.find(folder)) {
      got.erase(at, folder.size());
    }
    CHECK(got == expected);
    ++files;
  }
  CHECK(files >= 30);
}

TEST_CASE("scenarios/README names every scenario with its question") {
  const std::string page = read(kRoot / "scenarios" / "README.md");
  const std::string key = "\nquestion: ";
  for (const fs::path& file : yaml_files(kRoot / "scenarios")) {
    if (file.parent_path() != kRoot / "scenarios") {
      continue;  // those under verify/ have one row in all
    }
    const std::string text = read(file);
    const std::size_t from = text.find(key) + key.size();
    const std::string row = "| `" + file.filename().string() + "` | " +
                            text.substr(from, text.find('\n', from) - from) + " |\n";
    CHECK_MESSAGE(page.find(row) != std::string::npos, row);
  }
}

TEST_CASE("the docs name every field with its values and its default") {
  const std::string page = read(kRoot / "docs" / "scenario-format.md");
  for (const FieldDoc& field : scenario_fields(tuning_rules().knobs)) {
    CAPTURE(field.path);
    const std::string row = "| `" + field.path + "` | " + field.type + " | " + field.allowed +
                            " | " + field.fallback + " | " + field.meaning + " |\n";
    CHECK(page.find(row) != std::string::npos);
  }
}
