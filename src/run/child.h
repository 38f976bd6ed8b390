#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "run/watch.h"

namespace lora_bench {

// Stands for the word of a request in the first answer, which nobody asked for.
constexpr const char* kNoRequest = "0";

// What a worker said, see run/worker.h; 'x' = its process ended, and the text says how.
struct Answer {
  char kind = 'x';
  std::string text;
};

// A process that ended before its time: "crashed: signal 11 (Segmentation fault) in launch".
[[nodiscard]] std::string how_it_ended(int status, Call last);

// This program once more, as a worker. Killed by the destructor.
class Child {
 public:
  // Throws EnvironmentError when no process can be made.
  explicit Child(const std::vector<std::string>& command);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The answer to it must carry the word that went with it: a kernel may write into descriptors.
  void request(const std::string& line);
  [[nodiscard]] Answer answer(std::optional<double> most_seconds);

 private:
  [[nodiscard]] bool wait_for_letter(std::optional<double> most_seconds) const;
  [[nodiscard]] std::string how_it_ended();
  [[nodiscard]] Answer read_answer(const std::string& line);
  void end();

  pid_t process_ = -1;
  int requests_ = -1;
  int answers_ = -1;
  std::string word_ = kNoRequest;  // of the last request
  CallRecord* call_ = nullptr;     // shared with it
};

}  // namespace lora_bench
