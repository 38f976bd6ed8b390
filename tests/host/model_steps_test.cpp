#include "report/model_steps.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

using namespace lora_bench;

namespace {

Row layer_row(const std::string& case_id, const std::string& layer, double base_us,
              double time_us) {
  Row row;
  row.id.scenario = "tax";
  row.id.case_id = case_id;
  row.id.backend = "auto";
  row.step.op = "layer";
  row.step.model = "m";
  row.step.layer = layer;
  row.layer.count = 32;
  row.layer.tp = 1;
  row.layer.fully_sharded = false;
  row.step.tokens = 16;
  row.status = Status::kPassed;
  row.tax.base_us = base_us;
  row.time.us = time_us;
  row.tax.noise_us = 0.1;
  if (time_us - base_us > *row.tax.noise_us) {
    row.tax.us = time_us - base_us;
  }
  return row;
}

std::vector<ModelStep> steps_of(const std::vector<Row>& rows) {
  return model_steps(rows, rows, {});
}

// The text as it would stand in one line.
std::string unfolded(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

TEST_CASE("a step of a model is the sum of its layers, each as often as it has them") {
  std::vector<Row> rows{layer_row("decode16-qkv", "qkv", 10, 12),
                        layer_row("decode32-qkv", "qkv", 20, 22),
                        layer_row("decode16-o", "o", 5, 6)};
  rows[2].layer.count = 8;
  const std::vector<ModelStep> steps = steps_of(rows);
  REQUIRE(steps.size() == 1);  // of decode32 there is one layer only
  CHECK(steps[0].step == "decode16");
  CHECK(steps[0].layers == "32 qkv + 8 o");
  CHECK(steps[0].base_us == doctest::Approx(32 * 10 + 8 * 5));
  CHECK(steps[0].layer_us == doctest::Approx(32 * 12 + 8 * 6));
  CHECK(steps[0].tax_us == doctest::Approx(32 * 2 + 8 * 1));
  CHECK(steps[0].below_us == 0);
  const std::string text = render_model_steps(steps, false);
  CHECK(text.find("0.36") != std::string::npos);     // base ms
  CHECK(text.find("0.432") != std::string::npos);    // with adapters
  CHECK(text.find("  0.072") != std::string::npos);  // tax ms
  CHECK(text.find("20.0") != std::string::npos);     // per cent
  const std::vector<Row> slow{layer_row("a-qkv", "qkv", 6e6, 7e6), layer_row("a-o", "o", 6e6, 7e6)};
  const std::string long_text = render_model_steps(steps_of(slow), false);
  CHECK(long_text.find("384000") != std::string::npos);  // and never an exponent
  CHECK(text.find("44.4k") != std::string::npos);        // 16 tokens in 0.36 ms
}

TEST_CASE("a step with a layer that was not proved has no sum and says which") {
  std::vector<Row> rows{layer_row("a-qkv", "qkv", 10, 12), layer_row("a-o", "o", 5, 6)};
  rows[1].status = Status::kFailed;
  CHECK(steps_of(rows)[0].missing == "o is FAILED");
  CHECK(render_model_steps(steps_of(rows), true).find("o is FAILED") != std::string::npos);
  // It stands in the last columns, as many as the others have.
  const std::string table = render_model_steps(steps_of(rows), true);
  const auto bars = [](const std::string& line) {
    return std::count(line.begin(), line.end(), '|');
  };
  const std::size_t last = table.rfind('\n', table.size() - 2) + 1;
  CHECK(bars(table.substr(last)) == 13);
  CHECK(table.find("of shards") == std::string::npos);
  rows[1].status = Status::kPassed;
  rows[1].time.us.reset();
  CHECK(steps_of(rows)[0].missing == "o is not timed");
  rows[1] = layer_row("a-o", "o", 5, 6);
  rows[1].doubted = true;
  CHECK(steps_of(rows)[0].missing == "o is in doubt");
  rows[1].doubted = false;
  for (Row& row : rows) {  // --no-time
    row.time.us.reset();
    row.tax.base_us.reset();
  }
  CHECK(steps_of(rows).empty());
}

TEST_CASE(
    "a step that lost a layer that others have, or has one twice, has no sum and says which") {
  std::vector<Row> rows{layer_row("a-qkv", "qkv", 10, 12), layer_row("a-o", "o", 5, 6),
                        layer_row("a-down", "down", 7, 8), layer_row("b-qkv", "qkv", 10, 12),
                        layer_row("b-o", "o", 5, 6)};
  std::vector<ModelStep> steps = steps_of(rows);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].missing.empty());
  CHECK(steps[1].missing == "down is not there");
  // What a filter left out is known all the same.
  const std::vector<Row> shown(rows.begin(), rows.begin() + 2);
  CHECK(model_steps(shown, rows, {})[0].missing == "down is not there");
  CHECK(steps_of(shown)[0].missing.empty());
  // Other models and scenarios have other layers.
  rows[2].step.model = "another";
  CHECK(steps_of(rows)[1].missing.empty());
  rows.push_back(rows[0]);
  CHECK(steps_of(rows)[0].missing == "qkv is there twice");
}

TEST_CASE("the sum of a scenario that has some layers of a model says which it is without") {
  std::vector<Row> rows{layer_row("a-qkv", "qkv", 10, 12), layer_row("a-o", "o", 5, 6)};
  const LayersOfModels models{{"m", {"qkv", "o", "gate_up", "down"}}, {"n", {"mixer"}}};
  const std::vector<ModelStep> part = model_steps(rows, rows, models);
  CHECK(part[0].missing.empty());
  CHECK(part[0].never_run == "gate_up, down");
  const std::string text = render_model_steps(part, false);
  CHECK(text.find("32 qkv + 32 o, no gate_up, down") != std::string::npos);
  CHECK(unfolded(text).find("is without those layers, so it has no tokens/s:") !=
        std::string::npos);
  CHECK(text.find("0.48") != std::string::npos);   // base ms
  CHECK(text.find("33.3k") == std::string::npos);  // 16 tokens in 0.48 ms are none of the model
  CHECK(render_model_steps(steps_of(rows), false).find("33.3k") != std::string::npos);
  rows.push_back(layer_row("a-gate_up", "gate_up", 7, 8));
  rows.push_back(layer_row("a-down", "down", 7, 8));
  const std::vector<ModelStep> whole = model_steps(rows, rows, models);
  CHECK(whole[0].never_run.empty());
  CHECK(render_model_steps(whole, false).find("without those layers") == std::string::npos);
}

TEST_CASE(
    "layers of another scenario or model are of another step, and one without a base of none") {
  std::vector<Row> rows{layer_row("a-qkv", "qkv", 10, 12), layer_row("a-o", "o", 5, 6)};
  rows[1].id.scenario = "another";
  CHECK(steps_of(rows).empty());
  rows[1].id.scenario = rows[0].id.scenario;
  rows[1].step.model = "another";
  CHECK(steps_of(rows).empty());
  rows[1].step.model = rows[0].step.model;
  rows[1].tax.base_us.reset();
  CHECK(steps_of(rows)[0].missing == "o is not timed");
  rows[1].tax.base_us = 5;
  rows[1].tax.us.reset();
  rows[1].tax.noise_us.reset();
  CHECK(steps_of(rows)[0].missing == "o is not timed");
}

TEST_CASE("a sum with a layer whose tax is below its noise is a range, or a bound, and says so") {
  std::vector<Row> rows{layer_row("a-qkv", "qkv", 10, 12), layer_row("a-o", "o", 5, 5.05)};
  rows[1].layer.count = 8;
  const auto has = [&](const std::string& text) {
    return unfolded(render_model_steps(steps_of(rows), false)).find(text) != std::string::npos;
  };
  // 32 * 2 us, and 8 times from -0.1 to 0.1; of 32 * 10 + 8 * 5 us.
  CHECK(steps_of(rows)[0].tax_us == doctest::Approx(64));
  CHECK(steps_of(rows)[0].below_us == doctest::Approx(0.8));
  CHECK(has("  0.0632 to 0.0648  17.6 to 18.0  "));
  CHECK(has("; a tax that is a range or a bound has layers whose tax is below its noise, "));
  // 32 times from -0.1 to 0.1 as well.
  rows[0].time.us = 10.1;
  rows[0].tax.us.reset();
  CHECK(has("  < 0.004"));
  CHECK(has("  < 1.1  "));
  // Layers that are quicker with adapters take nothing off the others.
  rows[0].time.us = 12;
  rows[0].tax.us = 2;
  rows[1].time.us = 1;
  rows[1].tax.noise_us = 4;
  CHECK(has("  0.032 to 0.096  8.9 to 26.7  "));
  // A tax that is stored all the same.
  rows[1].tax.us = -4;
  CHECK(has("  0.032 to 0.096  8.9 to 26.7  "));
  rows[1].tax.us.reset();
  rows[1].tax.noise_us = 8;
  CHECK(has("  < 0.128"));
  CHECK(has("  < 35.6"));
}

TEST_CASE("a sum that is missing says nothing of taxes below their noise") {
  std::vector<Row> rows{layer_row("a-qkv", "qkv", 10, 10), layer_row("a-o", "o", 5, 6)};
  rows[1].status = Status::kFailed;
  CHECK(render_model_steps(steps_of(rows), false).find("bound") == std::string::npos);
}

TEST_CASE("a step has no sum of layers of two batches, or that were timed in two ways") {
  const auto missing = [](const std::function<void(Row&)>& change) {
    std::vector<Row> rows{layer_row("a-qkv", "qkv", 10, 12), layer_row("a-o", "o", 5, 6)};
    rows[0].step.cache = rows[1].step.cache = "weights-cold";
    rows[0].step.mode = rows[1].step.mode = "graph";
    change(rows[1]);
    return steps_of(rows).front().missing;
  };
  CHECK(missing([](Row&) {}).empty());
  const std::vector<std::function<void(Row&)>> changes{
      [](Row& row) { row.step.cache = "hot"; },    [](Row& row) { row.step.mode = "stream"; },
      [](Row& row) { row.step.cache.clear(); },    [](Row& row) { row.step.mode.clear(); },
      [](Row& row) { row.step.dtype = "fp16"; },   [](Row& row) { row.step.intermediate = "bf16"; },
      [](Row& row) { row.step.ranks = "64"; },     [](Row& row) { row.step.scale_at = "expand"; },
      [](Row& row) { row.step.bias = true; },      [](Row& row) { row.step.slots = 2; },
      [](Row& row) { row.step.active = 1; },       [](Row& row) { row.step.skew = "uniform"; },
      [](Row& row) { row.step.order = "sorted"; }, [](Row& row) { row.step.no_adapter = 0.5; },
      [](Row& row) { row.step.seed = 7; },         [](Row& row) { row.layer.comm = "nccl"; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    CHECK(missing(changes[i]) == "rows of two batches, or timed in two ways");
  }
}

TEST_CASE("a step with rows of two machines or builds has no sum, and each alone has one") {
  std::vector<Row> rows{layer_row("a-qkv", "qkv", 10, 12), layer_row("b-qkv", "qkv", 10, 12),
                        layer_row("a-o", "o", 5, 6), layer_row("b-o", "o", 5, 7)};
  rows[0].origin = rows[2].origin = "one";
  rows[1].origin = rows[3].origin = "two";
  const std::vector<ModelStep> apart = steps_of(rows);
  REQUIRE(apart.size() == 2);
  CHECK(apart[0].missing.empty());
  CHECK(apart[1].missing.empty());
  rows[3].origin = "three";
  const std::vector<ModelStep> mixed = steps_of(rows);
  CHECK(mixed[0].missing.empty());
  CHECK(mixed[1].missing == "rows of two machines or builds");
  CHECK(render_model_steps(mixed, false).find("rows of two machines or builds") !=
        std::string::npos);
  // The whole step of another machine is no repeat of this one's.
  rows[1] = rows[0];
  rows[3] = rows[2];
  rows[1].origin = rows[3].origin = "two";
  REQUIRE(steps_of(rows).size() == 1);
  CHECK(steps_of(rows)[0].missing == "rows of two machines or builds");
}

TEST_CASE("steps fit 100 columns, whatever the names are, and say all that they are of") {
  const std::string long_name(70, 'n');
  for (const std::string& name : {std::string("decode16"), long_name}) {
    CAPTURE(name);
    std::vector<Row> rows;
    for (const char* layer : {"qkv", "o", "gate_up", "down"}) {
      rows.push_back(layer_row(name + "-" + layer, layer, 10, 10.05));
      rows.push_back(layer_row("mixed-" + std::string(layer), layer, 100, 200));
    }
    rows[0].time.us = 12.5;
    rows[0].tax.us = 2.5;
    rows[3].status = Status::kFailed;
    const LayersOfModels models{{"m", {"qkv", "o", "gate_up", "down", "experts"}}};
    const std::string text = render_model_steps(model_steps(rows, rows, models), false);
    CAPTURE(text);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      CHECK(line.size() <= 100);
    }
    CHECK(text.find("m, tp 1: 32 qkv + 32 o + 32 gate_up + 32 down, no experts\n") !=
          std::string::npos);
    CHECK(text.find(name) != std::string::npos);
    CHECK(text.find("0.0704 to 0.0896") != std::string::npos);
    CHECK(text.find("no sum: o is FAILED") != std::string::npos);
  }
}

TEST_CASE("shards, repetitions and backends are steps of their own") {
  std::vector<Row> rows;
  for (const char* layer : {"qkv", "o"}) {
    for (const std::int64_t tp : {1, 2}) {
      for (const std::int64_t repetition : {0, 1}) {
        Row row = layer_row(std::string(layer) + "-x", layer, 10, 11);
        row.layer.tp = tp;
        row.id.repetition = repetition;
        rows.push_back(row);
        row.id.backend = "grouped";
        rows.push_back(row);
      }
    }
  }
  CHECK(steps_of(rows).size() == 8);
  CHECK(unfolded(render_model_steps(steps_of(rows), false)).find("without what they exchange") !=
        std::string::npos);
}
