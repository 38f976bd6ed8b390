#include <fmt/format.h>

#include <algorithm>

#include "core/dtype.h"
#include "verify/diagnose.h"
#include "verify/mutant_values.h"

namespace lora_bench {
namespace {

// The factors of one case.
struct Factors {
  const Problem& problem;
  const HostTensor& stored;

  [[nodiscard]] float of(std::int64_t row) const {
    return load(stored.dtype, stored.data.data(), row);
  }
};

struct FactorMisreading {
  const char* how;
  float (*factor)(const Factors& factors, std::int64_t row);
};

constexpr FactorMisreading kFactorMisreadings[] = {
    {"left out", [](const Factors&, std::int64_t) { return 1.0F; }},
    {"multiplied in twice",
     [](const Factors& factors, std::int64_t row) { return factors.of(row) * factors.of(row); }},
    {"divided by", [](const Factors& factors, std::int64_t row) { return 1 / factors.of(row); }},
    {"those of the next pair",
     [](const Factors& factors, std::int64_t row) {
       return factors.of((row + 1) % factors.problem.tokens);
     }},
    {"those of the pair before",
     [](const Factors& factors, std::int64_t row) {
       return factors.of((row + factors.problem.tokens - 1) % factors.problem.tokens);
     }},
    {"those of the first choice of the token",
     [](const Factors& factors, std::int64_t row) {
       return factors.of(row - row % factors.problem.route.choices);
     }},
    {"those of the first pair", [](const Factors& factors, std::int64_t) { return factors.of(0); }},
    {"read as if they lay in the order of the plan",
     [](const Factors& factors, std::int64_t row) {
       const std::vector<std::int32_t>& order = factors.problem.plan.token_order;
       return factors.of(std::find(order.begin(), order.end(), row) - order.begin());
     }},
    {"rounded to the 8 bits of bf16",
     [](const Factors& factors, std::int64_t row) { return rounded_to_bf16(factors.of(row)); }},
    {"rounded to the 11 bits of fp16",
     [](const Factors& factors, std::int64_t row) {
       return rounded_to_bits(factors.of(row), kBitsOfFp16);
     }},
};

// Of a pair without an adapter the factor is NaN, and so is what is multiplied by it.
bool fits(const Evidence& evidence, const FactorMisreading& misreading) {
  const Factors factors{evidence.problem, evidence.tensors.factor};
  std::size_t next = 0;
  return explains(evidence, [&](RowModel& model) {
    model.use_factor(misreading.factor(factors, evidence.rows[next++].token));
  });
}

}  // namespace

std::string test_factor_misread(const Evidence& evidence) {
  if (!evidence.problem.has_factors()) {
    return "";
  }
  for (const FactorMisreading& misreading : kFactorMisreadings) {
    if (fits(evidence, misreading)) {
      return fmt::format("the factors of rows are {}", misreading.how);
    }
  }
  return "";
}

}  // namespace lora_bench
