#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/invocation.h"
#include "cli/terminal.h"
#include "core/units.h"
#include "core/version.h"
#include "device/facts.h"
#include "measure/ceilings.h"
#include "report/json_row.h"
#include "run/context.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

std::string facts_text(const DeviceFacts& facts) {
  std::string text = fmt::format("{} ({})\n", facts.name, facts.kind);
  const auto line = [&](std::string_view what, const std::string& value) {
    if (!value.empty()) {
      text += fmt::format("  {:<16} {}\n", what, value);
    }
  };
  line("identity", facts.identity);
  line("driver", facts.driver);
  line("runtime", facts.runtime);
  line(facts.kind == "cuda" ? "SMs" : "cores", std::to_string(facts.multiprocessors));
  line("last cache", format_bytes(static_cast<double>(facts.cache_bytes)));
  line("memory", format_bytes(static_cast<double>(facts.memory_bytes)));
  return text;
}

std::string ceilings_text(const Ceilings& ceilings) {
  std::string text =
      fmt::format("  {:<16} {:>10} {:>12} {:>10} {:>12}{}\n", "bytes", "memory_us", "memory_GBps",
                  "cache_us", "cache_GBps", ceilings.again_curve.empty() ? "" : "   again_us");
  for (std::size_t i = 0; i < ceilings.memory_curve.size(); ++i) {
    const Ceilings::Point& cold = ceilings.memory_curve[i];
    text +=
        fmt::format("  {:<16} {:>10.2f} {:>12.0f}", format_bytes(static_cast<double>(cold.bytes)),
                    cold.seconds * 1e6, static_cast<double>(cold.bytes) / cold.seconds * 1e-9);
    if (i < ceilings.cache_curve.size()) {
      const Ceilings::Point& hot = ceilings.cache_curve[i];
      text += fmt::format(" {:>10.2f} {:>12.0f}", hot.seconds * 1e6,
                          static_cast<double>(hot.bytes) / hot.seconds * 1e-9);
    }
    const auto again = std::ranges::find(ceilings.again_curve, cold.bytes, &Ceilings::Point::bytes);
    if (again != ceilings.again_curve.end()) {
      text += fmt::format(" {:>10.2f}", again->seconds * 1e6);
    }
    text += '\n';
  }
  text += fmt::format("  {:<16} {:.0f} GB/s read + written\n", "copy",
                      ceilings.copy_bytes_per_s * 1e-9);
  for (const Ceilings::Peak& peak : ceilings.peaks) {
    text += fmt::format("  {:<16} {:.3g} TFLOP/s\n", fmt::format("product {}", name(peak.dtype)),
                        peak.flops_per_s * 1e-12);
  }
  if (ceilings.product_flops_per_s > 0) {
    text += fmt::format("  {:<16} {:.3g} TFLOP/s\n", "Eigen fp32",
                        ceilings.product_flops_per_s * 1e-12);
  }
  text +=
      fmt::format("  {:<16} {:.2f} us; {:.2f} us where it updates what the one before wrote\n",
                  "launch", ceilings.launch_seconds * 1e6, ceilings.update_launch_seconds * 1e6);
  if (ceilings.load > kDisturbingLoad) {
    text += fmt::format(
        "  measured under load {:.1f} per core; when it is quiet: lora-bench device --refresh\n",
        ceilings.load);
  }
  return text;
}

// False when somebody asked to end before the ceilings were measured.
bool tell(const DeviceFacts& device, bool refresh) {
  print_result(facts_text(device));
  const auto ceilings = std::make_shared<Ceilings>();
  const bool measured =
      run_unless(interrupted, [=] { *ceilings = obtain_ceilings(device, refresh); });
  print_result(measured ? ceilings_text(*ceilings)
                        : "interrupted: the ceilings were not measured to the end, and those that "
                          "were stored before stay\n");
  return measured;
}

// The context line that a results file of this machine begins with, one for each device.
ExitCode tell_contexts(const std::vector<std::string>& argv) {
  print_result(to_json_line(make_context(cpu_facts(), {}, argv)) + "\n");
  if (why_no_gpu().empty()) {
    print_result(to_json_line(make_context(gpu_facts(), {}, argv)) + "\n");
  }
  return ExitCode::kPass;
}

// A GPU that this build has no code for is as good as none.
std::string built_for() {
  const std::string_view architectures = build_facts().cuda_architectures;
  return architectures.empty()
             ? "this build has no CUDA code\n"
             : fmt::format("this build has CUDA code for {}\n", architectures_text(architectures));
}

ExitCode execute(bool refresh) {
  if (!tell(cpu_facts(), refresh)) {
    return ExitCode::kInconclusive;
  }
  print_result(built_for());
  const std::string reason = why_no_gpu();
  if (!reason.empty()) {
    print_result(fmt::format("no GPU: {}\n", reason));
    return ExitCode::kPass;
  }
  return tell(gpu_facts(), refresh) ? ExitCode::kPass : ExitCode::kInconclusive;
}

}  // namespace

void add_device(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "device", "print this machine and its measured ceilings, measuring them once");
  const auto refresh = std::make_shared<bool>(false);
  const auto json = std::make_shared<bool>(false);
  sub->add_flag("--refresh", *refresh, "measure the ceilings anew");
  sub->add_flag("--json", *json,
                "print the first line of a results file for each device, measuring nothing");
  sub->callback([refresh, json, &invocation] {
    invocation.action = [refresh, json, &invocation] {
      return *json ? tell_contexts(invocation.argv) : execute(*refresh);
    };
  });
}

}  // namespace lora_bench
