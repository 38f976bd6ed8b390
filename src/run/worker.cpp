#include "run/worker.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "core/error.h"
#include "report/json_row.h"
#include "run/case_runner.h"
#include "run/describe.h"
#include "run/select.h"
#include "run/thresholds.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

void answer(char kind, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  const std::string line = fmt::format("{} {}\n", kind, text);
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t count = write(kAnswerDescriptor, line.data() + sent, line.size() - sent);
    if (count <= 0) {
      return;  // the parent is gone; the next read ends this process
    }
    sent += static_cast<std::size_t>(count);
  }
}

// "" at the end of requests.
std::string next_request() {
  std::string line;
  for (char letter = 0; read(kRequestDescriptor, &letter, 1) == 1 && letter != '\n';) {
    line += letter;
  }
  return line;
}

void share_calls() {
  void* shared =
      mmap(nullptr, sizeof(CallRecord), PROT_READ | PROT_WRITE, MAP_SHARED, kCallDescriptor, 0);
  if (shared == MAP_FAILED) {
    throw EnvironmentError("--serve-rows is for --isolate, which starts it, and not for people");
  }
  record_calls(static_cast<CallRecord*>(shared));
}

void serve_one(const RunRequest& request, const Selected& selected, Targets& targets,
               const std::string& asked) {
  std::istringstream numbers(asked);
  std::size_t scenario = 0;
  std::size_t number = 0;
  numbers >> scenario >> number;
  const Case& spec = request.scenarios.at(scenario).cases.at(number);
  const Row row = run_case({.spec = spec,
                            .backend = selected,
                            .relations = request.relations,
                            .timing = request.timing,
                            .thresholds = thresholds_of(spec, request.thresholds),
                            .repro = repro_command(spec, request.backends.front(), request)},
                           targets);
  answer(row.interrupted ? 'i' : 'r', to_json_line(row));
}

}  // namespace

ExitCode serve_rows(const RunRequest& request) {
  share_calls();
  Selected selected;
  try {
    const CallInHand loading(Call::kLoading);
    selected = select_backend(request.backends.front());
  } catch (const UsageError& error) {
    answer('u', error.what());
    return ExitCode::kUsage;
  }
  const bool on_device = selected.backend && selected.backend->space() == Space::kDevice;
  answer('s', (on_device ? "cuda " : "host ") + selected.why_not_here);
  Targets targets;
  try {
    for (std::string asked = next_request(); !asked.empty(); asked = next_request()) {
      serve_one(request, selected, targets, asked);
    }
  } catch (const EnvironmentError& error) {
    answer('e', error.what());
    return ExitCode::kEnvironment;
  }
  return ExitCode::kPass;
}

}  // namespace lora_bench
