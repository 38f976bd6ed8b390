#include "verify/relations.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "support/draws.h"
#include "support/plain_backend.h"
#include "support/problems.h"
#include "verify/oracle.h"
#include "verify/step.h"

using namespace lora_bench;

namespace {

using Then = std::function<void(const Problem&, const Operands&)>;

std::optional<Failure> broken(const Problem& problem, const Backend& backend) {
  const auto memory = make_host_memory();
  Groundwork groundwork(problem, 1, 0);
  return check_relations(groundwork, backend, *memory, 64);
}

// The first relation that a backend with one more step at its end breaks.
std::string broken_by(const Then& then, const Problem& problem = linear_problem()) {
  const std::optional<Failure> failure = broken(problem, PlainBackend({.then = then}));
  return failure ? failure->what : "";
}

// The smallest change of the element that shows in bf16.
void nudge(const Problem& problem, const Operands& operands, std::int64_t index) {
  if (operands.y == nullptr) {
    return;
  }
  std::uint16_t bits = 0;
  auto* element = static_cast<std::byte*>(operands.y) + index * size_bytes(problem.dtype[Role::kY]);
  std::memcpy(&bits, element, 2);
  ++bits;
  std::memcpy(element, &bits, 2);
}

std::int64_t owned_column(const Problem& problem) { return problem.offset_start; }

// The problem as given, not one that a relation made of it.
bool is_whole(const Problem& problem) {
  return problem.op == Op::kLinear && problem.slices() == 2 && problem.max_rank == 8;
}

class NotInvariant : public PlainBackend {
 public:
  using PlainBackend::PlainBackend;
  Numerics numerics(const Problem& problem) const override {
    Numerics numerics = PlainBackend::numerics(problem);
    numerics.batch_invariant = false;
    numerics.unit_roundoff = 0x1p-10;  // a nudge is within the bound
    return numerics;
  }
};

class Varying : public PlainBackend {
 public:
  using PlainBackend::PlainBackend;
  Numerics numerics(const Problem& problem) const override {
    Numerics numerics = PlainBackend::numerics(problem);
    numerics.deterministic = false;
    return numerics;
  }
};

class Replaying : public PlainBackend {
 public:
  using PlainBackend::PlainBackend;
  Numerics numerics(const Problem& problem) const override {
    Numerics numerics = PlainBackend::numerics(problem);
    numerics.replays_other_batches = true;
    return numerics;
  }
};

// Counts the launches of one x at one y that went before without another.
class SameInARow {
 public:
  int operator()(const Problem& problem, const Operands& operands) {
    const auto* const data = static_cast<const std::byte*>(operands.x);
    std::vector<std::byte> x(data, data + operand_of(problem, Role::kX).bytes());
    count_ = operands.y == y_ && x == x_ ? count_ + 1 : 0;
    y_ = operands.y;
    x_ = std::move(x);
    return count_;
  }

 private:
  int count_ = 0;
  const void* y_ = nullptr;
  std::vector<std::byte> x_;
};

// The first owned element of the row, far outside every bound.
void nudge_far(const Problem& problem, const Operands& operands, std::int64_t token) {
  store(problem.dtype[Role::kY], operands.y, token * problem.y_stride + owned_column(problem),
        1000);
}

}  // namespace

TEST_CASE("relations: a correct backend keeps all of them on random cases") {
  std::string messages;
  for (std::int64_t seed = 0; seed < test::draws(150); ++seed) {
    const Problem problem = random_problem(static_cast<std::uint64_t>(seed));
    const PlainBackend repeating;
    const Varying varying;
    for (const Backend* const backend : {&repeating, static_cast<const PlainBackend*>(&varying)}) {
      if (const auto failure = broken(problem, *backend)) {
        messages += std::to_string(seed) + ": " + describe(*failure) + "\n";
      }
    }
  }
  CHECK(messages == "");
}

TEST_CASE("relations: a result that differs from call to call") {
  int calls = 0;
  CHECK(broken_by([&](const Problem& problem, const Operands& operands) {
          if (++calls > 1) {
            nudge(problem, operands, owned_column(problem));
          }
        }) == "relation 'run twice'");
}

TEST_CASE("relations: what was declared first is asked for, whatever is declared later") {
  const auto memory = make_host_memory();
  const Problem problem = linear_problem();
  int calls = 0;
  const Varying varying({.then = [&](const Problem& step, const Operands& operands) {
    if (++calls > 1) {
      nudge(step, operands, owned_column(step));
    }
  }});
  const Numerics first = PlainBackend().numerics(problem);
  Groundwork groundwork(problem, 1, 0);
  const auto failure = check_relations(groundwork, varying, *memory, 64, Part::kNone, first);
  REQUIRE(failure.has_value());
  CHECK(failure->what == "relation 'run twice'");
}

TEST_CASE("relations: a value that an earlier step left in the workspace") {
  CHECK(broken_by([](const Problem& problem, const Operands& operands) {
          auto* count = static_cast<unsigned char*>(operands.workspace);
          if (*count == 1) {
            nudge(problem, operands, owned_column(problem));
          }
          *count = 1;
        }) == "relation 'after another step in the same buffers'");
}

TEST_CASE("relations: a launch that writes too far for another batch than the recorded one") {
  const Replaying replaying({.then = [](const Problem& problem, const Operands& operands) {
    const std::vector<std::int32_t>& recorded = problem.plan.adapter_of_token;
    if (!std::equal(recorded.begin(), recorded.end(), operands.adapter_of_token)) {
      store(problem.dtype[Role::kY], operands.y, problem.tokens * problem.y_stride, 1);
    }
  }});
  const std::optional<Failure> failure = broken(linear_problem(), replaying);
  REQUIRE(failure);
  CHECK(failure->what.starts_with(
      "relation 'recorded with one batch, run with another': guard of y damaged: 2 bytes"));
}

TEST_CASE("relations: weights remembered by address") {
  std::map<const void*, float> remembered;
  CHECK(broken_by([&](const Problem& problem, const Operands& operands) {
          if (operands.b[0] == nullptr) {
            return;  // a shrink has none
          }
          const float now = load(problem.dtype[Role::kB], operands.b[0], 0);
          if (remembered.emplace(operands.b[0], now).first->second != now) {
            nudge(problem, operands, owned_column(problem));
          }
        }).find("relation") == 0);
}

TEST_CASE("relations: an idle batch that repeats the busy one before it") {
  CHECK(broken_by([](const Problem& problem, const Operands& operands) {
          if (problem.plan.active() == 0) {
            nudge(problem, operands, 3 * problem.y_stride);
          }
        }) == "relation 'no adapters after a busy step'");
}

TEST_CASE("relations: padding that is read and happens to do no harm as NaN") {
  // max() drops a NaN, so the poison of the other levels does not show this.
  CHECK(broken_by([](const Problem& problem, const Operands& operands) {
          const float padding =
              load(problem.dtype[Role::kA], operands.a[0], 8 * 96 + 7 * 96);  // rank 3 of 8
          if (std::fmax(padding, 0.0F) > 0) {
            nudge(problem, operands, owned_column(problem));
          }
        }) == "relation 'other values in unused places'");
}

TEST_CASE("relations: a row that depends on its place") {
  const Then first_row = [](const Problem& problem, const Operands& operands) {
    if (operands.adapter_of_token[0] == 0 && is_whole(problem)) {
      nudge(problem, operands, owned_column(problem));
    }
  };
  CHECK(broken_by(first_row) == "relation 'permuted rows'");
  const NotInvariant honest({.then = first_row});
  CHECK_FALSE(broken(linear_problem(), honest).has_value());
}

TEST_CASE("relations: an adapter that depends on its slot") {
  CHECK(broken_by([](const Problem& problem, const Operands& operands) {
          for (std::int64_t token = 0; token < problem.tokens; ++token) {
            if (operands.adapter_of_token[token] == 3) {
              nudge(problem, operands, token * problem.y_stride + owned_column(problem));
            }
          }
        }) == "relation 'relabelled adapters'");
}

TEST_CASE("relations: a row that depends on how many others there are") {
  CHECK(broken_by([](const Problem& problem, const Operands& operands) {
          if (problem.tokens == 1) {
            nudge(problem, operands, owned_column(problem));
          }
        }) == "relation 'a row alone'");
}

TEST_CASE("relations: the first, a middle and the last row are tried alone") {
  Problem problem = linear_problem();
  problem.tokens = 5;
  problem.plan = make_plan(std::vector<std::int32_t>{0, 0, 1, 1, 3}, problem.slots);
  for (const std::int32_t adapter : {0, 1, 3}) {
    CAPTURE(adapter);
    const auto spoil = [&](const Problem& step, const Operands& operands) {
      if (step.tokens == 1 && operands.adapter_of_token[0] == adapter) {
        nudge(step, operands, owned_column(step));
      }
    };
    CHECK(broken_by(spoil, problem) == "relation 'a row alone'");
  }
}

TEST_CASE("relations: a constant that is added") {
  CHECK(broken_by([](const Problem& problem, const Operands& operands) {
          for (std::int64_t token = 0; token < problem.tokens; ++token) {
            const std::int64_t index = token * problem.y_stride + owned_column(problem);
            if (operands.adapter_of_token[token] != -1) {
              store(problem.dtype[Role::kY], operands.y, index,
                    load(problem.dtype[Role::kY], operands.y, index) + 1);
            }
          }
        }) == "relation 'doubled inputs'");
}

TEST_CASE("relations: a slice that comes out wrong when it is alone") {
  const auto spoil = [](const Problem& problem, const Operands& operands) {
    if (problem.slices() == 1 && problem.widths[0] == 8) {
      store(problem.dtype[Role::kY], operands.y, problem.offset_start, 1000);
    }
  };
  const auto failure = broken(linear_problem(), PlainBackend({.then = spoil}));
  REQUIRE(failure.has_value());
  CHECK(failure->what == "relation 'slices one by one'");
  CHECK(failure->first.front().slice == 1);
}

TEST_CASE("relations: a launch of many that differs, after the first ones agreed") {
  SameInARow count;
  const auto seldom = [&](const Problem& problem, const Operands& operands) {
    if (count(problem, operands) == 15 && is_whole(problem)) {
      nudge(problem, operands, owned_column(problem));
    }
  };
  CHECK(broken_by(seldom) == "relation 'many runs'");
}

TEST_CASE("relations: many runs of a backend that varies are judged by the oracle") {
  SameInARow count;
  const auto by = [&](float error) {
    return [&count, error](const Problem& problem, const Operands& operands) {
      if (count(problem, operands) == 15 && is_whole(problem)) {
        const std::int64_t index = owned_column(problem);
        const float right = load(problem.dtype[Role::kY], operands.y, index);
        store(problem.dtype[Role::kY], operands.y, index, right + error);
      }
    };
  };
  const auto wrong = broken(linear_problem(), Varying({.then = by(1000)}));
  REQUIRE(wrong.has_value());
  CHECK(wrong->what == "relation 'many runs'");
  CHECK(broken(linear_problem(), Varying({.then = by(std::nanf(""))})).has_value());
  CHECK_FALSE(broken(linear_problem(), Varying({.then = by(0)})).has_value());
}

TEST_CASE("relations: of a backend that varies, what nobody owns stays the NaN that it was") {
  Problem problem = linear_problem();
  problem.add_inputs = false;
  problem.plan.adapter_of_token.back() = kNoAdapter;
  problem.plan = make_plan(problem.plan.adapter_of_token, problem.slots);
  CHECK_FALSE(broken(problem, Varying()).has_value());
}

TEST_CASE("relations: ranks of the launch before, whether or not bits repeat") {
  const void* ranks_at = nullptr;
  std::vector<std::int32_t> before;
  const auto keeps_ranks = [&](const Problem& problem, const Operands& operands) {
    const std::vector<std::int32_t> now(operands.rank, operands.rank + problem.slots);
    if (ranks_at == operands.rank && before != now && problem.plan.rows_with_adapter() > 0) {
      nudge_far(problem, operands, operands.token_order[0]);
    }
    ranks_at = operands.rank;
    before = now;
  };
  const std::string relation = "relation 'after another step in the same buffers'";
  CHECK(broken_by(keeps_ranks) == relation);
  ranks_at = nullptr;
  const auto varying = broken(linear_problem(), Varying({.then = keeps_ranks}));
  REQUIRE(varying.has_value());
  CHECK(varying->what == relation);
}

TEST_CASE("relations: a launch that keeps anything of the batch that it was recorded with") {
  const std::string relation = "relation 'recorded with one batch, run with another'";
  const auto found = [](const Then& then) {
    const auto failure = broken(linear_problem(), Replaying({.then = then}));
    return failure ? failure->what : "";
  };
  CHECK(found({}) == "");
  // Rows of adapters that were not active then.
  CHECK(found([](const Problem& problem, const Operands& operands) {
          const Plan& recorded = problem.plan;
          for (std::int64_t token = 0; token < problem.tokens && operands.y != nullptr; ++token) {
            const std::int32_t id = operands.adapter_of_token[token];
            if (id >= 0 && std::find(recorded.active_ids.begin(), recorded.active_ids.end(), id) ==
                               recorded.active_ids.end()) {
              nudge_far(problem, operands, token);
            }
          }
        }) == relation);
  // Rows that had an adapter then and have none now.
  CHECK(found([](const Problem& problem, const Operands& operands) {
          for (std::int64_t token = 0; token < problem.tokens && operands.y != nullptr; ++token) {
            if (problem.plan.adapter_of_token[static_cast<std::size_t>(token)] >= 0 &&
                operands.adapter_of_token[token] < 0) {
              nudge_far(problem, operands, token);
            }
          }
        }) == relation);
  // Adapters whose rank was another.
  CHECK(found([](const Problem& problem, const Operands& operands) {
          for (std::int64_t token = 0; token < problem.tokens && operands.y != nullptr; ++token) {
            const std::int32_t id = operands.adapter_of_token[token];
            if (id >= 0 && problem.rank[static_cast<std::size_t>(id)] != operands.rank[id]) {
              nudge_far(problem, operands, token);
            }
          }
        }) == relation);
}

TEST_CASE("relations: weights that were read when the launch was recorded") {
  std::vector<std::pair<const void*, float>> seen;
  const auto failure = broken(
      linear_problem(), Replaying({.then = [&](const Problem& problem, const Operands& operands) {
        // Of a row alone other weights may stand where these stood.
        if (operands.y == nullptr || problem.plan.active() != 1 || problem.tokens == 1) {
          return;
        }
        const std::int32_t id = problem.plan.active_ids[0];
        const std::int64_t width = problem.widths[0];
        const float now =
            load(problem.dtype[Role::kB], operands.b[0], id * width * problem.max_rank);
        if (seen.empty() || seen.back().first != operands.b[0]) {
          seen.emplace_back(operands.b[0], now);
        } else if (seen.back().second != now) {
          nudge_far(problem, operands, 0);
        }
      }}));
  REQUIRE(failure.has_value());
  CHECK(failure->what == "relation 'recorded with one batch, run with another'");
}

TEST_CASE("relations: a cache that fills up and stops is no leak, one that goes on is") {
  // Blocks of one size, and of sizes that vary as an allocator's rounding makes them.
  for (const auto& cache_of :
       {std::pair(true, false), std::pair(false, false), std::pair(false, true)}) {
    const bool stops = cache_of.first;
    const bool varies = cache_of.second;
    CAPTURE(stops);
    CAPTURE(varies);
    int small = 0;
    std::vector<std::unique_ptr<char[]>> cache;  // NOLINT(*-avoid-c-arrays): of unlike sizes
    cache.reserve(10000);
    const std::string broken = broken_by([&](const Problem& problem, const Operands&) {
      const bool full =
          stops && small >= 40;  // the first three rounds and the start of the long one
      if (problem.tokens == 4 && problem.op == Op::kLinear && ++small > 0 && !full) {
        const bool more = varies && small % 11 == 0;
        cache.emplace_back(new char[more ? 528 : 512]);
      }
    });
    CAPTURE(broken);
    CHECK((broken.find("memory given back") != std::string::npos) == !stops);
  }
}

TEST_CASE("relations: what is recorded is asked of other batches only where it is declared") {
  int stale = 0;
  const auto keeps_the_plan = [&](const Problem& problem, const Operands& operands) {
    for (std::int64_t token = 0; token < problem.tokens; ++token) {
      stale += problem.plan.adapter_of_token[static_cast<std::size_t>(token)] !=
               operands.adapter_of_token[token];
    }
  };
  CHECK_FALSE(broken(linear_problem(), PlainBackend({.then = keeps_the_plan})).has_value());
  CHECK(stale == 0);
  CHECK_FALSE(broken(linear_problem(), Replaying({.then = keeps_the_plan})).has_value());
  CHECK(stale > 0);
}

TEST_CASE("relations: an expand that does not take what shrink alone leaves") {
  CHECK(broken_by([](const Problem& problem, const Operands& operands) {
          if (problem.op == Op::kExpand) {
            nudge_far(problem, operands, 0);
          }
        }) == "relation 'shrink, then expand'");
  CHECK(broken_by([](const Problem& problem, const Operands& operands) {
          if (problem.op == Op::kShrink) {
            store(problem.dtype[Role::kH], operands.h, 0, 1000);
          }
        }) == "relation 'shrink, then expand'");
}

TEST_CASE("relations: a schedule that is kept for the same adapters in groups of other sizes") {
  std::map<std::vector<std::int32_t>, std::vector<std::int32_t>> starts_of;
  CHECK(broken_by([&](const Problem& problem, const Operands& operands) {
          std::vector<std::int32_t> key = problem.plan.active_ids;
          key.push_back(static_cast<std::int32_t>(problem.tokens));
          const std::vector<std::int32_t>& starts = problem.plan.group_starts;
          const auto [known, is_new] = starts_of.emplace(key, starts);
          if (!is_new && known->second != starts) {
            nudge(problem, operands, owned_column(problem));
          }
          known->second = starts;
        }) == "relation 'after another step in the same buffers'");
}

TEST_CASE("relations: scales that were first seen with these weights and are kept for good") {
  std::map<std::string, std::vector<float>> scales_of;
  const auto failure = broken(
      linear_problem(),
      PlainBackend({.then = [&](const Problem& problem, const Operands& operands) {
        if (problem.op != Op::kLinear) {
          return;
        }
        std::string key(
            static_cast<const char*>(operands.a[0]),
            static_cast<std::size_t>(problem.slots * problem.max_rank * problem.in_features *
                                     size_bytes(problem.dtype[Role::kA])));
        key.append(static_cast<const char*>(operands.b[0]),
                   static_cast<std::size_t>(problem.slots * problem.max_rank * problem.widths[0] *
                                            size_bytes(problem.dtype[Role::kB])));
        key += std::to_string(problem.tokens);
        const std::vector<float> scales(operands.scale, operands.scale + problem.slots);
        const auto [known, is_new] = scales_of.emplace(key, scales);
        if (!is_new && known->second != scales) {
          for (std::int64_t token = 0; token < problem.tokens; ++token) {
            nudge_far(problem, operands, token);
          }
        }
      }}));
  REQUIRE(failure.has_value());
  CHECK(failure->what ==
        "relation 'other numbers in one operand': wrong with other numbers in scale");
}

TEST_CASE("relations: ranks or K with more room than they need") {
  CHECK(broken_by([](const Problem& problem, const Operands& operands) {
          if (problem.max_rank > 8) {
            nudge_far(problem, operands, 0);
          }
        }) == "relation 'wider padding'");
  CHECK(broken_by([](const Problem& problem, const Operands& operands) {
          if (problem.in_features == 97) {
            nudge_far(problem, operands, 0);
          }
        }) == "relation 'wider padding'");
}

TEST_CASE("relations: NaN that comes back from wider padding is named as memory that was read") {
  const auto hypothesis = [](float value) {
    const auto writes = [value](const Problem& problem, const Operands& operands) {
      if (problem.max_rank > 8) {
        store(problem.dtype[Role::kY], operands.y, problem.offset_start, value);
      }
    };
    return broken(linear_problem(), PlainBackend({.then = writes}))->hypothesis;
  };
  CHECK(hypothesis(std::nanf("")) == "unused-memory-read");
  CHECK(hypothesis(1e6F) == "");
}

TEST_CASE("a step with more of K has numbers there, of x and of A, where its rows have any") {
  Problem problem = linear_problem();
  const Step step{problem, draw_tensors(problem, Fill::kExact, 1)};
  const Step wide = widen(step, 0, 5);
  const std::int64_t k = problem.in_features;
  CHECK(wide.problem.in_features == k + 5);
  std::int64_t numbers = 0;
  for (std::int64_t row = 0; row < problem.tokens; ++row) {
    const float first =
        load(problem.dtype[Role::kX], wide.tensors.x.data.data(), row * wide.problem.x_stride);
    const float added = load(problem.dtype[Role::kX], wide.tensors.x.data.data(),
                             row * wide.problem.x_stride + k + 1);
    CHECK(std::isnan(first) == std::isnan(added));
    numbers += !std::isnan(added) && added != 0 ? 1 : 0;
  }
  CHECK(numbers > 0);
  const HostTensor& a = wide.tensors.a[0];
  CHECK(load(a.dtype, a.data.data(), k) == load(a.dtype, step.tensors.a[0].data.data(), 0));
}

TEST_CASE("a step with more of K adds no more to a sum than was in it, however short K was") {
  Problem problem = linear_problem();
  problem.in_features = 1;
  problem.x_stride = 1;
  const Step step{problem, draw_tensors(problem, Fill::kExact, 1)};
  const Step wide = widen(step, 0, 64);
  const auto x = [&](std::int64_t i) {
    return std::fabs(
        static_cast<double>(load(problem.dtype[Role::kX], wide.tensors.x.data.data(), i)));
  };
  double added = 0;
  for (std::int64_t i = 1; i <= 64; ++i) {
    added += x(i);
  }
  CHECK(x(0) > 0);
  CHECK(added == x(0));
}

TEST_CASE("relations: an operand whose alignment is taken to be that of another") {
  const auto on_boundary = [](const void* operand) {
    return reinterpret_cast<std::uintptr_t>(operand) % 16 == 0;
  };
  const auto trusts = [&](const auto& looked_at, const auto& trusted) {
    return broken_by([&](const Problem& problem, const Operands& operands) {
      if (is_whole(problem) && on_boundary(looked_at(operands)) &&
          !on_boundary(trusted(operands))) {
        nudge_far(problem, operands, 0);
      }
    });
  };
  const auto x = [](const Operands& operands) { return operands.x; };
  const auto b = [](const Operands& operands) { return operands.b[0]; };
  const auto y = [](const Operands& operands) { return static_cast<const void*>(operands.y); };
  CHECK(trusts(x, b) == "relation 'some operands shifted'");
  CHECK(trusts(b, x) == "relation 'some operands shifted'");
  CHECK(trusts(x, y) == "relation 'some operands shifted'");
  CHECK(trusts(y, x) == "relation 'some operands shifted'");
}

TEST_CASE("a step with more lanes has the result of the step, and NaN in every lane added") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const Problem problem = random_problem(seed);
    if (!has_expand(problem.op) || problem.tokens == 0) {
      continue;
    }
    const Step step{problem, draw_tensors(problem, Fill::kExact, seed)};
    const Step wide = widen(step, 3, 0);
    const auto rows = all_rows(problem);
    const Numerics numerics = PlainBackend().numerics(problem);
    const reference::Rows narrow_rows = evaluate_rows(problem, step.tensors, numerics, rows);
    const reference::Rows wide_rows = evaluate_rows(wide.problem, wide.tensors, numerics, rows);
    const auto same = [](double one, double other) {
      return one == other || (std::isnan(one) && std::isnan(other));  // what y held, of no one
    };
    CHECK(std::equal(narrow_rows.expected.begin(), narrow_rows.expected.end(),
                     wide_rows.expected.begin(), wide_rows.expected.end(), same));
    const std::int64_t b_elements = wide.tensors.b[0].elements;
    for (std::int64_t i = problem.max_rank; i < b_elements; i += wide.problem.max_rank) {
      CHECK(std::isnan(load(problem.dtype[Role::kB], wide.tensors.b[0].data.data(), i)));
    }
  }
}

TEST_CASE("relations: a failure names the token of the case, not of the sample") {
  Problem problem = linear_problem();
  problem.tokens = 300;
  std::vector<std::int32_t> ids(300, -1);
  ids[123] = 1;
  problem.plan = make_plan(ids, problem.slots);
  const auto spoil = [](const Problem& step, const Operands& operands) {
    for (std::int64_t token = 0; token < step.tokens && step.tokens > 1; ++token) {
      if (operands.adapter_of_token[token] == 1) {
        nudge(step, operands, token * step.y_stride + owned_column(step));
      }
    }
  };
  const auto failure = broken(problem, PlainBackend({.then = spoil}));
  REQUIRE(failure.has_value());
  CHECK(failure->first.front().token == 123);
  CHECK(failure->first.front().adapter == 1);
  CHECK(describe(*failure).find("relations: relation 'relabelled adapters'; 1 of") == 0);
}

TEST_CASE("relations: verify runs them when asked, and says that they held") {
  const auto memory = make_host_memory();
  const Verdict held = verify(linear_problem(), PlainBackend(), *memory, {.relations = true});
  CHECK(held.status == Status::kPassed);
  CHECK(std::find(held.passed.begin(), held.passed.end(), Level::kRelations) != held.passed.end());
  const auto spoil = [](const Problem& problem, const Operands& operands) {
    if (problem.tokens == 1) {
      nudge(problem, operands, owned_column(problem));
    }
  };
  const Verdict broken_one =
      verify(linear_problem(), PlainBackend({.then = spoil}), *memory, {.relations = true});
  CHECK(broken_one.status == Status::kFailed);
  CHECK(broken_one.message.find("relations: relation 'a row alone'; 1 of") == 0);
}

TEST_CASE("relations: what a busy step left in the workspace is seen of an idle one after it") {
  CHECK(broken_by([](const Problem& problem, const Operands& operands) {
          auto* busy = static_cast<unsigned char*>(operands.workspace);
          if (problem.plan.active() == 0 && *busy == 1) {
            nudge(problem, operands, 3 * problem.y_stride);
          }
          *busy = problem.plan.active() > 0 ? 1 : 0;
        }) == "relation 'no adapters after a busy step'");
}

TEST_CASE("unused places of every operand get other values") {
  Problem problem = linear_problem();
  problem.op = Op::kExpand;
  problem.bias = true;
  const Tensors tensors = draw_tensors(problem, Fill::kBounded, 1);
  const auto nans = [](const HostTensor& tensor) {
    std::int64_t count = 0;
    for (std::int64_t at = 0; at < tensor.elements; ++at) {
      count += std::isnan(load(tensor.dtype, tensor.data.data(), at)) ? 1 : 0;
    }
    return count;
  };
  const Step filled = fill_unused({problem, tensors});
  for (const auto of : {&Tensors::b, &Tensors::bias}) {
    std::int64_t before = 0;
    for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
      before += nans((tensors.*of)[slice]);
      CHECK(nans((filled.tensors.*of)[slice]) == 0);
    }
    CHECK(before > 0);
  }
  CHECK(nans(tensors.h) > 0);
  CHECK(nans(filled.tensors.h) == 0);
}
