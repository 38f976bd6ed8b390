#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "verify/diagnose.h"
#include "verify/gpu_mutants.h"
#include "verify/mutants.h"

using namespace lora_bench;

namespace {

std::string verifying_page() {
  std::ifstream file(LORA_BENCH_SOURCE_DIR "/docs/verifying.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::size_t lines_that_begin(const std::string& text, const std::string& start) {
  std::size_t count = 0;
  for (std::size_t at = text.find("\n" + start); at != std::string::npos;
       at = text.find("\n" + start, at + 1)) {
    ++count;
  }
  return count;
}

std::string named(const MutantDoc& doc) {
  return doc.hypothesis.empty() ? "-" : "`" + doc.hypothesis + "`";
}

}  // namespace

TEST_CASE("docs/verifying.md lists every hypothesis and every mutant as the code has them") {
  const std::string page = verifying_page();
  for (const HypothesisDoc& doc : hypotheses()) {
    const std::string line =
        "| `" + std::string(doc.key) + "` | " + std::string(doc.meaning) + " |\n";
    CHECK_MESSAGE(page.find(line) != std::string::npos, line);
  }
  for (const MutantDoc& doc : mutants()) {
    const std::string line =
        "| `" + doc.fault + "` | " + doc.meaning + " | " + named(doc) + " | " + doc.source + " |\n";
    CHECK_MESSAGE(page.find(line) != std::string::npos, line);
  }
  for (const GpuFaultEntry& entry : gpu_fault_catalogue()) {
    const std::string line = "| `" + entry.doc.fault + "` | " + entry.doc.meaning + " | " +
                             entry.seen_in + " | " + std::string(name(entry.level)) + " | " +
                             named(entry.doc) + " | " + entry.doc.source + " |\n";
    CHECK_MESSAGE(page.find(line) != std::string::npos, line);
  }
  CHECK(lines_that_begin(page, "| `") ==
        hypotheses().size() + mutants().size() + gpu_mutants().size());
}
