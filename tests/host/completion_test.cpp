#include "cli/command_view.h"

#include <doctest/doctest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/process.h"

namespace {

using lora_bench::completion_script;
using lora_bench::man_page;

struct Sample {
  CLI::App app{"Does it.", "sample-tool"};
  std::string colour, file, topic, backend;
  std::vector<std::string> scenarios;
  bool quiet = false;

  Sample() {
    app.add_option("--color", colour, "when it's coloured")
        ->check(CLI::IsMember({"auto", "never"}))
        ->type_name("WHEN");
    CLI::App* run = app.add_subcommand("run", "runs [now]: it");
    run->add_option("scenario", scenarios, "names (see `list scenarios`)");
    run->add_option("--backend", backend, "one (see `list backends`)");
    run->add_option("--out", file, "writes a file")->type_name("FILE");
    run->add_flag("-q,--quiet", quiet, "says nothing");
    CLI::App* list = app.add_subcommand("list", "lists");
    list->add_option("topic", topic, "what")->check(CLI::IsMember({"models", "metrics"}));
    app.add_subcommand("secret", "for the build")->group("");
    app.footer(".starts with a dot");
  }
};

// What the tool would print where completion asks it.
constexpr const char* kListingTool = R"(
sample-tool() {
  case "$1 $2" in
    'list scenarios') printf '%s\n' 'scenarios in /a' '  decode   8 cases' '  verify/edges   1 case ' ;;
    'list backends') printf '%s\n' 'backends' '  cpu   runs' '           not here' '  fake:KIND   no' ;;
  esac
})";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What bash offers for the last of `words` ("sample-tool run --o").
std::string bash_offers(const std::string& script, const std::string& words) {
  const lora_bench::test::TemporaryFolder folder;
  const std::string file =
      folder.write("offers.bash", script + kListingTool + "\nCOMP_WORDS=(" + words +
                                      ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_sample_tool\n"
                                      "echo \"${COMPREPLY[*]}\"\n");
  const lora_bench::test::ProcessResult result = lora_bench::test::run_process({"bash", file});
  return result.out + result.err;
}

}  // namespace

TEST_CASE("bash offers commands, options and the allowed values") {
  const Sample sample;
  const std::string script = completion_script(sample.app, "bash");
  CHECK(bash_offers(script, "sample-tool r") == "run\n");
  CHECK(bash_offers(script, "sample-tool run --o") == "--out\n");
  CHECK(bash_offers(script, "sample-tool run --c") == "\n");
  CHECK(bash_offers(script, "sample-tool --color ''") == "auto never\n");
  CHECK(bash_offers(script, "sample-tool list me") == "metrics\n");
  CHECK(bash_offers(script, "sample-tool run --out ''") == "\n");  // bash goes on to file names
}

TEST_CASE("bash asks the tool for the names that it lists") {
  const Sample sample;
  const std::string script = completion_script(sample.app, "bash");
  CHECK(bash_offers(script, "sample-tool run d") == "decode\n");
  CHECK(bash_offers(script, "sample-tool run decode ver") == "verify/edges\n");
  CHECK(bash_offers(script, "sample-tool run --backend ''") == "cpu\n");
  CHECK(bash_offers(script, "no-such-tool run d") == "\n");
}

TEST_CASE("a hidden subcommand is completed by no shell and stands on no page") {
  const Sample sample;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    CHECK(!contains(completion_script(sample.app, shell), "secret"));
  }
  CHECK(!contains(man_page(sample.app), "secret"));
}

TEST_CASE("zsh specifications escape what zsh would read as syntax") {
  const Sample sample;
  const std::string script = completion_script(sample.app, "zsh");
  CHECK(script.starts_with("#compdef sample-tool\n"));
  CHECK(contains(script, R"('run:runs \[now\]\: it')"));
  CHECK(contains(script, R"('--color[when it'\''s coloured]:WHEN:(auto never)')"));
}

TEST_CASE("fish knows which option belongs to which subcommand") {
  const Sample sample;
  const std::string script = completion_script(sample.app, "fish");
  CHECK(contains(script, "-n '__fish_seen_subcommand_from run' -l out -r -d 'writes a file'"));
  CHECK(contains(script, "-s q -l quiet -d 'says nothing'"));
  CHECK(contains(script, R"(-l color -x -a 'auto never' -d 'when it\'s coloured')"));
}

TEST_CASE("an unknown shell is a usage error that names the three") {
  const Sample sample;
  CHECK_THROWS_WITH_AS((void)completion_script(sample.app, "fisch"),
                       doctest::Contains("bash, zsh or fish"), lora_bench::UsageError);
}

TEST_CASE("the man page holds every command and option and no accidental request") {
  const Sample sample;
  const std::string page = man_page(sample.app);
  CHECK(contains(page, ".SS run\nruns [now]: it\n"));
  CHECK(contains(page, ".TP\n\\fB\\-q\\fR, \\fB\\-\\-quiet\\fR\nsays nothing\n"));
  CHECK(contains(page, "(auto, never)"));
  CHECK(contains(page, "\n\\&.starts with a dot\n"));
}
