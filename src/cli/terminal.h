#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/invocation.h"
#include "report/sink.h"

namespace lora_bench {

// Colour only on a terminal and never with NO_COLOR, unless --color says otherwise.
[[nodiscard]] bool use_colour(const Invocation& invocation);
// Width of stdout in columns; 0 when it is no terminal.
[[nodiscard]] int terminal_width();
[[nodiscard]] TableStyle table_style(const Invocation& invocation);

// A line "replaced FILE" for each that holds something now; ask before they are opened.
[[nodiscard]] std::string note_on_replaced(const std::vector<std::filesystem::path>& files);

// Writes to stdout; a full disk is an EnvironmentError. A reader that has gone (`| head`) has seen
// what it wanted: the rest is dropped, and the exit code stays that of the work.
void print_result(const std::string& text);
// Writes a line to stderr; failures are ignored, there is nowhere to tell them.
void print_note(const std::string& text);

}  // namespace lora_bench
