#include <doctest/doctest.h>

#include <memory>

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
