#include "run/watch.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "core/error.h"
#include "ops/backends.h"

namespace lora_bench {
namespace {

TEST_CASE("two signals in turn are one request to end") {
  const pid_t child = fork();
  if (child == 0) {
    install_signal_handlers();
    const bool before = interrupted();
    std::raise(SIGINT);
    std::raise(SIGINT);
    _exit(!before && interrupted() ? 42 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 42);
}

TEST_CASE("work that returns is waited for, however slow, while no backend is entered") {
  Pulse pulse;
  bool done = false;
  const Ended ended = run_watched(
      [&done] {
        std::this_thread::yield();
        done = true;
      },
      pulse, 0.0);
  CHECK(ended == Ended::kReturned);
  CHECK(done);
}

TEST_CASE("what the work throws arrives with its type") {
  Pulse pulse;
  CHECK_THROWS_AS((void)run_watched([] { throw CaseError("broken"); }, pulse, 1), CaseError);
}

TEST_CASE("a backend that does not come back is left behind") {
  const auto pulse = std::make_shared<Pulse>();
  const auto release = std::make_shared<std::atomic<bool>>(false);
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  const Ended ended = run_watched(
      [pulse, release, gone] {
        const std::int64_t before = pulse->enter();
        while (!release->load()) {
          std::this_thread::yield();
        }
        pulse->leave(before);
        gone->store(true);
      },
      *pulse, 0.01);
  CHECK(ended == Ended::kHung);
  CHECK(any_abandoned());
  release->store(true);
  while (!gone->load()) {
    std::this_thread::yield();
  }
}

TEST_CASE("a nested call does not end the time inside") {
  Pulse pulse;
  CHECK(pulse.seconds_inside() == 0);
  const std::int64_t outer = pulse.enter();
  const std::int64_t inner = pulse.enter();
  pulse.leave(inner);
  CHECK(inner != 0);
  pulse.leave(outer);
  CHECK(pulse.seconds_inside() == 0);
}

}  // namespace
}  // namespace lora_bench
