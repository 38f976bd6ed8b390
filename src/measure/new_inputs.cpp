#include "measure/new_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/random.h"
#include "measure/small_changes.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kSignStream = 1ULL << 35;
constexpr std::int64_t kMostTimes = 7;
constexpr std::int64_t kLeastTimes = 3;
constexpr double kSecondsOfRuns = 0.25;  // of as many runs
constexpr std::int64_t kMostTurns = 64;
constexpr std::int64_t kMostBytes = std::int64_t{32} << 20;  // of rows, beyond those of one turn
// Other programs on the machine slow some trials, but hardly all of them over more than a second:
// the trials after the third are apart by rests, each twice as long as the one before it.
constexpr std::int64_t kTrials = 11, kTrialsAtOnce = 3;
constexpr double kFirstRestSeconds = 0.004;

// The launches of some turns round the sets, and the rows that each turn begins with.
class TurnsWithRows {
 public:
  TurnsWithRows(TimedSequence& timed, std::int64_t turns)
      : timed_(timed),
        rows_(has_shrink(timed.problem().op) ? timed.tensors().x : timed.tensors().h),
        turns_(turns),
        contents_(timed.memory(), turns * std::ssize(rows_.data)) {
    put(nullptr);
    std::vector<Launch> sequence;
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      for (std::int64_t set = 0; set < timed.sets().count(); ++set) {
        sequence.push_back(launch_of(turn, set));
      }
    }
    launches_ = std::ssize(sequence);
    timed.clock().load(0, std::move(sequence));
  }

  [[nodiscard]] std::int64_t launches() const { return launches_; }

  // Seconds of a launch in each of so many runs; `random`: with new rows in each.
  std::vector<double> run(std::int64_t runs, const RandomStream* random) {
    std::vector<double> seconds;
    for (std::int64_t index = 0; index < runs; ++index) {
      put(random);
      timed_.prepare();
      seconds.push_back(timed_.clock().run_seconds(0) / static_cast<double>(launches_));
    }
    return seconds;
  }

 private:
  Launch launch_of(std::int64_t turn, std::int64_t set) {
    Memory& memory = timed_.memory();
    std::byte* const to = timed_.sets().inputs_of_set(set);
    const bool own = set == 0 || to != timed_.sets().inputs_of_set(0);
    const std::int64_t bytes = own ? std::ssize(rows_.data) : 0;
    const std::byte* const from =
        static_cast<const std::byte*>(contents_.data()) + turn * std::ssize(rows_.data);
    return [=, &memory, launch = timed_.launch_of(set)](Stream stream) {
      memory.enqueue_copy(stream.handle, to, from, bytes);
      launch(stream);
    };
  }

  // As they were drawn or, of every turn, each number at another place and with a sign that nobody
  // can know.
  void put(const RandomStream* random) {
    const auto bytes = static_cast<std::size_t>(size_bytes(rows_.dtype));
    room_.clear();
    for (std::int64_t turn = 0; turn < turns_; ++turn) {
      const auto places = static_cast<std::uint64_t>(rows_.elements);
      const auto first =
          rows_.data.begin() + static_cast<std::ptrdiff_t>(
                                   random == nullptr ? 0 : random->bits(drawn_++) % places * bytes);
      room_.insert(room_.end(), first, rows_.data.end());
      room_.insert(room_.end(), rows_.data.begin(), first);
    }
    std::uint64_t bits = 0;
    for (std::size_t number = 0; random != nullptr && number * bytes < room_.size(); ++number) {
      bits = number % 64 == 0 ? random->bits(drawn_++) : bits >> 1U;
      room_[(number + 1) * bytes - 1] ^= (bits & 1U) != 0 ? std::byte{0x80} : std::byte{0};
    }
    contents_.upload(room_);
  }

  TimedSequence& timed_;
  const HostTensor& rows_;
  std::int64_t turns_;
  GuardedBuffer contents_;
  std::int64_t launches_ = 1;
  std::uint64_t drawn_ = 0;
  std::vector<std::byte> room_;
};

std::int64_t turns_that_fit(TimedSequence& timed, std::int64_t bytes) {
  const std::int64_t passes = timed.launches() / timed.sets().count();
  const std::int64_t most =
      std::clamp(kMostBytes / std::max<std::int64_t>(bytes, 1), std::int64_t{1}, kMostTurns);
  const std::int64_t room = timed.memory().available_bytes() / 2;
  return bytes == 0 ? 0 : std::min({passes, most, room / bytes});
}

}  // namespace

std::int64_t new_inputs_bytes(const Problem& problem) {
  const std::int64_t bytes =
      operand_of(problem, has_shrink(problem.op) ? Role::kX : Role::kH).bytes();
  return std::max(bytes, std::min(kMostBytes, kMostTurns * bytes));
}

std::optional<NewInputs> time_new_inputs(TimedSequence& timed, double launch_s,
                                         std::uint64_t secret) {
  const Problem& problem = timed.problem();
  const HostTensor& rows = has_shrink(problem.op) ? timed.tensors().x : timed.tensors().h;
  const std::int64_t turns = turns_that_fit(timed, std::ssize(rows.data));
  if (turns == 0 || owned_rows(problem).empty()) {
    return std::nullopt;
  }
  const double before = timed.clock().conditions().yardstick_s;
  TurnsWithRows with_rows(timed, turns);
  std::vector<double> known = with_rows.run(kLeastTimes, nullptr);
  const double seconds = summarize(known).median * static_cast<double>(with_rows.launches());
  const auto affordable =
      static_cast<std::int64_t>(std::min(kSecondsOfRuns / std::max(seconds, 1e-9), 1e6));
  const std::int64_t runs = std::clamp(affordable, kLeastTimes, kMostTimes);
  const std::vector<double> more = with_rows.run(runs - kLeastTimes, nullptr);
  known.insert(known.end(), more.begin(), more.end());
  const RandomStream random(secret, kSignStream);
  NewInputs found{.known_s = summarize(known).median,
                  .new_s = std::numeric_limits<double>::infinity(),
                  .launch_s = launch_s};
  for (std::int64_t trial = 0; trial < kTrials && depends_on_new_inputs(found); ++trial) {
    const bool again = trial >= kTrialsAtOnce;
    if (again) {
      timed.clock().rest(std::ldexp(kFirstRestSeconds, static_cast<int>(trial - kTrialsAtOnce)));
    }
    const Summary fresh = summarize(with_rows.run(again ? kLeastTimes : runs, &random));
    const bool apart = fresh.q1 > summarize(known).q3;
    found.new_s = std::min(found.new_s, apart ? fresh.median : found.known_s);
  }
  const double after = timed.clock().conditions().yardstick_s;
  timed.sets().renew_inputs();
  timed.sets().restore_y();
  // What the same work took longer on a host is not the launch's.
  found.new_s /= after > before ? after / before : 1;
  return found;
}

}  // namespace lora_bench
