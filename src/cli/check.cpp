#include "run/check.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/invocation.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "report/json_row.h"

namespace lora_bench {
namespace {

struct CheckCommand {
  CheckRequest request;
  std::string exported, output, partial, intermediate, bias_added;
  bool json = false;
};

std::optional<Dtype> dtype_of(const std::string& text) {
  return text.empty() ? std::nullopt : named<Dtype>(text);
}

std::string verdict_text(const CheckReport& report) {
  const Verdict& verdict = report.verdict;
  std::string text = fmt::format("{} {}", name(verdict.status), report.row.id.case_id);
  if (verdict.status == Status::kPassed && report.row.step.op == name(Op::kQuantise)) {
    text += fmt::format(": {} codes and scales, bit for bit", verdict.compared);
  } else if (verdict.status == Status::kPassed) {
    const double most = verdict.rows_checked < 1 ? 99 : 100;  // 100 % are all
    text += fmt::format(": {} elements, {:.0f} % of the rows in full; {:.2g} of the bound needed",
                        verdict.compared, std::min(100 * verdict.rows_checked, most),
                        verdict.bound_share);
  }
  text += verdict.message.empty() ? "\n" : fmt::format("\n  {}\n", verdict.message);
  if (verdict.failure) {
    for (const Mismatch& mismatch : verdict.failure->first) {
      text += fmt::format("    {}\n", describe(mismatch));
    }
  }
  return text;
}

ExitCode execute(const CheckCommand& command) {
  CheckRequest request = command.request;
  request.exported = command.exported;
  request.output = command.output;
  request.declared.partial = dtype_of(command.partial);
  request.declared.intermediate = dtype_of(command.intermediate);
  request.declared.bias_added =
      named<BiasAdded>(command.bias_added).value_or(BiasAdded::kWithDelta);
  const CheckReport report = check(request);
  print_result(command.json ? to_json_line(report.row) + "\n" : verdict_text(report));
  return exit_code(report.verdict.status);
}

void add_declarations(CLI::App& sub, CheckCommand& command) {
  const CLI::IsMember dtypes({"fp32", "bf16", "fp16"});
  DeclaredNumerics& declared = command.request.declared;
  sub.add_option("--unit-roundoff", declared.unit_roundoff,
                 "declares the error of one accumulation; without it 2^-23, of tensor cores")
      ->check(CLI::Range(0x1p-53, 0x1p-8));
  sub.add_option("--shrink-depth", declared.shrink_depth,
                 "declares the additions on the longest path of a sum over K; without it K")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31));
  sub.add_option("--expand-depth", declared.expand_depth,
                 "the same over the rank, bias and y; without it the rank + 2")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31));
  sub.add_option("--partials", declared.partials,
                 "declares how many stored partial sums meet in an element of h; without it 1")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  sub.add_option("--partial", command.partial, "declares their dtype; without it fp32")
      ->check(dtypes);
  sub.add_option(
         "--terms", declared.terms,
         "declares that h is the sum of so many shards' terms, which are kept in its dtype, "
         "as their sums are; without it 1")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  sub.add_option("--intermediate", command.intermediate,
                 "declares in which dtype h is kept; without it the case's")
      ->check(dtypes);
  sub.add_flag("--rounds-delta", declared.rounds_delta,
               "declares that delta is rounded before it is added to y");
  sub.add_flag(
      "--rounds-once", declared.rounds_once,
      "declares that y before the op was not rounded to its dtype: it and delta are rounded "
      "once, together");
  sub.add_flag("--casts-h", declared.casts_h,
               "declares that h is rounded to the dtype of B before it is multiplied with it");
  sub.add_option("--bias-added", command.bias_added,
                 "declares that y + bias is rounded before delta is added, or y + delta before the "
                 "bias is; without it they are one sum")
      ->check(CLI::IsMember({"with-delta", "before", "after"}));
}

}  // namespace

void add_check(CLI::App& app, Invocation& invocation) {
  CLI::App* sub =
      app.add_subcommand("check", "prove a result that anything computed from what `export` wrote");
  const auto command = std::make_shared<CheckCommand>();
  sub->add_option("case", command->exported, "CASE.safetensors, written by `export`")->required();
  sub->add_option("--output", command->output, "safetensors file with the result")
      ->required()
      ->type_name("FILE");
  sub->add_option(
      "--tensor", command->request.tensor,
      "its name in there; without it output, or the only one; of op quantise q and q_scale");
  sub->add_option("--before", command->request.before,
                  "a tensor in there: y before the op; without it that of the case");
  add_declarations(*sub, *command);
  sub->add_flag("--json", command->json,
                "print the verdict as one line of JSON with the keys of a row");
  sub->callback(
      [command, &invocation] { invocation.action = [command] { return execute(*command); }; });
}

}  // namespace lora_bench
