#include "measure/ceilings.h"

#ifdef LORA_BENCH_HAVE_CUDA

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>

#include "device/cuda_handles.h"
#include "device/memory.h"
#include "kernels/measure/probes.h"
#include "measure/clock.h"
#include "measure/statistics.h"

namespace lora_bench {
namespace {

using kernels::Number;
using kernels::ProbeGrid;
using kernels::Start;

constexpr int kReplays = 15;
// Launches in one replay where memory allows, so that what a replay costs beside them counts for
// nothing: 0.1 us a launch with 32 of them.
constexpr std::int64_t kLaunches = 256;
constexpr std::int64_t kFewBytes = 16;
// Bytes that come again and that the cache cannot keep are measured in these sizes.
constexpr std::int64_t kFewestAgainBytes = std::int64_t{16} << 20;
constexpr std::int64_t kMostAgainBytes = std::int64_t{512} << 20;
// Reading less than this costs a launch and nothing else.
constexpr std::int64_t kFewestBytes = std::int64_t{256} << 10;
// Between these sizes the cost of a launch and that of the bytes meet.
constexpr std::int64_t kFewestBentBytes = std::int64_t{512} << 10;
constexpr std::int64_t kMostSmallBytes = std::int64_t{8} << 20;
// Rows as a step has them, for the probe that touches all operands of one.
constexpr std::int64_t kRowBytes = 4096;
constexpr std::int64_t kMostProbeRows = kLargestReadBytes / kRowBytes;

cudaStream_t handle(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// Device memory for the time of the measurement.
class Block {
 public:
  Block(Memory& memory, std::int64_t bytes) : memory_(memory), data_(memory.allocate(bytes)) {}
  ~Block() { memory_.release(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  [[nodiscard]] std::byte* at(std::int64_t offset) const {
    return static_cast<std::byte*>(data_) + offset;
  }

 private:
  Memory& memory_;
  void* data_;
};

class DeviceProbe {
 public:
  explicit DeviceProbe(const DeviceFacts& facts)
      : facts_(facts),
        clock_(make_device_clock(LaunchMode::kGraph)),
        memory_(make_device_memory()),
        room_(room_bytes(facts, *memory_)),
        data_(*memory_, room_),
        rows_(*memory_, kMostProbeRows * std::int64_t{sizeof(std::int32_t)}),
        few_(*memory_, 256),
        sink_(*memory_, 256) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(kMostProbeRows));
    std::iota(numbers.begin(), numbers.end(), 0);
    memory_->copy_in(rows_.at(0), numbers.data(),
                     kMostProbeRows * std::int64_t{sizeof(std::int32_t)});
    const CudaStream stream = make_cuda_stream();
    LORA_BENCH_CUDA_CHECK(
        kernels::launch_fill_random(data_.at(0), room_, 1, grid(8), stream.get()));
    LORA_BENCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    warm_up();
  }

  [[nodiscard]] Ceilings measure() {
    Ceilings ceilings;
    ceilings.identity = facts_.identity;
    ceilings.launch_seconds = launch_seconds();
    ceilings.update_launch_seconds = update_launch_seconds();
    for (const std::int64_t bytes : sizes()) {
      ceilings.memory_curve.push_back({bytes, best_in_memory(bytes)});
      ceilings.cache_curve.push_back({bytes, best_in_cache(bytes)});
      if (bytes >= kFewestAgainBytes && bytes < kMostAgainBytes) {
        ceilings.again_curve.push_back({bytes, best_again(bytes)});
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
    ceilings.launch_seconds = std::min(ceilings.launch_seconds, launch_seconds());
    ceilings.update_launch_seconds =
        std::min(ceilings.update_launch_seconds, update_launch_seconds());
    make_monotone(ceilings.memory_curve);
    make_no_slower_than_pieces(ceilings.memory_curve);
    make_monotone(ceilings.cache_curve);
    make_monotone(ceilings.again_curve);
    ceilings.copy_bytes_per_s = copy_rate();
    for (const auto& [dtype, number] :
         {std::pair{Dtype::kBf16, Number::kBf16}, std::pair{Dtype::kFp16, Number::kFp16},
          std::pair{Dtype::kFp32, Number::kFp32}}) {
      ceilings.peaks.push_back({dtype, peak_rate(number)});
    }
    return ceilings;
  }

 private:
  // Enough to turn more than three caches over, and one read of the largest size; at most half of
  // what is free.
  static std::int64_t room_bytes(const DeviceFacts& facts, const Memory& memory) {
    const std::int64_t wanted = std::max(kLargestReadBytes, 4 * facts.cache_bytes);
    const std::int64_t room = std::min(wanted, memory.available_bytes() / 2);
    return room / kFewestBytes * kFewestBytes;
  }

  // Sizes to measure. Where the curve bends a line between two sizes lies above it, so they are
  // closer to each other there.
  [[nodiscard]] std::vector<std::int64_t> sizes() const {
    const std::int64_t most = std::min(kLargestReadBytes, room_);
    std::vector<std::int64_t> sizes;
    for (std::int64_t bytes = kFewestBytes; bytes <= most; bytes *= 2) {
      sizes.push_back(bytes);
      if (bytes >= kFewestBentBytes && bytes < kMostAgainBytes) {
        sizes.insert(sizes.end(), {bytes / 4 * 5, bytes / 2 * 3, bytes / 4 * 7});
      }
    }
    std::erase_if(sizes, [most](std::int64_t bytes) { return bytes > most; });
    return sizes;
  }

  [[nodiscard]] ProbeGrid grid(int blocks_per_multiprocessor, unsigned threads = 256) const {
    return {static_cast<unsigned>(facts_.multiprocessors * blocks_per_multiprocessor), threads};
  }

  // Clocks take a while to rise from idle.
  void warm_up() {
    clock_->load(0, {[this](Stream stream) { read(0, room_, grid(8), Start::kApart, stream); }});
    const double until = clock_->now_seconds() + 0.3;
    while (clock_->now_seconds() < until) {
      static_cast<void>(clock_->run_seconds(0));
    }
  }

  void read(std::int64_t offset, std::int64_t bytes, ProbeGrid blocks, Start start,
            Stream stream) const {
    LORA_BENCH_CUDA_CHECK(kernels::launch_read_stream(
        data_.at(offset), bytes, static_cast<unsigned*>(sink()), blocks, start, handle(stream)));
  }

  [[nodiscard]] void* sink() const { return sink_.at(0); }

  // Median over the replays, seconds a launch.
  double per_launch(std::vector<Launch> sequence) {
    const auto count = static_cast<double>(sequence.size());
    clock_->load(0, std::move(sequence));
    std::vector<double> samples;
    for (int replay = 0; replay < kReplays; ++replay) {
      samples.push_back(clock_->run_seconds(0) / count);
    }
    return summarize(samples).median;
  }

  double launch_seconds() {
    double best = std::numeric_limits<double>::infinity();
    for (const Start start : {Start::kApart, Start::kLinked}) {
      best = std::min(best, per_launch(std::vector<Launch>(256, [start](Stream stream) {
                        LORA_BENCH_CUDA_CHECK(kernels::launch_empty(start, handle(stream)));
                      })));
    }
    return best;
  }

  // Grids to try for so many bytes: one to eight blocks on each multiprocessor, as far as each
  // thread has something to read, and as few blocks as read all of it in one to eight rounds of
  // loads. Where little is read, few blocks let the most launches overlap.
  [[nodiscard]] std::vector<ProbeGrid> grids_for(std::int64_t bytes) const {
    constexpr std::int64_t kThreads = 256;
    constexpr std::int64_t kVectorBytes = 16;
    constexpr std::int64_t kRoundBytes = kThreads * 8 * kVectorBytes;  // of a block of read_stream
    const auto most = static_cast<std::int64_t>(grid(8).blocks);
    std::set<std::int64_t> counts;
    for (const int times : {1, 2, 4, 8}) {
      counts.insert(std::clamp<std::int64_t>(bytes / (kRoundBytes * times), 1, most));
      if (grid(times).blocks * kThreads * kVectorBytes <= bytes) {
        counts.insert(grid(times).blocks);
      }
    }
    std::vector<ProbeGrid> grids;
    for (const std::int64_t blocks : counts) {
      grids.push_back({static_cast<unsigned>(blocks), kThreads});
    }
    return grids;
  }

  // Ways to begin that can be the best. Launches that run at the same time would share what they
  // read were it the same; small ones gain the most from an early start.
  [[nodiscard]] static std::vector<Start> starts_for(std::int64_t bytes, bool cold) {
    if (!cold) {
      return {Start::kApart, Start::kLinked};
    }
    if (bytes <= kMostSmallBytes) {
      return {Start::kLinked, Start::kEarly};
    }
    return {Start::kApart, Start::kLinked, Start::kEarly};
  }

  // Cold: the launches walk through all of the memory, so that nothing is read again before more
  // than three caches of other data. Hot: the same bytes again and again. The best grid counts,
  // however it starts: a ceiling must not be lower than what a well-chosen kernel reaches.
  double best_read(std::int64_t bytes, bool cold) {
    const std::int64_t launches = cold ? cold_launches(bytes) : launches_over(bytes);
    double best = std::numeric_limits<double>::infinity();
    for (const ProbeGrid& blocks : grids_for(bytes)) {
      for (const Start start : starts_for(bytes, cold)) {
        std::vector<Launch> sequence;
        for (std::int64_t i = 0; i < launches; ++i) {
          const std::int64_t offset = cold ? i * bytes : 0;
          sequence.emplace_back([this, offset, bytes, blocks, start](Stream stream) {
            read(offset, bytes, blocks, start, stream);
          });
        }
        best = std::min(best, per_launch(std::move(sequence)));
      }
    }
    return best;
  }

  // Seconds to read so many bytes from memory, as a plain stream or as the weights of a step.
  double best_in_memory(std::int64_t bytes) {
    return std::min(best_read(bytes, true), touch_weights(bytes, false));
  }

  double update_launch_seconds() {
    // Steps with weights were seen up to 10 % quicker than an update alone.
    return std::min(
        {best_update(kFewBytes), touch_rows(1, false, true), touch_weights(kFewestBytes, true)});
  }

  double best_in_cache(std::int64_t bytes) {
    return std::min({best_read(bytes, false), best_update(bytes / 2), best_touch(bytes)});
  }

  // Seconds to read so many bytes, the same again and again, however many of them the cache keeps.
  double best_again(std::int64_t bytes) {
    std::vector<std::int64_t> most_kept{bytes};
    for (const double share : {0.5, 0.6, 0.7, 0.8, 1.0}) {
      most_kept.push_back(
          static_cast<std::int64_t>(share * static_cast<double>(facts_.cache_bytes)));
    }
    double best = best_read(bytes, false);
    for (const std::int64_t kept : most_kept) {
      std::vector<Launch> sequence;
      for (std::int64_t i = 0; i < std::max<std::int64_t>(2, launches_over(bytes)); ++i) {
        sequence.emplace_back([this, bytes, kept, i](Stream stream) {
          LORA_BENCH_CUDA_CHECK(kernels::launch_read_again(data_.at(0), bytes, kept, i % 2 == 1,
                                                           static_cast<unsigned*>(sink()),
                                                           handle(stream)));
        });
      }
      best = std::min(best, per_launch(std::move(sequence)));
    }
    return best;
  }

  // Launches in one replay that read other bytes each, four caches of them.
  [[nodiscard]] std::int64_t cold_launches(std::int64_t bytes) const {
    constexpr std::int64_t kMostLaunches = 8192;
    const std::int64_t places = room_ / bytes;
    const std::int64_t turned =
        std::min({places, kMostLaunches, 4 * facts_.cache_bytes / bytes + 1});
    return std::max(turned, std::min(places, kLaunches));
  }

  // Launches in one replay that go over the same bytes.
  [[nodiscard]] static std::int64_t launches_over(std::int64_t bytes) {
    return std::clamp<std::int64_t>(kLargestReadBytes / bytes, 1, kLaunches);
  }

  // Seconds to read so many bytes and write them back, the same again and again.
  double best_update(std::int64_t bytes) {
    const std::vector<ProbeGrid> grids =
        bytes == kFewBytes ? std::vector<ProbeGrid>{{1, 32}} : grids_for(bytes);
    double best = std::numeric_limits<double>::infinity();
    for (const ProbeGrid& blocks : grids) {
      for (const Start start : {Start::kApart, Start::kLinked}) {
        const Launch update = [this, bytes, blocks, start](Stream stream) {
          LORA_BENCH_CUDA_CHECK(
              kernels::launch_update_stream(data_.at(0), bytes, blocks, start, handle(stream)));
        };
        best = std::min(best, per_launch(std::vector<Launch>(
                                  static_cast<std::size_t>(launches_over(bytes)), update)));
      }
    }
    return best;
  }

  // A plan of one group with so many rows, and no operand yet.
  kernels::TouchParams step_of(std::int64_t rows) {
    const std::int32_t ends[] = {0, static_cast<std::int32_t>(rows)};
    memory_->copy_in(few_.at(0), ends, sizeof ends);
    kernels::TouchParams params;
    params.token_order = reinterpret_cast<const std::int32_t*>(rows_.at(0));
    params.adapter_of_token = params.token_order;
    params.group_starts = reinterpret_cast<const std::int32_t*>(few_.at(0));
    params.active_ids = params.group_starts;
    params.rank = params.group_starts;
    params.uniform_rank = 1;
    params.tokens = rows;
    params.active = 1;
    params.sink = static_cast<unsigned*>(sink());
    return params;
  }

  Launch touch(const kernels::TouchParams& params) {
    return [this, params](Stream stream) {
      LORA_BENCH_CUDA_CHECK(kernels::launch_touch(params, facts_.multiprocessors, handle(stream)));
    };
  }

  // The weights of a step, other ones in each launch, and a row of y that each launch updates.
  double touch_weights(std::int64_t bytes, bool updates_y) {
    kernels::TouchParams params = step_of(updates_y ? 1 : 0);
    if (updates_y) {
      params.rows[params.operands++] = {
          data_.at(room_ - kRowBytes), kRowBytes, kRowBytes, 0, true, true};
    }
    params.parts = 1;
    std::vector<Launch> sequence;
    for (std::int64_t i = 0; i < cold_launches(bytes); ++i) {
      params.part[0] = {data_.at(i * bytes), bytes, 0, 0};
      sequence.push_back(touch(params));
    }
    return per_launch(std::move(sequence));
  }

  // The rows of one step that is repeated: x read, y updated, or both. Seconds a launch.
  double touch_rows(std::int64_t rows, bool reads_x, bool updates_y) {
    kernels::TouchParams params = step_of(rows);
    const auto add = [&](std::int64_t offset, bool writes) {
      params.rows[params.operands++] = {data_.at(offset), kRowBytes, kRowBytes, 0, true, writes};
    };
    if (reads_x) {
      add(0, false);
    }
    if (updates_y) {
      add(reads_x ? rows * kRowBytes : 0, true);
    }
    return per_launch(std::vector<Launch>(static_cast<std::size_t>(launches_over(rows * kRowBytes)),
                                          touch(params)));
  }

  // Seconds for so many bytes between cores and cache, read, written or both.
  double best_touch(std::int64_t bytes) {
    const std::int64_t rows = bytes / kRowBytes;
    double best = touch_rows(rows, true, false);
    if (rows >= 4) {  // as many bytes: a row of y passes twice
      best = std::min(
          {best, touch_rows(rows / 2, false, true), touch_rows((rows + 2) / 3, true, true)});
    }
    return best;
  }

  double copy_rate() {
    const std::int64_t half = room_ / 2 / 256 * 256;
    double best = std::numeric_limits<double>::infinity();
    for (const int blocks : {2, 4, 8}) {
      best = std::min(best, per_launch({[this, half, blocks](Stream stream) {
                        LORA_BENCH_CUDA_CHECK(kernels::launch_copy(
                            data_.at(half), data_.at(0), half, grid(blocks), handle(stream)));
                      }}));
    }
    return 2 * static_cast<double>(half) / best;
  }

  double peak_rate(Number number) {
    constexpr int kRounds = 2000;
    constexpr unsigned kThreads = 256;
    const double per_round =
        kernels::peak_probe(number, facts_.compute_capability).flops_per_warp_round;
    double best = 0;
    for (const int blocks : {1, 2, 4}) {
      const ProbeGrid blocks_of = grid(blocks, kThreads);
      const double seconds = per_launch({[this, number, blocks_of](Stream stream) {
        LORA_BENCH_CUDA_CHECK(kernels::launch_peak(number, facts_.compute_capability, kRounds,
                                                   static_cast<float*>(sink()), blocks_of,
                                                   handle(stream)));
      }});
      const double warps = static_cast<double>(blocks_of.blocks) * kThreads / 32;
      best = std::max(best, warps * kRounds * per_round / seconds);
    }
    return best;
  }

  DeviceFacts facts_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<Memory> memory_;
  std::int64_t room_;
  Block data_;
  Block rows_;  // the numbers from 0 on, as a plan numbers the rows of a batch
  Block few_;   // where the one group of that batch starts and ends
  Block sink_;
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
