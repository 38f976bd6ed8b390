#pragma once

#include <cstdint>
#include <span>

namespace lora_bench {

// By how much the times of one group of repeats differ from those of another: the median of the
// logarithms of all ratios fresh / base (Hodges and Lehmann), and its interval by the rank-sum test
// of Mann and Whitney. No law of the times is assumed, only that repeats are independent.
struct Shift {
  double median = 0, low = 0, high = 0;
};

// How many of the ratios below the interval (and as many above) the test leaves out, plus one: the
// rank of its ends. The shift lies outside one of them with a chance of `level` at most; 0 = so few
// repeats cannot tell at this level.
[[nodiscard]] std::int64_t rank_of_end(std::int64_t base, std::int64_t fresh, double level);

// The least number of repeats, of either group as many, with which rank_of_end is not 0.
[[nodiscard]] std::int64_t least_repeats(double level);

// Precondition: times above 0, and rank_of_end of these sizes is not 0.
[[nodiscard]] Shift shift_of(std::span<const double> base, std::span<const double> fresh,
                             double level);

}  // namespace lora_bench
