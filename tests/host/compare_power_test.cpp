#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "compare/compare.h"
#include "core/random.h"
#include "support/draws.h"

using namespace lora_bench;

namespace {

constexpr std::int64_t kRows = 6;  // as `smoke` has on a host

// What moves the times of a machine, in shares of them.
struct Machine {
  std::string name;
  double of_repeat = 0.015;  // each repeat by itself
  double of_walk = 0;        // a random walk, a step for each measurement
  double of_step = 0;        // it is slower by so much, or not, ...
  double changes = 0;        // ... and changes with this chance at each measurement
  bool seen = true;          // the yardstick feels the step
  double of_spikes = 0;      // every tenth repeat is disturbed by so much
};

class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : seed_(seed) {}
  double unit() { return random_unit(seed_, 1, index_++); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - unit()));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }

 private:
  std::uint64_t seed_;
  std::uint64_t index_ = 0;
};

// Measures all rows of one repeat after another, on a machine that goes on drifting.
class Bench {
 public:
  Bench(const Machine& machine, std::uint64_t seed) : machine_(machine), drawn_(seed) {
    slow_ = drawn_.unit() < 0.5;
  }

  void measure(std::vector<Repeats>& into, double slowdown) {
    for (Repeats& row : into) {
      slow_ = drawn_.unit() < machine_.changes ? !slow_ : slow_;
      walk_ += machine_.of_walk * drawn_.normal();
      const double step = slow_ ? std::log1p(machine_.of_step) : 0;
      const double spike = drawn_.unit() < 0.1 ? machine_.of_spikes * drawn_.unit() : 0;
      row.times_us.push_back(100 * (1 + slowdown) *
                             std::exp(walk_ + step + spike + machine_.of_repeat * drawn_.normal()));
      row.yardsticks_us.push_back(
          20000 * std::exp((machine_.seen ? walk_ + step : 0) + 0.005 * drawn_.normal()));
    }
  }

 private:
  Machine machine_;
  Drawn drawn_;
  double walk_ = 0;
  bool slow_ = false;
};

struct Rates {
  double passed = 0, slower = 0, inconclusive = 0;
};

// As compare ends: one row is enough.
ExitCode exit_of(const std::vector<Repeats>& base, const std::vector<Repeats>& fresh) {
  ExitCode exit = ExitCode::kPass;
  for (std::size_t i = 0; i < base.size(); ++i) {
    const Change change = judge(base[i], fresh[i], {}, std::ssize(base)).change;
    exit = worse(exit, change == Change::kSlower         ? ExitCode::kRegression
                       : change == Change::kInconclusive ? ExitCode::kInconclusive
                                                         : ExitCode::kPass);
  }
  return exit;
}

enum class Order { kOneAfterTheOther, kInTurn };

Rates rates(const Machine& machine, double slowdown, std::int64_t repeats, std::int64_t many,
            Order order = Order::kOneAfterTheOther) {
  Rates found;
  const std::int64_t pairs = test::draws(many);
  const double share = 1.0 / static_cast<double>(pairs);
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    Bench bench(machine, static_cast<std::uint64_t>(pair) + 20250101);
    std::vector<Repeats> base(kRows);
    std::vector<Repeats> fresh(kRows);
    for (std::int64_t i = 0; i < 2 * repeats; ++i) {
      const bool first = order == Order::kInTurn ? i % 2 == 0 : i < repeats;
      bench.measure(first ? base : fresh, first ? 0 : slowdown);
    }
    const ExitCode exit = exit_of(base, fresh);
    found.passed += exit == ExitCode::kPass ? share : 0;
    found.slower += exit == ExitCode::kRegression ? share : 0;
    found.inconclusive += exit == ExitCode::kInconclusive ? share : 0;
  }
  MESSAGE(machine.name << ", " << repeats << " repeats"
                       << std::string(order == Order::kInTurn ? " in turn" : "") << ", slowdown "
                       << slowdown * 100 << " %: exit 0 " << found.passed * 100 << " %, exit 3 "
                       << found.slower * 100 << " %, exit 4 " << found.inconclusive * 100 << " %");
  return found;
}

const Machine kQuiet{.name = "quiet"};
const Machine kNoisy{.name = "noisy", .of_repeat = 0.05};
const Machine kSpikes{.name = "spikes", .of_spikes = 0.3};
const Machine kWalk{.name = "walk", .of_walk = 0.01};
const Machine kSteps{.name = "steps", .of_step = 0.2, .changes = 0.01};
const Machine kHiddenWalk{.name = "hidden walk", .of_walk = 0.01, .seen = false};
const Machine kHiddenSteps{.name = "hidden steps", .of_step = 0.2, .changes = 0.01, .seen = false};

}  // namespace

TEST_CASE("the same code twice ends with exit code 3 in at most one run of a hundred") {
  for (const Machine& machine : {kQuiet, kNoisy, kSpikes, kWalk, kSteps, kHiddenWalk}) {
    CAPTURE(machine.name);
    CHECK(rates(machine, 0, 10, 1000).slower <= 0.01);
    CHECK(rates(machine, 0, 6, 200).slower <= 0.01);
  }
}

TEST_CASE("what neither repeats nor the yardstick see is seen by runs in turn") {
  const Machine rare{.name = "rare hidden steps", .of_step = 0.2, .changes = 0.003, .seen = false};
  for (const Machine& machine : {rare, kHiddenSteps}) {
    CHECK(rates(machine, 0, 10, 1000).slower <= 0.05);
    CHECK(rates(machine, 0, 10, 1000, Order::kInTurn).slower <= 0.01);
  }
}

TEST_CASE("on a quiet machine the same code passes, and a slowdown is found") {
  CHECK(rates(kQuiet, 0, 10, 400).passed >= 0.8);
  CHECK(rates(kQuiet, 0, 20, 400).passed >= 0.95);
  CHECK(rates(kQuiet, 0.2, 10, 400).slower >= 0.99);
  CHECK(rates(kQuiet, 0.1, 10, 400).slower >= 0.5);
  CHECK(rates(kSpikes, 0.2, 10, 400).slower >= 0.7);
}

TEST_CASE("a slowdown that noise hides is inconclusive, and a pass only by chance") {
  CHECK(rates(kNoisy, 0.05, 10, 400).passed <= 0.05);
  CHECK(rates(kQuiet, 0.03, 10, 400).passed <= 0.05);
}

TEST_CASE("fewer repeats than the level needs never end with exit code 3") {
  CHECK(rates(kQuiet, 0.5, 5, 20).inconclusive > 0.999);
  CHECK(rates(kQuiet, 0.5, 6, 20).slower > 0.999);
}
