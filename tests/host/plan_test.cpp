#include "plan/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "core/random.h"

using namespace lora_bench;

namespace {

std::vector<std::int32_t> random_ids(std::uint64_t seed, std::int64_t slots) {
  const std::uint64_t tokens = random_below(seed, 1, 0, 200);
  std::vector<std::int32_t> ids;
  for (std::uint64_t i = 0; i < tokens; ++i) {
    const auto bound = static_cast<std::uint64_t>(slots + 1);
    ids.push_back(static_cast<std::int32_t>(random_below(seed, 2, i, bound)) - 1);
  }
  return ids;
}

std::vector<std::int32_t> ids_in_order(const Plan& plan) {
  std::vector<std::int32_t> ids;
  for (const std::int32_t token : plan.token_order) {
    ids.push_back(plan.adapter_of_token[static_cast<std::size_t>(token)]);
  }
  return ids;
}

}  // namespace

TEST_CASE("a plan groups rows by adapter, in ascending ids, rows without one last") {
  const std::vector<std::int32_t> ids{2, -1, 0, 2, 0, -1, 5};
  const Plan plan = make_plan(ids, 6);
  CHECK(plan.adapter_of_token == ids);
  CHECK(plan.token_order == std::vector<std::int32_t>{2, 4, 0, 3, 6, 1, 5});
  CHECK(plan.active_ids == std::vector<std::int32_t>{0, 2, 5});
  CHECK(plan.group_starts == std::vector<std::int32_t>{0, 2, 4, 5});
  CHECK(plan.rows_with_adapter() == 5);
}

TEST_CASE("an empty batch and a batch without adapters make a plan without groups") {
  const Plan empty = make_plan({}, 3);
  CHECK(empty.tokens() == 0);
  CHECK(empty.group_starts == std::vector<std::int32_t>{0});
  const std::vector<std::int32_t> none{-1, -1};
  const Plan plain = make_plan(none, 0);
  CHECK(plain.active() == 0);
  CHECK(plain.rows_with_adapter() == 0);
  CHECK(plain.token_order == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("any plan is a stable permutation whose groups hold exactly the rows of their adapter") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto slots = static_cast<std::int64_t>(1 + random_below(seed, 0, 0, 40));
    const std::vector<std::int32_t> ids = random_ids(seed, slots);
    const Plan plan = make_plan(ids, slots);

    std::vector<std::int32_t> sorted = plan.token_order;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::int32_t> all(ids.size());
    std::iota(all.begin(), all.end(), 0);
    CHECK(sorted == all);

    REQUIRE(plan.group_starts.size() == plan.active_ids.size() + 1);
    CHECK(std::is_sorted(plan.active_ids.begin(), plan.active_ids.end(), std::less_equal<>()));
    const std::vector<std::int32_t> grouped = ids_in_order(plan);
    for (std::size_t group = 0; group < plan.active_ids.size(); ++group) {
      const std::int32_t id = plan.active_ids[group];
      const auto first = grouped.begin() + plan.group_starts[group];
      const auto last = grouped.begin() + plan.group_starts[group + 1];
      CHECK(last - first == std::count(ids.begin(), ids.end(), id));
      CHECK(std::count(first, last, id) == last - first);
      CHECK(std::is_sorted(plan.token_order.begin() + plan.group_starts[group],
                           plan.token_order.begin() + plan.group_starts[group + 1]));
    }
    CHECK(std::count(grouped.begin() + plan.rows_with_adapter(), grouped.end(), -1) ==
          plan.tokens() - plan.rows_with_adapter());
    CHECK(std::is_sorted(plan.token_order.begin() + plan.rows_with_adapter(),
                         plan.token_order.end()));
  }
}

TEST_CASE("rows that are already grouped stay where they are") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Plan once = make_plan(random_ids(seed, 12), 12);
    const Plan twice = make_plan(ids_in_order(once), 12);
    CHECK(std::is_sorted(twice.token_order.begin(), twice.token_order.end()));
    CHECK(twice.active_ids == once.active_ids);
    CHECK(twice.group_starts == once.group_starts);
  }
}

TEST_CASE("an adapter id outside the slots is refused with its row") {
  const std::vector<std::int32_t> above{0, 4};
  const std::vector<std::int32_t> below{-2};
  CHECK_THROWS_WITH_AS(make_plan(above, 4), "row 1 names adapter 4; ids go from -1 to 3",
                       std::invalid_argument);
  CHECK_THROWS_AS(make_plan(below, 4), std::invalid_argument);
}
