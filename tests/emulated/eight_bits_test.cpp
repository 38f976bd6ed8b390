#include <doctest/doctest.h>

#include <algorithm>
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
#include "verify/random_case.h"
#include "verify/staging.h"
#include "verify/verify.h"

using lora_bench::AutoFamily;
using lora_bench::AutoKnobs;
using lora_bench::Backend;
using lora_bench::Dtype;
using lora_bench::Memory;
using lora_bench::Problem;
using lora_bench::tuning_of;
using lora_bench::WeightsScale;
using lora_bench::test::Proved;

namespace {

Memory& eight_bits_memory() {
  static const std::unique_ptr<Memory> memory = lora_bench::make_device_memory();
  return *memory;
}

const Backend& eight_bits_backend() {
  static const std::unique_ptr<Backend> backend = lora_bench::make_auto_backend();
  return *backend;
}

std::string why_not(const Problem& problem) {
  return eight_bits_backend().supports(problem, lora_bench::gpu_facts()).why_not;
}

void check_proved_eight(const Problem& problem, Proved& proved) {
  const lora_bench::Verdict verdict =
      verify(problem, eight_bits_backend(), eight_bits_memory(), {.relations = false});
  CAPTURE(verdict.message);
  lora_bench::test::check_proved(proved, problem, verdict);
}

// With both families of clusters; whether `resident` took it.
bool check_families_of_eight(const Problem& problem, Proved& proved) {
  bool resident = false;
  for (const AutoFamily family : {AutoFamily::kClustered, AutoFamily::kResident}) {
    Problem tuned = problem;
    tuned.tuning = tuning_of({.family = family});
    CAPTURE(name(family));
    if (family == AutoFamily::kClustered) {
      REQUIRE(why_not(tuned).empty());
    } else {
      resident = why_not(tuned).empty();
    }
    if (why_not(tuned).empty()) {
      check_proved_eight(tuned, proved);
    }
  }
  return resident;
}

std::vector<std::byte> bits_of_eight(const Problem& problem, const lora_bench::Tensors& tensors) {
  return lora_bench::test::bits_of_launch(eight_bits_memory(), eight_bits_backend(), problem,
                                          tensors);
}

// Adapters of two ranks, one of them none, and rows without an adapter.
lora_bench::Case eight_bits_case(std::int64_t tokens, std::int64_t rank, std::int64_t in_features) {
  lora_bench::Case spec = workload_case(tokens, 3);
  spec.dtype = Dtype::kBf16;
  spec.weights.dtype = Dtype::kE4m3;
  spec.weights.scale = WeightsScale::kChannel;
  spec.layer.in_features = in_features;
  spec.layer.x_stride = in_features + 8;
  spec.layer.widths = {136, 0, 72};
  spec.layer.y_stride = 216;
  spec.adapters.rank.list = {rank, 1 + rank / 2};
  spec.adapters.max_rank = (rank + 3) / 4 * 4;
  spec.no_adapter = 0.2;
  return spec;
}

// What clusters ask of sizes and strides; all else stays as it was drawn.
void copy_in_bulk(lora_bench::Case& spec) {
  const auto whole = [](std::int64_t& size, std::int64_t of) { size = (size + of - 1) / of * of; };
  whole(spec.layer.in_features, 16);
  whole(spec.layer.x_stride, 8);
  whole(spec.layer.offset_start, 8);
  whole(spec.layer.y_stride, 8);
  for (std::int64_t& width : spec.layer.widths) {
    whole(width, 8);
  }
  whole(spec.adapters.max_rank, 4);
  spec.adapters.a_stride = spec.adapters.b_stride = spec.layer.h_stride = 0;
  spec.adapters.placing = lora_bench::Placing::kSeparate;
  spec.adapters.rank0_bias = false;
  spec.layer.x_column_stride = 1;
  spec.inputs = lora_bench::Inputs::kShared;
  spec.plan.form = lora_bench::PlanForm::kSorted;
  if (spec.dtype == Dtype::kFp32) {
    spec.dtype = Dtype::kBf16;
    spec.intermediate = Dtype::kFp32;
  }
  if (spec.weights.scale == WeightsScale::kBlock) {
    spec.weights.scale = WeightsScale::kChannel;
  }
}

}  // namespace

TEST_CASE("naive quantises h between the sums as the case says, auto says that it does not") {
  const auto naive = lora_bench::select_backend("naive");
  Proved proved;
  for (const Dtype to : {Dtype::kE4m3, Dtype::kE5m2}) {
    for (const std::int64_t group : {0, 3, 64}) {
      for (const bool other_rule : {false, true}) {
        lora_bench::Case spec = eight_bits_case(9, 40, 80);
        spec.activations.dtype = Dtype::kE4m3;
        spec.activations.scale = group == 0 ? lora_bench::ActivationsScale::kToken
                                            : lora_bench::ActivationsScale::kBlock;
        spec.activations.group = group;
        spec.intermediate = to;
        spec.quantiser.power_of_two = other_rule;
        spec.quantiser.convert =
            other_rule ? lora_bench::Convert::kMultiply : lora_bench::Convert::kDivide;
        spec.adapters.placing =
            other_rule ? lora_bench::Placing::kPacked : lora_bench::Placing::kSeparate;
        const Problem problem = lora_bench::make_problem(spec);
        REQUIRE(problem.h_quantiser);
        CHECK(naive.backend->numerics(problem).intermediate == to);
        const lora_bench::Verdict verdict =
            verify(problem, *naive.backend, eight_bits_memory(), {.relations = false});
        CAPTURE(verdict.message);
        lora_bench::test::check_proved(proved, problem, verdict);
        CHECK_FALSE(why_not(problem).empty());
      }
    }
  }
}

TEST_CASE("auto is right with weights of eight bits of every rank class, few rows and many") {
  Proved proved;
  int resident = 0;
  for (const std::int64_t rank : {1, 8, 12, 24, 64, 100, 136}) {
    for (const std::int64_t tokens : {1, 9, 40}) {
      lora_bench::Case spec = eight_bits_case(tokens, rank, rank == 12 ? 2096 : 528);
      spec.dtype = tokens == 9 ? Dtype::kFp16 : Dtype::kBf16;
      spec.intermediate = rank == 24 || rank == 100 ? spec.dtype : Dtype::kFp32;
      spec.weights.dtype = (rank + tokens) % 2 == 0 ? Dtype::kE4m3 : Dtype::kE5m2;
      spec.weights.scale = rank % 3 == 0 ? WeightsScale::kTensor : WeightsScale::kChannel;
      CAPTURE(rank);
      CAPTURE(tokens);
      resident += check_families_of_eight(problem_of(spec), proved) ? 1 : 0;
    }
  }
  CHECK(resident > 15);
  check_enough(proved);
}

TEST_CASE("auto does with weights of eight bits what is asked beside them") {
  Proved proved;
  for (const Dtype weights : {Dtype::kE4m3, Dtype::kE5m2}) {
    for (const WeightsScale scale : {WeightsScale::kTensor, WeightsScale::kChannel}) {
      for (const auto& [dtype, intermediate, add_inputs] :
           {std::tuple(Dtype::kBf16, Dtype::kFp32, true),
            {Dtype::kBf16, Dtype::kBf16, false},
            {Dtype::kFp16, Dtype::kFp32, false},
            {Dtype::kFp16, Dtype::kFp16, true}}) {
        lora_bench::Case spec = eight_bits_case(21, 13, 144);
        spec.dtype = dtype;
        spec.intermediate = intermediate;
        spec.weights.dtype = weights;
        spec.weights.scale = scale;
        spec.adapters.rank.list = {13, 0, 5};
        spec.adapters.bias = true;
        spec.adapters.bias_slices = {2};
        spec.adapters.scale = {2.0, 1.0, 0.37};
        spec.scale_at = add_inputs ? lora_bench::ScaleAt::kShrink : lora_bench::ScaleAt::kExpand;
        spec.add_inputs = add_inputs;
        spec.idle_rows = add_inputs ? lora_bench::IdleRows::kKept : lora_bench::IdleRows::kZeroed;
        spec.layer.offset_start = 8;
        spec.layer.y_stride = 224;
        CAPTURE(name(weights));
        CAPTURE(name(scale));
        CAPTURE(name(dtype));
        CAPTURE(name(intermediate));
        CHECK(check_families_of_eight(problem_of(spec), proved));
      }
    }
  }
  check_enough(proved);
}

TEST_CASE("auto reads every number of eight bits as its format has it, in A and in B") {
  for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2}) {
    for (const Dtype rows : {Dtype::kBf16, Dtype::kFp16}) {
      for (const bool in_a : {true, false}) {
        lora_bench::Case spec = eight_bits_case(256, 1, 16);
        spec.dtype = rows;
        spec.adapters.slots = 256;
        spec.adapters.rank.list = {1};
        spec.layer.widths = {8};
        spec.layer.y_stride = 8;
        spec.no_adapter = 0;
        spec.add_inputs = false;
        spec.skew.kind = lora_bench::Skew::kDistinct;
        spec.weights.dtype = dtype;
        const Problem problem = problem_of(spec);
        lora_bench::Tensors tensors = draw_tensors(problem, lora_bench::Fill::kTiming, 1);
        tensors.scale.assign(256, 1.0F);
        const auto one = static_cast<std::byte>(dtype == Dtype::kE4m3 ? 0x38 : 0x3C);
        auto& a = tensors.a[0].data;
        auto& b = tensors.b[0].data;
        for (std::size_t i = 0; i < a.size(); ++i) {
          a[i] = std::byte{0};
        }
        for (std::int64_t code = 0; code < 256; ++code) {
          const std::int64_t slot = problem.plan.adapter_of_token[static_cast<std::size_t>(code)];
          const std::byte number{static_cast<unsigned char>(slot)};
          a[static_cast<std::size_t>(problem.a_at(0, slot, 1, 0) + 5)] = in_a ? number : one;
          for (std::int64_t column = 0; column < 8; ++column) {
            b[static_cast<std::size_t>(problem.b_at(0, slot, column))] = in_a ? one : number;
            store(Dtype::kFp32, tensors.b_scale[0].data.data(), slot * 8 + column, 0.5F);
          }
          for (std::int64_t lane = 0; lane < problem.max_rank; ++lane) {
            store(Dtype::kFp32, tensors.a_scale[0].data.data(), slot * problem.max_rank + lane, 4);
          }
          for (std::int64_t k = 0; k < 16; ++k) {
            store(rows, tensors.x.data.data(), problem.x_at(0, code, k), k == 5 ? 0.5F : 0.0F);
          }
        }
        const std::vector<std::byte> y = bits_of_eight(problem, tensors);
        int wrong = 0;
        for (std::int64_t token = 0; token < 256; ++token) {
          const auto code = static_cast<unsigned char>(
              problem.plan.adapter_of_token[static_cast<std::size_t>(token)]);
          const std::byte number{code};
          const float right = load(dtype, &number, 0);
          const float got = load(rows, y.data(), token * 8 + 3);
          // Infinity times the lower parts of h, which are 0, is none.
          wrong += got == right || (!std::isfinite(right) && !std::isfinite(got)) ? 0 : 1;
        }
        CAPTURE(name(dtype));
        CAPTURE(name(rows));
        CAPTURE(in_a);
        CHECK(wrong == 0);
      }
    }
  }
}

// Of A each number in another lane or of another row of x, of B each in another column; numbers
// that are not finite by themselves, so that they are in the sums of no other.
TEST_CASE("resident reads every number of eight bits as its format has it, in A and in B") {
  for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2}) {
    for (const Dtype rows : {Dtype::kBf16, Dtype::kFp16}) {
      lora_bench::Case spec = eight_bits_case(16, 16, 256);
      spec.dtype = rows;
      spec.adapters.slots = 1;
      spec.adapters.rank.list = {16};
      spec.layer.widths = {256};
      spec.layer.y_stride = 256;
      spec.no_adapter = 0;
      spec.add_inputs = false;
      spec.weights.dtype = dtype;
      spec.tuning = tuning_of({.family = AutoFamily::kResident});
      const Problem problem = problem_of(spec);
      REQUIRE(why_not(problem).empty());
      const auto one = static_cast<std::byte>(dtype == Dtype::kE4m3 ? 0x38 : 0x3C);
      const auto number_of = [&](int code) {
        const std::byte number{static_cast<unsigned char>(code)};
        return load(dtype, &number, 0);
      };
      const auto zeros = [&]() {
        lora_bench::Tensors tensors = draw_tensors(problem, lora_bench::Fill::kTiming, 1);
        tensors.scale.assign(1, 1.0F);
        for (lora_bench::HostTensor* const of :
             {&tensors.x, &tensors.a[0], &tensors.b[0], &tensors.a_scale[0], &tensors.b_scale[0]}) {
          std::fill(of->data.begin(), of->data.end(), std::byte{0});
        }
        for (std::int64_t lane = 0; lane < 16; ++lane) {
          store(Dtype::kFp32, tensors.a_scale[0].data.data(), lane, 4);
        }
        for (std::int64_t column = 0; column < 256; ++column) {
          store(Dtype::kFp32, tensors.b_scale[0].data.data(), column, 0.25F);
        }
        return tensors;
      };
      const auto put = [](lora_bench::HostTensor& to, std::int64_t at, std::byte number) {
        to.data[static_cast<std::size_t>(at)] = number;
      };
      int wrong = 0;
      const auto compare = [&](float got, int code) {
        const float right = number_of(code);
        wrong += got == right || (!std::isfinite(right) && !std::isfinite(got)) ? 0 : 1;
      };
      lora_bench::Tensors of_a = zeros();
      for (std::int64_t row = 0; row < 16; ++row) {
        store(rows, of_a.x.data.data(), problem.x_at(0, row, 16 * row + 5), 1);
        put(of_a.b[0], problem.b_at(0, 0, row) + row, one);
        for (int lane = 0; lane < 16; ++lane) {
          const auto code = static_cast<int>(16 * row + lane);
          if (std::isfinite(number_of(code))) {
            put(of_a.a[0], problem.a_at(0, 0, 16, lane) + 16 * row + 5,
                std::byte{static_cast<unsigned char>(code)});
          }
        }
      }
      const std::vector<std::byte> y = bits_of_eight(problem, of_a);
      lora_bench::Tensors of_b = zeros();
      for (std::int64_t row = 0; row < 16; ++row) {
        store(rows, of_b.x.data.data(), problem.x_at(0, row, 17), 1);
      }
      put(of_b.a[0], problem.a_at(0, 0, 16, 3) + 17, one);
      for (int code = 0; code < 256; ++code) {
        put(of_b.b[0], problem.b_at(0, 0, code) + 3, std::byte{static_cast<unsigned char>(code)});
      }
      const std::vector<std::byte> y_of_b = bits_of_eight(problem, of_b);
      for (int code = 0; code < 256; ++code) {
        compare(load(rows, y_of_b.data(), 7 * 256 + code), code);
        if (std::isfinite(number_of(code))) {
          compare(load(rows, y.data(), code / 16 * 256 + code % 16), code);
          continue;
        }
        put(of_b.a[0], problem.a_at(0, 0, 16, 3) + 17, std::byte{static_cast<unsigned char>(code)});
        compare(load(rows, bits_of_eight(problem, of_b).data(), 7 * 256 + 1), code);
      }
      CAPTURE(name(dtype));
      CAPTURE(name(rows));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("every cluster of auto leaves the same bits with weights of eight bits") {
  int taken = 0;
  int resident = 0;
  for (const std::int64_t rank : {16, 72}) {
    for (const std::int64_t tokens : {7, 40}) {
      lora_bench::Case spec = eight_bits_case(tokens, rank, 784);
      spec.weights.scale = tokens == 7 ? WeightsScale::kTensor : WeightsScale::kChannel;
      const Problem plain = problem_of(spec);
      const auto tensors = lora_bench::draw_tensors(plain, lora_bench::Fill::kBounded, 7);
      const auto expected = bits_of_eight(plain, tensors);
      for (const AutoKnobs& knobs : {AutoKnobs{.family = AutoFamily::kClustered, .cluster = 1},
                                     {.family = AutoFamily::kClustered, .cluster = 3},
                                     {.family = AutoFamily::kClustered, .cluster = 16},
                                     {.family = AutoFamily::kClustered, .groups = 3},
                                     {.family = AutoFamily::kResident},
                                     {.family = AutoFamily::kClustered, .warps = 3, .slots = 2}}) {
        Problem tuned = plain;
        tuned.tuning = tuning_of(knobs);
        CAPTURE(rank);
        CAPTURE(tokens);
        CAPTURE(lora_bench::tuning_text(tuned.tuning));
        if (why_not(tuned).empty()) {
          ++taken;
          resident += knobs.family == AutoFamily::kResident ? 1 : 0;
          CHECK(bits_of_eight(tuned, tensors) == expected);
        }
      }
    }
  }
  CHECK(taken > 16);
  CHECK(resident == 4);
}

TEST_CASE("a launch of auto for any batch takes weights of eight bits") {
  Proved proved;
  for (const std::int64_t slots : {4, 64}) {  // of which few are for `resident`
    for (const std::int64_t tokens : {1, 24}) {
      lora_bench::Case spec = eight_bits_case(tokens, 16, 528);
      spec.adapters.slots = slots;
      spec.plan.max_slots = slots;
      CAPTURE(slots);
      CAPTURE(tokens);
      CHECK(check_families_of_eight(problem_of(spec), proved) == (slots == 4 || tokens == 1));
    }
  }
  check_enough(proved);
}

TEST_CASE(
    "auto is right on random cases with weights of eight bits, which it takes or says why not") {
  Proved proved;
  int taken = 0;
  constexpr int kCases = 16;
  constexpr std::int64_t kSmall = 1 << 20;  // products of shrink and of expand
  for (std::uint64_t seed = 0; taken < kCases && seed < 4000; ++seed) {
    lora_bench::Case spec = lora_bench::random_case(41, seed);
    if (!spec.weights.dtype || spec.op != lora_bench::Op::kLinear) {
      continue;
    }
    copy_in_bulk(spec);
    const Problem problem = problem_of(spec);
    CAPTURE(seed);
    const std::int64_t numbers = problem.slices() * problem.in_features + columns_of(spec.layer);
    if (problem.tokens * problem.max_rank * numbers < kSmall && why_not(problem).empty()) {
      ++taken;
      check_proved_eight(problem, proved);
    }
  }
  CHECK(taken == kCases);
  check_enough(proved);
}

TEST_CASE("panel is right with weights of eight bits, in every tile that takes them") {
  Proved proved;
  int taken = 0;
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
    for (const char* shrink : {"", "32x64-joined", "64x48-joined", "32x32-joined", "64x48-grouped",
                               "128x96-grouped", "128x128-grouped", "128x192-grouped"}) {
      for (const std::int64_t rank : {9, 40, 100}) {
        lora_bench::Case spec = eight_bits_case(70, rank, 1552);
        spec.dtype = dtype;
        spec.weights.dtype = rank == 40 ? Dtype::kE5m2 : Dtype::kE4m3;
        spec.weights.scale = rank == 9 ? WeightsScale::kTensor : WeightsScale::kChannel;
        spec.adapters.max_rank = (rank + 7) / 8 * 8;
        spec.adapters.bias = rank == 40;
        spec.tuning = tuning_of({.family = AutoFamily::kPanel, .shrink_tile = shrink});
        CAPTURE(name(dtype));
        CAPTURE(shrink);
        CAPTURE(rank);
        const Problem problem = problem_of(spec);
        REQUIRE(why_not(problem).empty());
        ++taken;
        check_proved_eight(problem, proved);
      }
    }
  }
  CHECK(taken == 48);
  check_enough(proved);
}

TEST_CASE("panel takes weights of eight bits that clusters have no room for") {
  Proved proved;
  lora_bench::Case spec = eight_bits_case(20, 128, 272);
  spec.layer.widths.assign(16, 8);
  spec.layer.y_stride = 128;
  const Problem problem = problem_of(spec);
  REQUIRE(why_not(problem).empty());
  check_proved_eight(problem, proved);
  check_enough(proved);
}

TEST_CASE("panel leaves the bits of clusters with weights of eight bits") {
  int taken = 0;
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
    for (const std::int64_t rank : {16, 72}) {
      lora_bench::Case spec = eight_bits_case(70, rank, 784);
      spec.dtype = dtype;
      spec.adapters.scale = {0.37, 2.0, 1.0};
      spec.tuning = tuning_of({.family = AutoFamily::kClustered});
      const Problem clusters = problem_of(spec);
      const auto tensors = lora_bench::draw_tensors(clusters, lora_bench::Fill::kBounded, 7);
      const auto expected = bits_of_eight(clusters, tensors);
      for (const char* shrink : {"", "64x48-joined", "64x48-grouped"}) {
        Problem panel = clusters;
        panel.tuning = tuning_of({.family = AutoFamily::kPanel, .shrink_tile = shrink});
        CAPTURE(name(dtype));
        CAPTURE(rank);
        CAPTURE(shrink);
        REQUIRE(why_not(panel).empty());
        ++taken;
        CHECK(bits_of_eight(panel, tensors) == expected);
      }
    }
  }
  CHECK(taken == 12);
}

TEST_CASE("auto says which weights of eight bits it does not take") {
  const auto refused = [](const auto& change) {
    lora_bench::Case spec = eight_bits_case(9, 16, 144);
    change(spec);
    return why_not(problem_of(spec));
  };
  CHECK(refused([](lora_bench::Case&) {}).empty());
  CHECK(refused([](lora_bench::Case& spec) {
          spec.weights.scale = WeightsScale::kBlock;
          spec.weights.block = {8, 32};
        }) ==
        "auto takes no such weights of eight bits: scales of blocks; allowed: tensor, channel");
  CHECK(refused([](lora_bench::Case& spec) { spec.op = lora_bench::Op::kShrink; }) ==
        "auto takes no such weights of eight bits: op shrink is no linear op");
  CHECK(refused([](lora_bench::Case& spec) { spec.layer.in_features = 136; }) ==
        "auto takes no such weights of eight bits: rows of x, A or y that are no multiple of 16 "
        "bytes, or columns of B of 4");
  CHECK(refused([](lora_bench::Case& spec) {
          spec.batch.decode = 64;
          spec.adapters.slots = 64;
          spec.skew.kind = lora_bench::Skew::kDistinct;
          spec.no_adapter = 0;
          spec.tuning = tuning_of({.family = AutoFamily::kResident});
        }) ==
        "tuning.family resident: the weights of 64 adapters of rank 16 are more than the shared "
        "memory of clusters that run at once; allowed: clustered, panel");
}
