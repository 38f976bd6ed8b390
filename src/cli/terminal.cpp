#include "cli/terminal.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "run/progress.h"

namespace lora_bench {

bool use_colour(const Invocation& invocation) {
  if (invocation.colour_always || invocation.colour_never) {
    return invocation.colour_always;
  }
  const char* no_colour = std::getenv("NO_COLOR");
  if (no_colour != nullptr && *no_colour != '\0') {
    return false;
  }
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

int terminal_width() { return terminal_columns(STDOUT_FILENO); }

TableStyle table_style(const Invocation& invocation) {
  return {.width = terminal_width(), .colour = use_colour(invocation), .columns = {}};
}

std::string note_on_replaced(const std::vector<std::filesystem::path>& files) {
  std::string notes;
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    const std::uintmax_t bytes =
        std::filesystem::is_regular_file(file, error) ? std::filesystem::file_size(file, error) : 0;
    notes += !error && bytes > 0 ? "replaced " + file.string() + "\n" : "";
  }
  return notes;
}

void print_result(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written && errno != EPIPE) {
    throw EnvironmentError(std::string("cannot write to standard output: ") + std::strerror(errno));
  }
}

void print_note(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fputc('\n', stderr);
}

}  // namespace lora_bench
