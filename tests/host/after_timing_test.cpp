#include "measure/after_timing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "measure/fake_clock.h"
#include "measure/rotation.h"
#include "ops/cpu_backend.h"
#include "run/case_runner.h"
#include "support/cpu_case.h"
#include "support/draws.h"
#include "verify/verify.h"
#include "workload/excerpt.h"

using namespace lora_bench;
using namespace lora_bench::test;

namespace {

Problem decode(Op op = Op::kLinear, std::int64_t tokens = 6) {
  Problem problem;
  problem.op = op;
  problem.dtype = Dtype::kBf16;
  problem.tokens = tokens;
  problem.in_features = 64;
  problem.widths = {96};
  problem.x_stride = 64;
  problem.y_stride = 96;
  problem.slots = 3;
  problem.max_rank = 8;
  problem.rank = {8, 4, 8};
  problem.scale = {1, 1, 1};
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < tokens; ++token) {
    ids.push_back(token == 2 ? kNoAdapter : static_cast<std::int32_t>(token % 2));
  }
  problem.plan = make_plan(ids, 3);  // nobody uses slot 2
  return problem;
}

// Right while it is looked at; what it does else is told to it.
class Dishonest final : public Backend {
 public:
  using Trick = std::function<void(const Problem&, const Operands&, const Backend& honest)>;
  // With a unit roundoff it declares that, in each of so many steps as K has.
  explicit Dishonest(Trick trick, std::optional<double> unit_roundoff = {})
      : trick_(std::move(trick)), unit_roundoff_(unit_roundoff) {}
  [[nodiscard]] std::string_view name() const override { return "dishonest"; }
  [[nodiscard]] std::string_view summary() const override { return "for tests"; }
  [[nodiscard]] Space space() const override { return Space::kHost; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics = cpu_->numerics(problem);
    if (unit_roundoff_) {
      numerics.unit_roundoff = *unit_roundoff_;
      numerics.shrink_depth = problem.in_features;
    }
    return numerics;
  }
  // As a backend that gathers what does not lie together.
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return gathered_bytes(problem);
  }
  static std::int64_t gathered_bytes(const Problem& problem) {
    const std::vector<std::int32_t>& ids = problem.plan.adapter_of_token;
    return std::is_sorted(ids.begin(), ids.end()) ? 64 : 64 * problem.tokens;
  }
  void launch(const Problem& problem, const Operands& operands, Stream) const override {
    trick_(problem, operands, *cpu_);
  }

 private:
  std::unique_ptr<Backend> cpu_ = make_cpu_backend({1, ""});
  Trick trick_;
  std::optional<double> unit_roundoff_;
};

Look held_against_oracle(const Numerics& numerics, const Left& left) {
  Look look = check_left(numerics, left);
  look.wrong = look.wrong.empty() ? "" : "wrong values";
  return look;
}

Measurement measurement_of(const Problem& problem, const Dishonest& backend,
                           CacheMode cache = CacheMode::kWeightsCold,
                           std::vector<std::int64_t>* launches_on_y = nullptr,
                           std::uint64_t secret = 12) {
  MeasureSettings settings;
  settings.cache = cache;
  settings.warmup_ms = 1;
  settings.min_samples = 10;
  settings.max_samples = 40;
  settings.min_time_ms = 1;
  settings.max_time_ms = 1e6;
  const Numerics numerics = backend.numerics(problem);
  const auto check = [&](const Left& left) {
    CHECK(left.secret == secret);
    if (launches_on_y != nullptr) {
      launches_on_y->push_back(left.rounds * static_cast<std::int64_t>(left.sets.size()));
    }
    return held_against_oracle(numerics, left);
  };
  const MeasureRequest request{problem, settings, 1, check, nullptr, [=] { return secret; }};
  DeviceFacts device;
  device.kind = "cpu";
  device.cache_bytes = 4 * touched_bytes(problem, CacheMode::kWeightsCold);
  const std::unique_ptr<Memory> memory = make_host_memory();
  FakeClock clock([](int, std::int64_t) { return 1e-6; });
  return measure(request, backend, *memory, clock, device);
}

// What is said of the measurement.
std::string verdict_on(const Problem& problem, Dishonest::Trick trick,
                       CacheMode cache = CacheMode::kWeightsCold,
                       std::vector<std::int64_t>* launches_on_y = nullptr) {
  return measurement_of(problem, Dishonest(std::move(trick)), cache, launches_on_y).check_message;
}

void honest(const Problem& problem, const Operands& operands, const Backend& backend) {
  backend.launch(problem, operands, {});
}

std::uint64_t first_eight(const void* from) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// What a dishonest backend can tell of the clock around it: a sample begins with an h that is no
// number, as nobody else leaves it, and has as many launches as y may take of 13 sets.
class Sampled {
 public:
  bool operator()(const Operands& operands) {
    const bool begins = first_eight(operands.h) == UINT64_MAX;
    sampled_ = begins || (sampled_ && ++launches_ % (256 / 13 * 13) != 0);
    launches_ = begins ? 0 : launches_;
    return sampled_;
  }

 private:
  bool sampled_ = false;
  std::int64_t launches_ = 0;
};

}  // namespace

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
    const Problem problem = random_problem(static_cast<std::uint64_t>(seed));
    CAPTURE(describe(problem));
    CHECK(verdict_on(problem, honest).empty());
  }
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

TEST_CASE("a result remembered by a look at the operands is found out") {
  std::map<std::vector<std::uint64_t>, std::vector<float>> known;
  const auto remember = [&](const Problem& problem, const Operands& operands,
                            const Backend& backend) {
    std::vector<std::uint64_t> key{first_eight(operands.a[0]), first_eight(operands.b[0])};
    for (std::int64_t token = 0; token < problem.tokens; ++token) {
      key.push_back(
          first_eight(static_cast<const std::uint16_t*>(operands.x) + token * problem.x_stride));
    }
    const auto elements = problem.tokens * problem.y_stride;
    std::vector<float>& delta = known[key];
    if (delta.empty()) {
      std::vector<std::uint16_t> y(static_cast<std::size_t>(elements));
      Operands alone = operands;
      alone.y = y.data();
      Problem overwriting = problem;
      overwriting.add_inputs = false;
      backend.launch(overwriting, alone, {});
      for (std::int64_t index = 0; index < elements; ++index) {
        delta.push_back(load(Dtype::kBf16, y.data(), index));
      }
    }
    for (std::int64_t index = 0; index < elements; ++index) {
      if (problem.plan.adapter_of_token[static_cast<std::size_t>(index / problem.y_stride)] >= 0) {
        store(Dtype::kBf16, operands.y, index,
              load(Dtype::kBf16, operands.y, index) + delta[static_cast<std::size_t>(index)]);
      }
    }
  };
  CHECK(verdict_on(decode(), remember).find("wrong values") != std::string::npos);
  CHECK(known.size() >= 13);
}

// Looks at no input: what a set adds is known by the address of its B, and forgotten when y is not
// as it was left.
TEST_CASE("a delta that is kept while y is as it was left is found out") {
  const auto every_cache = {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot};
  for (const CacheMode cache : every_cache) {
    CAPTURE(name(cache));
    std::map<const void*, std::vector<std::uint16_t>> left;  // y, by its address
    std::map<const void*, std::vector<float>> known;
    const auto lazy = [&](const Problem& problem, const Operands& operands,
                          const Backend& backend) {
      const auto elements = static_cast<std::size_t>(problem.tokens * problem.y_stride);
      auto* y = static_cast<std::uint16_t*>(operands.y);
      std::vector<std::uint16_t>& before = left[operands.y];
      if (before != std::vector<std::uint16_t>(y, y + elements)) {
        known.clear();
      }
      std::vector<float>& delta = known[operands.b[0]];
      if (delta.empty()) {
        std::vector<std::uint16_t> alone(elements);
        Operands other = operands;
        other.y = alone.data();
        backend.launch(problem, other, {});
        for (std::size_t index = 0; index < elements; ++index) {
          delta.push_back(load(Dtype::kBf16, alone.data(), static_cast<std::int64_t>(index)));
        }
        backend.launch(problem, operands, {});
      } else {
        for (std::size_t index = 0; index < elements; ++index) {
          const auto at = static_cast<std::int64_t>(index);
          if (delta[index] != 0) {
            store(Dtype::kBf16, y, at, load(Dtype::kBf16, y, at) + delta[index]);
          }
        }
      }
      before.assign(y, y + elements);
    };
    CHECK(verdict_on(decode(), lazy, cache).find("wrong values") != std::string::npos);
  }
}

TEST_CASE("an h that is kept between samples while most of every row looks the same is found out") {
  constexpr std::int64_t kLookedAt = 16;
  Problem problem = decode(Op::kLinear, 32);
  problem.in_features = problem.x_stride = 1024;
  const auto look_at = [&](const void* rows, std::int64_t count, std::vector<float>& seen) {
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t i = 0; i < kLookedAt; ++i) {
        const std::int64_t k = i * problem.in_features / kLookedAt;
        seen.push_back(load(problem.dtype, rows, row * problem.in_features + k));
      }
    }
  };
  std::int64_t found_out = 0, seen_through = 0;
  for (std::uint64_t secret = 0; secret < 4; ++secret) {
    std::map<std::vector<float>, std::vector<float>> known;
    Sampled sampled;
    const auto remember = [&](const Problem& whole, const Operands& operands,
                              const Backend& backend) {
      if (sampled(operands)) {
        backend.launch(whole, operands, {});
        return;
      }
      std::vector<float> key;
      look_at(operands.x, whole.tokens, key);
      look_at(operands.a[0], whole.slots * whole.max_rank, key);
      std::vector<float>& h = known[key];
      Problem half = whole;
      Operands given = operands;
      if (h.empty()) {
        h.resize(static_cast<std::size_t>(whole.tokens * whole.max_rank));
        given.h = h.data();
        half.op = Op::kShrink;
        backend.launch(half, given, {});
      }
      given.h = h.data();
      half.op = Op::kExpand;
      backend.launch(half, given, {});
    };
    const Measurement measured =
        measurement_of(problem, Dishonest(remember), CacheMode::kWeightsCold, nullptr, secret);
    found_out += measured.check_passed ? 0 : 1;
    seen_through += measured.check_message.starts_with("with another number in ") ? 1 : 0;
  }
  CHECK(found_out >= 3);
  CHECK(seen_through == found_out);
}

TEST_CASE("an h that is kept while x looks the same is found out") {
  for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
    CAPTURE(name(cache));
    std::map<std::pair<const void*, std::uint64_t>, std::uint64_t> last;
    const auto keep = [&](const Problem& problem, const Operands& operands,
                          const Backend& backend) {
      const auto key =
          std::make_pair(static_cast<const void*>(operands.h), first_eight(operands.x));
      const auto found = last.find(key);
      if (found == last.end() || found->second != first_eight(operands.h)) {
        backend.launch(problem, operands, {});
        last[key] = first_eight(operands.h);
      }
    };
    CHECK(verdict_on(decode(Op::kShrink), keep, cache).find("wrong values") != std::string::npos);
  }
}

TEST_CASE("a plan or a scale that is kept by its address is found out") {
  for (const bool keeps_plan : {true, false}) {
    CAPTURE(keeps_plan);
    std::optional<Plan> plan;
    std::vector<float> scale;
    const auto keep = [&](const Problem& whole, const Operands& operands, const Backend& backend) {
      Problem problem = whole;
      Operands kept = operands;
      if (!plan) {
        plan = whole.plan;
        scale.assign(operands.scale, operands.scale + whole.slots);
      }
      if (keeps_plan) {
        problem.plan = *plan;
        kept.adapter_of_token = plan->adapter_of_token.data();
        kept.token_order = plan->token_order.data();
        kept.active_ids = plan->active_ids.data();
        kept.group_starts = plan->group_starts.data();
      } else {
        kept.scale = scale.data();
      }
      backend.launch(problem, kept, {});
    };
    CHECK(verdict_on(decode(Op::kLinear, 7), keep).starts_with("with another batch: wrong values"));
  }
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

TEST_CASE("an h that is kept where a sample begins with none is found out") {
  std::map<const void*, std::vector<float>> known;
  Sampled sampled;
  const auto keep = [&](const Problem& whole, const Operands& operands, const Backend& backend) {
    std::vector<float>& h = known[operands.a[0]];
    if (!sampled(operands) || h.empty()) {
      backend.launch(whole, operands, {});
      h.assign(static_cast<const float*>(operands.h),
               static_cast<const float*>(operands.h) + whole.tokens * whole.max_rank);
      return;
    }
    std::copy(h.begin(), h.end(), static_cast<float*>(operands.h));
    Problem half = whole;
    half.op = Op::kExpand;
    backend.launch(half, operands, {});
  };
  CHECK(verdict_on(decode(), keep).starts_with("left by the sequence once more: "));
}

TEST_CASE("an x or an A that is kept where a sample begins is found out") {
  for (const bool keeps_x : {true, false}) {
    CAPTURE(keeps_x);
    std::map<const void*, std::vector<std::uint16_t>> known;
    Sampled sampled;
    const auto keep = [&](const Problem& whole, const Operands& operands, const Backend& backend) {
      const void* const at = keeps_x ? operands.x : operands.a[0];
      const std::int64_t rows = keeps_x ? whole.tokens : whole.slots * whole.max_rank;
      std::vector<std::uint16_t>& kept = known[at];
      Operands given = operands;
      if (sampled(operands)) {
        if (kept.empty()) {
          const auto* first = static_cast<const std::uint16_t*>(at);
          kept.assign(first, first + rows * whole.in_features);
        }
        (keeps_x ? given.x : given.a[0]) = kept.data();
      }
      backend.launch(whole, given, {});
    };
    CHECK(verdict_on(decode(), keep).starts_with("left by the sequence once more: "));
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
          store(whole.dtype, operands.y, row * whole.y_stride, spoilt);
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

TEST_CASE("weights of one set used for all of them are found out") {
  std::vector<const void*> a, b;
  const auto same = [&](const Problem& problem, const Operands& operands, const Backend& backend) {
    Operands one = operands;
    a = a.empty() ? operands.a : a;
    b = b.empty() ? operands.b : b;
    one.a = a;
    one.b = b;
    backend.launch(problem, one, {});
  };
  CHECK(verdict_on(decode(), same).find("wrong values") != std::string::npos);
}

TEST_CASE("no rows are known to be the ones that are looked at") {
  const Problem problem = decode(Op::kLinear, 300);
  const std::vector<std::int64_t> usual = sample_rows(problem, 16, 1);
  std::int64_t launches = 0;
  const auto few = [&](const Problem& whole, const Operands& operands, const Backend& backend) {
    Problem some = whole;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(whole.tokens), kNoAdapter);
    for (const std::int64_t row : usual) {
      ids[static_cast<std::size_t>(row)] =
          whole.plan.adapter_of_token[static_cast<std::size_t>(row)];
    }
    some.plan = make_plan(ids, whole.slots);
    Operands cut = operands;
    cut.adapter_of_token = some.plan.adapter_of_token.data();
    cut.token_order = some.plan.token_order.data();
    cut.active_ids = some.plan.active_ids.data();
    cut.group_starts = some.plan.group_starts.data();
    ++launches < 40 ? backend.launch(whole, operands, {}) : backend.launch(some, cut, {});
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
  said([&](const Problem&, const Operands& o) { write(o.b[0], -1, 0x1234); }, "guard of B damaged");
  said([&](const Problem&, const Operands& o) { write(o.x, -1, 0x1234); }, "guard of x damaged");
  said([&](const Problem&, const Operands& o) { write(o.token_order, -1, 3); },
       "guard of token_order damaged");
  said([&](const Problem& p, const Operands& o) { write(o.x, 2 * p.x_stride, 0); },
       "input x was changed");
  said(
      [&](const Problem& p, const Operands& o) {
        write(o.a[0], 2 * p.max_rank * p.in_features, 0x1234);  // nobody uses slot 2
      },
      "input A was changed");
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
    copy_turned_slot(tensors.a[0], problem.slots, 1, set,
                     reinterpret_cast<std::byte*>(slot.data()));
    CHECK(seen.insert(slot).second);
    std::sort(slot.begin(), slot.end());
    first = set == 0 ? slot : first;
    CHECK(slot == first);
  }
}
