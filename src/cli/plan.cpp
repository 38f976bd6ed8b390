#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>

#include "cli/invocation.h"
#include "cli/selection.h"
#include "cli/supervised.h"
#include "cli/terminal.h"
#include "core/units.h"
#include "measure/measure.h"
#include "measure/metadata_time.h"
#include "measure/quantise_time.h"
#include "ops/auto_choice.h"
#include "ops/auto_tuning.h"
#include "report/columns.h"
#include "report/grid.h"
#include "run/case_runner.h"
#include "run/describe.h"
#include "run/form.h"
#include "run/row_of.h"
#include "run/select.h"
#include "run/target.h"
#include "run/watch.h"
#include "workload/tensors.h"

namespace lora_bench {
namespace {

struct PlanOptions {
  Selection selection;
  bool explain = false;
  std::string form;  // "" = rows
  bool json = false;
};

// What a row costs beside its timing (data drawn three times, uploads, the oracle) goes with the
// bytes of its operands: an idle machine's rate, and that of a busy one with many rows to compare.
constexpr double kProofBytesPerSecond = 0.2e9;
constexpr double kSlowProofBytesPerSecond = 0.03e9;
constexpr double kMostSecondsBesides = 0.5;  // threads, buffers, graphs, looks at single launches

struct Span {
  double least_s = 0, most_s = 0;
};

// Launches of a proof, and how many times its floor a slow launch takes.
constexpr double kProofLaunches = 4;
constexpr double kSlowLaunch = 4;

// Sampling ends between min_time_ms and max_time_ms, and only the noise tells when; but not before
// the least samples. A layer is timed with and without its adapters.
void add_row(Span& span, const Case& spec, const Row& row, const Problem& problem) {
  const auto bytes = static_cast<double>(std::max(tensor_bytes(problem), row.step.bytes));
  const double launch_s = row.floor.us.value_or(0) * 1e-6 * (has_base(spec.op) ? 2 : 1) *
                          static_cast<double>(spec.setup.tp);
  span.least_s += bytes / kProofBytesPerSecond + kProofLaunches * launch_s;
  span.most_s += bytes / kSlowProofBytesPerSecond + kMostSecondsBesides +
                 kProofLaunches * kSlowLaunch * launch_s;
  if (spec.measure.enabled) {
    const double samples_s = static_cast<double>(spec.measure.min_samples + 1) * launch_s;
    span.least_s += std::max((spec.measure.warmup_ms + spec.measure.min_time_ms) * 1e-3, samples_s);
    span.most_s += std::max((spec.measure.warmup_ms + spec.measure.max_time_ms) * 1e-3,
                            kSlowLaunch * samples_s);
  }
}

struct Explanation {
  std::vector<std::string> sentences;
  Tuning tuning;  // that is launched so again
};

struct Line {
  std::vector<GridCell> cells;
  std::string note;  // why the row will be SKIPPED, "" = it will not
  Explanation explanation;
};

struct Totals {
  Span time;
  std::int64_t largest_bytes = 0;
  std::int64_t skipped = 0;
};

// Columns of the registry and what is left out first on a narrow screen.
constexpr std::array<std::pair<const char*, int>, 8> kKeys{{{"case", 0},
                                                            {"backend", 0},
                                                            {"tokens", 4},
                                                            {"active", 6},
                                                            {"rank", 5},
                                                            {"bytes", 2},
                                                            {"flops", 7},
                                                            {"floor_us", 1}}};

Grid plan_grid(int width) {
  std::vector<GridColumn> grid;
  for (const auto& [key, priority] : kKeys) {
    const Column& column = *find_column(key);
    grid.push_back({column.key, column.header, priority, column.type != CellType::kText});
  }
  grid.push_back({"memory", "memory", 3, true});
  return {std::move(grid), width, false};
}

Line plan_line(const PlannedRow& planned, Targets& targets, Totals& totals) {
  const Case& spec = *planned.spec;
  const CaseStep step = step_of(spec);
  const Problem& problem = step.op;
  const Selected selected = select_backend(planned.spelling, spec.verify.timeout_s);
  Line line;
  line.note = selected.why_not_here;
  std::int64_t memory = tensor_bytes(problem);
  Outcome before;
  if (selected.backend) {
    const Space space = selected.backend->space();
    before.ceilings = targets.ceilings(space);
    const DeviceFacts& facts = targets.facts(space);
    if (step.metadata) {
      memory = metadata_bytes(*step.metadata, spec.measure.cache, facts.cache_bytes);
    } else if (step.quantise) {
      memory = quantise_bytes(step.quantise->problem, spec.measure.cache, facts.cache_bytes);
    } else if (step.layer) {
      memory = layer_measurement_bytes(*step.layer, spec.measure.cache, facts.cache_bytes);
    } else {
      memory = std::max(memory, measurement_bytes(problem, spec.measure.cache, facts.cache_bytes));
    }
    const auto backend = watched(selected.backend, std::make_shared<Pulse>());
    const Support support =
        step.metadata   ? metadata_support(*backend, step.metadata->problem, facts)
        : step.quantise ? quantise_support(*backend, step.quantise->problem, facts)
                        : backend->supports(problem, facts);
    line.note = support.why_not;
    if (support.yes) {
      line.note = why_no_room(memory, targets.memory(space)->available_bytes());
    }
  }
  const Row row = row_of({.spec = spec, .backend = selected}, step, before);
  if (line.note.empty()) {
    add_row(totals.time, spec, row, problem);
    totals.largest_bytes = std::max(totals.largest_bytes, memory);
  } else {
    ++totals.skipped;
  }
  for (const auto& [key, priority] : kKeys) {
    const Column& column = *find_column(key);
    line.cells.push_back({screen_text(column, column.get(row))});
  }
  line.cells.push_back({format_bytes(static_cast<double>(memory))});
  return line;
}

std::string totals_text(std::int64_t rows, const Totals& totals) {
  std::string text = fmt::format("{} row{}", rows, rows == 1 ? "" : "s");
  text += totals.skipped == 0 ? "" : fmt::format(", {} of them SKIPPED", totals.skipped);
  return totals.skipped == rows
             ? text
             : text + fmt::format(
                          ", about {} to {} on an idle machine, at most {} of memory at a time",
                          format_seconds(totals.time.least_s), format_seconds(totals.time.most_s),
                          format_bytes(static_cast<double>(totals.largest_bytes)));
}

void add(Explanation& explanation, const AutoDevice& device, const Problem& launched) {
  const std::vector<std::string> sentences = explain_auto(device, launched);
  explanation.sentences.insert(explanation.sentences.end(), sentences.begin(), sentences.end());
}

// Of a layer the adapters of one shard: what a GPU that had the whole layer would launch is another
// thing.
Explanation explanation_of_layer(const AutoDevice& device, const Case& spec, LayerProblem layer) {
  if (spec.setup.overlap != Overlap::kAuto) {
    layer.overlap = spec.setup.overlap;
  }
  if (layer.overlap == Overlap::kFused) {
    return {
        {"overlap fused: the launch of the base makes the adapters' part, and `auto` none; a row "
         "whose sizes or device do not allow that is SKIPPED"},
        {}};
  }
  const ShardProblem part = shard_problem(layer, 0);
  Explanation explanation{
      {fmt::format("adapters of {}, apart from the base; a row of overlap fused has them in the "
                   "base's launch",
                   spec.setup.tp == 1 ? "the layer" : fmt::format("shard 0 of {}", spec.setup.tp))},
      tuning_of_choice(device, part.lora)};
  add(explanation, device, part.lora);
  if (part.expand) {
    for (const KnobValue& said : tuning_of_choice(device, *part.expand)) {
      explanation.tuning = with_value(explanation.tuning, said);
    }
    add(explanation, device, *part.expand);
  }
  return explanation;
}

// On the GPU here, or on an H200 where there is none.
Explanation explanation_of(const PlannedRow& planned, Targets& targets) {
  const Case& spec = *planned.spec;
  const AutoDevice device =
      why_no_gpu().empty() ? auto_device(targets.facts(Space::kDevice)) : AutoDevice{};
  const CaseStep step = step_of(spec);
  return step.layer ? explanation_of_layer(device, spec, *step.layer)
                    : Explanation{explain_auto(device, step.op), tuning_of_choice(device, step.op)};
}

// The tuning stands on one line, however narrow the screen is, to be copied into a scenario.
std::string explanation_text(const Explanation& explanation, int width) {
  constexpr std::size_t kIndent = 4;
  std::string text;
  for (const std::string& sentence : explanation.sentences) {
    text += wrapped(sentence, width, kIndent);
  }
  const std::string tuning = tuning_text(explanation.tuning);
  return tuning.empty() ? text : text + fmt::format("{:{}}tuning: {{{}}}\n", "", kIndent, tuning);
}

// The batches of the cases, each once, whatever backends would run them.
ExitCode print_forms(const PlanOptions& options, const std::vector<PlannedRow>& planned) {
  std::string text;
  const Case* last = nullptr;
  for (const PlannedRow& row : planned) {
    if (row.spec == last) {
      continue;
    }
    last = row.spec;
    const FormOfCase form = form_of(*row.spec, *named<Form>(options.form));
    text +=
        options.json ? form_json(*row.spec, form) : form_table(*row.spec, form, terminal_width());
  }
  print_result(text);
  return ExitCode::kPass;
}

ExitCode execute(const PlanOptions& options, const Invocation& invocation) {
  const RunRequest request = request_for(options.selection);
  if (const auto code = supervised(request, invocation.argv, Makes::kOther)) {
    return *code;
  }
  const std::vector<PlannedRow> planned = plan_rows(request);
  if (!options.form.empty()) {
    return print_forms(options, planned);
  }
  Targets targets;
  Totals totals;
  Grid grid = plan_grid(terminal_width());
  std::vector<Line> lines;
  bool explained = false;
  for (const PlannedRow& row : planned) {
    lines.push_back(plan_line(row, targets, totals));
    if (options.explain && row.spelling == "auto") {
      lines.back().explanation = explanation_of(row, targets);
      explained = true;
    }
    grid.widen(lines.back().cells);
  }
  grid.fit();
  std::string text = grid.header();
  for (const Line& line : lines) {
    text += grid.line(line.cells);
    text += line.note.empty() ? "" : wrapped("SKIPPED: " + line.note, grid.width(), 4);
    text += explanation_text(line.explanation, grid.width());
  }
  if (options.explain && !explained) {
    text += wrapped("no row of backend auto to explain: add --backends auto", grid.width(), 0);
  }
  if (explained && !why_no_gpu().empty()) {
    text += wrapped("explained as on an NVIDIA H200: there is no GPU here", grid.width(), 0);
  }
  text += wrapped(totals_text(static_cast<std::int64_t>(planned.size()), totals), grid.width(), 0);
  print_result(text + hidden_note(grid));
  print_notes_on_tuning(request, planned);
  return ExitCode::kPass;
}

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "plan", "print the cases of scenarios without running them: sizes, floor, memory, time");
  const auto options = std::make_shared<PlanOptions>();
  add_selection(*sub, options->selection, true);
  sub->add_flag("--explain", options->explain,
                "what backend auto would launch for each case and why, and the tuning that says "
                "so; without a "
                "GPU as on an H200");
  const std::vector<std::string> forms(EnumNames<Form>::kNames.begin(),
                                       EnumNames<Form>::kNames.end());
  CLI::Option* form =
      sub->add_option("--form", options->form,
                      fmt::format("print the batch of each case in this form of docs/plan.md "
                                  "instead: {}",
                                  fmt::join(forms, ", ")))
          ->check(CLI::IsMember(forms));
  sub->add_flag("--json", options->json, "with --form: a line of JSON for each case, all entries")
      ->needs(form);
  sub->callback([options, &invocation] {
    invocation.action = [options, &invocation] { return execute(*options, invocation); };
  });
}

}  // namespace lora_bench
