#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/json_rows.h"
#include "support/need_numpy.h"
#include "support/peer_runs.h"
#include "support/process.h"

namespace lora_bench::test {

namespace fs = std::filesystem;

TEST_CASE("a case whose metadata was changed is refused before a peer runs on it") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const std::string file = folder.path("cases/decode8-rank8.json");
  const std::string written = read_file(file);
  using Edit = std::function<void(nlohmann::ordered_json&)>;
  const std::vector<std::pair<Edit, std::string>> edits{
      {[](auto& meta) { meta["measure"]["cache"] = "hot"; }, "says otherwise of 'measure'"},
      {[](auto& meta) { meta["row"]["weight_bytes"] = 0; }, "says otherwise of 'row'"},
      {[](auto& meta) { meta["measure"]["noise_target"] = 1; }, "says otherwise of 'measure'"},
      {[](auto& meta) { meta["widths"] = {1}; }, "says otherwise of 'widths'"},
      {[](auto& meta) { meta["layer"] = true; }, "says otherwise of 'layer'"},
      {[](auto& meta) { meta["more"] = 1; }, "says otherwise of 'more'"},
      {[](auto& meta) { meta.erase("declared"); }, "says otherwise of 'declared'"}};
  for (const auto& edit : edits) {
    auto meta = nlohmann::ordered_json::parse(written);
    edit.first(meta);
    folder.write("cases/decode8-rank8.json", meta.dump(2));
    const ProcessResult result = run_peer(python, folder, "numpy");
    CAPTURE(edit.second);
    CHECK(result.exit_code == 1);
    CHECK_MESSAGE(contains(result.err, edit.second + "; export it again"), result.err);
  }
  CHECK_FALSE(fs::exists(folder.path("peers.jsonl")));
}

TEST_CASE("a case whose row is not as it was sealed, or is timed otherwise, is refused") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  // Both files of the case are edited alike.
  const std::string edit =
      "import json, sys\n"
      "from pathlib import Path\n"
      "def edited(meta):\n"
      "    part, key, value = sys.argv[2:]\n"
      "    meta[part][key] = json.loads(value)\n"
      "    return meta\n"
      "beside, file = Path(sys.argv[1] + '.json'), Path(sys.argv[1] + '.safetensors')\n"
      "meta = edited(json.loads(beside.read_text()))\n"
      "beside.write_text(json.dumps(meta))\n"
      "data = file.read_bytes()\n"
      "end = 8 + int.from_bytes(data[:8], 'little')\n"
      "header = json.loads(data[8:end])\n"
      "header['__metadata__'][sys.argv[2]] = json.dumps(meta[sys.argv[2]])\n"
      "text = json.dumps(header).encode()\n"
      "file.write_bytes(len(text).to_bytes(8, 'little') + text + data[end:])\n";
  const auto refused = [&](const std::string& name, const std::vector<std::string>& words) {
    std::vector<std::string> command{python, "-c", edit, folder.path("cases/" + name)};
    command.insert(command.end(), words.begin(), words.end());
    REQUIRE(run_process(command).exit_code == 0);
    const ProcessResult result = run_peer(
        python, folder, "numpy", {"--cases", folder.path("cases/" + name + ".safetensors")});
    CHECK(result.exit_code == 1);
    return result.err;
  };
  CHECK(contains(refused("decode1-rank8", {"measure", "cache", "\"hot\""}),
                 "'measure' has the cache 'hot', and 'row', which is sealed, 'weights-cold'"));
  CHECK(contains(refused("decode8-rank8", {"row", "weight_bytes", "0"}),
                 "decode8-rank8.safetensors: not what `lora-bench export` wrote: 'row' of its "
                 "metadata was changed, or is that of another case"));
  CHECK_FALSE(fs::exists(folder.path("peers.jsonl")));
}

TEST_CASE("a case in which a byte belongs to no tensor is refused") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  std::string whole = read_file(folder.path("cases/decode8-rank8.safetensors"));
  const std::string first = "\"data_offsets\":[0,";
  REQUIRE(contains(whole, first));
  whole.replace(whole.find(first), first.size(), "\"data_offsets\":[1,");
  const std::string file = folder.write("cases/decode8-rank8.safetensors", whole);
  const ProcessResult result = run_peer(python, folder, "numpy", {"--cases", file});
  CHECK(result.exit_code == 1);
  CHECK_MESSAGE(contains(result.err, "begins at byte 1 of the data, where byte 0 is next"),
                result.err);
}

TEST_CASE("a peer under the name of a backend of ours is refused") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  for (const std::string label : {"cpu", "auto", "grouped-ordered", "fake:slow"}) {
    const ProcessResult result = run_peer(python, folder, "numpy", {"--label", label});
    CHECK(result.exit_code == 1);
    CHECK_MESSAGE(contains(result.err, "'" + label + "' is the name of a backend of lora-bench; "),
                  result.err);
  }
  const std::string file = folder.write("cpu.py", "from peer_numpy import *\n");
  CHECK(contains(run_peer(python, folder, file).err, "give the peer another with --label"));
  CHECK_FALSE(fs::exists(folder.path("peers.jsonl")));
  CHECK(run_peer(python, folder, file, {"--label", "mine", "--no-time"}).exit_code == 0);
}

}  // namespace lora_bench::test
