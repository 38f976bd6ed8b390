#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace lora_bench {

// A place in a text that a user wrote; lines and columns count from 1, 0 = unknown.
struct Location {
  std::string file;  // a path, or "--set key=value" for the command line
  int line = 0;
  int column = 0;
};

struct Diagnostic {
  Location where;
  std::string what;        // "unknown key 'rnak'"
  std::string allowed;     // "an integer from 0 to 4096"; may be empty
  std::string suggestion;  // "rank"; printed as "did you mean 'rank'?"; may be empty
};

// file:line:col: what; what is allowed; did you mean ...
[[nodiscard]] std::string to_string(const Diagnostic& diagnostic);

// The nearest of `candidates` by edit distance if it is near enough to be meant, else "".
[[nodiscard]] std::string nearest(const std::string& word,
                                  const std::vector<std::string>& candidates);

// What the user asked cannot be done as asked: exit code 1, before any work.
class UsageError : public std::runtime_error {
 public:
  explicit UsageError(const std::string& message);
  explicit UsageError(std::vector<Diagnostic> diagnostics);
  [[nodiscard]] const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

 private:
  std::vector<Diagnostic> diagnostics_;
};

// The device or the environment refuses (no driver, disk full, sticky CUDA error): exit code 5.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One case of one backend cannot go on; its row says ERROR, the run goes on.
class CaseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Why `path` cannot be read as a file, with what to do: it is a folder, a pipe, a device or a
// socket, of which opening or reading may never end. "" where it is a file, or opening it will tell
// what is wrong. Ask before the file is opened.
[[nodiscard]] std::string why_no_file(const std::filesystem::path& path);

}  // namespace lora_bench
