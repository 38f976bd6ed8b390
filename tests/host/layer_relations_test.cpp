#include "verify/layer_proof.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "ops/backends.h"
#include "support/layer_case.h"
#include "support/observed_backend.h"

using namespace lora_bench;

namespace {

std::string broken(const LayerProblem& problem, const ObservedBackend::After& spoils) {
  const auto cpu = make_cpu_backend({1, ""});
  const auto memory = make_host_memory();
  const ObservedBackend lora({.after = spoils});
  const LayerHome home = one_home(*cpu, lora, *memory);
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  const reference::LayerRows oracle = layer_oracle(
      problem, tensors, layer_arithmetic(problem, home), sample_rows(problem.lora, 256, 1));
  return broken_layer_relation(problem, tensors, home, oracle);
}

// The last bit of the first column of a row.
void nudge(const Problem& problem, const Operands& operands, std::int64_t row) {
  auto* const bits = static_cast<std::uint16_t*>(operands.y) + row * problem.y_stride;
  *bits = static_cast<std::uint16_t>(*bits ^ 1U);
}

LayerProblem row_layer() { return layer_problem(layer_of(LayerKind::kRow, 1, false)); }

}  // namespace

TEST_CASE("the relations hold for every kind of layer, divided in every way") {
  const auto cpu = make_cpu_backend({1, ""});
  const auto memory = make_host_memory();
  for (LayerProblem problem : all_layers()) {
    INFO(told(problem));
    problem.base_bias = true;
    const Verdict verdict = verify_layer(problem, *cpu, *cpu, *memory, {.relations = true});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    CHECK(verdict.passed ==
          std::vector<Level>{Level::kExact, Level::kBounded, Level::kRelations, Level::kMemory});
  }
}

TEST_CASE("each relation is broken by what it is there for") {
  std::int64_t launches = 0;
  CHECK(broken(row_layer(), [&](const Problem& problem, const Operands& operands) {
          if (++launches == 3) {
            nudge(problem, operands, 0);
          }
        }) != "");
  CHECK(broken(row_layer(), [](const Problem& problem, const Operands& operands) {
          nudge(problem, operands, 1);
        }) == "B of zeros is the base");
  const auto in_slot = [](std::int32_t slot) {
    return [slot](const Problem& problem, const Operands& operands) {
      for (std::int64_t row = 0; row < problem.tokens; ++row) {
        // Only where an adapter adds something, so that B of zeros stays the base.
        const auto* const b = static_cast<const std::uint16_t*>(operands.b[0]);
        const bool zeros = b[slot * problem.widths[0] * problem.max_rank] << 1 == 0;
        if (operands.adapter_of_token[row] == slot && !zeros) {
          nudge(problem, operands, row);
        }
      }
    };
  };
  CHECK(broken(row_layer(), in_slot(1)) == "adapters in other slots");
  CHECK(broken(row_layer(), [](const Problem& problem, const Operands& operands) {
          for (std::int64_t row = 0; row < problem.tokens; ++row) {
            if (operands.adapter_of_token[row] < 0) {
              nudge(problem, operands, row);
            }
          }
        }) == "B of zeros is the base");
  CHECK(broken(row_layer(), [](const Problem& problem, const Operands& operands) {
          const auto* const b = static_cast<const std::uint16_t*>(operands.b[0]);
          if (b[operands.adapter_of_token[0] * problem.widths[0] * problem.max_rank] << 1 != 0) {
            nudge(problem, operands, 0);
          }
        }) == "rows in another order");
}

TEST_CASE("a relation is broken by the launch that it adds, of any shard") {
  const auto broken_from = [](const LayerProblem& problem, std::int64_t first, std::int64_t last,
                              std::int64_t row) {
    std::int64_t launches = 0;
    return broken(problem, [&](const Problem& of, const Operands& operands) {
      if (++launches >= first && launches <= last) {
        store(of.dtype[Role::kY], operands.y, row * of.y_stride, 1000);
      }
    });
  };
  CHECK(broken_from(row_layer(), 2, 2, 0) == "the same twice");
  CHECK(broken_from(row_layer(), 1, 2, 2) == "rows without adapter are the base");
  CHECK(broken_from(row_layer(), 4, 4, 0) == "adapters in other slots");
  CHECK(broken_from(row_layer(), 5, 5, 0) == "rows in another order");
  CHECK(broken_from(row_layer(), 6, 6, 0) == "twice the scale adds twice as much");
  CHECK(broken_from(row_layer(), 7, 7, 0) == "");
  CHECK(broken_from(row_layer(), 8, 8, 0) == "recorded and replayed");
  const LayerProblem halves = layer_problem(layer_of(LayerKind::kColumn, 2, false));
  CHECK(broken_from(halves, 6, 6, 0) == "B of zeros is the base");
  CHECK(broken_from(halves, 12, 12, 0) == "twice the scale adds twice as much");
}

TEST_CASE("twice the scale is held to a few bounds, not to hundreds") {
  const LayerProblem problem = layer_problem(layer_of(LayerKind::kRow, 1, false), Dtype::kFp32);
  const auto cpu = make_cpu_backend({1, ""});
  const reference::LayerRows oracle =
      layer_oracle(problem, draw_layer_tensors(problem, Fill::kBounded, 3),
                   layer_arithmetic(problem, *cpu, *cpu), {0});
  const auto off_by = [&](double bounds) {
    std::int64_t launches = 0;
    return broken(problem, [&](const Problem& of, const Operands& operands) {
      if (++launches == 6) {
        const double right = load(of.dtype[Role::kY], operands.y, 0);
        store(of.dtype[Role::kY], operands.y, 0,
              static_cast<float>(right + bounds * oracle.rows.bound[0]));
      }
    });
  };
  CHECK(off_by(3).empty());
  CHECK(off_by(30) == "twice the scale adds twice as much");
}

TEST_CASE("a layer whose relation is broken fails, and says which") {
  const auto cpu = make_cpu_backend({1, ""});
  const auto memory = make_host_memory();
  const LayerProblem problem = row_layer();
  const ObservedBackend lora({.after = [](const Problem& of, const Operands& operands) {
    nudge(of, operands, 2);  // a row without adapter
  }});
  const LayerHome home = one_home(*cpu, lora, *memory);
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  const reference::LayerRows oracle = layer_oracle(
      problem, tensors, layer_arithmetic(problem, home), sample_rows(problem.lora, 256, 1));
  Verdict verdict;
  verdict.status = Status::kPassed;
  verdict.passed = {Level::kBounded, Level::kMemory};
  add_relations(verdict, problem, tensors, home, oracle);
  CHECK(verdict.status == Status::kFailed);
  CHECK(verdict.message == "relations: 'B of zeros is the base' does not hold");
  REQUIRE(verdict.failure);
  CHECK(verdict.failure->level == Level::kRelations);
}

TEST_CASE("a recording that replays what was there when it was made breaks a relation") {
  std::vector<float> old;
  std::int64_t launches = 0;
  CHECK(broken(row_layer(), [&](const Problem& of, const Operands& operands) {
          // The last launch of all, the second replay, gives what the one before it gave.
          constexpr std::int64_t kLast = 9;
          std::vector<float> y(static_cast<std::size_t>(of.tokens * of.y_stride));
          decode(of.dtype[Role::kY], operands.y, y);
          if (++launches == kLast) {
            encode(of.dtype[Role::kY], old, operands.y);
          }
          old = y;
        }) == "recorded and replayed");
}
