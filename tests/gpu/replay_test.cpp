#include <doctest/doctest.h>

#include <memory>

#include "ops/backend.h"
#include "ops/backends.h"
#include "support/need_gpu.h"
#include "support/problems.h"
#include "verify/relations.h"

using namespace lora_bench;

namespace {

// Says of another backend that what it recorded serves every batch.
class Promising final : public Backend {
 public:
  explicit Promising(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return "promising"; }
  std::string_view summary() const override { return "promises that it replays other batches"; }
  Space space() const override { return inner_->space(); }
  Support supports(const Problem& problem, const DeviceFacts& device) const override {
    return inner_->supports(problem, device);
  }
  Numerics numerics(const Problem& problem) const override {
    Numerics numerics = inner_->numerics(problem);
    numerics.replays_other_batches = true;
    return numerics;
  }
  std::int64_t workspace_bytes(const Problem& problem) const override {
    return inner_->workspace_bytes(problem);
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    inner_->launch(problem, operands, stream);
  }

 private:
  std::unique_ptr<Backend> inner_;
};

std::string broken_by(std::unique_ptr<Backend> backend) {
  const auto memory = make_device_memory();
  const Promising promising(std::move(backend));
  Groundwork groundwork(linear_problem(), 1, 0);
  const auto failure = check_relations(groundwork, promising, *memory, 64);
  return failure ? failure->what : "";
}

}  // namespace

TEST_CASE("a grid that follows the batch is found out where it is declared to serve every batch") {
  LORA_BENCH_NEED_GPU()
  CHECK(broken_by(make_naive_backend()) == "");
  CHECK(broken_by(make_chunked_backend()) ==
        "relation 'recorded with one batch, run with another'");
}
