#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "reference/multiply.h"
#include "reference/parallel.h"
#include "reference/reference.h"

namespace lora_bench::reference {

double product_seconds(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr int kRuns = 5;  // the first warms caches and clocks; the best of them is the ceiling
  const std::vector<float> a(static_cast<std::size_t>(m * k), 0.5F);
  const std::vector<float> b(static_cast<std::size_t>(n * k), 0.25F);
  std::vector<float> c(static_cast<std::size_t>(m * n));
  const std::int64_t threads = std::min(available_threads(), std::max<std::int64_t>(1, m));
  const auto one_share = [&](std::int64_t share) {
    const std::int64_t first = m * share / threads;
    const std::int64_t rows = m * (share + 1) / threads - first;
    multiply().in_float(a.data() + first * k, b.data(), c.data() + first * n, rows, n, k);
  };
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    parallel(threads, threads, one_share);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  return best;
}

}  // namespace lora_bench::reference
