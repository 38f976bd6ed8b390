#include "run/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "core/error.h"
#include "device/cupti.h"
#include "device/launch_counters.h"
#include "ops/auto_tuning.h"
#include "report/json_row.h"
#include "run/case_runner.h"
#include "run/describe.h"
#include "run/run.h"
#include "run/select.h"
#include "run/watch.h"
#include "scenario/scenario.h"

namespace lora_bench {

namespace {

void answer(char kind, const std::string& word, std::string text) {
  std::fflush(nullptr);  // what a kernel printed: its parent ends this process without asking
  std::replace(text.begin(), text.end(), '\n', ' ');
  const std::string line = fmt::format("{} {} {}\n", kind, word, text);
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t count = write(kAnswerDescriptor, line.data() + sent, line.size() - sent);
    if (count <= 0) {
      return;  // the parent is gone; the next read ends this process
    }
    sent += static_cast<std::size_t>(count);
  }
}

struct Request {
  std::string word;
  std::string text;  // "" at the end of requests
};

// A parent asks again only when it was answered: nothing follows the end of a line.
Request next_request() {
  std::string line;
  std::array<char, 4096> part{};
  while (line.empty() || line.back() != '\n') {
    const ssize_t count = read(kRequestDescriptor, part.data(), part.size());
    if (count <= 0) {
      return {};
    }
    line.append(part.data(), static_cast<std::size_t>(count));
  }
  line.pop_back();
  const std::size_t space = std::min(line.find(' '), line.size());
  return {line.substr(0, space), line.substr(std::min(space + 1, line.size()))};
}

void share_calls() {
  void* shared =
      mmap(nullptr, sizeof(CallRecord), PROT_READ | PROT_WRITE, MAP_SHARED, kCallDescriptor, 0);
  if (shared == MAP_FAILED) {
    throw EnvironmentError("workers are started by --isolate and by fuzz, and not by people");
  }
  record_calls(static_cast<CallRecord*>(shared));
}

// What a worker has made and goes on with from one request to the next.
struct Desk {
  Desk(double most_seconds, bool mirrored)
      : targets(mirrored), most_seconds_of_loading(most_seconds) {}

  std::map<std::string, Selected> backends;  // by spelling
  Targets targets;
  KeptGroundwork groundwork;

  double most_seconds_of_loading;

  const Selected& backend(const std::string& spelling) {
    auto found = backends.find(spelling);
    if (found == backends.end()) {
      const CallInHand loading(Call::kLoading);
      found = backends.emplace(spelling, load(spelling)).first;
    }
    return found->second;
  }
  [[nodiscard]] Selected load(const std::string& spelling) const {
    return select_backend(spelling, most_seconds_of_loading);
  }
};

// Row by request until there are no more.
using RowOf = std::function<Row(Desk& desk, const std::string& asked)>;

ExitCode serve(const std::vector<std::string>& spellings, double most_seconds_of_loading,
               bool mirrored, const RowOf& row_of) {
  share_calls();
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a crash takes no line along that was printed
  Desk desk(most_seconds_of_loading, mirrored);
  std::string ready;
  bool on_device = false;
  try {
    for (const std::string& spelling : spellings) {
      const Selected& selected = desk.backend(spelling);
      on_device = on_device || runs_on_gpu(selected);
      ready = fmt::format("{}\t{}\t{}", on_device ? "cuda" : "host", selected.why_not_here,
                          selected.plugin);
    }
  } catch (const UsageError& error) {
    answer('u', kNoRequest, error.what());
    return ExitCode::kUsage;
  } catch (const LoadingHung& error) {
    answer('h', kNoRequest, error.what());
    return ExitCode::kWrongResult;
  }
  answer('s', kNoRequest, ready);
  Request asked;
  try {
    for (asked = next_request(); !asked.text.empty(); asked = next_request()) {
      const Row row = row_of(desk, asked.text);
      answer(row.interrupted ? 'i' : 'r', asked.word, to_json_line(row));
    }
  } catch (const EnvironmentError& error) {
    answer('e', asked.word, error.what());
    return ExitCode::kEnvironment;
  }
  return ExitCode::kPass;
}

}  // namespace

ExitCode serve_rows(const RunRequest& request) {
  const double most_seconds = request.scenarios.front().cases.front().verify.timeout_s;
  const CountLaunch count = request.counters ? count_by_own_session() : nullptr;
  return serve(request.backends, most_seconds, mirrors_buffers(request),
               [&](Desk& desk, const std::string& asked) {
                 std::istringstream numbers(asked);
                 std::size_t scenario = 0;
                 std::size_t number = 0;
                 std::string spelling;
                 numbers >> scenario >> number >> std::ws;
                 std::getline(numbers, spelling);
                 const Case& spec = request.scenarios.at(scenario).cases.at(number);
                 const Selected& backend = desk.backend(spelling);
                 return run_case({.spec = spec,
                                  .backend = backend,
                                  .relations = request.relations,
                                  .timing = request.timing,
                                  .touch = request.touch,
                                  .thresholds = thresholds_of(spec, request.thresholds),
                                  .repro = repro_command(spec, spelling, request),
                                  .count = runs_on_gpu(backend) ? count : nullptr},
                                 desk.targets, desk.groundwork);
               });
}

ExitCode serve_cases(const std::vector<std::string>& spellings, double timeout_s) {
  return serve(spellings, timeout_s, true, [](Desk& desk, const std::string& asked) {
    const nlohmann::json request = nlohmann::json::parse(asked);
    const std::string spelling = request.at("backend");
    if (request.at("fresh")) {
      desk.backends.insert_or_assign(spelling, desk.load(spelling));
    }
    const Scenario scenario =
        parse_scenario(request.at("scenario"), "case.yaml", {.tuning = tuning_rules()});
    return run_case({.spec = scenario.cases.front(),
                     .backend = desk.backend(spelling),
                     .relations = false,  // the case says it itself
                     .timing = false,
                     .touch = false,
                     .thresholds = {},
                     .repro = {}},
                    desk.targets, desk.groundwork);
  });
}

std::string request_for_case(const Case& spec, const std::string& spelling, bool fresh_backend) {
  return nlohmann::json{
      {"fresh", fresh_backend}, {"backend", spelling}, {"scenario", scenario_text(spec)}}
      .dump();
}

namespace {

// Above those that a child's are moved to, so that none is closed by moving another.
constexpr int kLeastDescriptor = 16;

[[noreturn]] void no_child() {
  throw EnvironmentError(
      fmt::format("cannot start a process for a backend: {}", std::strerror(errno)));
}

int moved_up(int descriptor) {
  const int high = fcntl(descriptor, F_DUPFD_CLOEXEC, kLeastDescriptor);
  close(descriptor);
  if (high < 0) {
    no_child();
  }
  return high;
}

struct Ends {
  int read = -1;
  int write = -1;
};

Ends make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    no_child();
  }
  return {moved_up(ends[0]), moved_up(ends[1])};
}

int make_record() {
  const int memory = memfd_create("lora-bench-call", MFD_CLOEXEC);
  if (memory < 0 || ftruncate(memory, sizeof(CallRecord)) != 0) {
    no_child();
  }
  return moved_up(memory);
}

CallRecord* map_record(int memory) {
  void* shared = mmap(nullptr, sizeof(CallRecord), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (shared == MAP_FAILED) {
    no_child();
  }
  return new (shared) CallRecord(0);
}

// Between fork and exec only what a signal handler may call.
[[noreturn]] void become(char* const* arguments, int requests, int answers, int record) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(requests, kRequestDescriptor);
  dup2(answers, kAnswerDescriptor);
  dup2(record, kCallDescriptor);
  dup2(STDERR_FILENO, STDOUT_FILENO);  // what a kernel prints is no result
  execv("/proc/self/exe", arguments);
  _exit(127);
}

}  // namespace

Child::Child(const std::vector<std::string>& command) {
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  const Ends requests = make_pipe();
  const Ends answers = make_pipe();
  const int record = make_record();
  call_ = map_record(record);
  process_ = fork();
  if (process_ == 0) {
    become(arguments.data(), requests.read, answers.write, record);
  }
  close(requests.read);
  close(answers.write);
  close(record);
  requests_ = requests.write;
  answers_ = answers.read;
  if (process_ < 0) {
    no_child();
  }
}

Child::~Child() {
  end();
  close(requests_);
  close(answers_);
  munmap(call_, sizeof(CallRecord));
}

void Child::end() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }
}

void Child::request(const std::string& line) {
  std::random_device chance;
  word_ = fmt::format("{:08x}{:08x}", chance(), chance());
  const std::string text = word_ + " " + line + "\n";
  // One that ended is told by the answer that does not come.
  static_cast<void>(!write(requests_, text.data(), text.size()));
}

bool Child::wait_for_letter(std::optional<double> most_seconds) const {
  pollfd end{answers_, POLLIN, 0};
  const int most_ms = most_seconds ? static_cast<int>(*most_seconds * 1000) : -1;
  int ready = 0;
  do {
    ready = poll(&end, 1, most_ms);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

Answer Child::answer(std::optional<double> most_seconds) {
  if (!wait_for_letter(most_seconds)) {
    end();
    return {'x', fmt::format("did not load within {} s", *most_seconds)};
  }
  std::string line;
  std::array<char, 4096> part{};
  while (line.empty() || line.back() != '\n') {
    const ssize_t count = read(answers_, part.data(), part.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return {'x', how_it_ended()};
    }
    line.append(part.data(), static_cast<std::size_t>(count));
  }
  line.pop_back();
  return read_answer(line);
}

Answer Child::read_answer(const std::string& line) {
  const std::string head = " " + word_ + " ";
  if (line.size() <= head.size() || line.substr(1, head.size()) != head ||
      line.find('\n') != std::string::npos) {
    end();
    return {'x',
            "its process answered what was not asked: the backend writes into file descriptors "
            "that it did not open"};
  }
  return {line.front(), line.substr(1 + head.size())};
}

std::string Child::how_it_ended() {
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  return lora_bench::how_it_ended(status, static_cast<Call>(call_->load()));
}

std::string how_it_ended(int status, Call last) {
  if (WIFSIGNALED(status)) {
    return fmt::format("crashed: signal {} ({}) in {}", WTERMSIG(status),
                       strsignal(WTERMSIG(status)), name(last));
  }
  return fmt::format("ended the program: exit code {} in {}", WEXITSTATUS(status), name(last));
}

}  // namespace lora_bench
