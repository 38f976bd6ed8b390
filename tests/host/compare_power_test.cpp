#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "compare/compare.h"
#include "core/random.h"
#include "measure/statistics.h"

using namespace lora_bench;

namespace {

// Noise as measured runs have it: every sample lognormal, and a drift that a whole run shares.
struct Noise {
  double of_sample = 0.01;
  double of_run = 0.003;
  int samples = 30;
};

double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const double radius = std::sqrt(-2 * std::log(1 - random_unit(seed, stream, 2 * index)));
  return radius * std::cos(2 * std::numbers::pi * random_unit(seed, stream, 2 * index + 1));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

Row simulated(double time_us, const Noise& noise, std::uint64_t run) {
  constexpr std::uint64_t kSeed = 20250101;
  Row row;
  row.status = Status::kPassed;
  const double drift = noise.of_run * normal(kSeed, run, 1000000);
  std::vector<double> halves[2];
  for (int i = 0; i < noise.samples; ++i) {
    const double sample = normal(kSeed, run, static_cast<std::uint64_t>(i));
    row.samples_us.push_back(time_us * std::exp(noise.of_sample * sample + drift));
    halves[i % 2].push_back(row.samples_us.back());
  }
  row.time_us = median(row.samples_us);
  row.floor_us = 1;
  row.levels = "exact";  // else no verdict at all
  row.noise_us = std::max(std::abs(median(halves[0]) - median(halves[1])),
                          median_half_width(row.samples_us));  // as sampling does
  return row;
}

struct Rates {
  double slower = 0, faster = 0, inconclusive = 0;
};

Rates rates(double slowdown, const Noise& noise, int pairs) {
  Rates found;
  for (int i = 0; i < pairs; ++i) {
    const auto run = static_cast<std::uint64_t>(2 * i);
    const Row base = simulated(100, noise, run);
    const Row fresh = simulated(100 * (1 + slowdown), noise, run + 1);
    const Change change = judge(base, fresh, {}).change;
    found.slower += change == Change::kSlower ? 1.0 / pairs : 0;
    found.faster += change == Change::kFaster ? 1.0 / pairs : 0;
    found.inconclusive += change == Change::kInconclusive ? 1.0 / pairs : 0;
  }
  MESSAGE("slowdown " << slowdown * 100 << " %, samples " << noise.samples << " with "
                      << noise.of_sample * 100 << " % noise, runs " << noise.of_run * 100
                      << " %: SLOWER " << found.slower * 100 << " %, FASTER " << found.faster * 100
                      << " %, INCONCLUSIVE " << found.inconclusive * 100 << " %");
  return found;
}

}  // namespace

TEST_CASE("at default settings the same code twice is called a change in at most 1 % of pairs") {
  const Rates found = rates(0, {}, 2000);
  CHECK(found.slower + found.faster <= 0.01);
  CHECK(found.inconclusive <= 0.05);
}

TEST_CASE("at default settings a 5 % slowdown is found in at least 95 % of pairs") {
  CHECK(rates(0.05, {}, 1000).slower >= 0.95);
}

TEST_CASE("the same code twice is rarely called a change, however noisy or short the runs") {
  for (const Noise& noise : {Noise{0.03, 0.003, 30}, Noise{0.10, 0.003, 30}, Noise{0.02, 0.003, 8},
                             Noise{0.01, 0.003, 15}}) {
    const Rates found = rates(0, noise, 1000);
    CHECK(found.slower + found.faster <= 0.01 + 3 * std::sqrt(0.01 * 0.99 / 1000));
  }
}

TEST_CASE("runs too noisy for the threshold are inconclusive, not the same") {
  CHECK(rates(0.05, {0.10, 0.003, 30}, 500).inconclusive >= 0.9);
  CHECK(rates(1.0, {0.10, 0.003, 30}, 500).slower >= 0.99);
}

TEST_CASE("a speed-up of 5 % is found as often as a slowdown") {
  CHECK(rates(1 / 1.05 - 1, {}, 1000).faster >= 0.95);
}

TEST_CASE("a drift of whole runs is noise once repeats show it") {
  const Noise drifting{0.01, 0.02, 30};
  const double single = rates(0, drifting, 500).slower;
  CHECK(single > 0.05);
  int alarms = 0;
  for (std::uint64_t pair = 0; pair < 500; ++pair) {
    Results base;
    Results fresh;
    for (std::uint64_t repeat = 0; repeat < 5; ++repeat) {
      base.rows.push_back(simulated(100, drifting, 10 * pair + repeat));
      fresh.rows.push_back(simulated(100, drifting, 10 * pair + 5 + repeat));
    }
    alarms += compare(base, fresh, {}).rows.front().change == Change::kSlower ? 1 : 0;
  }
  MESSAGE("the same with 5 repeats: SLOWER " << alarms / 5.0 << " %");
  CHECK(alarms <= 10);
}
