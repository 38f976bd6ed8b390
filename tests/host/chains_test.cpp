#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>

#include "kernels/chains.h"

using namespace lora_bench::kernels;

TEST_CASE("chains: eight cover K, and follow from K alone") {
  for (const std::int64_t k : {1, 31, 32, 33, 255, 256, 257, 2049, 4096, 4104, 14336, 100000}) {
    CAPTURE(k);
    CHECK(chain_length(k) % 32 == 0);
    CHECK(kChains * chain_length(k) >= k);
    CHECK(kChains * (chain_length(k) - 32) < k);
  }
  CHECK(chain_length(4096) == 512);
  CHECK(chain_length(14336) == 1792);
}

TEST_CASE("chains: the declared depths are those of the sums") {
  CHECK(chains_shrink_depth(4096) == 512 + 3);
  CHECK(chains_expand_depth(16, true) == 3 * 16 + 2);
  CHECK(chains_expand_depth(16, false) == 16 + 2);
}
