#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

#include "device/facts.h"
#include "ops/backends.h"
#include "verify/metadata_proof.h"

using namespace lora_bench;

TEST_CASE("metadata made by kernels is proved for every form, of one block and of clusters") {
  const auto memory = make_device_memory();
  for (const int capability : {80, 90}) {
    const std::unique_ptr<MetadataBuilder> builder = make_device_metadata(capability);
    for (const TellingMetadata& telling : telling_metadata()) {
      CAPTURE(telling.id);
      CAPTURE(capability);
      const Verdict verdict = verify_metadata(telling.step, *builder, *memory, capability == 90);
      CHECK(verdict.message == "");
      CHECK(verdict.status == Status::kPassed);
    }
  }
}

TEST_CASE("metadata of more rows than one block holds is proved") {
  const auto memory = make_device_memory();
  for (const std::string_view form : EnumNames<Form>::kNames) {
    for (const int capability : {80, 90}) {
      if (form == "align") {
        continue;
      }
      CAPTURE(form);
      CAPTURE(capability);
      MetadataStep step = telling_metadata().front().step;
      step.problem.form = *named<Form>(form);
      step.problem.tokens = 5300;
      step.problem.samples = 700;
      step.problem.requests = 90;
      step.engine.slot_of_request.clear();
      step.engine.request_of_token.clear();
      step.engine.request_of_sample.clear();
      for (std::int32_t request = 0; request < 90; ++request) {
        step.engine.slot_of_request.push_back(request * 7 % 8 - 2 < 0 ? -1 : request * 7 % 8 - 2);
      }
      for (std::int32_t row = 0; row < 5300; ++row) {
        step.engine.request_of_token.push_back(row / (1 + row % 40) % 90);
      }
      for (std::int32_t row = 0; row < 700; ++row) {
        step.engine.request_of_sample.push_back(row * 31 % 91 - 1);
      }
      const std::unique_ptr<MetadataBuilder> builder = make_device_metadata(capability);
      CHECK(verify_metadata(step, *builder, *memory, false).message == "");
    }
  }
}

TEST_CASE("lists of pairs are proved for many experts, slots, rows and small blocks") {
  const auto memory = make_device_memory();
  struct Sizes {
    std::int32_t tokens, slots, experts, top_k, block;
  };
  for (const Sizes& sizes :
       {Sizes{3, 2, 4, 2, 4}, Sizes{700, 5, 128, 8, 128}, Sizes{2600, 30, 300, 2, 16},
        Sizes{40, 3000, 20, 4, 64}, Sizes{9, 2, 4096, 1, 16}, Sizes{1200, 1, 1, 1, 16}}) {
    MetadataStep step;
    step.problem = {.form = Form::kAlign,
                    .tokens = sizes.tokens,
                    .requests = 50,
                    .slots = sizes.slots,
                    .chunk = 16,
                    .experts = sizes.experts,
                    .top_k = sizes.top_k,
                    .block = sizes.block};
    for (std::int32_t request = 0; request < 50; ++request) {
      step.engine.slot_of_request.push_back(request * 61 % (sizes.slots + 1) - 1);
    }
    for (std::int32_t row = 0; row < sizes.tokens; ++row) {
      // Of the longest batch neighbours are alike, so that not every block sees every slot.
      const std::int32_t turn = sizes.tokens == 2600 ? row * 51 / sizes.tokens : row * 7;
      step.engine.request_of_token.push_back(turn % 51 - 1);
      for (std::int32_t choice = 0; choice < sizes.top_k; ++choice) {
        const std::int32_t expert = (row / (1 + row % 9) + choice) % sizes.experts;
        step.engine.expert_of_choice.push_back((row + choice) % 11 == 0 ? -1 : expert);
      }
    }
    step.engine.rank.assign(static_cast<std::size_t>(sizes.slots), 8);
    step.engine.scale.assign(static_cast<std::size_t>(sizes.slots), 1);
    for (const int capability : {80, 90}) {
      CAPTURE(sizes.tokens);
      CAPTURE(capability);
      const std::unique_ptr<MetadataBuilder> builder = make_device_metadata(capability);
      REQUIRE(builder->supports(step.problem, facts_of(Space::kDevice)).yes);
      CHECK(verify_metadata(step, *builder, *memory, sizes.tokens < 10).message == "");
    }
  }
}

TEST_CASE("lists that no launch has room for are refused with what is too much") {
  const std::unique_ptr<MetadataBuilder> builder = make_device_metadata(90);
  MetadataProblem problem{.form = Form::kAlign, .tokens = 70000, .slots = 16, .top_k = 1};
  problem.experts = 4180;
  problem.block = 16;
  const DeviceFacts facts = facts_of(Space::kDevice);
  CHECK(builder->supports(problem, facts).yes);
  problem.experts = 4181;
  CHECK(builder->supports(problem, facts).why_not.find("16 slots, 4181 experts: ") == 0);
  problem.experts = 8;
  problem.slots = 65535;
  CHECK_FALSE(builder->supports(problem, facts).yes);
  problem.slots = 65534;
  CHECK(builder->supports(problem, facts).yes);
}
