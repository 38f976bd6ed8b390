#include "device/gpu_group.h"

#include <doctest/doctest.h>

#include <string>

#include "core/error.h"
#include "device/facts.h"
#include "layers/communicator.h"
#include "ops/nccl_library.h"

using namespace lora_bench;

TEST_CASE("GPUs that are not here are told as one that is not") {
  if (const std::string none = why_no_gpu(); !none.empty()) {
    CHECK(why_no_gpus(2) == none);
    CHECK(why_no_nccl() == none);
    CHECK(why_no_nccl_communicator(2) == none);
    CHECK_THROWS_AS(GpuGroup(1), EnvironmentError);
  } else {
    CHECK(why_no_gpus(1000).find("1000 GPUs are needed") == 0);
    CHECK_THROWS_AS(GpuGroup(1000), EnvironmentError);
  }
}
