#include <doctest/doctest.h>

#include "device/memory.h"
#include "ops/auto_tuning.h"
#include "ops/backends.h"
#include "support/need_gpu.h"
#include "support/proved.h"
#include "support/stage_bits.h"
#include "support/workload_case.h"
#include "verify/staging.h"
#include "verify/verify.h"

using lora_bench::AutoFamily;
using lora_bench::AutoKnobs;
using lora_bench::Dtype;
using lora_bench::Problem;
using lora_bench::Status;
using lora_bench::Tuning;
using lora_bench::tuning_of;
using lora_bench::test::Proved;

namespace {

void check_auto(const lora_bench::Case& spec, Proved& proved) {
  static const auto memory = lora_bench::make_device_memory();
  static const auto chosen = lora_bench::make_auto_backend();
  const Problem problem = problem_of(spec);
  const lora_bench::Verdict verdict = verify(problem, *chosen, *memory, {.relations = true});
  CAPTURE(spec.seed);
  CAPTURE(verdict.message);
  lora_bench::test::check_proved(proved, problem, verdict);
}

// Random cases on tensor cores; half of them linear, with whole vectors in every row.
lora_bench::Case auto_case(std::uint64_t seed) {
  const auto to_eight = [](std::int64_t value) { return (value + 7) / 8 * 8; };
  lora_bench::Case spec = random_case(seed);
  if (spec.dtype == Dtype::kFp32) {
    spec.dtype = seed % 4 < 2 ? Dtype::kBf16 : Dtype::kFp16;
    spec.intermediate = seed % 8 < 4 ? Dtype::kFp32 : spec.dtype;
  }
  if (seed % 2 == 0) {
    spec.op = lora_bench::Op::kLinear;
    spec.layer.in_features = to_eight(spec.layer.in_features);
    spec.layer.x_stride = to_eight(spec.layer.in_features + 1);
    spec.layer.offset_start = to_eight(spec.layer.offset_start);
    spec.layer.y_stride = spec.layer.offset_start + 8;
    for (std::int64_t& width : spec.layer.widths) {
      width = to_eight(width);
      spec.layer.y_stride += width;
    }
    spec.adapters.max_rank = (spec.adapters.max_rank + 3) / 4 * 4;
  }
  return spec;
}

}  // namespace

TEST_CASE("auto passes every level on random cases, with whole vectors and without") {
  LORA_BENCH_NEED_GPU()
  Proved proved;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    check_auto(auto_case(seed), proved);
  }
  check_enough(proved);
}

TEST_CASE("auto passes on every rank class, with few rows an adapter and many") {
  LORA_BENCH_NEED_GPU()
  Proved proved;
  for (const std::int64_t rank : {1, 4, 7, 8, 12, 16, 24, 64, 100, 128, 192, 256}) {
    for (const std::int64_t rows : {1, 7, 8, 9, 33, 130}) {
      lora_bench::Case spec = workload_case(rows, rows > 8 ? 3 : 1);
      spec.seed = static_cast<std::uint64_t>(rank * 1000 + rows);
      spec.dtype = rows % 2 == 0 ? Dtype::kBf16 : Dtype::kFp16;
      spec.intermediate = rank % 3 == 0 ? spec.dtype : Dtype::kFp32;
      spec.layer.in_features = spec.layer.x_stride = 4104;
      spec.layer.widths = {264, 0, 128};
      spec.layer.y_stride = 392;
      spec.adapters.rank.list = {rank};
      spec.adapters.max_rank = (rank + 3) / 4 * 4;
      spec.adapters.bias = rows % 3 == 0;
      check_auto(spec, proved);
    }
  }
  check_enough(proved);
}

TEST_CASE("auto: no tuning changes a bit of the result, and each that is taken is proved") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  const auto chosen = lora_bench::make_auto_backend();
  const lora_bench::DeviceFacts facts = lora_bench::gpu_facts();
  const auto bits_of = [&](const Problem& problem, const lora_bench::Tensors& tensors) {
    return lora_bench::test::bits_of_launch(*memory, *chosen, problem, tensors);
  };
  std::vector<Tuning> tunings;
  const auto add = [&](AutoFamily family, const auto& change) {
    AutoKnobs knobs{.family = family};
    change(knobs);
    tunings.push_back(tuning_of(knobs));
  };
  add(AutoFamily::kResident, [](AutoKnobs&) {});
  for (const std::int64_t cluster : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    add(AutoFamily::kClustered, [&](AutoKnobs& knobs) { knobs.cluster = cluster; });
  }
  for (const std::int64_t groups : {2, 3, 8}) {
    for (const std::int64_t cluster : {1, 6, 16}) {
      add(AutoFamily::kClustered, [&](AutoKnobs& knobs) {
        knobs.groups = groups;
        knobs.cluster = cluster;
      });
    }
  }
  for (const std::int64_t warps : {2, 3, 4, 6, 8, 12, 16}) {
    for (const std::int64_t slots : {1, 2, 3, 4}) {
      for (const std::int64_t blocks : {1, 2}) {
        add(AutoFamily::kClustered, [&](AutoKnobs& knobs) {
          knobs.warps = warps;
          knobs.slots = slots;
          knobs.blocks = blocks;
        });
      }
    }
  }
  for (const auto& tile : lora_bench::kernels::kPanelShrinkTiles) {
    if (tile.joined) {
      add(AutoFamily::kPanel,
          [&](AutoKnobs& knobs) { knobs.shrink_tile = lora_bench::tile_name(tile); });
    }
    for (const std::int64_t split : {1, 2, 4, 8}) {
      for (std::int64_t parts = split; parts <= 8 && !tile.joined; parts *= 2) {
        add(AutoFamily::kPanel, [&](AutoKnobs& knobs) {
          knobs.shrink_tile = lora_bench::tile_name(tile);
          knobs.split = split;
          knobs.parts = parts;
        });
      }
    }
  }
  for (const auto& tile : lora_bench::kernels::kPanelExpandTiles) {
    for (const std::int64_t chunks : {1, 2, 3, 6}) {
      add(AutoFamily::kPanel, [&](AutoKnobs& knobs) {
        knobs.expand_tile = lora_bench::tile_name(tile);
        knobs.chunks = chunks;
      });
    }
  }
  int taken = 0;
  for (const std::int64_t tokens : {7, 40, 300}) {
    for (const std::int64_t rank : {16, 64, 192}) {
      lora_bench::Case spec = workload_case(tokens, 5);
      spec.dtype = Dtype::kBf16;
      spec.layer.in_features = spec.layer.x_stride = 2056;
      spec.layer.widths = {520, 264};
      spec.layer.y_stride = 784;
      spec.adapters.rank.list = {rank, rank / 2};
      spec.adapters.max_rank = rank;
      const Problem plain = problem_of(spec);
      const auto tensors = lora_bench::draw_tensors(plain, lora_bench::Fill::kBounded, spec.seed);
      const auto expected = bits_of(plain, tensors);
      for (const Tuning& tuning : tunings) {
        Problem tuned = plain;
        tuned.tuning = tuning;
        CAPTURE(tokens);
        CAPTURE(rank);
        CAPTURE(lora_bench::tuning_text(tuning));
        if (!chosen->supports(tuned, facts).yes) {
          continue;
        }
        ++taken;
        CHECK(bits_of(tuned, tensors) == expected);
        if (taken % 16 == 0) {
          CHECK(verify(tuned, *chosen, *memory, {.relations = true}).status == Status::kPassed);
        }
      }
    }
  }
  CHECK(taken > 400);
}

// K that ends in the middle of a stage, of a chain and before chains begin; rings that go around
// and rings that are not filled; tiles that no row or lane fills; more clusters than run at once.
TEST_CASE("auto: joined and grouped tiles are the same bits, wherever K, rows and lanes end") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  const auto chosen = lora_bench::make_auto_backend();
  const lora_bench::DeviceFacts facts = lora_bench::gpu_facts();
  LORA_BENCH_NEED(facts.compute_capability < 90 ? "joined tiles need a GPU of 9.0 or later" : "")
  Proved proved;
  for (const std::int64_t in_features : {40, 544, 2056, 4096, 9008, 14336}) {
    for (const std::int64_t rank : {7, 100}) {
      for (const std::int64_t tokens : {1, 33, 300}) {
        lora_bench::Case spec = workload_case(tokens, 3);
        spec.dtype = tokens % 2 == 0 ? Dtype::kBf16 : Dtype::kFp16;
        spec.layer.in_features = in_features;
        spec.layer.x_stride = in_features + 8;
        spec.layer.widths = {264, 0, 128};
        spec.layer.y_stride = 392;
        spec.adapters.rank.list = {rank, 1 + rank / 2};
        spec.adapters.max_rank = (rank + 7) / 8 * 8;
        spec.no_adapter = 0.2;
        Problem problem = problem_of(spec);
        const auto tensors =
            lora_bench::draw_tensors(problem, lora_bench::Fill::kBounded, spec.seed);
        const auto bits = [&]() {
          return lora_bench::test::bits_of_launch(*memory, *chosen, problem, tensors);
        };
        problem.tuning =
            tuning_of({.family = AutoFamily::kPanel, .shrink_tile = "32x32", .split = 8});
        const auto expected = bits();
        for (const auto& tile : lora_bench::kernels::kPanelShrinkTiles) {
          if (!tile.joined && !tile.grouped) {
            continue;
          }
          problem.tuning =
              tuning_of({.family = AutoFamily::kPanel, .shrink_tile = lora_bench::tile_name(tile)});
          CAPTURE(in_features);
          CAPTURE(rank);
          CAPTURE(tokens);
          CAPTURE(lora_bench::tuning_text(problem.tuning));
          REQUIRE(chosen->supports(problem, facts).yes);
          CHECK(bits() == expected);
          if (tokens == 33 && in_features < 9000) {
            const auto verdict = verify(problem, *chosen, *memory, {.relations = true});
            CAPTURE(verdict.message);
            lora_bench::test::check_proved(proved, problem, verdict);
          }
        }
      }
    }
  }
  check_enough(proved);
}

TEST_CASE("auto: every family leaves the same bits with weights of eight bits, and is proved") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  const auto chosen = lora_bench::make_auto_backend();
  const lora_bench::DeviceFacts facts = lora_bench::gpu_facts();
  LORA_BENCH_NEED(facts.compute_capability < 90 ? "eight bits need a GPU of 9.0 or later" : "")
  std::vector<AutoKnobs> families{{.family = AutoFamily::kResident}};
  for (const auto& tile : lora_bench::kernels::kPanelShrinkTiles) {
    if (eight_bits_take(tile)) {
      families.push_back(
          {.family = AutoFamily::kPanel, .shrink_tile = lora_bench::tile_name(tile)});
    }
  }
  Proved proved;
  int taken = 0;
  for (const std::int64_t in_features : {528, 4096, 14336}) {
    for (const std::int64_t rank : {8, 40, 100}) {
      for (const std::int64_t tokens : {1, 33, 300}) {
        lora_bench::Case spec = workload_case(tokens, 3);
        spec.dtype = tokens == 33 ? Dtype::kFp16 : Dtype::kBf16;
        spec.weights.dtype = rank == 40 ? Dtype::kE5m2 : Dtype::kE4m3;
        spec.weights.scale =
            rank == 8 ? lora_bench::WeightsScale::kTensor : lora_bench::WeightsScale::kChannel;
        spec.layer.in_features = in_features;
        spec.layer.x_stride = in_features + 8;
        spec.layer.widths = {264, 0, 128};
        spec.layer.y_stride = 392;
        spec.adapters.rank.list = {rank, 1 + rank / 2};
        spec.adapters.max_rank = (rank + 7) / 8 * 8;
        spec.no_adapter = 0.2;
        Problem problem = problem_of(spec);
        const auto tensors =
            lora_bench::draw_tensors(problem, lora_bench::Fill::kBounded, spec.seed);
        const auto bits = [&]() {
          return lora_bench::test::bits_of_launch(*memory, *chosen, problem, tensors);
        };
        problem.tuning = tuning_of({.family = AutoFamily::kClustered});
        const auto expected = bits();
        for (const AutoKnobs& knobs : families) {
          problem.tuning = tuning_of(knobs);
          CAPTURE(in_features);
          CAPTURE(rank);
          CAPTURE(tokens);
          CAPTURE(lora_bench::tuning_text(problem.tuning));
          if (chosen->supports(problem, facts).yes) {
            ++taken;
            CHECK(bits() == expected);
            const auto verdict = verify(problem, *chosen, *memory, {.relations = false});
            CAPTURE(verdict.message);
            lora_bench::test::check_proved(proved, problem, verdict);
          }
        }
      }
    }
  }
  CHECK(taken >= 7 * 27);  // all tiles of panel
  check_enough(proved);
}
