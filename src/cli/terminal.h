#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/invocation.h"
#include "report/sink.h"
#include "run/run.h"

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

// "34 rows: 30 PASSED, 4 SKIPPED; 2 missed a threshold; exit 3 (...)", and how the run ended.
[[nodiscard]] std::string run_summary(const RunReport& report);

// What is wrong, whole: message, first wrong elements, command; at most so many rows, "" = none.
[[nodiscard]] std::string failure_report(const std::vector<Row>& rows, std::size_t most);

// For `verify`: per backend and dtype how many of each status and the worst share of the bound.
[[nodiscard]] std::string proof_table(const std::vector<Row>& rows);

// Below it: "SKIPPED on naive: 34 cases: no GPU", a line a reason; "" = none was skipped.
[[nodiscard]] std::string skip_reasons(const std::vector<Row>& rows);

// One word on what an exit code means, as in docs/exit-codes.md.
[[nodiscard]] std::string meaning(ExitCode code);

}  // namespace lora_bench
