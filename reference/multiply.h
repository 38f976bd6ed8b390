#pragma once

#include <cstdint>

namespace lora_bench::reference {

// c [m, n] = a [m, k] * b [n, k] transposed; all row-major and dense, one thread.
using MultiplyDouble = void (*)(const double* a, const double* b, double* c, std::int64_t m,
                                std::int64_t n, std::int64_t k);
using MultiplyFloat = void (*)(const float* a, const float* b, float* c, std::int64_t m,
                               std::int64_t n, std::int64_t k);

struct Multiply {
  MultiplyDouble in_double = nullptr;
  MultiplyFloat in_float = nullptr;
};

// The widest instruction set that this build has and this machine can run.
[[nodiscard]] const Multiply& multiply();

namespace baseline {
[[nodiscard]] Multiply multiply();
}
namespace avx2 {
[[nodiscard]] Multiply multiply();
}
namespace avx512 {
[[nodiscard]] Multiply multiply();
}

}  // namespace lora_bench::reference
