#pragma once

#include <doctest/doctest.h>

namespace lora_bench {

// As near as doctest's Approx, but for numbers far below 1, as times in seconds are: that one takes
// all below 1e-5 for equal.
inline doctest::Approx near(double value) { return doctest::Approx(value).scale(1e-9); }

}  // namespace lora_bench
