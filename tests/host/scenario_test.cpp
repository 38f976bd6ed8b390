#include "scenario/scenario.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"

namespace {

namespace fs = std::filesystem;
using namespace lora_bench;

// Most tests are about anything but the batch.
std::string with_batch(const std::string& text) {
  return text.find("batch") == std::string::npos && !text.empty() ? text + "\nbatch.decode: 0\n"
                                                                  : text;
}

Scenario parse(const std::string& text, std::vector<std::string> overrides = {}) {
  LoadOptions options;
  options.overrides = std::move(overrides);
  return parse_scenario(with_batch(text), "test.yaml", options);
}

Case only_case(const std::string& text, std::vector<std::string> overrides = {}) {
  const Scenario scenario = parse("layer: {in: 64, out: [32, 16]}\n" + text, std::move(overrides));
  REQUIRE(scenario.cases.size() == 1);
  return scenario.cases.front();
}

std::vector<std::string> ids(const Scenario& scenario) {
  std::vector<std::string> all;
  for (const Case& spec : scenario.cases) {
    all.push_back(spec.id);
  }
  return all;
}

std::string refusal(const std::string& text, std::vector<std::string> overrides = {}) {
  try {
    static_cast<void>(parse(text, std::move(overrides)));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

const std::string kLayer = "layer: {in: 64, out: 64}\n";

}  // namespace

TEST_CASE("a layer alone is a scenario of one case with every default") {
  const Case spec = only_case("");
  CHECK(spec.scenario == "test");
  CHECK(spec.id == "test");
  CHECK(spec.op == Op::kLinear);
  CHECK(spec.dtype == Dtype::kBf16);
  CHECK(spec.intermediate == Dtype::kFp32);
  CHECK(spec.layer.name == "custom");
  CHECK(spec.layer.x_stride == 64);
  CHECK(spec.layer.y_stride == 48);
  CHECK(spec.adapters.rank.list == std::vector<std::int64_t>{16});
  CHECK(spec.adapters.max_rank == 16);
  CHECK(spec.adapters.scale == std::vector<double>{1.0});
  CHECK(spec.skew.kind == Skew::kUniform);
  CHECK(spec.backends.empty());
}

TEST_CASE("nested maps and dotted keys say the same, and key order and comments do not matter") {
  const Scenario nested = parse(kLayer + "batch: {decode: 4}\nadapters: {rank: 8, slots: 2}\n");
  const Scenario dotted =
      parse("adapters.slots: 2 # two\nadapters.rank: 8\nbatch.decode: 4\n" + kLayer);
  CHECK(nested.content_hash == dotted.content_hash);
  CHECK(nested.content_hash != parse(kLayer + "batch: {decode: 5}\n").content_hash);
}

TEST_CASE("every field that changes what is run changes the content hash") {
  std::set<std::uint64_t> hashes{parse(kLayer).content_hash};
  const std::vector<std::string> changes{
      "op: shrink",           "dtype: fp16",           "scale_at: expand",
      "add_inputs: false",    "batch.prefill: 4",      "adapters.slots: 2",
      "adapters.rank: 8",     "adapters.max_rank: 64", "adapters.scale: 2",
      "adapters.bias: true",  "skew: distinct",        "prefill_skew: distinct",
      "no_adapter: 1",        "order: sorted",         "seed: 2",
      "backends: cpu",        "verify: false",         "measure: false",
      "measure.cache: hot",   "measure.mode: stream",  "thresholds.max_time_us: 5",
      "verify.max_rows: 5",   "layer.x_stride: 65",    "layer.offset_start: 1",
      "measure.warmup_ms: 1", "intermediate: bf16",    "thresholds.max_regression: 5%"};
  for (const std::string& change : changes) {
    CAPTURE(change);
    CHECK(hashes.insert(parse(kLayer + change + "\n").content_hash).second);
  }
}

TEST_CASE("shares may be percent, also in thresholds and rank shares") {
  const Case spec = only_case(
      "no_adapter: 25%\nthresholds: {max_regression: 5%}\nadapters.rank: {64: 0.5, 8: 50%}\n");
  CHECK(spec.no_adapter == 0.25);
  CHECK(spec.thresholds.max_regression == 0.05);
  CHECK(spec.adapters.rank.shares ==
        std::vector<std::pair<std::int64_t, double>>{{8, 0.5}, {64, 0.5}});
  CHECK(spec.adapters.rank.list.empty());
  CHECK(spec.adapters.max_rank == 64);
}

TEST_CASE("prefill lengths may be one, a list, or counted") {
  using Lengths = std::vector<std::int64_t>;
  CHECK(only_case("batch.prefill: 7\n").batch.prefill == Lengths{7});
  CHECK(only_case("batch.prefill: [7, 2x3]\n").batch.prefill == Lengths{7, 3, 3});
  CHECK(only_case("batch.prefill: []\n").batch.prefill.empty());
  CHECK(refusal(kLayer + "batch.prefill: 0x5\n") != "accepted");
}

TEST_CASE("laws are words or maps of one parameter, and prefill follows decode unless told") {
  const Case hot = only_case("skew: {hot: 90%}\n");
  CHECK(hot.skew.kind == Skew::kHot);
  CHECK(hot.skew.parameter == 0.9);
  CHECK(hot.prefill_skew.kind == Skew::kHot);
  const Case both = only_case("skew: {zipf: 1.5}\nprefill_skew: blocks\n");
  CHECK(both.skew.parameter == 1.5);
  CHECK(both.prefill_skew.kind == Skew::kBlocks);
}

TEST_CASE("what is odd but legal is accepted") {
  for (const char* text :
       {"batch.decode: 0", "no_adapter: 100%", "adapters.rank: 0",
        "adapters: {slots: 2, rank: [0, 8]}", "dtype: fp32", "layer.out: [0, 0]",
        "layer.out: [4, 0, 4]", "verify: false", "adapters: {slots: 65536, rank: 4096}",
        "seed: 18446744073709551615", "measure: true"}) {
    CAPTURE(text);
    const std::string layer = std::string(text).starts_with("layer") ? "layer.in: 64\n" : kLayer;
    CHECK(refusal(layer + text + "\n") == "accepted");
  }
}

TEST_CASE("embedding scales at expand unless told") {
  CHECK(only_case("op: embedding\n").scale_at == ScaleAt::kExpand);
  CHECK(only_case("op: expand\n").scale_at == ScaleAt::kShrink);
}

TEST_CASE("a product multiplies in the order of the text, the last running first") {
  const Scenario scenario =
      parse(kLayer + "sweep: {product: {batch.decode: [1, 2], adapters.rank: [8, 16]}}\n");
  CHECK(ids(scenario) == std::vector<std::string>{"decode1-rank8", "decode1-rank16",
                                                  "decode2-rank8", "decode2-rank16"});
  CHECK(scenario.sweep_keys == std::vector<std::string>{"batch.decode", "adapters.rank"});
  CHECK(scenario.cases[1].point ==
        std::map<std::string, std::string>{{"batch.decode", "1"}, {"adapters.rank", "16"}});
  CHECK(scenario.cases[1].adapters.rank.list == std::vector<std::int64_t>{16});
}

TEST_CASE("zips, nested products and lists of blocks expand to as many cases as they say") {
  const auto count = [](const std::string& sweep) { return parse(kLayer + sweep).cases.size(); };
  CHECK(count("sweep: {seed: [1, 2, 3]}\n") == 3);
  CHECK(count("sweep: {zip: {seed: [1, 2, 3], batch.decode: [1, 2, 3]}}\n") == 3);
  CHECK(count("sweep: {product: {seed: [1, 2]}, zip: {batch.decode: [1, 2, 3], "
              "adapters.rank: [1, 2, 3]}}\n") == 6);
  CHECK(count("sweep: [{seed: [1, 2]}, {batch: {decode: [1, 2, 3]}}]\n") == 6);
  CHECK(count("sweep: {zip: {seed: [1, 2, 3, 4], product: {batch.decode: [1, 2], "
              "adapters.rank: [8, 16]}}}\n") == 4);
  CHECK(count("sweep: {zip: [{seed: [1, 2]}, {batch.decode: [1, 2, 3]}]}\n") == 6);
}

TEST_CASE("ids are unique and free of characters that a shell takes for its own") {
  const Scenario scenario = parse(kLayer +
                                  "adapters.slots: 2\nsweep:\n  skew: [uniform, {zipf: 1.5}]\n  "
                                  "adapters.rank: [8, [8, 16], {8: 50%, 16: 50%}]\n"
                                  "  batch.prefill: [[], 4x8]\n  adapters.bias: [true, false]\n");
  const auto all = ids(scenario);
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == 24);
  for (const std::string& id : all) {
    CAPTURE(id);
    CHECK(id.find_first_of(" \t*?[]{}()$&;|<>'\"\\`!#~,") == std::string::npos);
  }
  CHECK(all.front() == "uniform-rank8-prefill=-bias=true");
  CHECK(all.back() == "zipf1.5-rank8:50%+16:50%-prefill4x8-bias=false");
}

TEST_CASE("cases are named points, multiplied with the sweep") {
  const Scenario scenario = parse(kLayer +
                                  "batch.decode: 2\ncases:\n  - {name: a, seed: 5}\n"
                                  "  - {batch: {decode: 3}}\nsweep: {adapters.rank: [8, 16]}\n");
  CHECK(ids(scenario) ==
        std::vector<std::string>{"a-rank8", "a-rank16", "decode3-rank8", "decode3-rank16"});
  CHECK(scenario.cases[0].seed == 5);
  CHECK(scenario.cases[0].batch.decode == 2);
  CHECK(scenario.cases[2].batch.decode == 3);
}

TEST_CASE("layers of a model multiply, and a model alone has all of its layers") {
  CHECK(ids(parse("model: gpt-oss-20b\n")) ==
        std::vector<std::string>{"qkv", "o", "experts_w13", "experts_w2"});
  const Scenario two = parse("model: llama-3.1-8b\nlayers: [qkv, down]\nsweep: {seed: [1, 2]}\n");
  CHECK(ids(two) == std::vector<std::string>{"qkv-seed1", "qkv-seed2", "down-seed1", "down-seed2"});
  CHECK(two.cases[0].layer.widths == std::vector<std::int64_t>{4096, 1024, 1024});
  CHECK(two.cases[2].layer.in_features == 14336);
  CHECK(ids(parse("model: llama-3.1-8b\nlayers: qkv\n")) == std::vector<std::string>{"test"});
  const std::vector<std::string> all{"qkv", "o", "gate_up", "down"};
  CHECK(ids(parse("model: llama-3.1-8b\n")) == all);
  CHECK(ids(parse("model: llama-3.1-8b\nlayers: all\n")) == all);
  CHECK(ids(parse("model: llama-3.1-8b\ncases: [{name: a, layers: all}]\n")) ==
        std::vector<std::string>{"a-qkv", "a-o", "a-gate_up", "a-down"});
}

TEST_CASE("--set replaces a value, the sweep over it, and what cases say of it") {
  const std::string swept = kLayer + "sweep: {adapters.rank: [8, 16], seed: [1, 2]}\n";
  CHECK(ids(parse(swept, {"adapters.rank=32"})) == std::vector<std::string>{"seed1", "seed2"});
  CHECK(parse(swept, {"adapters.rank=32"}).cases[0].adapters.max_rank == 32);
  const std::string zipped = kLayer + "sweep: {zip: {adapters.rank: [8, 16], seed: [1, 1]}}\n";
  CHECK(parse(zipped, {"adapters.rank=32"}).cases.size() == 1);
  const std::string named = kLayer + "cases: [{name: a, seed: 3}, {name: b, seed: 4}]\n";
  CHECK(parse(named, {"seed=9"}).cases[1].seed == 9);
  CHECK(only_case("", {"skew={zipf: 1.5}"}).skew.parameter == 1.5);
  CHECK(only_case("", {"verify=false"}).verify.enabled == false);
  CHECK(only_case("", {"backends=[cpu, naive]"}).backends.size() == 2);
  CHECK(only_case("seed: 5\n", {"seed=6", "seed=7"}).seed == 7);
}

TEST_CASE("--set leaves one of the cases that it makes equal, and drops none that still differ") {
  const auto named = [](const std::string& first, const std::string& second) {
    return kLayer + "cases: [{name: a, " + first + "}, {name: a, " + second + "}, {name: b}]\n";
  };
  const std::vector<std::string> both{"a", "b"};
  CHECK(ids(parse(named("seed: 1", "seed: 2"), {"seed=3"})) == both);
  CHECK(ids(parse(named("seed: 1, dtype: fp16", "seed: 2, dtype: fp16"), {"seed=3"})) == both);
  const std::string two = "two cases have the id 'a'";
  const std::string unlike = named("seed: 1, dtype: bf16", "seed: 1, dtype: fp16");
  for (const std::vector<std::string>& set : {std::vector<std::string>{}, {"seed=2"}}) {
    CHECK(refusal(unlike, set).find(two) != std::string::npos);
  }
  CHECK(ids(parse(unlike, {"dtype=fp32"})) == both);
  CHECK(refusal(named("seed: 1", "seed: 1, dtype: fp16"), {"seed=2"}).find(two) !=
        std::string::npos);
  const std::string swept = unlike + "sweep: {adapters.rank: [8, 16]}\n";
  CHECK(refusal(swept, {"adapters.rank=8"}).find(two) != std::string::npos);
}

TEST_CASE("--set layers turns a layer of one's own into a named one") {
  const Scenario scenario = parse(kLayer, {"model=llama-3.1-8b", "layers=o"});
  CHECK(scenario.cases.front().layer.in_features == 4096);
  CHECK(scenario.cases.front().layer.name == "o");
}

TEST_CASE("--set has the same errors, placed on the command line") {
  CHECK(refusal(kLayer, {"adapters.rnak=3"}) ==
        "--set adapters.rnak=3: unknown key 'adapters.rnak'; allowed: slots, active, rank, "
        "max_rank, padding, scale, dtype, bias, bias_slices, rank0_bias, placing, a_stride, "
        "b_stride; "
        "did you mean 'adapters.rank'?");
  CHECK(refusal(kLayer, {"seed=-1"}) ==
        "--set seed=-1: 'seed' is '-1'; allowed: an integer from 0 to 18446744073709551615");
  CHECK(refusal(kLayer, {"seed"}) == "--set seed: not an override; allowed: key=value");
  CHECK(refusal(kLayer, {"sweep={}"}) ==
        "--set sweep={}: 'sweep' shapes the file; allowed: fields of a case");
}

TEST_CASE("a sweep too large is refused with its size before it is expanded") {
  std::string text = kLayer + "sweep:\n";
  const std::string values = ": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]\n";
  for (const char* key :
       {"seed", "batch.decode", "adapters.slots", "adapters.rank", "adapters.max_rank",
        "adapters.scale", "verify.max_rows", "verify.timeout_s", "measure.warmup_ms",
        "measure.min_samples", "measure.max_samples", "measure.min_time_ms", "measure.max_time_ms",
        "layer.offset_start", "batch.prefill"}) {
    text += "  " + std::string(key) + values;
  }
  CHECK(refusal(text) ==
        "test.yaml:3:3: this expands to 1152921504606846976 cases; allowed: at most 10000 cases");
  CHECK(refusal(text + "  thresholds.max_time_us" + values) ==
        "test.yaml:3:3: this expands to more cases than a 64-bit number counts; allowed: at most "
        "10000 cases");
}

TEST_CASE("a scenario that never says how many tokens is refused, an empty batch is not") {
  const auto load = [](const std::string& text) {
    try {
      static_cast<void>(parse_scenario(kLayer + text, "test.yaml", {}));
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(load("") ==
        "test.yaml:1:1: no tokens: set batch.decode or batch.prefill; batch.decode: 0 asks for an "
        "empty batch");
  CHECK(load("batch.decode: 0\n") == "accepted");
  CHECK(load("batch.prefill: []\n") == "accepted");
  CHECK(load("sweep: {batch.decode: [0, 1]}\n") == "accepted");
  CHECK(load("batch: {decod: 1}\n").find("no tokens") == std::string::npos);
}

TEST_CASE("a list of ranks or scales longer than the slots is refused") {
  const std::string advice =
      "; allowed: at most one for each slot; to sweep, put it under sweep; to mix, set "
      "adapters.slots";
  CHECK(refusal(kLayer + "adapters.rank: [8, 16, 32, 64]\n") ==
        "test.yaml:2:16: 4 ranks for 1 slot" + advice);
  CHECK(refusal(kLayer + "adapters: {slots: 2, scale: [1, 2, 3]}\n") ==
        "test.yaml:2:29: 3 scales for 2 slots" + advice);
  CHECK(refusal(kLayer + "adapters: {slots: 2, rank: [8, 16], scale: [1, 2]}\n") == "accepted");
}

TEST_CASE("a list for one value says how to sweep, where the field can be swept") {
  CHECK(refusal(kLayer + "batch.decode: [1, 8]\n") ==
        "test.yaml:2:15: 'batch.decode' is a list; allowed: an integer from 0 to 1048576; for "
        "several values use sweep: {batch.decode: [...]}");
  CHECK(refusal(kLayer + "name: [a, b]\n").find("sweep:") == std::string::npos);
}

TEST_CASE("a regression of more than all of it is a forgotten percent sign") {
  CHECK(refusal(kLayer + "thresholds.max_regression: 3\n").ends_with("write 3% for three percent"));
  CHECK(refusal(kLayer + "thresholds.max_regression: 3%\n") == "accepted");
  CHECK(refusal(kLayer + "thresholds.max_regression: 1\n") == "accepted");
}

TEST_CASE("a group cut short suggests the group") {
  CHECK(refusal(kLayer + "adapter: {rank: 8}\n").ends_with("did you mean 'adapters'?"));
}

TEST_CASE(
    "a tuning is what the knobs say that are handed in, of any kind; without them a wrong key") {
  const auto knob = [](const char* name, std::vector<std::string> words, std::int64_t most) {
    return Knob{
        {std::string("tuning.") + name, "kind", "what it takes", "", ""}, std::move(words), most};
  };
  LoadOptions options;
  options.tuning.knobs = {knob("way", {"any", "left", "right"}, 0), knob("depth", {}, 9),
                          knob("form", {}, 0)};
  options.tuning.fault = [](const Tuning& tuning) -> std::optional<SettingFault> {
    return tuning.size() < 3 ? std::nullopt
                             : std::optional<SettingFault>({"tuning.form", "too much", "less"});
  };
  const auto read = [&](const std::string& tuning) {
    try {
      return tuning_text(parse_scenario("layer: {in: 64, out: [64]}\nbatch.decode: 4\n" + tuning,
                                        "t.yaml", options)
                             .cases.at(0)
                             .tuning);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  };
  CHECK(read("tuning: {form: 2x3, way: left}") == "way: left, form: 2x3");
  CHECK(read("tuning: {depth: 0, way: any}").empty());
  CHECK(read("tuning.depth: 9") == "depth: 9");
  CHECK(read("tuning.depth: 10") == "t.yaml:3:15: 'tuning.depth' is '10'; allowed: what it takes");
  CHECK(read("tuning.way: rihgt") ==
        "t.yaml:3:13: 'tuning.way' is 'rihgt'; allowed: what it takes; did you mean 'right'?");
  CHECK(read("tuning.depht: 1") ==
        "t.yaml:3:1: unknown key 'tuning.depht'; allowed: way, depth, form; did you mean "
        "'tuning.depth'?");
  CHECK(read("tuning: {form: a, way: left, depth: 1}") == "t.yaml:3:16: too much; allowed: less");
  CHECK(scenario_fields(options.tuning.knobs).size() == scenario_fields({}).size() + 3);
  options.tuning = {};
  CHECK(read("tuning: {way: left}").starts_with("t.yaml:3:1: unknown key 'tuning'; allowed: "));
}
