#include "run/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "core/units.h"

namespace lora_bench {

Progress::Progress(std::int64_t total, bool quiet)
    : total_(total), shown_(!quiet && isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() { clear(); }

void Progress::begin(const std::string& what) {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - started_;
  say(progress_text(done_, total_, spent.count()), what);
}

void Progress::say(const std::string& count, const std::string& what) {
  if (shown_) {
    fmt::print(stderr, "\r\033[K[{}] {}", count, what);
    std::fflush(stderr);
  }
}

void Progress::end() { ++done_; }

void Progress::clear() {
  if (shown_) {
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }
}

std::string progress_text(std::int64_t done, std::int64_t total, double seconds) {
  std::string text = fmt::format("{} of {}", done + 1, total);
  if (done > 0) {
    const double left = seconds / static_cast<double>(done) * static_cast<double>(total - done);
    text += fmt::format(", {} left", format_seconds(left));
  }
  return text;
}

}  // namespace lora_bench
