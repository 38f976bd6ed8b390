#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/invocation.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "ops/backend.h"
#include "ops/fake.h"
#include "report/columns.h"
#include "scenario/scenario.h"
#include "verify/diagnose.h"
#include "verify/mutants.h"

namespace lora_bench {
namespace {

std::string list_scenarios() {
  const std::filesystem::path folder = scenario_folder();
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.path().extension() == ".yaml" && entry.path().filename() != "models.yaml") {
        files.push_back(entry.path());
      }
    }
  }
  std::sort(files.begin(), files.end());
  std::string text = fmt::format("scenarios in {}\n", folder.string());
  for (const std::filesystem::path& file : files) {
    const Scenario scenario = load_scenario(file, {});
    const std::string name = std::filesystem::relative(file, folder).replace_extension("").string();
    text += fmt::format("  {:<28} {:>4} case{}  {}\n", name, scenario.cases.size(),
                        scenario.cases.size() == 1 ? " " : "s", scenario.question);
  }
  return text;
}

std::string list_backends() {
  std::string text = "backends\n";
  for (const BackendEntry& entry : backend_registry()) {
    const std::string here = entry.why_not_here.empty() ? "" : "not here: " + entry.why_not_here;
    text += fmt::format("  {:<28} {}\n", entry.name, entry.summary);
    if (!here.empty()) {
      text += fmt::format("  {:<28} {}\n", "", here);
    }
  }
  text += fmt::format("  {:<28} {}\n", "mutant:FAULT",
                      "broken on purpose, to test the verifier (see `list mutants`)");
  text += fmt::format("  {:<28} {}\n", "fake:BEHAVIOUR",
                      "misbehaves on purpose, to test the tool (see `list fakes`)");
  return text;
}

std::string list_models() {
  std::string text = "models\n";
  for (const ModelLayer& layer : load_models()) {
    text += fmt::format("  {:<22} {:<8} {:>6} -> {:<20} x{:<3} {}\n", layer.model, layer.layer,
                        layer.in_features, fmt::format("{}", fmt::join(layer.widths, "+")),
                        layer.count_per_step, layer.source);
  }
  return text;
}

std::string list_metrics() {
  std::string text = "metrics (columns of every results file)\n";
  for (const Column& column : columns()) {
    const std::string unit = column.unit.empty() ? "" : fmt::format(" [{}]", column.unit);
    text += fmt::format("  {:<18} {}{}\n", column.key, column.meaning, unit);
  }
  return text;
}

std::string list_mutants() {
  std::string text = "mutants (backend mutant:FAULT)\n";
  for (const MutantDoc& mutant : mutants()) {
    text += fmt::format("  {:<28} {} [{}]\n", mutant.fault, mutant.meaning, mutant.source);
  }
  text += "hypotheses that a failure can name\n";
  for (const HypothesisDoc& hypothesis : hypotheses()) {
    text += fmt::format("  {:<28} {}\n", hypothesis.key, hypothesis.meaning);
  }
  return text;
}

std::string list_fakes() {
  std::string text = "fakes (backend fake:BEHAVIOUR)\n";
  for (const FakeDoc& fake : fake_behaviours()) {
    text += fmt::format("  {:<28} {}\n", fake.behaviour.empty() ? "(none)" : fake.behaviour,
                        fake.meaning);
  }
  return text;
}

std::string list_fields() {
  std::string text = "fields of a scenario\n";
  for (const FieldDoc& field : scenario_fields()) {
    text += fmt::format("  {:<28} {} [{}]\n", field.path, field.meaning, field.allowed);
  }
  return text;
}

}  // namespace

void add_list(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "list", "what there is: scenarios, backends, models, metrics, mutants, fakes, fields");
  const auto what = std::make_shared<std::string>();
  using Lister = std::string (*)();
  static const std::vector<std::pair<std::string, Lister>> kListers = {
      {"scenarios", list_scenarios}, {"backends", list_backends}, {"models", list_models},
      {"metrics", list_metrics},     {"mutants", list_mutants},   {"fakes", list_fakes},
      {"fields", list_fields},
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
          text += lister();
        }
      }
      print_result(text);
      return ExitCode::kPass;
    };
  });
}

}  // namespace lora_bench
