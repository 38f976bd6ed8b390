#include <doctest/doctest.h>
#include <sys/stat.h>

#include <clocale>
#include <filesystem>
#include <locale>
#include <string>

#include "core/error.h"
#include "scenario/scenario.h"
#include "support/process.h"

namespace {

namespace fs = std::filesystem;
using namespace lora_bench;

const std::string kLayer = "layer: {in: 64, out: 64}\n";

// Most tests are about anything but the batch.
std::string with_batch(const std::string& text) {
  return text.find("batch") == std::string::npos && !text.empty() ? text + "\nbatch.decode: 0\n"
                                                                  : text;
}

std::string refusal(const std::string& text) {
  try {
    static_cast<void>(parse_scenario(with_batch(text), "test.yaml", {}));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

class DecimalComma : public std::numpunct<char> {
 protected:
  [[nodiscard]] char do_decimal_point() const override { return ','; }
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

std::string load_refusal(const fs::path& file) {
  try {
    static_cast<void>(load_scenario(file, {}));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

std::string repeat(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

}  // namespace

TEST_CASE("a file that is missing, a folder, a pipe, a device or too long is refused by name") {
  const test::TemporaryFolder folder;
  CHECK(load_refusal(folder.path("none.yaml")) ==
        "cannot read " + folder.path("none.yaml") + ": No such file or directory");
  CHECK(load_refusal(folder.folder()) == "cannot read " + folder.folder() + ": it is a folder");
  REQUIRE(::mkfifo(folder.path("pipe.yaml").c_str(), 0600) == 0);
  CHECK(
      load_refusal(folder.path("pipe.yaml")) ==
      "cannot read " + folder.path("pipe.yaml") +
          ": it is a pipe, and only files are read; write what it gives into a file and name that");
  CHECK(load_refusal("/dev/zero").starts_with("cannot read /dev/zero: it is a device, and only "));
  const fs::path large = folder.write("large.yaml", std::string(10 << 20, '#'));
  CHECK(load_refusal(large) == "cannot read " + large.string() + ": longer than 1048576 bytes");
}

TEST_CASE("a text without content or with bytes that are no text is refused") {
  CHECK(refusal("") == "test.yaml: the file is empty; allowed: a map of fields");
  CHECK(refusal(std::string("name: a\n\0b", 10)) ==
        "test.yaml:2:1: not a text: byte 0x00; allowed: UTF-8 text");
  CHECK(refusal("name: \xFF\xFE") == "test.yaml:1:7: not a text: byte 0xFF; allowed: UTF-8 text");
  CHECK(refusal("\x7F"
                "ELF") == "test.yaml:1:1: not a text: byte 0x7F; allowed: UTF-8 text");
  CHECK(refusal(kLayer + "question: für wen?\n") == "accepted");
}

TEST_CASE("nesting ten thousand deep is refused, in flow and in blocks") {
  const std::string too_deep = ": nested too deeply; allowed: at most 32 levels";
  CHECK(refusal("tags: " + repeat("[", 10000)).ends_with(too_deep));
  CHECK(refusal("tags: " + repeat("{a: ", 10000)).ends_with(too_deep));
  CHECK(refusal(repeat("- ", 10000)).ends_with(too_deep));
  CHECK(refusal("tags: " + repeat("[", 31) + repeat("]", 31)).find("deep") == std::string::npos);
}

TEST_CASE("an alias bomb is refused before it is expanded") {
  std::string bomb = "tags: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string earlier = "*a" + std::to_string(i - 1);
    bomb += "k" + std::to_string(i) + ": &a" + std::to_string(i) + " [" +
            repeat(earlier + ", ", 9) + earlier + "]\n";
  }
  CHECK(refusal(bomb) == "test.yaml:5:45: more than 100000 values, aliases expanded");
}

TEST_CASE("an alias is taken for what it stands for") {
  const Scenario scenario =
      parse_scenario(kLayer + "batch.decode: &n 4\nadapters.slots: *n\n", "test.yaml", {});
  CHECK(scenario.cases.front().adapters.slots == 4);
}

TEST_CASE("a map of very many keys is refused quickly") {
  std::string text;
  for (int i = 0; i < 50000; ++i) {
    text += "k" + std::to_string(i) + ": 1\n";
  }
  CHECK(refusal(text) == "test.yaml:1001:1: more than 1000 keys in a map");
}

TEST_CASE("later keys override included ones, and their sweeps") {
  const test::TemporaryFolder folder;
  folder.write("base.yaml", kLayer + "seed: 3\nbatch.decode: 2\nsweep: {adapters.rank: [8, 16]}\n");
  const auto load = [&](const std::string& text) {
    return load_scenario(folder.write("top.yaml", text), {});
  };
  const Scenario same = load("include: base.yaml\nbatch: {decode: 5}\n");
  REQUIRE(same.cases.size() == 2);
  CHECK(same.name == "top");
  CHECK(same.cases[0].seed == 3);
  CHECK(same.cases[0].batch.decode == 5);
  CHECK(load("include: base.yaml\nadapters.rank: 64\n").cases.size() == 1);
  CHECK(load("include: [base.yaml]\nsweep: {seed: [1, 2, 3]}\n").cases.size() == 3);
}

TEST_CASE("include loops and paths outside end with the line that asks for them") {
  const test::TemporaryFolder folder;
  folder.write("a.yaml", "include: b.yaml\n" + kLayer);
  folder.write("b.yaml", "include: a.yaml\n");
  CHECK(load_refusal(folder.path("a.yaml")) ==
        folder.path("b.yaml") + ":1:10: 'a.yaml' includes itself");
  folder.write("outside.yaml", kLayer);
  fs::create_directory(folder.path("below"));
  const fs::path below = folder.write("below/c.yaml", "include: ../outside.yaml\n" + kLayer);
  CHECK(load_refusal(below).starts_with(below.string() +
                                        ":1:10: '../outside.yaml' lies outside; allowed: "));
  fs::create_symlink(folder.path("outside.yaml"), folder.path("below/link.yaml"));
  const fs::path linked = folder.write("below/d.yaml", "include: link.yaml\n" + kLayer);
  CHECK(load_refusal(linked).find("lies outside") != std::string::npos);
}

TEST_CASE("a thousandfold include is refused") {
  const test::TemporaryFolder folder;
  folder.write("f0.yaml", kLayer);
  for (int i = 1; i < 12; ++i) {
    const std::string earlier = "f" + std::to_string(i - 1) + ".yaml";
    folder.write("f" + std::to_string(i) + ".yaml",
                 "include: [" + earlier + ", " + earlier + ", " + earlier + "]\n");
  }
  CHECK(load_refusal(folder.path("f11.yaml")).find("too many includes") != std::string::npos);
}

TEST_CASE("a locale with decimal commas changes nothing") {
  const std::string text = kLayer + "batch.decode: 4\nno_adapter: 0.25\nadapters.scale: 1.5\n";
  const std::uint64_t hash = parse_scenario(text, "test.yaml", {}).content_hash;
  const std::string c_before = std::setlocale(LC_ALL, nullptr);
  static_cast<void>(std::setlocale(LC_ALL, "de_DE.UTF-8"));  // where it is installed
  const std::locale before =
      std::locale::global(std::locale(std::locale::classic(), new DecimalComma));
  const Scenario scenario = parse_scenario(text, "test.yaml", {});
  std::locale::global(before);
  std::setlocale(LC_ALL, c_before.c_str());
  CHECK(scenario.cases.front().no_adapter == 0.25);
  CHECK(scenario.cases.front().adapters.scale.front() == 1.5);
  CHECK(scenario.content_hash == hash);
}

TEST_CASE("a scenario is found by path or by name, else the nearest name is offered") {
  CHECK(find_scenario("smoke").filename() == "smoke.yaml");
  CHECK(find_scenario("verify/edges").filename() == "edges.yaml");
  const std::string path = (scenario_folder() / "decode.yaml").string();
  CHECK(find_scenario(path) == path);
  try {
    static_cast<void>(find_scenario("smoek"));
    FAIL("found");
  } catch (const UsageError& error) {
    CHECK(std::string(error.what()).ends_with("did you mean 'smoke'?"));
  }
  const test::TemporaryFolder folder;
  try {
    static_cast<void>(find_scenario(folder.folder()));
    FAIL("found");
  } catch (const UsageError& error) {
    CHECK(std::string(error.what())
              .starts_with("'" + folder.folder() +
                           "' is a folder, no scenario; allowed: a file, or"));
  }
}

TEST_CASE("the parameter of a skew is refused by its own range") {
  CHECK(refusal(kLayer + "skew: {zipf: -1}") ==
        "test.yaml:2:14: 'skew.zipf' is '-1'; allowed: a number from 0 to 16");
  CHECK(refusal(kLayer + "skew: {hot: 120%}") ==
        "test.yaml:2:13: 'skew.hot' is '120%'; allowed: a share from 0 to 1, or 0% to 100%");
  CHECK(refusal(kLayer + "skew: {trace: [1, 2]}") ==
        "test.yaml:2:15: 'skew.trace' is a list; allowed: a file of adapter ids");
}

TEST_CASE("a tab that indents a line is named at its place") {
  const std::string wanted = "test.yaml:3:1: not YAML: a tab indents this line; allowed: spaces";
  CHECK(refusal(kLayer + "batch:\n\tdecode: 4\n") == wanted);
  CHECK(refusal(kLayer + "adapters: {slots: 4,\n\trank: 8\n") == wanted);
  CHECK(refusal(kLayer + "adapters: {slots:\t4,\trank:\t8}\n") == "accepted");
  CHECK(refusal(kLayer + "# tab\n\t\nadapters: {slots: 4") ==
        "test.yaml:3:1: not YAML: a tab indents this line; allowed: spaces");
}

TEST_CASE("brackets that nothing closes are named where they open") {
  CHECK(refusal("layer: {in: 64, out: [64]\nbatch: {decode: 4}\n") ==
        "test.yaml:1:8: not YAML: '{' opens here and nothing closes it before line 2, column 1; "
        "allowed: '}' behind the last entry");
  CHECK(refusal("layer: {in: 64, out: [64}\n") ==
        "test.yaml:1:22: not YAML: '[' opens here and nothing closes it before line 1, column 25; "
        "allowed: ']' behind the last entry");
}

TEST_CASE("an unknown backend is refused at its place, also in a sweep") {
  LoadOptions options;
  options.check_backend = [](const std::string& name) {
    if (name != "cpu") {
      Diagnostic unknown;
      unknown.what = "unknown backend '" + name + "'";
      unknown.allowed = "cpu";
      throw UsageError({unknown});
    }
  };
  const auto said = [&](const std::string& text) -> std::string {
    try {
      static_cast<void>(parse_scenario(with_batch(kLayer + text), "test.yaml", options));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK(said("backends: [cpu]") == "accepted");
  CHECK(said("backends: [cpu, gpu]") == "test.yaml:2:17: unknown backend 'gpu'; allowed: cpu");
  CHECK(said("sweep: {product: {backends: [cpu, tpu]}}") ==
        "test.yaml:2:35: unknown backend 'tpu'; allowed: cpu");
}
