#include <doctest/doctest.h>

#include <memory>

#include "ops/backends.h"
#include "support/need_gpu.h"
#include "verify/metadata_proof.h"

using namespace lora_bench;

TEST_CASE("metadata made on the device is proved for every form, of one block and of clusters") {
  LORA_BENCH_NEED_GPU()
  const auto memory = make_device_memory();
  const int here = gpu_facts().compute_capability;
  for (const int capability : {80, here}) {  // the shapes of a device without clusters run here too
    const std::unique_ptr<MetadataBuilder> builder = make_device_metadata(capability);
    for (const TellingMetadata& telling : telling_metadata()) {
      CAPTURE(telling.id);
      CAPTURE(capability);
      const Verdict verdict = verify_metadata(telling.step, *builder, *memory, true);
      CHECK(verdict.message == "");
      CHECK(verdict.status == Status::kPassed);
    }
  }
}

TEST_CASE("backend auto makes metadata, and backends that make none say so") {
  LORA_BENCH_NEED_GPU()
  const MetadataProblem problem = telling_metadata().front().step.problem;
  for (const BackendEntry& entry : backend_registry()) {
    if (!entry.why_not_here.empty()) {
      continue;
    }
    CAPTURE(entry.name);
    const Support support =
        metadata_support(*entry.make(), problem, facts_of(entry.make()->space()));
    CHECK(support.yes == (entry.name == "auto" || entry.name == "cpu"));
  }
}
