#include "measure/ceilings.h"

#ifdef LORA_BENCH_HAVE_CUDA

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "measure/cuda_probe_bench.h"

namespace lora_bench {
namespace {

using kernels::Number;
using kernels::ProbeGrid;
using kernels::Start;

constexpr std::int64_t kFewBytes = 16;
// Bytes that come again and that the cache cannot keep are measured in these sizes.
constexpr std::int64_t kFewestAgainBytes = std::int64_t{16} << 20;
constexpr std::int64_t kMostAgainBytes = std::int64_t{512} << 20;
// Between these sizes the cost of a launch and that of the bytes meet.
constexpr std::int64_t kFewestBentBytes = std::int64_t{512} << 10;
constexpr std::int64_t kMostSmallBytes = std::int64_t{8} << 20;

std::vector<Launch> repeated(const Launch& launch, std::int64_t times) {
  return std::vector<Launch>(static_cast<std::size_t>(times), launch);
}

// Ways to begin that can be the best. Launches that run at the same time would share what they read
// were it the same; small ones gain the most from an early start.
std::vector<Start> starts_for(std::int64_t bytes, bool cold) {
  if (!cold) {
    return {Start::kApart, Start::kLinked};
  }
  if (bytes <= kMostSmallBytes) {
    return {Start::kLinked, Start::kEarly};
  }
  return {Start::kApart, Start::kLinked, Start::kEarly};
}

// Bytes read, or read and written back, in plain streams. Seconds a launch.
class StreamProbe {
 public:
  explicit StreamProbe(ProbeBench& bench) : bench_(bench) {}

  // Cold: the launches walk through all of the memory, so that nothing is read again before more
  // than three caches of other data. Hot: the same bytes again and again. The best grid counts,
  // however it starts: a ceiling must not be lower than what a well-chosen kernel reaches.
  double best_read(std::int64_t bytes, bool cold) {
    const std::int64_t launches = cold ? bench_.cold_launches(bytes) : bench_.launches_over(bytes);
    double best = std::numeric_limits<double>::infinity();
    for (const ProbeGrid& blocks : grids_for(bytes)) {
      for (const Start start : starts_for(bytes, cold)) {
        std::vector<Launch> sequence;
        for (std::int64_t i = 0; i < launches; ++i) {
          sequence.push_back(bench_.reading(cold ? i * bytes : 0, bytes, blocks, start));
        }
        best = std::min(best, bench_.per_launch(std::move(sequence)));
      }
    }
    return best;
  }

  // The same bytes again and again, however many of them the cache keeps.
  double best_again(std::int64_t bytes) {
    std::vector<std::int64_t> most_kept{bytes};
    for (const double share : {0.5, 0.6, 0.7, 0.8, 1.0}) {
      most_kept.push_back(
          static_cast<std::int64_t>(share * static_cast<double>(bench_.facts().cache_bytes)));
    }
    double best = best_read(bytes, false);
    for (const std::int64_t kept : most_kept) {
      std::vector<Launch> sequence;
      for (std::int64_t i = 0; i < std::max<std::int64_t>(2, bench_.launches_over(bytes)); ++i) {
        sequence.emplace_back([this, bytes, kept, i](Stream stream) {
          LORA_BENCH_CUDA_CHECK(kernels::launch_read_again(bench_.data(0), bytes, kept, i % 2 == 1,
                                                           bench_.sink(), cuda_stream(stream)));
        });
      }
      best = std::min(best, bench_.per_launch(std::move(sequence)));
    }
    return best;
  }

  // Read and written back, the same again and again.
  double best_update(std::int64_t bytes) {
    const std::vector<ProbeGrid> grids =
        bytes == kFewBytes ? std::vector<ProbeGrid>{{1, 32}} : grids_for(bytes);
    double best = std::numeric_limits<double>::infinity();
    for (const ProbeGrid& blocks : grids) {
      for (const Start start : {Start::kApart, Start::kLinked}) {
        const Launch update = [this, bytes, blocks, start](Stream stream) {
          LORA_BENCH_CUDA_CHECK(kernels::launch_update_stream(bench_.data(0), bytes, blocks, start,
                                                              cuda_stream(stream)));
        };
        best = std::min(best, bench_.per_launch(repeated(update, bench_.launches_over(bytes))));
      }
    }
    return best;
  }

 private:
  // Grids to try for so many bytes: one to eight blocks on each multiprocessor, as far as each
  // thread has something to read, and as few blocks as read all of it in one to eight rounds of
  // loads. Where little is read, few blocks let the most launches overlap.
  [[nodiscard]] std::vector<ProbeGrid> grids_for(std::int64_t bytes) const {
    constexpr std::int64_t kThreads = 256;
    constexpr std::int64_t kVectorBytes = 16;
    constexpr std::int64_t kRoundBytes = kThreads * 8 * kVectorBytes;  // of a block of read_stream
    const auto most = static_cast<std::int64_t>(bench_.grid(8).blocks);
    std::set<std::int64_t> counts;
    for (const int times : {1, 2, 4, 8}) {
      counts.insert(std::clamp<std::int64_t>(bytes / (kRoundBytes * times), 1, most));
      if (bench_.grid(times).blocks * kThreads * kVectorBytes <= bytes) {
        counts.insert(bench_.grid(times).blocks);
      }
    }
    std::vector<ProbeGrid> grids;
    for (const std::int64_t blocks : counts) {
      grids.push_back({static_cast<unsigned>(blocks), kThreads});
    }
    return grids;
  }

  ProbeBench& bench_;
};

// The operands of a step, each touched once and nothing computed. Seconds a launch.
class StepProbe {
 public:
  explicit StepProbe(ProbeBench& bench) : bench_(bench) {}

  // The weights of a step, other ones in each launch, and so many bytes of y that each launch
  // updates; 0: none.
  double touch_weights(std::int64_t bytes, std::int64_t y_bytes = 0) {
    kernels::TouchParams params = bench_.step_of(y_bytes > 0 ? 1 : 0);
    if (y_bytes > 0) {
      params.rows[params.operands++] = {
          bench_.data(bench_.room() - ProbeBench::kRowBytes), y_bytes, y_bytes, 0, true, true};
    }
    params.parts = 1;
    std::vector<Launch> sequence;
    for (std::int64_t i = 0; i < bench_.cold_launches(bytes); ++i) {
      params.part[0] = {bench_.data(i * bytes), bytes, 0, 0};
      sequence.push_back(touch(params));
    }
    return bench_.per_launch(std::move(sequence));
  }

  // A few weights and a tile of y, in vectors of each width: the narrower a vector, the sooner a
  // warp is through with its tile.
  double best_weights_and_tile() {
    double best = std::numeric_limits<double>::infinity();
    for (const std::int64_t vector : {16, 8, 4}) {
      for (const std::int64_t bytes : {ProbeBench::kFewestBytes, 2 * ProbeBench::kFewestBytes}) {
        const std::int64_t odd_bytes = vector == 16 ? 0 : vector;  // no wider vector divides these
        best =
            std::min(best, touch_weights(bytes - odd_bytes, kernels::kTouchTileVectors * vector));
      }
    }
    return best;
  }

  // The rows of one step that is repeated: x read, y updated, or both.
  double touch_rows(std::int64_t rows, bool reads_x, bool updates_y) {
    kernels::TouchParams params = bench_.step_of(rows);
    const auto add = [&](std::int64_t offset, bool writes) {
      params.rows[params.operands++] = {
          bench_.data(offset), ProbeBench::kRowBytes, ProbeBench::kRowBytes, 0, true, writes};
    };
    if (reads_x) {
      add(0, false);
    }
    if (updates_y) {
      add(reads_x ? rows * ProbeBench::kRowBytes : 0, true);
    }
    return bench_.per_launch(
        repeated(touch(params), bench_.launches_over(rows * ProbeBench::kRowBytes)));
  }

  // So many bytes between cores and cache, read, written or both.
  double best_touch(std::int64_t bytes) {
    const std::int64_t rows = bytes / ProbeBench::kRowBytes;
    double best = touch_rows(rows, true, false);
    if (rows >= 4) {  // as many bytes: a row of y passes twice
      best = std::min(
          {best, touch_rows(rows / 2, false, true), touch_rows((rows + 2) / 3, true, true)});
    }
    return best;
  }

 private:
  [[nodiscard]] Launch touch(const kernels::TouchParams& params) const {
    return [params, multiprocessors = bench_.facts().multiprocessors](Stream stream) {
      LORA_BENCH_CUDA_CHECK(kernels::launch_touch(params, multiprocessors, cuda_stream(stream)));
    };
  }

  ProbeBench& bench_;
};

double empty_launch_seconds(ProbeBench& bench) {
  double best = std::numeric_limits<double>::infinity();
  for (const Start start : {Start::kApart, Start::kLinked}) {
    const Launch empty = [start](Stream stream) {
      LORA_BENCH_CUDA_CHECK(kernels::launch_empty(start, cuda_stream(stream)));
    };
    best = std::min(best, bench.per_launch(repeated(empty, 256)));
  }
  return best;
}

// Bytes a second, read and written.
double device_copy_rate(ProbeBench& bench) {
  const std::int64_t half = bench.room() / 2 / 256 * 256;
  double best = std::numeric_limits<double>::infinity();
  for (const int blocks : {2, 4, 8}) {
    best = std::min(best, bench.per_launch({[&bench, half, blocks](Stream stream) {
      LORA_BENCH_CUDA_CHECK(kernels::launch_copy(bench.data(half), bench.data(0), half,
                                                 bench.grid(blocks), cuda_stream(stream)));
    }}));
  }
  return 2 * static_cast<double>(half) / best;
}

// Operations a second.
double peak_rate(ProbeBench& bench, Number number) {
  constexpr int kRounds = 2000;
  constexpr unsigned kThreads = 256;
  const auto capability = bench.facts().compute_capability;
  const double per_round = kernels::peak_probe(number, capability).flops_per_warp_round;
  double best = 0;
  for (const int blocks : {1, 2, 4}) {
    const ProbeGrid grid = bench.grid(blocks, kThreads);
    const double seconds = bench.per_launch({[&bench, number, capability, grid](Stream stream) {
      LORA_BENCH_CUDA_CHECK(kernels::launch_peak(number, capability, kRounds,
                                                 reinterpret_cast<float*>(bench.sink()), grid,
                                                 cuda_stream(stream)));
    }});
    const double warps = static_cast<double>(grid.blocks) * kThreads / 32;
    best = std::max(best, warps * kRounds * per_round / seconds);
  }
  return best;
}

// Holds probes against each other: what the best of them reaches is the ceiling.
class DeviceProbe {
 public:
  explicit DeviceProbe(const DeviceFacts& facts) : bench_(facts) {}

  [[nodiscard]] Ceilings measure() {
    Ceilings ceilings;
    ceilings.identity = bench_.facts().identity;
    ceilings.launch_seconds = empty_launch_seconds(bench_);
    ceilings.update_launch_seconds = update_launch_seconds();
    for (const std::int64_t bytes : sizes()) {
      ceilings.memory_curve.push_back({bytes, best_in_memory(bytes)});
      ceilings.cache_curve.push_back({bytes, best_in_cache(bytes)});
      if (bytes >= kFewestAgainBytes && bytes < kMostAgainBytes) {
        ceilings.again_curve.push_back({bytes, streams_.best_again(bytes)});
      }
    }
    // Small sizes came first and take little: once more, now that the clocks have risen for sure.
    for (std::size_t i = 0; i < ceilings.memory_curve.size(); ++i) {
      Ceilings::Point& memory = ceilings.memory_curve[i];
      Ceilings::Point& cache = ceilings.cache_curve[i];
      if (memory.bytes <= kMostSmallBytes) {
        memory.seconds = std::min(memory.seconds, best_in_memory(memory.bytes));
        cache.seconds = std::min(cache.seconds, best_in_cache(cache.bytes));
      }
    }
    ceilings.launch_seconds = std::min(ceilings.launch_seconds, empty_launch_seconds(bench_));
    ceilings.update_launch_seconds =
        std::min(ceilings.update_launch_seconds, update_launch_seconds());
    settle_curves(ceilings);
    make_monotone(ceilings.again_curve);
    ceilings.copy_bytes_per_s = device_copy_rate(bench_);
    for (const auto& [dtype, number] :
         {std::pair{Dtype::kBf16, Number::kBf16}, std::pair{Dtype::kFp16, Number::kFp16},
          std::pair{Dtype::kFp32, Number::kFp32}}) {
      ceilings.peaks.push_back({dtype, peak_rate(bench_, number)});
    }
    return ceilings;
  }

 private:
  // Sizes to measure. Where the curve bends a line between two sizes lies above it, so they are
  // closer to each other there.
  [[nodiscard]] std::vector<std::int64_t> sizes() const {
    const std::int64_t most = std::min(kLargestReadBytes, bench_.room());
    std::vector<std::int64_t> sizes;
    for (std::int64_t bytes = ProbeBench::kFewestBytes; bytes <= most; bytes *= 2) {
      sizes.push_back(bytes);
      if (bytes >= kFewestBentBytes && bytes < kMostAgainBytes) {
        sizes.insert(sizes.end(), {bytes / 4 * 5, bytes / 2 * 3, bytes / 4 * 7});
      }
    }
    std::erase_if(sizes, [most](std::int64_t bytes) { return bytes > most; });
    return sizes;
  }

  // Seconds to read so many bytes from memory, as a plain stream or as the weights of a step.
  double best_in_memory(std::int64_t bytes) {
    return std::min(streams_.best_read(bytes, true), steps_.touch_weights(bytes));
  }

  double update_launch_seconds() {
    // Steps with weights were seen to be quicker than an update alone.
    return std::min({streams_.best_update(kFewBytes), steps_.touch_rows(1, false, true),
                     steps_.best_weights_and_tile()});
  }

  double best_in_cache(std::int64_t bytes) {
    return std::min({streams_.best_read(bytes, false), streams_.best_update(bytes / 2),
                     steps_.best_touch(bytes)});
  }

  ProbeBench bench_;
  StreamProbe streams_{bench_};
  StepProbe steps_{bench_};
};

}  // namespace

Ceilings measure_device_ceilings() { return DeviceProbe(gpu_facts()).measure(); }

}  // namespace lora_bench

#else

#include "core/error.h"

namespace lora_bench {

Ceilings measure_device_ceilings() { throw EnvironmentError(why_no_gpu()); }

}  // namespace lora_bench

#endif
