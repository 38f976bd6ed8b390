#include "measure/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/bytes.h"
#include "core/dtype.h"
#include "measure/after_timing.h"
#include "measure/operand_sets.h"
#include "measure/rotation.h"
#include "measure/sampling.h"
#include "measure/small_changes.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kMostLaunches = 2048;  // in a sequence: what a CUDA graph takes gladly
// Launches that y accumulates before it is restored: fewer than make the timing fill overflow or y
// so large that a launch more cannot be told, and enough that restoring a large y does not take
// longer than the measurement.
std::int64_t most_accumulated(Dtype dtype) { return size_bytes(dtype) > 2 ? 1024 : 256; }

// Running the sequence again, to look at what one set adds to it.
constexpr double kMostReplays = 4;
constexpr double kReplaySeconds = 0.25;
constexpr double kReplayBytes = 0x1p28;  // of outputs

// Long against the clock's resolution and the cost of starting a run.
struct Sequence {
  explicit Sequence(Space space) : on_host(space == Space::kHost) {}
  bool on_host;
  double target_seconds = on_host ? 1e-3 : 200e-6;
  std::int64_t least_launches = on_host ? 1 : 64;
};

// Everything of one measurement that the sampling does not see.
class Bench {
 public:
  Bench(const MeasureRequest& request, const Backend& backend, Memory& memory, Clock& clock,
        const DeviceFacts& device)
      : request_(request),
        backend_(backend),
        memory_(memory),
        clock_(clock),
        cache_(request.settings.cache),
        tensors_(draw_tensors(request.problem, Fill::kTiming, request.seed)),
        sets_(memory, request.problem, tensors_, cache_,
              affordable_sets(request.problem, backend, cache_, device.cache_bytes, memory),
              backend.workspace_bytes(request.problem)),
        evicts_(needs_eviction(request.problem, cache_, sets_.count(), device.cache_bytes)),
        eviction_(memory, evicts_ ? device.cache_bytes : 0),
        sequence_(memory.space()),
        own_load_(memory.space() == Space::kHost ? 1.0 : 0.0) {}

  Measurement run() {
    Measurement result;
    result.rotation_sets = sets_.count();
    result.rotated_bytes =
        cache_ == CacheMode::kHot ? 0 : sets_.count() * touched_bytes(request_.problem, cache_);
    load();
    take_samples(sampling(), clock_, result);
    if (request_.check) {
      check(result);
    } else {
      time_alone(result);
    }
    return result;
  }

 private:
  [[nodiscard]] Launch launch_of(std::int64_t set) const {
    return [this, set](Stream stream) {
      backend_.launch(request_.problem, sets_.operands(set), stream);
    };
  }

  // Both slots hold the same sequence: A and A.
  void load() {
    load(0, 1);
    const std::int64_t passes = choose_passes();
    if (passes > 1) {
      load(0, passes);
    }
    load(1, passes);
  }

  void load(int slot, std::int64_t passes) {
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

  // As many launches as were timed, in their order, beginning elsewhere.
  [[nodiscard]] std::vector<Launch> sequence_to(std::int64_t last_set) const {
    std::vector<Launch> sequence;
    for (std::int64_t launch = 1; launch <= launches_; ++launch) {
      sequence.push_back(launch_of((last_set + launch) % sets_.count()));
    }
    return sequence;
  }

  // Of one pass, which is loaded.
  std::int64_t choose_passes() {
    if (evicts_) {
      return 1;  // a second pass would find its sets in the cache
    }
    prepare();
    double seconds = clock_.run_seconds(0);
    prepare();
    seconds = std::min(seconds, clock_.run_seconds(0));
    if (seconds >= sequence_.target_seconds) {
      return 1;  // long enough, however few its launches
    }
    const std::int64_t most = std::max<std::int64_t>(1, most_launches() / sets_.count());
    const std::int64_t for_count = (sequence_.least_launches + sets_.count() - 1) / sets_.count();
    const double for_time = seconds > 0 ? sequence_.target_seconds / seconds + 1 : 1e9;
    const auto passes = static_cast<std::int64_t>(std::min(for_time, 1e9));
    return std::clamp(std::max(for_count, passes), std::int64_t{1}, most);
  }

  // More launches of one sample on one y would have to be restored within it.
  [[nodiscard]] std::int64_t most_launches() const {
    const std::int64_t on_y = most_accumulated(request_.problem.dtype[Role::kY]) * sets_.outputs();
    return accumulates() ? std::min(kMostLaunches, on_y) : kMostLaunches;
  }

  void prepare() {
    if (accumulates()) {
      const std::int64_t added = launches_ / sets_.outputs();
      if (accumulated_ > 0 &&
          accumulated_ + added > most_accumulated(request_.problem.dtype[Role::kY])) {
        sets_.restore_y();
        accumulated_ = 0;
      }
      accumulated_ += added;
      oldest_ = std::max(oldest_, accumulated_);
    }
    sets_.poison_h();
    eviction_.run();
  }

  [[nodiscard]] Sampling sampling() {
    return {.settings = request_.settings,
            .launches = launches_,
            .own_load = own_load_,
            .prepare = [this](int) { prepare(); },
            .stop = request_.stop,
            .highest_mhz = request_.highest_mhz};
  }

  // Whether it took launches of its own: where these never overlap, it is the time that is known.
  bool time_alone(Measurement& result) {
    if (!request_.alone || result.interrupted) {
      return false;
    }
    const Launch separator = clock_.separator();
    if (!separator) {
      result.alone_s = result.summary.median;
      result.alone_noise_s = result.noise_s;
      return false;
    }
    load_alone(clock_, separator, sequence_to(sets_.count() - 1));
    sets_.restore_y();
    accumulated_ = oldest_ = 0;
    sample_alone(sampling(), clock_, result);
    return true;
  }

  // Of rows and sets that nobody knew before.
  [[nodiscard]] AfterTiming looks_now() {
    return {request_, sets_, request_.secret ? request_.secret() : drawn_secret(), room_};
  }

  void check(Measurement& result) {
    result.check_message = check_timed(looks_now(), 0);
    if (result.check_message.empty() && time_alone(result)) {
      result.check_message = check_timed(looks_now(), kAlone);
    }
    if (result.check_message.empty()) {
      result.check_message = check_again(looks_now(), result);
    }
    result.check_passed = result.check_message.empty();
  }

  std::string check_again(const AfterTiming& after, Measurement& result) {
    result.single = check_single_launches(after);
    if (!result.single.wrong.empty()) {
      return "left by single launches of the sequence: " + result.single.wrong;
    }
    result.replayed = check_replayed(after, result.summary.median);
    return result.replayed.wrong.empty()
               ? check_remembered(after)
               : "left by the sequence once more: " + result.replayed.wrong;
  }

  SingleLaunches check_single_launches(const AfterTiming& after) {
    const auto run = [this](std::vector<Launch> sequence) {
      clock_.load(0, std::move(sequence));
      if (accumulates()) {
        // A device's clock runs what it loads once before it records it.
        const std::int64_t times = memory_.space() == Space::kHost ? 1 : 2;
        accumulated_ += times * launches_ / sets_.outputs();
        if (accumulated_ > most_accumulated(request_.problem.dtype[Role::kY])) {
          sets_.restore_y();
          accumulated_ = launches_ / sets_.outputs();
        }
      }
      sets_.poison_h();
      static_cast<void>(clock_.run_seconds(0));
    };
    return look_at_single_launches({request_, tensors_, sets_, memory_, launches_,
                                    [this](std::int64_t set) { return launch_of(set); }, run,
                                    [this] { return clock_.now_seconds(); }},
                                   after.secret());
  }

  // What the timed launches themselves left behind: a backend that is right only while it is
  // checked leaves too little. An output that is overwritten tells nothing of its age, so there the
  // sequence as it was timed runs once more over a fresh one.
  std::string check_timed(const AfterTiming& after, int slot) {
    if (!accumulates()) {
      sets_.restore_y();
      sets_.poison_every_h();
      static_cast<void>(clock_.run_seconds(slot));
    }
    // As old as y ever was: what is left out late may not show in one restored a moment ago.
    while (accumulates() && accumulated_ + launches_ / sets_.outputs() <= oldest_) {
      prepare();
      static_cast<void>(clock_.run_seconds(slot));
    }
    const std::int64_t launches_a_round = sets_.count() / sets_.outputs();
    const std::string wrong =
        after.left_by(tensors_, {accumulated_ / launches_a_round, accumulates()});
    return wrong.empty() ? "" : "left by the timed launches: " + wrong;
  }

  // What many launches of many sets left may be right by chance, so far do their roundings reach.
  // So the sequence runs once more on numbers that tell more; where signs cancel so much that a
  // bound still reaches further than the result, on numbers of one sign.
  Look check_replayed(const AfterTiming& after, double launch_seconds) {
    const auto y_bytes = static_cast<double>(tensors_.y.data.size());
    const double seconds = launch_seconds * static_cast<double>(launches_);
    const double affordable =
        std::min(kReplaySeconds / std::max(seconds, 1e-9), kReplayBytes / std::max(y_bytes, 1.0));
    const auto most = static_cast<std::int64_t>(std::clamp(affordable, 1.0, kMostReplays));
    const std::int64_t turns = std::min(most, sets_.count());
    Look look = replay(after, turns, false);
    if (look.wrong.empty() && 2 * look.unproved > look.compared &&
        has_shrink(request_.problem.op) && takes_one_sign(request_.problem)) {
      make_positive(tensors_.x.data, size_bytes(tensors_.x.dtype));
      for (HostTensor& a : tensors_.a) {
        make_positive(a.data, size_bytes(a.dtype));
      }
      sets_.renew_inputs();
      look = replay(after, turns, true);
    }
    return look;
  }

  // Of a y that all sets add to, one set, no one knows which, adds what shows, the others zeros. In
  // an output that each overwrites the last one shows: the sequence ends with a set no one knows.
  // Each time other numbers stand in x and in the A of that set, so that no h of the samples
  // serves; `all_new`: every one is another. The first turn adds to y as the timed launches left
  // it, so that it does not tell that something is new; it is so large that what it proves is not
  // counted.
  Look replay(const AfterTiming& after, std::int64_t turns, bool all_new) {
    Look all;
    if (accumulates()) {
      sets_.clear_expand();
    }
    for (std::int64_t turn = accumulates() ? -1 : 0; turn < turns && all.wrong.empty(); ++turn) {
      const std::int64_t set = after.any_set(turn);
      const std::vector<std::int64_t> rows = after.rows_of_replay(turn);
      Replaced replaced;
      const SmallChange change{request_.problem, set, rows,
                               after.secret() + static_cast<std::uint64_t>(turn) + 1, &replaced};
      if (has_shrink(request_.problem.op)) {
        change_a(change, tensors_);
      }
      change_rows(change, tensors_);
      if (all_new) {
        sets_.renew_inputs();
        sets_.renew_weights(set);
      } else {
        sets_.renew(set, replaced);
      }
      if (accumulates()) {
        sets_.renew_expand(set);
      } else {
        clock_.load(1, sequence_to(set));
      }
      if (turn < 0) {
        sets_.download_output(sets_.output_of_set(set), before_);
        tensors_.y.data.swap(before_);
        sets_.poison_h();
      } else {
        sets_.restore_y(sets_.output_of_set(set));
        sets_.poison_every_h();
      }
      static_cast<void>(clock_.run_seconds(1));
      const std::int64_t rounds = accumulates() ? launches_ / sets_.count() : 1;
      const Look look = after.left_by_replay(tensors_, set, rounds, rows);
      if (turn < 0) {
        tensors_.y.data.swap(before_);
      } else {
        all.compared += look.compared;
        all.unproved += look.unproved;
      }
      all.wrong = look.wrong;
      put_back(replaced);
      sets_.renew(set, replaced);
      if (accumulates()) {
        sets_.clear_expand(set);
      }
    }
    return all;
  }

  // Launches of one set, no one knows which, with other numbers at the same addresses, all else and
  // what lies in y and h as the launch before left it: one number in B, in A, in some rows of x,
  // and then another x.
  std::string check_remembered(const AfterTiming& after) {
    const std::int64_t set = after.any_set();
    clock_.load(0, {launch_of(set)});
    sets_.renew_inputs();
    sets_.renew_weights(set);
    sets_.restore_y(sets_.output_of_set(set));
    static_cast<void>(clock_.run_seconds(0));
    bool looked = false;  // what y holds is what was looked at last
    const auto once = [&](const std::vector<std::int64_t>& rows) {
      if (accumulates()) {
        if (!looked) {
          sets_.download_output(sets_.output_of_set(set), room_);
        }
        before_.swap(room_);
        tensors_.y.data.swap(before_);
      }
      static_cast<void>(clock_.run_seconds(0));
      std::string wrong = after.left_by_one(tensors_, set, rows);
      looked = true;
      if (accumulates()) {
        tensors_.y.data.swap(before_);
      }
      return wrong;
    };
    const bool shrinks = has_shrink(request_.problem.op);
    Replaced replaced;
    const SmallChange change{request_.problem, set, after.few_rows(), after.secret(), &replaced};
    std::string wrong;
    const auto changed = [&](const char* name, void (*make)(const SmallChange&, Tensors&)) {
      if (!wrong.empty()) {
        return;
      }
      make(change, tensors_);
      sets_.renew(set, replaced);
      if (const std::string found = once(change.rows); !found.empty()) {
        wrong = fmt::format("with another number in {}: {}", name, found);
      }
    };
    if (has_expand(request_.problem.op)) {
      changed("B", change_b);
    }
    if (shrinks) {
      changed("A", change_a);
    }
    changed(shrinks ? "x" : "h", change_rows);
    if (wrong.empty()) {
      HostTensor& rows = shrinks ? tensors_.x : tensors_.h;
      negate(rows.data, size_bytes(rows.dtype));
      sets_.renew_inputs();
      sets_.poison_every_h();
      wrong = once(after.many_rows());
    }
    return wrong.empty() ? check_other_batch(after) : wrong;
  }

  // A launch of its own for another batch, with everything at the addresses of the one that was
  // timed: no plan and no scale of before serves.
  std::string check_other_batch(const AfterTiming& timed) {
    const std::int64_t tokens = request_.problem.tokens;
    const Problem other =
        other_batch(request_.problem, tokens > 1 ? timed.any_place(tokens) : 0, tensors_);
    const MeasureRequest request{other,          request_.settings, request_.seed,
                                 request_.check, nullptr,           nullptr};
    const AfterTiming after(request, sets_, timed.secret(), room_);
    const std::int64_t set = after.any_set();
    sets_.renew_batch(other);
    sets_.poison_every_h();
    // Rows that lay together may not any more, and take more room.
    const GuardedBuffer workspace(memory_, backend_.workspace_bytes(other));
    Operands operands = sets_.operands(set);
    operands.workspace = workspace.bytes() > 0 ? workspace.data() : nullptr;
    clock_.load(0, {[&](Stream stream) { backend_.launch(other, operands, stream); }});
    sets_.restore_y(sets_.output_of_set(set));
    static_cast<void>(clock_.run_seconds(0));
    std::string wrong = after.left_by_one(tensors_, set, after.many_rows());
    if (const std::string damage = workspace.damage(); wrong.empty() && !damage.empty()) {
      wrong = "guard of the workspace damaged: " + damage;
    }
    return wrong.empty() ? "" : "with another batch: " + wrong;
  }

  [[nodiscard]] bool accumulates() const {
    return has_expand(request_.problem.op) && request_.problem.add_inputs;
  }

  const MeasureRequest& request_;
  const Backend& backend_;
  Memory& memory_;
  Clock& clock_;
  CacheMode cache_;
  Tensors tensors_;
  OperandSets sets_;
  bool evicts_;
  Eviction eviction_;
  Sequence sequence_;
  double own_load_;
  std::int64_t launches_ = 1;
  std::int64_t accumulated_ = 0;
  std::int64_t oldest_ = 0;  // the most of it
  // Outputs on the host, the one that was looked at last and one before it.
  std::vector<std::byte> room_, before_;
};

}  // namespace

std::int64_t measurement_bytes(const Problem& problem, CacheMode cache, std::int64_t cache_bytes) {
  const std::int64_t eviction = cache == CacheMode::kHot ? 0 : 3 * cache_bytes;
  return shared_allocation_bytes(problem, cache) + rotating_allocation_bytes(problem, cache) +
         eviction;
}

Measurement measure(const MeasureRequest& request, const Backend& backend, Memory& memory,
                    Clock& clock, const DeviceFacts& device) {
  return Bench(request, backend, memory, clock, device).run();
}

}  // namespace lora_bench
