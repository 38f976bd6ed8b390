#include "ops/cublaslt_library.h"

#include "core/error.h"
#include "device/facts.h"
#ifdef LORA_BENCH_HAVE_CUBLAS
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "device/cuda_handles.h"
#include "device/found_library.h"
#include "ops/cublas_types.h"
#endif

namespace lora_bench {
#ifdef LORA_BENCH_HAVE_CUBLAS
namespace {

// The functions of the library that are used here; `missing` says why there are none.
struct LtLibrary {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtGetStatusString) status_text = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_product = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) read_algorithm = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
  std::string missing;
};

LtLibrary load_lt_library() {
  FoundLibrary found("cuBLAS", "libcublasLt.so", CUBLAS_VER_MAJOR);
  LtLibrary library;
  found.find("cublasLtCreate", library.create);
  found.find("cublasLtDestroy", library.destroy);
  found.find("cublasLtGetVersion", library.version);
  found.find("cublasLtGetStatusString", library.status_text);
  found.find("cublasLtMatmulDescCreate", library.create_product);
  found.find("cublasLtMatmulDescDestroy", library.destroy_product);
  found.find("cublasLtMatmulDescSetAttribute", library.set_product);
  found.find("cublasLtMatrixLayoutCreate", library.create_layout);
  found.find("cublasLtMatrixLayoutDestroy", library.destroy_layout);
  found.find("cublasLtMatmulPreferenceCreate", library.create_preference);
  found.find("cublasLtMatmulPreferenceDestroy", library.destroy_preference);
  found.find("cublasLtMatmulPreferenceSetAttribute", library.set_preference);
  found.find("cublasLtMatmulAlgoGetHeuristic", library.heuristic);
  found.find("cublasLtMatmulAlgoConfigGetAttribute", library.read_algorithm);
  found.find("cublasLtMatmul", library.multiply);
  library.missing = found.missing();
  return library;
}

const LtLibrary& lt_library() {
  static const LtLibrary kLibrary = load_lt_library();
  return kLibrary;
}

void check_lt(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw CaseError(fmt::format("{}: {}", what, lt_library().status_text(status)));
  }
}

}  // namespace

using LtChoices = std::vector<cublasLtMatmulHeuristicResult_t>;

// The descriptors of one shape. cuBLASLt counts by columns: it sees every matrix transposed, and
// the product with its factors exchanged.
class LtDescriptors {
 public:
  explicit LtDescriptors(const LtShape& shape) {
    const LtLibrary& library = lt_library();
    const auto columns = static_cast<std::uint64_t>(shape.columns);
    const auto rows = static_cast<std::uint64_t>(shape.rows);
    const auto depth = static_cast<std::uint64_t>(shape.depth);
    check_lt(library.create_product(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
             "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE,
        shape.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
    layout(w_, shape.dtype, depth, columns, shape.w_stride);
    layout(x_, shape.dtype, depth, rows, shape.x_stride);
    layout(out_, shape.out, columns, rows, shape.columns);
  }
  ~LtDescriptors() {
    const LtLibrary& library = lt_library();
    for (cublasLtMatrixLayout_t of : {w_, x_, out_}) {
      if (of != nullptr) {
        static_cast<void>(library.destroy_layout(of));
      }
    }
    if (product_ != nullptr) {
      static_cast<void>(library.destroy_product(product_));
    }
  }
  LtDescriptors(const LtDescriptors&) = delete;
  LtDescriptors& operator=(const LtDescriptors&) = delete;

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check_lt(lt_library().set_product(product_, attribute, &value, sizeof(value)),
             "cublasLtMatmulDescSetAttribute");
  }

  // The best first, as the library reckons; one at least.
  [[nodiscard]] LtChoices choices(cublasLtHandle_t handle, const LtShape& shape, int most) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check_lt(lt_library().create_preference(&preference), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [preference](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return lt_library().set_preference(preference, attribute, &value, sizeof(value));
    };
    constexpr std::uint64_t kMostWorkspaceBytes = std::uint64_t{32} << 20U;
    cublasStatus_t status = prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspaceBytes);
    // Split sums in a 16-bit output would round more often than is declared.
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                      static_cast<std::uint32_t>(shape.x_alignment));
    }
    LtChoices found(static_cast<std::size_t>(most));
    int count = 0;
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = lt_library().heuristic(handle, product_, w_, x_, out_, out_, preference, most,
                                      found.data(), &count);
    }
    static_cast<void>(lt_library().destroy_preference(preference));
    check_lt(status, "cublasLtMatmulAlgoGetHeuristic");
    found.resize(static_cast<std::size_t>(count));
    std::erase_if(found, [](const auto& one) { return one.state != CUBLAS_STATUS_SUCCESS; });
    if (found.empty()) {
      throw CaseError(fmt::format("cuBLASLt has no algorithm for {} x {} x {} in {}", shape.rows,
                                  shape.columns, shape.depth, name(shape.dtype)));
    }
    return found;
  }

  void multiply(cublasLtHandle_t handle, const cublasLtMatmulHeuristicResult_t& choice,
                const LtOperands& operands, cudaStream_t stream) {
    const float one = 1;
    const float of_addend = operands.addend != nullptr ? 1 : 0;
    const void* const addend = operands.addend != nullptr ? operands.addend : operands.out;
    if (operands.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    }
    check_lt(lt_library().multiply(handle, product_, &one, operands.w, w_, operands.x, x_,
                                   &of_addend, addend, out_, operands.out, out_, &choice.algo,
                                   operands.workspace, choice.workspaceSize, stream),
             "cublasLtMatmul");
  }

 private:
  static void layout(cublasLtMatrixLayout_t& of, Dtype dtype, std::uint64_t rows,
                     std::uint64_t columns, std::int64_t stride) {
    check_lt(lt_library().create_layout(&of, cublas_type(dtype), rows, columns, stride),
             "cublasLtMatrixLayoutCreate");
  }

  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr;
  cublasLtMatrixLayout_t x_ = nullptr;
  cublasLtMatrixLayout_t out_ = nullptr;
};

namespace {

template <typename Value>
Value read_lt(const cublasLtMatmulAlgo_t& algorithm,
              cublasLtMatmulAlgoConfigAttributes_t attribute) {
  Value value{};
  std::size_t written = 0;
  // What a version of the library does not know stays 0.
  static_cast<void>(
      lt_library().read_algorithm(&algorithm, attribute, &value, sizeof(value), &written));
  return value;
}

std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  return fmt::format("algo {}, tile {}, stages {}, split-K {}, cluster {}, custom {}",
                     read_lt<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID),
                     read_lt<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID),
                     read_lt<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                     read_lt<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
                     read_lt<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
                     read_lt<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION));
}

}  // namespace

std::string why_no_cublaslt() {
  const std::string no_gpu = why_no_gpu();
  return no_gpu.empty() ? lt_library().missing : no_gpu;
}

namespace {

using DeviceBlock = CudaHandle<void*, cudaFree>;

DeviceBlock device_block(std::int64_t bytes) {
  void* address = nullptr;
  LORA_BENCH_CUDA_CHECK(
      cudaMalloc(&address, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
  DeviceBlock block(address);
  // A number of every dtype, the same everywhere, that is no 0.
  constexpr int kPattern = 0x3c;
  LORA_BENCH_CUDA_CHECK(cudaMemset(address, kPattern, static_cast<std::size_t>(bytes)));
  return block;
}

// Times algorithms of one shape on numbers that are all alike, the weights not in the cache.
class LtTrial {
 public:
  LtTrial(const LtShape& shape, std::int64_t workspace_bytes)
      : bytes_of_w_(shape.columns * shape.w_stride * size_bytes(shape.dtype)),
        copies_(1 + 3 * cache_bytes() / std::max<std::int64_t>(bytes_of_w_, 1)),
        x_(device_block(shape.rows * shape.x_stride * size_bytes(shape.dtype))),
        w_(device_block(copies_ * bytes_of_w_)),
        bias_(device_block(shape.columns * size_bytes(shape.out))),
        addend_(device_block(shape.rows * shape.columns * size_bytes(shape.out))),
        out_(device_block(shape.rows * shape.columns * size_bytes(shape.out))),
        workspace_(device_block(workspace_bytes)),
        operands_{.x = x_.get(),
                  .w = nullptr,
                  .bias = shape.bias ? bias_.get() : nullptr,
                  .addend = shape.adds ? addend_.get() : nullptr,
                  .out = out_.get(),
                  .workspace = workspace_.get()} {}

  // The least of a few runs, in milliseconds.
  float milliseconds(cublasLtHandle_t handle, LtDescriptors& descriptors,
                     const cublasLtMatmulHeuristicResult_t& choice) {
    constexpr int kRuns = 5;
    constexpr std::int64_t kLaunches = 8;
    float least = std::numeric_limits<float>::infinity();
    for (int run = 0; run < kRuns; ++run) {
      LORA_BENCH_CUDA_CHECK(cudaEventRecord(start_.get(), stream_.get()));
      for (std::int64_t launch = 0; launch < std::max(kLaunches, copies_); ++launch) {
        operands_.w = static_cast<const char*>(w_.get()) + launch % copies_ * bytes_of_w_;
        descriptors.multiply(handle, choice, operands_, stream_.get());
      }
      LORA_BENCH_CUDA_CHECK(cudaEventRecord(stop_.get(), stream_.get()));
      LORA_BENCH_CUDA_CHECK(cudaEventSynchronize(stop_.get()));
      float taken = 0;
      LORA_BENCH_CUDA_CHECK(cudaEventElapsedTime(&taken, start_.get(), stop_.get()));
      least = std::min(least, taken);
    }
    return least;
  }

 private:
  static std::int64_t cache_bytes() {
    int device = 0;
    int bytes = 0;
    LORA_BENCH_CUDA_CHECK(cudaGetDevice(&device));
    LORA_BENCH_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device));
    return bytes;
  }

  std::int64_t bytes_of_w_, copies_;
  DeviceBlock x_, w_, bias_, addend_, out_, workspace_;
  LtOperands operands_;
  CudaStream stream_ = make_cuda_stream();
  CudaEvent start_ = make_cuda_event();
  CudaEvent stop_ = make_cuda_event();
};

// An earlier one stays where a later one is no more than 1 % quicker.
std::size_t quickest_of(const LtChoices& choices, cublasLtHandle_t handle, const LtShape& shape,
                        LtDescriptors& descriptors) {
  std::size_t workspace_bytes = 0;
  for (const auto& choice : choices) {
    workspace_bytes = std::max(workspace_bytes, choice.workspaceSize);
  }
  LtTrial trial(shape, static_cast<std::int64_t>(workspace_bytes));
  LORA_BENCH_CUDA_CHECK(cudaDeviceSynchronize());  // the blocks are filled
  std::size_t quickest = 0;
  float least = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const float taken = trial.milliseconds(handle, descriptors, choices[i]);
    if (taken < 0.99F * least) {
      quickest = i;
      least = taken;
    }
  }
  return quickest;
}

}  // namespace

struct CublasLt::State {
  struct Known {
    explicit Known(const LtShape& shape) : descriptors(shape) {}
    LtDescriptors descriptors;
    cublasLtMatmulHeuristicResult_t choice{};
    std::string how;  // it was chosen, "" = as the first
  };

  // The caller holds the mutex.
  Known& known(const LtShape& shape) {
    std::unique_ptr<Known>& found = shapes[shape];
    if (!found) {
      auto made = std::make_unique<Known>(shape);
      constexpr int kMost = 8;
      const bool timed = algorithm == BaseAlgorithm::kQuickest;
      const LtChoices choices = made->descriptors.choices(handle, shape, timed ? kMost : 1);
      std::size_t chosen = 0;
      if (timed) {
        chosen = quickest_of(choices, handle, shape, made->descriptors);
        made->how = fmt::format(", number {} of {} that were timed", chosen + 1, choices.size());
      }
      made->choice = choices[chosen];
      found = std::move(made);
    }
    return *found;
  }

  std::mutex mutex;
  BaseAlgorithm algorithm = BaseAlgorithm::kFirst;
  cublasLtHandle_t handle = nullptr;
  std::map<LtShape, std::unique_ptr<Known>> shapes;
};

CublasLt::CublasLt(BaseAlgorithm algorithm) : state_(std::make_unique<State>()) {
  state_->algorithm = algorithm;
  if (const std::string why_not = why_no_cublaslt(); !why_not.empty()) {
    throw EnvironmentError(why_not);
  }
  if (const cublasStatus_t status = lt_library().create(&state_->handle);
      status != CUBLAS_STATUS_SUCCESS) {
    throw EnvironmentError(fmt::format("cublasLtCreate: {}", lt_library().status_text(status)));
  }
}

CublasLt::~CublasLt() {
  state_->shapes.clear();
  if (state_->handle != nullptr) {
    static_cast<void>(lt_library().destroy(state_->handle));
  }
}

CublasLt::Chosen CublasLt::choose(const LtShape& shape) {
  const std::lock_guard lock(state_->mutex);
  const State::Known& known = state_->known(shape);
  return {fmt::format("cuBLASLt {}, {}{}", lt_library().version(), text_of(known.choice.algo),
                      known.how),
          static_cast<std::int64_t>(known.choice.workspaceSize)};
}

void CublasLt::multiply(const LtShape& shape, const LtOperands& operands, Stream stream) {
  const std::lock_guard lock(state_->mutex);
  State::Known& known = state_->known(shape);
  known.descriptors.multiply(state_->handle, known.choice, operands,
                             static_cast<cudaStream_t>(stream.handle));
}

#else

struct CublasLt::State {};

std::string why_no_cublaslt() {
  const std::string no_gpu = why_no_gpu();
  return no_gpu.empty() ? "this lora-bench was built without cuBLAS" : no_gpu;
}

CublasLt::CublasLt(BaseAlgorithm) { throw EnvironmentError(why_no_cublaslt()); }
CublasLt::~CublasLt() = default;
CublasLt::Chosen CublasLt::choose(const LtShape&) { return {}; }
void CublasLt::multiply(const LtShape&, const LtOperands&, Stream) {}

#endif
}  // namespace lora_bench
