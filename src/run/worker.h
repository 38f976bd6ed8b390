#pragma once

#include <sys/types.h>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "run/run.h"
#include "run/watch.h"
#include "scenario/case.h"

namespace lora_bench {

// The child's side of --isolate, of --jobs and of fuzz: a process whose end takes no row along but
// the one in hand. It talks over descriptors that a kernel's printf does not reach. A request is a
// line that begins with a random word; an answer is a line that begins with its kind and that word,
// 0 where nothing was asked yet:
//   s 0 SPACE WHY_NOT         ready: host or cuda, and why the last of the backends it was started
//                             for cannot be used here
//   u 0 MESSAGE               refused: a UsageError
//   h 0 MESSAGE               hung while it loaded the backend; the worker ends
//   r WORD ROW, i WORD ROW    a row as JSON; i = sampling was interrupted
//   e WORD MESSAGE            an EnvironmentError; the worker ends
constexpr int kRequestDescriptor = 3;
constexpr int kAnswerDescriptor = 4;
constexpr int kCallDescriptor = 5;  // memory shared with the parent: the Call in hand (watch.h)

// A request is "SCENARIO CASE BACKEND", two numbers and a spelling.
[[nodiscard]] ExitCode serve_rows(const RunRequest& request);

// A request is a case that no file holds and a backend to prove on it, not to time; one that ran
// nothing before when it says so. Those in `spellings` are made before it is ready, others when
// they are first asked for, and have so long to load. The groundwork of a case serves its backends
// one after the other.
[[nodiscard]] ExitCode serve_cases(const std::vector<std::string>& spellings, double timeout_s);
[[nodiscard]] std::string request_for_case(const Case& spec, const std::string& spelling,
                                           bool fresh_backend);

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
