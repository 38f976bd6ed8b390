#include "core/dtype.h"

#include <array>
#include <cstddef>

namespace lora_bench {
namespace {

struct DtypeFacts {
  std::int64_t size_bytes;
  double unit_roundoff;
};

// In the order of the enumeration.
constexpr std::array<DtypeFacts, 5> kFacts{
    {{4, 0x1p-24}, {2, 0x1p-8}, {2, 0x1p-11}, {1, 0x1p-4}, {1, 0x1p-3}}};

const DtypeFacts& facts(Dtype dtype) { return kFacts.at(static_cast<std::size_t>(dtype)); }

}  // namespace

std::int64_t size_bytes(Dtype dtype) { return facts(dtype).size_bytes; }

double unit_roundoff(Dtype dtype) { return facts(dtype).unit_roundoff; }

}  // namespace lora_bench
