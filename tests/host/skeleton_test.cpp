#include <doctest/doctest.h>

#include "compare/compare.h"
#include "core/dtype.h"
#include "core/random.h"
#include "core/units.h"
#include "core/version.h"
#include "measure/ceilings.h"
#include "measure/measure.h"
#include "reference/reference.h"
#include "report/columns.h"
#include "report/sink.h"
#include "scenario/scenario.h"
#include "verify/diagnose.h"
#include "verify/mutants.h"
#include "verify/verify.h"

TEST_CASE("a guard band is larger than a page-sized overrun") {
  CHECK(lora_bench::GuardedBuffer::kGuardBytes >= 4096);
}
