#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "verify/relations.h"

namespace lora_bench {
bool Relations::supports(const Problem& problem) const {
  return backend_.supports(problem, facts_of(memory_.space())).yes;
}

void Relations::doubled_inputs() {
  expect_repeated(launch(double_inputs(base_)), base_.problem, same_rows_, true);
}

// A backend may tile another width otherwise and round otherwise, so here the oracle decides.
void Relations::slices_one_by_one() {
  for (std::int64_t slice = 0; slice < base_.problem.slices() && !failed_; ++slice) {
    const Derived one = groundwork_.derived(fmt::format("slice {}", slice),
                                            [&] { return single_slice(base_, slice); });
    expect_right(*one, backend_.numerics(one->step.problem), launch(one->step), same_rows_);
    for (Mismatch& mismatch : failure_.first) {
      mismatch.slice = mismatch.slice < 0 ? -1 : slice;
    }
  }
}

// What shrink left is what expand takes, whoever applies the scale; between them h is stored as the
// case says, though the two together may keep it better.
void Relations::shrink_then_expand() {
  const Step first = shrink_half(base_);
  const Problem second = half_of(base_.problem, Op::kExpand);
  if (!supports(first.problem) || !supports(second)) {
    return;
  }
  const Bits h = launch(first);
  if (failed_) {
    return;
  }
  const Bits got = launch(expand_half(base_, h));
  const Numerics of_shrink = backend_.numerics(first.problem);
  Numerics numerics = backend_.numerics(second);
  numerics.unit_roundoff = std::max(numerics.unit_roundoff, of_shrink.unit_roundoff);
  numerics.shrink_depth = of_shrink.shrink_depth;
  numerics.partial = of_shrink.partial;
  numerics.partials = of_shrink.partials;
  numerics.intermediate = base_.problem.dtype[Role::kH];
  expect_base(numerics, got);
}

// What fp16 cannot hold is infinite, not its largest number.
void Relations::results_beyond_fp16() {
  const Derived large = groundwork_.derived("beyond fp16", [&] { return beyond_fp16(base_); });
  expect_right(*large, numerics_, launch(large->step), same_rows_);
}

// Once in whole vectors, once so that no row keeps its alignment: other tiles, other tails.
void Relations::wider_padding() {
  constexpr std::int64_t kMoreLanes[] = {16, 1};
  constexpr std::int64_t kMoreFeatures[] = {64, 1};
  for (std::size_t turn = 0; turn < 2 && !failed_; ++turn) {
    const Derived wide = groundwork_.derived(fmt::format("{} lanes wider", kMoreLanes[turn]), [&] {
      return widen(base_, kMoreLanes[turn], kMoreFeatures[turn]);
    });
    const Problem& problem = wide->step.problem;
    if (supports(problem)) {
      expect_right(*wide, backend_.numerics(problem), launch(wide->step), same_rows_);
      // NaN stands behind the rank alone.
      if (failed_ && !failure_.first.empty() && std::isnan(failure_.first.front().got)) {
        seen_ = "unused-memory-read";
      }
    }
  }
}

// A kernel that looks at the alignment of one operand and trusts that of another. Drawn in pairs:
// of two operands that differ, each is once the one that is shifted.
void Relations::operands_apart() {
  constexpr std::uint64_t kDraws = 8;
  const ScratchBytes scratch = scratch_bytes(backend_, base_.problem);
  for (std::uint64_t draw = 0; draw < kDraws && !failed_; ++draw) {
    Stage stage(memory_, base_.problem, base_.tensors, scratch, Alignment::kSome, PlanRoom::kExact,
                seed_ * kDraws + draw);
    expect_base(numerics_, launch_in(stage));
  }
}

}  // namespace lora_bench
