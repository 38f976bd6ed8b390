#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/dtype.h"
#include "ops/backend.h"

namespace lora_bench {

// "" when cuBLAS can be used, else the sentence. The library is looked for at run time, so that the
// tool starts without it.
[[nodiscard]] std::string why_no_cublas();

// out[rows, columns] = left[rows, depth] right[columns, depth]^T, rows `..._stride` elements apart,
// `left` and `right` of one dtype, sums and `out` in fp32.
struct MatrixProduct {
  Dtype dtype = Dtype::kBf16;
  const void* left = nullptr;
  const void* right = nullptr;
  float* out = nullptr;
  std::int64_t left_stride = 0, right_stride = 0, out_stride = 0;
  std::int64_t rows = 0, columns = 0, depth = 0;
};

// A handle of cuBLAS. It allocates nothing once it is made: its workspace is given.
class Cublas {
 public:
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

  // Throws EnvironmentError with the reason.
  Cublas();
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  // Enqueues the products that follow on `stream`; `workspace` has kWorkspaceBytes.
  void use(Stream stream, void* workspace);
  // Throws CaseError. In fp32 no operand is rounded to a narrower type.
  void multiply(const MatrixProduct& product);

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace lora_bench
