#include "run/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "core/units.h"
#include "report/screen.h"

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
    fmt::print(stderr, "\r\033[K{}", progress_line(count, what, terminal_columns(STDERR_FILENO)));
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

int terminal_columns(int descriptor) {
  winsize size{};
  return isatty(descriptor) != 0 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string progress_line(const std::string& count, const std::string& what, int columns) {
  constexpr int kUsualColumns = 80;  // of a terminal that does not tell
  const int room = (columns > 0 ? columns : kUsualColumns) - 1;
  return clipped(one_line(fmt::format("[{}] {}", count, what)), static_cast<std::size_t>(room));
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
