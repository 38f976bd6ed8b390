// Included once per instruction set, with LORA_BENCH_ISA and Eigen defined as names of that set:
// the linker merges templates of one name, and would otherwise hand code for a wider set to a
// machine that cannot run it. For the same reason nothing of the standard library is used here.
#include <Eigen/Core>

#include "reference/multiply.h"

namespace lora_bench::reference::LORA_BENCH_ISA {
namespace {

template <typename Scalar>
void product(const Scalar* a, const Scalar* b, Scalar* c, std::int64_t m, std::int64_t n,
             std::int64_t k) {
  using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Matrix> left(a, m, k);
  const Eigen::Map<const Matrix> right(b, n, k);
  Eigen::Map<Matrix>(c, m, n).noalias() = left * right.transpose();
}

}  // namespace

// NOLINTNEXTLINE(misc-definitions-in-headers): each includer gives it another name
Multiply multiply() { return {&product<double>, &product<float>}; }

}  // namespace lora_bench::reference::LORA_BENCH_ISA
