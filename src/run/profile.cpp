#include "run/profile.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/units.h"
#include "device/cupti.h"
#include "measure/lone_launch.h"
#include "run/describe.h"
#include "run/select.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

// Everything the working thread touches, owned here, so that a hung backend can be left behind.
struct ProfiledLaunch {
  Case spec;
  std::shared_ptr<Pulse> pulse = std::make_shared<Pulse>();
  std::shared_ptr<const Backend> backend;
  std::shared_ptr<Memory> memory;
  DeviceFacts facts;
  std::string why_not;
};

void launch_in_range(ProfiledLaunch& launch) {
  const Case& spec = launch.spec;
  const Backend& backend = *launch.backend;
  Memory& memory = *launch.memory;
  const Problem problem = make_problem(spec);
  const Support support = backend.supports(problem, launch.facts);
  if (!support.yes) {
    launch.why_not = support.why_not;
    return;
  }
  LoneLaunch lone(problem, spec.seed, CacheMode::kCold, backend, memory, launch.facts);
  lone.warm_up();
  lone.prepare();
  const ProfilerRange range(spec.id + ' ' + std::string(backend.name()));
  lone.launch();
  memory.synchronize();
}

ProfiledRow outcome(const PlannedRow& planned, Targets& targets) {
  const Selected selected = select_backend(planned.spelling, planned.spec->verify.timeout_s);
  if (!selected.backend) {
    return {Status::kSkipped, selected.why_not_here};
  }
  if (selected.backend->space() == Space::kHost) {
    return {Status::kSkipped,
            fmt::format("{} runs on the host: nothing for ncu to see", planned.backend)};
  }
  return profile_row(*planned.spec, selected.backend, targets);
}

std::string command_of_ncu(const RunRequest& request) {
  std::string command =
      "ncu --target-processes all --nvtx --nvtx-include lora-bench/ --cache-control none "
      "--clock-control none";
  for (const std::string& word : request.argv) {
    command += " " + shell_quoted(word);
  }
  return command + "\n";
}

}  // namespace

ProfiledRow profile_row(const Case& spec, std::shared_ptr<const Backend> backend,
                        Targets& targets) {
  const Space space = backend->space();
  const auto launch = std::make_shared<ProfiledLaunch>();
  launch->spec = spec;
  launch->backend = watched(std::move(backend), launch->pulse);
  launch->memory = watched(targets.memory(space), launch->pulse);
  launch->facts = targets.facts(space);
  const double timeout_s = spec.verify.timeout_s;
  const auto stop = [&] { return interrupted() || launch->pulse->seconds_inside() > timeout_s; };
  try {
    if (!run_unless(stop, [launch] { launch_in_range(*launch); })) {
      return interrupted()
                 ? ProfiledRow{Status::kSkipped, "interrupted", true}
                 : ProfiledRow{Status::kHung, fmt::format("did not return within {} s", timeout_s)};
    }
  } catch (const EnvironmentError&) {
    throw;
  } catch (const std::exception& error) {
    return {Status::kError, error.what()};
  }
  return launch->why_not.empty() ? ProfiledRow{Status::kPassed, "launched once in the range"}
                                 : ProfiledRow{Status::kSkipped, launch->why_not};
}

ProfileReport profile(const RunRequest& request, const std::vector<PlannedRow>& planned) {
  Targets targets;
  ProfileReport report;
  bool launched = false;
  for (const PlannedRow& each : planned) {
    const std::string names =
        fmt::format("{} {} {}", each.spec->scenario, each.spec->id, each.backend);
    ProfiledRow row;
    try {
      row = outcome(each, targets);
    } catch (const EnvironmentError& error) {
      throw EnvironmentError(fmt::format("{}: {}", names, error.what()));
    }
    const bool went_wrong = row.status == Status::kHung || row.status == Status::kError;
    report.text += fmt::format("{}: {}{}\n", names,
                               went_wrong ? fmt::format("{}: ", name(row.status)) : "", row.told);
    report.exit = worse(report.exit, exit_code(row.status));
    launched = launched || row.status == Status::kPassed;
    report.interrupted = row.interrupted || interrupted();
    if (report.interrupted) {
      report.exit = worse(report.exit, ExitCode::kInconclusive);
    }
    if (row.status == Status::kHung) {
      report.exit = worse(report.exit, ExitCode::kEnvironment);  // it still holds the device
    }
    if (report.interrupted || row.status == Status::kHung) {
      break;
    }
  }
  if (!launched && report.exit == ExitCode::kPass) {
    throw UsageError("nothing to profile:\n" + report.text);
  }
  report.text += launched ? command_of_ncu(request) : "";
  return report;
}

}  // namespace lora_bench
