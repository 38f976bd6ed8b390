#include "verify/random_case.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "layers/layer_problem.h"
#include "ops/auto_choice.h"
#include "scenario/scenario.h"
#include "verify/random_parts.h"

namespace lora_bench {
namespace {

constexpr std::size_t kManySlices = 12;

// How much wider things are stored than they are: kept while the sizes change.
struct Slack {
  std::int64_t x = 0, y = 0, rank = 0;
};

Slack slack_of(const Case& spec) {
  const std::int64_t rank = std::max<std::int64_t>(1, largest_rank(spec.adapters.rank));
  return {spec.layer.x_stride - extent_of_x(spec.layer),
          spec.layer.y_stride - columns_of(spec.layer),
          std::max<std::int64_t>(0, spec.adapters.max_rank - rank)};
}

// Sizes that the shards of a layer divide.
void settle_sizes(Case& spec) {
  const LayerSetup& setup = spec.setup;
  const LayerDescription& kind = description_of(setup.kind);
  std::vector<std::int64_t>& widths = spec.layer.widths;
  if (kind.heads && widths.size() == 3 && setup.kv_heads > 0) {
    widths[1] = rounded_up(widths[1], setup.kv_heads);
    widths[2] = rounded_up(widths[2], setup.kv_heads);
    const std::int64_t head = std::max<std::int64_t>(widths[1] / setup.kv_heads, 1);
    widths[0] = rounded_up(widths[0], head * setup.tp);
  } else if (!kind.vocabulary && kind.base != Cut::kNone) {
    for (std::int64_t& width : widths) {
      width = rounded_up(width, setup.tp);
    }
  }
  if (kind.base == Cut::kInputs && !kind.vocabulary) {
    spec.layer.in_features = rounded_up(spec.layer.in_features, setup.tp);
  }
  if (setup.fully_sharded) {
    spec.adapters.max_rank = rounded_up(spec.adapters.max_rank, setup.tp);
  }
}

// What only some layers have.
void settle_setup(Case& spec) {
  LayerSetup& setup = spec.setup;
  const LayerDescription& kind = description_of(setup.kind);
  const std::vector<std::int64_t>& widths = spec.layer.widths;
  const auto blocks = static_cast<std::int64_t>(widths.size());
  setup.fully_sharded = setup.fully_sharded && kind.full.has_value();
  setup.skip_bias = setup.skip_bias && setup.bias;
  if (!kind.heads) {
    setup.kv_heads = blocks > 1 ? widths[1] / 128 : 0;
    setup.v_head_size = 0;
  } else if (setup.v_head_size > 0 && blocks == 3 && setup.kv_heads > 0) {
    setup.v_head_size = widths[2] / setup.kv_heads;
  }
  if (kind.joint || blocks < 2) {
    setup.missing_slices = false;
    setup.missing.clear();
  }
  if (std::accumulate(setup.packed.begin(), setup.packed.end(), std::int64_t{0}) != blocks) {
    setup.packed.clear();
  }
  setup.missing.resize(
      std::min(setup.missing.size(), static_cast<std::size_t>(spec.adapters.slots)));
  for (std::vector<std::int64_t>& list : setup.missing) {
    std::erase_if(list, [&](std::int64_t block) { return block >= blocks; });
  }
}

// What a change of one thing asks of the others, so that the case is one a scenario may hold.
void settle(Case& spec, const Slack& slack) {
  AdapterSpec& adapters = spec.adapters;
  const auto slots = static_cast<std::size_t>(adapters.slots);
  adapters.rank.list.resize(std::min(adapters.rank.list.size(), slots));
  adapters.scale.resize(std::min(adapters.scale.size(), slots));
  adapters.bias = adapters.bias && has_expand(spec.op);
  adapters.rank0_bias = adapters.rank0_bias && adapters.bias;
  std::erase_if(adapters.bias_slices, [&](std::int64_t slice) {
    return !adapters.bias || slice >= std::ssize(spec.layer.widths);
  });
  adapters.max_rank = std::max<std::int64_t>(1, largest_rank(adapters.rank)) + slack.rank;
  for (SkewLaw* law : {&spec.skew, &spec.prefill_skew}) {
    if (law->kind == Skew::kOneVsRest && adapters.slots < 2) {
      law->kind = Skew::kDistinct;
    }
  }
  const auto sequences = spec.batch.decode + static_cast<std::int64_t>(spec.batch.prefill.size());
  adapters.active = std::min({adapters.active, adapters.slots, sequences});
  if (spec.no_adapter > 0 || !reaches_all_slots(spec.skew) ||
      !reaches_all_slots(spec.prefill_skew)) {
    adapters.active = 0;
  }
  spec.plan.max_slots = std::min(spec.plan.max_slots, adapters.slots);
  settle_eight_bits(spec);
  if (spec.intermediate != Dtype::kFp32 && !is_eight_bits(spec.intermediate)) {
    spec.intermediate = spec.dtype;
  }
  if (has_base(spec.op)) {
    settle_sizes(spec);
    settle_setup(spec);
  }
  if (!has_shrink(spec.op)) {
    spec.inputs = Inputs::kShared;
  }
  spec.shrink_adds = spec.shrink_adds && spec.op == Op::kShrink;
  if (spec.add_inputs || !has_expand(spec.op)) {
    spec.idle_rows = IdleRows::kKept;
  }
  if (spec.adapters.b_stride < spec.adapters.max_rank) {
    spec.adapters.b_stride = 0;
  }
  if (spec.layer.h_stride < std::ssize(spec.layer.widths) * spec.adapters.max_rank) {
    spec.layer.h_stride = 0;
  }
  if (spec.adapters.a_stride < spec.layer.in_features) {
    spec.adapters.a_stride = 0;
  }
  spec.layer.x_stride = extent_of_x(spec.layer) + slack.x;
  spec.layer.y_stride = columns_of(spec.layer) + slack.y;
}

// Smaller cases of one kind, the boldest first.
class Smaller {
 public:
  explicit Smaller(const Case& spec) : spec_(spec) {}

  template <typename Change>
  Smaller& with(const Change& change) {
    Case next = spec_;
    change(next);
    settle(next, slack_of(spec_));
    add(std::move(next));
    return *this;
  }
  Smaller& with_slack(const Slack& slack) {
    Case next = spec_;
    settle(next, slack);
    add(std::move(next));
    return *this;
  }
  // `least`, half, one less: `put` stores the value in the case it is given.
  template <typename Put>
  Smaller& number(std::int64_t value, std::int64_t least, const Put& put) {
    for (const std::int64_t smaller : {least, least + (value - least) / 2, value - 1}) {
      if (smaller >= least && smaller < value) {
        with([&](Case& next) { put(next, smaller); });
      }
    }
    return *this;
  }
  [[nodiscard]] std::vector<Case> take() { return std::move(cases_); }

 private:
  // A layer may have a size that cannot be divided, or a field that only another kind has.
  void add(Case next) {
    if (!layer_fault(next)) {
      cases_.push_back(std::move(next));
    }
  }

  const Case& spec_;
  std::vector<Case> cases_;
};

std::vector<Case> fewer_sequences(const Case& spec) {
  Smaller smaller(spec);
  const std::vector<std::int64_t>& prefill = spec.batch.prefill;
  if (!prefill.empty()) {
    smaller.with([](Case& next) { next.batch.prefill.clear(); });
    for (const std::int64_t more : {std::int64_t{1}, std::ssize(prefill)}) {
      smaller.with(
          [more](Case& next) { next.batch = {.decode = next.batch.decode + more, .prefill = {}}; });
    }
    smaller.with([](Case& next) { next.batch.prefill.resize(1); });
    for (std::size_t i = 0; i < prefill.size(); ++i) {
      smaller.with([i](Case& next) {
        next.batch.prefill.erase(next.batch.prefill.begin() + static_cast<std::ptrdiff_t>(i));
      });
    }
  }
  smaller.number(spec.batch.decode, 0,
                 [](Case& next, std::int64_t value) { next.batch.decode = value; });
  if (spec.batch.decode > 1) {
    smaller.with([](Case& next) { next.batch.decode = 1; });
  }
  for (std::size_t i = 0; i < prefill.size(); ++i) {
    smaller.number(prefill[i], 1,
                   [i](Case& next, std::int64_t value) { next.batch.prefill[i] = value; });
  }
  return smaller.take();
}

std::vector<Case> fewer_slots(const Case& spec) {
  return Smaller(spec)
      .number(spec.adapters.slots, 1,
              [](Case& next, std::int64_t value) { next.adapters.slots = value; })
      .take();
}

std::vector<Case> fewer_columns(const Case& spec) {
  Smaller smaller(spec);
  const std::vector<std::int64_t>& widths = spec.layer.widths;
  if (widths.size() > 3) {  // the first half, the second half
    const auto half = static_cast<std::ptrdiff_t>(widths.size() / 2);
    smaller.with([half](Case& next) { next.layer.widths.resize(static_cast<std::size_t>(half)); });
    smaller.with([half](Case& next) {
      next.layer.widths.erase(next.layer.widths.begin(), next.layer.widths.begin() + half);
    });
  }
  if (widths.size() > kManySlices) {  // one by one would take as many tries as there are slices
    const auto eighth = static_cast<std::ptrdiff_t>(widths.size() / 8);
    for (std::ptrdiff_t first = 0; first + eighth <= std::ssize(widths); first += eighth) {
      smaller.with([first, eighth](Case& next) {
        const auto begin = next.layer.widths.begin() + first;
        next.layer.widths.erase(begin, begin + eighth);
      });
    }
    smaller.with([](Case& next) {  // all as one
      next.layer.widths = {
          std::accumulate(next.layer.widths.begin(), next.layer.widths.end(), std::int64_t{0})};
    });
    return smaller.take();
  }
  for (std::size_t i = 0; widths.size() > 1 && i < widths.size(); ++i) {
    smaller.with([i](Case& next) { next.layer.widths = {next.layer.widths[i]}; });
  }
  for (std::size_t i = 0; widths.size() > 1 && i < widths.size(); ++i) {
    smaller.with([i](Case& next) {
      next.layer.widths.erase(next.layer.widths.begin() + static_cast<std::ptrdiff_t>(i));
    });
  }
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    smaller.with([i](Case& next) {  // two as one, where a fault needs the columns
      std::vector<std::int64_t>& left = next.layer.widths;
      left[i] += left[i + 1];
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(i + 1));
    });
  }
  for (std::size_t i = 0; i < widths.size(); ++i) {
    smaller.number(widths[i], 1,
                   [i](Case& next, std::int64_t value) { next.layer.widths[i] = value; });
  }
  // Widths that only fail while they are alike.
  if (!widths.empty() && std::count(widths.begin(), widths.end(), widths[0]) > 1) {
    smaller.number(widths[0], 1, [](Case& next, std::int64_t value) {
      std::replace(next.layer.widths.begin(), next.layer.widths.end(),
                   std::int64_t{next.layer.widths[0]}, value);
    });
  }
  return smaller.take();
}

std::vector<Case> fewer_features(const Case& spec) {
  return Smaller(spec)
      .number(spec.layer.in_features, 1,
              [](Case& next, std::int64_t value) { next.layer.in_features = value; })
      .take();
}

std::vector<Case> lower_ranks(const Case& spec) {
  Smaller smaller(spec);
  const RankLaw& law = spec.adapters.rank;
  for (const auto& [rank, share] : law.shares) {
    smaller.with([of_all = rank](Case& next) { next.adapters.rank = {{of_all}, {}}; });
  }
  for (std::size_t i = 0; law.list.size() > 1 && i < law.list.size(); ++i) {
    smaller.with([i](Case& next) { next.adapters.rank.list = {next.adapters.rank.list[i]}; });
  }
  for (std::size_t i = 0; i < law.list.size(); ++i) {
    smaller.number(law.list[i], 1,
                   [i](Case& next, std::int64_t value) { next.adapters.rank.list[i] = value; });
  }
  return smaller.take();
}

std::vector<Case> tighter_storage(const Case& spec) {
  Smaller smaller(spec);
  smaller.with_slack({}).number(spec.layer.offset_start, 0, [](Case& next, std::int64_t value) {
    next.layer.offset_start = value;
  });
  const Slack slack = slack_of(spec);
  for (const auto part : {&Slack::x, &Slack::y, &Slack::rank}) {
    for (const std::int64_t less : {std::int64_t{0}, slack.*part / 2, slack.*part - 1}) {
      if (less >= 0) {
        Slack tighter = slack;
        tighter.*part = less;
        smaller.with_slack(tighter);
      }
    }
  }
  return smaller.take();
}

std::vector<Case> plainer_batch(const Case& spec) {
  Smaller smaller(spec);
  for (const Skew kind : {Skew::kIdentical, Skew::kDistinct}) {
    // Never from distinct to identical and back.
    if (spec.skew.kind != Skew::kIdentical || spec.prefill_skew.kind != Skew::kIdentical) {
      smaller.with([kind](Case& next) {
        next.skew = {.kind = kind, .parameter = 0, .trace_file = {}, .trace = {}};
        next.prefill_skew = next.skew;
      });
    }
  }
  return smaller.with([](Case& next) { next.prefill_skew = next.skew; })
      .with([](Case& next) { next.no_adapter = 0; })
      .with([](Case& next) { next.plan = {}; })
      .with([](Case& next) { next.plan.max_tokens = 0; })
      .with([](Case& next) { next.plan.idle_segments = false; })
      .with([](Case& next) { next.adapters.padding = Padding::kUnread; })
      .with([](Case& next) { next.plan.largest_chunk = PlanSpec{}.largest_chunk; })
      .with([](Case& next) { next.adapters.active = 0; })
      .with([](Case& next) { next.order = Order::kAsArrived; })
      .with([](Case& next) { next.seed = 1; })
      .take();
}

std::vector<Case> plainer_op(const Case& spec) {
  Smaller smaller(spec);
  smaller.with([](Case& next) { next.adapters.bias = false; })
      .with([](Case& next) { next.adapters.dtype.reset(); })
      .with([](Case& next) { next.activations = {}; })
      .with([](Case& next) { next.activations.scale = ActivationsScale::kTensor; })
      .with([](Case& next) { next.weights = {}; })
      .with([](Case& next) { next.weights.scale = WeightsScale::kTensor; })
      .with([](Case& next) { next.adapters.bias_slices.clear(); })
      .with([](Case& next) { next.adapters.rank0_bias = false; })
      .with([](Case& next) { next.adapters.scale = {1.0}; })
      .with([](Case& next) { next.adapters.scale.resize(1); })
      .with([](Case& next) { next.idle_rows = IdleRows::kKept; })
      .with([](Case& next) { next.inputs = Inputs::kShared; })
      .with([](Case& next) { next.shrink_adds = false; })
      .with([](Case& next) { next.adapters.placing = Placing::kSeparate; })
      .with([](Case& next) { next.adapters.a_stride = next.adapters.b_stride = 0; })
      .with([](Case& next) { next.layer.h_stride = 0; })
      .with([](Case& next) { next.layer.x_column_stride = 1; })
      .with([](Case& next) { next.add_inputs = true; })
      .with([](Case& next) { next.intermediate = Dtype::kFp32; })
      .with([](Case& next) { next.quantiser = {}; })
      .with([](Case& next) { next.dtype = Dtype::kBf16; });
  if (spec.op != Op::kEmbedding && spec.setup.kind != LayerKind::kVocabEmbedding) {
    smaller.with([](Case& next) { next.scale_at = ScaleAt::kShrink; });
  }
  if (spec.op == Op::kLogits) {
    smaller.with([](Case& next) { next.op = Op::kLinear; });
  }
  if (spec.op == Op::kLinear) {
    for (const Op half : {Op::kShrink, Op::kExpand}) {
      smaller.with([half](Case& next) {
        next.op = half;
        next.tuning = tuning_of_op(next.tuning, half);
      });
    }
  }
  return smaller.take();
}

std::vector<Case> plainer_layer(const Case& spec) {
  Smaller smaller(spec);
  if (!has_base(spec.op)) {
    return smaller.take();
  }
  smaller
      .with([](Case& next) {  // the adapters' part alone
        next.op = Op::kLinear;
        next.setup = {};
      })
      .with([](Case& next) { next.setup.fully_sharded = false; })
      .with([](Case& next) { next.setup.bias = false; })
      .with([](Case& next) { next.setup.skip_bias = false; })
      .with([](Case& next) { next.setup.missing_slices = false; })
      .with([](Case& next) { next.setup.missing.clear(); })
      .with([](Case& next) { next.setup.packed.clear(); })
      .with([](Case& next) { next.setup.gather_output = false; })
      .with([](Case& next) { next.setup.reduce_results = true; })
      .with([](Case& next) { next.setup.input_split = false; })
      .with([](Case& next) { next.setup.gather_to = GatherTo::kAll; })
      .with([](Case& next) { next.setup.soft_cap = 0; })
      .with([](Case& next) { next.setup.logit_scale = 1; })
      .with([](Case& next) { next.setup.padding = LayerSetup{}.padding; })
      .with([](Case& next) { next.setup.overlap = Overlap::kAuto; });
  smaller.number(spec.setup.tp, 1, [](Case& next, std::int64_t tp) { next.setup.tp = tp; });
  smaller.number(spec.setup.extra_vocabulary, 0,
                 [](Case& next, std::int64_t rows) { next.setup.extra_vocabulary = rows; });
  if (spec.setup.v_head_size > 0) {
    smaller.with([](Case& next) { next.setup.v_head_size = 0; });
  }
  return smaller.take();
}

using Kind = std::vector<Case> (*)(const Case&);
constexpr Kind kKinds[] = {fewer_sequences, plainer_layer, fewer_columns,
                           fewer_slots,     plainer_op,    lower_ranks,
                           fewer_features,  plainer_batch, tighter_storage};

}  // namespace

Shrunk shrink_case(const Case& spec, const std::function<bool(const Case&)>& fails,
                   const std::function<bool()>& stop) {
  Shrunk best{spec, 0, 0};
  std::set<std::string> tried{scenario_text(spec)};
  const auto step = [&](Kind kind) {
    for (const Case& smaller : kind(best.spec)) {
      if (stop()) {
        return false;
      }
      if (!tried.insert(scenario_text(smaller)).second) {
        continue;
      }
      ++best.tries;
      if (fails(smaller)) {
        best.spec = smaller;
        ++best.steps;
        return true;
      }
    }
    return false;
  };
  for (std::int64_t before = -1; before != best.steps;) {
    before = best.steps;
    for (const Kind kind : kKinds) {
      while (step(kind)) {
      }
    }
  }
  return best;
}

}  // namespace lora_bench
