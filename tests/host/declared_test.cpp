#include <doctest/doctest.h>

#include "run/case_runner.h"
#include "support/plain_backend.h"
#include "support/workload_case.h"
#include "verify/mutants.h"

using namespace lora_bench;

namespace {

// Cuts its operands to 11 bits, which the exact level cannot see, and declares so from the second
// time on that it is asked.
class LaterHonest final : public PlainBackend {
 public:
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics = PlainBackend::numerics(problem);
    numerics.unit_roundoff = ++asked_ > 1 ? 0x1p-11 : numerics.unit_roundoff;
    return numerics;
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    cut_->launch(problem, operands, stream);
  }

 private:
  std::unique_ptr<Backend> cut_ = make_mutant("tf32-operands");
  mutable int asked_ = 0;
};

// Declares that its results may vary, from the second time on that it is asked.
class LaterVarying final : public PlainBackend {
 public:
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics = PlainBackend::numerics(problem);
    numerics.deterministic = asked_++ == 0;
    return numerics;
  }

 private:
  mutable int asked_ = 0;
};

Row proved(const Case& spec, const Selected& backend) {
  Targets targets;
  KeptGroundwork kept;
  return run_case({.spec = spec,
                   .backend = backend,
                   .relations = false,
                   .timing = false,
                   .thresholds = {},
                   .repro = {}},
                  targets, kept);
}

}  // namespace

TEST_CASE("a row is proved by what its backend declared first") {
  Case spec = workload_case(12, 4);
  spec.dtype = Dtype::kFp32;
  const Row row = proved(spec, {"later-honest", "", std::make_shared<LaterHonest>(), ""});
  CAPTURE(row.message);
  CHECK(row.status == Status::kFailed);
}

TEST_CASE("another declaration of the same problem is an error, timed or not") {
  const Row row =
      proved(workload_case(12, 4), {"later-varying", "", std::make_shared<LaterVarying>(), ""});
  CAPTURE(row.message);
  CHECK(row.status == Status::kError);
  CHECK(row.message.find("numerics declared another thing") != std::string::npos);
}
