#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "verify/diagnose.h"

namespace lora_bench {
namespace {

constexpr std::size_t kCandidates = 96;

// Adapters of the batch first: nothing else was meant to be read.
std::vector<std::int32_t> candidate_adapters(const Problem& problem) {
  std::vector<std::int32_t> candidates{-1};
  candidates.insert(candidates.end(), problem.plan.active_ids.begin(),
                    problem.plan.active_ids.end());
  for (std::int32_t slot = 0; slot < problem.slots; ++slot) {
    if (std::find(candidates.begin(), candidates.end(), slot) == candidates.end()) {
      candidates.push_back(slot);
    }
  }
  candidates.resize(std::min(candidates.size(), kCandidates));
  return candidates;
}

// Near rows first, then from the start, where an index that wraps lands.
std::vector<std::int64_t> candidate_rows(std::int64_t rows, std::int64_t token) {
  std::vector<std::int64_t> candidates;
  const auto add = [&](std::int64_t row) {
    if (row != token && row >= 0 && row < rows &&
        std::find(candidates.begin(), candidates.end(), row) == candidates.end()) {
      candidates.push_back(row);
    }
  };
  for (std::int64_t distance = 1; distance <= 16; ++distance) {
    add(token + distance);
    add(token - distance);
  }
  for (std::int64_t row = 0; row < rows && candidates.size() < kCandidates; ++row) {
    add(row);
  }
  return candidates;
}

std::string adapter_named(const Problem& problem, std::int32_t slot) {
  return slot < 0 ? "no adapter" : slot_named(problem.route, slot);
}

struct Found {
  Agreement agreement = Agreement::kNo;
  std::string what;
};

// The first candidate that agrees; one that only agrees in NaN if there is no better.
template <typename Candidate, typename Apply, typename Name>
Found find_origin(const Evidence& evidence, const WrongRow& row,
                  const std::vector<Candidate>& candidates, Apply apply, Name name_of) {
  Found found;
  for (const Candidate& candidate : candidates) {
    RowModel model(evidence, row);
    apply(model, candidate);
    const Agreement agreement = agrees(evidence, row, model.predict());
    if (agreement == Agreement::kYes) {
      return {agreement, name_of(candidate)};
    }
    if (agreement == Agreement::kEmpty && found.agreement == Agreement::kNo) {
      found = {agreement, ""};
    }
  }
  return found;
}

// One sentence for all rows, if each has an origin and at least one shows it in numbers.
template <typename FindOrigin>
std::string all_from(const Evidence& evidence, FindOrigin find) {
  std::vector<std::string> parts;
  for (const WrongRow& row : evidence.rows) {
    const Found found = find(row);
    if (found.agreement == Agreement::kNo) {
      return "";
    }
    if (found.agreement == Agreement::kYes) {
      parts.push_back(fmt::format("row {} holds the result of {}", row.token, found.what));
    }
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<std::int64_t> likely_tails(std::int64_t elements) {
  std::set<std::int64_t> tails;
  for (std::int64_t tail = 1; tail <= 64; ++tail) {
    tails.insert(tail);
  }
  for (std::int64_t block = 8; block <= 1024; block *= 2) {
    tails.insert(block);
    tails.insert(elements % block);
  }
  tails.insert(elements / 2);
  std::vector<std::int64_t> fitting;
  for (const std::int64_t tail : tails) {
    if (tail > 0 && tail < elements) {
      fitting.push_back(tail);
    }
  }
  return fitting;
}

std::vector<HostTensor> Tensors::*tensors_of(Role weights) {
  return weights == Role::kA ? &Tensors::a : weights == Role::kB ? &Tensors::b : &Tensors::bias;
}

bool is_read(const Evidence& evidence, Role weights) {
  return weights == Role::kA   ? has_shrink(evidence.problem.op)
         : weights == Role::kB ? evidence.expand
                               : evidence.problem.bias;
}

}  // namespace

std::string test_wrong_adapter(const Evidence& evidence) {
  return all_from(evidence, [&](const WrongRow& row) {
    std::vector<std::int32_t> others = candidate_adapters(evidence.problem);
    std::erase(others, row.adapter);
    return find_origin(
        evidence, row, others,
        [](RowModel& model, std::int32_t adapter) { model.use_adapter(adapter); },
        [&](std::int32_t adapter) {
          return fmt::format("{} instead of {}", adapter_named(evidence.problem, adapter),
                             adapter_named(evidence.problem, row.adapter));
        });
  });
}

std::string test_neighbour_row(const Evidence& evidence) {
  return all_from(evidence, [&](const WrongRow& row) {
    return find_origin(
        evidence, row, candidate_rows(evidence.problem.tokens, row.token),
        [&](RowModel& model, std::int64_t token) {
          model.read_row(token);
          if (row.adapter < 0) {
            model.use_adapter(
                evidence.problem.plan.adapter_of_token[static_cast<std::size_t>(token)]);
          }
        },
        [](std::int64_t token) { return fmt::format("row {}", token); });
  });
}

std::string test_x_of_other_token(const Evidence& evidence) {
  if (!evidence.problem.shares_x()) {
    return "";
  }
  return all_from(evidence, [&](const WrongRow& row) {
    return find_origin(
        evidence, row,
        candidate_rows(evidence.problem.x_rows(), evidence.problem.x_row(0, row.token)),
        [](RowModel& model, std::int64_t row_of_x) { model.read_row_of_x(row_of_x); },
        [](std::int64_t row_of_x) { return fmt::format("x of token {}", row_of_x); });
  });
}

std::string test_lost_k_tail(const Evidence& evidence) {
  if (!has_shrink(evidence.problem.op)) {
    return "";
  }
  const std::int64_t elements = evidence.problem.in_features;
  for (const std::int64_t tail : likely_tails(elements)) {
    if (explains(evidence, [&](RowModel& model) { model.drop_k_tail(tail); })) {
      return tail == 1
                 ? fmt::format("the last of {} elements of every sum over K is missing", elements)
                 : fmt::format("the last {} of {} elements of every sum over K are missing", tail,
                               elements);
    }
  }
  return "";
}

std::string test_lost_rank_lane(const Evidence& evidence) {
  if (!evidence.expand) {
    return "";
  }
  for (std::int64_t lanes = 1; lanes < evidence.problem.max_rank; ++lanes) {
    if (explains(evidence, [&](RowModel& model) { model.drop_lanes(lanes); })) {
      return lanes == 1 ? "the last rank lane is missing"
                        : fmt::format("the last {} rank lanes are missing", lanes);
    }
  }
  return "";
}

Hypothesis diagnose_stale_weights(const Problem& problem, const Tensors& tensors,
                                  const Tensors& earlier, const Numerics& numerics, const void* got,
                                  const Comparison& comparison) {
  struct Kept {
    std::vector<Role> roles;
    bool scale;
    const char* what;
  };
  const Evidence evidence = gather_evidence(problem, tensors, numerics, got, comparison);
  for (const Kept& kept :
       {Kept{{Role::kA}, false, "numbers of A are"}, Kept{{Role::kB}, false, "numbers of B are"},
        Kept{{Role::kA, Role::kB}, false, "A and B are"},
        Kept{{Role::kA, Role::kB}, true, "A, B and scales are"},
        Kept{{Role::kA, Role::kB, Role::kBias}, false, "A, B and bias are"},
        Kept{{Role::kA, Role::kB, Role::kBias}, true, "all weights and scales are"}}) {
    if (!std::all_of(kept.roles.begin(), kept.roles.end(),
                     [&](Role role) { return is_read(evidence, role); })) {
      continue;
    }
    const auto change = [&](RowModel& model) {
      for (const Role role : kept.roles) {
        for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
          const HostTensor& kept_there = (earlier.*tensors_of(role))[at(slice)];
          if (kept_there.elements > 0) {
            model.read_weights(role, slice, kept_there.data);
          }
        }
      }
      if (kept.scale) {
        model.use_scale(earlier.scale[at(model.adapter())]);
      }
    };
    if (explains(evidence, change)) {
      return {"stale-weights",
              fmt::format("{} those of a launch before, and not of this one: they were kept",
                          kept.what)};
    }
  }
  return {};
}

}  // namespace lora_bench
