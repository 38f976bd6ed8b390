#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/json_rows.h"
#include "support/need_numpy.h"
#include "support/peer_runs.h"
#include "support/process.h"

namespace lora_bench::test {

TEST_CASE("a row of a peer that FAILED is not taken back by a later one that PASSED") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const std::vector<std::string> resume{"--no-time", "--resume"};
  REQUIRE(run_peer(python, folder, "numpy", resume).exit_code == 0);
  const std::string text = read_file(folder.path("peers.jsonl"));
  nlohmann::json failed = rows_of(folder.path("peers.jsonl")).front();
  failed["status"] = "FAILED";
  failed["message"] = "bounded: 3 of 4096 wrong";
  const std::size_t first_row = text.find('\n') + 1;
  folder.write("peers.jsonl",
               text.substr(0, first_row) + failed.dump() + "\n" + text.substr(first_row));
  const ProcessResult result = run_peer(python, folder, "numpy", resume);
  CHECK(result.exit_code == 2);
  CHECK(rows_of(folder.path("peers.jsonl")).size() == 3);
}

TEST_CASE("a peer's run resumes no file with a row that no run of its cases wrote") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  REQUIRE(run_peer(python, folder, "numpy").exit_code == 0);
  const std::string text = read_file(folder.path("peers.jsonl"));
  const std::vector<nlohmann::json> rows = rows_of(folder.path("peers.jsonl"));
  const std::vector<std::pair<nlohmann::json, std::string>> edits{
      {{{"time_us", 1}}, "time_us is not the median of samples_us"},
      {{{"levels", ""}}, "PASSED without a level that was proved"},
      {{{"levels", "exact+bounded"}}, "a peer PASSED at other levels than bounded"},
      {{{"launches", 1}}, "launches are not once or more round all rotation_sets"},
      {{{"rotation_sets", 1}, {"rotated_bytes", 0}},
       "cold weights, of which no bytes were rotated"},
      {{{"status", "GREAT"}}, "status is 'GREAT'"},
      {{{"cache", "hot"}, {"rotation_sets", 1}, {"rotated_bytes", 0}},
       "cache is 'hot', of the case 'weights-cold'"},
      {{{"tokens", "many"}}, "column 'tokens' is 'many', no number"}};
  for (const auto& edit : edits) {
    nlohmann::json row = rows.back();
    row.update(edit.first);
    folder.write("peers.jsonl", text.substr(0, text.find('\n') + 1) + rows.front().dump() + "\n" +
                                    row.dump() + "\n");
    const ProcessResult result = run_peer(python, folder, "numpy", {"--resume"});
    CAPTURE(edit.second);
    CHECK(result.exit_code == 1);
    CHECK_MESSAGE(contains(result.err, "peers.jsonl:3: "), result.err);
    CHECK_MESSAGE(contains(result.err, edit.second), result.err);
    CHECK(contains(result.err, "no run writes that: name another file"));
  }
  folder.write("peers.jsonl", "{\"kind\":\"context\"}\n{\"kind\":\"row\"}\n");
  const ProcessResult bare = run_peer(python, folder, "numpy", {"--resume"});
  CHECK(bare.exit_code == 1);
  CHECK(contains(bare.err, "peers.jsonl:2: no row that run.py wrote (KeyError: "));
}

}  // namespace lora_bench::test
