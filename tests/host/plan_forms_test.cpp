#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "core/random.h"
#include "plan/forms.h"

using namespace lora_bench;

namespace {

using Ids = std::vector<std::int32_t>;
using Indices = std::vector<std::int64_t>;

// The batch that docs/plan.md works out by hand.
const Ids& example() {
  static const Ids kIds{2, 2, -1, 0, 2, 0, -1, -1};
  return kIds;
}
constexpr std::int64_t kSlots = 3;

// Runs of random length, so that neighbours often share an adapter.
Ids random_runs(std::uint64_t seed, std::int64_t slots) {
  Ids ids;
  const std::uint64_t runs = random_below(seed, 1, 0, 30);
  for (std::uint64_t run = 0; run < runs; ++run) {
    const auto bound = static_cast<std::uint64_t>(slots + 1);
    const auto id = static_cast<std::int32_t>(random_below(seed, 2, run, bound)) - 1;
    ids.insert(ids.end(), 1 + random_below(seed, 3, run, 60), id);
  }
  return ids;
}

bool is_permutation_of_rows(const Ids& order) {
  Ids sorted = order;
  std::sort(sorted.begin(), sorted.end());
  Ids all(order.size());
  std::iota(all.begin(), all.end(), 0);
  return sorted == all;
}

std::int64_t drawn_slots(std::uint64_t seed) {
  return static_cast<std::int64_t>(1 + random_below(seed, 0, 0, 12));
}

ChunkedForm chunked(const Ids& ids, std::int64_t slots, std::int64_t chunk) {
  const std::vector<std::int64_t> rank(static_cast<std::size_t>(slots), 8);
  const std::vector<float> scale(static_cast<std::size_t>(slots), 0.5F);
  return make_chunked_form(make_plan(ids, slots), rank, scale, chunk);
}

}  // namespace

TEST_CASE("kernel form: the example of docs/plan.md") {
  const KernelForm form = make_kernel_form(make_plan(example(), kSlots), kSlots);
  CHECK(form.adapter_of_token == example());
  CHECK(form.token_order == Ids{2, 6, 7, 3, 5, 0, 1, 4});
  CHECK(form.active_ids == Ids{-1, 0, 2, -1});
  CHECK(form.counts == Ids{3, 2, 3, 0});
  CHECK(form.starts == Ids{0, 3, 5, 8, 0});
  CHECK(form.active == 3);
  CHECK_FALSE(form.no_adapter);
}

TEST_CASE("kernel form: a batch without adapters has the flag and no groups") {
  for (const Ids& ids : {Ids{}, Ids{-1, -1}}) {
    const KernelForm form = make_kernel_form(make_plan(ids, 2), 2);
    CHECK(form.no_adapter);
    CHECK(form.active == 0);
    CHECK(form.active_ids == Ids{-1, -1, -1});
    CHECK(form.counts == Ids{0, 0, 0});
    CHECK(form.starts == Ids{0, 0, 0, 0});
  }
}

TEST_CASE("kernel form: every slot and rows without an adapter fill it to the last place") {
  const KernelForm form = make_kernel_form(make_plan(Ids{1, -1, 0}, 2), 2);
  CHECK(form.active_ids == Ids{-1, 0, 1});
  CHECK(form.starts == Ids{0, 1, 2, 3});
  CHECK(form.active == 3);
}

TEST_CASE("kernel form: the order is the stable sort of the ids, and groups hold their rows") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const std::int64_t slots = drawn_slots(seed);
    const Ids ids = random_runs(seed, slots);
    const KernelForm form = make_kernel_form(make_plan(ids, slots), slots);
    Ids sorted(ids.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    const auto id_of = [&](std::int32_t token) { return ids[static_cast<std::size_t>(token)]; };
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](std::int32_t a, std::int32_t b) { return id_of(a) < id_of(b); });
    CHECK(form.token_order == sorted);
    for (std::size_t group = 0; group < static_cast<std::size_t>(form.active); ++group) {
      CHECK(form.counts[group] > 0);
      CHECK(form.starts[group + 1] - form.starts[group] == form.counts[group]);
      for (std::int32_t at = form.starts[group]; at < form.starts[group + 1]; ++at) {
        CHECK(id_of(form.token_order[static_cast<std::size_t>(at)]) == form.active_ids[group]);
      }
    }
    CHECK(std::accumulate(form.counts.begin(), form.counts.end(), std::size_t{0}) ==
          (form.no_adapter ? 0 : ids.size()));
  }
}

TEST_CASE("kernel form: the active count is rounded up to a captured one, if there is one") {
  const Ids captured{1, 2, 4, 9};
  CHECK(captured_active(0, captured) == 0);
  CHECK(captured_active(1, captured) == 1);
  CHECK(captured_active(3, captured) == 4);
  CHECK(captured_active(5, captured) == 9);
  CHECK(captured_active(10, captured) == 10);
  CHECK(captured_active(3, {}) == 3);
}

TEST_CASE("prefill form: the example of docs/plan.md") {
  const PrefillForm form = make_prefill_form(example());
  CHECK(form.starts == Ids{0, 2, 3, 4, 5, 6});
  CHECK(form.lengths == Ids{2, 1, 1, 1, 1, 2});
  CHECK(form.adapters == Ids{2, -1, 0, 2, 0, -1});
  CHECK(form.batch_size() == 6);
  CHECK(form.longest == 2);
  CHECK(form.tokens == 8);
  CHECK_FALSE(form.no_adapter);
}

TEST_CASE("prefill form: neighbouring sequences of one adapter are one, empty ones none") {
  const Indices lengths{3, 4, 0, 2, 1};
  const Ids adapters{1, 1, 0, 1, -1};
  const PrefillForm form = make_prefill_form(rows_of_sequences(lengths, adapters));
  CHECK(form.starts == Ids{0, 9});
  CHECK(form.lengths == Ids{9, 1});
  CHECK(form.adapters == Ids{1, -1});
  CHECK(form.longest == 9);
  CHECK(make_prefill_form({}).no_adapter);
  CHECK(make_prefill_form({}).batch_size() == 0);
  CHECK(make_prefill_form(Ids{-1, -1}).no_adapter);
}

TEST_CASE("prefill form: its runs give back the rows, and no neighbours are alike") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const Ids ids = random_runs(seed, drawn_slots(seed));
    const PrefillForm form = make_prefill_form(ids);
    const Indices lengths(form.lengths.begin(), form.lengths.end());
    CHECK(rows_of_sequences(lengths, form.adapters) == ids);
    CHECK(std::adjacent_find(form.adapters.begin(), form.adapters.end()) == form.adapters.end());
    CHECK(form.longest ==
          (lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end())));
    for (std::size_t run = 1; run < form.starts.size(); ++run) {
      CHECK(form.starts[run] == form.starts[run - 1] + form.lengths[run - 1]);
    }
  }
}

TEST_CASE("sequences that make no batch are refused with what is wrong") {
  CHECK_THROWS_WITH_AS((void)rows_of_sequences(Indices{1, 2}, Ids{0}),
                       "2 lengths for 1 adapters of sequences", std::invalid_argument);
  CHECK_THROWS_WITH_AS((void)rows_of_sequences(Indices{1, -2}, Ids{0, 0}),
                       "sequence 1 has -2 tokens", std::invalid_argument);
}

TEST_CASE("sampler and embedding indices: the examples of docs/plan.md") {
  const SamplerIndices sampler = make_sampler_indices(Ids{2, -1, 0}, kSlots);
  CHECK(sampler.adapters == Ids{2, -1, 0});
  CHECK(sampler.padded == Indices{6, 7, 2});
  const EmbeddingIndices embedding = make_embedding_indices(Ids{2, -1, 0, 1}, kSlots, 100, 16);
  CHECK(embedding.extra == Indices{32, 0, 0, 16});
  CHECK(embedding.table == Indices{232, 0, 0, 116});
}

TEST_CASE("padded sampler indices name slot and row, each once") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::int64_t slots = drawn_slots(seed);
    const Ids ids = random_runs(seed, slots);
    const SamplerIndices indices = make_sampler_indices(ids, slots);
    const auto rows = static_cast<std::int64_t>(ids.size());
    REQUIRE(indices.padded.size() == ids.size());
    for (std::size_t row = 0; row < ids.size(); ++row) {
      CHECK(indices.padded[row] % rows == static_cast<std::int64_t>(row));
      CHECK(indices.padded[row] / rows == (ids[row] < 0 ? slots - 1 : ids[row]));
    }
  }
}

TEST_CASE("table indices are 64-bit and refuse ids outside the slots") {
  CHECK(make_embedding_indices(Ids{99999}, 100000, 128256, 0).table == Indices{12825471744});
  CHECK_THROWS_AS((void)make_sampler_indices(Ids{3}, 3), std::invalid_argument);
  CHECK_THROWS_AS((void)make_embedding_indices(Ids{-2}, 3, 10, 0), std::invalid_argument);
  for (const std::int64_t slots : {0, -1}) {
    CHECK_THROWS_AS((void)make_sampler_indices(Ids{-1, -1}, slots), std::invalid_argument);
    CHECK_THROWS_AS((void)make_embedding_indices(Ids{-1}, slots, 10, 0), std::invalid_argument);
  }
  CHECK_THROWS_AS((void)make_prefill_form(Ids{0, -5}), std::invalid_argument);
}

TEST_CASE("chunked form: the example of docs/plan.md") {
  Ids ids(20, 2);
  ids.insert(ids.end(), {-1, 0, 0});
  const Indices rank{8, 16, 0};
  const std::vector<float> scale{2.0F, 1.0F, 0.5F};
  const ChunkedForm form = make_chunked_form(make_plan(ids, kSlots), rank, scale, 16);
  CHECK(form.permutation ==
        Ids{21, 22, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20});
  CHECK(form.segment_starts == Ids{0, 2, 18, 22});
  CHECK(form.adapter_of_segment == Ids{0, 2, 2});
  CHECK(form.segments() == 3);
  CHECK(form.rank == Ids{8, 16, 0});
  CHECK(form.scale == scale);
}

TEST_CASE("chunked form: segments cover the rows with an adapter, each at most a chunk, in order") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const std::int64_t slots = drawn_slots(seed);
    const Ids ids = random_runs(seed, slots);
    for (const std::int64_t chunk : {16, 32, 64, 128}) {
      const ChunkedForm form = chunked(ids, slots, chunk);
      CHECK(is_permutation_of_rows(form.permutation));
      REQUIRE(form.segment_starts.size() == form.adapter_of_segment.size() + 1);
      CHECK(form.segment_starts.front() == 0);
      CHECK(form.segment_starts.back() ==
            std::count_if(ids.begin(), ids.end(), [](std::int32_t id) { return id >= 0; }));
      CHECK(form.segments() <= most_segments(static_cast<std::int64_t>(ids.size()), slots, chunk));
      for (std::size_t segment = 0; segment < form.adapter_of_segment.size(); ++segment) {
        const std::int32_t first = form.segment_starts[segment];
        const std::int32_t last = form.segment_starts[segment + 1];
        CHECK(last > first);
        CHECK(last - first <= chunk);
        // Only the last segment of an adapter is not full.
        if (segment > 0 &&
            form.adapter_of_segment[segment] == form.adapter_of_segment[segment - 1]) {
          CHECK(first - form.segment_starts[segment - 1] == chunk);
        }
        for (std::int32_t at = first; at < last; ++at) {
          const auto row = static_cast<std::size_t>(form.permutation[static_cast<std::size_t>(at)]);
          CHECK(ids[row] == form.adapter_of_segment[segment]);
        }
      }
    }
  }
}

TEST_CASE("chunked form: the greatest number of segments is reached") {
  Ids ids{0, 1, 2};
  ids.insert(ids.end(), 33, 3);
  CHECK(chunked(ids, 4, 16).segments() == 6);
  CHECK(most_segments(36, 4, 16) == 6);
  CHECK(most_segments(35, 4, 16) == 5);
  CHECK(most_segments(0, 4, 16) == 0);
  CHECK(most_segments(3, 64, 128) == 3);
}

TEST_CASE("chunked form: the chunk follows the batch up to the largest that is allowed") {
  CHECK(chunk_of_batch(1, 128) == 16);
  CHECK(chunk_of_batch(63, 128) == 16);
  CHECK(chunk_of_batch(64, 128) == 32);
  CHECK(chunk_of_batch(255, 128) == 32);
  CHECK(chunk_of_batch(256, 128) == 128);
  CHECK(chunk_of_batch(4096, 64) == 64);
  CHECK(chunk_of_batch(4096, 32) == 32);
  CHECK(chunk_of_batch(4096, 16) == 16);
}

TEST_CASE("chunked form: other chunks, and ranks without scales, are refused") {
  CHECK_THROWS_WITH_AS((void)chunk_of_batch(1, 48), "a chunk is 16, 32, 64 or 128 rows, got 48",
                       std::invalid_argument);
  CHECK_THROWS_AS((void)chunked(example(), kSlots, 8), std::invalid_argument);
  const Indices rank{8, 8, 8};
  const std::vector<float> scale{1.0F};
  CHECK_THROWS_WITH_AS((void)make_chunked_form(make_plan(example(), kSlots), rank, scale, 16),
                       "3 ranks for 1 scales", std::invalid_argument);
}
