// How tokens choose experts, and what weights the choices have.
#include "workload/routing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/workload_case.h"

using namespace lora_bench;

namespace {

using Ids = std::vector<std::int32_t>;

Case routed_case(std::int64_t tokens, std::int64_t experts, std::int64_t top_k) {
  Case spec = workload_case(tokens, 4);
  spec.experts.count = experts;
  spec.experts.top_k = top_k;
  return spec;
}

// A law of every kind over 16 experts in fours, of which four are chosen.
std::vector<RoutingLaw> laws() {
  std::vector<RoutingLaw> all;
  for (const Routing kind : {Routing::kUniform, Routing::kZipf, Routing::kHot, Routing::kGrouped,
                             Routing::kBalanced, Routing::kIdentical}) {
    RoutingLaw law;
    law.kind = kind;
    law.parameter = kind == Routing::kZipf ? 1.5 : 0.75;
    law.hot = 3;
    law.groups = 4;
    law.groups_per_token = 2;
    law.per_adapter = 0.5;
    all.push_back(law);
  }
  return all;
}

Ids choice_of(const Case& spec, const Batch& batch, std::int64_t token) {
  const auto from = batch.expert_of_choice.begin() + token * spec.experts.top_k;
  return {from, from + spec.experts.top_k};
}

std::vector<std::int64_t> rows_of_experts(const Case& spec) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(spec.experts.count), 0);
  for (const std::int32_t expert : draw_batch(spec).expert_of_choice) {
    ++rows.at(static_cast<std::size_t>(expert));
  }
  return rows;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
  std::sort(values.rbegin(), values.rend());
  return values;
}

// The share of all rows that the experts with the most have.
double share_of_most(const Case& spec, std::size_t experts) {
  const std::vector<std::int64_t> rows = sorted(rows_of_experts(spec));
  double most = 0, all = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    all += static_cast<double>(rows[i]);
    most += i < experts ? static_cast<double>(rows[i]) : 0;
  }
  return most / all;
}

}  // namespace

TEST_CASE("routing: a case without experts draws none, and its batch stays as it was") {
  const Batch batch = draw_batch(workload_case(5, 3));
  CHECK(batch.expert_of_choice.empty());
  CHECK(batch.weight_of_choice.empty());
  Case spec = routed_case(64, 8, 2);
  const Ids adapters = draw_batch(spec).adapter_of_token;
  spec.experts = {};
  CHECK(draw_batch(spec).adapter_of_token == adapters);
}

TEST_CASE("routing: the experts of a token are all different, whatever the law and top_k") {
  for (const std::int64_t top_k : {std::int64_t{1}, std::int64_t{4}, std::int64_t{8}}) {
    for (const RoutingLaw& law : laws()) {
      Case spec = routed_case(200, 16, top_k);
      spec.routing = law;
      CAPTURE(std::string(name(law.kind)));
      const Batch batch = draw_batch(spec);
      REQUIRE(batch.expert_of_choice.size() == static_cast<std::size_t>(200 * top_k));
      for (std::int64_t token = 0; token < 200; ++token) {
        const Ids chosen = choice_of(spec, batch, token);
        const std::set<std::int32_t> all(chosen.begin(), chosen.end());
        CHECK(all.size() == static_cast<std::size_t>(top_k));
        CHECK(*all.begin() >= 0);
        CHECK(*all.rbegin() < 16);
      }
    }
  }
}

TEST_CASE("routing: a token that chooses all experts chooses each once, by every law") {
  for (RoutingLaw law : laws()) {
    Case spec = routed_case(20, 8, 8);
    law.groups_per_token = 4;
    spec.routing = law;
    CAPTURE(std::string(name(law.kind)));
    CHECK(rows_of_experts(spec) == std::vector<std::int64_t>(8, 20));
  }
}

TEST_CASE("routing: what is drawn follows from the seed, and each token from its number") {
  for (const RoutingLaw& law : laws()) {
    Case spec = routed_case(64, 16, 4);
    spec.routing = law;
    CAPTURE(std::string(name(law.kind)));
    const Batch batch = draw_batch(spec);
    CHECK(draw_batch(spec).expert_of_choice == batch.expert_of_choice);
    CHECK(draw_batch(spec).weight_of_choice == batch.weight_of_choice);
    spec.skew.kind = Skew::kIdentical;  // one adapter, so that it is no matter who has which
    spec.prefill_skew = spec.skew;
    const Batch alike = draw_batch(spec);
    spec.batch.decode = 48;
    const Batch fewer = draw_batch(spec);
    CHECK(std::equal(fewer.expert_of_choice.begin(), fewer.expert_of_choice.end(),
                     alike.expert_of_choice.begin()));
    CHECK(std::equal(fewer.weight_of_choice.begin(), fewer.weight_of_choice.end(),
                     alike.weight_of_choice.begin()));
    spec.batch.decode = 64;
    spec.seed = 2;
    CHECK(draw_batch(spec).expert_of_choice != alike.expert_of_choice);
    CHECK(draw_batch(spec).weight_of_choice != alike.weight_of_choice);
  }
}

TEST_CASE("routing: balanced gives all experts as many rows, within one") {
  Case spec = routed_case(100, 16, 3);
  spec.routing.kind = Routing::kBalanced;
  const std::vector<std::int64_t> rows = sorted(rows_of_experts(spec));
  CHECK(rows.front() == 19);  // 300 rows of 16 experts
  CHECK(rows.back() == 18);
}

TEST_CASE("routing: identical sends all tokens to the same experts, of another seed to others") {
  Case spec = routed_case(10, 64, 4);
  spec.routing.kind = Routing::kIdentical;
  const std::vector<std::int64_t> rows = rows_of_experts(spec);
  CHECK(std::count(rows.begin(), rows.end(), 10) == 4);
  CHECK(std::count(rows.begin(), rows.end(), 0) == 60);
  spec.seed = 2;
  CHECK(rows_of_experts(spec) != rows);
}

TEST_CASE("routing: uniform gives all experts about as many rows, in every place of a choice") {
  Case spec = routed_case(8000, 16, 4);
  for (const std::int64_t rows : rows_of_experts(spec)) {
    CHECK(std::abs(rows - 2000) < 200);
  }
  const Batch batch = draw_batch(spec);
  std::vector<std::int64_t> first(16, 0);
  for (std::int64_t token = 0; token < 8000; ++token) {
    ++first[static_cast<std::size_t>(choice_of(spec, batch, token).front())];
  }
  CHECK(sorted(first).front() < 620);
  CHECK(sorted(first).back() > 380);
}

TEST_CASE("routing: zipf is uniform at 0 and the more uneven the larger its exponent is") {
  Case spec = routed_case(4000, 64, 2);
  const double uniform = share_of_most(spec, 8);
  spec.routing.kind = Routing::kZipf;
  CHECK(share_of_most(spec, 8) == uniform);
  CHECK(uniform < 0.15);
  spec.routing.parameter = 1;
  const double one = share_of_most(spec, 8);
  CHECK(one > 0.45);
  CHECK(one < 0.7);
  spec.routing.parameter = 2;
  CHECK(share_of_most(spec, 8) > 0.85);
}

TEST_CASE("routing: a first choice by zipf has the probability that the law says") {
  Case spec = routed_case(20000, 4, 1);
  spec.routing.kind = Routing::kZipf;
  spec.routing.parameter = 1;
  const std::vector<std::int64_t> rows = sorted(rows_of_experts(spec));
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const double expected = 20000 / (static_cast<double>(rank + 1) * (25.0 / 12));
    CHECK(std::abs(static_cast<double>(rows[rank]) - expected) < 0.05 * expected);
  }
}

TEST_CASE("routing: hot experts take about their share of the choices, and all that there are") {
  Case spec = routed_case(4000, 64, 2);
  spec.routing.kind = Routing::kHot;
  spec.routing.hot = 8;
  for (const double share : {0.25, 0.5, 0.9}) {
    spec.routing.parameter = share;
    CHECK(std::abs(share_of_most(spec, 8) - share) < 0.02);
  }
  // One that each choice wants is chosen by every token, once.
  spec.routing.hot = 1;
  spec.routing.parameter = 1;
  const std::vector<std::int64_t> rows = sorted(rows_of_experts(spec));
  CHECK(rows.front() == 4000);
  CHECK(rows[1] < 120);
}

TEST_CASE("routing: grouped chooses within so many runs of experts") {
  Case spec = routed_case(500, 32, 8);
  spec.routing.kind = Routing::kGrouped;
  spec.routing.groups = 8;
  spec.routing.groups_per_token = 3;
  const Batch batch = draw_batch(spec);
  std::set<std::int32_t> all;
  for (std::int64_t token = 0; token < 500; ++token) {
    std::set<std::int32_t> groups;
    for (const std::int32_t expert : choice_of(spec, batch, token)) {
      groups.insert(expert / 4);
    }
    CHECK(groups.size() <= 3);
    all.insert(groups.begin(), groups.end());
  }
  CHECK(all.size() == 8);
  for (const std::int64_t rows : rows_of_experts(spec)) {
    CHECK(std::abs(rows - 125) < 60);
  }
}

TEST_CASE("routing: as many adapters as are said order the experts their own way") {
  Case spec = routed_case(4000, 32, 1);
  spec.adapters.slots = 8;
  spec.skew.kind = Skew::kDistinct;
  spec.prefill_skew = spec.skew;
  spec.routing.kind = Routing::kZipf;
  spec.routing.parameter = 3;
  const auto favourites = [&](double share) {
    spec.routing.per_adapter = share;
    const Batch batch = draw_batch(spec);
    std::vector<std::vector<std::int64_t>> rows(8, std::vector<std::int64_t>(32, 0));
    for (std::size_t token = 0; token < batch.adapter_of_token.size(); ++token) {
      ++rows.at(static_cast<std::size_t>(batch.adapter_of_token[token]))
            .at(static_cast<std::size_t>(batch.expert_of_choice[token]));
    }
    Ids favourite;
    for (const std::vector<std::int64_t>& of_adapter : rows) {
      favourite.push_back(static_cast<std::int32_t>(
          std::max_element(of_adapter.begin(), of_adapter.end()) - of_adapter.begin()));
    }
    return favourite;
  };
  const Ids none = favourites(0);
  CHECK(std::set<std::int32_t>(none.begin(), none.end()).size() == 1);
  const Ids half = favourites(0.5);
  CHECK(std::count(half.begin(), half.end(), none.front()) >= 4);
  CHECK(std::set<std::int32_t>(half.begin(), half.end()).size() >= 4);
  const Ids all = favourites(1);
  CHECK(std::set<std::int32_t>(all.begin(), all.end()).size() >= 6);
}

TEST_CASE("routing: a trace is followed token by token, cycled, with the weights that it has") {
  Case spec = routed_case(5, 8, 2);
  spec.routing.kind = Routing::kTrace;
  spec.routing.trace = {{{7, -1}, {0.5F, 0.25F}}, {{2, 3}, {1, 0}}};
  const Batch batch = draw_batch(spec);
  CHECK(batch.expert_of_choice == Ids{7, -1, 2, 3, 7, -1, 2, 3, 7, -1});
  CHECK(batch.weight_of_choice ==
        std::vector<float>{0.5F, 0.25F, 1, 0, 0.5F, 0.25F, 1, 0, 0.5F, 0.25F});
  spec.routing.trace[1].experts.pop_back();
  CHECK_THROWS_AS(static_cast<void>(draw_batch(spec)), CaseError);
  spec.routing.trace.clear();
  CHECK_THROWS_AS(static_cast<void>(draw_batch(spec)), CaseError);
}

TEST_CASE("routing: the weights of a token add up to the scaling, or are a share of all experts") {
  Case spec = routed_case(2000, 64, 4);
  spec.experts.scaling = 2.5;
  const auto sums = [&] {
    std::vector<double> all;
    const Batch batch = draw_batch(spec);
    for (std::size_t i = 0; i < batch.weight_of_choice.size(); i += 4) {
      all.push_back(0);
      for (std::size_t j = i; j < i + 4; ++j) {
        CHECK(batch.weight_of_choice[j] > 0);
        all.back() += static_cast<double>(batch.weight_of_choice[j]);
      }
    }
    return all;
  };
  for (const double sum : sums()) {
    CHECK(sum == doctest::Approx(2.5));
  }
  spec.experts.renormalise = false;
  double mean = 0;
  for (const double sum : sums()) {
    CHECK(sum < 2.5);
    mean += sum / 2000;
  }
  CHECK(mean == doctest::Approx(2.5 * 4 / 64).epsilon(0.1));
  spec.routing.kind = Routing::kTrace;
  spec.routing.trace = {{{0, 1, 2, 3}, {}}};  // without weights: drawn
  CHECK(sums().front() > 0);
  CHECK(draw_batch(spec).weight_of_choice[0] != draw_batch(spec).weight_of_choice[4]);
}

TEST_CASE("routing: rows that pad a batch up to max_tokens choose no expert") {
  Case spec = routed_case(3, 8, 2);
  spec.plan.max_tokens = 5;
  for (const RoutingLaw& law : laws()) {
    spec.routing = law;
    const Batch batch = draw_batch(spec);
    REQUIRE(batch.expert_of_choice.size() == 10);
    REQUIRE(batch.weight_of_choice.size() == 10);
    for (std::size_t i = 0; i < 10; ++i) {
      CHECK((batch.expert_of_choice[i] == -1) == (i >= 6));
      CHECK((batch.weight_of_choice[i] == 0) == (i >= 6));
    }
  }
}

TEST_CASE("routing: seed 1 draws these experts and weights, on every machine") {
  const auto drawn = [](Routing kind) {
    Case spec = routed_case(3, 16, 3);
    spec.routing.kind = kind;
    spec.routing.parameter = 1;
    spec.routing.groups = 4;
    spec.routing.groups_per_token = 2;
    return draw_batch(spec).expert_of_choice;
  };
  CHECK(drawn(Routing::kUniform) == Ids{13, 15, 11, 6, 3, 13, 15, 10, 11});
  CHECK(drawn(Routing::kZipf) == Ids{13, 7, 15, 6, 3, 7, 7, 15, 0});
  CHECK(drawn(Routing::kHot) == Ids{7, 13, 15, 7, 6, 3, 7, 15, 10});
  CHECK(drawn(Routing::kGrouped) == Ids{6, 1, 7, 14, 13, 15, 15, 13, 12});
  CHECK(drawn(Routing::kBalanced) == Ids{7, 0, 2, 14, 4, 6, 12, 9, 8});
  CHECK(drawn(Routing::kIdentical) == Ids{7, 0, 2, 7, 0, 2, 7, 0, 2});
  const std::vector<float> weights = draw_batch(routed_case(1, 16, 3)).weight_of_choice;
  CHECK(weights[0] == doctest::Approx(0.297291).epsilon(1e-5));
  CHECK(weights[1] == doctest::Approx(0.598399).epsilon(1e-5));
  CHECK(weights[2] == doctest::Approx(0.104310).epsilon(1e-5));
}
