#include "cli/supervised.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <thread>

#include "cli/terminal.h"
#include "core/error.h"
#include "ops/plugin.h"
#include "run/watch.h"
#include "run/worker.h"

namespace lora_bench {
namespace {

constexpr int kDescriptor = 6;
constexpr int kNotEnded = -1;
constexpr std::chrono::seconds kTimeToLeave{10};
constexpr std::chrono::milliseconds kBetweenLooks{20};

// In memory that both processes see.
struct Supervision {
  CallRecord call{0};
  std::atomic<bool> asked_to_end{false};  // a signal may reach either of them alone, or both
  std::atomic<int> own_end{kNotEnded};    // the exit code that the child came to by itself
};

Supervision* supervisor = nullptr;  // set in the child

void* map_supervision(int memory) {
  void* shared = mmap(nullptr, sizeof(Supervision), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  return shared == MAP_FAILED ? nullptr : shared;
}

// A scenario cannot name one.
std::vector<std::string> plugins_of(const RunRequest& request) {
  std::vector<std::string> plugins;
  std::copy_if(request.backends.begin(), request.backends.end(), std::back_inserter(plugins),
               names_plugin);
  return plugins;
}

// Breakpoints in a plugin are to be met in the process that was started.
bool debugged() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("TracerPid:")) {
      return line.find_first_of("123456789") != std::string::npos;
    }
  }
  return false;
}

[[noreturn]] void cannot_start() {
  throw EnvironmentError(
      fmt::format("cannot start a process for a plugin: {}", std::strerror(errno)));
}

// Between fork and exec only what a signal handler may call.
[[noreturn]] void become(char* const* arguments, int memory) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // dup2 on itself would leave it to be closed by exec.
  if (dup2(memory == kDescriptor ? dup(memory) : memory, kDescriptor) == kDescriptor) {
    execv("/proc/self/exe", arguments);
  }
  _exit(127);
}

// The wait status of the child; nothing when it had told its exit code, and so had nothing left to
// do, and was ended as it did not leave: a thread or a destructor of a plugin may never end.
std::optional<int> wait_for(pid_t child, const Supervision& shared) {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> told;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (!told && shared.own_end.load() != kNotEnded) {
      told = Clock::now();
    }
    if (told && Clock::now() - *told > kTimeToLeave) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return std::nullopt;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return status;
}

ExitCode ended(const Supervision& shared, int status, const std::vector<std::string>& plugins,
               Makes makes) {
  const int own = shared.own_end.load();
  if (own != kNotEnded && WIFEXITED(status)) {
    return static_cast<ExitCode>(own);
  }
  if (interrupted() && WIFSIGNALED(status) &&
      (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM)) {
    std::signal(WTERMSIG(status), SIG_DFL);
    static_cast<void>(std::raise(WTERMSIG(status)));
  }
  const std::string how = how_it_ended(status, static_cast<Call>(shared.call.load()));
  if (own != kNotEnded) {
    print_note(fmt::format("lora-bench: {}, with the work done and written", how));
  } else {
    print_note(fmt::format(
        "lora-bench: with plugin {}: {}; the work ends here{}", fmt::join(plugins, ", "), how,
        makes == Makes::kRows ? ". Finished rows are in the .jsonl and .csv files of --out; with "
                                "--isolate it would have cost one row"
                              : ""));
  }
  return ExitCode::kWrongResult;
}

}  // namespace

std::optional<ExitCode> supervised(const RunRequest& request, const std::vector<std::string>& argv,
                                   Makes makes) {
  const std::vector<std::string> plugins = plugins_of(request);
  if (plugins.empty() || request.isolate || supervisor != nullptr || debugged()) {
    return std::nullopt;
  }
  std::vector<std::string> words = argv;
  words.insert(words.begin() + 1, kSupervisedFlag);
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  const int memory = memfd_create("lora-bench-supervision", MFD_CLOEXEC);
  if (memory < 0 || ftruncate(memory, sizeof(Supervision)) != 0) {
    cannot_start();
  }
  void* mapped = map_supervision(memory);
  if (mapped == nullptr) {
    cannot_start();
  }
  auto* shared = new (mapped) Supervision;
  record_interrupt(&shared->asked_to_end);
  const pid_t child = fork();
  if (child == 0) {
    become(arguments.data(), memory);
  }
  close(memory);
  if (child < 0) {
    cannot_start();
  }
  const std::optional<int> status = wait_for(child, *shared);
  if (!status) {
    print_note(
        fmt::format("lora-bench: with plugin {}: did not leave within {} s of its end, with "
                    "the work done and written, and was ended: a thread or a destructor of "
                    "the plugin goes on",
                    fmt::join(plugins, ", "), kTimeToLeave.count()));
    return static_cast<ExitCode>(shared->own_end.load());
  }
  return ended(*shared, *status, plugins, makes);
}

void join_supervisor() {
  void* mapped = map_supervision(kDescriptor);
  if (mapped == nullptr) {
    throw EnvironmentError(fmt::format("{} is not for people", kSupervisedFlag));
  }
  close(kDescriptor);
  supervisor = static_cast<Supervision*>(mapped);
  record_calls(&supervisor->call);
  record_interrupt(&supervisor->asked_to_end);
}

void tell_supervisor(int exit_code) {
  if (supervisor != nullptr) {
    supervisor->own_end.store(exit_code);
  }
}

}  // namespace lora_bench
