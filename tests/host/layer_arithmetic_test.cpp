#include <doctest/doctest.h>

#include "support/layer_bench.h"
#include "support/layer_case.h"
#include "verify/oracle.h"

using namespace lora_bench;

// A bound that is wider than what was declared is seen by no right backend and by few wrong ones.
TEST_CASE(
    "a layer is held to what was declared, and for its division to no more than a term each") {
  const LayerBench bench;
  for (const LayerProblem& problem : all_layers()) {
    CAPTURE(name(problem.layer.kind));
    CAPTURE(problem.layer.tp);
    CAPTURE(problem.layer.fully_sharded);
    const ShardProblem part = shard_problem(problem, 0);
    const reference::LayerArithmetic held =
        layer_arithmetic(problem, one_home(*bench.backend, *bench.backend, *bench.memory));
    const Numerics of_base = part.looks_up ? Numerics{} : bench.backend->numerics(part.base);
    CHECK(held.base_unit_roundoff == (part.looks_up ? 0 : of_base.unit_roundoff));
    CHECK(held.base_depth == (part.looks_up ? 0 : of_base.shrink_depth));
    const reference::Arithmetic adapters =
        oracle_arithmetic(part.lora, bench.backend->numerics(part.lora));
    const std::int64_t terms_of_h = part.h == Exchange::kReduce ? problem.layer.tp : 0;
    CHECK(held.lora.unit_roundoff == adapters.unit_roundoff);
    CHECK(held.lora.shrink_depth == adapters.shrink_depth + terms_of_h);
    CHECK(held.lora.terms_of_h == (terms_of_h > 0 ? terms_of_h : adapters.terms_of_h));
    CHECK(held.terms ==
          (part.y == Exchange::kReduce && !part.looks_up ? problem.layer.tp : std::int64_t{1}));
    CHECK_FALSE(held.rounds_each_sum);
    CHECK(held.base_rounded);
  }
}
