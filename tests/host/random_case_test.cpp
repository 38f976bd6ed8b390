#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "ops/auto_tuning.h"
#include "scenario/scenario.h"
#include "scenario/schema.h"
#include "verify/random_case.h"

using namespace lora_bench;

namespace {

constexpr std::uint64_t kCases = 3000;

Case read_again(const Case& spec) {
  return parse_scenario(scenario_text(spec), "case.yaml", {.tuning = tuning_rules()}).cases.at(0);
}

// But for what a file and its reader say of it.
bool same(Case read, const Case& spec) {
  read.id = spec.id;
  read.scenario_file = spec.scenario_file;
  read.point = spec.point;
  read.tags = spec.tags;
  return read == spec;
}

std::int64_t largest_rank(const Case& spec) {
  std::int64_t rank =
      spec.adapters.rank.shares.empty() ? 0 : spec.adapters.rank.shares.back().first;
  for (const std::int64_t of_slot : spec.adapters.rank.list) {
    rank = std::max(rank, of_slot);
  }
  return rank;
}

}  // namespace

TEST_CASE("a random case is a scenario that reads back as the same case") {
  for (std::uint64_t index = 0; index < kCases; ++index) {
    const Case spec = random_case(11, index);
    CAPTURE(scenario_text(spec));
    CHECK(same(read_again(spec), spec));
  }
}

TEST_CASE("what a scenario text leaves out is what the reader puts in") {
  Case spec = random_case(1, 1);
  spec.verify = {.enabled = true, .relations = true, .max_rows = 17, .timeout_s = 2.5};
  spec.skew = {.kind = Skew::kZipf, .parameter = 0.3, .trace_file = {}, .trace = {}};
  spec.prefill_skew = {.kind = Skew::kHot, .parameter = 0.125, .trace_file = {}, .trace = {}};
  spec.seed = UINT64_MAX;
  spec.backends = {"mutant:none", "cpu"};
  CHECK(same(read_again(spec), spec));
}

TEST_CASE("every shipped case, layers and measured ones among them, reads back as itself") {
  std::int64_t read = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(LORA_BENCH_SOURCE_DIR "/scenarios")) {
    if (entry.path().extension() != ".yaml" || entry.path().filename() == "models.yaml") {
      continue;
    }
    for (const Case& spec : load_scenario(entry.path(), {.tuning = tuning_rules()}).cases) {
      if (spec.skew.kind == Skew::kTrace || spec.prefill_skew.kind == Skew::kTrace ||
          spec.routing.kind == Routing::kTrace) {
        continue;  // the file of ids, or of experts, does not lie beside
      }
      CAPTURE(scenario_text(spec));
      CHECK(same(read_again(spec), spec));
      ++read;
    }
  }
  CHECK(read > 900);
}

TEST_CASE("every field that is read into a case is written as well, but for tags") {
  const Fields read = fields_with(tuning_rules().knobs);
  for (const Field& field : fields()) {
    CAPTURE(field.doc.path);
    const bool tuning = field.doc.path == "tuning";  // written whole, read knob by knob
    const bool is_read =
        tuning ? is_group(read, "tuning") : find_field(read, field.doc.path)->read != nullptr;
    CHECK((field.text != nullptr) == (is_read && field.doc.path != "tags"));
  }
  for (const Field& field : read) {
    CAPTURE(field.doc.path);
    CHECK(field.doc.path.starts_with("tuning.") ==
          (find_field(fields(), field.doc.path) == nullptr));
  }
}

TEST_CASE("random cases reach the corners of what is legal") {
  std::set<Op> ops;
  std::set<Skew> laws;
  std::set<std::size_t> slices;
  std::int64_t rank = 0, odd_ranks = 0, shares = 0, active = 0, nothing = 0, empty = 0, wide = 0;
  std::int64_t captured = 0, padded = 0;
  std::set<std::int64_t> features;
  std::int64_t many_slots = 0, zero_scales = 0, far_scales = 0;
  std::int64_t vast_rows = 0, vast_columns = 0, vast_features = 0;
  for (std::uint64_t index = 0; index < kCases; ++index) {
    const Case spec = random_case(12, index);
    ops.insert(spec.op);
    laws.insert(spec.skew.kind);
    slices.insert(spec.layer.widths.size());
    features.insert(spec.layer.in_features);
    rank = std::max(rank, largest_rank(spec));
    odd_ranks += largest_rank(spec) > 64 && largest_rank(spec) % 2 == 1 ? 1 : 0;
    shares += spec.adapters.rank.shares.empty() ? 0 : 1;
    active += spec.adapters.active > 0 ? 1 : 0;
    nothing += largest_rank(spec) == 0 ? 1 : 0;
    empty += spec.batch.decode == 0 && spec.batch.prefill.empty() ? 1 : 0;
    vast_features += spec.layer.in_features > 65536 ? 1 : 0;
    vast_columns +=
        *std::max_element(spec.layer.widths.begin(), spec.layer.widths.end()) > 65536 ? 1 : 0;
    vast_rows += spec.batch.decode > 65536 ||
                         (!spec.batch.prefill.empty() && spec.batch.prefill.front() > 65536)
                     ? 1
                     : 0;
    const auto& scales = spec.adapters.scale;
    many_slots += spec.adapters.slots > 256 ? 1 : 0;
    zero_scales += std::count(scales.begin(), scales.end(), 0.0) > 0 ? 1 : 0;
    far_scales +=
        std::any_of(scales.begin(), scales.end(), [](double scale) { return std::fabs(scale) > 4; })
            ? 1
            : 0;
    wide += spec.layer.x_stride > spec.layer.in_features ? 1 : 0;
    captured += spec.plan.max_slots == spec.adapters.slots ? 1 : 0;
    padded += spec.plan.max_tokens > 0 ? 1 : 0;
  }
  CHECK(ops.size() == 5);
  CHECK(laws.size() == 7);
  for (const std::size_t count : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U, 16U, 17U, 32U, 33U, 64U}) {
    CHECK(slices.contains(count));
  }
  CHECK(slices.size() > 40);
  CHECK(features.count(1) == 1);
  CHECK(*features.rbegin() > 1 << 19);
  CHECK(rank > 2048);
  CHECK(many_slots > 100);
  CHECK(zero_scales > 100);
  CHECK(far_scales > 100);
  for (const std::int64_t seen : {vast_rows, vast_columns, vast_features}) {
    CHECK(seen > 20);
  }
  for (const std::int64_t seen :
       {odd_ranks, shares, active, nothing, empty, wide, captured, padded}) {
    CHECK(seen > 10);
  }
}

namespace {

struct Size {
  std::string what;
  std::int64_t tokens = 0, slots = 0, rank = 0, slices = 0, features = 0, columns = 0;
};

Size size_of(const Case& spec) {
  const auto& widths = spec.layer.widths;
  return {"",
          std::accumulate(spec.batch.prefill.begin(), spec.batch.prefill.end(), spec.batch.decode),
          spec.adapters.slots,
          largest_rank(spec),
          std::ssize(widths),
          spec.layer.in_features,
          *std::max_element(widths.begin(), widths.end())};
}

// Sizes (past, to] that a kernel may be wrong at.
struct Window {
  const char* name;
  std::int64_t Size::*of;
  std::int64_t past, to;
};

constexpr std::int64_t kNoEnd = INT64_MAX;
constexpr Window kWindows[] = {
    {"513 to 999 tokens", &Size::tokens, 512, 999},
    {"1001 to 60000 tokens", &Size::tokens, 1000, 60000},
    {"1001 to 2048 tokens", &Size::tokens, 1000, 2048},
    {"2049 to 4096 tokens", &Size::tokens, 2048, 4096},
    {"4097 to 8192 tokens", &Size::tokens, 4096, 8192},
    {"8193 to 16384 tokens", &Size::tokens, 8192, 16384},
    {"more than 60000 tokens", &Size::tokens, 60000, kNoEnd},
    {"257 to 1024 slots", &Size::slots, 256, 1024},
    {"more than 1024 slots", &Size::slots, 1024, kNoEnd},
    {"rank 513 to 1024", &Size::rank, 512, 1024},
    {"rank above 1024", &Size::rank, 1024, kNoEnd},
    {"9 to 64 slices", &Size::slices, 8, 64},
    {"17 to 32 slices", &Size::slices, 16, 32},
    {"K 2101 to 8192", &Size::features, 2100, 8192},
    {"K 8193 to 65536", &Size::features, 8192, 65536},
    {"K above 65536", &Size::features, 65536, kNoEnd},
    {"N 601 to 8192", &Size::columns, 600, 8192},
    {"N 8193 to 65536", &Size::columns, 8192, 65536},
    {"N above 65536", &Size::columns, 65536, kNoEnd},
};

}  // namespace

TEST_CASE("some hundred random cases meet every range of sizes, with every op, dtype and place") {
  std::map<std::string, std::int64_t> seen;
  std::map<std::string, std::set<std::string>> with;
  for (std::uint64_t index = 0; index < kCases; ++index) {
    const Case spec = random_case(13, index);
    const Size size = size_of(spec);
    for (const Window& window : kWindows) {
      if (size.*window.of <= window.past || size.*window.of > window.to) {
        continue;
      }
      ++seen[window.name];
      std::set<std::string>& pairs = with[window.name];
      pairs.insert(std::string("op ") + std::string(name(spec.op)));
      pairs.insert(std::string("dtype ") + std::string(name(spec.dtype)));
      pairs.insert(spec.scale_at == ScaleAt::kShrink ? "scaled by shrink" : "scaled by expand");
      pairs.insert(spec.adapters.bias ? "bias" : "no bias");
      pairs.insert(spec.add_inputs ? "added" : "overwritten");
      pairs.insert(spec.intermediate == Dtype::kFp32 ? "h in fp32" : "h narrow");
    }
  }
  for (const Window& window : kWindows) {
    CAPTURE(std::string(window.name));
    CAPTURE(seen[window.name]);
    // Of a share p, 500 cases miss all with a chance of (1 - p)^500: less than one in 500.
    CHECK(seen[window.name] * 80 >= static_cast<std::int64_t>(kCases));
    const std::size_t ops = std::string(window.name).find("slices") == std::string::npos ? 5 : 4;
    CHECK(with[window.name].size() == ops + 3 + 2 + 2 + 2 + 2);
  }
}
