#include <doctest/doctest.h>

#include <filesystem>
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

TEST_CASE("a peer's rows are exported, proved, timed and reported beside ours") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const ProcessResult result = run_peer(python, folder, "numpy");
  REQUIRE_MESSAGE(result.exit_code == 0, result.out, result.err);
  CHECK(contains(result.out, "PASSED     decode8-rank8 on numpy: "));

  const std::vector<nlohmann::json> rows = rows_of(folder.path("peers.jsonl"));
  REQUIRE(rows.size() == 2);
  for (const nlohmann::json& row : rows) {
    CHECK(row["status"] == "PASSED");
    CHECK(row["time_us"].get<double>() > 0);
    CHECK(row["samples_us"].size() >= 2);
    CHECK(contains(row["peer"].get<std::string>(), "NumPy "));
    CHECK(row["levels"] == "bounded");
    CHECK(row["rotation_sets"].get<int>() > 1);
  }

  std::vector<std::string> words = selection({"--out", folder.path("ours.jsonl"), "--quiet"});
  words.insert(words.begin(), "run");
  const ProcessResult own = run_tool(words);
  REQUIRE_MESSAGE(own.exit_code == 0, own.out, own.err);
  const ProcessResult report =
      run_tool({"report", "--peers", folder.path("peers.jsonl"), folder.path("ours.jsonl")});
  CHECK(report.exit_code == 0);
  CHECK(contains(report.out, "of 2 cases"));  // both match ours; tests/host/peers_test.cpp has more
  CHECK(contains(report.out, "numpy is NumPy "));

  const std::string page = folder.path("ours.md");
  const ProcessResult filtered =
      run_tool({"report", "--peers", folder.path("peers.jsonl"), folder.path("ours.jsonl"),
                "--filter", "backend=cpu", "--out", page});
  for (const std::string& text : {filtered.out, read_file(page)}) {
    CHECK_MESSAGE(contains(text, "of 2 cases"), text, filtered.err);
    CHECK(contains(text, "counted over all 4 rows of these cases"));
  }
}

TEST_CASE("a peer that computes wrongly is FAILED with its evidence and stays in the table") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const std::string peer = folder.write("mine.py",
                                        "from peer_numpy import *\n"
                                        "import peer_numpy\n"
                                        "def launch(state, operands):\n"
                                        "    peer_numpy.launch(state, operands)\n"
                                        "    state['y'][:, 3] *= 1.02\n");
  const ProcessResult result = run_peer(python, folder, peer);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "FAILED     decode8-rank8 on mine"));
  CHECK(contains(result.out, "column 3: expected "));
  for (const nlohmann::json& row : rows_of(folder.path("peers.jsonl"))) {
    CHECK(row["status"] == "FAILED");
    CHECK(row["time_us"].is_null());
    CHECK(contains(row["first_wrong"].get<std::string>(), "column 3"));
  }
  const ProcessResult report = run_tool({"report", folder.path("peers.jsonl")});
  CHECK(contains(report.out, "2 rows: 2 FAILED"));
}

TEST_CASE("a peer on the host that stops working once it is proved is FAILED after timing") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const std::string lazy =
      "from peer_numpy import *\n"
      "import peer_numpy\n"
      "import inspect\n"
      "calls = 0\n"
      "def launch(state, operands):\n"
      "    global calls\n"
      "    calls += 1\n"
      "    if WORKS:\n"
      "        peer_numpy.launch(state, operands)\n";
  const std::vector<std::pair<std::string, std::string>> faults{
      // One launch loads it, one is looked at.
      {"calls <= 2", "a launch leaves another output than the one that was proved: up to "},
      {"not any(frame.function == 'collect' for frame in inspect.stack(0))",
       "the timed launches left another output than as many untimed: up to "}};
  for (const auto& fault : faults) {
    const auto& works = fault.first;
    const auto& sentence = fault.second;
    std::string peer = lazy;
    peer.replace(peer.find("WORKS"), 5, works);
    CAPTURE(works);
    const ProcessResult result =
        run_peer(python, folder, folder.write("lazy.py", peer), {"--case", "decode1-rank8"});
    CHECK(result.exit_code == 2);
    CHECK(contains(result.out, "FAILED     decode1-rank8 on lazy\n  wrong after timing: "));
    CHECK(contains(result.out, sentence));
  }
}

TEST_CASE("a peer that keeps its answers or leaves launches out all along is FAILED after timing") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const std::vector<std::pair<std::string, std::string>> peers{
      {"remembers",
       "known = {}\n"
       "def launch(state, operands):\n"
       "    if id(operands) not in known:\n"
       "        before = state['y'].copy()\n"
       "        peer_numpy.launch(state, operands)\n"
       "        known[id(operands)] = (state['y'] - before, operands)\n"
       "    else:\n"
       "        state['y'] += known[id(operands)][0]\n"},
      {"rests",
       "seen = []\n"
       "def launch(state, operands):\n"
       "    if id(operands) not in [id(one) for one in seen]:\n"
       "        seen.append(operands)\n"
       "    if operands is seen[0]:\n"  // alone is looked at by itself
       "        peer_numpy.launch(state, operands)\n"}};
  for (const auto& peer : peers) {
    const std::string& name = peer.first;
    CAPTURE(name);
    const std::string file =
        folder.write(name + ".py", "from peer_numpy import *\nimport peer_numpy\n" + peer.second);
    const ProcessResult result = run_peer(python, folder, file, {"--case", "decode8-rank8"});
    CHECK(result.exit_code == 2);
    CHECK(contains(result.out, "FAILED     decode8-rank8 on " + name +
                                   "\n  wrong after timing: the timed launches left a wrong output "
                                   "once x was another: "));
  }
}

TEST_CASE("a peer that throws costs its row, which has every key, null where nothing is known") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const std::string peer = folder.write("mine.py",
                                        "from peer_numpy import *\n"
                                        "def supports(case):\n"
                                        "    return 'not eight' if case.tokens == 8 else None\n"
                                        "def launch(state, operands):\n"
                                        "    raise ValueError('no such kernel')\n");
  const ProcessResult result = run_peer(python, folder, peer);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "ERROR      decode1-rank8 on mine\n  ValueError: no such kernel"));
  CHECK(contains(result.out, "SKIPPED    decode8-rank8 on mine\n  not eight"));
  std::vector<std::string> words = selection({"--out", folder.path("ours.jsonl"), "--no-time"});
  words.insert(words.begin(), "run");
  REQUIRE(run_tool(words).exit_code == 0);
  const nlohmann::json ours = rows_of(folder.path("ours.jsonl")).front();
  const std::vector<nlohmann::json> rows = rows_of(folder.path("peers.jsonl"));
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["status"] == "ERROR");
  CHECK(rows[1]["status"] == "SKIPPED");
  for (const nlohmann::json& row : rows) {
    for (const auto& item : ours.items()) {
      CAPTURE(item.key());
      CHECK(row.contains(item.key()) == (item.key() != "seal"));  // which this tool alone writes
    }
    CHECK(row.size() == ours.size() - 1);
    CHECK(row["repetition"] == 0);
    CHECK(row["bytes"].is_number());
    CHECK(row["time_us"].is_null());
    CHECK(row["floor_us"].is_null());
  }
  const ProcessResult report = run_tool({"report", folder.path("peers.jsonl")});
  CHECK(report.exit_code == 0);
  CHECK(contains(report.out, "1 SKIPPED"));
  CHECK(contains(report.out, "1 ERROR"));
}

TEST_CASE("a file that is no peer is one line that says what is missing and where a whole one is") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const std::vector<std::pair<std::string, std::string>> files{
      {"def available(folder):\n    return ''\n",
       "lacks LIBRARY, supports, declared, prepare, operands, launch"},
      {"LIBRARY = (\n", "mine.py:1: "},
      {"import nowhere\n", "cannot be loaded: ModuleNotFoundError: No module named 'nowhere'"},
      {"from peer_numpy import *\nLIBRARY = 'jax'\n", "LIBRARY is 'jax'; it must be 'torch' or"}};
  for (const auto& file : files) {
    const std::string& sentence = file.second;
    const ProcessResult result = run_peer(python, folder, folder.write("mine.py", file.first));
    CAPTURE(result.err);
    CAPTURE(sentence);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, sentence));
    CHECK(contains(result.err, "; docs/peers.md, 'A peer of yours', shows a whole one"));
    CHECK_FALSE(contains(result.err, "Traceback"));
  }
  CHECK_FALSE(fs::exists(folder.path("peers.jsonl")));
}

TEST_CASE("files that the runner of peers cannot read or write are named") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  // The last --out counts.
  const ProcessResult csv = run_peer(python, folder, "numpy", {"--out", folder.path("x.csv")});
  CHECK(csv.exit_code == 1);
  CHECK(contains(csv.err, "x.csv: rows are JSON lines alone; name a file that ends in .jsonl"));
  CHECK_FALSE(fs::exists(folder.path("x.csv")));
  const ProcessResult nowhere =
      run_peer(python, folder, "numpy", {"--out", folder.path("nowhere/rows.jsonl")});
  CHECK(nowhere.exit_code == 5);
  CHECK(contains(nowhere.err, "nowhere/rows.jsonl: cannot be written: No such file"));
  const std::string file = folder.path("cases/decode8-rank8.safetensors");
  fs::resize_file(file, fs::file_size(file) / 2);
  const ProcessResult cut = run_peer(python, folder, "numpy");
  CHECK(cut.exit_code == 1);
  CHECK(contains(cut.err, file + ": not what `lora-bench export` wrote: it has "));
  fs::resize_file(file, 4);
  CHECK(contains(run_peer(python, folder, "numpy").err, file + ": not what `lora-bench export`"));
}

TEST_CASE("without --out the runner of peers says where it writes") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  ProcessOptions options = without_bytecode();
  options.folder = folder.folder();
  const ProcessResult result = run_process({python, kPeers + "run.py", "--cases", "cases", "--peer",
                                            "numpy", "--tool", tool_path(), "--no-time"},
                                           options);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.err, "rows are appended to peers.jsonl; --out names another file"));
  CHECK(rows_of(folder.path("peers.jsonl")).size() == 2);
}

TEST_CASE("the runner of peers appends to its own rows alone") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const std::string file = folder.write("peers.jsonl", "my notes\n");
  const ProcessResult refused = run_peer(python, folder, "numpy", {"--no-time"});
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.err, "holds what lora-bench did not write; name another file"));
  CHECK(read_file(file) == "my notes\n");
  folder.write("peers.jsonl", "");
  for (const std::size_t rows : {2U, 4U}) {
    CHECK(run_peer(python, folder, "numpy", {"--no-time"}).exit_code == 0);
    CHECK(rows_of(file).size() == rows);
  }
}

TEST_CASE("a peer that is not here or cannot do a case is SKIPPED with the reason") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const ProcessResult missing =
      run_peer(python, folder, "vllm", {"--unpacked", folder.path("nothing")});
  CHECK(missing.exit_code == 4);
  CHECK(contains(missing.out, "SKIPPED    decode8-rank8 on vllm\n  "));
  CHECK(contains(missing.out, " no "));
  const TemporaryFolder biased;
  export_cases(biased, {"--set", "adapters.bias=true"});
  const ProcessResult unable = run_peer(python, biased, "numpy");
  CHECK(unable.exit_code == 4);
  CHECK(contains(unable.out, "adds no bias"));
}

TEST_CASE("what the runner of peers cannot use is a usage error with what to do") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  const ProcessResult empty = run_peer(python, folder, "numpy");
  CHECK(empty.exit_code == 1);
  CHECK(contains(empty.err, "lora-bench export SCENARIO"));
  export_cases(folder);
  const ProcessResult unknown = run_peer(python, folder, "numpi");
  CHECK(unknown.exit_code == 1);
  CHECK(contains(unknown.err, "unknown peer 'numpi'; known: flashinfer, numpy, "));
  const ProcessResult other = run_peer(python, folder, "numpy", {"--case", "decode9"});
  CHECK(other.exit_code == 1);
  CHECK(contains(other.err, "there is no case 'decode9'"));
  const ProcessResult tool = run_peer(python, folder, "numpy", {"--tool", "/nowhere/lora-bench"});
  CHECK(tool.exit_code == 1);
  CHECK(contains(tool.err, "name the built lora-bench with --tool"));
}

TEST_CASE("FlashInfer that is not here, too old or without a GPU is SKIPPED with its reason") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  fs::create_directory(folder.path("stubs"));
  // As much of PyTorch as is asked before anything runs.
  folder.write("stubs/torch.py",
               "from types import SimpleNamespace as Names\n"
               "__version__ = '2.9'\n"
               "cuda = Names(is_available=lambda: False)\n"
               "backends = Names(cuda=Names(matmul=Names()))\n"
               "def device(name):\n"
               "    return Names(type=name)\n");
  ProcessOptions options = without_bytecode();
  options.environment["PYTHONPATH"] = folder.path("stubs");
  const std::vector<std::pair<std::string, std::string>> packages{
      {"raise ImportError('no such module')",
       "no FlashInfer with a SegmentGEMMWrapper here (no such module): pip install "
       "flashinfer-python"},
      {"__version__ = '0.0.1'", "no FlashInfer with a SegmentGEMMWrapper here (module "},
      {"class SegmentGEMMWrapper: pass", "FlashInfer needs a GPU"}};
  for (const auto& package : packages) {
    const std::string& reason = package.second;
    folder.write("stubs/flashinfer.py", package.first + "\n");
    const ProcessResult result =
        run_process({python, kPeers + "run.py", "--cases", folder.path("cases"), "--peer",
                     "flashinfer", "--tool", tool_path(), "--out", folder.path("f.jsonl")},
                    options);
    CAPTURE(result.err);
    CHECK(result.exit_code == 4);
    CHECK_MESSAGE(contains(result.out, "SKIPPED    decode8-rank8 on flashinfer\n  " + reason),
                  result.out);
  }
}

TEST_CASE("modules of an unpacked wheel load alone, and what is missing refuses to be used") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  const std::string make =
      "import sys, zipfile\n"
      "with zipfile.ZipFile(sys.argv[1], 'w') as wheel:\n"
      "    wheel.writestr('vllm-9.9.dist-info/METADATA', 'Name: vllm\\nVersion: 9.9\\n')\n"
      "    wheel.writestr('vllm/__init__.py', 'raise ImportError(\"the whole package\")')\n"
      "    wheel.writestr('vllm/envs.py', 'FLAG = 7')\n"
      "    wheel.writestr('vllm/lora/ops/triton_ops/__init__.py', 'import nowhere')\n"
      "    wheel.writestr('vllm/lora/ops/triton_ops/op.py',\n"
      "        'from vllm import envs\\nfrom vllm.heavy import thing\\nflag = envs.FLAG\\n')\n";
  const std::string wheel = folder.path("vllm-9.9.whl");
  REQUIRE(run_process({python, "-c", make, wheel}).exit_code == 0);
  const ProcessResult unpacked =
      run_process({python, kPeers + "unpack.py", wheel, "--to", folder.path("un")});
  CHECK_MESSAGE(unpacked.exit_code == 0, unpacked.err);
  CHECK_FALSE(fs::exists(folder.path("un/vllm/__init__.py")));
  const std::string use =
      "import sys; sys.path.insert(0, sys.argv[1])\n"
      "import unpacked, importlib\n"
      "print(unpacked.load('vllm', sys.argv[2], {}))\n"
      "op = importlib.import_module('vllm.lora.ops.triton_ops.op')\n"
      "print(op.flag)\n"
      "op.thing()\n";
  const ProcessResult used =
      run_process({python, "-c", use, kPeers, folder.path("un")}, without_bytecode());
  CHECK(used.out == "9.9\n7\n");
  CHECK(contains(used.err, "vllm.heavy.thing is not among the unpacked modules"));
  const ProcessResult refused =
      run_process({python, kPeers + "unpack.py", folder.write("text.whl", "no wheel"), "--to",
                   folder.path("un")});
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.err, "is no wheel"));
}

}  // namespace lora_bench::test
