#include "measure/rotation.h"

#include <algorithm>
#include <numeric>

#include "core/dtype.h"
#include "measure/ceilings.h"
#include "measure/measure.h"

namespace lora_bench {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

std::int64_t weight_allocation_bytes(const Problem& problem) {
  const OperandSizes sizes = operand_sizes(problem);
  return (sum(sizes.a) + sum(sizes.b) + sum(sizes.bias)) * size_bytes(problem.dtype);
}

std::int64_t activation_allocation_bytes(const Problem& problem) {
  const OperandSizes sizes = operand_sizes(problem);
  return (sizes.x + sizes.y) * size_bytes(problem.dtype) +
         sizes.h * size_bytes(problem.intermediate);
}

}  // namespace

std::int64_t touched_bytes(const Problem& problem, CacheMode cache) {
  const Work work = count_work(problem);
  switch (cache) {
    case CacheMode::kWeightsCold:
      return work.weight_bytes;
    case CacheMode::kCold:
      return work.bytes;
    case CacheMode::kHot:
      return 0;
  }
  return 0;
}

std::int64_t rotating_allocation_bytes(const Problem& problem, CacheMode cache) {
  switch (cache) {
    case CacheMode::kWeightsCold:
      return weight_allocation_bytes(problem);
    case CacheMode::kCold:
      return weight_allocation_bytes(problem) + activation_allocation_bytes(problem);
    case CacheMode::kHot:
      return 0;
  }
  return 0;
}

std::int64_t shared_allocation_bytes(const Problem& problem, CacheMode cache) {
  return weight_allocation_bytes(problem) + activation_allocation_bytes(problem) -
         rotating_allocation_bytes(problem, cache);
}

std::int64_t rotation_sets(const Problem& problem, CacheMode cache, std::int64_t cache_bytes) {
  if (cache == CacheMode::kHot) {
    return 1;
  }
  const std::int64_t touched = std::max<std::int64_t>(touched_bytes(problem, cache), 1);
  return std::clamp<std::int64_t>(3 * cache_bytes / touched + 1, 2, kMaxRotationSets);
}

}  // namespace lora_bench
