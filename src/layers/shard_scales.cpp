#include <fmt/format.h>

#include <numeric>
#include <stdexcept>
#include <vector>

#include "core/error.h"
#include "layers/shard.h"

// What becomes of the scales of A and B where these are divided.
namespace lora_bench {
namespace {

bool in_one_block(const IndexRange& range, std::int64_t block) {
  return range.first / block == (range.first + range.count - 1) / block;
}

// The largest divisor of `block` whose blocks, counted from the first of the runs that a shard has,
// each lie in one of the whole.
std::int64_t block_that_fits(std::int64_t block, const std::vector<IndexRange>& runs) {
  std::int64_t place = 0;
  std::int64_t shift = 0;  // from a place in the shard to that in the whole, of the last run
  std::int64_t fits = block;
  for (const IndexRange& run : runs) {
    const bool alone = run.count > 0 && runs.size() == 1 && in_one_block(run, block);
    if (run.count > 0 && run.first - place != shift && !alone) {
      fits = std::gcd(fits, std::gcd(run.first, place));
      shift = run.first - place;
    }
    place += run.count;
  }
  return fits;
}

// Of an index in a part that is made of runs of a whole, the one in the whole.
std::int64_t in_whole(const std::vector<IndexRange>& runs, std::int64_t index) {
  for (const IndexRange& run : runs) {
    if (index < run.count) {
      return run.first + index;
    }
    index -= run.count;
  }
  throw std::logic_error("an index outside of a part");
}

}  // namespace

std::vector<IndexRange> rows_of_b(const ShardedLayer& layer, const Shard& shard, std::size_t pair) {
  const bool joint = description_of(layer.kind).joint;
  const std::size_t past = joint ? shard.b_rows.size() : pair + 1;
  std::vector<IndexRange> rows;
  std::int64_t block_start = 0;
  for (std::size_t block = joint ? 0 : pair; block < past; ++block) {
    const IndexRange& range = shard.b_rows[block];
    rows.push_back({block_start + range.first, range.count});
    block_start += layer.widths[block];
  }
  return rows;
}

ScaleForm scales_in_shard(const ShardedLayer& layer, const Shard& shard, const ScaleForm& whole) {
  if (whole.scale != WeightsScale::kBlock) {
    return whole;
  }
  ScaleForm part = whole;
  part.rows = std::gcd(part.rows, block_that_fits(whole.rows, {shard.lanes}));
  part.columns = std::gcd(part.columns, block_that_fits(whole.columns, {shard.a_inputs}));
  const std::size_t pairs = description_of(layer.kind).joint ? 1 : layer.widths.size();
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    part.rows = std::gcd(part.rows, block_that_fits(whole.rows, rows_of_b(layer, shard, pair)));
  }
  return part;
}

Matrix cut_scales(const Matrix& scales, const ScalesOfPart& cut) {
  Matrix part{scales.dtype, cut.part.down, cut.part.across, {}};
  const auto bytes = static_cast<std::size_t>(size_bytes(scales.dtype));
  for (std::int64_t down = 0; down < part.rows; ++down) {
    const std::int64_t row = in_whole(cut.rows, down * cut.part.rows);
    for (std::int64_t across = 0; across < part.columns; ++across) {
      const std::int64_t column = in_whole(cut.columns, across * cut.part.columns);
      const auto from =
          scales.data.begin() + static_cast<std::ptrdiff_t>(cut.whole.at(0, row, column)) *
                                    static_cast<std::ptrdiff_t>(bytes);
      part.data.insert(part.data.end(), from, from + static_cast<std::ptrdiff_t>(bytes));
    }
  }
  return part;
}

void check_scales(const AdapterWeights& given) {
  const std::size_t wanted = given.scales.any() ? given.a.size() : 0;
  if (given.a_scale.size() != wanted || given.b_scale.size() != wanted) {
    throw UsageError(fmt::format("scales of {} A and {} B for {} pairs that have {}",
                                 given.a_scale.size(), given.b_scale.size(), given.a.size(),
                                 given.scales.any() ? "some" : "none"));
  }
  const auto check = [](const char* what, std::size_t pair, const std::optional<Matrix>& of,
                        const std::optional<Matrix>& scales, const ScaleForm& form) {
    const ScaleBlocks blocks = of ? form.over(of->rows, of->columns) : ScaleBlocks{};
    if (of.has_value() != scales.has_value() ||
        (of && (scales->rows != blocks.down || scales->columns != blocks.across))) {
      throw UsageError(fmt::format("{} {} has {} x {} scales, not {} x {}", what, pair,
                                   scales ? scales->rows : 0, scales ? scales->columns : 0,
                                   blocks.down, blocks.across));
    }
  };
  for (std::size_t pair = 0; pair < wanted; ++pair) {
    check("A", pair, given.a[pair], given.a_scale[pair], given.scales);
    check("B", pair, given.b[pair], given.b_scale[pair], given.scales);
  }
}

Matrix scales_of_rows(const Matrix& scales, const ScaleForm& form, const Matrix& b,
                      IndexRange rows) {
  if (form.scale == WeightsScale::kBlock && block_that_fits(form.rows, {rows}) != form.rows) {
    throw UsageError(fmt::format(
        "outputs {} to {} of a B for several outputs begin inside a block of {} with one scale",
        rows.first, rows.first + rows.count - 1, form.rows));
  }
  return cut_scales(
      scales,
      {form.over(b.rows, b.columns), form.over(rows.count, b.columns), {rows}, {{0, b.columns}}});
}

}  // namespace lora_bench
