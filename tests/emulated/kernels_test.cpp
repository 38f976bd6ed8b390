#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <tuple>
#include <vector>

#include "device/facts.h"
#include "device/memory.h"
#include "ops/auto_tuning.h"
#include "ops/backends.h"
#include "run/select.h"
#include "support/proved.h"
#include "support/stage_bits.h"
#include "support/workload_case.h"
#include "verify/mutant_hunt.h"
#include "verify/random_case.h"
#include "verify/staging.h"
#include "verify/verify.h"
#include "workload/semantics.h"

using lora_bench::AutoFamily;
using lora_bench::AutoKnobs;
using lora_bench::Backend;
using lora_bench::Dtype;
using lora_bench::Memory;
using lora_bench::Op;
using lora_bench::Problem;
using lora_bench::tuning_of;
using lora_bench::test::Proved;

namespace {

Memory& device_memory() {
  static const std::unique_ptr<Memory> memory = lora_bench::make_device_memory();
  return *memory;
}

// Exact, bounded and memory: launches by the thousand, as relations take them, are for a GPU.
void check_proved(const Backend& backend, const Problem& problem, Proved& proved) {
  const lora_bench::Verdict verdict =
      verify(problem, backend, device_memory(), {.relations = false});
  CAPTURE(backend.name());
  CAPTURE(verdict.message);
  lora_bench::test::check_proved(proved, problem, verdict);
}

bool takes(const Backend& backend, const Problem& problem) {
  return backend.supports(problem, lora_bench::gpu_facts()).yes;
}

std::vector<std::byte> bits_of(const Backend& backend, const Problem& problem,
                               const lora_bench::Tensors& tensors) {
  return lora_bench::test::bits_of_launch(device_memory(), backend, problem, tensors);
}

// Rows of x, widths and a rank of whole vectors, so that every family takes it.
lora_bench::Case even_case(std::int64_t tokens, std::int64_t rank, std::int64_t in_features) {
  lora_bench::Case spec = workload_case(tokens, 3);
  spec.dtype = Dtype::kBf16;
  spec.layer.in_features = in_features;
  spec.layer.x_stride = in_features + 8;
  spec.layer.widths = {136, 0, 72};
  spec.layer.y_stride = 216;
  spec.adapters.rank.list = {rank, 1 + rank / 2};
  spec.adapters.max_rank = (rank + 7) / 8 * 8;
  spec.no_adapter = 0.2;
  return spec;
}

void add_panel_tiles(std::vector<AutoKnobs>& tunings) {
  for (const auto& tile : lora_bench::kernels::kPanelShrinkTiles) {
    tunings.push_back({.family = AutoFamily::kPanel, .shrink_tile = lora_bench::tile_name(tile)});
  }
  for (const auto& tile : lora_bench::kernels::kPanelExpandTiles) {
    tunings.push_back({.family = AutoFamily::kPanel, .expand_tile = lora_bench::tile_name(tile)});
  }
}

// Of all tunings that the backend takes, and how many these are.
int check_same_bits(const Backend& chosen, const Problem& plain,
                    const std::vector<AutoKnobs>& tunings) {
  const auto tensors = lora_bench::draw_tensors(plain, lora_bench::Fill::kBounded, 7);
  const auto expected = bits_of(chosen, plain, tensors);
  int taken = 0;
  for (const AutoKnobs& knobs : tunings) {
    Problem tuned = plain;
    tuned.tuning = tuning_of(knobs);
    CAPTURE(lora_bench::tuning_text(tuned.tuning));
    if (takes(chosen, tuned)) {
      ++taken;
      CHECK(bits_of(chosen, tuned, tensors) == expected);
    }
  }
  return taken;
}

// Each row has a factor, and where they share x, three rows that lie apart read one row of it.
void route_by_hand(bool shares, Problem& problem) {
  lora_bench::Route& route = problem.route;
  route.choices = 3;
  route.x_rows = (problem.tokens + 2) / 3;
  for (std::int64_t row = 0; row < problem.tokens; ++row) {
    route.factor_of_row.push_back(0.3F + 0.07F * static_cast<float>(row % 11));
    if (shares) {
      route.token_of_row.push_back(static_cast<std::int32_t>(row % route.x_rows));
    }
  }
}

}  // namespace

TEST_CASE("kernels of every family are right on small random cases") {
  Proved proved;
  for (const char* name :
       {"naive", "bgmv", "grouped", "grouped-ordered", "chunked", "panel", "auto"}) {
    const auto selected = lora_bench::select_backend(name);
    const Backend& backend = *selected.backend;
    int taken = 0;
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      const Problem problem = problem_of(random_case(seed));
      CAPTURE(seed);
      if (takes(backend, problem)) {
        ++taken;
        check_proved(backend, problem, proved);
      }
    }
    CAPTURE(name);
    CHECK(taken > 8);
  }
  check_enough(proved);
}

TEST_CASE("auto is right for every rank class, with few rows an adapter and many") {
  Proved proved;
  const std::unique_ptr<Backend> chosen = lora_bench::make_auto_backend();
  for (const std::int64_t rank : {1, 8, 12, 24, 64, 100, 136, 256}) {
    for (const std::int64_t tokens : {1, 9, 70}) {
      lora_bench::Case spec = even_case(tokens, rank, 520);
      spec.dtype = tokens == 9 ? Dtype::kFp16 : Dtype::kBf16;
      spec.intermediate = rank == 24 ? spec.dtype : Dtype::kFp32;
      CAPTURE(rank);
      CAPTURE(tokens);
      check_proved(*chosen, problem_of(spec), proved);
    }
  }
  check_enough(proved);
}

TEST_CASE("auto is right where one slice has eight lanes or less") {
  Proved proved;
  const std::unique_ptr<Backend> chosen = lora_bench::make_auto_backend();
  for (const std::int64_t rank : {3, 8}) {
    for (const std::int64_t in_features : {72, 2120}) {
      lora_bench::Case spec = even_case(5, rank, in_features);
      spec.layer.widths = {136};
      spec.layer.y_stride = 144;
      CAPTURE(rank);
      CAPTURE(in_features);
      check_proved(*chosen, problem_of(spec), proved);
    }
  }
  check_enough(proved);
}

TEST_CASE("rows that no adapter acts on are zeroed by every family, where that is asked") {
  Proved proved;
  for (const char* name :
       {"naive", "bgmv", "grouped", "grouped-ordered", "chunked", "panel", "auto"}) {
    const auto selected = lora_bench::select_backend(name);
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
      for (const double without : {0.4, 1.0}) {
        for (const std::int64_t before : {0, 3}) {
          lora_bench::Case spec = even_case(21, 8, 136);
          spec.dtype = dtype;
          spec.adapters.rank.list = {8, 0, 5};
          spec.add_inputs = false;
          spec.idle_rows = lora_bench::IdleRows::kZeroed;
          spec.no_adapter = without;
          spec.layer.offset_start = before;
          spec.layer.y_stride = columns_of(spec.layer) + before;
          CAPTURE(name);
          CAPTURE(without);
          CAPTURE(before);
          const Problem problem = problem_of(spec);
          REQUIRE(takes(*selected.backend, problem));
          check_proved(*selected.backend, problem, proved);
        }
      }
    }
  }
  check_enough(proved);
}

TEST_CASE("an h that shrink adds to is for naive, and the fast families say so") {
  lora_bench::Case spec = even_case(12, 8, 136);
  spec.op = Op::kShrink;
  spec.shrink_adds = true;
  Proved proved;
  for (const Dtype intermediate : {Dtype::kFp32, Dtype::kBf16}) {
    spec.intermediate = intermediate;
    const Problem problem = problem_of(spec);
    check_proved(*lora_bench::select_backend("naive").backend, problem, proved);
    for (const char* name : {"bgmv", "grouped", "chunked", "panel", "auto"}) {
      CAPTURE(name);
      const auto selected = lora_bench::select_backend(name);
      CHECK(selected.backend->supports(problem, lora_bench::gpu_facts()).why_not ==
            "shrink_adds: true: it overwrites h");
    }
  }
  check_enough(proved);
}

TEST_CASE("naive takes what only it takes: other dtypes, own inputs, a bias of rank 0") {
  const auto naive = lora_bench::select_backend("naive");
  Proved proved;
  const auto check = [&](const lora_bench::Case& spec) {
    const Problem problem = problem_of(spec);
    CAPTURE(lora_bench::semantics_text(problem));
    REQUIRE(takes(*naive.backend, problem));
    check_proved(*naive.backend, problem, proved);
    CHECK_FALSE(takes(*lora_bench::select_backend("auto").backend, problem));
  };
  for (const Dtype rows : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    for (const Dtype weights : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
      for (const Dtype intermediate : {Dtype::kFp32, rows}) {
        lora_bench::Case spec = even_case(9, 8, 72);
        spec.dtype = rows;
        spec.intermediate = intermediate;
        spec.adapters.dtype = weights;
        spec.adapters.bias = true;
        spec.adapters.rank.list = {8, 0, 5};
        spec.adapters.rank0_bias = rows != weights && intermediate == Dtype::kFp32;
        spec.inputs = rows == weights ? lora_bench::Inputs::kPerSlice : spec.inputs;
        CAPTURE(name(rows));
        CAPTURE(name(weights));
        check(spec);
      }
    }
  }
  check_enough(proved);
}

TEST_CASE("naive follows operands that lie otherwise than apart and without gaps") {
  const auto naive = lora_bench::select_backend("naive");
  Proved proved;
  for (const lora_bench::Placing placing :
       {lora_bench::Placing::kSeparate, lora_bench::Placing::kStacked,
        lora_bench::Placing::kPacked}) {
    for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16}) {
      lora_bench::Case spec = even_case(9, 8, 72);
      spec.dtype = dtype;
      spec.adapters.placing = placing;
      spec.adapters.rank.list = {8, 0, 5};
      spec.adapters.bias = true;
      spec.adapters.a_stride = spec.layer.in_features + 3;
      spec.adapters.b_stride = spec.adapters.max_rank + 1;
      const bool apart = placing == lora_bench::Placing::kSeparate;
      spec.layer.h_stride =
          (apart ? 1 : std::ssize(spec.layer.widths)) * spec.adapters.max_rank + 2;
      spec.layer.x_column_stride = 2;
      spec.layer.x_stride = extent_of_x(spec.layer) + 1;
      const Problem problem = problem_of(spec);
      REQUIRE(takes(*naive.backend, problem));
      check_proved(*naive.backend, problem, proved);
      CHECK_FALSE(takes(*lora_bench::select_backend("auto").backend, problem));
    }
  }
  check_enough(proved);
}

TEST_CASE("a bias of some slices is added by every family, and to no other slice") {
  Proved proved;
  for (const char* name :
       {"naive", "bgmv", "grouped", "grouped-ordered", "chunked", "panel", "auto"}) {
    const auto selected = lora_bench::select_backend(name);
    for (const std::int64_t tokens : {4, 50}) {
      lora_bench::Case spec = even_case(tokens, 16, 136);
      spec.adapters.bias = true;
      spec.adapters.bias_slices = {2};
      CAPTURE(name);
      CAPTURE(tokens);
      const Problem problem = problem_of(spec);
      REQUIRE(takes(*selected.backend, problem));
      check_proved(*selected.backend, problem, proved);
    }
  }
  check_enough(proved);
}

TEST_CASE("every family is right for nine, twelve and sixteen slices") {
  Proved proved;
  for (const char* name :
       {"naive", "bgmv", "grouped", "grouped-ordered", "chunked", "panel", "auto"}) {
    const auto selected = lora_bench::select_backend(name);
    for (const std::size_t slices : {9, 12, 16}) {
      for (const std::int64_t tokens : {3, 40}) {
        for (const std::int64_t odd : {0, 1}) {
          lora_bench::Case spec = even_case(tokens, 8 + odd, 136 + odd);
          spec.layer.widths.clear();
          for (std::size_t slice = 0; slice < slices; ++slice) {
            const auto turn = static_cast<std::int64_t>(slice);
            spec.layer.widths.push_back(turn == 4 ? 0 : 8 * (1 + turn % 5) + odd * turn);
          }
          spec.layer.x_stride = spec.layer.in_features;
          spec.layer.y_stride = columns_of(spec.layer);
          spec.adapters.max_rank = 8 + odd;
          spec.adapters.bias = tokens == 3;
          CAPTURE(slices);
          CAPTURE(tokens);
          CAPTURE(odd);
          const Problem problem = problem_of(spec);
          REQUIRE(takes(*selected.backend, problem));
          check_proved(*selected.backend, problem, proved);
        }
      }
    }
  }
  check_enough(proved);
}

TEST_CASE("every tile and cluster of auto leaves the same bits") {
  const std::unique_ptr<Backend> chosen = lora_bench::make_auto_backend();
  std::vector<AutoKnobs> tunings = {{.family = AutoFamily::kResident}};
  for (const std::int64_t cluster : {1, 3, 8, 16}) {
    tunings.push_back({.family = AutoFamily::kClustered, .cluster = cluster});
  }
  tunings.push_back({.family = AutoFamily::kClustered, .warps = 3});
  add_panel_tiles(tunings);
  int taken = 0;
  for (const std::int64_t rank : {16, 72}) {
    for (const std::int64_t tokens : {7, 40}) {
      lora_bench::Case spec = even_case(tokens, rank, 776);
      spec.intermediate = rank == 72 && tokens == 40 ? Dtype::kBf16 : Dtype::kFp32;
      const Problem plain = problem_of(spec);
      CAPTURE(rank);
      CAPTURE(tokens);
      taken += check_same_bits(*chosen, plain, tunings);
    }
  }
  CHECK(taken > 60);
}

TEST_CASE("every tile of expand adds its own bias and reads no lane above a rank") {
  Proved proved;
  const std::unique_ptr<Backend> chosen = lora_bench::make_auto_backend();
  for (const auto& tile : lora_bench::kernels::kPanelExpandTiles) {
    for (const auto& [op, add_inputs, dtype, intermediate] :
         {std::tuple(Op::kLinear, true, Dtype::kBf16, Dtype::kFp32),
          {Op::kLinear, false, Dtype::kBf16, Dtype::kFp32},
          {Op::kLinear, true, Dtype::kBf16, Dtype::kBf16},
          {Op::kLinear, true, Dtype::kFp16, Dtype::kFp32},
          {Op::kLinear, false, Dtype::kFp16, Dtype::kFp16},
          {Op::kExpand, true, Dtype::kBf16, Dtype::kBf16},
          {Op::kExpand, false, Dtype::kBf16, Dtype::kFp32},
          {Op::kExpand, false, Dtype::kFp16, Dtype::kFp16}}) {
      const std::int64_t lanes = 16 * tile.steps;
      lora_bench::Case spec = even_case(90, lanes - 5, 72);
      spec.layer.widths = {264, 0, 136, 72};
      spec.layer.y_stride = 480;
      spec.layer.offset_start = 8;
      spec.adapters.rank.list = {lanes - 5, 0, lanes / 4 + 3};
      spec.adapters.max_rank = lanes - 4;  // columns of B begin on 8 bytes
      spec.adapters.bias = true;
      spec.op = op;
      spec.dtype = dtype;
      spec.intermediate = intermediate;
      spec.add_inputs = add_inputs;
      spec.adapters.scale = {2.0, 1.0, 0.37};
      spec.scale_at = add_inputs && op == Op::kLinear ? lora_bench::ScaleAt::kShrink
                                                      : lora_bench::ScaleAt::kExpand;
      Problem problem = problem_of(spec);
      problem.tuning = tuning_of({.family = AutoFamily::kPanel,
                                  .expand_tile = lora_bench::tile_name(tile),
                                  .chunks = add_inputs ? 1 : 3});
      CAPTURE(lora_bench::tuning_text(problem.tuning));
      CAPTURE(name(op));
      CAPTURE(add_inputs);
      CAPTURE(name(dtype));
      CAPTURE(name(intermediate));
      REQUIRE(takes(*chosen, problem));
      check_proved(*chosen, problem, proved);
    }
  }
  check_enough(proved);
}

TEST_CASE("what is brought ahead goes round its ring, in shrink and in expand, and bits stay") {
  Proved proved;
  const std::unique_ptr<Backend> chosen = lora_bench::make_auto_backend();
  const auto check_bits = [&](const Problem& plain, const AutoKnobs& knobs) {
    Problem tuned = plain;
    tuned.tuning = tuning_of(knobs);
    CAPTURE(lora_bench::tuning_text(tuned.tuning));
    REQUIRE(takes(*chosen, tuned));
    const auto tensors = lora_bench::draw_tensors(plain, lora_bench::Fill::kBounded, 7);
    CHECK(bits_of(*chosen, tuned, tensors) == bits_of(*chosen, plain, tensors));
  };
  for (const auto& tile : lora_bench::kernels::kPanelExpandTiles) {
    lora_bench::Case spec = even_case(40, 16 * tile.steps, 72);
    spec.layer.widths = {1480};
    spec.layer.y_stride = 1480;
    for (const Dtype intermediate : {Dtype::kFp32, Dtype::kBf16}) {
      spec.intermediate = intermediate;
      const Problem wide = problem_of(spec);
      check_proved(*chosen, wide, proved);
      check_bits(
          wide,
          {.family = AutoFamily::kPanel, .expand_tile = lora_bench::tile_name(tile), .chunks = 1});
    }
  }
  for (const auto& tile : lora_bench::kernels::kPanelShrinkTiles) {
    constexpr std::int64_t kRounds = 3;
    const std::int64_t chain = kRounds * tile.stages * tile.depth - 32;
    check_bits(problem_of(even_case(20, 16, chain * lora_bench::kernels::kChains)),
               {.family = AutoFamily::kPanel, .shrink_tile = lora_bench::tile_name(tile)});
  }
  check_enough(proved);
}

TEST_CASE("h that is kept from one launch of a recording to the next is caught") {
  const lora_bench::HuntingGround ground({lora_bench::telling_cases().front()});
  const lora_bench::SelfTestRow kept = lora_bench::hunt("gpu-h-kept-in-recording", ground);
  CHECK(kept.caught);
  CHECK(kept.level == "relations: relation 'right behind another step of its stream'");
  CHECK(kept.hypothesis == "out-of-turn");
  CHECK_FALSE(lora_bench::hunt("gpu-none", ground).caught);
}

TEST_CASE("naive reads every number of eight bits as its format has it") {
  for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2}) {
    lora_bench::Case spec = workload_case(256, 256);
    spec.op = Op::kShrink;
    spec.layer.in_features = spec.layer.x_stride = 1;
    spec.layer.widths = {8};
    spec.adapters.rank.list = {1};
    spec.adapters.max_rank = 1;
    spec.skew.kind = lora_bench::Skew::kDistinct;
    spec.weights.dtype = dtype;
    spec.weights.scale = lora_bench::WeightsScale::kTensor;
    const Problem problem = problem_of(spec);
    lora_bench::Tensors tensors = draw_tensors(problem, lora_bench::Fill::kTiming, 1);
    tensors.scale.assign(256, 1.0F);
    for (std::int64_t code = 0; code < 256; ++code) {
      tensors.a[0].data[static_cast<std::size_t>(code)] = static_cast<std::byte>(code);
      store(Dtype::kFp32, tensors.a_scale[0].data.data(), code, 0.5F);
      store(spec.dtype, tensors.x.data.data(), code, 2.0F);
    }
    const auto selected = lora_bench::select_backend("naive");
    const std::vector<std::byte> h = bits_of(*selected.backend, problem, tensors);
    int wrong = 0;
    for (std::int64_t code = 0; code < 256; ++code) {
      const float got = load(Dtype::kFp32, h.data(), code);
      const float right = load(dtype, tensors.a[0].data.data(), code);
      wrong += got == right || (std::isnan(got) && std::isnan(right)) ? 0 : 1;
    }
    CAPTURE(name(dtype));
    CHECK(wrong == 0);
  }
}

TEST_CASE("naive is right with weights of eight bits and scales of every form") {
  Proved proved;
  const auto selected = lora_bench::select_backend("naive");
  for (const lora_bench::WeightsScale scale :
       {lora_bench::WeightsScale::kTensor, lora_bench::WeightsScale::kChannel,
        lora_bench::WeightsScale::kBlock}) {
    for (const Op op : {Op::kShrink, Op::kExpand, Op::kLinear}) {
      for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2}) {
        lora_bench::Case spec = even_case(7, 12, 72);
        spec.op = op;
        spec.dtype = dtype == Dtype::kE4m3 ? Dtype::kBf16 : Dtype::kFp16;
        spec.adapters.bias = op != Op::kShrink;
        spec.weights.dtype = dtype;
        spec.weights.scale = scale;
        if (scale == lora_bench::WeightsScale::kBlock) {
          spec.weights.block = {8, 32};
        }
        CAPTURE(name(scale));
        CAPTURE(name(op));
        const Problem problem = problem_of(spec);
        REQUIRE(takes(*selected.backend, problem));
        check_proved(*selected.backend, problem, proved);
      }
    }
  }
  check_enough(proved);
}

TEST_CASE("naive is right with an x or a given h of eight bits and scales of every form") {
  Proved proved;
  const auto selected = lora_bench::select_backend("naive");
  for (const auto scale :
       {lora_bench::ActivationsScale::kTensor, lora_bench::ActivationsScale::kToken,
        lora_bench::ActivationsScale::kBlock}) {
    for (const Op op : {Op::kShrink, Op::kLinear, Op::kExpand}) {
      for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2}) {
        lora_bench::Case spec = even_case(7, 12, 72);
        spec.op = op;
        spec.dtype = dtype == Dtype::kE4m3 ? Dtype::kBf16 : Dtype::kFp16;
        spec.intermediate = op == Op::kLinear ? spec.dtype : Dtype::kFp32;
        spec.inputs =
            op == Op::kShrink ? lora_bench::Inputs::kPerSlice : lora_bench::Inputs::kShared;
        spec.weights.dtype = Dtype::kE4m3;
        spec.weights.scale = lora_bench::WeightsScale::kChannel;
        spec.activations.dtype = dtype;
        spec.activations.scale = scale;
        const std::int64_t group = op == Op::kExpand ? 5 : 20;
        spec.activations.group = scale == lora_bench::ActivationsScale::kBlock ? group : 0;
        CAPTURE(name(scale));
        CAPTURE(name(op));
        const Problem problem = problem_of(spec);
        REQUIRE(takes(*selected.backend, problem));
        check_proved(*selected.backend, problem, proved);
      }
    }
  }
  check_enough(proved);
}

TEST_CASE("rows that share x and rows with factors are right in every family that takes them") {
  Proved proved;
  for (const char* name : {"naive", "panel", "auto"}) {
    const auto selected = lora_bench::select_backend(name);
    for (const std::int64_t rank : {8, 40, 100}) {
      for (const std::int64_t tokens : {3, 40, 90}) {
        for (const bool shares : {true, false}) {
          lora_bench::Case spec = even_case(tokens, rank, 520);
          spec.intermediate = rank == 40 ? Dtype::kBf16 : Dtype::kFp32;
          Problem problem = problem_of(spec);
          route_by_hand(shares, problem);
          CAPTURE(rank);
          CAPTURE(tokens);
          REQUIRE(takes(*selected.backend, problem));
          check_proved(*selected.backend, problem, proved);
        }
      }
    }
  }
  check_enough(proved);
}

TEST_CASE("every tile and cluster of auto leaves the same bits with shared x and factors") {
  const std::unique_ptr<Backend> chosen = lora_bench::make_auto_backend();
  std::vector<AutoKnobs> tunings = {{.family = AutoFamily::kResident},
                                    {.family = AutoFamily::kClustered, .cluster = 3},
                                    {.family = AutoFamily::kClustered, .cluster = 16}};
  add_panel_tiles(tunings);
  int taken = 0;
  for (const std::int64_t rank : {16, 72}) {
    for (const std::int64_t tokens : {7, 40}) {
      Problem plain = problem_of(even_case(tokens, rank, 776));
      route_by_hand(true, plain);
      CAPTURE(rank);
      CAPTURE(tokens);
      taken += check_same_bits(*chosen, plain, tunings);
    }
  }
  CHECK(taken > 40);
}
