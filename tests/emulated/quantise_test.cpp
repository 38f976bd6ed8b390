#include <doctest/doctest.h>

#include <memory>

#include "layers/layer_problem.h"
#include "ops/backends.h"
#include "scenario/scenario.h"
#include "verify/quantise_proof.h"

using namespace lora_bench;

TEST_CASE(
    "codes and scales made by kernels are proved, with and without the instruction of sm_89") {
  const auto memory = make_device_memory();
  for (const int capability : {80, 90}) {
    const std::unique_ptr<Quantiser> quantiser = make_device_quantiser(capability);
    for (const TellingQuantise& telling : telling_quantise()) {
      CAPTURE(telling.id);
      CAPTURE(capability);
      const Verdict verdict = verify_quantise(telling.step, *quantiser, *memory, true);
      CHECK(verdict.message == "");
      CHECK(verdict.status == Status::kPassed);
    }
  }
}

TEST_CASE("every shipped case of op quantise is proved of the kernels") {
  const auto memory = make_device_memory();
  const std::unique_ptr<Quantiser> quantiser = make_device_quantiser(90);
  std::int64_t proved = 0;
  for (const Case& spec :
       load_scenario(LORA_BENCH_SOURCE_DIR "/scenarios/verify/quantise.yaml", {}).cases) {
    CAPTURE(spec.id);
    const Verdict verdict = verify_quantise(*step_of(spec).quantise, *quantiser, *memory, false);
    CHECK(verdict.message == "");
    CHECK(verdict.status == Status::kPassed);
    proved += verdict.compared > 0 ? 1 : 0;
  }
  CHECK(proved >= 42);
}
