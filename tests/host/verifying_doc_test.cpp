#include <doctest/doctest.h>

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "reference/reference.h"
#include "verify/diagnose.h"
#include "verify/metadata_proof.h"
#include "verify/mutants.h"
#include "verify/quantise_proof.h"

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
  for (const MetadataFaultDoc& doc : metadata_faults()) {
    const std::string line = fmt::format("| `{}` | {} | {} | `{}` | {} |\n", doc.fault, doc.meaning,
                                         name(doc.form), doc.hypothesis, doc.source);
    CHECK_MESSAGE(page.find(line) != std::string::npos, line);
  }
  for (const HypothesisDoc& doc : metadata_hypotheses()) {
    const std::string line = fmt::format("| `{}` | {} |\n", doc.key, doc.meaning);
    CHECK_MESSAGE(page.find(line) != std::string::npos, line);
  }
  for (const QuantiseFault& fault : quantise_faults()) {
    const std::string line =
        fmt::format("| `{}` | {} | {} |\n", fault.fault, fault.meaning, fault.source);
    CHECK_MESSAGE(page.find(line) != std::string::npos, line);
  }
  CHECK(lines_that_begin(page, "| `") ==
        hypotheses().size() + mutants().size() + gpu_mutants().size() + metadata_faults().size() +
            metadata_hypotheses().size() + quantise_faults().size());
}

namespace {

// The example of docs/verifying.md, in fp32: one row, two lanes, one column.
struct Example {
  std::array<float, 3> x{1, 2, -0.5F};
  std::array<float, 6> a{1, 0.5F, 2, -1, 1, 4};
  std::array<float, 2> b{2, 0.25F};
  float bias = 0.125F, y = 1;
  std::array<std::int32_t, 1> adapters{0};
  std::array<std::int64_t, 1> ranks{2};
  std::array<float, 1> scales{0.5F};

  [[nodiscard]] reference::Problem problem(bool expand) const {
    reference::Problem problem;
    problem.expand = expand;
    problem.numbers = reference::all_of(reference::Number::kFp32);
    problem.scale_at_shrink = false;
    problem.tokens = problem.slots = problem.y_stride = 1;
    problem.in_features = problem.x_stride = 3;
    problem.max_rank = 2;
    problem.widths = {1};
    problem.adapter_of_token = adapters;
    problem.rank = ranks;
    problem.scale = scales;
    problem.x = x.data();
    problem.a = {a.data()};
    problem.b = {b.data()};
    problem.bias = {&bias};
    problem.y = &y;
    return problem;
  }
};

reference::Arithmetic declared_in_example() {
  reference::Arithmetic arithmetic;
  arithmetic.shrink_depth = 3;
  arithmetic.expand_depth = 4;
  return arithmetic;
}

reference::Rows evaluated(bool expand, const reference::Arithmetic& arithmetic) {
  const std::vector<std::int64_t> row{0};
  return reference::evaluate(Example{}.problem(expand), arithmetic, row);
}

}  // namespace

TEST_CASE("docs/verifying.md: the example of the bound has the numbers that the oracle computes") {
  const std::string page = verifying_page();
  const auto on_page = [&](const std::string& line) {
    CHECK_MESSAGE(page.find("\n" + line + "\n") != std::string::npos, line);
  };
  reference::Arithmetic arithmetic = declared_in_example();
  const reference::Rows h = evaluated(false, arithmetic);
  const reference::Rows y = evaluated(true, arithmetic);
  on_page(fmt::format("h   = {:g}, {:g}", h.expected[0], h.expected[1]));
  on_page(fmt::format("e_h = {:.7g}, {:.7g}", h.bound[0], h.bound[1]));
  on_page(fmt::format("y   = {:g}", y.expected[0]));
  on_page(fmt::format("e_y = {:.7g}", y.bound[0]));
  arithmetic.partial = reference::Number::kBf16;
  arithmetic.partials = 1;
  on_page(fmt::format("e_h = {:.7g}, {:.7g}   the sum over K stored as bf16 (P = 1)",
                      evaluated(false, arithmetic).bound[0],
                      evaluated(false, arithmetic).bound[1]));
  arithmetic.partials = 2;
  on_page(fmt::format("e_h = {:.7g}, {:.7g}   two partials stored as bf16 (P = 2)",
                      evaluated(false, arithmetic).bound[0],
                      evaluated(false, arithmetic).bound[1]));
  arithmetic = declared_in_example();
  arithmetic.intermediate = reference::Number::kBf16;
  on_page(fmt::format("e_y = {:.7g}   h stored as bf16", evaluated(true, arithmetic).bound[0]));
  arithmetic.rounds_delta = true;
  on_page(fmt::format("e_y = {:.7g}   h stored as bf16, delta rounded",
                      evaluated(true, arithmetic).bound[0]));
}
