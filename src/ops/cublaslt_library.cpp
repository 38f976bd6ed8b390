#include "ops/cublaslt_library.h"

#include "core/error.h"
#include "device/facts.h"
#ifdef LORA_BENCH_HAVE_CUBLAS
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "device/found_library.h"
#include "ops/cublas_types.h"
#include "ops/cublaslt_trial.h"
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

// How a choice multiplies, to be tried.
LtMultiply multiply_by(const cublasLtMatmulHeuristicResult_t& choice, cublasLtHandle_t handle,
                       LtDescriptors& descriptors) {
  return [&choice, handle, &descriptors](const LtOperands& operands, cudaStream_t stream) {
    descriptors.multiply(handle, choice, operands, stream);
  };
}

// Leaves at most `most` of the choices, the first that round a sum with added terms once. Throws
// CaseError where none does.
void keep_right(LtChoices& choices, cublasLtHandle_t handle, const LtShape& shape,
                LtDescriptors& descriptors, std::size_t most) {
  LtChoices right;
  for (const auto& choice : choices) {
    if (right.size() < most && rounds_once(shape, static_cast<std::int64_t>(choice.workspaceSize),
                                           multiply_by(choice, handle, descriptors))) {
      right.push_back(choice);
    }
  }
  if (right.empty()) {
    throw CaseError(fmt::format(
        "none of the {} algorithms that cuBLASLt names for {} x {} x {} in {} rounds its sum with "
        "a bias once; layer.bias: false, or other sizes",
        choices.size(), shape.rows, shape.columns, shape.depth, name(shape.dtype)));
  }
  choices = std::move(right);
}

std::size_t quickest_choice(const LtChoices& choices, cublasLtHandle_t handle, const LtShape& shape,
                            LtDescriptors& descriptors) {
  std::size_t workspace_bytes = 0;
  std::vector<LtMultiply> ways;
  for (const auto& choice : choices) {
    workspace_bytes = std::max(workspace_bytes, choice.workspaceSize);
    ways.push_back(multiply_by(choice, handle, descriptors));
  }
  return quickest_of(ways, shape, static_cast<std::int64_t>(workspace_bytes));
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
      LtChoices choices =
          made->descriptors.choices(handle, shape, timed || shape.rounds_sums() ? kMost : 1);
      keep_right(choices, handle, shape, made->descriptors, timed ? kMost : 1);
      std::size_t chosen = 0;
      if (timed) {
        chosen = quickest_choice(choices, handle, shape, made->descriptors);
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

std::string CublasLt::why_not(const LtShape& shape) {
  try {
    static_cast<void>(choose(shape));
  } catch (const CaseError& error) {
    return error.what();
  }
  return "";
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
std::string CublasLt::why_not(const LtShape&) { return why_no_cublaslt(); }
void CublasLt::multiply(const LtShape&, const LtOperands&, Stream) {}

#endif
}  // namespace lora_bench
