#include "measure/ceilings.h"
#include "support/near.h"

#include <doctest/doctest.h>

using namespace lora_bench;

namespace {

using Curve = std::vector<Ceilings::Point>;

}  // namespace

TEST_CASE("a size that was disturbed takes no longer than a larger one") {
  Curve curve{{100, 1.0}, {200, 7.0}, {400, 5.0}, {800, 4.0}, {1600, 9.0}};
  make_monotone(curve);
  CHECK(curve[0].seconds == 1.0);
  CHECK(curve[1].seconds == 4.0);
  CHECK(curve[2].seconds == 4.0);
  CHECK(curve[3].seconds == 4.0);
  CHECK(curve[4].seconds == 9.0);
}

TEST_CASE("a size that was disturbed takes no longer than its halves one after the other") {
  // 537 MB at 178 GB/s and 1.1 GB at 131 GB/s cannot both be what the machine can do.
  Curve curve{{268435456, 1.6e-3}, {536870912, 3.0e-3}, {1073741824, 8.2e-3}};
  make_no_slower_than_pieces(curve);
  CHECK(curve[0].seconds == 1.6e-3);
  CHECK(curve[1].seconds == 3.0e-3);
  CHECK(curve[2].seconds == near(6.0e-3));
}

TEST_CASE("settled curves stay as they are, whatever the order") {
  Curve curve{{100, 3.0}, {200, 8.0}, {400, 2.0}, {800, 9.0}};
  make_monotone(curve);
  make_no_slower_than_pieces(curve);
  const Curve once = curve;
  make_monotone(curve);
  make_no_slower_than_pieces(curve);
  for (std::size_t i = 0; i < curve.size(); ++i) {
    CHECK(curve[i].seconds == once[i].seconds);
    CHECK((i == 0 || curve[i].seconds >= curve[i - 1].seconds));
  }
}

TEST_CASE("what comes from memory passes through the cache, so the cache curve is not above") {
  Ceilings ceilings;
  ceilings.memory_curve = {{100, 1.0}, {200, 9.0}, {400, 3.0}, {800, 5.0}};
  ceilings.cache_curve = {{100, 2.0}, {200, 1.5}, {400, 1.0}, {800, 7.0}};
  settle_curves(ceilings);
  for (std::size_t i = 0; i < ceilings.cache_curve.size(); ++i) {
    CHECK(ceilings.cache_curve[i].seconds <= ceilings.memory_curve[i].seconds);
  }
  CHECK(ceilings.memory_curve[1].seconds == 2.0);  // twice as long as half of it
  CHECK(ceilings.cache_curve[0].seconds == 1.0);
  CHECK(ceilings.cache_curve[2].seconds == 1.0);
  CHECK(ceilings.cache_curve[3].seconds == 5.0);
  Ceilings none;
  settle_curves(none);
  CHECK(none.cache_curve.empty());
}

TEST_CASE("curves of no or one point are left alone") {
  Curve none;
  make_monotone(none);
  make_no_slower_than_pieces(none);
  CHECK(none.empty());
  Curve one{{100, 2.0}};
  make_monotone(one);
  make_no_slower_than_pieces(one);
  CHECK(one[0].seconds == 2.0);
}

TEST_CASE("of two measurements of one machine each better figure counts") {
  Ceilings busy;
  busy.memory_curve = {{100, 4.0}, {200, 5.0}};
  busy.cache_curve = {{100, 1.0}, {200, 5.0}};
  busy.again_curve = {{100, 2.0}, {200, 4.0}};
  busy.copy_bytes_per_s = 10;
  busy.launch_seconds = 2e-6;
  busy.product_flops_per_s = 7;
  busy.load = 1.5;
  busy.peaks = {{Dtype::kFp32, 3.0}, {Dtype::kBf16, 9.0}};
  Ceilings quiet = busy;
  quiet.memory_curve = {{100, 2.0}, {200, 6.0}};
  quiet.cache_curve = {{100, 1.5}, {200, 3.0}};
  quiet.again_curve = {{100, 2.5}, {200, 3.5}};
  quiet.copy_bytes_per_s = 12;
  quiet.launch_seconds = 1e-6;
  quiet.product_flops_per_s = 8;
  quiet.load = 0.1;
  quiet.peaks = {{Dtype::kBf16, 8.0}, {Dtype::kFp32, 4.0}};
  const Ceilings best = best_of(busy, quiet);
  CHECK(best.memory_curve[0].seconds == 2.0);
  CHECK(best.memory_curve[1].seconds == 5.0);
  CHECK(best.cache_curve[0].seconds == 1.0);
  CHECK(best.cache_curve[1].seconds == 3.0);
  CHECK(best.again_curve[0].seconds == 2.0);
  CHECK(best.again_curve[1].seconds == 3.5);
  CHECK(best.copy_bytes_per_s == 12);
  CHECK(best.launch_seconds == 1e-6);
  CHECK(best.product_flops_per_s == 8);
  CHECK(best.load == 0.1);
  CHECK(best.peaks[0].flops_per_s == 4.0);
  CHECK(best.peaks[1].flops_per_s == 9.0);
}
