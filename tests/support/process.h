#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lora_bench::test {

struct ProcessResult {
  int exit_code = -1;  // -1 = ended by a signal
  int signal = 0;
  std::string out;
  std::string err;
};

struct ProcessOptions {
  std::map<std::string, std::string> environment;  // added to ours
  std::string folder;                              // working folder; "" = ours
  std::optional<std::int64_t> file_size_limit;     // RLIMIT_FSIZE
  std::optional<std::int64_t> memory_limit;        // RLIMIT_AS
  // Sent once the file named here holds more than so many bytes.
  int signal = 0;
  std::string signal_when_filled;
  std::string signal_when_said;        // or once either output holds this
  std::uintmax_t filled_bytes = 4096;  // a context line and a row
  bool close_stdout = false;           // the reader goes away before anything is written
};

// Runs a program to its end with both outputs captured.
[[nodiscard]] ProcessResult run_process(const std::vector<std::string>& command,
                                        const ProcessOptions& options = {});

// The lora-bench under test: the one built beside the tests, or the one that LORA_BENCH_BINARY
// names.
[[nodiscard]] std::string tool_path();

// Whether it was built with a sanitizer (LORA_BENCH_SANITIZED is set then): a case takes several
// times as long, and few show what a sanitizer looks for.
[[nodiscard]] bool tool_is_sanitized();

// It with these arguments and a cache folder of the tests' own.
[[nodiscard]] ProcessResult run_tool(std::vector<std::string> arguments,
                                     ProcessOptions options = {});

// A command line of the tool in a shell, with the same cache folder.
[[nodiscard]] ProcessResult run_tool_in_shell(const std::string& command);

// A folder that is removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  // Writes a file in it; returns its path.
  std::string write(const std::string& name, const std::string& text) const;

 private:
  std::string folder_;
};

[[nodiscard]] bool contains(const std::string& text, const std::string& part);

[[nodiscard]] std::string read_file(const std::string& path);

}  // namespace lora_bench::test
