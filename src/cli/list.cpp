#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>

#include "cli/invocation.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "device/facts.h"
#include "layers/layer_kind.h"
#include "ops/auto_tuning.h"
#include "ops/backend.h"
#include "ops/backends.h"
#include "ops/peers.h"
#include "report/columns.h"
#include "report/grid.h"
#include "scenario/scenario.h"
#include "verify/diagnose.h"
#include "verify/layer_faults.h"
#include "verify/metadata_proof.h"
#include "verify/mutants.h"
#include "verify/quantise_proof.h"

namespace lora_bench {
namespace {

std::string list_scenarios(int width) {
  const std::filesystem::path folder = scenario_folder();
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(folder)) {
    return fmt::format("no scenarios: there is no folder '{}'; set or unset LORA_BENCH_SCENARIOS\n",
                       folder.string());
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml" && entry.path().filename() != "models.yaml") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Definition> entries;
  std::vector<Diagnostic> broken;
  for (const std::filesystem::path& file : files) {
    Scenario scenario;
    try {
      scenario = load_scenario(file, {.tuning = tuning_rules()});
    } catch (const UsageError& error) {
      broken.insert(broken.end(), error.diagnostics().begin(), error.diagnostics().end());
      continue;
    }
    const std::string name = std::filesystem::relative(file, folder).replace_extension("").string();
    entries.push_back({name, fmt::format("{} ({} case{})", scenario.question, scenario.cases.size(),
                                         scenario.cases.size() == 1 ? "" : "s")});
  }
  if (!broken.empty() && entries.empty()) {
    throw UsageError(std::move(broken));
  }
  if (!broken.empty()) {
    print_note(UsageError(std::move(broken)).what());
  }
  return wrapped("scenarios in " + folder.string(), width, 0) + definitions(entries, width);
}

std::string list_backends(int width) {
  std::vector<Definition> entries;
  for (const BackendEntry& entry : backend_registry()) {
    entries.push_back({entry.name, entry.summary});
    if (!entry.why_not_here.empty()) {
      entries.push_back({"", "not here: " + entry.why_not_here});
    }
  }
  entries.push_back(
      {"mutant:FAULT", "broken on purpose, to test the verifier (see `list mutants`)"});
  entries.push_back(
      {"fake:BEHAVIOUR", "misbehaves on purpose, to test the tool (see `list fakes`)"});
  entries.push_back({"PATH.so, NAME=PATH", "yours: a plugin (docs/your-kernel.md)"});
  entries.push_back({"PATH.py", "yours: a file of Python (docs/python.md)"});
  for (const PeerEntry& peer : peer_entries()) {
    entries.push_back({peer.name, peer.summary});
    if (!peer.why_not_here.empty()) {
      entries.push_back({"", "not here: " + peer.why_not_here});
    }
  }
  return "backends\n" + definitions(entries, width);
}

// "8 of 128, w13"; "" without experts.
std::string experts_text(const ExpertsSpec& experts) {
  return experts.any()
             ? fmt::format("{} of {}, {}", experts.top_k, experts.count, name(experts.part))
             : "";
}

std::string list_models(int width) {
  Grid grid({{"model", "model"},
             {"layer", "layer"},
             {"in", "K", 0, true},
             {"out", "N"},
             {"experts", "experts", 1},
             {"count", "a step", 1, true},
             {"source", "source", 2}},
            width, false);
  std::vector<std::vector<GridCell>> lines;
  for (const ModelLayer& layer : load_models()) {
    lines.push_back({{layer.model},
                     {layer.layer},
                     {std::to_string(layer.in_features)},
                     {fmt::format("{}", fmt::join(layer.widths, "+"))},
                     {experts_text(layer.experts)},
                     {std::to_string(layer.count_per_step)},
                     {layer.source}});
    grid.widen(lines.back());
  }
  grid.fit();
  std::string text = "models\n" + grid.header();
  for (const std::vector<GridCell>& line : lines) {
    text += grid.line(line);
  }
  return text + hidden_note(grid);
}

// "2", "3 or more", "0 to 1".
std::string range_text(std::int64_t least, std::int64_t most) {
  if (least == 0 && most == kMostBlocks) {
    return "any";
  }
  if (most == kMostBlocks) {
    return fmt::format("{} or more", least);
  }
  return least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
}

std::string list_layers(int width) {
  const auto told_of = [](ReplacementRule::WhenFull full) {
    switch (full) {
      case ReplacementRule::WhenFull::kOwnForm:
        return "A and h divided too";
      case ReplacementRule::WhenFull::kAsAlways:
        return "nothing more to divide";
      default:
        return "not replaced";
    }
  };
  Grid grid({{"base", "base layer"},
             {"outputs", "outputs", 0, true},
             {"modules", "modules", 0, true},
             {"kind", "layer.kind"},
             {"full", "with fully_sharded", 1}},
            width, false);
  std::vector<std::vector<GridCell>> lines;
  for (const ReplacementRule& rule : replacement_rules()) {
    lines.push_back({{std::string(name(rule.base))},
                     {range_text(rule.least_blocks, rule.most_blocks)},
                     {range_text(rule.least_modules, rule.most_modules)},
                     {std::string(name(rule.kind))},
                     {told_of(rule.full)}});
    grid.widen(lines.back());
  }
  grid.fit();
  std::string text =
      "layers: what takes the place of a base layer with so many outputs, of which adapters name\n"
      "so many modules; the first that fits\n" +
      grid.header();
  for (const std::vector<GridCell>& line : lines) {
    text += grid.line(line);
  }
  return text + hidden_note(grid);
}

std::string list_metrics(int width) {
  std::vector<Definition> entries;
  for (const Column& column : columns()) {
    entries.push_back({column.key, column.unit.empty()
                                       ? column.meaning
                                       : fmt::format("{} [{}]", column.meaning, column.unit)});
  }
  return "metrics (columns of every results file)\n" + definitions(entries, width);
}

std::vector<Definition> told(const std::vector<HypothesisDoc>& hypotheses) {
  std::vector<Definition> named;
  for (const HypothesisDoc& hypothesis : hypotheses) {
    named.push_back({std::string(hypothesis.key), std::string(hypothesis.meaning)});
  }
  return named;
}

std::vector<Definition> told(std::span<const MetadataFaultDoc> mutants) {
  std::vector<Definition> faults;
  for (const MetadataFaultDoc& mutant : mutants) {
    faults.push_back({std::string(mutant.fault), fmt::format("form {}: {} [{}]", name(mutant.form),
                                                             mutant.meaning, mutant.source)});
  }
  return faults;
}

std::vector<Definition> told(std::span<const QuantiseFault> mutants) {
  std::vector<Definition> faults;
  for (const QuantiseFault& mutant : mutants) {
    faults.push_back(
        {std::string(mutant.fault), fmt::format("{} [{}]", mutant.meaning, mutant.source)});
  }
  return faults;
}

std::vector<Definition> told(const std::vector<MutantDoc>& mutants) {
  std::vector<Definition> faults;
  for (const MutantDoc& mutant : mutants) {
    faults.push_back({mutant.fault, fmt::format("{} [{}]", mutant.meaning, mutant.source)});
  }
  return faults;
}

std::string list_mutants(int width) {
  const std::string why_not = why_no_gpu();
  const std::string not_here =
      why_not.empty() ? "" : definitions({{"", "not here: " + why_not}}, width);
  std::vector<Definition> of_layers;
  for (const LayerFaultDoc& fault : layer_faults()) {
    of_layers.push_back(
        {std::string(fault.key), fmt::format("{} [{}]", fault.meaning, fault.source)});
  }
  return "mutants (backend mutant:FAULT)\n" + definitions(told(mutants()), width) +
         "GPU mutants (backend mutant:FAULT)\n" + not_here +
         definitions(told(gpu_mutants()), width) +
         "faults of op metadata (backend mutant:FAULT)\n" +
         definitions(told(metadata_faults()), width) +
         "faults of op quantise (backend mutant:FAULT), which a failure of it can name\n" +
         definitions(told(quantise_faults()), width) + "hypotheses that a failure can name\n" +
         definitions(told(hypotheses()), width) +
         "hypotheses that a failure of op metadata can name\n" +
         definitions(told(metadata_hypotheses()), width) +
         "faults of whole layers, mutants of `verify --self-test` that a failure can name as "
         "well\n" +
         definitions(of_layers, width);
}

std::string list_fakes(int width) {
  std::vector<Definition> entries;
  for (const FakeDoc& fake : fake_behaviours()) {
    entries.push_back({std::string(fake.behaviour.empty() ? "(none)" : fake.behaviour),
                       std::string(fake.meaning)});
  }
  return "fakes (backend fake:BEHAVIOUR)\n" + definitions(entries, width);
}

std::string list_fields(int width) {
  std::vector<Definition> entries;
  for (const FieldDoc& field : scenario_fields(tuning_rules().knobs)) {
    entries.push_back({field.path, fmt::format("{} [{}]", field.meaning, field.allowed)});
  }
  return "fields of a scenario\n" + definitions(entries, width);
}

}  // namespace

void add_list(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "list",
      "what there is: scenarios, backends, models, layers, metrics, mutants, fakes, fields");
  const auto what = std::make_shared<std::string>();
  using Lister = std::string (*)(int width);
  static const std::vector<std::pair<std::string, Lister>> kListers = {
      {"scenarios", list_scenarios}, {"backends", list_backends}, {"models", list_models},
      {"layers", list_layers},       {"metrics", list_metrics},   {"mutants", list_mutants},
      {"fakes", list_fakes},         {"fields", list_fields},
  };
  std::vector<std::string> names;
  for (const auto& [name, lister] : kListers) {
    names.push_back(name);
  }
  sub->add_option("what", *what, "one of them; without it the first three")
      ->check(CLI::IsMember(names));
  sub->callback([what, &invocation] {
    invocation.action = [what] {
      std::string text;
      for (const auto& [name, lister] : kListers) {
        const bool by_default = name == "scenarios" || name == "backends" || name == "models";
        if (*what == name || (what->empty() && by_default)) {
          text += lister(terminal_width());
        }
      }
      print_result(text);
      return ExitCode::kPass;
    };
  });
}

}  // namespace lora_bench
