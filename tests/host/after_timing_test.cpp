#include "measure/after_timing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "support/cpu_case.h"
#include "support/dishonest.h"
#include "support/draws.h"
#include "support/launch_for.h"
#include "support/plain_backend.h"
#include "verify/verify.h"
#include "workload/excerpt.h"

using namespace lora_bench;
using namespace lora_bench::test;

TEST_CASE("nothing is said of honest launches, whatever rotates") {
  for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
    for (const Op op : {Op::kLinear, Op::kShrink, Op::kExpand, Op::kEmbedding, Op::kLogits}) {
      for (const bool add_inputs : {true, false}) {
        CAPTURE(name(op));
        Problem problem = decode(op, 40);
        problem.add_inputs = add_inputs;
        CHECK(verdict_on(problem, honest, cache).empty());
      }
    }
  }
}

TEST_CASE("honest launches of any problem are told right after timing") {
  for (std::int64_t seed = 0; seed < test::draws(60); ++seed) {
    Problem problem = random_problem(static_cast<std::uint64_t>(seed));
    problem.shrink_adds = false;  // which is proved, not timed
    CAPTURE(describe(problem));
    CHECK(verdict_on(problem, honest).empty());
  }
}

namespace {

// How many rows are looked at, look by look, where a look at all of an output finds an infinity in
// these. What is left of all sets; y as it was and four sets, once more; another number in B, A and
// x; another x; another batch.
std::vector<std::size_t> rows_looked_at(const Problem& problem,
                                        const std::vector<std::int64_t>& infinite_rows) {
  const MeasureSettings settings = short_measure();
  std::vector<std::size_t> rows;
  const auto check = [&](const Left& left) {
    if (left.rows.empty()) {
      return Look{.infinite_rows = infinite_rows};
    }
    if (!left.first_columns.empty()) {
      return Look{};  // pieces of rows, of single launches
    }
    rows.push_back(left.rows.size());
    return Look{};
  };
  DeviceFacts device;
  device.kind = "cpu";
  device.cache_bytes = 4 * touched_bytes(problem, CacheMode::kWeightsCold);
  const std::unique_ptr<Memory> memory = make_host_memory();
  FakeClock clock([](int, std::int64_t) { return 1e-6; });
  const Measurement measured = measure({problem, settings, 1, check, nullptr, nullptr},
                                       Dishonest(honest), *memory, clock, device);
  CHECK(measured.check_passed);
  return rows;
}

}  // namespace

TEST_CASE("sixteen rows are looked at where all of an output is, fewer where few are changed") {
  CHECK(rows_looked_at(decode(Op::kLinear, 40), {}) ==
        std::vector<std::size_t>{16, 4, 4, 4, 4, 4, 4, 4, 1, 1, 1, 1, 16, 16, 16, 16});
}

TEST_CASE("of all rows with an infinity two more are looked at, where they were not drawn") {
  Problem problem = decode(Op::kLinear, 40);
  std::vector<std::int32_t> ids = problem.plan.adapter_of_token;
  std::fill(ids.begin(), ids.begin() + 20, kNoAdapter);  // nobody owns them: never drawn
  problem.plan = make_plan(ids, problem.slots);
  std::vector<std::int64_t> infinite(40);
  std::iota(infinite.begin(), infinite.end(), 0);
  CHECK(rows_looked_at(problem, {3}).front() == 17);
  CHECK(rows_looked_at(problem, infinite).front() == 18);
  const Problem few = decode(Op::kLinear, 12);  // all drawn, but row 2
  CHECK(rows_looked_at(few, {0, 1}).front() == 11);
}

TEST_CASE("of an output whose rows are dear two are looked at, of a cheap one sixteen") {
  constexpr std::int64_t kDear = std::int64_t{1} << 50;
  CHECK(affordable_rows(kDear, 1) == 2);
  CHECK(affordable_rows(1 << 22, 1) == 8);
  CHECK(affordable_rows(1 << 22, 2) == 16);
  CHECK(affordable_rows(0, 1) == 16);
}

TEST_CASE("what a loose declaration lets pass after timing is known to be no proof") {
  for (const Op op : {Op::kLinear, Op::kShrink, Op::kExpand}) {
    for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
      CAPTURE(name(op));
      CAPTURE(name(cache));
      const Look tight = measurement_of(decode(op), Dishonest(honest), cache).replayed;
      CHECK(tight.compared > 0);
      CHECK(2 * tight.unproved < tight.compared);
    }
  }
  std::int64_t launches = 0;
  const auto every_second = [&](const Problem& problem, const Operands& operands,
                                const Backend& backend) {
    if (++launches < 20 || launches % 2 == 0) {
      backend.launch(problem, operands, {});
    }
  };
  Problem problem = decode();
  problem.in_features = problem.x_stride = 1024;  // so many roundings to 8 bits may give anything
  const Measurement vague = measurement_of(problem, Dishonest(every_second, 0x1p-8));
  CHECK(vague.check_message.empty());
  CHECK(vague.replayed.compared > 0);
  CHECK(vague.replayed.unproved == vague.replayed.compared);
}

TEST_CASE("where signs cancel below the bound, launches left out are seen on numbers of one sign") {
  Problem problem = decode();
  problem.in_features = problem.x_stride = 16384;
  const double deep = 0x1p-22;  // makes 0.4 % of magnitudes, which add up to 96 times h
  const Look look = measurement_of(problem, Dishonest(honest, deep)).replayed;
  CHECK(look.wrong.empty());
  CHECK(2 * look.unproved < look.compared);
  std::int64_t launches = 0;
  const auto tired = [&](const Problem& whole, const Operands& operands, const Backend& backend) {
    if (++launches < 300) {
      backend.launch(whole, operands, {});
    }
  };
  CHECK_FALSE(measurement_of(problem, Dishonest(tired, deep)).check_message.empty());
}

// What an earlier run left is no result of the one that is looked at.
TEST_CASE("launches that are left out of the very run that is looked at are found out") {
  for (const Op op : {Op::kLinear, Op::kShrink}) {
    for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold}) {
      CAPTURE(name(op));
      CAPTURE(name(cache));
      Problem problem = decode(op);
      problem.add_inputs = false;
      std::vector<std::int64_t> looks;
      std::int64_t before = 0;
      const auto count = [&](const Problem& whole, const Operands& operands,
                             const Backend& backend) {
        before += looks.empty() ? 1 : 0;
        backend.launch(whole, operands, {});
      };
      const std::int64_t launches =
          measurement_of(problem, Dishonest(count), cache, &looks).launches;
      REQUIRE(before > launches);
      for (const bool all : {true, false}) {
        CAPTURE(all);
        std::vector<const void*> outputs;  // in the order of the first launches
        std::int64_t now = 0;
        const auto rest = [&](const Problem& whole, const Operands& operands,
                              const Backend& backend) {
          const void* const output = op == Op::kShrink ? operands.h : operands.y;
          if (std::count(outputs.begin(), outputs.end(), output) == 0) {
            outputs.push_back(output);
          }
          const bool looked_at = ++now > before - launches && now <= before;
          if (!looked_at || (!all && output != outputs.back())) {
            backend.launch(whole, operands, {});
          }
        };
        CHECK(verdict_on(problem, rest, cache) == "left by the timed launches: wrong values");
      }
    }
  }
}

TEST_CASE("every h of many is without numbers again within a few samples") {
  constexpr std::int64_t kSets = 150;
  const Problem problem = decode(Op::kShrink);
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const std::unique_ptr<Memory> memory = make_host_memory();
  OperandSets sets(*memory, problem, tensors, plain_backend(), CacheMode::kCold, kSets);
  const auto numbers = [&](bool write) {
    std::int64_t count = 0;
    for (std::int64_t set = 0; set < kSets; ++set) {
      count += first_eight(sets.operands(set).h) == UINT64_MAX ? 0 : 1;
      if (write) {
        std::memset(sets.operands(set).h, 0, 8);
      }
    }
    return count;
  };
  CHECK(numbers(true) == 0);
  for (int sample = 0; sample < 3; ++sample) {
    sets.poison_h();
  }
  CHECK(numbers(true) == 0);
  sets.poison_every_h();
  CHECK(numbers(false) == 0);
}

TEST_CASE("another batch has the workspace that it asks for") {
  Problem problem = decode(Op::kLinear, 8);
  problem.plan = make_plan(std::vector<std::int32_t>{0, 0, 0, 1, 1, 1, 1, 1}, problem.slots);
  std::map<std::int64_t, const void*> rooms;  // by size
  const auto fill = [&](const Problem& whole, const Operands& operands, const Backend& backend) {
    const std::int64_t bytes = Dishonest::gathered_bytes(whole);
    rooms.emplace(bytes, operands.workspace);
    std::memset(operands.workspace, 1, static_cast<std::size_t>(bytes));
    backend.launch(whole, operands, {});
  };
  CHECK(verdict_on(problem, fill).empty());
  REQUIRE(rooms.size() == 2);
  CHECK(rooms.at(64) != rooms.at(512));
}

TEST_CASE("h holds nothing of the sample before") {
  std::int64_t fresh = 0;
  const auto count = [&](const Problem& problem, const Operands& operands, const Backend& backend) {
    fresh += first_eight(operands.h) == UINT64_MAX ? 1 : 0;
    backend.launch(problem, operands, {});
  };
  CHECK(verdict_on(decode(Op::kShrink), count).empty());
  CHECK(fresh > 10);
}

TEST_CASE("an operand set between the first and the last that is left out is found out") {
  std::set<const void*> seen;
  std::int64_t launches = 0;
  const void* skipped = nullptr;
  const auto skip = [&](const Problem& problem, const Operands& operands, const Backend& backend) {
    seen.insert(operands.y);
    skipped = ++launches == 5 ? operands.y : skipped;
    if (launches < 40 || operands.y != skipped) {
      backend.launch(problem, operands, {});
    }
  };
  CHECK(verdict_on(decode(), skip, CacheMode::kCold).find("wrong values") != std::string::npos);
  CHECK(seen.size() > 5);
}

TEST_CASE("sets whose result the next one overwrites cannot be left out") {
  for (const Op op : {Op::kLinear, Op::kShrink}) {
    CAPTURE(name(op));
    Problem problem = decode(op);
    problem.add_inputs = false;
    std::vector<const void*> sets;  // in the order of the first launches
    std::ptrdiff_t before = 0;
    std::int64_t launches = 0;
    const auto last_alone = [&](const Problem& whole, const Operands& operands,
                                const Backend& backend) {
      const auto found = std::find(sets.begin(), sets.end(), operands.a[0]);
      const std::ptrdiff_t set = found - sets.begin();
      if (found == sets.end()) {
        sets.push_back(operands.a[0]);
      }
      const bool next_overwrites =
          set == before + 1 && set + 1 < static_cast<std::ptrdiff_t>(sets.size());
      before = set;
      if (++launches < 40 || !next_overwrites) {
        backend.launch(whole, operands, {});
      }
    };
    CHECK(verdict_on(problem, last_alone).find("wrong values") != std::string::npos);
    CHECK(sets.size() == 13);
  }
}

TEST_CASE("every output is scanned whole, and an infinity in it held against the oracle") {
  const Problem problem = decode(Op::kLinear, 60);
  for (const float spoilt : {1.0F, std::numeric_limits<float>::infinity()}) {
    CAPTURE(spoilt);
    const std::int64_t row = std::isinf(spoilt) ? 41 : 2;  // nobody owns row 2
    for (std::uint64_t secret = 0; secret < 4; ++secret) {
      std::vector<const void*> outputs;
      const auto spoil = [&](const Problem& whole, const Operands& operands,
                             const Backend& backend) {
        backend.launch(whole, operands, {});
        if (std::count(outputs.begin(), outputs.end(), operands.y) == 0) {
          outputs.push_back(operands.y);
        }
        if (operands.y == outputs.front()) {
          store(whole.dtype[Role::kY], operands.y, row * whole.y_stride, spoilt);
        }
      };
      const std::string said =
          measurement_of(problem, Dishonest(spoil), CacheMode::kCold, nullptr, secret)
              .check_message;
      CHECK(said == "left by the timed launches: wrong values");
      CHECK(outputs.size() > 1);
    }
  }
}

TEST_CASE("no rows are known to be the ones that are looked at") {
  const Problem problem = decode(Op::kLinear, 300);
  const std::vector<std::int64_t> usual = sample_rows(problem, 16, 1);
  std::int64_t launches = 0;
  const auto few = [&](const Problem& whole, const Operands& operands, const Backend& backend) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(whole.tokens), kNoAdapter);
    for (const std::int64_t row : usual) {
      ids[static_cast<std::size_t>(row)] =
          whole.plan.adapter_of_token[static_cast<std::size_t>(row)];
    }
    ++launches < 40 ? backend.launch(whole, operands, {})
                    : launch_for(ids, whole, operands, backend);
  };
  CHECK(verdict_on(problem, few).find("wrong values") != std::string::npos);
}

TEST_CASE("y is restored before a launch more could not be told") {
  for (const CacheMode cache : {CacheMode::kHot, CacheMode::kCold}) {
    std::vector<std::int64_t> launches;
    CHECK(verdict_on(decode(), honest, cache, &launches).empty());
    for (const std::int64_t on_y : launches) {
      CHECK(on_y <= 256);
    }
  }
  std::uint64_t fresh = 0;
  std::int64_t age = 0;
  const auto tire = [&](const Problem& problem, const Operands& operands, const Backend& backend) {
    fresh = fresh == 0 ? first_eight(operands.y) : fresh;
    age = first_eight(operands.y) == fresh ? 1 : age + 1;
    if (age <= 200) {
      backend.launch(problem, operands, {});
    }
  };
  CHECK(verdict_on(decode(), tire, CacheMode::kHot).find("wrong values") != std::string::npos);
}

TEST_CASE("writes outside of the output are found out whatever they hit") {
  const auto said = [](const std::function<void(const Problem&, const Operands&)>& harm,
                       const std::string& what) {
    const auto trick = [&](const Problem& problem, const Operands& operands,
                           const Backend& backend) {
      backend.launch(problem, operands, {});
      harm(problem, operands);
    };
    const std::string message = verdict_on(decode(), trick);
    CAPTURE(message);
    CHECK(message.find(what) != std::string::npos);
  };
  const auto write = [](const void* at, std::int64_t index, std::uint16_t value) {
    static_cast<std::uint16_t*>(const_cast<void*>(at))[index] = value;
  };
  said([&](const Problem&, const Operands& o) { write(o.b[0], -1, 0x1234); },
       "guard of b[0] damaged");
  said([&](const Problem&, const Operands& o) { write(o.x, -1, 0x1234); }, "guard of x damaged");
  said([&](const Problem&, const Operands& o) { write(o.token_order, -1, 3); },
       "guard of token_order damaged");
  said([&](const Problem& p, const Operands& o) { write(o.x, 2 * p.x_stride, 0); },
       "input x was changed");
  said(
      [&](const Problem& p, const Operands& o) {
        write(o.a[0], 2 * p.max_rank * p.in_features, 0x1234);  // nobody uses slot 2
      },
      "input a[0] was changed");
  said([&](const Problem&, const Operands& o) { write(o.rank, 4, 1); }, "input rank was changed");
}

TEST_CASE("no two operand sets have the same weights, and all have the numbers of the first") {
  const Problem problem = decode();
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  // Text, as it can be ordered.
  const std::size_t bytes = tensors.a[0].data.size() / 3;
  std::set<std::string> seen;
  std::string first;
  for (std::int64_t set = 0; set < 100; ++set) {
    std::string slot(bytes, ' ');
    copy_turned_slot({problem, Role::kA, tensors.a[0]}, 1, set,
                     reinterpret_cast<std::byte*>(slot.data()));
    CHECK(seen.insert(slot).second);
    std::sort(slot.begin(), slot.end());
    first = set == 0 ? slot : first;
    CHECK(slot == first);
  }
}

TEST_CASE(
    "lanes of zeros are the same in all operand sets, and no two sets have the same numbers") {
  Problem problem = decode();
  problem.rank.assign(3, problem.max_rank);
  problem.own_rank = {3, 5, 8};
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const auto element_bytes = static_cast<std::size_t>(size_bytes(Dtype::kBf16));
  for (const Weights& weights :
       {Weights{problem, Role::kA, tensors.a[0]}, Weights{problem, Role::kB, tensors.b[0]}}) {
    const std::int64_t elements = weights.tensor.elements / 3;
    const std::int64_t after_lane = weights.role == Role::kA ? problem.in_features : 1;
    for (const std::int64_t slot : {0, 1, 2}) {
      std::set<std::vector<std::byte>> seen;
      for (std::int64_t set = 0; set < 40; ++set) {
        CAPTURE(slot);
        CAPTURE(set);
        std::vector<std::byte> turned(static_cast<std::size_t>(elements) * element_bytes);
        copy_turned_slot(weights, slot, set, turned.data());
        CHECK(seen.insert(turned).second);
        std::int64_t wrong = 0;
        for (std::int64_t element = 0; element < elements; ++element) {
          const std::byte* at = turned.data() + static_cast<std::size_t>(element) * element_bytes;
          const std::int64_t lane = element / after_lane % problem.max_rank;
          const bool zero = lane >= problem.own_rank[static_cast<std::size_t>(slot)];
          wrong += zero == (at[0] == std::byte{0} && at[1] == std::byte{0}) ? 0 : 1;
          const std::int64_t drawn = drawn_element(weights, slot, set, element);
          const std::byte* from =
              weights.tensor.data.data() + static_cast<std::size_t>(drawn) * element_bytes;
          wrong += std::memcmp(at, from, element_bytes) == 0 ? 0 : 1;
          wrong += element_of_set(weights, set, drawn) == slot * elements + element ? 0 : 1;
        }
        std::vector<std::byte> some(20 * element_bytes);
        for (const std::int64_t first : {std::int64_t{0}, elements / 3, elements - 20}) {
          copy_elements_of_set(weights, slot, set, first, 20, some.data());
          wrong += std::memcmp(some.data(),
                               turned.data() + static_cast<std::size_t>(first) * element_bytes,
                               some.size()) == 0
                       ? 0
                       : 1;
        }
        CHECK(wrong == 0);
      }
    }
  }
}
