// What a scenario says of experts and of how tokens choose them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "scenario/resolve.h"
#include "scenario/scenario.h"
#include "support/process.h"

namespace {

namespace fs = std::filesystem;
using namespace lora_bench;

const std::string kStep =
    "layer: {in: 64, out: [32, 32]}\nbatch.decode: 4\nexperts: {count: 8, top_k: 2}\n";

Scenario parsed(const std::string& text, const fs::path& file = "test.yaml") {
  return parse_scenario(text, file, {});
}

Case only_case(const std::string& text) {
  const Scenario scenario = parsed(text);
  REQUIRE(scenario.cases.size() == 1);
  return scenario.cases.front();
}

std::string refusal(const std::string& text, const fs::path& file = "test.yaml") {
  try {
    static_cast<void>(parsed(text, file));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

// The lines of a trace, behind a step that is routed by it.
class Traced {
 public:
  explicit Traced(const std::string& trace) { folder_.write("gate.csv", trace); }

  [[nodiscard]] std::string refusal() const {
    std::string why = ::refusal(kStep + kRouted, folder_.path("test.yaml"));
    for (std::size_t at = why.find(folder_.folder() + "/"); at != std::string::npos;
         at = why.find(folder_.folder() + "/")) {
      why.erase(at, folder_.folder().size() + 1);
    }
    return why;
  }
  [[nodiscard]] Scenario scenario() const {
    return parsed(kStep + kRouted, folder_.path("test.yaml"));
  }

 private:
  static constexpr const char* kRouted = "routing: {trace: gate.csv}\n";
  test::TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("experts: a case has what is said and the usual where nothing is") {
  const Case plain = only_case(kStep);
  CHECK(plain.experts == ExpertsSpec{.count = 8, .top_k = 2});
  CHECK(plain.routing == RoutingLaw{});
  const Case said = only_case(
      "layer: {in: 64, out: 32}\nbatch.decode: 4\nop: shrink\nexperts: {count: 16, top_k: 4, part: "
      "w2, weight_at: none, renormalise: false, scaling: 2.5, missing: 25%}\n");
  CHECK(said.experts == ExpertsSpec{.count = 16,
                                    .top_k = 4,
                                    .part = ExpertsPart::kW2,
                                    .weight_at = WeightAt::kNone,
                                    .renormalise = false,
                                    .scaling = 2.5,
                                    .missing = 0.25});
}

TEST_CASE("experts: every law of routing is read with its numbers") {
  const auto law = [](const std::string& said) {
    return only_case(kStep + "routing: " + said + "\n").routing;
  };
  CHECK(law("uniform").kind == Routing::kUniform);
  CHECK(law("balanced").kind == Routing::kBalanced);
  CHECK(law("identical").kind == Routing::kIdentical);
  const RoutingLaw zipf = law("{per_adapter: 50%, zipf: 1.5}");
  CHECK(zipf.kind == Routing::kZipf);
  CHECK(zipf.parameter == 1.5);
  CHECK(zipf.per_adapter == 0.5);
  CHECK(law("{zipf: 0}").per_adapter == 0);
  const RoutingLaw hot = law("{hot: {experts: 4, share: 0.25}, per_adapter: 1}");
  CHECK(hot.kind == Routing::kHot);
  CHECK(hot.parameter == 0.25);
  CHECK(hot.hot == 4);
  CHECK(hot.per_adapter == 1);
  const RoutingLaw grouped = law("{grouped: {groups: 4, groups_per_token: 2}}");
  CHECK(grouped.kind == Routing::kGrouped);
  CHECK(grouped.groups == 4);
  CHECK(grouped.groups_per_token == 2);
}

TEST_CASE("experts: the text of a case loads again to the same case, and every field is hashed") {
  const std::vector<std::string> changes{"",
                                         "experts.part: w2",
                                         "experts.weight_at: input",
                                         "experts.renormalise: false",
                                         "experts.scaling: 2.5",
                                         "experts.missing: 0.125",
                                         "routing: balanced",
                                         "routing: {zipf: 1.25}",
                                         "routing: {zipf: 1.25, per_adapter: 0.5}",
                                         "routing: {hot: {experts: 3, share: 0.5}}",
                                         "routing: {grouped: {groups: 4, groups_per_token: 2}}"};
  std::set<std::uint64_t> hashes;
  for (const std::string& change : changes) {
    const std::string dotted =
        "layer: {in: 64, out: [32, 32]}\nbatch.decode: 4\nexperts.count: 8\nexperts.top_k: 2\n";
    const Case spec = only_case(dotted + change + "\n");
    const std::string text = scenario_text(spec);
    CAPTURE(text);
    const Case again = only_case(text);
    CHECK(again.experts == spec.experts);
    CHECK(again.routing == spec.routing);
    CHECK(content_hash({again}) == content_hash({spec}));
    CHECK_MESSAGE(hashes.insert(content_hash({spec})).second, "no field changes the hash");
  }
}

TEST_CASE("experts: a case without them says nothing of them, and keeps its hash") {
  const std::string text = "layer: {in: 64, out: 64}\nbatch.decode: 4\n";
  CHECK(scenario_text(only_case(text)).find("experts") == std::string::npos);
  CHECK(scenario_text(only_case(text)).find("routing") == std::string::npos);
  // As it was before there were experts.
  CHECK(parsed(text).content_hash == 0x95caf5092cfdb515);
}

TEST_CASE("experts: what cannot be is refused at its place, with what can") {
  const auto check = [](const std::string& change, const std::string& why) {
    CHECK(refusal(kStep + change + "\n") == "test.yaml:" + why);
  };
  check("op: embedding",
        "4:5: op embedding with experts; allowed: op linear, shrink or expand, or op metadata in "
        "form align");
  check("adapters.slots: 8193",
        "3:18: 8 experts of 8193 slots; allowed: at most 65536 of an expert and a slot");
  CHECK(refusal(kStep + "adapters.slots: 8192\n") == "accepted");
  check("batch.prefill: 524285",
        "3:28: 524289 tokens of 2 experts each; allowed: at most 1048576 of a token and an expert");
  check("plan.max_tokens: 524289",
        "3:28: 524289 tokens of 2 experts each; allowed: at most 1048576 of a token and an expert");
  check("routing: {hot: {experts: 9, share: 1}}",
        "4:10: 9 hot ones of 8 experts; allowed: at most experts.count");
  check("routing: {grouped: {groups: 3, groups_per_token: 2}}",
        "4:10: 3 groups of 8 experts; allowed: groups of equally many experts");
  check(
      "routing: {grouped: {groups: 8, groups_per_token: 1}}",
      "4:10: 1 of 8 groups, of 1 experts each, with top_k 2; allowed: groups_per_token of at most "
      "groups, with at least top_k experts");
  CHECK(refusal("layer: {in: 64, out: 64}\nbatch.decode: 1\nexperts: {count: 4, top_k: 5}\n") ==
        "test.yaml:3:28: 'experts.top_k' is 5 of 4 experts; allowed: at most experts.count");
}

TEST_CASE("experts: other ops refuse them, and layers without experts what is said of them") {
  for (const char* op : {"logits", "layer", "quantise"}) {
    CAPTURE(std::string(op));
    const std::string why = refusal(
        fmt::format("layer: {{in: 64, out: 64}}\nbatch.decode: 1\nexperts.count: 8\nop: {}\n", op));
    CHECK(why.find(fmt::format("op {} with experts; allowed: op linear, shrink or expand", op)) !=
          std::string::npos);
  }
  for (const char* said : {"experts.top_k: 2", "experts.missing: 0.5", "routing: uniform"}) {
    const std::string field(said);
    CHECK(refusal("layer: {in: 64, out: 64}\nbatch.decode: 1\n" + field + "\n")
              .find(fmt::format("'{}' of a layer without experts; allowed: experts.count, or a "
                                "layer of experts of a model",
                                field.substr(0, field.find(':')))) != std::string::npos);
  }
  // What is broken is no matter of experts.
  CHECK(refusal("layer: {in: 64, out: 64}\nbatch.decode: 1\nexperts: {count: 0, top_k: 2}\n") ==
        "test.yaml:3:18: 'experts.count' is '0'; allowed: an integer from 1 to 4096, times slots "
        "at most 65536");
}

TEST_CASE("experts: fields that no step of experts takes are refused one by one") {
  const auto check = [](const std::string& change, const std::string& what) {
    CAPTURE(change);
    CHECK(refusal(kStep + "measure: false\n" + change + "\n").find(what) != std::string::npos);
  };
  check("weights.dtype: e4m3", "'weights.dtype' is e4m3 with experts; allowed: weights of 16 or");
  check("weights.dtype: e4m3\nactivations.dtype: e5m2",
        "'activations.dtype' is e5m2 with experts; allowed: an x of 16 or");
  check("adapters.bias: true", "'adapters.bias' is true with experts; allowed: false");
  check("inputs: per_slice", "'inputs' is per_slice with experts; allowed: shared");
  check("adapters.placing: packed", "'adapters.placing' is packed with experts; allowed: separate");
  check("adapters.padding: zeros", "'adapters.padding' is zeros with experts; allowed: unread");
  check("plan.form: kernel", "'plan.form' is kernel with experts; allowed: sorted");
  check("plan.made_on: device", "'plan.made_on' is device with experts; allowed: host");
  check("op: shrink\nshrink_adds: true", "'shrink_adds' is true with experts; allowed: false");
  CHECK(refusal(kStep + "adapters.bias: false\nplan.form: sorted\n") == "accepted");
}

TEST_CASE("experts: a law of routing that is none is refused with all that are") {
  const auto why = [](const std::string& law) { return refusal(kStep + "routing: " + law + "\n"); };
  CHECK(why("unifrom").find("test.yaml:4:10: 'routing' is 'unifrom'; allowed: uniform, balanced, "
                            "identical, {zipf: 0 to 16}") == 0);
  CHECK(why("unifrom").ends_with("did you mean 'uniform'?"));
  CHECK(why("{zpf: 1}").find("'routing' has the law 'zpf'") != std::string::npos);
  CHECK(why("{zipf: 17}") ==
        "test.yaml:4:17: 'routing.zipf' is '17'; allowed: a number from 0 to 16");
  CHECK(why("{zipf: 1, hot: {experts: 1, share: 1}}").find("'routing' has 2 laws") !=
        std::string::npos);
  CHECK(why("{per_adapter: 1}").find("'routing' has 0 laws") != std::string::npos);
  CHECK(why("{zipf: 1, per_adapter: 2}") ==
        "test.yaml:4:33: 'routing.per_adapter' is '2'; allowed: a share from 0 to 1, or 0% to "
        "100%");
  CHECK(why("{hot: 0.5}") ==
        "test.yaml:4:16: 'routing.hot' is '0.5'; allowed: a map with experts and share");
  CHECK(why("{hot: {experts: 2}}") ==
        "test.yaml:4:16: 'routing.hot' without 'share'; allowed: a map with experts and share");
  CHECK(why("{hot: {experts: 0, share: 1}}") ==
        "test.yaml:4:26: 'routing.hot.experts' is '0'; allowed: an integer from 1 to 4096");
  CHECK(why("{hot: {expert: 1, experts: 2, share: 1}}") ==
        "test.yaml:4:17: unknown key 'expert' in 'routing.hot'; allowed: a map with experts and "
        "share; did you mean 'experts'?");
  CHECK(why("{grouped: {groups: 2, groups_per_token: 1}, per_adapter: 1}")
            .find("test.yaml:4:67: 'routing' has 'per_adapter' beside a law that orders no "
                  "experts") == 0);
}

TEST_CASE("experts: a trace says the experts of tokens, and maybe their weights, by name") {
  const Scenario without = Traced("token,adapter,e0,e1\n0,1,7,-1\n1,0,2,3 # late\n").scenario();
  CHECK(without.cases.front().routing.trace ==
        std::vector<RoutedToken>{{{7, -1}, {}}, {{2, 3}, {}}});
  const Scenario with =
      Traced("\xEF\xBB\xBFtoken,adapter,e0,e1,w0,w1\r\n0,1,7,0,0.75,0.25\r\n").scenario();
  CHECK(with.cases.front().routing.trace == std::vector<RoutedToken>{{{7, 0}, {0.75F, 0.25F}}});
  const Scenario other = Traced("w1,w0,e1,e0\n0.25,0.75,0,7\n").scenario();
  CHECK(other.cases.front().routing.trace == with.cases.front().routing.trace);
  CHECK(with.content_hash == other.content_hash);
  CHECK(with.content_hash != without.content_hash);
  CHECK(Traced("e0,e1,w0,w1\n7,0,0.75,0.5\n").scenario().content_hash != with.content_hash);
}

TEST_CASE("experts: a trace that cannot be is refused with its file and line") {
  const std::string names = "token,adapter,e0,e1\n";
  CHECK(Traced(names + "0,0,1,2\n1,0,3,3\n").refusal() ==
        "gate.csv:3:7: expert 3 twice in a line; allowed: experts of a token that are all "
        "different");
  CHECK(Traced(names + "0,0,-1,-1\n").refusal() == "accepted");
  CHECK(Traced(names + "0,0,1,8\n").refusal() == "gate.csv:2:1: expert 8 of 8; allowed: -1 to 7");
  CHECK(Traced(names + "0,0,-2,1\n").refusal() ==
        "gate.csv:2:5: '-2' in a trace of routing; allowed: experts from -1, which is elsewhere, "
        "to 4095");
  CHECK(Traced(names + "0,0,1\n").refusal() ==
        "gate.csv:2:1: 3 values in a trace of 4 columns; allowed: as many as the first line has "
        "names");
  CHECK(Traced("e0,e1,w0,w1\n1,2,0.5,nan\n").refusal() ==
        "gate.csv:2:9: 'nan' in a trace of routing; allowed: weights from -65536 to 65536");
  CHECK(Traced("e0,e1,e2\n1,2,3\n").refusal() ==
        "gate.csv:2:1: 3 experts a token with top_k 2; allowed: as many columns e0, e1 and so on "
        "as experts.top_k");
  CHECK(Traced("0,0,1,2\n")
            .refusal()
            .find("gate.csv:1:1: a trace of routing with the first line '0, 0, 1, 2'; allowed: the "
                  "names "
                  "of its columns") == 0);
  CHECK(Traced("e0,e1,w0\n1,2,0.5\n").refusal().find("gate.csv:1:1:") == 0);
  CHECK(Traced(names).refusal() ==
        "test.yaml:4:18: trace 'gate.csv' holds no token; allowed: a line for each token below the "
        "names of the columns");
  CHECK(refusal(kStep + "routing: {trace: none.csv}\n").find("test.yaml:4:18: ") == 0);
}

TEST_CASE("experts: laws of a sweep are points with ids of their own") {
  const Scenario scenario =
      parsed(kStep + "sweep: {routing: [uniform, {zipf: 1.0}, {hot: {experts: 4, share: 0.5}}]}\n");
  std::vector<std::string> ids;
  for (const Case& spec : scenario.cases) {
    ids.push_back(spec.id);
  }
  CHECK(ids == std::vector<std::string>{"routing=uniform", "routing=zipf1.0",
                                        "routing=hotexperts4+share0.5"});
}

TEST_CASE("experts: a layer of a model has its experts, but for what the scenario says of them") {
  const auto of_model = [](const std::string& layer, const std::string& said = "") {
    return only_case("model: deepseek-v3\nlayers: " + layer + "\nbatch.decode: 2\n" + said);
  };
  const Case w13 = of_model("experts_w13");
  CHECK(w13.experts ==
        ExpertsSpec{.count = 256, .top_k = 8, .part = ExpertsPart::kW13, .scaling = 2.5});
  CHECK(w13.layer.count == 58);
  CHECK(of_model("experts_w2").experts.part == ExpertsPart::kW2);
  CHECK_FALSE(of_model("shared_gate_up").experts.any());
  CHECK(of_model("gate_up").layer.count == 3);
  CHECK(of_model("shared_gate_up", "op: layer\n").setup.kind == LayerKind::kMergedColumn);
  CHECK(of_model("shared_down", "op: layer\n").setup.kind == LayerKind::kRow);
  // The values that are usual elsewhere replace those of the model too, and stand in the text.
  const Case other = of_model("experts_w2", "experts: {count: 64, scaling: 1}\n");
  CHECK(other.experts == ExpertsSpec{.count = 64, .top_k = 8, .part = ExpertsPart::kW2});
  const Case again = only_case(scenario_text(other));
  CHECK(again.experts == other.experts);
  CHECK(content_hash({again}) == content_hash({other}));
}

TEST_CASE("experts: what is said of them beside a model holds for its layers of experts alone") {
  const std::string model = "model: qwen3-30b-a3b\nbatch.decode: 2\nadapters.slots: 4\n";
  const Scenario plain = parsed(model + "layers: qkv\n");
  const Scenario said =
      parsed(model + "layers: [qkv, experts_w13]\nrouting: {zipf: 1}\nexperts.missing: 50%\n");
  CHECK(said.cases[0].routing == RoutingLaw{});
  CHECK(said.cases[0].experts == ExpertsSpec{});
  CHECK(scenario_text(said.cases[0]) == scenario_text(plain.cases[0]));
  CHECK(said.cases[1].routing.kind == Routing::kZipf);
  CHECK(said.cases[1].experts.missing == 0.5);
  CHECK(refusal("model: qwen3-8b\nlayers: qkv\nbatch.decode: 2\nrouting: uniform\n") ==
        "test.yaml:4:10: 'routing' of a layer without experts; allowed: experts.count, or a layer "
        "of experts of a model");
  CHECK(refusal("op: layer\n" + model + "layers: experts_w2\n").find("op layer with experts") !=
        std::string::npos);
}

TEST_CASE("experts: each model that has experts has both parts of them, which fit each other") {
  std::set<std::string> models;
  for (const ModelLayer& w13 : load_models()) {
    for (const ModelLayer& w2 : load_models()) {
      if (w13.model != w2.model || w13.layer != "experts_w13" || w2.layer != "experts_w2") {
        continue;
      }
      CAPTURE(w13.model);
      models.insert(w13.model);
      CHECK(w13.experts.part == ExpertsPart::kW13);
      CHECK(w2.experts.part == ExpertsPart::kW2);
      ExpertsSpec alike = w2.experts;
      alike.part = ExpertsPart::kW13;
      CHECK(w13.experts == alike);
      CHECK(w13.count_per_step == w2.count_per_step);
      CHECK(w2.widths == std::vector<std::int64_t>{w13.in_features});
      const std::size_t slices = w13.model == "nemotron-3-nano-30b-a3b" ? 1 : 2;
      CHECK(w13.widths == std::vector<std::int64_t>(slices, w2.in_features));
    }
  }
  CHECK(models.size() == 8);
}

TEST_CASE("experts: a model whose experts or layers are not understood is refused by name") {
  const auto why = [](const std::string& experts, const std::string& layer) {
    try {
      static_cast<void>(parse_models(
          "mine:\n  source: here\n  blocks: 2\n" + experts + "  layers:\n    w: " + layer + "\n",
          "models.yaml"));
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string experts = "  experts: {count: 8, top_k: 2}\n";
  CHECK(why(experts, "{in: 64, out: [32], part: w13, blocks: 1}") == "accepted");
  const std::string not_understood = "layer 'w' is not understood";
  CHECK(why("", "{in: 64, out: [32], part: w13}").find(not_understood) != std::string::npos);
  CHECK(why(experts, "{in: 64, out: [32], part: w3}").find(not_understood) != std::string::npos);
  CHECK(why(experts, "{in: 64, out: [32], blocks: 0}").find(not_understood) != std::string::npos);
  CHECK(why(experts, "{in: 64, out: [32], prat: w2}").find(not_understood) != std::string::npos);
  CHECK(why("  experts: {count: 8, part: w2}\n", "{in: 64, out: [32]}") ==
        "models.yaml:4:23: unknown key 'part' in 'experts'; allowed: count, top_k, weight_at, "
        "renormalise, scaling");
  CHECK(why("  experts: {top_k: 2}\n", "{in: 64, out: [32]}") ==
        "models.yaml:4:12: 'experts' of a model without 'count'; allowed: a map with count");
  CHECK(
      why("  experts: {count: 5000}\n", "{in: 64, out: [32]}").find("'experts.count' is '5000'") !=
      std::string::npos);
}
