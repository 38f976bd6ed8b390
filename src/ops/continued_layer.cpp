#include "ops/fused_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/error.h"
#include "device/facts.h"
#include "kernels/continued/continued_tuning.h"
#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/continued/continued.h"
#include "ops/kernel_params.h"
#endif

namespace lora_bench {
namespace {

kernels::ContinuedShape continued_shape(const Problem& base, const Problem& lora) {
  return {.tokens = lora.tokens,
          .columns = base.max_rank,
          .slots = lora.slots,
          .slices = lora.slices(),
          .max_rank = lora.max_rank,
          .depth = base.in_features};
}

std::vector<kernels::ContinuedGroup> groups_of(const Plan& plan) {
  std::vector<kernels::ContinuedGroup> groups;
  for (std::size_t group = 0; group < static_cast<std::size_t>(plan.active()); ++group) {
    groups.push_back(
        {plan.active_ids[group], plan.group_starts[group + 1] - plan.group_starts[group]});
  }
  return groups;
}

}  // namespace

std::vector<std::int32_t> continued_slots_of(const Problem& base, const Problem& lora) {
  return kernels::continued_slots(continued_shape(base, lora), groups_of(lora.plan));
}

std::optional<Plan> left_over_by(const Problem& base, const Problem& lora) {
  const std::vector<std::int32_t> slots = continued_slots_of(base, lora);
  if (static_cast<std::int64_t>(slots.size()) == lora.slots) {
    return std::nullopt;
  }
  std::vector<std::int32_t> ids = lora.plan.adapter_of_token;
  for (std::int32_t& id : ids) {
    id = std::find(slots.begin(), slots.end(), id) == slots.end() ? id : -1;
  }
  return make_plan(ids, lora.slots);
}

std::int64_t room_behind_inputs(const Problem& base, const Problem& lora) {
  const kernels::ContinuedShape shape = continued_shape(base, lora);
  return lora.dtype[Role::kX] == Dtype::kBf16 && lora.dtype[Role::kH] == Dtype::kFp32 &&
                 kernels::continued_takes(shape)
             ? kernels::continued_room(shape)
             : 0;
}

bool is_of_many_rows(const Problem& lora) {
  constexpr std::int64_t kMostRowsOfOthers = 256;
  return lora.tokens > kMostRowsOfOthers;
}

#ifdef LORA_BENCH_HAVE_CUDA

namespace {

// The base product as it goes on over so many adapters.
Problem longer(Problem base, const Problem& lora, std::int64_t blocks) {
  base.in_features += blocks * kernels::continued_lanes(continued_shape(base, lora));
  return base;
}

class ContinuedLayer final : public FusedLayer {
 public:
  explicit ContinuedLayer(const Backend& base) : base_(base) {}

  [[nodiscard]] std::string why_not(const Problem& base, const Problem& lora) const override {
    constexpr int kLeastCapability = 90;
    const kernels::ContinuedShape shape = continued_shape(base, lora);
    if (!base.dtype.alike() || !lora.dtype.alike() || base.dtype[Role::kX] != Dtype::kBf16 ||
        base.dtype[Role::kH] != base.dtype[Role::kX] || base.add_inputs || lora.op != Op::kLinear ||
        lora.bias || lora.dtype[Role::kH] != Dtype::kFp32 || lora.in_features != base.in_features ||
        !kernels::continued_takes(shape) || first_gpu().compute_capability < kLeastCapability) {
      return fmt::format(
          "layer.overlap fused: {} rows of {}, {} columns, {} slots of rank {} in {} slices; for "
          "many rows bf16, an h of fp32 and ranks in multiples of 8, on sm_90",
          base.tokens, name(base.dtype[Role::kX]), base.max_rank, lora.slots, lora.max_rank,
          lora.slices());
    }
    if (base.a_stride < base.in_features + kernels::continued_room(shape)) {
      return "layer.overlap fused: behind a shard's columns of x lie those of the next";
    }
    return "";
  }
  [[nodiscard]] bool is_quicker(const Problem& base, const Problem& lora) const override {
    return kernels::continued_is_quicker(continued_shape(base, lora), groups_of(lora.plan));
  }
  [[nodiscard]] std::optional<Plan> left_over(const Problem& base,
                                              const Problem& lora) const override {
    return left_over_by(base, lora);
  }
  // Another product, of which the library may sum otherwise.
  [[nodiscard]] bool same_base(const Problem&, const Problem&) const override { return false; }
  [[nodiscard]] std::int64_t base_depth(const Problem& base, const Problem& lora) const override {
    return longer(base, lora, kernels::continued_blocks(continued_shape(base, lora))).in_features;
  }
  [[nodiscard]] Numerics numerics(const Problem& base, const Problem& lora) const override {
    // What two parts of bf16 lack of an fp32 h, 2^-17 of it: 64 units of 2^-23.
    constexpr std::int64_t kLost = 64;
    // Sums of a row that meet: of eight blocks, and of eight warps of each where rows are few.
    constexpr std::int64_t kSums = 64;
    const kernels::ContinuedShape shape = continued_shape(base, lora);
    Numerics numerics;
    numerics.unit_roundoff = 0x1p-23;
    numerics.shrink_depth =
        kernels::continued_shared(base.in_features, lora.slices() * lora.max_rank).columns_each +
        kSums;
    // The library does not tell its order: no order adds more often.
    numerics.expand_depth =
        longer(base, lora, kernels::continued_blocks(shape)).in_features + kLost;
    numerics.intermediate = Dtype::kFp32;
    numerics.batch_invariant = false;
    numerics.summation = fmt::format(
        "h: fp32 on tensor cores, K in {} sums added in turn; expand of {} adapters of {} as "
        "columns "
        "of the base's product, h as two parts of bf16",
        kernels::kContinuedSplits, continued_slots_of(base, lora).size(), lora.slots);
    return numerics;
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& base,
                                             const Problem& lora) const override {
    std::int64_t bytes = 0;
    for (std::int64_t blocks = 0; blocks <= kernels::continued_blocks(continued_shape(base, lora));
         ++blocks) {
      bytes = std::max(bytes, base_.workspace_bytes(longer(base, lora, blocks)));
    }
    return bytes;
  }
  void launch(const Problem& base, const Operands& of_base, const Problem& lora,
              const Operands& of_lora, Stream stream) const override {
    const std::vector<std::int32_t> slots = continued_slots_of(base, lora);
    kernels::ContinuedParams params;
    params.shrink = shrink_params(lora, of_lora);
    params.expand = expand_params(lora, of_lora);
    params.x = const_cast<void*>(of_base.x);     // NOLINT: what lies behind its rows
    params.w = const_cast<void*>(of_base.a[0]);  // NOLINT: the same
    params.depth = base.in_features;
    params.x_stride = base.x_stride;
    params.w_stride = base.a_stride;
    params.all_columns = base.max_rank;
    params.blocks = static_cast<std::int32_t>(slots.size());
    std::copy(slots.begin(), slots.end(), params.slot);
    params.tiles = static_cast<std::int32_t>(kernels::continued_tiles(groups_of(lora.plan)));
    params.few = static_cast<std::int32_t>(kernels::continued_few(groups_of(lora.plan)));
    if (!kernels::continued_copies(params)) {
      throw std::logic_error("operands of a fused layer begin on 16 bytes");
    }
    LORA_BENCH_CUDA_CHECK(kernels::launch_continued(params, first_gpu().multiprocessors,
                                                    static_cast<cudaStream_t>(stream.handle)));
    Operands product = of_base;
    product.workspace = of_lora.workspace;
    base_.launch(longer(base, lora, params.blocks), product, stream);
  }

 private:
  const Backend& base_;
};

}  // namespace

std::unique_ptr<FusedLayer> make_continued_layer(const Backend& base) {
  return std::make_unique<ContinuedLayer>(base);
}

#else

std::unique_ptr<FusedLayer> make_continued_layer(const Backend&) {
  throw EnvironmentError(why_no_gpu());
}

#endif

}  // namespace lora_bench
