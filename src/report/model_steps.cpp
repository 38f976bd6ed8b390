#include "report/model_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include "report/columns.h"
#include "report/grid.h"
#include "report/screen.h"

namespace lora_bench {
namespace {

// "decode16-qkv-tp4" of layer qkv: "decode16-tp4".
std::string without_layer(const std::string& case_id, const std::string& layer) {
  std::string left;
  bool found = false;
  for (std::size_t start = 0; start <= case_id.size();) {
    const std::size_t end = std::min(case_id.find('-', start), case_id.size());
    const std::string part = case_id.substr(start, end - start);
    if (part == layer && !found) {
      found = true;
    } else {
      left += (left.empty() ? "" : "-") + part;
    }
    start = end + 1;
  }
  return left;
}

bool belongs_to_step(const Row& row) {
  return row.layer.count && row.layer.tp && !row.step.model.empty() && !row.step.layer.empty();
}

ModelStep begun_by(const Row& row) {
  ModelStep step;
  step.scenario = row.id.scenario;
  step.step = without_layer(row.id.case_id, row.step.layer);
  step.backend = row.id.backend;
  step.model = row.step.model;
  step.repetition = row.id.repetition;
  step.origin = row.origin;
  step.tp = *row.layer.tp;
  step.fully_sharded = row.layer.fully_sharded.value_or(false);
  step.tokens = row.step.tokens;
  return step;
}

bool same_step(const ModelStep& one, const ModelStep& other) {
  return one.scenario == other.scenario && one.step == other.step && one.backend == other.backend &&
         one.model == other.model && one.repetition == other.repetition && one.tp == other.tp &&
         one.fully_sharded == other.fully_sharded && one.tokens == other.tokens;
}

// A step has one batch and one set of adapters, whatever the layer, and one way to time.
bool run_alike(const Row& one, const Row& other) {
  const auto told = [](const Row& row) {
    return std::tie(row.step.dtype, row.step.intermediate, row.step.scale_at, row.step.bias,
                    row.step.slots, row.step.active, row.step.ranks, row.step.skew, row.step.order,
                    row.step.no_adapter, row.step.seed, row.layer.comm, row.step.cache,
                    row.step.mode);
  };
  return told(one) == told(other);
}

void miss(ModelStep& step, const std::string& layer, std::string_view why) {
  step.missing += fmt::format("{}{} is {}", step.missing.empty() ? "" : ", ", layer, why);
}

void miss_others(ModelStep& step, const std::set<std::string>& wanted,
                 const std::set<std::string>& there) {
  for (const std::string& layer : wanted) {
    if (there.count(layer) == 0) {
      miss(step, layer, "not there");
    }
  }
}

void add(ModelStep& step, const Row& row) {
  const auto count = static_cast<double>(*row.layer.count);
  step.layers +=
      fmt::format("{}{} {}", step.layers.empty() ? "" : " + ", *row.layer.count, row.step.layer);
  const bool timed = row.time.us && row.tax.base_us && (row.tax.us || row.tax.noise_us);
  if (row.status != Status::kPassed || !timed) {
    miss(step, row.step.layer, row.status == Status::kPassed ? "not timed" : name(row.status));
    return;
  }
  if (row.doubted) {
    miss(step, row.step.layer, "in doubt");
    return;
  }
  step.base_us += count * *row.tax.base_us;
  step.layer_us += count * *row.time.us;
  if (is_tax_known(row)) {
    step.tax_us += count * *row.tax.us;
  } else {
    step.below_us += count * row.tax.noise_us.value_or(0);
  }
}

std::string milliseconds(double us) {
  const double ms = us / 1e3;
  return std::fabs(ms) < 1e3 ? fmt::format("{:.4g}", ms) : fmt::format("{:.0f}", ms);
}

// The taxes that are below their noise leave a range, or a bound where that reaches 0.
template <class Text>
std::string tax_text(const ModelStep& step, Text&& text) {
  const double least = step.tax_us - step.below_us;
  const double most = step.tax_us + step.below_us;
  if (step.below_us == 0) {
    return text(step.tax_us);
  }
  return least > 0 ? fmt::format("{} to {}", text(least), text(most))
                   : fmt::format("< {}", text(most));
}

using Cells = std::vector<std::string>;

std::string tp_text(const ModelStep& step) {
  return fmt::format("{}{}", step.tp, step.fully_sharded ? " fully" : "");
}

std::string layers_text(const ModelStep& step) {
  return step.layers + (step.never_run.empty() ? "" : ", no " + step.never_run);
}

// Of a step that has a sum.
Cells figures_of(const ModelStep& step) {
  const auto rate = [&](double us) {
    return screen_text(*find_column("tokens_per_s"), static_cast<double>(step.tokens) / us * 1e6);
  };
  Cells line{milliseconds(step.base_us), milliseconds(step.layer_us)};
  line.push_back(tax_text(step, milliseconds));
  line.push_back(
      tax_text(step, [&](double us) { return fmt::format("{:.1f}", 100 * us / step.base_us); }));
  // A model does no tokens with some of its layers.
  line.push_back(step.never_run.empty() ? rate(step.base_us) : "");
  line.push_back(step.never_run.empty() ? rate(step.layer_us) : "");
  return line;
}

constexpr std::size_t kFigures = 6;

std::string table_in_markdown(const std::vector<ModelStep>& steps) {
  std::vector<Cells> lines{{"model", "step", "backend", "tp", "tokens", "layers", "base ms",
                            "with LoRA ms", "tax ms", "tax %", "base tokens/s",
                            "with LoRA tokens/s"}};
  for (const ModelStep& step : steps) {
    Cells line{
        step.model,       step.step, step.backend, tp_text(step), fmt::format("{}", step.tokens),
        layers_text(step)};
    Cells figures(kFigures);
    if (step.missing.empty()) {
      figures = figures_of(step);
    } else {
      figures[kFigures - 2] = step.missing;
    }
    line.insert(line.end(), figures.begin(), figures.end());
    lines.push_back(std::move(line));
  }
  return markdown_table(lines);
}

constexpr int kScreen = 100;  // columns that text keeps to

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

// Steps of one model, of the same layers and shards. Where the names leave no room for the figures
// they stand in lines of their own.
std::string table_of_group(const std::vector<const ModelStep*>& steps) {
  const Cells titles{"tokens", "base ms",    "with LoRA ms",   "tax ms",
                     "tax %",  "base tok/s", "with LoRA tok/s"};
  std::vector<Cells> named{{"step", "backend"}};
  std::vector<Cells> figures{titles};
  for (const ModelStep* step : steps) {
    named.push_back({step->step, step->backend});
    figures.push_back({fmt::format("{}", step->tokens)});
    const Cells of_step = step->missing.empty() ? figures_of(*step) : Cells(kFigures);
    figures.back().insert(figures.back().end(), of_step.begin(), of_step.end());
  }
  std::vector<Cells> joined = named;
  for (std::size_t i = 0; i < joined.size(); ++i) {
    joined[i].insert(joined[i].end(), figures[i].begin(), figures[i].end());
  }
  std::vector<std::string> lines = split(aligned_table(joined));
  const bool folded = screen_width(lines.front()) + 2 > kScreen;
  lines = folded ? split(aligned_table(figures)) : lines;
  std::string text = fmt::format("  {}\n", lines.front());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    text +=
        folded ? wrapped(fmt::format("{} {}:", steps[i]->step, steps[i]->backend), kScreen, 2) : "";
    text += fmt::format("  {}\n", lines[i + 1]);
    text += steps[i]->missing.empty()
                ? ""
                : wrapped(fmt::format("no sum: {}", steps[i]->missing), kScreen, 4);
  }
  return text;
}

std::string table_in_text(const std::vector<ModelStep>& steps) {
  std::vector<std::pair<std::string, std::vector<const ModelStep*>>> groups;
  for (const ModelStep& step : steps) {
    std::string title = fmt::format("{}, tp {}: {}", step.model, tp_text(step), layers_text(step));
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& group) { return group.first == title; });
    auto& group = found == groups.end()
                      ? groups.emplace_back(std::move(title), std::vector<const ModelStep*>())
                      : *found;
    group.second.push_back(&step);
  }
  std::string text;
  for (const auto& [title, of_group] : groups) {
    text += wrapped(title, kScreen, 0) + table_of_group(of_group);
  }
  return text;
}

// What the model has beside the layers that are in a scenario.
std::string others_of(const std::string& model, const std::set<std::string>& layers,
                      const LayersOfModels& models) {
  std::vector<std::string> others;
  if (const auto known = models.find(model); known != models.end()) {
    std::copy_if(known->second.begin(), known->second.end(), std::back_inserter(others),
                 [&](const std::string& layer) { return layers.count(layer) == 0; });
  }
  return fmt::format("{}", fmt::join(others, ", "));
}

}  // namespace

std::vector<ModelStep> model_steps(const std::vector<Row>& rows, const std::vector<Row>& all,
                                   const LayersOfModels& models) {
  if (std::none_of(rows.begin(), rows.end(), [](const Row& row) { return row.tax.base_us; })) {
    return {};
  }
  std::map<std::pair<std::string, std::string>, std::set<std::string>> of_model;
  for (const Row& row : all) {
    if (belongs_to_step(row)) {
      of_model[{row.id.scenario, row.step.model}].insert(row.step.layer);
    }
  }
  std::vector<ModelStep> steps;
  std::vector<std::set<std::string>> layers;
  std::vector<const Row*> first;
  std::set<std::size_t> mixed;
  std::set<std::size_t> otherwise;
  for (const Row& row : rows) {
    if (!belongs_to_step(row)) {
      continue;
    }
    const ModelStep begun = begun_by(row);
    const auto found = std::find_if(steps.begin(), steps.end(),
                                    [&](const ModelStep& step) { return same_step(step, begun); });
    const auto index = static_cast<std::size_t>(found - steps.begin());
    if (found == steps.end()) {
      steps.push_back(begun);
      layers.emplace_back();
      first.push_back(&row);
    }
    add(steps[index], row);
    if (row.origin != steps[index].origin) {
      mixed.insert(index);
    }
    if (!run_alike(*first[index], row)) {
      otherwise.insert(index);
    }
    if (!layers[index].insert(row.step.layer).second) {
      miss(steps[index], row.step.layer, "there twice");
    }
  }
  std::vector<ModelStep> of_several;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    ModelStep& step = steps[i];
    if (layers[i].size() == 1) {
      continue;
    }
    const std::set<std::string>& of_scenario = of_model[{step.scenario, step.model}];
    miss_others(step, of_scenario, layers[i]);
    if (mixed.count(i) > 0) {
      step.missing = "rows of two machines or builds";
    } else if (otherwise.count(i) > 0) {
      step.missing = "rows of two batches, or timed in two ways";
    }
    step.never_run = others_of(step.model, of_scenario, models);
    of_several.push_back(std::move(step));
  }
  return of_several;
}

std::string render_model_steps(const std::vector<ModelStep>& steps, bool markdown) {
  if (steps.empty()) {
    return "";
  }
  bool divided = false;
  bool partial = false;
  bool below_noise = false;
  for (const ModelStep& step : steps) {
    divided = divided || step.tp > 1;
    partial = partial || !step.never_run.empty();
    below_noise = below_noise || (step.missing.empty() && step.below_us > 0);
  }
  std::string note = "Linear layers of a step, each as often as the model has it";
  note += divided ? "; of shards the slowest, without what they exchange" : "";
  note += partial ? "; a line with \"no\" is without those layers, so it has no tokens/s" : "";
  note += below_noise ? "; a tax that is a range or a bound has layers whose tax is below its "
                        "noise, each within plus or minus that"
                      : "";
  note += ":";
  return markdown ? fmt::format("\n{}\n\n{}", note, table_in_markdown(steps))
                  : fmt::format("\n{}{}", wrapped(note, kScreen, 0), table_in_text(steps));
}

}  // namespace lora_bench
