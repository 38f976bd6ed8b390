#pragma once

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace lora_bench {

// What the parser of the command line does not say when it refuses one: which command, option or
// value was meant. Throws UsageError, or returns where the parser's own words have to do.
void refuse_misspelt(const CLI::App& app, const CLI::ParseError& error, int argc,
                     const char* const* argv);

}  // namespace lora_bench
