#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

struct lora_bench_descriptor;

namespace lora_bench {

// Whether the file is a backend in Python: a name that ends in ".py".
[[nodiscard]] bool is_python(const std::filesystem::path& file);

// Where the module lora_bench lies.
[[nodiscard]] std::filesystem::path python_modules();

// The lines that the interpreter prints for this code, in a process of its own with
// python_modules() in its path; none when there is no interpreter or it fails.
[[nodiscard]] std::optional<std::vector<std::string>> python_says(const std::string& code);

struct PythonBackend {
  const lora_bench_descriptor* descriptor = nullptr;
  std::string libraries;  // Python and what the file has imported, with versions
};

// Runs `python3 -m MODULE WORDS...` of lora_bench with our streams, and returns its exit code. It
// finds this program by LORA_BENCH_BINARY. Throws EnvironmentError where no interpreter answers.
[[nodiscard]] int run_python_module(const std::string& module,
                                    const std::vector<std::string>& words);

// Runs the file in an interpreter inside this process, which is started for the first one and stays
// until the end, and returns what python/lora_bench made of its functions, which lives as long. The
// interpreter is that of LORA_BENCH_PYTHON, else `python3`, with the modules that it finds by
// itself. Throws UsageError saying what to do when there is none, when it has no shared library,
// and when the file cannot be used.
[[nodiscard]] PythonBackend load_python(const std::filesystem::path& file);

}  // namespace lora_bench
