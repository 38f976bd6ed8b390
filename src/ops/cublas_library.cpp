#include "ops/cublas_library.h"

#include "core/error.h"
#include "device/facts.h"
#ifdef LORA_BENCH_HAVE_CUBLAS
#include <cublas_v2.h>
#include <fmt/format.h>

#include "device/found_library.h"
#include "ops/cublas_types.h"
#endif

namespace lora_bench {
#ifdef LORA_BENCH_HAVE_CUBLAS
namespace {

// The functions of the library that are used here; `missing` says why there are none.
struct Library {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&cublasSetMathMode) set_math_mode = nullptr;
  decltype(&cublasGemmEx_64) multiply = nullptr;
  decltype(&cublasGetStatusString) status_text = nullptr;
  std::string missing;
};

Library load_library() {
  FoundLibrary found("cuBLAS", "libcublas.so", CUBLAS_VER_MAJOR);
  Library library;
  found.find("cublasCreate_v2", library.create);
  found.find("cublasDestroy_v2", library.destroy);
  found.find("cublasSetStream_v2", library.set_stream);
  found.find("cublasSetWorkspace_v2", library.set_workspace);
  found.find("cublasSetMathMode", library.set_math_mode);
  found.find("cublasGemmEx_64", library.multiply);
  found.find("cublasGetStatusString", library.status_text);
  library.missing = found.missing();
  return library;
}

const Library& library() {
  static const Library kLibrary = load_library();
  return kLibrary;
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw CaseError(fmt::format("{}: {}", what, library().status_text(status)));
  }
}

}  // namespace

std::string why_no_cublas() {
  const std::string no_gpu = why_no_gpu();
  return no_gpu.empty() ? library().missing : no_gpu;
}

struct Cublas::Handle {
  cublasHandle_t handle = nullptr;
};

Cublas::Cublas() : handle_(std::make_unique<Handle>()) {
  if (const std::string why_not = why_no_cublas(); !why_not.empty()) {
    throw EnvironmentError(why_not);
  }
  if (const cublasStatus_t status = library().create(&handle_->handle);
      status != CUBLAS_STATUS_SUCCESS) {
    throw EnvironmentError(fmt::format("cublasCreate: {}", library().status_text(status)));
  }
  check(library().set_math_mode(handle_->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
        "cublasSetMathMode");
}

Cublas::~Cublas() {
  if (handle_->handle != nullptr) {
    static_cast<void>(library().destroy(handle_->handle));
  }
}

void Cublas::use(Stream stream, void* workspace) {
  check(library().set_stream(handle_->handle, static_cast<cudaStream_t>(stream.handle)),
        "cublasSetStream");
  // After the stream, which takes a workspace away.
  check(library().set_workspace(handle_->handle, workspace,
                                static_cast<std::size_t>(kWorkspaceBytes)),
        "cublasSetWorkspace");
}

// cuBLAS counts by columns: it sees every matrix transposed, and the product with its factors
// exchanged.
void Cublas::multiply(const MatrixProduct& product) {
  const float one = 1;
  const float zero = 0;
  const cudaDataType_t type = cublas_type(product.dtype);
  check(library().multiply(handle_->handle, CUBLAS_OP_T, CUBLAS_OP_N, product.columns, product.rows,
                           product.depth, &one, product.right, type, product.right_stride,
                           product.left, type, product.left_stride, &zero, product.out, CUDA_R_32F,
                           product.out_stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
}

#else

struct Cublas::Handle {};

std::string why_no_cublas() {
  const std::string no_gpu = why_no_gpu();
  return no_gpu.empty() ? "this lora-bench was built without cuBLAS" : no_gpu;
}

Cublas::Cublas() { throw EnvironmentError(why_no_cublas()); }
Cublas::~Cublas() = default;
void Cublas::use(Stream, void*) {}
void Cublas::multiply(const MatrixProduct&) {}

#endif
}  // namespace lora_bench
