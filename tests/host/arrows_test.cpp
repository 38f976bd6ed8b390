#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

// The arrows of docs/architecture.md, held by reading the #include lines of the tree itself.
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

struct Inclusion {
  std::string room;    // folder under src/, or "kernels", "reference"
  std::string target;  // what stands between the quotes or brackets
  bool device_code = false;
};

// Which rooms of src/ a room may include beside itself.
const std::map<std::string, Names>& arrows() {
  static const Names kBelowVerify{"core",   "scenario", "plan",  "workload",
                                  "device", "ops",      "layers"};
  static const Names kBelowRun{"core",   "scenario", "plan",    "workload", "device", "ops",
                               "layers", "verify",   "measure", "compare",  "report"};
  static const Names kBelowCli = [] {
    Names rooms = kBelowRun;
    rooms.insert("run");
    return rooms;
  }();
  static const std::map<std::string, Names> kArrows{
      {"core", {}},
      {"scenario", {"core"}},
      {"plan", {"core"}},
      {"workload", {"core", "scenario", "plan"}},
      {"device", {"core"}},
      {"ops", {"core", "scenario", "plan", "workload", "device"}},
      {"layers", {"core", "scenario", "plan", "workload", "device", "ops"}},
      {"verify", kBelowVerify},
      {"measure", kBelowVerify},
      {"report", {"core"}},
      {"compare", {"core", "report"}},
      {"run", kBelowRun},
      {"cli", kBelowCli},
      {"kernels", {}},
      {"reference", {}},
  };
  return kArrows;
}

struct ThirdParty {
  std::string name;
  std::vector<std::string> prefixes;  // how its headers begin
  Names rooms;                        // that may include it
};

const std::vector<ThirdParty>& third_parties() {
  static const std::vector<ThirdParty> kThirdParties{
      {"CLI11", {"CLI/", "CLI11"}, {"cli"}},
      {"yaml-cpp", {"yaml-cpp/", "yaml.h"}, {"scenario"}},
      {"Eigen", {"Eigen/", "unsupported/Eigen"}, {"reference"}},
      {"nlohmann-json", {"nlohmann/"}, {"report", "measure", "run"}},
      {"the CUDA runtime",
       {"cuda", "nvml", "cub/", "cublas"},
       {"device", "ops", "verify", "measure", "kernels"}},
      {"NCCL", {"nccl"}, {"ops"}},
      {"CUPTI", {"cupti"}, {"device"}},
  };
  return kThirdParties;
}

bool begins_with_any(const std::string& text, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return text.starts_with(prefix); });
}

// "" when the room may include the target, else the reason why not.
std::string objection(const Inclusion& inclusion) {
  const std::string& target = inclusion.target;
  const std::string folder = target.substr(0, target.find('/'));
  const bool ours = target.find('/') != std::string::npos && arrows().contains(folder);
  if (inclusion.device_code && target.starts_with("fmt/")) {
    return "nvcc must not see fmt";
  }
  if (ours && folder != inclusion.room) {
    static const Names kUseKernels{"device", "ops", "verify", "measure"};
    static const Names kUseReference{"verify", "measure", "run"};
    const Names& allowed = folder == "kernels"     ? kUseKernels
                           : folder == "reference" ? kUseReference
                                                   : arrows().at(inclusion.room);
    const std::string& wanted =
        folder == "kernels" || folder == "reference" ? inclusion.room : folder;
    if (!allowed.contains(wanted)) {
      return inclusion.room + " must not know " + folder;
    }
  }
  for (const ThirdParty& party : third_parties()) {
    if (begins_with_any(target, party.prefixes) && !party.rooms.contains(inclusion.room)) {
      return inclusion.room + " must not see " + party.name;
    }
  }
  return "";
}

// What an #include line names, "" for every other line.
std::string included(const std::string& line) {
  std::size_t at = line.find_first_not_of(" \t");
  if (at == std::string::npos || line[at] != '#') {
    return "";
  }
  at = line.find_first_not_of(" \t", at + 1);
  if (at == std::string::npos || line.compare(at, 7, "include") != 0) {
    return "";
  }
  const std::size_t open = line.find_first_of("<\"", at);
  const std::size_t close = open == std::string::npos ? open : line.find_first_of(">\"", open + 1);
  return close == std::string::npos ? "" : line.substr(open + 1, close - open - 1);
}

struct Source {
  std::string path;  // relative to the project
  std::string room;
  bool device_code = false;
  std::vector<std::string> lines;
};

std::vector<Source> read_tree() {
  static const Names kExtensions{".h", ".cpp", ".cu", ".cuh", ".in"};
  const fs::path root = LORA_BENCH_SOURCE_DIR;
  std::vector<Source> sources;
  for (const char* top : {"src", "kernels", "reference"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string extension = entry.path().extension().string();
      if (!entry.is_regular_file() || !kExtensions.contains(extension)) {
        continue;
      }
      Source source;
      const fs::path relative = fs::relative(entry.path(), root);
      source.path = relative.string();
      source.room = top;
      if (source.room == "src") {
        source.room = std::next(relative.begin())->string();
      }
      source.device_code = extension == ".cu" || extension == ".cuh";
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        source.lines.push_back(line);
      }
      sources.push_back(std::move(source));
    }
  }
  return sources;
}

std::string place(const Source& source, std::size_t line) {
  return source.path + ":" + std::to_string(line + 1) + ": ";
}

}  // namespace

TEST_CASE("every include follows the arrows of the house") {
  std::size_t inclusions = 0;
  for (const Source& source : read_tree()) {
    if (source.room == "main.cpp") {
      continue;
    }
    REQUIRE_MESSAGE(arrows().contains(source.room), source.path, ": a room without arrows");
    for (std::size_t line = 0; line < source.lines.size(); ++line) {
      const std::string target = included(source.lines[line]);
      if (!target.empty()) {
        ++inclusions;
        const std::string reason = objection({source.room, target, source.device_code});
        CHECK_MESSAGE(reason.empty(), place(source, line), reason);
      }
    }
  }
  CHECK(inclusions > 100);
}

// headers_alone compiles the other headers.
TEST_CASE("a source includes its own header first, so that the header stands alone") {
  const fs::path root = LORA_BENCH_SOURCE_DIR;
  for (const Source& source : read_tree()) {
    const fs::path header = fs::path(source.path).replace_extension(".h");
    if (!source.path.ends_with(".cpp") || !fs::exists(root / header)) {
      continue;
    }
    const auto first =
        std::find_if(source.lines.begin(), source.lines.end(),
                     [](const std::string& line) { return !included(line).empty(); });
    REQUIRE_MESSAGE(first != source.lines.end(), source.path);
    CHECK_MESSAGE(header.generic_string().ends_with(included(*first)), source.path, " begins with ",
                  *first);
  }
}

TEST_CASE("kernels are launched only in kernels/") {
  for (const Source& source : read_tree()) {
    for (std::size_t line = 0; source.room != "kernels" && line < source.lines.size(); ++line) {
      CHECK_MESSAGE(source.lines[line].find("<<<") == std::string::npos, place(source, line));
    }
  }
}

// `auto` reads the plan before it waits for the kernel before it: right only where that kernel ends
// before the next one starts (kernels/clustered/README.md).
TEST_CASE("the kernel that makes a plan does not let the next one start before it has ended") {
  for (const Source& source : read_tree()) {
    const bool makes_plans = source.path.find("kernels/plan/") != std::string::npos;
    for (std::size_t line = 0; makes_plans && line < source.lines.size(); ++line) {
      for (const std::string early :
           {"launch_dependents", "let_next_kernel_start", "TriggerProgrammaticLaunch"}) {
        CHECK_MESSAGE(source.lines[line].find(early) == std::string::npos, place(source, line));
      }
    }
  }
}

TEST_CASE("no source file outgrows what a reader takes in") {
  for (const Source& source : read_tree()) {
    CHECK_MESSAGE(source.lines.size() <= 450, source.path);
  }
}

TEST_CASE("main stays under 60 lines") {
  for (const Source& source : read_tree()) {
    if (source.path == "src/main.cpp") {
      CHECK(source.lines.size() < 60);
    }
  }
}

TEST_CASE("an include that breaks an arrow is objected to") {
  CHECK(objection({"core", "scenario/case.h"}) == "core must not know scenario");
  CHECK(objection({"report", "ops/backend.h"}) == "report must not know ops");
  CHECK(objection({"kernels", "core/dtype.h"}) == "kernels must not know core");
  CHECK(objection({"reference", "core/dtype.h"}) == "reference must not know core");
  CHECK(objection({"reference", "kernels/naive/shrink.h"}) == "reference must not know kernels");
  CHECK(objection({"run", "kernels/naive/shrink.h"}) == "run must not know kernels");
  CHECK(objection({"ops", "reference/reference.h"}) == "ops must not know reference");
  CHECK(objection({"run", "CLI/CLI.hpp"}) == "run must not see CLI11");
  CHECK(objection({"cli", "yaml-cpp/yaml.h"}) == "cli must not see yaml-cpp");
  CHECK(objection({"verify", "Eigen/Dense"}) == "verify must not see Eigen");
  CHECK(objection({"scenario", "nlohmann/json.hpp"}) == "scenario must not see nlohmann-json");
  CHECK(objection({"run", "cuda_runtime.h"}) == "run must not see the CUDA runtime");
  CHECK(objection({"run", "cupti_range_profiler.h"}) == "run must not see CUPTI");
  CHECK(objection({"kernels", "fmt/format.h", true}) == "nvcc must not see fmt");
}

TEST_CASE("an include along an arrow is not objected to") {
  CHECK(objection({"core", "vector"}).empty());
  CHECK(objection({"core", "fmt/format.h"}).empty());
  CHECK(objection({"verify", "reference/reference.h"}).empty());
  CHECK(objection({"ops", "kernels/naive/shrink.h"}).empty());
  CHECK(objection({"device", "cuda_runtime_api.h"}).empty());
  CHECK(objection({"cli", "run/run.h"}).empty());
}

TEST_CASE("include lines are recognised in every spelling") {
  CHECK(included("#include <vector>") == "vector");
  CHECK(included("  #  include \"core/dtype.h\"  // why") == "core/dtype.h");
  CHECK(included("// #include <vector>").empty());
  CHECK(included("#define INCLUDE <vector>").empty());
  CHECK(included("").empty());
}
