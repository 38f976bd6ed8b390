#pragma once

#include <cstdint>

#include "core/random.h"
#include "scenario/case.h"
#include "workload/problem.h"

// A small case with every field set, for tests to bend.
inline lora_bench::Case workload_case(std::int64_t sequences, std::int64_t slots) {
  lora_bench::Case spec;
  spec.layer.in_features = 48;
  spec.layer.widths = {24, 8};
  spec.layer.x_stride = 48;
  spec.layer.y_stride = 32;
  spec.batch.decode = sequences;
  spec.adapters.slots = slots;
  spec.adapters.rank.list = {8};
  spec.adapters.max_rank = 8;
  spec.order = lora_bench::Order::kAsArrived;
  return spec;
}

inline lora_bench::Problem problem_of(const lora_bench::Case& spec) { return make_problem(spec); }

// Shapes, laws and dtypes of every kind, small.
inline lora_bench::Case random_case(std::uint64_t seed) {
  using namespace lora_bench;
  std::uint64_t drawn = 0;
  const auto below = [&](std::int64_t bound) {
    const auto value = random_below(seed, 99, drawn++, static_cast<std::uint64_t>(bound));
    return static_cast<std::int64_t>(value);
  };
  Case spec;
  spec.seed = seed;
  spec.op = static_cast<Op>(below(5));
  spec.dtype = static_cast<Dtype>(below(3));
  spec.intermediate = below(2) == 0 ? Dtype::kFp32 : spec.dtype;
  spec.scale_at = static_cast<ScaleAt>(below(2));
  spec.add_inputs = below(3) != 0;
  spec.layer.in_features = 1 + below(300);
  spec.layer.widths = {1 + below(40), below(20)};
  spec.layer.offset_start = below(4);
  spec.layer.x_stride = spec.layer.in_features + below(5);
  spec.layer.y_stride =
      spec.layer.offset_start + spec.layer.widths[0] + spec.layer.widths[1] + below(5);
  spec.batch.decode = below(20);
  spec.batch.prefill = {1 + below(20)};
  spec.adapters.slots = 1 + below(12);
  spec.adapters.rank.list = {below(9), 1 + below(64), 1 << below(10)};
  spec.adapters.bias = below(2) == 0;
  spec.adapters.scale = {1.0, 2.0, 0.37};
  spec.skew.kind = static_cast<Skew>(below(7));
  spec.skew.parameter = 0.7;
  spec.prefill_skew = spec.skew;
  spec.no_adapter = 0.25;
  return spec;
}
