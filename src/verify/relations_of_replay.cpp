#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>

#include "core/dtype.h"
#include "verify/oracle.h"
#include "verify/relations.h"
#include "verify/staging.h"

namespace lora_bench {
namespace {

constexpr int kReplays = 3;

// What differs seldom shows in many runs only; on a host nothing shifts the order of blocks, and
// what counts its launches shows in few.
constexpr int kRunsOnDevice = 100;
constexpr int kRunsOnHost = 20;
// Every run is compared whole.
constexpr std::int64_t kBytesOfManyRuns = 256 << 10;
constexpr std::int64_t kLeastRowsOfManyRuns = 4;
constexpr std::int64_t kMostRowsOnHost = 8;
constexpr std::int64_t kMostRowsOfOtherBatches = 16;
constexpr int kLaunchesOfARound = 8;
constexpr int kRoundsOfALongOne = 8;

// So many rows of all, the first and the last among them.
std::vector<std::int64_t> spread_rows(std::int64_t rows, std::int64_t most) {
  std::vector<std::int64_t> picked;
  const std::int64_t count = std::min(rows, most);
  for (std::int64_t i = 0; i < count; ++i) {
    picked.push_back(count == 1 ? 0 : i * (rows - 1) / (count - 1));
  }
  return picked;
}

// The least and the greatest that any run left in each element, NaN where one left it: if both are
// right, so is every run.
class Extremes {
 public:
  Extremes(Dtype dtype, std::vector<std::byte> first)
      : dtype_(dtype), least_(first), greatest_(std::move(first)) {}

  // An element is kept with the bytes that a run left, so that a NaN stays the NaN that it is.
  void add(const std::vector<std::byte>& got) {
    const auto bytes = static_cast<std::size_t>(size_bytes(dtype_));
    const auto keep = [&](std::vector<std::byte>& extreme, std::int64_t i) {
      const std::size_t at = static_cast<std::size_t>(i) * bytes;
      std::memcpy(extreme.data() + at, got.data() + at, bytes);
    };
    for (std::int64_t i = 0; i < std::ssize(got) / size_bytes(dtype_); ++i) {
      const float value = load(dtype_, got.data(), i);
      if (std::isnan(value) || value < load(dtype_, least_.data(), i)) {
        keep(least_, i);
      }
      if (std::isnan(value) || value > load(dtype_, greatest_.data(), i)) {
        keep(greatest_, i);
      }
    }
  }

  [[nodiscard]] const std::vector<std::byte>& least() const { return least_; }
  [[nodiscard]] const std::vector<std::byte>& greatest() const { return greatest_; }

 private:
  Dtype dtype_;
  std::vector<std::byte> least_, greatest_;
};

}  // namespace

// Recorded over other numbers, run over these: what a launch takes from memory while it is
// recorded, or runs beside its stream, shows.
void Relations::recorded_once() {
  const Derived earlier = drawn("other numbers", base_.problem, seed_ + 2);
  Stage stage(memory_, earlier->step.problem, earlier->step.tensors,
              scratch_bytes(backend_, base_.problem));
  const std::function<void()> run = stage.record(backend_);
  for (int replay = 0; replay < kReplays && !failed_; ++replay) {
    stage.reload(base_.problem, base_.tensors);
    run();
    expect_same_or_right(stage.output());
  }
}

// Two steps on one stream, and a kernel between them that writes the second's x, h and y as late as
// it may: launched, then recorded. Who reads them before they are there, keeps h of the first step
// or ends after its stream goes on leaves another result.
void Relations::behind_another_step() {
  const Derived other = drawn("other numbers", base_.problem, seed_ + 2);
  Tensors tensors = base_.tensors;
  tensors.x = other->step.tensors.x;
  tensors.x_scale = other->step.tensors.x_scale;
  tensors.h_scale = other->step.tensors.h_scale;
  tensors.h = other->step.tensors.h;
  tensors.y = other->step.tensors.y;
  Stage stage(memory_, base_.problem, tensors, scratch_bytes(backend_, base_.problem));
  const Stage::Follower base = stage.follower(base_.tensors);
  const auto both = [&](void* stream) {
    stage.enqueue_both(backend_, base, load_, Stream{stream});
  };
  const bool device = memory_.space() == Space::kDevice;
  const auto expect = [&](const std::function<void()>& run) {
    for (int turn = 0; turn < (device ? kReplays : 1) && !failed_; ++turn) {
      stage.restore_rows();
      run();
      expect_same_or_right(stage.output_of(base.output.download()));
    }
  };
  expect([&] { memory_.enqueue_and_wait(both); });
  if (numerics_.graph_safe && device && !failed_) {
    expect(memory_.record(both));
  }
  note_damage(stage.damage());
}

// Another step of fewer rows and this one in turn, twice, as the layers of a model go through one
// workspace and one h: with the host between them, then with nothing between them, launched and
// recorded.
void Relations::in_a_row() {
  const std::vector<std::int64_t> rows =
      spread_rows(base_.problem.tokens, (2 * base_.problem.tokens + 2) / 3);
  const Derived other = groundwork_.derived("fewer rows of another step", [&] {
    const Derived all = drawn("another step", rotate_adapters(base_.problem), seed_ + 1);
    return select_rows(all->step, rows);
  });
  if (!supports(other->step.problem)) {
    return;
  }
  Stage second = stage_for(base_, other->step);
  Stage first(memory_, other->step.problem, other->step.tensors, {});
  first.share_scratch(second);
  Stage third = first.again();
  third.share_scratch(second);
  Stage fourth = second.again();
  fourth.share_scratch(second);
  const std::array<Stage*, 4> stages{&first, &second, &third, &fourth};
  const Numerics numerics = backend_.numerics(other->step.problem);
  first.launch(backend_);
  const Bits alone = first.output();
  const auto expect = [&](const std::function<void()>& run) {
    for (Stage* const stage : stages) {
      stage->restore_rows();
    }
    run();
    for (Stage* const stage : {&second, &fourth}) {
      expect_same_or_right(stage->output());
    }
    for (Stage* const stage : {&first, &third}) {
      const Bits got = stage->output();
      if (numerics.deterministic) {
        expect_same(other->step.problem, alone, got, rows);
      } else {
        expect_right(*other, numerics, got, rows);
      }
    }
  };
  expect([&] {
    for (Stage* const stage : stages) {
      stage->launch(backend_);
    }
  });
  if (memory_.space() == Space::kDevice && !failed_) {
    seen_ = "out-of-turn";
    const auto all = [&](void* stream) {
      for (const Stage* const stage : stages) {
        stage->enqueue(backend_, Stream{stream});
      }
    };
    expect([&] { memory_.enqueue_and_wait(all); });
    if (numerics.graph_safe && numerics_.graph_safe && !failed_) {
      expect(memory_.record(all));
    }
  }
  if (!failed_) {
    seen_ = nullptr;
  }
  for (Stage* const stage : stages) {
    note_damage(stage->damage());
  }
}

// The same step again and again, on a device beside other work. All runs must give the same bits
// where that is declared, else each what the oracle allows.
void Relations::many_runs() {
  const bool device = memory_.space() == Space::kDevice;
  const Problem& whole = base_.problem;
  const std::int64_t row_bytes =
      size_bytes(output_dtype(whole)) *
      (has_expand(whole.op) ? whole.y_stride : whole.slices() * whole.max_rank);
  const std::int64_t rows = std::max(kLeastRowsOfManyRuns, kBytesOfManyRuns / (row_bytes + 1));
  const std::vector<std::int64_t> base_rows =
      spread_rows(whole.tokens, device ? rows : std::min(rows, kMostRowsOnHost));
  const Derived of_step = groundwork_.derived(fmt::format("many runs of {} rows", base_rows.size()),
                                              [&] { return select_rows(base_, base_rows); });
  const Step& step = of_step->step;
  const Numerics numerics = same_rows_ == base_rows ? numerics_ : backend_.numerics(step.problem);
  Stage stage(memory_, step.problem, step.tensors, scratch_bytes(backend_, step.problem));
  const Bits first = launch_in(stage);
  const std::function<void()> run =
      numerics.graph_safe ? stage.record(backend_, &load_) : [&] { stage.launch(backend_); };
  Extremes extremes(output_dtype(whole), first);
  for (int turn = 0; turn < (device ? kRunsOnDevice : kRunsOnHost) && !failed_; ++turn) {
    stage.restore_output();
    run();
    const Bits got = stage.output();
    if (numerics.deterministic) {
      expect_same(step.problem, first, got, base_rows);
    } else {
      extremes.add(got);
    }
  }
  note_damage(stage.damage());
  if (!numerics.deterministic && !failed_) {
    expect_right(*of_step, numerics, extremes.least(), base_rows);
  }
  if (!numerics.deterministic && !failed_) {
    expect_right(*of_step, numerics, extremes.greatest(), base_rows);
  }
}

// What every round of launches, or of questions, takes and none gives back. Not what the first ones
// take: code that is loaded, buffers that are kept for later. What others take may vary by itself,
// so three rounds must take the same, and a long one as much again for each of its launches: caches
// of the allocator fill up, leaks do not.
void Relations::memory_given_back() {
  const std::vector<std::int64_t> rows = spread_rows(base_.problem.tokens, kLeastRowsOfManyRuns);
  const Step step = select_rows(base_, rows);
  Stage stage(memory_, step.problem, step.tensors, scratch_bytes(backend_, step.problem));
  expect_given_back("launches", [&] { stage.launch(backend_); });
  expect_given_back("questions", [&] {
    static_cast<void>(supports(step.problem));
    static_cast<void>(backend_.numerics(step.problem));
    static_cast<void>(backend_.workspace_bytes(step.problem));
  });
}

void Relations::expect_given_back(const char* what, const std::function<void()>& turn) {
  constexpr std::array<const char*, 4> kUnits{"bytes", "bytes mapped", "file descriptors",
                                              "objects of Python"};
  using Taken = std::array<std::int64_t, kUnits.size()>;  // no memory of its own, which would count
  const bool device = memory_.space() == Space::kDevice;
  const bool interpreted = backend_.slow_to_launch();
  const auto taken = [&](bool settled) {
    return Taken{device ? -memory_.available_bytes() : heap_bytes(), device ? 0 : mapped_bytes(),
                 open_descriptors(), interpreted ? interpreter_objects(settled) : 0};
  };
  const auto by_round = [&](int turns, bool settled = false) {
    Taken more = taken(settled);
    for (std::int64_t& each : more) {
      each = -each;
    }
    for (int i = 0; i < turns; ++i) {
      turn();
    }
    const Taken after = taken(settled);
    for (std::size_t unit = 0; unit < kUnits.size(); ++unit) {
      more[unit] += after[unit];
    }
    return more;
  };
  by_round(kLaunchesOfARound);
  const Taken first = by_round(kLaunchesOfARound);
  if (failed_ || std::none_of(first.begin(), first.end(), [](auto each) { return each > 0; })) {
    return;
  }
  const Taken second = by_round(kLaunchesOfARound);
  const Taken third = by_round(kLaunchesOfARound);
  for (std::size_t unit = 0; unit < kUnits.size() && !failed_; ++unit) {
    // The C library counts blocks that it caches as taken and rounds a request up by what is left
    // of a block, so that equal rounds differ by a launch's block or two.
    const auto like_the_first = [&](std::int64_t kept) {
      return 4 * std::abs(kept - first[unit]) <= first[unit];
    };
    const bool alike =
        first[unit] > 0 && like_the_first(second[unit]) && like_the_first(third[unit]);
    // One round less, as what else happens may give back a little.
    if (alike && by_round(kRoundsOfALongOne * kLaunchesOfARound, true)[unit] >=
                     (kRoundsOfALongOne - 1) * first[unit]) {
      failed_ = true;
      failure_.what += fmt::format(": {} {} keep {} {} for good", kLaunchesOfARound, what,
                                   first[unit], kUnits[unit]);
    }
  }
}

// More adapters than were recorded, fewer, none, other ranks, other weights in the same slots.
void Relations::other_batches() {
  const std::vector<std::int64_t> rows = spread_rows(base_.problem.tokens, kMostRowsOfOtherBatches);
  const Problem some = select_rows(base_, rows).problem;
  const auto number = [&](std::size_t batch, const Problem& problem) {
    return drawn(fmt::format("batch {}", batch), problem, seed_ + kReplays + 1 + batch);
  };
  std::vector<Problem> to_record{some, without_adapters(some)};
  if (some.plan.active() > 1) {
    to_record.push_back(with_one_adapter(some));
  }
  std::vector<Derived> batches;
  constexpr std::size_t kBatches = 5;
  for (std::size_t i = 0; i < to_record.size(); ++i) {
    const Problem& recorded = to_record[i];
    // A grid of the groups in use is for its own batch.
    const bool for_any_batch =
        recorded.plan_form == PlanForm::kSorted || recorded.plan_grid == PlanGrid::kSlots;
    if (!for_any_batch || !backend_.numerics(recorded).replays_other_batches ||
        !supports(recorded) || failed_) {
      continue;
    }
    if (batches.empty()) {
      const Problem every = with_every_slot(some);
      for (const Problem& batch : {every, without_adapters(some), with_other_ranks(every),
                                   with_one_adapter(every), some}) {
        batches.push_back(number(batches.size(), batch));
      }
    }
    replay_over(number(kBatches + i, recorded)->step, batches, rows);
  }
}

void Relations::replay_over(const Step& recorded, const std::vector<Derived>& batches,
                            const std::vector<std::int64_t>& base_rows) {
  const Numerics numerics = backend_.numerics(recorded.problem);
  Stage stage(memory_, recorded.problem, recorded.tensors,
              scratch_bytes(backend_, recorded.problem), Alignment::kBoundary, PlanRoom::kAllSlots);
  stage.launch(backend_);
  const std::function<void()> run = stage.record(backend_);
  for (const Derived& derived : batches) {
    const Step& batch = derived->step;
    if (failed_ || !supports(batch.problem)) {
      continue;
    }
    stage.reload(batch.problem, batch.tensors);
    run();
    const Bits got = stage.output();
    expect_right(*derived, numerics, got, base_rows);
    if (!failed_ && numerics.deterministic && numerics.batch_invariant) {
      const Bits fresh = launch(batch);
      expect_same(batch.problem, fresh, got, base_rows);
      if (failed_ && launch(batch) != fresh) {
        seen_ = "not-repeatable";
      }
    }
  }
  note_damage(stage.damage());
}

}  // namespace lora_bench
