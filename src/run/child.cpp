#include "run/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <random>

#include "core/error.h"
#include "run/worker.h"

namespace lora_bench {
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
