#pragma once

#include <type_traits>
#include <utility>

#include "kernels/divide_up.h"
#include "kernels/panel/panel.h"
#include "kernels/panel/panel_apart.cuh"
#include "kernels/panel/panel_expand.cuh"
#include "kernels/panel/panel_grouped.cuh"
#include "kernels/panel/panel_held.cuh"
#include "kernels/panel/panel_joined.cuh"
#include "kernels/panel/panel_plain.cuh"
#include "kernels/panel/panel_shrink.cuh"

// Every shape that is compiled.
namespace lora_bench::kernels {

struct PanelLaunch {
  std::int64_t blocks = 0;
  int threads = 0;
  int shared_bytes = 0;
  bool linked = false;  // may start while the kernel before it runs
  int cluster = 1;      // blocks of one
};

template <typename Params, typename Plan>
cudaError_t launch_panel(void (*kernel)(Params, Plan), const PanelLaunch& launch,
                         cudaStream_t stream, const std::type_identity_t<Params>& params,
                         const std::type_identity_t<Plan>& plan) {
  if (launch.blocks == 0) {
    return cudaSuccess;
  }
  if (launch.blocks > 2147483647) {
    return cudaErrorInvalidConfiguration;
  }
  cudaFuncAttributes code = {};
  cudaError_t error = cudaFuncGetAttributes(&code, kernel);
  if (error == cudaSuccess && launch.shared_bytes > 0) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 launch.shared_bytes);
  }
  if (error == cudaSuccess && launch.cluster > 1 && code.ptxVersion < 90) {
    error = cudaErrorNotSupported;  // no clusters in code for an older architecture
  }
  if (error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (launch.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[count++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(launch.cluster);
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
  }
  if (launch.linked && code.ptxVersion >= 90) {  // older code has no wait
    cudaLaunchAttribute& link = attributes[count++];
    link.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    link.val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(launch.blocks));
  config.blockDim = dim3(static_cast<unsigned>(launch.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(launch.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, params, plan);
}

// Calls `launch` with the number of the tile as a constant.
template <int kTiles, typename Launch>
cudaError_t visit_tile(int tile, Launch launch) {
  cudaError_t error = cudaErrorInvalidValue;
  const auto try_tile = [&]<int kTile>() {
    if (tile == kTile) {
      error = launch.template operator()<kTile>();
    }
  };
  [&]<int... kEach>(std::integer_sequence<int, kEach...>) {
    (try_tile.template operator()<kEach>(), ...);
  }
  (std::make_integer_sequence<int, kTiles>{});
  return error;
}

// W is the storage of A: T, or EightBits, which the tiles take that eight_bits_take names.
template <typename T, typename W>
cudaError_t launch_panel_shrink_tile(const ShrinkParams& params, const PanelShrinkTuning& tuning,
                                     const PanelShrinkPlanOf<W>& plan, cudaStream_t stream) {
  // Waits before it reads x or writes, so it may always be linked.
  return visit_tile<static_cast<int>(kPanelShrinkTiles.size())>(tuning.tile, [&]<int kTile>() {
    if constexpr (kOfEightBits<W> && !eight_bits_take(kPanelShrinkTiles[kTile])) {
      return cudaErrorInvalidValue;
    } else if constexpr (kPanelShrinkTiles[kTile].joined) {
      auto kernel = panel_joined<T, kTile, false, W>;
#ifdef LORA_BENCH_HAVE_SM90A
      if constexpr (PanelJoinedBlock<kTile>::kMayGroup) {
        cudaFuncAttributes code = {};
        const cudaError_t error = cudaFuncGetAttributes(&code, kernel);
        if (error != cudaSuccess) {
          return error;
        }
        if (code.binaryVersion == 90) {
          kernel = panel_joined<T, kTile, true, W>;
        }
      }
#endif
      return launch_panel(kernel,
                          {tuning.blocks, PanelJoinedBlock<kTile>::kThreads, tuning.shared_bytes,
                           true, tuning.split},
                          stream, params, plan);
    } else if constexpr (kPanelShrinkTiles[kTile].grouped) {
#ifdef LORA_BENCH_HAVE_SM90A
      return launch_panel(
          panel_grouped<T, kTile, W>,
          {tuning.blocks, PanelGroupedBlock<kTile, W>::kThreads, tuning.shared_bytes, true}, stream,
          params, plan);
#else
      return cudaErrorNotSupported;
#endif
    } else {
      return launch_panel(
          panel_shrink<T, kTile>,
          {tuning.blocks, PanelShrinkBlock<kTile>::kThreads, tuning.shared_bytes, true}, stream,
          params, plan);
    }
  });
}

template <typename T>
cudaError_t launch_panel_shrink_as(const ShrinkParams& params, const PanelShrinkTuning& tuning,
                                   const PanelShrinkPlan& plan, cudaStream_t stream) {
  return tuning.tile == kPanelPlain
             ? launch_panel(panel_plain_shrink<T>, {tuning.blocks, kPanelPlainThreads, 0, true},
                            stream, params, plan)
             : launch_panel_shrink_tile<T, T>(params, tuning, plan, stream);
}

template <typename T>
cudaError_t launch_panel_shrink_eight_as(const ShrinkParams& params,
                                         const PanelShrinkTuning& tuning,
                                         const PanelShrinkEightPlan& plan, cudaStream_t stream) {
  return launch_panel_shrink_tile<T, EightBits>(params, tuning, plan, stream);
}

template <typename T, typename H, typename W>
cudaError_t launch_panel_expand_tile(const ExpandParams& params, const PanelExpandTuning& tuning,
                                     const PanelExpandPlanOf<W>& plan, bool linked,
                                     cudaStream_t stream) {
#ifdef LORA_BENCH_HAVE_SM90A
  constexpr bool kMayGroup = std::is_same_v<T, __nv_bfloat16>;
#else
  constexpr bool kMayGroup = false;
#endif
  return visit_tile<static_cast<int>(kPanelExpandTiles.size())>(tuning.tile, [&]<int kTile>() {
    constexpr PanelExpandTile kShape = kPanelExpandTiles[kTile];
    if constexpr (kOfEightBits<W> && !eight_bits_take(kShape)) {
      return cudaErrorInvalidValue;
    } else {
      const auto launch = [&](auto kernel, int numbers) {
        const PanelExpandBlockShape block =
            panel_expand_block(kShape, numbers, plan.sums.sums != nullptr);
        return launch_panel(kernel, {tuning.blocks, 32 * block.warps, block.shared_bytes, linked},
                            stream, params, plan);
      };
      if constexpr (kMayGroup) {
        cudaFuncAttributes code = {};
        const cudaError_t error = cudaFuncGetAttributes(&code, panel_expand<T, H, kTile, false, W>);
        if (error != cudaSuccess) {
          return error;
        }
        if (code.binaryVersion == 90) {
          if constexpr (kShape.shares > 1) {
            if (plan.sums.sums != nullptr) {
              return launch(panel_held<H, kTile>, kNumbersOfH<H>);
            }
          }
          if constexpr (kShape.apart) {
            return launch(panel_apart<H, kTile, W>, kNumbersOfH<H>);
          } else {
            return launch(panel_expand<T, H, kTile, true, W>, kNumbersOfH<H>);
          }
        }
      }
      return launch(panel_expand<T, H, kTile, false, W>, 0);
    }
  });
}

template <typename T, typename H>
cudaError_t launch_panel_expand_as(const ExpandParams& params, const PanelExpandTuning& tuning,
                                   const PanelExpandPlan& plan, bool linked, cudaStream_t stream) {
  return tuning.tile == kPanelPlain
             ? launch_panel(panel_plain_expand<T, H>,
                            {tuning.blocks, kPanelPlainThreads, 0, linked}, stream, params, plan)
             : launch_panel_expand_tile<T, H, T>(params, tuning, plan, linked, stream);
}

// From sums of shrink, rounded no more.
template <typename T>
cudaError_t launch_panel_expand_eight_as(const ExpandParams& params,
                                         const PanelExpandTuning& tuning,
                                         const PanelExpandEightPlan& plan, bool linked,
                                         cudaStream_t stream) {
  return launch_panel_expand_tile<T, float, EightBits>(params, tuning, plan, linked, stream);
}

template <typename H>
cudaError_t launch_panel_hidden_as(const ShrinkParams& params, const PanelSums& sums,
                                   cudaStream_t stream) {
  const std::int64_t elements = params.slices * params.tokens * params.max_rank;
  return launch_panel(panel_hidden<H>, {divide_up(elements, 256), 256, 0, true}, stream, params,
                      sums);
}

}  // namespace lora_bench::kernels
