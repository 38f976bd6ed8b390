#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/cpu_case.h"
#include "support/dishonest.h"

using namespace lora_bench;
using namespace lora_bench::test;

namespace {

// What a launch added, by a key, is added again.
struct Remembered {
  std::map<std::vector<std::uint64_t>, std::vector<float>> known;

  void add(const std::vector<std::uint64_t>& key, const Problem& problem, const Operands& operands,
           const Backend& backend) {
    const auto elements = problem.tokens * problem.y_stride;
    std::vector<float>& delta = known[key];
    if (delta.empty()) {
      std::vector<std::byte> y(
          static_cast<std::size_t>(elements * size_bytes(problem.dtype[Role::kY])));
      Operands alone = operands;
      alone.y = y.data();
      Problem overwriting = problem;
      overwriting.add_inputs = false;
      backend.launch(overwriting, alone, {});
      for (std::int64_t index = 0; index < elements; ++index) {
        delta.push_back(load(problem.dtype[Role::kY], y.data(), index));
      }
    }
    for (std::int64_t index = 0; index < elements; ++index) {
      if (problem.plan.adapter_of_token[static_cast<std::size_t>(index / problem.y_stride)] >= 0) {
        store(problem.dtype[Role::kY], operands.y, index,
              load(problem.dtype[Role::kY], operands.y, index) +
                  delta[static_cast<std::size_t>(index)]);
      }
    }
  }
};

}  // namespace

TEST_CASE(
    "an x that is kept in samples alone, told by an h without numbers and an older y, is found "
    "out") {
  std::vector<std::uint16_t> known;
  std::optional<std::uint64_t> drawn;
  bool older = false;
  Sampled sampled;
  const auto keep = [&](const Problem& whole, const Operands& operands, const Backend& backend) {
    drawn = drawn ? drawn : first_eight(operands.y);
    older = first_eight(operands.h) == UINT64_MAX ? first_eight(operands.y) != *drawn : older;
    const auto* const first = static_cast<const std::uint16_t*>(operands.x);
    Operands given = operands;
    if (sampled(operands) && older) {
      if (known.empty()) {
        known.assign(first, first + whole.tokens * whole.x_stride);
      }
      given.x = known.data();
    }
    backend.launch(whole, given, {});
  };
  CHECK(verdict_on(decode(), keep).starts_with("left by the sequence once more: "));
}

TEST_CASE("an h that is kept for other scales of one adapter is found out") {
  Problem problem = decode();
  problem.scale_at = ScaleAt::kExpand;
  problem.plan = make_plan(std::vector<std::int32_t>(6, 0), problem.slots);
  std::optional<float> scale;
  const auto keep = [&](const Problem& whole, const Operands& operands, const Backend& backend) {
    scale = scale ? scale : operands.scale[0];
    Problem part = whole;
    part.op = operands.scale[0] == *scale ? whole.op : Op::kExpand;
    backend.launch(part, operands, {});
  };
  CHECK(verdict_on(problem, keep).starts_with("with other scales: wrong values"));
}

TEST_CASE("a result remembered by a look at the operands is found out") {
  Remembered remembered;
  const auto remember = [&](const Problem& problem, const Operands& operands,
                            const Backend& backend) {
    std::vector<std::uint64_t> key{first_eight(operands.a[0]), first_eight(operands.b[0])};
    for (std::int64_t token = 0; token < problem.tokens; ++token) {
      key.push_back(
          first_eight(static_cast<const std::uint16_t*>(operands.x) + token * problem.x_stride));
    }
    remembered.add(key, problem, operands, backend);
  };
  CHECK(verdict_on(decode(), remember).find("wrong values") != std::string::npos);
  CHECK(remembered.known.size() >= 13);
}

TEST_CASE("a result that is kept while every number of all inputs but one is the same is found") {
  enum Input : std::uint8_t { kX, kA, kB };
  const std::vector<std::pair<Input, std::string>> unseen{{kB, "with another number in B: "},
                                                          {kA, "with another number in A: "},
                                                          {kX, "with another number in x: "}};
  Problem problem_in_fp32 = decode();  // whose deltas are kept as they were
  problem_in_fp32.dtype = OperandDtypes(Dtype::kFp32, problem_in_fp32.dtype[Role::kH]);
  for (const auto& each : unseen) {
    const Input input = each.first;
    const std::string& told = each.second;
    for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
      CAPTURE(told);
      CAPTURE(name(cache));
      Remembered remembered;
      const auto remember = [&](const Problem& problem, const Operands& operands,
                                const Backend& backend) {
        // Where the set lies, and all that is seen there.
        std::vector<std::uint64_t> key{reinterpret_cast<std::uintptr_t>(operands.a[0])};
        const auto see = [&](Input seen, const void* from, std::int64_t elements) {
          if (seen != input) {
            const auto bytes = static_cast<std::size_t>(elements) * sizeof(float);
            key.push_back(std::hash<std::string_view>{}({static_cast<const char*>(from), bytes}));
          }
        };
        see(kX, operands.x, problem.tokens * problem.x_stride);
        see(kA, operands.a[0], problem.slots * problem.max_rank * problem.in_features);
        see(kB, operands.b[0], problem.slots * problem.widths[0] * problem.max_rank);
        remembered.add(key, problem, operands, backend);
      };
      const std::string verdict = verdict_on(problem_in_fp32, remember, cache);
      // Where one set is launched again and again, rows of x change their sign for single launches.
      const bool seen_earlier = input == kX && cache != CacheMode::kWeightsCold &&
                                verdict.starts_with("left by single launches of the sequence: ");
      CHECK_MESSAGE((verdict.starts_with(told) || seen_earlier), verdict);
    }
  }
}

TEST_CASE("scales of weights that are kept as long as the weights are the same are found out") {
  Problem problem = decode();
  problem.dtype[Role::kA] = problem.dtype[Role::kB] = Dtype::kE4m3;
  problem.weights_scale = WeightsScale::kChannel;
  const std::int64_t elements_of_a = problem.slots * problem.max_rank * problem.in_features;
  const std::int64_t elements_of_b = problem.slots * problem.widths[0] * problem.max_rank;
  for (const bool of_a : {true, false}) {
    CAPTURE(of_a);
    std::map<std::string, std::vector<float>> known;
    const auto keep = [&](const Problem& whole, const Operands& operands, const Backend& backend) {
      const void* const weights = of_a ? operands.a[0] : operands.b[0];
      const auto* const scales =
          static_cast<const float*>(of_a ? operands.a_scale[0] : operands.b_scale[0]);
      const std::int64_t count =
          whole.slots * whole.scales_of(of_a ? Role::kA : Role::kB, 0).of_slot();
      std::string key(static_cast<const char*>(weights),
                      static_cast<std::size_t>(of_a ? elements_of_a : elements_of_b));
      key += std::to_string(reinterpret_cast<std::uintptr_t>(weights));
      const std::vector<float>& kept = known.try_emplace(key, scales, scales + count).first->second;
      Operands given = operands;
      (of_a ? given.a_scale : given.b_scale)[0] = kept.data();
      backend.launch(whole, given, {});
    };
    const std::string verdict = verdict_on(problem, keep);
    CHECK_MESSAGE(verdict.starts_with(of_a ? "with another number in the scales of A: "
                                           : "with another number in the scales of B: "),
                  verdict);
  }
}

TEST_CASE("scales of activations that are kept as long as these are the same are found out") {
  for (const Op op : {Op::kLinear, Op::kExpand}) {
    for (const ActivationsScale scale : {ActivationsScale::kTensor, ActivationsScale::kToken}) {
      Problem problem = decode();
      problem.op = op;
      problem.dtype[problem.activations()] = Dtype::kE4m3;
      problem.dtype[Role::kA] = problem.dtype[Role::kB] = Dtype::kE4m3;
      problem.weights_scale = WeightsScale::kChannel;
      problem.activations_scale = scale;
      std::map<std::string, std::vector<float>> known;
      const auto keep = [&](const Problem& whole, const Operands& operands,
                            const Backend& backend) {
        const bool of_x = whole.has_scaled_x();
        Operands given = operands;
        const void*& stored = of_x ? given.x_scale : given.h_scale;
        const auto* const scales = static_cast<const float*>(stored);
        const std::string key(
            static_cast<const char*>(of_x ? operands.x : operands.h),
            static_cast<std::size_t>(operand_of(whole, whole.activations()).bytes()));
        stored =
            known
                .try_emplace(key, scales, scales + operand_of(whole, whole.their_scales()).elements)
                .first->second.data();
        backend.launch(whole, given, {});
      };
      const std::string verdict = verdict_on(problem, keep);
      CHECK_MESSAGE(verdict.starts_with(fmt::format("with another number in the scales of {}: ",
                                                    name(problem.activations()))),
                    verdict);
    }
  }
}

TEST_CASE("a bias that is kept as long as all other operands are the same is found out") {
  Problem problem = decode();
  problem.bias = true;
  std::map<std::string, std::vector<std::uint16_t>> known;
  const auto keep = [&](const Problem& whole, const Operands& operands, const Backend& backend) {
    std::string key;
    const auto see = [&](const void* from, std::int64_t elements) {
      key.append(static_cast<const char*>(from), static_cast<std::size_t>(elements) * 2);
    };
    see(operands.x, whole.tokens * whole.x_stride);
    see(operands.a[0], whole.slots * whole.max_rank * whole.in_features);
    see(operands.b[0], whole.slots * whole.widths[0] * whole.max_rank);
    key += std::to_string(reinterpret_cast<std::uintptr_t>(operands.a[0]));
    const auto* const bias = static_cast<const std::uint16_t*>(operands.bias[0]);
    Operands given = operands;
    given.bias[0] =
        known.try_emplace(key, bias, bias + whole.slots * whole.widths[0]).first->second.data();
    backend.launch(whole, given, {});
  };
  const std::string verdict = verdict_on(problem, keep);
  CHECK_MESSAGE(verdict.starts_with("with another number in bias: "), verdict);
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
        seen.push_back(load(problem.dtype[Role::kY], rows, row * problem.in_features + k));
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
    CHECK(verdict_on(decode(Op::kLinear, 7), keep)
              .starts_with(keeps_plan ? "with another batch: wrong values"
                                      : "with other scales: wrong values"));
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
