#include <doctest/doctest.h>

#include <set>

#include "measure/after_timing.h"
#include "support/plain_backend.h"
#include "support/problems.h"

using namespace lora_bench;

TEST_CASE("after timing: which sets are looked at follows from the secret alone") {
  constexpr std::int64_t kSets = 16;
  const Problem problem = linear_problem();
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const auto memory = make_host_memory();
  OperandSets sets(*memory, problem, tensors, plain_backend(), CacheMode::kWeightsCold, kSets);
  const MeasureSettings settings;
  const MeasureRequest request{problem, settings, 1, nullptr, nullptr, nullptr};
  std::set<std::int64_t> first;
  std::set<std::vector<std::int64_t>> orders;
  for (std::uint64_t secret = 0; secret < 8; ++secret) {
    std::vector<std::byte> room;
    const AfterTiming after(request, sets, secret, room);
    std::vector<std::int64_t> order;
    for (std::int64_t turn = 0; turn < 4; ++turn) {
      order.push_back(after.any_set(turn));
      CHECK(order.back() >= 0);
      CHECK(order.back() < kSets);
    }
    first.insert(order.front());
    orders.insert(order);
  }
  CHECK(first.size() > 3);
  CHECK(orders.size() == 8);
}
