#include "ops/fused_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/error.h"
#include "device/facts.h"
#include "kernels/streamed/streamed_tuning.h"
#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/streamed/streamed.h"
#include "ops/kernel_params.h"
#endif

namespace lora_bench {
namespace {

kernels::StreamedShape streamed_shape(const Problem& base) {
  return {.tokens = base.tokens,
          .columns = base.max_rank,
          .depth = base.in_features,
          .x_stride = base.x_stride,
          .element_bytes = size_bytes(base.dtype[Role::kX]),
          .compute_capability = first_gpu().compute_capability};
}

}  // namespace

bool streamed_takes(const Problem& base) {
  return base.dtype.alike() && base.dtype[Role::kH] == base.dtype[Role::kX] && !base.add_inputs &&
         kernels::streamed_takes(streamed_shape(base));
}

Numerics streamed_numerics(const Problem& base) {
  Numerics numerics;
  numerics.unit_roundoff = 0x1p-23;
  numerics.shrink_depth = kernels::streamed_base_depth(streamed_shape(base));
  numerics.intermediate = base.dtype[Role::kH];
  numerics.summation = "streamed: fp32 on tensor cores; K: eight sums, added in turn";
  return numerics;
}

#ifdef LORA_BENCH_HAVE_CUDA

namespace {

constexpr std::int64_t kMetBytes = 256;  // before the words

// Of any batch of as many rows.
kernels::StreamedAdaptersShape streamed_adapters(const Problem& lora) {
  return {.active = std::min(lora.slots, lora.tokens),
          .slices = lora.slices(),
          .max_rank = lora.max_rank,
          .widths = lora.widths.data(),
          .first_column = lora.offset_start};
}

kernels::StreamedParams streamed_params(const Problem& base, const Operands& operands) {
  kernels::StreamedParams params;
  params.x = operands.x;
  params.w = operands.a[0];
  params.bias = base.bias ? operands.bias[0] : nullptr;
  params.y = operands.h;
  params.tokens = base.tokens;
  params.columns = base.max_rank;
  params.depth = base.in_features;
  params.x_stride = base.x_stride;
  return params;
}

void launch_streamed_as(const Problem& base, const kernels::StreamedParams& params,
                        const kernels::StreamedAdapters* adapters, Stream stream) {
  LORA_BENCH_CUDA_CHECK(kernels::launch_streamed(kernel_number(base.dtype[Role::kX]), params,
                                                 adapters, first_gpu().multiprocessors,
                                                 static_cast<cudaStream_t>(stream.handle)));
}

class StreamedLayer final : public FusedLayer {
 public:
  [[nodiscard]] std::string why_not(const Problem& base, const Problem& lora) const override {
    if (!streamed_takes(base) || !lora.dtype.alike()) {
      return fmt::format(
          "layer.overlap fused: {} rows of {}, {} inputs, {} columns; at most {} rows of bf16 or "
          "fp16, "
          "inputs in multiples of {}, columns of {}, on sm_90",
          base.tokens, name(base.dtype[Role::kX]), base.in_features, base.max_rank,
          kernels::kStreamedMostTokens, kernels::kStreamedGroup, kernels::kStreamedRows);
    }
    if (lora.op != Op::kLinear || lora.bias || lora.in_features != base.in_features ||
        lora.x_stride != base.x_stride || lora.slices() > kernels::kMaxFusedSlices ||
        !kernels::streamed_takes_adapters(streamed_shape(base), streamed_adapters(lora))) {
      return fmt::format(
          "layer.overlap fused: adapters of rank {} in {} slots and {} slices are too many for {} "
          "rows",
          lora.max_rank, lora.slots, lora.slices(), lora.tokens);
    }
    return "";
  }
  [[nodiscard]] bool is_quicker(const Problem&, const Problem&) const override { return true; }
  [[nodiscard]] bool same_base(const Problem& base, const Problem&) const override {
    return streamed_takes(base);
  }
  [[nodiscard]] std::int64_t base_depth(const Problem& base, const Problem&) const override {
    return kernels::streamed_base_depth(streamed_shape(base)) + 1;  // and what adapters add
  }
  [[nodiscard]] Numerics numerics(const Problem& base, const Problem& lora) const override {
    Numerics numerics;
    numerics.unit_roundoff = 0x1p-23;
    numerics.shrink_depth = kernels::streamed_hidden_depth(streamed_shape(base));
    numerics.expand_depth = lora.max_rank + 2;  // with bias and base
    numerics.intermediate = Dtype::kFp32;
    numerics.summation = fmt::format(
        "in the base's launch, fp32; K: {} sums on tensor cores, added in turn; rank: "
        "one sum; added to the base before it is rounded",
        kernels::kStreamedSplits);
    return numerics;
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& base,
                                             const Problem& lora) const override {
    return kMetBytes + kernels::streamed_words(streamed_shape(base), lora.slices(), lora.max_rank) *
                           static_cast<std::int64_t>(sizeof(std::uint32_t));
  }
  void launch(const Problem& base, const Operands& of_base, const Problem& lora,
              const Operands& of_lora, Stream stream) const override {
    if (of_base.x != of_lora.x) {
      throw std::logic_error("base and adapters of a fused layer read one x");
    }
    kernels::StreamedAdapters adapters;
    adapters.shrink = shrink_params(lora, of_lora);
    adapters.expand = expand_params(lora, of_lora);
    adapters.met = static_cast<std::uint32_t*>(of_lora.workspace);
    adapters.words =
        reinterpret_cast<std::uint32_t*>(static_cast<char*>(of_lora.workspace) + kMetBytes);
    const kernels::StreamedParams params = streamed_params(base, of_base);
    if (!kernels::streamed_copies(params) || !kernels::streamed_copies(adapters)) {
      throw std::logic_error("operands of a fused layer begin on 16 bytes");
    }
    launch_streamed_as(base, params, &adapters, stream);
  }
};

}  // namespace

void launch_streamed_product(const Problem& base, const Operands& operands, Stream stream) {
  launch_streamed_as(base, streamed_params(base, operands), nullptr, stream);
}

std::unique_ptr<FusedLayer> make_streamed_layer() { return std::make_unique<StreamedLayer>(); }

#else

void launch_streamed_product(const Problem&, const Operands&, Stream) {
  throw EnvironmentError(why_no_gpu());
}
std::unique_ptr<FusedLayer> make_streamed_layer() { throw EnvironmentError(why_no_gpu()); }

#endif

}  // namespace lora_bench
