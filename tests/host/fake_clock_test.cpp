#include <doctest/doctest.h>

#include <cstdint>

#include "core/error.h"
#include "device/facts.h"
#include "measure/fake_clock.h"

using lora_bench::Clock;
using lora_bench::FakeClock;
using lora_bench::Launch;
using lora_bench::Stream;

TEST_CASE("the fake clock says what its script says and runs every launch once a run") {
  int launched = 0;
  FakeClock clock([](int slot, std::int64_t run) { return slot == 0 ? 1.0 + double(run) : 10.0; });
  const Launch count = [&](Stream) { ++launched; };
  clock.load(0, {count, count, count});
  clock.load(1, {count});
  CHECK(clock.run_seconds(0) == 3.0);
  CHECK(clock.run_seconds(1) == 10.0);
  CHECK(clock.run_seconds(0) == 6.0);
  CHECK(clock.now_seconds() == 19.0);
  CHECK(launched == 7);
  CHECK(clock.runs(0) == 2);
  CHECK(clock.runs(1) == 1);
  CHECK(clock.launches(0) == 3);
  clock.advance(0.5);
  CHECK(clock.now_seconds() == 19.5);
}

TEST_CASE("a clock refuses to run a slot that was never loaded") {
  FakeClock fake([](int, std::int64_t) { return 1.0; });
  CHECK_THROWS_AS((void)fake.run_seconds(0), std::logic_error);
  CHECK_THROWS_AS((void)lora_bench::make_host_clock()->run_seconds(3), std::logic_error);
}

TEST_CASE("the host clock runs the sequence last loaded in order, and time does not go back") {
  const auto clock = lora_bench::make_host_clock();
  std::string order;
  clock->load(0, {[&](Stream) { order += 'x'; }});
  clock->load(0, {[&](Stream) { order += 'a'; },
                  [&](Stream stream) {
                    CHECK(stream.handle == nullptr);
                    order += 'b';
                  }});
  const double before = clock->now_seconds();
  CHECK(clock->run_seconds(0) >= 0);
  CHECK(order == "ab");
  CHECK(clock->now_seconds() >= before);
  CHECK(clock->resolution_seconds() > 0);
  CHECK(clock->resolution_seconds() < 1e-3);
}

TEST_CASE("the host clock leaves what only a GPU has unknown") {
  const lora_bench::Conditions now = lora_bench::make_host_clock()->conditions();
  CHECK(now.power_w != now.power_w);
  CHECK(now.throttle.empty());
  CHECK(now.load >= 0);
}

TEST_CASE("a device clock without a usable GPU says why") {
  const std::string reason = lora_bench::why_no_gpu();
  if (!reason.empty()) {
    CHECK_THROWS_WITH_AS((void)lora_bench::make_device_clock(lora_bench::LaunchMode::kGraph),
                         reason.c_str(), lora_bench::EnvironmentError);
  }
}
