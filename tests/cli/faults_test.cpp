#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "support/json_rows.h"
#include "support/process.h"
#include "support/small_scenario.h"

namespace lora_bench::test {
namespace {

std::int64_t count(const std::string& text, const std::string& part) {
  std::int64_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

// Many rows of a few milliseconds, so that a signal meets the run in the middle.
std::string long_scenario() {
  std::string seeds = "1";
  for (int seed = 2; seed <= 100; ++seed) {
    seeds += ", " + std::to_string(seed);
  }
  return small_scenario("sweep: {product: {seed: [" + seeds + "]}}\n");
}

TEST_CASE("an interrupted run keeps its rows, says how to go on, and goes on") {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TemporaryFolder folder;
    const std::string file = folder.write("long.yaml", long_scenario());
    const std::string rows = folder.path("rows.jsonl");
    ProcessOptions options;
    options.signal = signal;
    options.signal_when_filled = rows;
    const ProcessResult cut = run_tool({"run", file, "--backends", "cpu", "--out", rows}, options);
    CHECK(cut.exit_code == 4);
    const std::string marker = "go on with: ";
    REQUIRE(contains(cut.err, marker));
    std::string command = cut.err.substr(cut.err.find(marker) + marker.size());
    command = command.substr(0, command.find('\n'));
    const std::int64_t before = count(read_file(rows), "\"kind\":\"row\"");
    CHECK(before >= 1);
    CHECK(before < 100);
    CHECK(count(cut.out, "PASSED") >= before);
    const ProcessResult rest = run_tool_in_shell(command);
    CHECK(rest.exit_code == 0);
    CHECK(count(read_file(rows), "\"kind\":\"row\"") == 100);
    CHECK(count(read_file(rows), "\"kind\":\"context\"") == 1);
    CHECK_FALSE(contains(read_file(rows), "interrupted"));
  }
}

TEST_CASE("the self-test and the measurement of ceilings stop with what there is") {
  ProcessOptions options;
  for (const int signal : {SIGINT, SIGTERM}) {
    options.signal = signal;
    options.signal_when_said = "caught by";
    const ProcessResult test = run_tool({"verify", "--self-test"}, options);
    CHECK(test.exit_code == 4);
    CHECK(contains(test.out, "  yes  "));
    CHECK_FALSE(contains(test.out, "  NO  "));
    CHECK(contains(test.out, "interrupted"));
    CHECK(contains(test.out, " 0 false alarms in 0 correct cases"));
    options.signal_when_said = "cores";
    const ProcessResult device = run_tool({"device", "--refresh"}, options);
    CHECK(device.exit_code == 4);
    CHECK(contains(device.out, "interrupted"));
    CHECK_FALSE(contains(device.out, "TFLOP/s"));
  }
}

TEST_CASE("an interrupted verify says no command that cannot be run") {
  const TemporaryFolder folder;
  ProcessOptions options;
  options.signal = SIGINT;
  options.signal_when_filled = folder.path("rows.jsonl");
  const ProcessResult cut = run_tool({"verify", folder.write("long.yaml", long_scenario()),
                                      "--backends", "cpu", "--out", options.signal_when_filled},
                                     options);
  CHECK(cut.exit_code == 4);
  CHECK(contains(cut.err, "interrupted"));
  CHECK_FALSE(contains(cut.err, "--resume"));
  CHECK_FALSE(contains(cut.err, "can be resumed"));
}

TEST_CASE("what is no file is refused before it is opened, wherever a file is read") {
  const TemporaryFolder folder;
  const std::string pipe = folder.path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(::mkfifo(folder.path("pipe.jsonl").c_str(), 0600) == 0);
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string including = folder.write("including.yaml", "include: pipe\n");
  const std::string tracing =
      folder.write("tracing.yaml", "layer: {in: 8, out: [8]}\nskew: {trace: pipe}\n");
  const std::vector<std::vector<std::string>> lines{
      {"run", pipe},
      {"run", including},
      {"run", tracing},
      {"run", file, "--tuning", pipe},
      {"run", file, "--backends", "cpu", "--resume", folder.path("pipe.jsonl")},
      {"report", pipe},
      {"compare", pipe, pipe},
      {"check", pipe, "--output", pipe},
  };
  for (const std::vector<std::string>& line : lines) {
    CAPTURE(line);
    const ProcessResult result = run_tool(line);
    CAPTURE(result.err);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "it is a pipe, and only files are read"));
  }
  const ProcessResult device = run_tool({"report", "/dev/zero"});
  CHECK(device.exit_code == 1);
  CHECK(contains(device.err, "cannot read '/dev/zero': it is a device"));
}

TEST_CASE("a line without an end is refused before it is in memory") {
  const TemporaryFolder folder;
  const std::string endless = folder.write("rows.jsonl", "{");
  std::filesystem::resize_file(endless, std::uintmax_t{1} << 40);  // no block of it is on the disk
  const ProcessResult result = run_tool({"report", endless});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "rows.jsonl:1: line longer than 16777216 bytes"));
}

TEST_CASE("a file that a run is writing is refused to another, which runs nothing") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string rows = folder.path("rows.jsonl");
  const std::vector<std::string> run{"run", file, "--backends", "cpu", "--no-time"};
  const auto with = [&](const std::string& option) {
    std::vector<std::string> command = run;
    command.insert(command.end(), {option, rows});
    return run_tool(command);
  };
  REQUIRE(with("--out").exit_code == 0);
  const std::string text = read_file(rows);
  const int held = ::open(rows.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(held, LOCK_EX) == 0);  // as a run that goes on holds it
  for (const char* option : {"--out", "--resume", "--samples-to"}) {
    const ProcessResult second = with(option);
    CAPTURE(second.err);
    CHECK(second.exit_code == 5);
    CHECK(contains(second.err, "rows.jsonl': another lora-bench is writing it; wait for its end"));
    CHECK(read_file(rows) == text);
  }
  ::close(held);
  CHECK(with("--resume").exit_code == 0);
}

TEST_CASE("rows that were edited are refused by a strict comparison") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string rows = folder.path("rows.jsonl");
  REQUIRE(run_tool({"run", file, "--backends", "cpu", "--no-time", "--out", rows}).exit_code == 0);
  const std::string text = read_file(rows);
  CHECK(contains(text, R"("sealed":true})"));
  const std::string edited = folder.write(
      "edited.jsonl",
      std::regex_replace(text, std::regex(R"("warning":"[^"]*")"), R"("warning":"none at all")"));
  const ProcessResult strict = run_tool({"compare", "--strict", rows, edited});
  CAPTURE(strict.err);
  CHECK(strict.exit_code == 1);
  CHECK(contains(strict.err, "edited.jsonl:2: the row was changed after it was written"));
  // Writing it out again takes no doubt away.
  const std::string again = folder.path("again.jsonl");
  CHECK(run_tool({"report", edited, "--out", again}).exit_code == 0);
  CHECK(contains(run_tool({"report", again}).err, "as its seal is missing: measure it again"));
}

TEST_CASE("a results file cut in the middle of a line is resumed without that row") {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("small.yaml", small_scenario("sweep: {product: {seed: [1, 2, 3]}}\n"));
  const std::string rows = folder.path("rows.jsonl");
  REQUIRE(run_tool({"run", file, "--backends", "cpu", "--out", rows}).exit_code == 0);
  const std::string whole = read_file(rows);
  std::filesystem::resize_file(rows, whole.size() - 40);
  const ProcessResult result = run_tool({"run", file, "--backends", "cpu", "--resume", rows});
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(count(read_file(rows), "\"kind\":\"row\"") == 3);
  CHECK(run_tool({"report", rows}).exit_code == 0);
}

TEST_CASE("resume trusts no row that this run would not have written") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string stored = folder.path("stored.jsonl");
  const std::vector<std::string> run{"run", file, "--backends", "cpu", "--no-time"};
  const auto with = [&](const std::string& option, const std::string& rows) {
    std::vector<std::string> command = run;
    command.insert(command.end(), {option, rows});
    return run_tool(command);
  };
  REQUIRE(with("--out", stored).exit_code == 0);
  const std::string text = unsealed(read_file(stored));
  const std::size_t row = text.find('\n') + 1;
  const auto resumed = [&](const std::string& edited) {
    return with("--resume", folder.write("edited.jsonl", edited));
  };
  const auto replaced = [&](std::string whole, const std::string& from, const std::string& to) {
    const std::size_t at = whole.find(from);
    REQUIRE(at != std::string::npos);
    return whole.replace(at, from.size(), to);
  };
  CHECK(resumed(text).exit_code == 0);
  const auto refused = [&](const std::string& edited, const std::string& why) {
    const ProcessResult result = resumed(edited);
    CAPTURE(result.err);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, why));
  };
  refused(text + text.substr(row), "the same row once more");
  refused(text + replaced(text, "\"device_identity\":\"", "\"device_identity\":\"other "),
          "another context");
  refused(replaced(text, "\"dtype\":\"", "\"dtype\":\"x"), "dtype");
  refused(replaced(text, "\"tokens\":", "\"tokens\":1"), "tokens");
  refused(replaced(text, "\"rank\":", "\"rank\":1"), "rank");
  refused(replaced(text, "\"commit\":\"", "\"commit\":\"0"), "commit");
  const auto with_value = [&](const std::string& key, const std::string& value) {
    const std::size_t at = text.find("\"" + key + "\":") + key.size() + 3;
    return text.substr(0, at) + value + text.substr(text.find_first_of(",}", at));
  };
  refused(with_value("levels", "\"\""), "PASSED without a level");
  refused(with_value("weight_bytes", "0"), "weight_bytes is 0");
  refused(with_value("weight_bytes", "1"), "the weight_bytes '1', this run '");
  refused(with_value("slots", "99"), "the slots '99', this run '");
  refused(with_value("bound_share", "40"), "bound_share is no share");
  refused(with_value("levels", "\"exact+bounded+memory+magic\""), "levels are not exact, bounded");
  refused(with_value("levels", "\"bounded\""), "is proved at 'bounded', this run proves memory");
  refused(with_value("levels", "\"exact+relations+memory\""), "this run proves memory without");
  refused(with_value("rows_checked", "0.5"), "has the rows_checked 0.5, this run 1");
  refused(with_value("mode", "\"graph\""), "has the mode 'graph', this run 'host'");
  refused(with_value("repetition", "1"), "is repetition 1, this run has those from 0 to 0");
  // A run that takes times has no use for a pass without one.
  const ProcessResult timed =
      run_tool({"run", file, "--backends", "cpu", "--resume",
                folder.write("untimed.jsonl", replaced(text, "\"--no-time\",", ""))});
  CHECK(timed.exit_code == 1);
  CHECK(contains(timed.err, "is PASSED without a time, which this run takes"));
}

TEST_CASE("resume judges stored times by the thresholds that the run was asked for") {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("small.yaml", small_scenario("thresholds: {max_regression: 2%}\n"));
  const std::string stored = folder.path("stored.jsonl");
  const auto with = [&](const std::string& option, const std::string& rows) {
    return run_tool(
        {"run", file, "--backends", "cpu", "--threshold", "max_time_us=0.000001", option, rows});
  };
  // On a busy machine the noise may be as large as the time, and then nothing is decided.
  const int judged = with("--out", stored).exit_code;
  REQUIRE((judged == 3 || judged == 4));
  CHECK(with("--resume", stored).exit_code == judged);
  const auto refused = [&](const std::string& key, const std::string& value) {
    const std::string text = unsealed(read_file(stored));
    const std::size_t at = text.find("\"" + key + "\":", text.find('\n')) + key.size() + 3;
    const std::string edited = text.substr(0, at) + value + text.substr(text.find(",\"", at));
    const ProcessResult result = with("--resume", folder.write("edited.jsonl", edited));
    CAPTURE(result.err);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "has the " + key + " '"));
  };
  refused(judged == 3 ? "threshold_missed" : "threshold_undecided", "\"\"");
  refused("threshold_missed", "\"time_us is 1, allowed 0.5\"");
  refused("threshold_undecided", "\"time_us is 1, allowed 0.5, noise 1\"");
  refused("max_regression", "0.5");
}

TEST_CASE("resume trusts no row of a layer that was proved at less than this run proves") {
  const TemporaryFolder folder;
  const std::string stored = folder.path("stored.jsonl");
  const std::vector<std::string> run{"run",       "verify/layers", "--backends",    "cpu",
                                     "--no-time", "--case",        "replicated-tp1"};
  const auto with = [&](const std::string& option, const std::string& rows) {
    std::vector<std::string> command = run;
    command.insert(command.end(), {option, rows});
    return run_tool(command);
  };
  REQUIRE(with("--out", stored).exit_code == 0);
  const std::string text = unsealed(read_file(stored));
  CHECK(with("--resume", stored).exit_code == 0);
  const std::string memory = "+memory\"";
  const std::size_t at = text.find(memory);
  REQUIRE(at != std::string::npos);
  const ProcessResult refused = with(
      "--resume",
      folder.write("edited.jsonl", text.substr(0, at) + "\"" + text.substr(at + memory.size())));
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.err, "this run proves memory"));
  const ProcessResult more = with(
      "--resume", folder.write("more.jsonl", text.substr(0, at) + "+relations" + text.substr(at)));
  CHECK(more.exit_code == 1);
  CHECK(contains(more.err, "this run proves memory without relations"));
}

TEST_CASE("resume takes no time of operands that were rotated otherwise than this run would") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string stored = folder.path("stored.jsonl");
  for (const char* cache : {"weights-cold", "hot"}) {
    const std::vector<std::string> run{"run",  file,    "--backends",
                                       "fake", "--set", std::string("measure.cache=") + cache};
    const auto with = [&](const std::string& option, const std::string& rows) {
      std::vector<std::string> command = run;
      command.insert(command.end(), {option, rows});
      return run_tool(command);
    };
    static_cast<void>(with("--out", stored));
    const std::string text = unsealed(read_file(stored));
    REQUIRE(contains(text, "\"status\":\"PASSED\""));
    CHECK(!contains(with("--resume", stored).err, "cannot resume"));
    for (const char* key : {"\"rotation_sets\":", "\"rotated_bytes\":"}) {
      for (const char* value : {"7", "null"}) {
        const std::size_t at = text.find(key) + std::string(key).size();
        const std::string edited =
            text.substr(0, at) + value + text.substr(text.find_first_of(",}", at));
        const ProcessResult refused = with("--resume", folder.write("edited.jsonl", edited));
        CAPTURE(refused.err);
        CHECK(refused.exit_code == 1);
        const bool absent = std::string(value) == "null";
        CHECK(
            contains(refused.err, absent ? "and one set of this run has " : "no run writes that"));
      }
    }
  }
}

TEST_CASE("resume refuses results of another scenario") {
  const TemporaryFolder folder;
  const std::string one = folder.write("one.yaml", small_scenario());
  const std::string rows = folder.path("rows.jsonl");
  REQUIRE(run_tool({"run", one, "--backends", "cpu", "--out", rows}).exit_code == 0);
  const std::string two = folder.write("two.yaml", small_scenario("seed: 7\n"));
  const ProcessResult result = run_tool({"run", two, "--backends", "cpu", "--resume", rows});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "is another one than it was"));
}

TEST_CASE("a full disk loses no finished row and is an environment error") {
  const TemporaryFolder folder;
  const std::string file = folder.write("long.yaml", long_scenario());
  const std::string rows = folder.path("rows.jsonl");
  ProcessOptions options;
  options.file_size_limit = 20000;
  const ProcessResult result = run_tool({"run", file, "--backends", "cpu", "--out", rows}, options);
  CHECK(result.exit_code == 5);
  CHECK(contains(result.err, rows));
  CHECK(count(result.out, "PASSED") >= 1);
  const ProcessResult report = run_tool({"report", rows});
  CHECK(report.exit_code == 0);
  CHECK(contains(report.out, "PASSED"));
}

TEST_CASE("a reader that goes away ends nothing but the table") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string rows = folder.path("rows.jsonl");
  ProcessOptions options;
  options.close_stdout = true;
  const ProcessResult result = run_tool({"run", file, "--backends", "cpu", "--out", rows}, options);
  CHECK(result.signal == 0);
  CHECK(result.exit_code == 0);
  CHECK(!contains(result.err, "cannot write"));
  CHECK(count(read_file(rows), "PASSED") == 1);
  CHECK(run_tool({"run", file, "--backends", "fake:wrong"}, options).exit_code == 2);
  const ProcessResult list = run_tool({"list", "fields"}, options);
  CHECK(list.exit_code == 0);
  CHECK(list.err.empty());
}

TEST_CASE("a full disk under standard output is an environment error") {
  const ProcessResult result = run_tool_in_shell(tool_path() + " list fields > /dev/full");
  CHECK(result.exit_code == 5);
  CHECK(contains(result.err, "cannot write to standard output"));
}

// Not of the sanitized tool, which reserves more addresses than the limit before main.
TEST_CASE("out of memory is said, not crashed") {
  const TemporaryFolder folder;
  const std::string file = folder.write(
      "large.yaml",
      "name: large\nquestion: what happens when memory runs out?\n"
      "layer: {in: 16384, out: [16384]}\nbatch: {decode: 64}\nadapters: {slots: 64, rank: 64}\n"
      "skew: distinct\n");
  ProcessOptions options;
  options.memory_limit = std::int64_t{400} << 20;
  const ProcessResult result = run_tool({"run", file, "--backends", "cpu"}, options);
  CHECK(result.signal == 0);
  CHECK(result.exit_code != 0);
  CHECK((contains(result.out, "memory") || contains(result.err, "memory")));
}

TEST_CASE("a comma-decimal locale changes no digit") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario("no_adapter: 0.25\n"));
  ProcessOptions options;
  options.environment = {{"LC_ALL", "de_DE.UTF-8"}};
  const std::string rows = folder.path("rows.csv");
  const ProcessResult result = run_tool({"run", file, "--backends", "cpu", "--out", rows}, options);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(read_file(rows), ",0.25,"));
}

// Not of the sanitized tool: the ceilings, which it has to measure, take three minutes there.
TEST_CASE("a home that cannot be written costs the cache, not the run") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  ProcessOptions options;
  options.environment = {{"XDG_CACHE_HOME", "/proc/no-such-place"}};
  const ProcessResult result = run_tool({"run", file, "--backends", "cpu"}, options);
  // Its own ceilings were measured beside other tests, so that the time may be below them.
  CHECK((result.exit_code == 0 || contains(result.err, " INVALID; exit 4")));
  CHECK(contains(result.err, "cannot be stored in /proc/no-such-place"));
}

TEST_CASE("no GPU is a sentence in the row and in the list") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  ProcessOptions options;
  options.environment = {{"CUDA_VISIBLE_DEVICES", ""}};
  const ProcessResult result = run_tool({"run", file, "--backends", "naive,cpu"}, options);
  CHECK(result.exit_code == 4);  // naive was asked for by name
  CHECK(contains(result.out, "SKIPPED"));
  const ProcessResult list = run_tool({"list", "backends"}, options);
  CHECK(list.exit_code == 0);
  CHECK(contains(list.out, "not here: "));
}

TEST_CASE("files that are no scenarios are refused, each by name") {
  const TemporaryFolder folder;
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char name = 'b'; name <= 'k'; ++name) {
    bomb += std::string(1, name) + ": &" + name + " [";
    for (int i = 0; i < 9; ++i) {
      bomb += std::string(i == 0 ? "*" : ", *") + static_cast<char>(name - 1);
    }
    bomb += "]\n";
  }
  const std::string files[] = {
      folder.path("missing.yaml"),
      folder.write("empty.yaml", ""),
      folder.write("binary.yaml", std::string("\x7f\0\1\2\3ELF", 8)),
      folder.write("large.yaml", std::string(std::size_t{10} << 20, '#')),
      folder.write("deep.yaml", std::string(100000, '[')),
      folder.write("bomb.yaml", bomb),
      folder.write("nan.yaml", small_scenario("no_adapter: .nan\n")),
      folder.write("negative.yaml", small_scenario("seed: -1\n")),
      folder.write("twice.yaml", small_scenario("name: again\n")),
      folder.write("loop.yaml", "include: loop.yaml\n" + small_scenario()),
      folder.write("outside.yaml", "include: ../../../etc/passwd\n" + small_scenario()),
  };
  for (const std::string& file : files) {
    const ProcessResult result = run_tool({"run", file});
    CAPTURE(file);
    CHECK(result.signal == 0);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, std::filesystem::path(file).stem().string()));
    CHECK(result.err.size() < 2000);
  }
}

}  // namespace
}  // namespace lora_bench::test
