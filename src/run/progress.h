#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lora_bench {

// One line on stderr that is rewritten: row count, time left, the case in hand. Silent when stderr
// is not a terminal or when told so.
class Progress {
 public:
  Progress(std::int64_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void begin(const std::string& what);
  // The same with another count.
  void say(const std::string& count, const std::string& what);
  void end();
  // Clears the line, so that something else can be written.
  void clear();

 private:
  std::int64_t total_;
  std::int64_t done_ = 0;
  bool shown_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

// Of the terminal behind a descriptor; 0 where it is none or does not tell.
[[nodiscard]] int terminal_columns(int descriptor);

// "[3 of 120] what", shorter than the terminal is wide: a line that it breaks is not rewritten.
[[nodiscard]] std::string progress_line(const std::string& count, const std::string& what,
                                        int columns);

// "3 of 120, 12 s left" from rows done and seconds spent; no time before the first row ended.
[[nodiscard]] std::string progress_text(std::int64_t done, std::int64_t total, double seconds);

}  // namespace lora_bench
