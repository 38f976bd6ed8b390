#include "support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace lora_bench::test {
namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw std::runtime_error("pipe2 failed");
    }
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  static void close_end(int& end) {
    if (end >= 0) {
      close(end);
    }
    end = -1;
  }
  int read = -1;
  int write = -1;
};

void set_limit(__rlimit_resource_t resource, const std::optional<std::int64_t>& limit) {
  if (limit) {
    const rlimit value{static_cast<rlim_t>(*limit), static_cast<rlim_t>(*limit)};
    setrlimit(resource, &value);
  }
}

[[noreturn]] void become(const std::vector<std::string>& command, const ProcessOptions& options) {
  std::signal(SIGPIPE, SIG_DFL);
  set_limit(RLIMIT_FSIZE, options.file_size_limit);
  set_limit(RLIMIT_AS, options.memory_limit);
  for (const auto& [name, value] : options.environment) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) {
    _exit(126);
  }
  std::vector<char*> arguments;
  for (const std::string& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  _exit(127);
}

bool filled(const std::string& path, std::uintmax_t least_bytes) {
  std::error_code error;
  return std::filesystem::file_size(path, error) > least_bytes && !error;
}

// Reads both ends until the child closes them, sending the signal when its moment has come.
void collect(pid_t child, Pipe& out, Pipe& err, const ProcessOptions& options,
             ProcessResult& result) {
  constexpr int kPollMilliseconds = 5;
  bool signalled = options.signal == 0;
  std::array<char, 65536> buffer{};
  while (out.read >= 0 || err.read >= 0) {
    std::array<pollfd, 2> ends{{{out.read, POLLIN, 0}, {err.read, POLLIN, 0}}};
    poll(ends.data(), ends.size(), kPollMilliseconds);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) {
        continue;
      }
      const ssize_t count = read(ends[i].fd, buffer.data(), buffer.size());
      if (count <= 0) {
        Pipe::close_end(i == 0 ? out.read : err.read);
      } else {
        (i == 0 ? result.out : result.err).append(buffer.data(), static_cast<std::size_t>(count));
      }
    }
    const bool said =
        !options.signal_when_said.empty() && (contains(result.out, options.signal_when_said) ||
                                              contains(result.err, options.signal_when_said));
    if (!signalled && (said || filled(options.signal_when_filled, options.filled_bytes))) {
      kill(child, options.signal);
      signalled = true;
    }
  }
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& command, const ProcessOptions& options) {
  Pipe out;
  Pipe err;
  const pid_t child = fork();
  if (child < 0) {
    throw std::runtime_error("fork failed");
  }
  if (child == 0) {
    dup2(out.write, STDOUT_FILENO);
    dup2(err.write, STDERR_FILENO);
    Pipe::close_end(out.read);  // so that a reader that goes away is really gone
    become(command, options);
  }
  Pipe::close_end(out.write);
  Pipe::close_end(err.write);
  if (options.close_stdout) {
    Pipe::close_end(out.read);
  }
  ProcessResult result;
  collect(child, out, err, options, result);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) {
    result.exit_code = WEXITSTATUS(status);
  } else if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  }
  return result;
}

namespace {

void add_tool_environment(ProcessOptions& options) {
  options.environment.emplace("XDG_CACHE_HOME", LORA_BENCH_TEST_CACHE);
  options.environment.emplace("LORA_BENCH_SCENARIOS", LORA_BENCH_SOURCE_DIR "/scenarios");
}

}  // namespace

std::string tool_path() {
  const char* named = std::getenv("LORA_BENCH_BINARY");
  return named != nullptr ? named : LORA_BENCH_BINARY;
}

bool tool_is_sanitized() { return std::getenv("LORA_BENCH_SANITIZED") != nullptr; }

ProcessResult run_tool(std::vector<std::string> arguments, ProcessOptions options) {
  arguments.insert(arguments.begin(), tool_path());
  add_tool_environment(options);
  return run_process(arguments, options);
}

ProcessResult run_tool_in_shell(const std::string& command) {
  ProcessOptions options;
  add_tool_environment(options);
  return run_process({"sh", "-c", command}, options);
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "lora-bench-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("mkdtemp failed for " + name);
  }
  folder_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace lora_bench::test
