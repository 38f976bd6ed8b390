#include "core/dtype.h"

#include <array>
#include <stdexcept>

namespace lora_bench {
namespace {

struct DtypeFacts {
  Dtype dtype;
  std::string_view name;
  std::int64_t size_bytes;
  double unit_roundoff;
};

constexpr std::array<DtypeFacts, 5> kDtypes{{
    {Dtype::kFp32, "fp32", 4, 0x1p-24},
    {Dtype::kBf16, "bf16", 2, 0x1p-8},
    {Dtype::kFp16, "fp16", 2, 0x1p-11},
    {Dtype::kE4m3, "e4m3", 1, 0x1p-4},
    {Dtype::kE5m2, "e5m2", 1, 0x1p-3},
}};

const DtypeFacts& facts(Dtype dtype) {
  for (const DtypeFacts& entry : kDtypes) {
    if (entry.dtype == dtype) {
      return entry;
    }
  }
  throw std::logic_error("dtype outside the enumeration");
}

}  // namespace

std::string_view name(Dtype dtype) { return facts(dtype).name; }

std::optional<Dtype> parse_dtype(std::string_view text) {
  for (const DtypeFacts& entry : kDtypes) {
    if (entry.name == text) {
      return entry.dtype;
    }
  }
  return std::nullopt;
}

std::int64_t size_bytes(Dtype dtype) { return facts(dtype).size_bytes; }

double unit_roundoff(Dtype dtype) { return facts(dtype).unit_roundoff; }

}  // namespace lora_bench
