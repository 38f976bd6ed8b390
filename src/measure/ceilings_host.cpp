#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "device/system_files.h"
#include "measure/ceilings.h"
#include "measure/clock.h"
#include "ops/cpu_kernels.h"
#include "ops/thread_pool.h"
#include "reference/reference.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kSmallestReadBytes = std::int64_t{64} << 10;
constexpr int kRepeats = 3;  // the best counts: a ceiling is what the machine can do
constexpr int kSweeps = 3;   // over all sizes, so that what disturbs a while spoils none
constexpr double kLeastRunSeconds = 1e-3;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <typename Body>
double best_seconds(Body body) {
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

// Memory on large pages where the system gives them, every page touched.
class StreamBuffer {
 public:
  explicit StreamBuffer(std::int64_t bytes) : bytes_(bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
      throw EnvironmentError("no memory to measure the ceilings of the CPU");
    }
    data_ = static_cast<char*>(mapped);
    madvise(data_, size, MADV_HUGEPAGE);
    std::memset(data_, 1, size);
  }
  ~StreamBuffer() { munmap(data_, static_cast<std::size_t>(bytes_)); }
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;
  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_;
  char* data_ = nullptr;
};

// Shares are whole blocks of 4 KiB.
std::int64_t share_start(std::int64_t bytes, std::int64_t share, std::int64_t shares) {
  return bytes / 4096 * share / shares * 4096;
}

void read_once(ThreadPool& pool, std::int64_t shares, const char* from, std::int64_t bytes) {
  pool.run(shares, [&](std::int64_t share) {
    const std::int64_t first = share_start(bytes, share, shares);
    static_cast<void>(
        cpu_kernels().read_stream(from + first, share_start(bytes, share + 1, shares) - first));
  });
}

// One core may beat all where waking the others costs more than it brings: microseconds.
template <typename Measure>
double best_of_sharings(ThreadPool& pool, std::int64_t bytes, Measure measure) {
  constexpr std::int64_t kMostOfOneCore = std::int64_t{8} << 20;
  const double best = measure(pool.threads());
  return pool.threads() > 1 && bytes <= kMostOfOneCore ? std::min(best, measure(1)) : best;
}

// The windows of one run follow one another through a buffer beyond three caches, as rotation does.
double cold_seconds(ThreadPool& pool, const StreamBuffer& buffer, std::int64_t beyond_caches,
                    std::int64_t bytes) {
  const std::int64_t windows =
      std::max<std::int64_t>(1, std::min(beyond_caches, buffer.bytes()) / bytes);
  return best_of_sharings(pool, bytes, [&](std::int64_t shares) {
    return best_seconds([&] {
             for (std::int64_t window = 0; window < windows; ++window) {
               read_once(pool, shares, buffer.data() + window * bytes, bytes);
             }
           }) /
           static_cast<double>(windows);
  });
}

double hot_seconds(ThreadPool& pool, const StreamBuffer& buffer, std::int64_t bytes) {
  return best_of_sharings(pool, bytes, [&](std::int64_t shares) {
    const auto once = [&] { read_once(pool, shares, buffer.data(), bytes); };
    const double estimate = best_seconds(once);
    const auto times = static_cast<std::int64_t>(kLeastRunSeconds / estimate) + 1;
    return best_seconds([&] {
             for (std::int64_t time = 0; time < times; ++time) {
               once();
             }
           }) /
           static_cast<double>(times);
  });
}

void measure_curves(ThreadPool& pool, const StreamBuffer& buffer, std::int64_t beyond_caches,
                    std::int64_t largest, Ceilings& into) {
  for (std::int64_t bytes = kSmallestReadBytes; bytes <= largest; bytes *= 2) {
    into.memory_curve.push_back({bytes, std::numeric_limits<double>::infinity()});
  }
  into.cache_curve = into.memory_curve;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::size_t i = 0; i < into.memory_curve.size(); ++i) {
      Ceilings::Point& cold = into.memory_curve[i];
      Ceilings::Point& hot = into.cache_curve[i];
      cold.seconds = std::min(cold.seconds, cold_seconds(pool, buffer, beyond_caches, cold.bytes));
      if (hot.bytes < beyond_caches) {  // nothing larger is hot
        hot.seconds = std::min(hot.seconds, hot_seconds(pool, buffer, hot.bytes));
      }
    }
  }
  settle_curves(into);
}

// Threads of other processes that run or want to, per core: the mean of a short while in which all
// of ours sleep. The load average would count what this process did in the last minute.
double load_of_others() {
  constexpr int kLooks = 40;
  double running = 0;
  for (int look = 0; look < kLooks; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    running += running_others(read_text("/proc/loadavg"));
  }
  return running / kLooks / usable_cores();
}

double copy_rate(ThreadPool& pool, const StreamBuffer& buffer) {
  const std::int64_t bytes = buffer.bytes() / 2 / 4096 * 4096;
  const double seconds = best_seconds([&] {
    pool.run(pool.threads(), [&](std::int64_t share) {
      const std::int64_t first = share_start(bytes, share, pool.threads());
      const std::int64_t end = share_start(bytes, share + 1, pool.threads());
      std::memcpy(buffer.data() + bytes + first, buffer.data() + first,
                  static_cast<std::size_t>(end - first));
    });
  });
  return 2 * static_cast<double>(bytes) / seconds;
}

// Each core by itself and in short runs, so that a neighbour's work cannot lower the peak.
double register_peak(ThreadPool& pool) {
  constexpr std::int64_t kRounds = 50000;
  constexpr int kRuns = 50;
  std::mutex lock;
  double best = 0;
  pool.run(pool.threads(), [&](std::int64_t) {
    for (int run = 0; run < kRuns; ++run) {
      const auto start = std::chrono::steady_clock::now();
      const double flops = cpu_kernels().spin_flops(kRounds);
      const double rate = flops / seconds_since(start);
      const std::lock_guard guard(lock);
      best = std::max(best, rate);
    }
  });
  return best * pool.threads();
}

double product_peak() {
  double best = 0;
  for (const std::int64_t size : {512, 1024, 1536}) {
    const double flops = 2.0 * static_cast<double>(size * size * size);
    best = std::max(best, flops / reference::product_seconds(size, size, size));
  }
  return best;
}

double launch_cost() {
  constexpr std::size_t kEmptyLaunches = 10000;
  const std::unique_ptr<Clock> clock = make_host_clock();
  clock->load(0, std::vector<Launch>(kEmptyLaunches, [](Stream) {}));
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    best = std::min(best, clock->run_seconds(0));
  }
  return best / static_cast<double>(kEmptyLaunches);
}

}  // namespace

Ceilings measure_host_ceilings() {
  const DeviceFacts facts = cpu_facts();
  ThreadPool& pool = shared_thread_pool();
  const std::int64_t beyond_caches = 3 * facts.cache_bytes + (std::int64_t{4} << 20);
  const std::int64_t affordable = std::max(available_memory_bytes() / 4, kSmallestReadBytes);
  const std::int64_t largest = std::min(kLargestReadBytes, affordable);
  const StreamBuffer buffer(std::min(std::max(largest, beyond_caches), affordable));

  Ceilings ceilings;
  ceilings.identity = facts.identity;
  ceilings.load = load_of_others();
  measure_curves(pool, buffer, beyond_caches, largest, ceilings);
  ceilings.copy_bytes_per_s = copy_rate(pool, buffer);
  ceilings.launch_seconds = ceilings.update_launch_seconds = launch_cost();
  ceilings.product_flops_per_s = product_peak();
  // The cores widen bf16 and fp16 to fp32 before they multiply: one peak for all three.
  const double peak = std::max(register_peak(pool), ceilings.product_flops_per_s);
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    ceilings.peaks.push_back({dtype, peak});
  }
  ceilings.load = std::max(ceilings.load, load_of_others());
  return ceilings;
}

}  // namespace lora_bench
