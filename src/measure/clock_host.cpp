#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "device/system_files.h"
#include "measure/clock.h"
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

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double number_or_unknown(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end == text.c_str() ? kUnknown : value;
}

double frequency_mhz() {
  const double khz =
      number_or_unknown(read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"));
  return khz > 0 ? khz / 1000 : number_or_unknown(value_of(read_text("/proc/cpuinfo"), "cpu MHz"));
}

std::string governor() {
  std::string text = read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  text.erase(std::remove(text.begin(), text.end(), '\n'), text.end());
  return text;
}

class HostClock final : public Clock {
 public:
  void load(int slot, std::vector<Launch> sequence) override {
    sequences_[slot] = std::move(sequence);
  }

  [[nodiscard]] double run_seconds(int slot) override {
    const std::vector<Launch>& sequence = loaded_in(sequences_, slot);
    const double start = now_seconds();
    for (const Launch& launch : sequence) {
      launch(Stream{});
    }
    return now_seconds() - start;
  }

  [[nodiscard]] Conditions conditions() override {
    Conditions now;
    now.clock_mhz = frequency_mhz();
    now.temperature_c = kUnknown;
    now.power_w = kUnknown;
    now.load = number_or_unknown(read_text("/proc/loadavg")) / usable_cores();
    now.governor = governor();
    now.yardstick_s = yardstick_seconds();
    now.cpu = own_cpu_times();
    return now;
  }

  [[nodiscard]] double resolution_seconds() const override {
    static const double kResolution = [] {
      double smallest = 1;
      for (int i = 0; i < 100; ++i) {
        const double start = steady_seconds();
        double end = start;
        while (end == start) {
          end = steady_seconds();
        }
        smallest = std::min(smallest, end - start);
      }
      return smallest;
    }();
    return kResolution;
  }

  [[nodiscard]] double now_seconds() override { return steady_seconds(); }
  void rest(double seconds) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

 private:
  // From the first use on: seconds since boot would lose digits in a double.
  static double steady_seconds() {
    using Now = std::chrono::steady_clock;
    static const Now::time_point kStart = Now::now();
    return std::chrono::duration<double>(Now::now() - kStart).count();
  }

  std::map<int, std::vector<Launch>> sequences_;
};

}  // namespace

double yardstick_seconds() {
  static Yardstick yardstick;  // its memory is written once
  return yardstick.seconds();
}

std::unique_ptr<Clock> make_host_clock() { return std::make_unique<HostClock>(); }

}  // namespace lora_bench
