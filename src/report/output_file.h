#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lora_bench {

// A file written in whole records: one that cannot be written is taken back, so that what was
// there before it stays readable. It is locked while it is open, so that no two runs write into it.
// Errors are EnvironmentError naming the file and the reason.
class OutputFile {
 public:
  // Creates or empties the file; with `append` keeps what it holds and continues behind it.
  OutputFile(std::filesystem::path path, bool append);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string read_all() const;
  void truncate(std::int64_t bytes);  // what is written next follows
  // Handed to the system before it returns: a crash of this process does not lose it.
  void write(std::string_view record);
  // Close, and learn of what a network file system refuses late.
  void close();

 private:
  [[noreturn]] void fail(const char* action, int error) const;
  [[noreturn]] void close_and_fail(const char* action, int error);
  void lock();
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace lora_bench
