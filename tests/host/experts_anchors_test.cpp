// The sixteen steps of scenarios/experts.yaml, which have the names of published measurements.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "scenario/scenario.h"
#include "workload/batch.h"

namespace {

using namespace lora_bench;

// What was measured there: adapters in use, and the hits, pairs of an adapter and an expert.
struct Anchor {
  std::int64_t tokens, active, hits, rank;
};
const std::map<std::string, Anchor> kAnchors{
    {"qwen30-1tok-r16", {1, 1, 8, 16}},
    {"qwen30-32tok-uniform8-r16", {32, 8, 237, 16}},
    {"qwen30-32tok-uniform8-r64", {32, 8, 236, 64}},
    {"qwen30-64tok-distinct64-r16", {64, 64, 512, 16}},
    {"qwen30-256tok-zipf1.0x16-r16", {256, 16, 1029, 16}},
    {"qwen30-256tok-zipf1.0x16-r16-hot", {256, 16, 1011, 16}},
    {"qwen30-2048tok-block4-r16", {2048, 4, 512, 16}},
    {"qwen30-8192tok-block8-r16", {8192, 8, 1024, 16}},
    {"gptoss20-1tok-r16", {1, 1, 4, 16}},
    {"gptoss20-64tok-distinct64-r16", {64, 64, 256, 16}},
    {"gptoss20-256tok-zipf1.0x16-r64", {256, 16, 365, 64}},
    {"gptoss20-2048tok-block4-r16", {2048, 4, 128, 16}},
    {"mixtral-1tok-r16", {1, 1, 2, 16}},
    {"mixtral-32tok-uniform8-r16", {32, 8, 43, 16}},
    {"mixtral-256tok-zipf1.0x16-r16", {256, 16, 120, 16}},
    {"mixtral-8192tok-block8-r16", {8192, 8, 64, 16}}};

std::int64_t hits_of(const Case& spec, const Batch& batch) {
  std::set<std::pair<std::int32_t, std::int32_t>> hits;
  for (std::size_t pair = 0; pair < batch.expert_of_choice.size(); ++pair) {
    const std::size_t token = pair / static_cast<std::size_t>(spec.experts.top_k);
    hits.emplace(batch.adapter_of_token[token], batch.expert_of_choice[pair]);
  }
  return static_cast<std::int64_t>(hits.size());
}

}  // namespace

TEST_CASE("the anchors of experts have the rows, adapters and hits that were measured") {
  const Scenario scenario = load_scenario(LORA_BENCH_SOURCE_DIR "/scenarios/experts.yaml", {});
  std::set<std::string> seen;
  for (const Case& spec : scenario.cases) {
    CAPTURE(spec.id);
    const std::size_t end = spec.id.rfind("-w");
    REQUIRE(kAnchors.count(spec.id.substr(0, end)) == 1);
    const Anchor& anchor = kAnchors.at(spec.id.substr(0, end));
    seen.insert(spec.id);
    CHECK(name(spec.experts.part) == spec.id.substr(end + 1));
    CHECK(spec.adapters.rank.list == std::vector<std::int64_t>{anchor.rank});
    const Batch batch = draw_batch(spec);
    CHECK(static_cast<std::int64_t>(batch.adapter_of_token.size()) == anchor.tokens);
    const std::set<std::int32_t> adapters(batch.adapter_of_token.begin(),
                                          batch.adapter_of_token.end());
    CHECK(static_cast<std::int64_t>(adapters.size()) == anchor.active);
    // Drawn by another generator there, so that chance moves what the law does not fix.
    CHECK(std::abs(hits_of(spec, batch) - anchor.hits) <=
          std::llround(0.08 * static_cast<double>(anchor.hits)));
  }
  CHECK(seen.size() == 2 * kAnchors.size());
}

TEST_CASE("both parts of an anchor of experts are of one draw, and one has an expert of all") {
  const Scenario scenario = load_scenario(LORA_BENCH_SOURCE_DIR "/scenarios/experts.yaml", {});
  for (std::size_t i = 0; i + 1 < scenario.cases.size(); i += 2) {
    const Batch w13 = draw_batch(scenario.cases[i]), w2 = draw_batch(scenario.cases[i + 1]);
    CHECK(w13.adapter_of_token == w2.adapter_of_token);
    CHECK(w13.expert_of_choice == w2.expert_of_choice);
    CHECK(w13.weight_of_choice == w2.weight_of_choice);
  }
  for (const Case& spec : scenario.cases) {
    std::map<std::int32_t, std::int64_t> rows;
    std::int64_t most = 0;
    for (const std::int32_t expert : draw_batch(spec).expert_of_choice) {
      most = std::max(most, ++rows[expert]);
    }
    CAPTURE(spec.id);
    CHECK((most == 256) == (spec.id.find("-hot-") != std::string::npos));
  }
}
