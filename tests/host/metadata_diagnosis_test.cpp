#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/backends.h"
#include "plan/forms.h"
#include "verify/metadata_proof.h"

using namespace lora_bench;

namespace {

using Bytes = std::vector<std::vector<std::byte>>;

// 40 rows of slot 1, 20 of slot 0, 4 without an adapter, 3 of slot 4.
MetadataStep small_step(Form form) {
  MetadataStep step;
  step.problem = {.form = form,
                  .tokens = 67,
                  .samples = 4,
                  .requests = 4,
                  .slots = 6,
                  .vocabulary = 100,
                  .extra_vocabulary = 16,
                  .chunk = 16,
                  .idle_segments = false};
  step.engine.request_of_sample = {0, 1, 2, 3};
  step.engine.slot_of_request = {1, 0, -1, 4};
  const std::int64_t rows[] = {40, 20, 4, 3};
  for (std::int32_t request = 0; request < 4; ++request) {
    step.engine.request_of_token.insert(step.engine.request_of_token.end(),
                                        static_cast<std::size_t>(rows[request]), request);
  }
  step.engine.rank = {8, 16, 0, 4, 32, 64};
  step.engine.scale = {2.0F, 1.0F, 0.5F, 4.0F, 0.25F, 8.0F};
  return step;
}

// What a builder writes over poison, by the names of arrays.
struct Written {
  const MetadataProblem& problem;
  std::vector<FilledArray> arrays;

  [[nodiscard]] std::vector<std::int64_t>& of(std::string_view name) {
    const std::vector<MetadataArray> known = outputs_of(problem);
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const MetadataArray& array) { return array.name == name; });
    REQUIRE(found != known.end());
    return arrays[static_cast<std::size_t>(found - known.begin())].values;
  }
};

// What is told of a builder that writes `change` of what is right.
Hypothesis told_of_step(const MetadataStep& step, const std::function<void(Written&)>& change) {
  const std::vector<FilledArray> promised = promised_metadata(step.problem, step.engine);
  const std::vector<MetadataArray> arrays = outputs_of(step.problem);
  Written written{step.problem, promised};
  change(written);
  Bytes before, got;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    before.emplace_back(static_cast<std::size_t>(arrays[i].bytes()));
    for (std::int64_t entry = 0; entry < arrays[i].elements; ++entry) {
      const auto at = static_cast<std::size_t>(entry);
      const bool known = at < promised[i].values.size() && promised[i].values[at] != kLeftAlone;
      put_index(arrays[i], before[i].data(), entry,
                poison_of(known ? promised[i].values[at] : entry));
    }
    got.push_back(before[i]);
    put_filled(arrays[i], got[i].data(), written.arrays[i]);
  }
  return diagnose_metadata({step, promised, before, got, {}});
}

Hypothesis told(Form form, const std::function<void(Written&)>& change) {
  return told_of_step(small_step(form), change);
}

void rewrite(Written& written, const MetadataProblem& problem, const EngineStep& engine) {
  written.arrays = make_metadata(problem, engine);
}

// As a builder does that is given other slots of requests.
void rewrite_by_slots(Written& written, const std::vector<std::int32_t>& slots) {
  MetadataStep other = small_step(written.problem.form);
  other.engine.slot_of_request = slots;
  rewrite(written, other.problem, other.engine);
}

}  // namespace

TEST_CASE("metadata told: a field that was never written is no number") {
  for (const char* const array : {"active", "no_adapter", "token_order", "starts", "counts"}) {
    const Hypothesis hypothesis =
        told(Form::kKernel, [&](Written& written) { written.of(array).clear(); });
    CHECK(hypothesis.key == "unwritten");
    CHECK(hypothesis.sentence == std::string(array) + " was not written");
  }
  const Hypothesis part =
      told(Form::kKernel, [](Written& written) { written.of("adapter_of_token").resize(60); });
  CHECK(part.key == "unwritten");
  CHECK(part.sentence == "adapter_of_token[60] was not written");
  // One that was not written beside one that is wrong.
  const Hypothesis both = told(Form::kPrefill, [](Written& written) {
    written.of("longest").front() = 3;
    written.of("lengths").resize(1);
  });
  CHECK(both.key == "wrong-count");
  CHECK(both.sentence == "lengths[1] was not written, where 20 is right");

  const MetadataStep step = small_step(Form::kKernel);
  const std::unique_ptr<Backend> mutant = make_metadata_mutant("metadata-active-unwritten");
  const Verdict verdict = verify_metadata(step, *mutant->metadata(), *make_host_memory(), false);
  REQUIRE(verdict.failure.has_value());
  CHECK(verdict.failure->what == "active[0]: expected 4, was not written");
}

TEST_CASE("metadata told: rows that are left out of the order are lost, not an unwritten array") {
  const Hypothesis hypothesis =
      told(Form::kKernel, [](Written& written) { written.of("token_order").resize(66); });
  CHECK(hypothesis.key == "row-lost");
}

TEST_CASE("metadata told: a slot that is off by one has lost no group") {
  const Hypothesis ids = told(Form::kKernel, [](Written& written) {
    for (std::size_t group = 1; group < 4; ++group) {
      ++written.of("active_ids")[group];
    }
  });
  CHECK(ids.key == "slot-off-by-one");
  CHECK(ids.sentence == "active_ids[1] names the slot after the right one");
  const Hypothesis segments = told(Form::kChunked, [](Written& written) {
    for (std::int64_t& slot : written.of("adapter_of_segment")) {
      ++slot;
    }
  });
  CHECK(segments.key == "slot-off-by-one");
  for (const Form form : {Form::kKernel, Form::kChunked, Form::kSampler, Form::kEmbedding}) {
    CAPTURE(name(form));
    CHECK(told(form, [](Written& written) {
            rewrite_by_slots(written, {2, 1, -1, 5});
          }).key == "slot-off-by-one");
  }
  const Hypothesis before = told(Form::kKernel, [](Written& written) {
    rewrite_by_slots(written, {0, -1, -1, 3});
  });
  CHECK(before.key == "slot-off-by-one");
  CHECK(before.sentence == "row 0 is given to the slot before its own");
  // A row without an adapter that is given to slot 0 is no slot that is off by one.
  CHECK(told(Form::kSampler, [](Written& written) { written.of("adapters")[2] = 0; }).key ==
        "none-row-grouped");
}

TEST_CASE("metadata told: a group is lost where no other stands in its place") {
  const Hypothesis lost = told(Form::kKernel, [](Written& written) {
    written.of("active_ids") = {-1, 0, 1, -1, -1, -1, -1};
    written.of("counts") = {4, 20, 40, 0, 0, 0, 0};
    written.of("active") = {3};
  });
  CHECK(lost.key == "group-lost");
  CHECK(lost.sentence == "slot 4 has rows and is not in active_ids");
  const Hypothesis other =
      told(Form::kKernel, [](Written& written) { written.of("active_ids")[3] = 2; });
  CHECK(other.key == "wrong-slot");
  CHECK(other.sentence == "active_ids[3] holds 2 where 4 would name its slot");
}

TEST_CASE("metadata told: segments that are too long or too short name the right slots") {
  const auto cut_at = [](std::int64_t chunk) {
    return told(Form::kChunked, [&](Written& written) {
      const std::size_t most = written.of("segment_starts").size();
      MetadataStep other = small_step(Form::kChunked);
      other.problem.chunk = chunk;
      rewrite(written, other.problem, other.engine);
      written.of("segment_starts").resize(most, 63);
      written.of("chunk") = {16};
    });
  };
  const Hypothesis too_long = cut_at(32);
  CHECK(too_long.key == "segment-too-long");
  CHECK(too_long.sentence == "segment 0 has 20 rows, more than the chunk of 16");
  const Hypothesis halves = told(Form::kChunked, [](Written& written) {
    written.of("segment_starts") = {0, 8, 20, 36, 52, 60, 63, 63, 63, 63};
    written.of("adapter_of_segment") = {0, 0, 1, 1, 1, 4};
  });
  CHECK(halves.key == "wrong-count");
  CHECK(halves.sentence == "segment_starts[1] holds 8, not 16");
}

TEST_CASE("metadata told: what is written behind the last group is told apart from what is left") {
  const Hypothesis left =
      told(Form::kKernel, [](Written& written) { written.of("active_ids").resize(4); });
  CHECK(left.key == "stale-tail");
  const Hypothesis zeros = told(Form::kKernel, [](Written& written) {
    std::fill(written.of("active_ids").begin() + 4, written.of("active_ids").end(), 0);
  });
  CHECK(zeros.key == "wrong-tail");
  CHECK(zeros.sentence == "active_ids[4] is behind the last group and holds 0, not -1");
}

TEST_CASE("metadata told: a scale is a number, not its bits") {
  const Hypothesis hypothesis = told(
      Form::kChunked, [](Written& written) { written.of("scale")[0] = written.of("scale")[1]; });
  CHECK(hypothesis.key == "wrong-rank");
  CHECK(hypothesis.sentence == "scale[0] holds 1, not 2");
}

namespace {

// The 67 rows of the small step: slot 1 has 40, slot 0 20, no adapter 4, slot 4 3. Two of five
// experts each, the second elsewhere where the row is a multiple of four.
MetadataStep lists_step() {
  MetadataStep step = small_step(Form::kAlign);
  step.problem.experts = 5;
  step.problem.top_k = 2;
  step.problem.block = 16;
  for (std::int32_t row = 0; row < 67; ++row) {
    step.engine.expert_of_choice.push_back(row % 5);
    step.engine.expert_of_choice.push_back(row % 4 == 0 ? -1 : (row + 2) % 5);
  }
  return step;
}

// The entry of `array` where the list of a slot has this place.
std::int64_t& at_place(Written& written, const char* array, std::size_t slot, std::size_t place) {
  std::vector<std::int64_t>& values = written.of(array);
  return values[slot * (values.size() / 6) + place];
}

}  // namespace

TEST_CASE("lists told: which pair is where it should not be, by row, choice and slot") {
  const auto told_of = [](const std::function<void(Written&)>& change) {
    return told_of_step(lists_step(), change);
  };
  // Slot 4 has rows 64 to 66: expert 0 has 130 alone, expert 1 132 and 131, expert 2 none ...
  const auto put = [&](std::size_t place, std::int64_t pair) {
    return told_of([=](Written& written) { at_place(written, "pair_order", 4, place) = pair; });
  };
  CHECK(put(1, 3).sentence ==
        "pair 3 (row 1, choice 1) is of another slot and is in the list of "
        "slot 4");
  CHECK(put(1, 121).key == "none-listed");
  CHECK(put(1, 129).sentence ==
        "pair 129 (row 64, choice 1) has its expert elsewhere and is in the list of slot 4");
  CHECK(put(1, 130).sentence == "pair 130 (row 65, choice 0) is listed 2 times");
  CHECK(put(0, 134).sentence == "pair 130 (row 65, choice 0) of slot 4 is not listed");
  CHECK(put(3, -1).sentence == "lists are padded with -1, not with 134, the number of pairs");
  const Hypothesis swapped = told_of([](Written& written) {
    std::swap(at_place(written, "pair_order", 4, 0), at_place(written, "pair_order", 4, 16));
  });
  CHECK(swapped.key == "pair-of-other-expert");
  const Hypothesis idle =
      told_of([](Written& written) { at_place(written, "padded_pairs", 2, 0) = 0; });
  CHECK(idle.key == "idle-slot-written");
  CHECK(idle.sentence == "no row has slot 2, and padded_pairs[2] was written, with 0");
  const Hypothesis expert =
      told_of([](Written& written) { at_place(written, "expert_of_block", 4, 0) = 3; });
  CHECK(expert.key == "wrong-expert");
  const Hypothesis enabled = told_of([](Written& written) { written.of("enabled")[3] = 1; });
  CHECK(enabled.key == "wrong-count");
  CHECK(enabled.sentence == "enabled[3] holds 1, not 0");
}

TEST_CASE("lists told: an array that was never written is none, lists of one slot are skipped") {
  const auto told_of = [](const std::function<void(Written&)>& change) {
    return told_of_step(lists_step(), change);
  };
  const Hypothesis none = told_of([](Written& written) { written.of("expert_of_block").clear(); });
  CHECK(none.key == "unwritten");
  CHECK(none.sentence == "expert_of_block was not written");
  const Hypothesis skipped = told_of([](Written& written) {
    for (const char* const array : {"pair_order", "expert_of_block", "padded_pairs"}) {
      std::vector<std::int64_t>& values = written.of(array);
      const auto each = static_cast<std::ptrdiff_t>(values.size() / 6);
      std::fill_n(values.begin() + each, each, kLeftAlone);
    }
  });
  CHECK(skipped.key == "slot-skipped");
  CHECK(skipped.sentence == "slot 1 has rows, and nothing of its lists was written");
}
