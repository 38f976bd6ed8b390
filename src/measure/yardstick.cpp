#include "measure/clock.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "ops/thread_pool.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kPieces = 64;
constexpr std::size_t kWordsOfPiece = std::size_t{1} << 17;  // 1 MiB: all pieces exceed most caches
constexpr int kStepsOfPiece = 1 << 15;
constexpr int kWakes = 200;
constexpr int kPasses = 3;

class Yardstick {
 public:
  double seconds() {
    std::array<double, kPasses> passes{};
    for (double& pass : passes) {
      const auto start = std::chrono::steady_clock::now();
      work();
      pass = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    std::sort(passes.begin(), passes.end());
    return passes[kPasses / 2];
  }

 private:
  void work() {
    ThreadPool& pool = shared_thread_pool();
    pool.run(kPieces, [&](std::int64_t piece) {
      const std::uint64_t* words = memory_.data() + static_cast<std::size_t>(piece) * kWordsOfPiece;
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < kWordsOfPiece; ++i) {
        sum += words[i];
      }
      double chain = 1;
      for (int step = 0; step < kStepsOfPiece; ++step) {
        chain = chain * 0.999 + 0.001;
      }
      results_[static_cast<std::size_t>(piece)] = chain + static_cast<double>(sum);
    });
    for (int wake = 0; wake < kWakes; ++wake) {
      pool.run(pool.threads(),
               [&](std::int64_t item) { results_[static_cast<std::size_t>(item)] += 1; });
    }
  }

  std::vector<std::uint64_t> memory_ = std::vector<std::uint64_t>(kPieces * kWordsOfPiece, 1);
  std::vector<double> results_ = std::vector<double>(
      static_cast<std::size_t>(std::max<std::int64_t>(kPieces, shared_thread_pool().threads())));
};

}  // namespace

double yardstick_seconds() {
  static Yardstick yardstick;  // its memory is written once
  return yardstick.seconds();
}

}  // namespace lora_bench
