#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lora_bench {

// A file written in whole records: one that cannot be written is taken back, so that what was
// there before it stays readable. It is locked while it is open, so that no two runs write into it.
// Errors are EnvironmentError naming the file and the reason. So is anything in a regular file that
// was not written through this: a kernel in this process may write into descriptors that it did not
// open, and what it writes is no result.
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
  // Close, and learn of what a network file system refuses late, and of what somebody else wrote.
  void close();

 private:
  // What the file holds if nobody else writes into it.
  struct Contents {
    std::int64_t bytes = 0;
    std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
    void add(std::string_view text);
  };
  [[noreturn]] void fail(const char* action, int error) const;
  [[noreturn]] void close_and_fail(const char* action, int error);
  void lock();
  [[nodiscard]] std::int64_t regular_bytes() const;  // -1 of what is no regular file
  void expect_own_contents() const;
  std::filesystem::path path_;
  int descriptor_ = -1;
  Contents own_;
};

}  // namespace lora_bench
