#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "core/dtype.h"
#include "verify/layer_bases.h"
#include "verify/layer_faults.h"

namespace lora_bench {
namespace {

// h of one shard: [slice][row * lanes + lane].
using Hidden = std::vector<std::vector<double>>;

// The whole: what the adapters add to the bases, and what the shards end with.
class Model {
 public:
  Model(const LayerStory& story, LayerFault fault, const std::vector<std::int64_t>& tokens)
      : problem_(story.problem),
        layer_(problem_.layer),
        description_(description_of(layer_.kind)),
        fault_(fault),
        tokens_(tokens),
        bases_(story, fault, tokens),
        sharding_(layer_.fully_sharded ? *description_.full : description_.plain) {
    adapters_ = held_adapters(story, fault);
    for (std::int64_t rank = 0; rank < layer_.tp; ++rank) {
      shards_.push_back(shard_of(layer_, rank));
    }
  }

  ShardRows run() {
    if (description_.lora_after_exchange) {
      return run_vocabulary();
    }
    std::vector<Hidden> parts;
    for (std::int64_t rank = 0; rank < layer_.tp; ++rank) {
      parts.push_back(shrink(rank));
    }
    ShardRows terms;
    for (std::int64_t rank = 0; rank < layer_.tp; ++rank) {
      terms.push_back(bases_.base(rank));
      add_delta(rank, exchanged(parts, rank), terms.back());
    }
    return exchanged(terms);
  }

 private:
  [[nodiscard]] bool is(LayerFault fault) const { return fault_ == fault; }

  [[nodiscard]] const HeldAdapter* adapter_of_row(std::size_t row) const {
    std::int32_t id = problem_.lora.plan.adapter_of_token[nth(tokens_[row])];
    if (id < 0 && is(LayerFault::kNoneRowsTakeFirst)) {
      id = 0;
    }
    if (id < 0 || adapters_[nth(id)].rank == 0) {
      return nullptr;
    }
    const HeldAdapter& adapter = adapters_[nth(id)];
    const bool divided = sharding_.a == Cut::kRank;
    const std::int64_t lanes_each = problem_.lora.max_rank / layer_.tp;
    const bool is_short = divided && adapter.rank <= (layer_.tp - 1) * lanes_each;
    return is(LayerFault::kShortAdapterLost) && is_short ? nullptr : &adapter;
  }

  [[nodiscard]] Hidden shrink(std::int64_t rank) const {
    const Shard shard = bases_.shard_at(rank);
    const std::int64_t first_of_a =
        is(LayerFault::kInputsOfFirstShard) && sharding_.a == Cut::kInputs ? 0
                                                                           : shard.a_inputs.first;
    Hidden h(problem_.lora.widths.size(),
             std::vector<double>(tokens_.size() * nth(shard.lanes.count)));
    for (std::size_t row = 0; row < tokens_.size(); ++row) {
      const HeldAdapter* const adapter = adapter_of_row(row);
      const std::vector<double> x_row = bases_.x_of_adapters(row, shard.a_inputs);
      for (std::size_t slice = 0; adapter != nullptr && slice < h.size(); ++slice) {
        for (std::int64_t lane = 0; adapter->weights.a[slice] && lane < shard.lanes.count; ++lane) {
          const std::int64_t of_a = lane_of_a(*adapter, shard, rank, lane);
          double sum = 0;
          for (std::int64_t k = 0; of_a >= 0 && k < shard.a_inputs.count; ++k) {
            const std::int64_t input = first_of_a + input_of_a(k);
            sum += x_row[nth(k)] * number(*adapter->weights.a[slice], of_a, input) *
                   scale_of_a(*adapter, slice, rank, of_a, input);
          }
          h[slice][row * nth(shard.lanes.count) + nth(lane)] = adapter->scale * sum;
        }
      }
    }
    return h;
  }

  // The shard whose scales a shard has.
  [[nodiscard]] std::int64_t shard_of_scales(std::int64_t rank) const {
    return is(LayerFault::kWeightScalesOfFirstShard)  ? 0
           : is(LayerFault::kWeightScalesOfNextShard) ? (rank + 1) % layer_.tp
                                                      : rank;
  }

  // What a number of A or B is times, of a matrix that has so many; 1 where it has no scales.
  [[nodiscard]] double scale_at(const ScaleForm& form, const std::optional<Matrix>& scales,
                                const Matrix& of, std::int64_t row, std::int64_t column) const {
    if (!scales || scales->data.empty() || is(LayerFault::kWeightScalesForgotten)) {
      return 1;
    }
    const ScaleBlocks blocks = form.over(of.rows, of.columns);
    return number(*scales, row / blocks.rows % scales->rows,
                  column / blocks.columns % scales->columns);
  }

  [[nodiscard]] double scale_of_a(const HeldAdapter& adapter, std::size_t slice, std::int64_t rank,
                                  std::int64_t lane, std::int64_t input) const {
    const AdapterWeights& weights = adapter.weights;
    if (!weights.scales.any()) {
      return 1;
    }
    const Shard& own = shards_[nth(rank)];
    const Shard& other = shards_[nth(shard_of_scales(rank))];
    return scale_at(weights.scales, weights.a_scale[slice], *weights.a[slice],
                    lane + other.lanes.first - own.lanes.first,
                    input + other.a_inputs.first - own.a_inputs.first);
  }

  // A row of B of a pair, and the row whose scales it has.
  struct RowOfB {
    std::size_t pair = 0;
    std::int64_t row = 0, of_scales = 0;
  };
  // With the row of h that a shard has.
  [[nodiscard]] double product(const HeldAdapter& adapter, const RowOfB& of,
                               const double* h) const {
    const AdapterWeights& weights = adapter.weights;
    const Matrix& b = *weights.b[of.pair];
    double sum = 0;
    for (std::int64_t lane = 0; lane < std::min(b.columns, adapter.rank); ++lane) {
      const double scale = weights.scales.any() ? scale_at(weights.scales, weights.b_scale[of.pair],
                                                           b, of.of_scales, lane)
                                                : 1;
      sum += h[lane] * number(b, of.row % b.rows, lane) * scale;
    }
    return sum;
  }

  [[nodiscard]] std::int64_t input_of_a(std::int64_t k) const {
    return description_.looks_up && is(LayerFault::kLanesByIdInShard)
               ? k % shard_of(layer_, 0).inputs.count
               : k;
  }

  // Of A, which lane a shard has at this place; -1 = none.
  [[nodiscard]] std::int64_t lane_of_a(const HeldAdapter& adapter, const Shard& shard,
                                       std::int64_t rank, std::int64_t lane) const {
    if (is(LayerFault::kLanesOfOwnRank) && sharding_.a == Cut::kRank) {
      const std::int64_t each = (adapter.rank + layer_.tp - 1) / layer_.tp;
      const std::int64_t of_a = rank * each + lane;
      return lane < each && of_a < adapter.rank ? of_a : -1;
    }
    const std::int64_t of_a = shard.lanes.first + lane;
    return of_a < adapter.rank ? of_a : -1;
  }

  // h of all lanes, as a shard has it after the exchange.
  [[nodiscard]] Hidden exchanged(const std::vector<Hidden>& parts, std::int64_t rank) const {
    const Hidden& own = parts[nth(rank)];
    if (sharding_.h == Exchange::kNone) {
      return own;
    }
    Hidden whole(own.size(), std::vector<double>(tokens_.size() * nth(problem_.lora.max_rank)));
    for (std::size_t slice = 0; slice < own.size(); ++slice) {
      for (std::int64_t from = 0; from < layer_.tp; ++from) {
        const bool gathered = sharding_.h == Exchange::kGather;
        const bool lost = from != rank && is(gathered ? LayerFault::kLanesNotGathered
                                                      : LayerFault::kLanesNotSummed);
        const std::int64_t place =
            is(LayerFault::kLanesGatheredBackwards) ? layer_.tp - 1 - from : from;
        const std::vector<double>& part = parts[nth(from)][slice];
        const std::size_t lanes = part.size() / tokens_.size();
        for (std::size_t i = 0; !lost && i < part.size(); ++i) {
          const std::size_t lane = i % lanes + (gathered ? nth(place) * lanes : 0);
          whole[slice][i / lanes * nth(problem_.lora.max_rank) + lane] += part[i];
        }
      }
    }
    return whole;
  }

  void add_delta(std::int64_t rank, const Hidden& h, std::vector<double>& y) const {
    if (is(LayerFault::kDeltaLost)) {
      return;
    }
    const Shard shard = bases_.shard_at(rank);
    const std::size_t columns = y.size() / tokens_.size();
    const std::size_t lanes = nth(problem_.lora.max_rank);
    std::int64_t column = shard.b_column;
    std::int64_t block_start = 0;
    std::int64_t first_column_of_last = column;
    for (std::size_t block = 0; block < shard.b_rows.size(); ++block) {
      const IndexRange rows = shard.b_rows[block];
      const std::size_t slice = description_.joint ? 0 : block;
      const bool again =
          is(LayerFault::kEmptyBlockDoublesNeighbour) && rows.count == 0 && block > 0;
      const std::int64_t count = again ? shard.b_rows[block - 1].count : rows.count;
      const std::int64_t first = again ? first_column_of_last : column;
      const std::int64_t start =
          again ? block_start - layer_.widths[block - 1] + shard.b_rows[block - 1].first
                : block_start + rows.first;
      const bool lost =
          is(LayerFault::kLastBlockLost) && block > 0 && block + 1 == shard.b_rows.size();
      for (std::size_t row = 0; !lost && row < tokens_.size(); ++row) {
        const HeldAdapter* const adapter = adapter_of_row(row);
        const std::size_t of_pair = again && !description_.joint ? block - 1 : slice;
        if (adapter == nullptr || !adapter->weights.b[of_pair]) {
          continue;
        }
        const Matrix& b = *adapter->weights.b[of_pair];
        const std::int64_t room = static_cast<std::int64_t>(columns) - first;
        for (std::int64_t i = 0; i < std::min(count, room) && b.rows > 0; ++i) {
          std::int64_t of_b = description_.joint ? start + i : start - block_start + i;
          if (again && !description_.joint) {
            of_b = shard.b_rows[block - 1].first + i;
          }
          if (is(LayerFault::kJointRowsUncut) && description_.joint &&
              sharding_.b == Cut::kOutputs) {
            of_b = rank * problem_.columns() / layer_.tp + first - shard.b_column + i;
          }
          RowOfB of_lane{of_pair, of_b, row_of_scales(rank, block, of_b, first + i)};
          if (is(LayerFault::kPackedRowsUncut) && !problem_.packed.empty()) {
            of_lane = uncut_row(rank, block, i);
          }
          const double sum = bias_of(rank, *adapter, of_pair, of_lane.row,
                                     description_.joint ? first + i - shard.b_column : i) +
                             product(*adapter, of_lane, h[of_pair].data() + row * lanes);
          double& to = y[row * columns + nth(first + i)];
          to = sum + (is(LayerFault::kDeltaInsteadOfBase) ? 0 : to);
        }
      }
      first_column_of_last = column;
      column += rows.count;
      block_start += layer_.widths[block];
    }
  }

  // Of a row of B of a block, at a column of a shard's y, the one whose scales it has.
  [[nodiscard]] std::int64_t row_of_scales(std::int64_t rank, std::size_t block, std::int64_t of_b,
                                           std::int64_t column) const {
    const Shard& own = shards_[nth(rank)];
    if (is(LayerFault::kJointScalesUncut) && description_.joint && sharding_.b == Cut::kOutputs) {
      return rank * problem_.columns() / layer_.tp + column - own.b_column;
    }
    const Shard& other = shards_[nth(shard_of_scales(rank))];
    return of_b + other.b_rows[block].first - own.b_rows[block].first;
  }

  // Of the rows of all blocks that a pair covers, the one at a shard's place where they are divided
  // as those of one output.
  [[nodiscard]] RowOfB uncut_row(std::int64_t rank, std::size_t block, std::int64_t row) const {
    const std::int64_t own = row;
    const std::size_t first = problem_.first_of_pair(block);
    std::int64_t rows = 0;
    for (std::size_t of = first; of < layer_.widths.size() && problem_.first_of_pair(of) == first;
         ++of) {
      rows += layer_.widths[of];
      row += of < block ? layer_.widths[of] / layer_.tp : 0;
    }
    row += rank * rows / layer_.tp;
    for (std::size_t of = first; of < layer_.widths.size(); ++of) {
      if (row < layer_.widths[of]) {
        return {of, row, row};
      }
      row -= layer_.widths[of];
    }
    return {block, own, own};
  }

  // Of an output of a pair, which is number `of_shard` of those that the shard has of it.
  [[nodiscard]] double bias_of(std::int64_t rank, const HeldAdapter& adapter, std::size_t pair,
                               std::int64_t output, std::int64_t of_shard) const {
    if (adapter.weights.bias.empty() || !adapter.weights.bias[pair] ||
        is(LayerFault::kAdapterBiasForgotten)) {
      return 0;
    }
    const bool whole_terms = description_.y == Exchange::kReduce && sharding_.b == Cut::kNone &&
                             !description_.lora_after_exchange;
    if (whole_terms && rank > 0 && !is(LayerFault::kAdapterBiasInEveryTerm)) {
      return 0;
    }
    const Matrix& bias = *adapter.weights.bias[pair];
    const bool uncut = is(LayerFault::kAdapterBiasUncut) && sharding_.b == Cut::kOutputs;
    return number(bias, 0, (uncut ? of_shard : output) % bias.columns);
  }

  // Of a vocabulary: y is exchanged first and belongs to every shard, then the adapters add to it.
  ShardRows run_vocabulary() {
    ShardRows terms;
    for (std::int64_t rank = 0; rank < layer_.tp; ++rank) {
      terms.push_back(bases_.base(rank));
    }
    const bool logits = description_.y == Exchange::kGather;
    ShardRows whole = logits ? terms : exchanged(terms);
    for (std::int64_t rank = 0; rank < layer_.tp; ++rank) {
      std::vector<double>& y = whole[nth(rank)];
      if (!ends_at(layer_, rank)) {
        y.clear();
        continue;
      }
      if (logits) {
        y = gathered_logits(layer_, received(terms, rank), tokens_.size(), fault_);
      }
      const Hidden h = shrink(rank);
      if (logits && is(LayerFault::kDeltaNotReordered)) {
        add_delta(rank, h, y);
        y = logits_in_order(layer_, y, fault_);
      } else {
        y = logits ? logits_in_order(layer_, y, fault_) : y;
        add_delta(rank, h, y);
      }
      for (double& logit : y) {
        const double cap = is(LayerFault::kCapForgotten) ? 0 : problem_.soft_cap;
        logit = cap > 0 ? cap * std::tanh(logit / cap) : logit;
        logit *= is(LayerFault::kLogitScaleForgotten) ? 1 : problem_.logit_scale;
      }
    }
    return whole;
  }

  [[nodiscard]] ShardRows exchanged(const ShardRows& terms) const {
    const bool sums = !keeps_terms(layer_) || is(LayerFault::kKeptTermsSummed);
    if (description_.y == Exchange::kReduce && sums && !is(LayerFault::kTermsNotSummed)) {
      std::vector<double> sum(terms[0].size());
      const std::size_t added = terms.size() - (is(LayerFault::kTermLost) ? 1 : 0);
      for (std::size_t rank = 0; rank < added; ++rank) {
        for (std::size_t i = 0; i < sum.size(); ++i) {
          sum[i] += terms[rank][i];
        }
      }
      return ShardRows(terms.size(), sum);
    }
    if (!layer_.gather_output || !description_.may_gather) {
      return terms;
    }
    ShardRows whole;
    for (std::int64_t rank = 0; rank < layer_.tp; ++rank) {
      whole.push_back(gathered(received(terms, rank)));
    }
    return whole;
  }

  // What a shard that gathers has got of each.
  [[nodiscard]] ShardRows received(ShardRows terms, std::int64_t rank) const {
    for (std::size_t from = 0; from < terms.size() && is(LayerFault::kColumnsNotGathered); ++from) {
      if (from != nth(rank)) {
        terms[from].assign(terms[from].size(), 0);
      }
    }
    return terms;
  }

  // One output after the other, of the shards in turn that have different columns of it.
  [[nodiscard]] std::vector<double> gathered(const ShardRows& terms) const {
    struct Column {
      std::size_t shard = 0, place = 0;
    };
    std::vector<std::vector<Column>> of_block(layer_.widths.size());
    std::vector<Column> shard_by_shard;
    for (std::int64_t turn = 0; turn < layer_.tp; ++turn) {
      const std::int64_t rank =
          is(LayerFault::kColumnsGatheredBackwards) ? layer_.tp - 1 - turn : turn;
      std::size_t place = 0;
      for (std::size_t block = 0; block < of_block.size(); ++block) {
        const std::int64_t count = bases_.shard_at(rank).outputs[block].count;
        const bool again = description_.heads && block > 0 && layer_.tp > layer_.kv_heads &&
                           rank % (layer_.tp / layer_.kv_heads) != 0;
        for (std::int64_t i = 0; i < count; ++i, ++place) {
          shard_by_shard.push_back({nth(rank), place});
          if (!again || is(LayerFault::kSharedHeadsGatheredTwice)) {
            of_block[block].push_back({nth(rank), place});
          }
        }
      }
    }
    std::vector<Column> columns;
    for (const std::vector<Column>& block : of_block) {
      columns.insert(columns.end(), block.begin(), block.end());
    }
    columns = is(LayerFault::kColumnsShardByShard) ? shard_by_shard : columns;
    columns.resize(nth(problem_.columns()));
    std::vector<double> whole;
    for (std::size_t row = 0; row < tokens_.size(); ++row) {
      for (const Column& column : columns) {
        const std::vector<double>& term = terms[column.shard];
        whole.push_back(term[row * (term.size() / tokens_.size()) + column.place]);
      }
    }
    return whole;
  }

  const LayerProblem& problem_;
  const ShardedLayer& layer_;
  const LayerDescription& description_;
  LayerFault fault_;
  const std::vector<std::int64_t>& tokens_;
  Bases bases_;
  LoraSharding sharding_;
  std::vector<HeldAdapter> adapters_;
  std::vector<Shard> shards_;  // as they are without a fault
};

}  // namespace

ShardRows model_layer(const LayerStory& story, LayerFault fault,
                      const std::vector<std::int64_t>& tokens) {
  return Model(story, fault, tokens).run();
}

}  // namespace lora_bench
