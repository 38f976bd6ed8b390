#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>

#include "core/dtype.h"
#include "ops/backend.h"

namespace lora_bench {

// "" when cuBLASLt can be used, else the sentence. Looked for at run time, as cuBLAS is.
[[nodiscard]] std::string why_no_cublaslt();

// out[rows, columns] = x[rows, depth] w[columns, depth]^T (+ bias[columns], of the dtype of out)
// (+ addend, as out), rounded once, x with rows `x_stride` and w with rows `w_stride` elements
// apart, out dense, sums in fp32.
struct LtShape {
  Dtype dtype = Dtype::kBf16;
  Dtype out = Dtype::kBf16;
  bool bias = false;
  bool adds = false;
  std::int64_t rows = 0, columns = 0, depth = 0;
  std::int64_t x_stride = 0, w_stride = 0;
  std::int64_t x_alignment = 256;  // of the address of x, in bytes; w and out have 256
  // Whether a product that is rounded before what is added to it would show.
  [[nodiscard]] bool rounds_sums() const { return (bias || adds) && out != Dtype::kFp32; }
  [[nodiscard]] auto in_order() const {
    return std::tie(dtype, out, bias, adds, rows, columns, depth, x_stride, w_stride, x_alignment);
  }
  [[nodiscard]] bool operator<(const LtShape& other) const { return in_order() < other.in_order(); }
};

struct LtOperands {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;
  const void* addend = nullptr;
  void* out = nullptr;
  void* workspace = nullptr;
};

// A handle of cuBLASLt, safe for several threads. For each shape it takes, among the algorithms
// that add split sums in fp32 and round once, the one that the library's heuristic names first, or
// the quickest of eight that it names; and keeps it.
class CublasLt {
 public:
  // Throws EnvironmentError with the reason.
  explicit CublasLt(BaseAlgorithm algorithm = BaseAlgorithm::kFirst);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  struct Chosen {
    std::string text;  // "algo 66, tile 20, stages 36, split-K 1, ..."
    std::int64_t workspace_bytes = 0;
  };
  // Throws CaseError where the library has none.
  [[nodiscard]] Chosen choose(const LtShape& shape);
  // "" where the library has one, else the sentence of that error.
  [[nodiscard]] std::string why_not(const LtShape& shape);
  void multiply(const LtShape& shape, const LtOperands& operands, Stream stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lora_bench
