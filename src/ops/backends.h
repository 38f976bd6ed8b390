#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/gpu_group.h"
#include "ops/backend.h"

namespace lora_bench {

inline constexpr std::string_view kNaiveSummary =
    "CUDA, one readable kernel an op, for a second opinion; every op with products in bf16, fp16 "
    "and fp32";

// Bytes of prepared weights of a step, and what makes them: Backend::prepare, which is told of
// weights, ranks and scales alone.
[[nodiscard]] std::int64_t prepared_bytes(const Backend& backend, const Problem& problem);
void prepare_weights(const Backend& backend, const Problem& problem, const Operands& operands,
                     Stream stream);
// What a launch needs beside its operands.
struct ScratchBytes {
  std::int64_t workspace = 0, prepared = 0;
};
[[nodiscard]] ScratchBytes scratch_bytes(const Backend& backend, const Problem& problem);
[[nodiscard]] ScratchBytes largest_of(const ScratchBytes& one, const ScratchBytes& other);
// The same backend, of which each launch first prepares the weights: for launches that nobody
// times. The backend must outlive it.
[[nodiscard]] std::unique_ptr<Backend> preparing_in_each_launch(const Backend& backend);

// kernels/naive. Throws EnvironmentError in a build without CUDA.
[[nodiscard]] std::unique_ptr<Backend> make_naive_backend();

inline constexpr std::string_view kChunkedSummary =
    "SGLang's scheme on tensor cores: segments of rows, slices side by side, no split of K";

// Throws EnvironmentError with the reason when there is no usable GPU.
[[nodiscard]] std::unique_ptr<Backend> make_chunked_backend();

inline constexpr std::string_view kGroupedSummary =
    "vLLM's scheme on tensor cores: a grid per active adapter, split-K by atomics";
inline constexpr std::string_view kGroupedOrderedSummary =
    "grouped, with the parts of K added in a fixed order";

// Throws EnvironmentError with the reason when there is no usable GPU.
[[nodiscard]] std::unique_ptr<Backend> make_grouped_backend();
[[nodiscard]] std::unique_ptr<Backend> make_grouped_ordered_backend();

inline constexpr std::string_view kBgmvSummary =
    "CUDA, Punica's scheme: a row a block for decode (BGMV), tiles of an adapter's rows for runs "
    "(SGMV); bf16 and fp16";

// Also on machines without a GPU, for tests.
[[nodiscard]] Numerics bgmv_numerics(const Problem& problem);

// kernels/bgmv. Throws EnvironmentError in a build without CUDA.
[[nodiscard]] std::unique_ptr<Backend> make_bgmv_backend();

inline constexpr std::string_view kPanelSummary =
    "CUDA, panels of many rows of one adapter: x read once, y read and written once, in one linked "
    "pair; deterministic, batch-invariant; bf16 and fp16";

// Of `auto` too, which keeps the same order of sums. Also on machines without a GPU, for tests.
[[nodiscard]] Numerics panel_numerics(const Problem& problem);

// kernels/panel. Throws EnvironmentError in a build without CUDA.
[[nodiscard]] std::unique_ptr<Backend> make_panel_backend();
// As `auto` launches it: with problem.tuning.
[[nodiscard]] std::unique_ptr<Backend> make_tuned_panel_backend();

inline constexpr std::string_view kAutoSummary =
    "CUDA, the kernels that suit the shape and the device, all with one order of sums: one launch "
    "of clusters where it can be; deterministic, batch-invariant; bf16 and fp16; metadata and "
    "quantise too";

// Throws EnvironmentError in a build without CUDA.
[[nodiscard]] std::unique_ptr<Backend> make_auto_backend();

// Op metadata by one kernel a form, of devices of that compute capability (of DeviceFacts). A
// launch throws EnvironmentError in a build without CUDA.
[[nodiscard]] std::unique_ptr<MetadataBuilder> make_device_metadata(int compute_capability);
// Op quantise by the cores of the host, and by kernels of devices of that compute capability.
[[nodiscard]] std::unique_ptr<Quantiser> make_cpu_quantiser();
[[nodiscard]] std::unique_ptr<Quantiser> make_device_quantiser(int compute_capability);

inline constexpr std::string_view kCpuSummary =
    "host cores, vectorised (AVX-512, AVX2 or baseline); every op, metadata and quantise among "
    "them, in bf16, fp16 and fp32";

struct CpuOptions {
  int threads = 0;  // 0 = the pool of the process: as many as it may use
  std::string isa;  // "" = the best of this processor, else "baseline", "avx2", "avx512"
};

// For users without a GPU: every op, fp32, bf16 and fp16. Throws UsageError for an instruction set
// that is not here.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

// A kernel that only touches every operand of a step once, as a backend: what it computes is wrong,
// so it is timed and never proved. No kernel that does the step moves fewer bytes. Throws
// EnvironmentError where there is no GPU.
[[nodiscard]] std::unique_ptr<Backend> make_touch_probe();

// What multiplies by the base weights of a layer: op shrink of one adapter whose A is W, rank all
// of its rows, every row of the batch its own; h is x W^T in the dtype of the intermediate. On a
// host the cpu backend; on a device a kernel of our own (ops/fused_layer.h) or cuBLASLt, which
// adds the bias of the problem in its epilogue and, where the problem adds inputs, y, [tokens,
// max_rank] in the dtype of h. Throws EnvironmentError where there is none.
[[nodiscard]] std::unique_ptr<Backend> make_base_product(
    Space space, BaseAlgorithm algorithm = BaseAlgorithm::kAuto);

// Whether a problem's bias and y are added by the product itself.
[[nodiscard]] bool base_product_adds_bias(Space space);

// The same backend for a shard on one GPU of a group: launches on that GPU and its stream, whatever
// stream it is given. It must have been made while that GPU was the current one.
[[nodiscard]] std::shared_ptr<const Backend> on_gpu(std::shared_ptr<const Backend> backend,
                                                    std::shared_ptr<const GpuGroup> gpus,
                                                    std::int64_t rank);

// Host backends that misbehave on purpose, to test everything around a backend. "" behaves.
struct FakeDoc {
  std::string behaviour;
  std::string meaning;
};
[[nodiscard]] const std::vector<FakeDoc>& fake_behaviours();
// Throws UsageError for an unknown behaviour.
[[nodiscard]] std::unique_ptr<Backend> make_fake(const std::string& behaviour);
// Every `fake:hang` that hangs now returns by throwing CaseError, so that a test can join it.
void release_hung_fakes();

// The op as its definition says it, one element after the other in fp32, on the host. The second
// opinion for tests, and what the fakes compute.
void apply_plain_formula(const Problem& problem, const Operands& operands);
[[nodiscard]] Numerics plain_formula_numerics(const Problem& problem);

}  // namespace lora_bench
