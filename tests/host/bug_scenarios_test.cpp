#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "scenario/scenario.h"
#include "support/draws.h"
#include "verify/mutant_hunt.h"
#include "workload/batch.h"

using namespace lora_bench;

namespace {

std::vector<std::filesystem::path> bug_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(LORA_BENCH_SOURCE_DIR "/scenarios/verify/bugs")) {
    if (entry.path().extension() == ".yaml") {
      files.push_back(entry.path());
    }
  }
  return files;
}

// The comment that the file begins with.
std::string story(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text, line;
  while (std::getline(file, line) && line.starts_with("#")) {
    text += line + "\n";
  }
  return text;
}

std::vector<TellingLayer> layers_of(const std::vector<Case>& cases) {
  std::vector<TellingLayer> layers;
  for (const Case& spec : cases) {
    layers.push_back({spec.id, *step_of(spec).layer});
  }
  return layers;
}

}  // namespace

TEST_CASE("a bug scenario tells its thread, passes the right kernel and catches its mutants") {
  const std::vector<std::filesystem::path> files = bug_files();
  CHECK(files.size() >= 16);
  const std::size_t stride = test::kSanitized ? 4 : 1;
  for (std::size_t file = 0; file < files.size(); file += stride) {
    const std::filesystem::path& path = files[file];
    CAPTURE(path.filename().string());
    const std::string told = story(path);
    CHECK(told.find(" #") != std::string::npos);
    const std::vector<Case> cases = load_scenario(path, {}).cases;
    int named = 0;
    if (cases.front().op == Op::kLayer) {
      const std::vector<TellingLayer> layers = layers_of(cases);
      SelfTestReport report;
      try_right_layers(layers, report);
      CHECK(report.false_alarms == 0);
      for (const LayerFaultDoc& doc : layer_faults()) {
        const std::string key(doc.key);
        if (told.find("`layer:" + key + "`") != std::string::npos) {
          ++named;
          CHECK_MESSAGE(hunt_layer(doc, layers).named_right, key);
        }
      }
      CHECK(named > 0);
      continue;
    }
    const HuntingGround ground(cases);
    const SelfTestRow right = hunt("none", ground);
    CHECK_MESSAGE(!right.caught, right.level);
    for (const MutantDoc& doc : mutants()) {
      if (told.find("`" + doc.fault + "`") != std::string::npos) {
        ++named;
        CHECK_MESSAGE(hunt(doc.fault, ground).caught, doc.fault);
      }
    }
    CHECK(named > 0);
  }
}
