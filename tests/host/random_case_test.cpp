#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "scenario/content_hash.h"
#include "scenario/scenario.h"
#include "scenario/scenario_text.h"
#include "verify/random_case.h"

using namespace lora_bench;

namespace {

constexpr std::uint64_t kCases = 3000;

Case read_again(const Case& spec) {
  return parse_scenario(scenario_text(spec), "case.yaml", {}).cases.at(0);
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
    CHECK(content_hash({read_again(spec)}) == content_hash({spec}));
  }
}

TEST_CASE("what a scenario text leaves out is what the reader puts in") {
  Case spec = random_case(1, 1);
  spec.verify = {.enabled = true, .relations = true, .max_rows = 17, .timeout_s = 2.5};
  spec.skew = {.kind = Skew::kZipf, .parameter = 0.3, .trace_file = {}, .trace = {}};
  spec.prefill_skew = {.kind = Skew::kHot, .parameter = 0.125, .trace_file = {}, .trace = {}};
  spec.seed = UINT64_MAX;
  spec.backends = {"mutant:none", "cpu"};
  CHECK(content_hash({read_again(spec)}) == content_hash({spec}));
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
    vast_columns += spec.layer.widths.front() > 65536 ? 1 : 0;
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
  CHECK(slices == std::set<std::size_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(features.count(1) == 1);
  CHECK(*features.rbegin() > 1024);
  CHECK(rank >= 512);
  CHECK(many_slots > 20);
  CHECK(many_slots < 200);
  CHECK(zero_scales > 100);
  CHECK(far_scales > 100);
  for (const std::int64_t seen : {vast_rows, vast_columns, vast_features}) {
    CHECK(seen > 0);
    CHECK(seen < 20);  // they cost more
  }
  for (const std::int64_t seen :
       {odd_ranks, shares, active, nothing, empty, wide, captured, padded}) {
    CHECK(seen > 10);
  }
}
