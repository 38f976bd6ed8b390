#include "measure/after_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <thread>
#include <utility>

#include "core/bytes.h"
#include "core/dtype.h"
#include "device/facts.h"
#include "measure/small_changes.h"
#include "ops/backends.h"
#include "workload/excerpt.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kSetStream = 1;
constexpr std::uint64_t kPlaceStream = 2;
constexpr std::uint64_t kLastRowsStream = 1ULL << 16;
constexpr std::uint64_t kReplayedRowsStream = 1ULL << 17;
constexpr std::uint64_t kRowsStream = 1ULL << 32;
constexpr std::uint64_t kChangedRowsStream = 1ULL << 18;
constexpr std::int64_t kMostRows = 16;
constexpr std::int64_t kLeastRows = 2;
constexpr std::int64_t kRowsOfReplay = 4;
constexpr std::int64_t kRowsChanged = 4;
constexpr std::size_t kInfiniteRows = 2;
// Multiply-adds of the oracle on one core, about 0.1 s.
constexpr std::int64_t kProductsOfACore = std::int64_t{1} << 25;

std::int64_t output_row_bytes(const Problem& problem) {
  return has_expand(problem.op) ? problem.y_stride * size_bytes(problem.dtype[Role::kY])
                                : problem.max_rank * size_bytes(problem.dtype[Role::kH]);
}

}  // namespace

std::int64_t affordable_rows(std::int64_t products_of_row, std::int64_t cores) {
  const std::int64_t rows = cores * kProductsOfACore / std::max<std::int64_t>(1, products_of_row);
  return std::clamp(rows, kLeastRows, kMostRows);
}

std::int64_t AfterTiming::any_set(std::int64_t turn) const {
  return drawn_below(secret_, kSetStream, turn, sets_.count());
}

std::int64_t AfterTiming::any_place(std::int64_t past) const {
  return 1 + drawn_below(secret_, kPlaceStream, 0, past - 1);
}

std::vector<std::int64_t> AfterTiming::any_rows(std::uint64_t stream, std::int64_t most) const {
  return drawn_of(owned_rows(request_.problem), most, secret_, stream);
}

std::int64_t AfterTiming::rows_of_output() const {
  const Problem& problem = request_.problem;
  const std::int64_t columns =
      std::accumulate(problem.widths.begin(), problem.widths.end(), std::int64_t{0});
  const std::int64_t of_row =
      problem.max_rank * ((has_shrink(problem.op) ? problem.in_features * problem.slices() : 0) +
                          (has_expand(problem.op) ? columns : 0));
  const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  return affordable_rows(of_row * sets_.count(), cores);
}

// Of the output in room_.
Look AfterTiming::check_rows(const Tensors& tensors, const std::vector<std::int64_t>& of_sets,
                             std::int64_t rounds, std::vector<std::int64_t> rows) const {
  if (rows.empty()) {
    return {};
  }
  const Problem& whole = request_.problem;
  const Excerpt excerpt = excerpt_of(whole, std::move(rows));
  std::vector<Tensors>& sets = cut_;
  sets.resize(std::max(sets.size(), of_sets.size()));
  const int of_set = of_sets.size() == 1 ? 0 : 1;  // threads
  for_blocks(std::ssize(of_sets), 1, 0, [&](std::int64_t index, std::int64_t) {
    const auto at = static_cast<std::size_t>(index);
    sets[at] = cut_tensors(excerpt, whole, tensors, of_sets[at], of_set, std::move(sets[at]));
  });
  std::vector<const Tensors*> addresses;
  for (std::size_t set = 0; set < of_sets.size(); ++set) {
    addresses.push_back(&sets[set]);
  }
  const std::vector<std::byte> cut =
      cut_rows(excerpt, whole.tokens, room_, output_row_bytes(whole));
  return request_.check({excerpt.problem, addresses, cut, rounds, count_to(excerpt.problem.tokens),
                         excerpt.rows, secret_});
}

// The whole output, for what lies where nobody owns it; with the oracle these rows and a few with
// an infinity, which it seldom expects.
std::string AfterTiming::check_whole(const Tensors& tensors, std::int64_t output,
                                     const std::vector<std::int64_t>& of_sets, std::int64_t rounds,
                                     std::vector<std::int64_t> rows) const {
  sets_.download_output(output, room_);
  const std::vector<const Tensors*> sets{&tensors};
  const Look whole = request_.check(
      {request_.problem, sets, room_, 1, {}, count_to(request_.problem.tokens), secret_});
  if (!whole.wrong.empty()) {
    return whole.wrong;
  }
  const std::size_t more = std::min(whole.infinite_rows.size(), kInfiniteRows);
  for (std::size_t index = 0; index < more; ++index) {
    const std::int64_t row = whole.infinite_rows[index];
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) {
      rows.push_back(row);
    }
  }
  return check_rows(tensors, of_sets, rounds, std::move(rows)).wrong;
}

std::string AfterTiming::check_output(const Tensors& tensors, std::int64_t output,
                                      const Launched& launched) const {
  std::vector<std::int64_t> of_sets;
  if (sets_.outputs() > 1) {
    of_sets = {output};
  } else if (launched.accumulates) {
    of_sets = count_to(sets_.count());
  } else {
    of_sets = {sets_.count() - 1};
  }
  return check_whole(tensors, output, of_sets, launched.accumulates ? launched.rounds : 1,
                     any_rows(kRowsStream + static_cast<std::uint64_t>(output), rows_of_output()));
}

std::string AfterTiming::left_by(const Tensors& tensors, const Launched& launched) const {
  for (std::int64_t output = 0; output < sets_.outputs(); ++output) {
    std::string wrong = check_output(tensors, output, launched);
    if (!wrong.empty()) {
      return wrong;
    }
  }
  std::string wrong = sets_.damage();
  return wrong.empty() ? sets_.changed_inputs(any_set()) : wrong;
}

std::vector<std::int64_t> AfterTiming::few_rows() const {
  return any_rows(kChangedRowsStream, kRowsChanged);
}

std::vector<std::int64_t> AfterTiming::many_rows() const {
  return any_rows(kLastRowsStream, kMostRows);
}

std::string AfterTiming::left_by_one(const Tensors& tensors, std::int64_t set,
                                     std::vector<std::int64_t> rows) const {
  return check_whole(tensors, sets_.output_of_set(set), {set}, 1, std::move(rows));
}

Look AfterTiming::left_by_replay(const Tensors& tensors, std::int64_t set, std::int64_t rounds,
                                 const std::vector<std::int64_t>& rows) const {
  sets_.download_output(sets_.output_of_set(set), room_);
  return check_rows(tensors, {set}, rounds, rows);
}

std::vector<std::int64_t> AfterTiming::rows_of_replay(std::int64_t turn) const {
  return any_rows(kReplayedRowsStream + static_cast<std::uint64_t>(turn), kRowsOfReplay);
}

namespace {

// Running the sequence again, to look at what one set adds to it.
constexpr double kMostReplays = 4;
constexpr double kReplaySeconds = 0.25;
constexpr double kReplayBytes = 0x1p28;  // of outputs

// Runs what was timed on other numbers at the same addresses, and has the outputs looked at.
class RunsAfterTiming {
 public:
  RunsAfterTiming(TimedSequence& timed, const AfterTiming& after)
      : timed_(timed),
        after_(after),
        problem_(timed.problem()),
        clock_(timed.clock()),
        sets_(timed.sets()),
        tensors_(timed.tensors()) {}

  // What many launches of many sets left may be right by chance, so far do their roundings reach.
  // So the sequence runs once more on numbers that tell more; where signs cancel so much that a
  // bound still reaches further than the result, on numbers of one sign.
  Look replayed(double launch_seconds) {
    const auto y_bytes = static_cast<double>(tensors_.y.data.size());
    const double seconds = launch_seconds * static_cast<double>(timed_.launches());
    const double affordable =
        std::min(kReplaySeconds / std::max(seconds, 1e-9), kReplayBytes / std::max(y_bytes, 1.0));
    const auto most = static_cast<std::int64_t>(std::clamp(affordable, 1.0, kMostReplays));
    const std::int64_t turns = std::min(most, sets_.count());
    Look look = replay(turns, false);
    if (look.wrong.empty() && 2 * look.unproved > look.compared && has_shrink(problem_.op) &&
        takes_one_sign(problem_)) {
      make_positive(tensors_.x.data, size_bytes(tensors_.x.dtype));
      for (HostTensor& a : tensors_.a) {
        make_positive(a.data, size_bytes(a.dtype));
      }
      sets_.renew_inputs();
      look = replay(turns, true);
    }
    return look;
  }

  // Launches of one set, no one knows which, with other numbers at the same addresses, all else and
  // what lies in y and h as the launch before left it: one number in B, in A, in some rows of x,
  // and then another x; last another batch. "" or what is wrong.
  std::string remembered() {
    const std::int64_t set = after_.any_set();
    clock_.load(0, {timed_.launch_of(set)});
    sets_.renew_inputs();
    sets_.renew_weights(set);
    sets_.restore_y(sets_.output_of_set(set));
    run_once(0);
    const bool shrinks = has_shrink(problem_.op);
    Replaced replaced;
    SmallChange change{problem_, set, after_.few_rows(), after_.secret(), &replaced};
    bool looked = false;
    std::string wrong;
    const auto changed = [&](const char* name, void (*make)(const SmallChange&, Tensors&)) {
      if (!wrong.empty()) {
        return;
      }
      make(change, tensors_);
      sets_.renew(set, replaced);
      const std::string found = left_by_one_more(set, change.rows, std::exchange(looked, true));
      if (!found.empty()) {
        wrong = fmt::format("with another number in {}: {}", name, found);
      }
    };
    if (has_expand(problem_.op)) {
      changed("B", change_b);
    }
    if (shrinks) {
      changed("A", change_a);
    }
    if (problem_.has_scaled_weights() && has_expand(problem_.op)) {
      changed("the scales of B", change_b_scale);
    }
    if (problem_.has_scaled_weights() && shrinks) {
      changed("the scales of A", change_a_scale);
    }
    if (problem_.has_scaled_activations()) {
      changed(shrinks ? "the scales of x" : "the scales of h", change_row_scale);
    }
    if (problem_.bias && has_expand(problem_.op)) {
      changed("bias", change_bias);
    }
    const std::vector<std::int64_t> few = std::exchange(change.rows, {});
    for (const std::int64_t row : few) {
      change.rows = {row};  // alone: another row that is seen would tell that something is new
      ++change.secret;
      changed(shrinks ? "x" : "h", change_rows);
    }
    if (wrong.empty()) {
      HostTensor& rows = shrinks ? tensors_.x : tensors_.h;
      negate(rows.data, size_bytes(rows.dtype));
      sets_.renew_inputs();
      sets_.poison_every_h();
      wrong = left_by_one_more(set, after_.many_rows(), true);
    }
    wrong = wrong.empty() ? left_by_other_scales() : wrong;
    wrong = wrong.empty() ? left_by_other_ranks() : wrong;
    return wrong.empty() ? left_by_other_batch() : wrong;
  }

 private:
  void run_once(int slot) { static_cast<void>(clock_.run_seconds(slot)); }

  // Of a y that all sets add to, one set, no one knows which, adds what shows, the others zeros. In
  // an output that each overwrites the last one shows: the sequence ends with a set no one knows.
  // The first turn adds to y as the timed launches left it, so that it does not tell that something
  // is new; it is so large that what it proves is not counted.
  Look replay(std::int64_t turns, bool all_new) {
    Look all;
    if (timed_.accumulates()) {
      sets_.clear_expand();
    }
    for (std::int64_t turn = timed_.accumulates() ? -1 : 0; turn < turns && all.wrong.empty();
         ++turn) {
      const Look look = replay_once(turn, all_new);
      if (turn >= 0) {
        all.compared += look.compared;
        all.unproved += look.unproved;
      }
      all.wrong = look.wrong;
    }
    return all;
  }

  // Other numbers stand in x and in the A of the set that shows, so that no h of the samples
  // serves; `all_new`: every one is another.
  Look replay_once(std::int64_t turn, bool all_new) {
    const std::int64_t set = after_.any_set(turn);
    const std::vector<std::int64_t> rows = after_.rows_of_replay(turn);
    Replaced replaced;
    const SmallChange change{problem_, set, rows,
                             after_.secret() + static_cast<std::uint64_t>(turn) + 1, &replaced};
    if (has_shrink(problem_.op)) {
      change_a(change, tensors_);
    }
    change_rows(change, tensors_);
    if (all_new) {
      sets_.renew_inputs();
      sets_.renew_weights(set);
    } else {
      sets_.renew(set, replaced);
    }
    if (timed_.accumulates()) {
      sets_.renew_expand(set);
    } else {
      clock_.load(1, timed_.sequence_to(set));
    }
    if (turn < 0) {
      sets_.download_output(sets_.output_of_set(set), before_);
      tensors_.y.data.swap(before_);
      sets_.poison_h();
    } else {
      sets_.restore_y(sets_.output_of_set(set));
      sets_.poison_every_h();
    }
    run_once(1);
    const std::int64_t rounds = timed_.accumulates() ? timed_.launches() / sets_.count() : 1;
    Look look = after_.left_by_replay(tensors_, set, rounds, rows);
    if (turn < 0) {
      tensors_.y.data.swap(before_);
    }
    put_back(replaced);
    sets_.renew(set, replaced);
    if (timed_.accumulates()) {
      sets_.clear_expand(set);
    }
    return look;
  }

  // One launch more, on what the launch before left. `looked`: which is what was looked at last.
  std::string left_by_one_more(std::int64_t set, const std::vector<std::int64_t>& rows,
                               bool looked) {
    if (timed_.accumulates()) {
      if (!looked) {
        sets_.download_output(sets_.output_of_set(set), after_.last_output());
      }
      before_.swap(after_.last_output());
      tensors_.y.data.swap(before_);
    }
    run_once(0);
    std::string wrong = after_.left_by_one(tensors_, set, rows);
    if (timed_.accumulates()) {
      tensors_.y.data.swap(before_);
    }
    return wrong;
  }

  [[nodiscard]] bool supports(const Problem& other) const {
    return timed_.backend().supports(other, facts_of(timed_.memory().space())).yes;
  }

  std::string left_by_other_scales() {
    Problem other = problem_;
    const std::vector<float> scales = tensors_.scale;
    change_scales(other, tensors_);
    const std::string wrong = supports(other) ? left_by_other("other scales", other) : "";
    tensors_.scale = scales;
    return wrong;
  }

  std::string left_by_other_ranks() {
    Problem other = problem_;
    halve_ranks(other);
    return supports(other) ? left_by_other("other ranks", other) : "";
  }

  std::string left_by_other_batch() {
    const std::int64_t tokens = problem_.tokens;
    Problem other = other_batch(problem_, tokens > 1 ? after_.any_place(tokens) : 0, tensors_);
    if (!supports(other)) {
      other.rank = problem_.rank;
    }
    return left_by_other("another batch", other);
  }

  // A launch of its own for another problem of these sizes, with everything at the addresses of the
  // one that was timed: no plan and no scale of before serves.
  std::string left_by_other(const char* what, const Problem& other) {
    const MeasureRequest& asked = timed_.request();
    const Backend& backend = timed_.backend();
    const MeasureRequest request{other, asked.settings, asked.seed, asked.check, nullptr, nullptr};
    const AfterTiming after(request, sets_, after_.secret(), after_.last_output());
    const std::int64_t set = after.any_set();
    sets_.renew_batch(other);
    sets_.poison_every_h();
    // Rows that lay together may not any more, and take more room.
    const GuardedBuffer workspace(timed_.memory(), backend.workspace_bytes(other));
    Operands operands = sets_.operands(set);
    operands.workspace = workspace.bytes() > 0 ? workspace.data() : nullptr;
    // Other ranks and scales may want other prepared weights.
    const GuardedBuffer prepared(timed_.memory(), prepared_bytes(backend, other));
    if (operands.prepared = prepared.bytes() > 0 ? prepared.data() : nullptr;
        operands.prepared != nullptr) {
      timed_.memory().enqueue_and_wait(
          [&](void* stream) { prepare_weights(backend, other, operands, Stream{stream}); });
    }
    clock_.load(0, {[&](Stream stream) { backend.launch(other, operands, stream); }});
    sets_.restore_y(sets_.output_of_set(set));
    run_once(0);
    std::string wrong = after.left_by_one(tensors_, set, after.many_rows());
    if (const std::string damage = workspace.damage(); wrong.empty() && !damage.empty()) {
      wrong = "guard of the workspace damaged: " + damage;
    }
    if (const std::string damage = prepared.damage(); wrong.empty() && !damage.empty()) {
      wrong = "guard of prepared damaged: " + damage;
    }
    return wrong.empty() ? "" : fmt::format("with {}: {}", what, wrong);
  }

  TimedSequence& timed_;
  const AfterTiming& after_;
  const Problem& problem_;
  Clock& clock_;
  OperandSets& sets_;
  Tensors& tensors_;
  std::vector<std::byte> before_;  // an output as it was before the launches
};

}  // namespace

std::string wrong_when_run_again(TimedSequence& timed, const AfterTiming& after,
                                 Measurement& into) {
  into.single = look_at_single_launches(
      {timed.request(), timed.tensors(), timed.sets(), timed.memory(), timed.launches(),
       [&](std::int64_t set) { return timed.launch_of(set); },
       [&](std::vector<Launch> sequence) { timed.run_instead(std::move(sequence)); },
       [&] { return timed.clock().now_seconds(); }},
      after.secret());
  if (!into.single.wrong.empty()) {
    return "left by single launches of the sequence: " + into.single.wrong;
  }
  RunsAfterTiming runs(timed, after);
  into.replayed = runs.replayed(into.summary.median);
  return into.replayed.wrong.empty() ? runs.remembered()
                                     : "left by the sequence once more: " + into.replayed.wrong;
}

}  // namespace lora_bench
