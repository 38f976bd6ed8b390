#include <doctest/doctest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "support/process.h"

namespace lora_bench::test {
namespace {

namespace fs = std::filesystem;

// The part of the installation that needs no build but the tool's.
fs::path installed_documents(const TemporaryFolder& folder) {
  const fs::path build = fs::path(tool_path()).parent_path().parent_path();
  const ProcessResult result = run_process({"cmake", "--install", build.string(), "--prefix",
                                            folder.folder(), "--component", "documents"});
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  for (const auto& entry : fs::recursive_directory_iterator(folder.folder())) {
    if (entry.path().filename() == "README.md" && fs::exists(entry.path().parent_path() / "docs")) {
      return entry.path().parent_path();
    }
  }
  FAIL("no README.md beside docs/");
  return {};
}

TEST_CASE("every link of the installed documents leads to an installed file") {
  static const std::regex kLink(R"(\]\(([^)\s#]+)[^)]*\))");
  const TemporaryFolder folder;
  std::size_t links = 0;
  for (const auto& entry : fs::recursive_directory_iterator(installed_documents(folder))) {
    if (entry.path().extension() != ".md") {
      continue;
    }
    const std::string text = read_file(entry.path().string());
    for (std::sregex_iterator at(text.begin(), text.end(), kLink), end; at != end; ++at) {
      const std::string target = (*at)[1];
      if (!contains(target, "://")) {
        CAPTURE(entry.path().string());
        CAPTURE(target);
        CHECK(fs::exists(entry.path().parent_path() / target));
        ++links;
      }
    }
  }
  CHECK(links >= 10);
}

TEST_CASE("the installed example is built where it lies, and its checkers are there") {
  const TemporaryFolder folder;
  const fs::path documents = installed_documents(folder);
  std::set<std::string> example;
  for (const auto& entry : fs::directory_iterator(documents / "examples" / "plugin")) {
    example.insert(entry.path().filename().string());
  }
  CHECK(example == std::set<std::string>{"Makefile", "mine.cpp", "mine.cu"});
  const ProcessResult built =
      run_process({"make", "-C", (documents / "examples" / "plugin").string()});
  CAPTURE(built.err);
  CHECK(built.exit_code == 0);
  for (const char* file :
       {"LICENSE", "CONTRIBUTING.md", "scripts/check_export.py", "scripts/produce_output.py",
        "scripts/plot.py", "docs/results/README.md", "docs/pictures/auto-wide.svg"}) {
    CHECK_MESSAGE(fs::exists(documents / file), file);
  }
  std::size_t modules = 0;
  for (const auto& entry : fs::directory_iterator(LORA_BENCH_SOURCE_DIR "/scripts/plotting")) {
    const std::string name = entry.path().filename().string();
    modules += name.ends_with(".py") ? 1 : 0;
    CHECK_MESSAGE((!name.ends_with(".py") || fs::exists(documents / "scripts" / "plotting" / name)),
                  name);
  }
  CHECK(modules >= 7);
}

TEST_CASE("an installed script runs where it lies, a module of one is no program") {
  const TemporaryFolder folder;
  std::size_t programs = 0;
  for (const auto& entry :
       fs::recursive_directory_iterator(installed_documents(folder) / "scripts")) {
    if (entry.is_regular_file()) {
      const bool program = read_file(entry.path().string()).starts_with("#!");
      const bool runs = (entry.status().permissions() & fs::perms::owner_exec) != fs::perms::none;
      CAPTURE(entry.path().string());
      CHECK(runs == program);
      programs += program ? 1 : 0;
    }
  }
  CHECK(programs >= 3);
}

}  // namespace
}  // namespace lora_bench::test
