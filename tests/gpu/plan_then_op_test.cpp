#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "device/facts.h"
#include "device/memory.h"
#include "ops/backends.h"
#include "ops/device_plan.h"
#include "support/need_gpu.h"
#include "support/problems.h"
#include "workload/tensors.h"

using namespace lora_bench;

namespace {

using Ids = std::vector<std::int32_t>;

// bf16, whole vectors in every row: what `auto` gives to kernels that read the plan early.
Problem decode_problem(std::int64_t tokens, std::int64_t slots) {
  Problem problem;
  problem.op = Op::kLinear;
  problem.dtype = OperandDtypes(Dtype::kBf16);
  problem.tokens = tokens;
  problem.in_features = problem.x_stride = 1024;
  problem.widths = {512, 128};
  problem.y_stride = 640;
  problem.slots = slots;
  problem.max_rank = 16;
  problem.rank.assign(static_cast<std::size_t>(slots), 16);
  problem.scale.assign(static_cast<std::size_t>(slots), 0.5F);
  return problem;
}

Ids drawn_ids(const Problem& problem, std::uint64_t seed) {
  Draws draw(seed);
  Ids ids;
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    ids.push_back(static_cast<std::int32_t>(draw.between(-1, problem.slots - 1)));
  }
  return ids;
}

// Operands whose plan a kernel makes on the device.
class Step {
 public:
  Step(Memory& memory, const Problem& problem, std::int64_t workspace_bytes = 0)
      : memory_(memory), tensors_(draw_tensors(problem, Fill::kBounded, 1)) {
    if (workspace_bytes > 0) {
      buffers_.emplace_back(memory, workspace_bytes);
      operands_.workspace = buffers_.back().data();
    }
    operands_.x = keep(tensors_.x.data);
    for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
      operands_.a.push_back(keep(tensors_.a[slice].data));
      operands_.b.push_back(keep(tensors_.b[slice].data));
      operands_.bias.push_back(nullptr);
    }
    operands_.y = keep(tensors_.y.data);
    const Ids rank(problem.rank.begin(), problem.rank.end());
    operands_.rank = keep(rank);
    operands_.scale = keep(problem.scale);
    const auto ints = [&](std::int64_t count) {
      return keep(Ids(static_cast<std::size_t>(count), 0));
    };
    plan_.adapter_of_token = ids_ = ints(problem.tokens);
    plan_.token_order = ints(problem.tokens);
    plan_.active_ids = ints(problem.slots + 1);
    plan_.group_starts = ints(problem.slots + 2);
    plan_.counts = ints(problem.slots + 1);
    plan_.active = ints(1);
    operands_.adapter_of_token = plan_.adapter_of_token;
    operands_.token_order = plan_.token_order;
    operands_.active_ids = plan_.active_ids;
    operands_.group_starts = plan_.group_starts;
  }

  [[nodiscard]] const DevicePlan& plan() const { return plan_; }
  [[nodiscard]] const Operands& operands() const { return operands_; }

  void bring(const Ids& ids) {
    memory_.copy_in(ids_, ids.data(), static_cast<std::int64_t>(ids.size()) * 4);
    memory_.copy_in(operands_.y, tensors_.y.data.data(),
                    static_cast<std::int64_t>(tensors_.y.data.size()));
  }
  [[nodiscard]] std::vector<std::byte> output() const {
    std::vector<std::byte> bytes(tensors_.y.data.size());
    memory_.copy_out(bytes.data(), operands_.y, static_cast<std::int64_t>(bytes.size()));
    return bytes;
  }

 private:
  template <typename Value>
  Value* keep(const std::vector<Value>& values) {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(Value));
    buffers_.emplace_back(memory_, bytes);
    buffers_.back().upload(values.data(), bytes);
    return static_cast<Value*>(buffers_.back().data());
  }

  Memory& memory_;
  Tensors tensors_;
  std::vector<GuardedBuffer> buffers_;
  Operands operands_;
  DevicePlan plan_;
  std::int32_t* ids_ = nullptr;
};

}  // namespace

TEST_CASE("auto right after the kernel that makes its plan, in one graph, sees every batch's own") {
  LORA_BENCH_NEED_GPU()
  const auto memory = make_device_memory();
  const auto chosen = make_auto_backend();
  for (const std::int64_t tokens : {1, 24, 150}) {
    Problem problem = decode_problem(tokens, 12);
    Ids every = drawn_ids(problem, 1);  // as many groups as any batch may have
    for (std::size_t i = 0; i < every.size(); ++i) {
      every[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(problem.slots));
    }
    problem.plan = make_plan(every, problem.slots);
    Step step(*memory, problem);
    const DevicePlanShape shape{tokens, problem.slots, gpu_facts().compute_capability};
    const auto plan = [&](void* stream) {
      launch_device_plan(step.plan(), tokens, shape, Stream{stream});
    };
    const auto op = [&](void* stream) { chosen->launch(problem, step.operands(), Stream{stream}); };
    const std::function<void()> plan_alone = memory->record(plan);
    const std::function<void()> op_alone = memory->record(op);
    const std::function<void()> together = memory->record([&](void* stream) {
      plan(stream);
      op(stream);
    });
    for (std::uint64_t batch = 0; batch < 60; ++batch) {
      const Ids ids = drawn_ids(problem, 100 + batch);
      step.bring(drawn_ids(problem, 1000 + batch));
      plan_alone();  // what an op that comes too early would read
      step.bring(ids);
      together();
      const std::vector<std::byte> got = step.output();
      step.bring(ids);
      plan_alone();
      op_alone();
      CAPTURE(tokens);
      CAPTURE(batch);
      CHECK(got == step.output());
    }
  }
}

TEST_CASE("auto captured once for a maximum gives each batch below the bits of its own launch") {
  LORA_BENCH_NEED_GPU()
  const auto memory = make_device_memory();
  const auto chosen = make_auto_backend();
  for (const std::int64_t tokens : {1, 8, 24, 150, 600}) {
    Problem captured = decode_problem(tokens, 40);
    captured.max_active = captured.slots;
    captured.plan = make_plan(Ids(static_cast<std::size_t>(tokens), -1), captured.slots);
    // Rows that lie otherwise may take more room than those of the maximum.
    Problem one = captured;
    one.max_active = 0;
    one.plan = make_plan(Ids(static_cast<std::size_t>(tokens), 0), one.slots);
    Step step(*memory, captured,
              2 * (chosen->workspace_bytes(captured) + chosen->workspace_bytes(one)));
    const DevicePlanShape shape{tokens, captured.slots, gpu_facts().compute_capability};
    const std::function<void()> together = memory->record([&](void* stream) {
      launch_device_plan(step.plan(), tokens, shape, Stream{stream});
      chosen->launch(captured, step.operands(), Stream{stream});
    });
    for (std::uint64_t batch = 0; batch < 24; ++batch) {
      Draws draw(batch);
      const std::int64_t live = batch % 3 == 0 ? tokens : draw.between(0, tokens);
      const std::int64_t active = batch % 4 == 0 ? captured.slots : draw.between(1, 4);
      Ids ids(static_cast<std::size_t>(tokens), -1);
      for (std::int64_t row = 0; row < live; ++row) {
        ids[static_cast<std::size_t>(row)] =
            static_cast<std::int32_t>(draw.between(0, active - 1) * (captured.slots / active));
      }
      step.bring(ids);
      together();
      const std::vector<std::byte> got = step.output();
      Problem own = captured;
      own.max_active = 0;
      own.plan = make_plan(ids, own.slots);
      REQUIRE(chosen->workspace_bytes(own) <=
              2 * (chosen->workspace_bytes(captured) + chosen->workspace_bytes(one)));
      step.bring(ids);  // the plan is on the device already
      memory->record([&](void* stream) { chosen->launch(own, step.operands(), Stream{stream}); })();
      CAPTURE(tokens);
      CAPTURE(batch);
      CHECK(got == step.output());
    }
  }
}
