#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "run/watch.h"

namespace lora_bench {

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

  void request(const std::string& line);
  [[nodiscard]] Answer answer(std::optional<double> most_seconds);

 private:
  [[nodiscard]] bool wait_for_letter(std::optional<double> most_seconds) const;
  [[nodiscard]] std::string how_it_ended();
  void end();

  pid_t process_ = -1;
  int requests_ = -1;
  int answers_ = -1;
  CallRecord* call_ = nullptr;  // shared with it
};

}  // namespace lora_bench
