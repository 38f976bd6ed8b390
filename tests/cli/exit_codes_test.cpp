#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/process.h"
#include "support/small_scenario.h"

namespace lora_bench::test {
namespace {

TEST_CASE("exit 0: a proved and timed row") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const ProcessResult result = run_tool({"run", file, "--backends", "cpu"});
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "PASSED"));
}

TEST_CASE("exit 1: nothing is run for a command line that makes no sense") {
  CHECK(run_tool({}).exit_code == 1);
  CHECK(run_tool({"rnu"}).exit_code == 1);
  CHECK(run_tool({"run"}).exit_code == 1);
  CHECK(run_tool({"run", "smoke", "--repeat", "0"}).exit_code == 1);
  CHECK(run_tool({"run", "no-such-scenario"}).exit_code == 1);
  CHECK(run_tool({"list", "nothing"}).exit_code == 1);
}

TEST_CASE("exit 1: an unknown option or value is named with the nearest known one") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> lines{
      {{"run", "smoke", "--bakends", "cpu"},
       "run: unknown option '--bakends'; did you mean '--backends'?"},
      {{"run", "smoke", "--filtr=rank=8"},
       "run: unknown option '--filtr'; did you mean '--filter'?"},
      {{"report", "x.jsonl", "-o", "y"}, "report: unknown option '-o'; did you mean '--out'?"},
      {{"report", "x.jsonl", "--nonsense"},
       "report: unknown option '--nonsense'; `lora-bench report --help` lists what there is"},
      {{"run", "smoke", "--color=never"},
       "run: unknown option '--color'; it stands before the command: lora-bench --color ... run"},
      {{"--colr", "always", "run", "smoke"},
       "lora-bench: unknown option '--colr'; did you mean '--color'?"},
      {{"--color", "always", "rnu"}, "there is no command 'rnu'"},
      {{"list", "metricz"}, "what: unknown 'metricz'; allowed: "},
      {{"list", "metricz"}, "; did you mean 'metrics'?"}};
  for (const auto& line : lines) {
    const ProcessResult result = run_tool(line.first);
    const std::string& sentence = line.second;
    CAPTURE(result.err);
    CAPTURE(sentence);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, sentence));
  }
}

TEST_CASE("exit 1: an unknown command is named with the nearest known one") {
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"rnu"}, {"--color", "never", "rnu", "smoke", "--no-time"}}) {
    const ProcessResult result = run_tool(line);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "no command 'rnu'"));
    CHECK(contains(result.err, "did you mean 'run'?"));
  }
  CHECK(!contains(run_tool({"run", "smoke", "--nothing"}).err, "no command"));
  CHECK(run_tool({"run", "--help"}).exit_code == 0);
}

TEST_CASE("exit 1: results are read from .jsonl, and a CSV is told so") {
  const TemporaryFolder folder;
  const std::string csv = folder.write("x.csv", "status,scenario\nPASSED,a\n");
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"report", csv}, {"compare", csv, csv}}) {
    const ProcessResult result = run_tool(line);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "reads .jsonl files"));
  }
}

TEST_CASE("a replaced results file and a resumed one that is not there are told") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string rows = folder.path("a.jsonl");
  const auto told = [&](const char* option) {
    return run_tool({"run", file, "--backends", "cpu", "--no-time", option, rows}).err;
  };
  CHECK(contains(told("--resume"), "a.jsonl is new"));
  CHECK(!contains(told("--resume"), "is new"));
  CHECK(contains(told("--out"), "replaced " + rows));
  CHECK(contains(run_tool({"verify", file, "--backends", "cpu", "--out", rows}).err,
                 "replaced " + rows));
  const std::vector<std::string> render{"report", rows, "--out", folder.path("a.csv")};
  CHECK(!contains(run_tool(render).err, "replaced"));
  CHECK(contains(run_tool(render).err, "replaced " + folder.path("a.csv")));
  CHECK(!contains(
      run_tool({"run", file, "--backends", "cpu", "--no-time", "--out", folder.path("b.jsonl")})
          .err,
      "replaced"));
}

TEST_CASE("a proof table has no bound share for a backend that passed nothing") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  CHECK(contains(run_tool({"verify", file, "--backends", "cpu"}).out, "%"));
  CHECK(!contains(run_tool({"verify", file, "--backends", "naive"}).out, "0.0%"));
}

TEST_CASE("exit 1: a case as export takes it is told as the others do") {
  const ProcessResult result = run_tool({"run", "smoke/decode8-rank8"});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "did you mean 'smoke --case decode8-rank8'?"));
}

TEST_CASE("exit 1: an unknown backend is named with the nearest known one") {
  const ProcessResult result = run_tool({"run", "smoke", "--backends", "cpuu"});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "did you mean 'cpu'?"));
}

TEST_CASE("exit 1: an unknown backend of a scenario is told with its place") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario("backends: [cpu, cpuu]\n"));
  for (const char* command : {"run", "plan"}) {
    const ProcessResult result = run_tool({command, file});
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, file + ":8:17: unknown backend 'cpuu'"));
    CHECK(contains(result.err, "did you mean 'cpu'?"));
  }
  CHECK(contains(run_tool({"run", file, "--set", "backends=fake:wrnog"}).err,
                 "--set backends=fake:wrnog: unknown fake behaviour"));
}

// A results file of one row, so often repeated, whose repeats differ by a thousandth at most;
// `more` is further keys of each.
std::string rows_of(const TemporaryFolder& folder, const std::string& name, double time_us,
                    int repeats, const std::string& more = "") {
  std::string text = "{\"kind\":\"context\",\"schema\":1}\n";
  for (int i = 0; i < repeats; ++i) {
    text +=
        "{\"kind\":\"row\",\"scenario\":\"a\",\"case\":\"b\",\"backend\":\"cpu\","
        "\"status\":\"PASSED\",\"levels\":\"exact\",\"floor_us\":1,\"samples\":20,"
        "\"repetition\":" +
        std::to_string(i) + ",\"time_us\":" + std::to_string(time_us * (1 + i * 1e-4)) + more +
        "}\n";
  }
  return folder.write(name, text);
}

TEST_CASE("exit 0 and 3: compare takes the threshold as a scenario does") {
  const TemporaryFolder folder;
  const std::string base = rows_of(folder, "base.jsonl", 100, 8);
  const std::string slower = rows_of(folder, "new.jsonl", 106, 8);
  for (const char* threshold : {"5%", "0.05", "5.7%"}) {
    CHECK(run_tool({"compare", base, slower, "--threshold", threshold}).exit_code == 3);
  }
  for (const char* threshold : {"7%", "0.07", "100%", "1"}) {
    CHECK(run_tool({"compare", base, slower, "--threshold", threshold}).exit_code == 0);
  }
  CHECK(run_tool({"compare", slower, base}).exit_code == 0);
}

TEST_CASE("exit 4: compare of too few repeats, of disturbed ones, of a threshold below the noise") {
  const TemporaryFolder folder;
  const std::string base = rows_of(folder, "base.jsonl", 100, 8);
  const ProcessResult few = run_tool({"compare", base, rows_of(folder, "few.jsonl", 150, 2)});
  CHECK(few.exit_code == 4);
  CHECK(contains(few.out, "INCONCLUSIVE"));
  CHECK(contains(few.out, "run both with --repeat 5"));
  for (const char* disturbed :
       {",\"stolen_share\":0.2", ",\"throttle\":\"hw_thermal\"", ",\"load\":2.5"}) {
    CAPTURE(disturbed);
    const ProcessResult result =
        run_tool({"compare", base, rows_of(folder, "busy.jsonl", 150, 8, disturbed)});
    CHECK(result.exit_code == 4);
    CHECK(contains(result.out, "disturbed"));
  }
  const ProcessResult below =
      run_tool({"compare", base, rows_of(folder, "same.jsonl", 100, 8), "--threshold", "0.001%"});
  CHECK(below.exit_code == 4);
  CHECK(contains(below.out, "below the noise of every row"));
}

TEST_CASE("exit 1: a scenario error says file, line and column, before any work") {
  const TemporaryFolder folder;
  const std::string file = folder.write("bad.yaml", small_scenario("adaptres: {}\n"));
  const std::string out = folder.path("rows.jsonl");
  const ProcessResult result = run_tool({"run", file, "--out", out});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, file + ":8:1: "));
  CHECK(contains(result.err, "did you mean 'adapters'?"));
  CHECK(read_file(out).empty());
}

TEST_CASE("exit 1: a filter that matches nothing, an unknown column, an unknown threshold") {
  CHECK(run_tool({"run", "smoke", "--filter", "rank>=100000"}).exit_code == 1);
  const ProcessResult column = run_tool({"run", "smoke", "--filter", "rnak>=8"});
  CHECK(column.exit_code == 1);
  CHECK(contains(column.err, "did you mean 'rank'?"));
  for (const char* command : {"run", "plan"}) {
    const ProcessResult later = run_tool({command, "smoke", "--filter", "floor_ratio>2"});
    CHECK(later.exit_code == 1);
    CHECK(contains(later.err, "'floor_ratio' is known only after the run"));
    CHECK(contains(later.err, "report FILE.jsonl --filter 'floor_ratio>2'"));
  }
  const ProcessResult threshold = run_tool({"run", "smoke", "--threshold", "max_time=3"});
  CHECK(threshold.exit_code == 1);
  CHECK(contains(threshold.err, "did you mean 'max_time_us'?"));
  for (const char* text : {"max_floor_ratio", "max_floor_ratio="}) {
    const ProcessResult without = run_tool({"run", "smoke", "--threshold", text});
    CHECK(without.exit_code == 1);
    CHECK(without.err == std::string("--threshold ") + text +
                             ": 'max_floor_ratio' has no value; allowed: a number above 0, as in "
                             "max_floor_ratio=1.5\n");
  }
}

TEST_CASE("exit 1: a number that is none is refused, not bent into one") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  for (const char* seed : {"-1", "99999999999999999999999", "1e3", ""}) {
    CAPTURE(seed);
    CHECK(run_tool({"run", file, "--no-time", "--seed", seed}).exit_code == 1);
  }
  CHECK(run_tool({"run", file, "--no-time", "--seed", "18446744073709551615"}).exit_code == 0);
  CHECK(run_tool({"run", file, "--threshold", "max_time_us=inf"}).exit_code == 1);
  CHECK(run_tool({"run", file, "--threshold", "max_time_us=nan"}).exit_code == 1);
  const std::string rows = folder.path("rows.jsonl");
  REQUIRE(run_tool({"run", file, "--backends", "fake", "--out", rows}).exit_code == 0);
  for (const char* threshold : {"nan", "5", "-1%", "five"}) {
    CAPTURE(threshold);
    const ProcessResult refused = run_tool({"compare", rows, rows, "--threshold", threshold});
    CHECK(refused.exit_code == 1);
    CHECK(contains(refused.err, "write 3% for three percent"));
  }
}

TEST_CASE("exit 1: nothing is run or written twice under one name") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  CHECK(run_tool({"run", file, "--no-time", "--backends", "fake,fake"}).exit_code == 1);
  CHECK(run_tool({"run", file, file, "--no-time", "--backends", "fake"}).exit_code == 1);
  const std::string rows = folder.path("rows.jsonl");
  const std::vector<std::string> start{"run",  file,    "--no-time", "--backends",
                                       "fake", "--out", rows};
  REQUIRE(run_tool(start).exit_code == 0);
  const std::string before = read_file(rows);
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = start;
    all.insert(all.end(), more.begin(), more.end());
    return run_tool(all);
  };
  CHECK(with({"--out", folder.folder() + "/./rows.jsonl"}).exit_code == 1);
  CHECK(with({"--samples-to", rows}).exit_code == 1);
  const ProcessResult both = with({"--resume", rows});
  CHECK(both.exit_code == 1);
  CHECK(contains(both.err, "would be written twice"));
  CHECK(read_file(rows) == before);
  CHECK(run_tool({"run", file, "--no-time", "--resume", folder.path("rows.md")}).exit_code == 1);
}

TEST_CASE("exit 1: each --case has to match, whatever the others do") {
  for (const char* command : {"run", "verify", "plan"}) {
    const ProcessResult result =
        run_tool({command, "smoke", "--case", "decode1-rank8", "--case", "nope"});
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "--case nope matches none"));
  }
}

TEST_CASE("exit 1: rows of which less was asked do not stand for rows of this run") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string rows = folder.path("rows.jsonl");
  const std::vector<std::string> proof{"run", file, "--backends", "fake", "--no-time"};
  const auto resumed = [&](std::vector<std::string> command) {
    command.insert(command.end(), {"--resume", rows});
    return run_tool(command).exit_code;
  };
  REQUIRE(resumed(proof) == 0);
  CHECK(resumed(proof) == 0);
  CHECK(resumed({"run", file, "--backends", "fake"}) == 1);
  CHECK(resumed({"run", file, "--backends", "fake", "--no-time", "--relations"}) == 1);
  CHECK(resumed({"run", file, "--backends", "fake", "--no-time", "--threshold", "max_time_us=1"}) ==
        1);
  CHECK(resumed({"run", file, "--backends", "fake,cpu", "--no-time", "--quiet"}) == 0);
}

TEST_CASE("an output that cannot be written is found before work starts") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  CHECK(run_tool({"run", file, "--out", folder.path("rows.xlsx")}).exit_code == 1);
  CHECK(run_tool({"run", file, "--out", folder.path("none/rows.csv")}).exit_code == 5);
}

TEST_CASE("exit 2: a wrong result does not hide the right ones") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const ProcessResult result = run_tool({"run", file, "--backends", "cpu,fake:wrong"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "FAILED"));
  CHECK(contains(result.out, "PASSED"));
}

TEST_CASE("exit 2: a backend that throws ends its row and not the run") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const ProcessResult result = run_tool({"run", file, "--backends", "fake:throw,cpu"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "ERROR"));
  CHECK(contains(result.out, "PASSED"));
}

TEST_CASE("exit 2: a backend that hangs is left behind by the watchdog") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario("verify: {timeout_s: 0.5}\n"));
  const ProcessResult result = run_tool({"run", file, "--backends", "fake:hang,cpu"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "HUNG"));
  CHECK(contains(result.out, "PASSED"));
}

TEST_CASE("exit 2: work that goes on after the return is caught") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  CHECK(run_tool({"run", file, "--backends", "fake:late"}).exit_code == 2);
}

TEST_CASE("exit 2: work that is left out while it is timed is caught") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  CHECK(run_tool({"run", file, "--no-time", "--backends", "fake:lazy"}).exit_code == 0);
  const ProcessResult timed = run_tool({"run", file, "--backends", "fake:lazy"});
  CHECK(timed.exit_code == 2);
  CHECK(contains(timed.out, "left by the timed launches"));
}

TEST_CASE("exit 2: a write outside the output is caught") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const ProcessResult result = run_tool({"run", file, "--backends", "fake:outside"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "FAILED"));
}

TEST_CASE("exit 3: a missed threshold") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  // Many samples, and another try: on a busy machine the noise may be as large as the time, and
  // then nothing is decided.
  ProcessResult missed;
  for (int attempt = 0; attempt < 3 && (attempt == 0 || missed.exit_code == 4); ++attempt) {
    missed = run_tool({"run", file, "--backends", "fake:slow=100", "--threshold",
                       "max_time_us=0.0001", "--set", "measure.min_samples=60", "--set",
                       "measure.max_samples=100", "--set", "measure.max_time_ms=3000"});
  }
  CAPTURE(missed.out);
  CHECK(missed.exit_code == 3);
  CHECK(contains(missed.out, "allowed 0.0001"));
}

TEST_CASE("exit 4: everything skipped is not a pass") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const ProcessResult result = run_tool({"run", file, "--backends", "fake:unsupported"});
  CHECK(result.exit_code == 4);
  CHECK(contains(result.out, "SKIPPED"));
}

TEST_CASE("exit 4: a backend that was named passes by no other") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  for (const char* command : {"run", "verify"}) {
    const ProcessResult result = run_tool({command, file, "--backends", "fake:unsupported,cpu"});
    CAPTURE(result.err);
    CHECK(result.exit_code == 4);
    CHECK(contains(result.err, "fake:unsupported was named and has no PASSED row: 1 SKIPPED: "));
    CHECK(!contains(result.err, "cpu was named"));
  }
  // A scenario may name backends of other machines.
  const std::string naming =
      folder.write("naming.yaml", small_scenario("backends: [fake:unsupported, cpu]\n"));
  CHECK(run_tool({"run", naming, "--no-time"}).exit_code == 0);
}

TEST_CASE("exit 4: an unverified time is not trusted") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario("verify: {enabled: false}\n"));
  const ProcessResult result = run_tool({"run", file, "--backends", "cpu"});
  CHECK(result.exit_code == 4);
  CHECK(contains(result.out, "MISTRUSTED"));
}

TEST_CASE("a case too large for the memory is skipped with the figure") {
  const TemporaryFolder folder;
  const std::string file = folder.write("huge.yaml",
                                        "name: huge\nquestion: what happens without room?\n"
                                        "layer: {in: 1000000, out: [1000000]}\n"
                                        "batch: {decode: 4}\n"
                                        "adapters: {slots: 10000, rank: 512}\n");
  const ProcessResult result = run_tool({"run", file, "--backends", "cpu"});
  CHECK(result.exit_code == 4);
  CHECK(contains(result.out, "SKIPPED"));
  CHECK(contains(result.out, "TB of memory"));
}

TEST_CASE("export writes the cases that are named after their scenario") {
  const TemporaryFolder folder;
  const ProcessResult result = run_tool({"export", "smoke/decode8-rank16", "smoke/decode1-rank8",
                                         "--backends", "cpu", "--to", folder.folder()});
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "decode1-rank8.safetensors"));
  CHECK_FALSE(contains(result.out, "decode32-rank16.safetensors"));
  CHECK(read_file(folder.path("decode8-rank16.safetensors")).size() > 10000);
  CHECK(contains(read_file(folder.path("decode8-rank16.json")), "\"op\""));
  const ProcessResult unknown =
      run_tool({"export", "smoke/decode8-rnak16", "--backends", "cpu", "--to", folder.folder()});
  CHECK(unknown.exit_code == 1);
  CHECK(contains(unknown.err, "did you mean 'decode8-rank16'?"));
}

TEST_CASE("export writes all cases of a scenario, with its scales if asked, but no mixture") {
  const TemporaryFolder folder;
  const std::vector<std::string> all{
      "export", "smoke", "--backends", "cpu", "--scales-as-written", "--to", folder.folder()};
  const ProcessResult result = run_tool(all);
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(contains(result.out, "decode1-rank8.safetensors"));
  CHECK(contains(result.out, "decode32-rank16.safetensors"));
  const ProcessResult mixed =
      run_tool({"export", "smoke", "--backends", "cpu,mutant:none", "--to", folder.folder()});
  CHECK(mixed.exit_code == 1);
  CHECK(contains(mixed.err, "export writes cases of one scenario and one backend"));
}

TEST_CASE("device tells what a results file would say of it, measuring nothing") {
  const ProcessResult result = run_tool({"device", "--json"});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "{\"kind\":\"context\",\"schema\":2,"));
  CHECK(contains(result.out, "\"device_kind\":\"cpu\""));
}

TEST_CASE("every row of a run reruns alone from its printed command") {
  const TemporaryFolder folder;
  const std::string file = folder.write(
      "small.yaml",
      small_scenario("sweep: {product: {batch.decode: [1, 4], adapters.rank: [8, 16]}}\n"));
  const std::string rows = folder.path("rows.jsonl");
  REQUIRE(run_tool({"run", file, "--backends", "cpu", "--out", rows}).exit_code == 0);
  const std::string text = read_file(rows);
  const std::string key = "\"repro\":\"lora-bench ";
  int commands = 0;
  for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    const std::size_t start = at + key.size();
    const std::string command = text.substr(start, text.find('"', start) - start);
    const ProcessResult again = run_tool_in_shell(tool_path() + " " + command + " --no-time");
    CHECK(again.exit_code == 0);
    CHECK(contains(again.err, "1 row: 1 PASSED"));
    ++commands;
  }
  CHECK(commands == 4);
}

TEST_CASE("the printed command of a row judges it by the thresholds and relations of its run") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string rows = folder.path("rows.jsonl");
  const ProcessResult first =
      run_tool({"run", file, "--backends", "fake:slow=100", "--relations", "--threshold",
                "max_time_us=0.0001", "--set", "measure.min_samples=60", "--set",
                "measure.max_samples=100", "--set", "measure.max_time_ms=3000", "--out", rows});
  CHECK(first.exit_code >= 3);
  const std::string text = read_file(rows);
  const std::string key = "\"repro\":\"lora-bench ";
  REQUIRE(contains(text, key));
  const std::size_t start = text.find(key) + key.size();
  const std::string command = text.substr(start, text.find('"', start) - start);
  const ProcessResult again = run_tool_in_shell(tool_path() + " " + command);
  CAPTURE(command);
  // Without the threshold it would be 0; a busy machine may leave it undecided, which is 4.
  CHECK(again.exit_code >= 3);
  CHECK(again.exit_code <= 4);
  CHECK(contains(again.out, "allowed 0.0001"));
  CHECK(contains(command, " --relations"));
}

}  // namespace
}  // namespace lora_bench::test
