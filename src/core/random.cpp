#include "core/random.h"

namespace lora_bench {

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return RandomStream(seed, stream).bits(index);
}

double random_unit(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

std::uint64_t random_below(std::uint64_t seed, std::uint64_t stream, std::uint64_t index,
                           std::uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(random_bits(seed, stream, index)) * bound;
  return static_cast<std::uint64_t>(product >> 64);
}

}  // namespace lora_bench
