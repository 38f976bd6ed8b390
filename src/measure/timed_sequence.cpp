#include "measure/timed_sequence.h"

#include <algorithm>
#include <utility>

#include "core/dtype.h"
#include "measure/sampling.h"
#include "measure/small_changes.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kRowsPreparedFor = 4;
constexpr std::int64_t kMostLaunches = 2048;  // in a sequence: what a CUDA graph takes gladly

// Launches that y accumulates before it is restored: fewer than make the timing fill overflow or y
// so large that a launch more cannot be told, and enough that restoring a large y does not take
// longer than the measurement.
std::int64_t most_accumulated(const Problem& problem) {
  return size_bytes(problem.dtype[Role::kY]) > 2 ? 1024 : 256;
}

}  // namespace

TimedSequence::TimedSequence(const MeasureRequest& request, const Backend& backend, Memory& memory,
                             Clock& clock, const DeviceFacts& device)
    : request_(request),
      backend_(backend),
      memory_(memory),
      clock_(clock),
      tensors_(draw_tensors(request.problem, Fill::kTiming, request.seed)),
      sets_(memory, request.problem, tensors_, backend, request.settings.cache,
            affordable_sets(request.problem, backend, request.settings.cache, device.cache_bytes,
                            memory)),
      evicts_(needs_eviction(request.problem, request.settings.cache, sets_.count(),
                             device.cache_bytes)),
      eviction_(memory, evicts_ ? device.cache_bytes : 0) {}

bool TimedSequence::accumulates() const { return has_expand(problem().op) && problem().add_inputs; }

Launch TimedSequence::launch_of(std::int64_t set) const {
  if (set < std::ssize(kept_)) {
    return kept_[static_cast<std::size_t>(set)];
  }
  return [this, set](Stream stream) { backend_.launch(problem(), sets_.operands(set), stream); };
}

void TimedSequence::load() {
  while (backend_.slow_to_launch() && std::ssize(kept_) < sets_.count()) {
    kept_.push_back(clock_.kept(launch_of(std::ssize(kept_))));
  }
  load(0, 1);
  const std::int64_t passes = choose_passes();
  if (passes > 1) {
    load(0, passes);
  }
  load(1, passes);
}

void TimedSequence::load(int slot, std::int64_t passes) {
  std::vector<Launch> sequence;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    for (std::int64_t set = 0; set < sets_.count(); ++set) {
      sequence.push_back(launch_of(set));
    }
  }
  launches_ = static_cast<std::int64_t>(sequence.size());
  clock_.load(slot, std::move(sequence));
  sets_.restore_y();
  accumulated_ = 0;
}

// Of one pass, which is loaded. A run is to be long against the clock's resolution and the cost of
// starting it.
std::int64_t TimedSequence::choose_passes() {
  if (evicts_) {
    return 1;  // a second pass would find its sets in the cache
  }
  const bool on_host = memory_.space() == Space::kHost;
  const double target_seconds = on_host ? 1e-3 : 200e-6;
  const std::int64_t least_launches = on_host ? 1 : 64;
  prepare();
  double seconds = clock_.run_seconds(0);
  prepare();
  seconds = std::min(seconds, clock_.run_seconds(0));
  if (seconds >= target_seconds) {
    return 1;  // long enough, however few its launches
  }
  // More launches of one sample on one y would have to be restored within it.
  const std::int64_t on_y =
      accumulates() ? most_accumulated(problem()) * sets_.outputs() : kMostLaunches;
  const std::int64_t most =
      std::max<std::int64_t>(1, std::min(kMostLaunches, on_y) / sets_.count());
  const std::int64_t for_count = (least_launches + sets_.count() - 1) / sets_.count();
  const double for_time = seconds > 0 ? target_seconds / seconds + 1 : 1e9;
  const auto passes = static_cast<std::int64_t>(std::min(for_time, 1e9));
  return std::clamp(std::max(for_count, passes), std::int64_t{1}, most);
}

void TimedSequence::load_alone(const Launch& separator) {
  lora_bench::load_alone(clock_, separator, sequence_to(sets_.count() - 1));
  sets_.restore_y();
  accumulated_ = oldest_ = 0;
}

std::vector<Launch> TimedSequence::sequence_to(std::int64_t last_set) const {
  std::vector<Launch> sequence;
  for (std::int64_t launch = 1; launch <= launches_; ++launch) {
    sequence.push_back(launch_of((last_set + launch) % sets_.count()));
  }
  return sequence;
}

void TimedSequence::prepare() {
  if (accumulates()) {
    if (accumulated_ > 0 && accumulated_ + launches_on_y() > most_accumulated(problem())) {
      sets_.restore_y();
      accumulated_ = 0;
    }
    accumulated_ += launches_on_y();
    oldest_ = std::max(oldest_, accumulated_);
  }
  sets_.poison_h();
  if (sets_.prepares()) {
    prepare_others();
  }
  eviction_.run();
}

// A backend that kept results until it has to prepare other weights would have to compute them
// again in each sample. It gets to see what is prepared after timing as well: weights as they are,
// with another number in A or in B, and with no B.
void TimedSequence::prepare_others() {
  const std::uint64_t secret = drawn_secret();
  const std::int64_t set = drawn_below(secret, 0, 0, sets_.count());
  Replaced replaced;
  const SmallChange change{problem(), set,
                           drawn_of(owned_rows(problem()), kRowsPreparedFor, secret, 1), secret,
                           &replaced};
  const std::int64_t turn = others_++;
  if (turn % 2 == 1 && has_shrink(problem().op)) {
    change_a(change, tensors_);
  }
  if (turn % 3 == 1 && has_expand(problem().op)) {
    change_b(change, tensors_);
  }
  sets_.prepare_others(set, replaced, turn % 4 >= 2);
  put_back(replaced);
}

Launched TimedSequence::run_to_check(int slot) {
  if (!accumulates()) {
    sets_.restore_y();
    sets_.poison_every_h();
    static_cast<void>(clock_.run_seconds(slot));
  }
  while (accumulates() && accumulated_ + launches_on_y() <= oldest_) {
    prepare();
    static_cast<void>(clock_.run_seconds(slot));
  }
  const std::int64_t launches_a_round = sets_.count() / sets_.outputs();
  return {accumulated_ / launches_a_round, accumulates()};
}

void TimedSequence::run_instead(std::vector<Launch> sequence) {
  clock_.load(0, std::move(sequence));
  if (accumulates()) {
    // A device's clock runs what it loads once before it records it.
    const std::int64_t times = memory_.space() == Space::kHost ? 1 : 2;
    accumulated_ += times * launches_ / sets_.outputs();
    if (accumulated_ > most_accumulated(problem())) {
      sets_.restore_y();
      accumulated_ = launches_on_y();
    }
  }
  sets_.poison_h();
  static_cast<void>(clock_.run_seconds(0));
}

}  // namespace lora_bench
