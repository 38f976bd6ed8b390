#include "ops/python_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/units.h"
#include "device/memory.h"
#include "scenario/scenario.h"

namespace lora_bench {
namespace {

constexpr const char* kNameAnother = "name another interpreter by --python or LORA_BENCH_PYTHON";

// What python/lora_bench/_door.py leaves here.
struct PythonAnswer {
  const lora_bench_descriptor* descriptor = nullptr;
  std::array<char, 4096> message{};
  std::array<char, 1024> libraries{};
};

// What an interpreter says of itself.
struct Interpreter {
  std::string library;  // its shared library; empty when it was built without one
  std::string home;     // PYTHONHOME of its standard library
  std::string executable;
  std::string prefix;  // of its virtual environment, where it is of one
  std::vector<std::string> paths;
};

// One line each, in the order of Interpreter; what is left are paths of modules.
constexpr const char* kQuestions = R"(
import os, sys, sysconfig
folder, name = sysconfig.get_config_vars('LIBDIR', 'INSTSONAME')
shared = sysconfig.get_config_var('Py_ENABLE_SHARED') and name or ''
print(os.path.join(folder, shared) if shared and os.path.exists(os.path.join(folder, shared)) else shared)
print(sys.base_prefix + os.pathsep + sys.base_exec_prefix)
print(sys.executable)
print(sys.prefix)
print(*filter(None, sys.path), sep='\n')
)";

// A value of bytes as an expression of Python, whatever they are.
std::string in_python(std::string_view text) {
  std::string hex;
  for (const char c : text) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return fmt::format("bytes.fromhex('{}').decode()", hex);
}

std::optional<std::vector<std::string>> lines_of(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> output(::popen(command.c_str(), "re"), ::pclose);
  if (!output) {
    return std::nullopt;
  }
  std::string text;
  std::array<char, 4096> part{};
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), output.get())) {
    text.append(part.data(), count);
  }
  if (::pclose(output.release()) != 0) {
    return std::nullopt;
  }
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string interpreter_name() {
  const char* named = std::getenv("LORA_BENCH_PYTHON");
  return named != nullptr && *named != '\0' ? named : "python3";
}

Interpreter ask_interpreter() {
  const std::string name = interpreter_name();
  const auto lines =
      lines_of(fmt::format("{} -c {}", shell_quoted(name), shell_quoted(kQuestions)));
  if (!lines || lines->size() < 4) {
    throw UsageError(fmt::format(
        "a backend in Python needs an interpreter, and '{}' does not answer; install Python 3.9 or "
        "newer, or {}",
        name, kNameAnother));
  }
  Interpreter found;
  found.library = lines->at(0);
  found.home = lines->at(1);
  found.executable = lines->at(2);
  found.prefix = lines->at(3);
  found.paths.assign(lines->begin() + 4, lines->end());
  if (found.library.empty()) {
    throw UsageError(fmt::format(
        "{} was built without a shared library, and a backend in Python runs inside this process; "
        "{} that has one: that of the system, of conda or uv",
        found.executable, kNameAnother));
  }
  return found;
}

// The few functions that are called, all of the stable interface.
class Python {
 public:
  // The one of this process.
  static Python& get() {
    static Python python(ask_interpreter());
    return python;
  }

  // Whether it ran without an exception; one is written to stderr.
  bool run(const std::string& code) {
    const int state = ensure_();
    const bool fine = run_(code.c_str(), nullptr) == 0;
    release_(state);
    return fine;
  }

 private:
  explicit Python(const Interpreter& interpreter) {
    library_ = dlopen(interpreter.library.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library_ == nullptr) {
      throw UsageError(fmt::format(
          "the shared library of {} cannot be loaded: {}; on Debian and Ubuntu it comes with the "
          "package libpython3 of its version, or {}",
          interpreter.executable, dlerror(), kNameAnother));
    }
    ensure_ = function<int()>("PyGILState_Ensure");
    release_ = function<void(int)>("PyGILState_Release");
    run_ = function<int(const char*, void*)>("PyRun_SimpleStringFlags");
    ::setenv("PYTHONHOME", interpreter.home.c_str(), 1);
    function<void(int)>("Py_InitializeEx")(0);  // 0: signals stay ours
    ::unsetenv("PYTHONHOME");
    std::string code =
        fmt::format("import sys\nsys.executable = {}\nsys.prefix = {}\nsys.path[:] = [",
                    in_python(interpreter.executable), in_python(interpreter.prefix));
    for (const std::string& path : interpreter.paths) {
      code += in_python(path) + ", ";
    }
    if (!run(code + "]\n")) {
      throw UsageError(fmt::format("{} could not be started, see above", interpreter.executable));
    }
    function<void*()>("PyEval_SaveThread")();  // from now on any thread may call
    count_objects_by([this](bool settled) { return objects(settled); });
  }

  // Blocks of the allocator of small objects; 0 where there is no such thing.
  std::int64_t objects(bool settled) {
    std::int64_t count = 0;
    const bool told =
        run(fmt::format("import ctypes, gc, sys\n{}ctypes.c_int64.from_address({}).value = "
                        "getattr(sys, 'getallocatedblocks', int)()\n",
                        settled ? "gc.collect()\n" : "", reinterpret_cast<std::uintptr_t>(&count)));
    return told ? count : 0;
  }

  template <typename Signature>
  Signature* function(const char* name) const {
    void* symbol = dlsym(library_, name);
    if (symbol == nullptr) {
      throw UsageError(
          fmt::format("this Python has no function {}; {}, 3.9 or newer", name, kNameAnother));
    }
    return reinterpret_cast<Signature*>(symbol);
  }

  void* library_ = nullptr;
  int (*ensure_)() = nullptr;
  void (*release_)(int) = nullptr;
  int (*run_)(const char*, void*) = nullptr;
};

}  // namespace

bool is_python(const std::filesystem::path& file) { return file.extension() == ".py"; }

std::filesystem::path python_modules() {
  return std::filesystem::absolute(scenario_folder()).parent_path() / "python";
}

std::optional<std::vector<std::string>> python_says(const std::string& code) {
  const std::string whole = fmt::format("import sys\nsys.path.insert(0, {})\n{}",
                                        in_python(python_modules().string()), code);
  return lines_of(
      fmt::format("{} -c {} 2>/dev/null", shell_quoted(interpreter_name()), shell_quoted(whole)));
}

int run_python_module(const std::string& module, const std::vector<std::string>& words) {
  std::error_code unknown;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  std::string command =
      fmt::format("LORA_BENCH_BINARY={} PYTHONPATH={}${{PYTHONPATH:+:$PYTHONPATH}} exec {} -m {}",
                  shell_quoted(self.string()), shell_quoted(python_modules().string()),
                  shell_quoted(interpreter_name()), module);
  for (const std::string& word : words) {
    command += " " + shell_quoted(word);
  }
  const int status = std::system(command.c_str());
  constexpr int kNoSuchProgram = 127;
  if (!WIFEXITED(status) || WEXITSTATUS(status) == kNoSuchProgram) {
    throw EnvironmentError(fmt::format("'{} -m {}' did not come to its end; {}", interpreter_name(),
                                       module, kNameAnother));
  }
  return WEXITSTATUS(status);
}

PythonBackend load_python(const std::filesystem::path& file) {
  Python& python = Python::get();
  const std::filesystem::path modules = python_modules();
  PythonAnswer answer;
  const std::string code = fmt::format(
      "import sys\nif {0} not in sys.path: sys.path.insert(0, {0})\n"
      "import lora_bench._door\nlora_bench._door.load({1}, {2})\n",
      in_python(modules.string()), in_python(std::filesystem::absolute(file).string()),
      reinterpret_cast<std::uintptr_t>(&answer));
  if (!python.run(code)) {
    throw UsageError(fmt::format(
        "the module lora_bench of {} could not be used, see above; LORA_BENCH_SCENARIOS is to name "
        "the scenarios of an installed lora-bench, beside which its folder python lies",
        modules.string()));
  }
  if (answer.descriptor == nullptr) {
    throw UsageError(answer.message.data());
  }
  return {answer.descriptor, answer.libraries.data()};
}

}  // namespace lora_bench
