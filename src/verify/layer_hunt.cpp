#include "verify/mutant_hunt.h"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "ops/backends.h"
#include "verify/layer_proof.h"

namespace lora_bench {
namespace {

// One layer with everything that a proof of it needs.
struct Prepared {
  explicit Prepared(const LayerProblem& of)
      : problem(of),
        tensors(draw_layer_tensors(problem, Fill::kBounded, kSeed)),
        before(draw_earlier_tensors(problem, Fill::kBounded, kSeed)),
        oracle(layer_oracle(
            problem, tensors,
            layer_arithmetic(problem, *make_cpu_backend({1, ""}), *make_cpu_backend({1, ""})),
            sample_rows(problem.lora, 256, kSeed))) {}

  [[nodiscard]] LayerStory story() const { return {problem, tensors, before}; }

  static constexpr std::uint64_t kSeed = 1;
  const LayerProblem& problem;
  LayerTensors tensors, before;
  reference::LayerRows oracle;
};

ShardedLayer small_layer(const LayerDescription& description, std::int64_t tp, bool fully_sharded) {
  ShardedLayer layer{.kind = description.kind,
                     .in_features = 96,
                     .widths = {40},
                     .kv_heads = 2,
                     .max_rank = 16,
                     .tp = tp,
                     .fully_sharded = fully_sharded};
  if (description.heads) {
    layer.widths = {64, 8, 8};
  } else if (description.kind == LayerKind::kMergedColumnVariable) {
    layer.widths = {16, 24, 0, 8};
  } else if (description.vocabulary) {
    layer.padding_unit = 8;
    layer.widths =
        description.looks_up ? std::vector<std::int64_t>{40} : std::vector<std::int64_t>{37, 6};
  } else if (description.most_blocks > 1) {
    layer.widths = {48, 32};
  }
  return layer;
}

// Adapters of ranks 16, 3, 0 and 7, two rows without one.
LayerProblem small_problem(const ShardedLayer& layer) {
  Problem lora;
  lora.dtype = OperandDtypes(Dtype::kBf16);
  lora.tokens = 9;
  lora.slots = 5;
  lora.max_rank = layer.max_rank;
  lora.rank = {16, 3, 0, 7, 5};
  lora.scale = {2.0F, 0.5F, 1.0F, -1.0F, 3.0F};
  const std::vector<std::int32_t> ids{1, 0, -1, 3, 4, 0, 2, -1, 1};
  lora.plan = make_plan(ids, lora.slots);
  LayerProblem problem = make_layer_problem(layer, lora);
  problem.base_bias = true;
  problem.missing_slices = true;
  return problem;
}

// Returns null where the layer cannot be divided so.
LayerProblem* add(std::vector<TellingLayer>& layers, const ShardedLayer& layer,
                  const std::string& what) {
  if (!why_not_sharded(layer).empty()) {
    return nullptr;
  }
  layers.push_back({fmt::format("{}-tp{}{}{}", name(layer.kind), layer.tp,
                                layer.fully_sharded ? "-fully" : "", what),
                    small_problem(layer)});
  return &layers.back().problem;
}

// Other ways to end, of a layer that is small already.
void add_results(std::vector<TellingLayer>& layers, ShardedLayer layer) {
  const LayerDescription& description = description_of(layer.kind);
  if (description.may_gather) {
    layer.gather_output = true;
    add(layers, layer, "-gathered");
  }
  if (LayerProblem* const skipped = add(layers, layer, "-bias-returned")) {
    skipped->skip_bias_add = true;
  }
  if (description.y == Exchange::kReduce && !description.looks_up) {
    layer.reduce_results = false;
    add(layers, layer, "-terms-kept");
  }
  if (description.kind != LayerKind::kLogits) {
    return;
  }
  if (LayerProblem* const capped = add(layers, layer, "-capped")) {
    capped->soft_cap = 2.0F;
    capped->logit_scale = 0.7F;
  }
  layer.gather_to = GatherTo::kFirst;
  add(layers, layer, "-to-first");
}

// Weights of eight bits, whose scales of each form come in turn; of blocks shards cut some.
void add_eight_bits(std::vector<TellingLayer>& layers, const ShardedLayer& layer) {
  static constexpr std::array kForms{ScaleForm{WeightsScale::kChannel, 0, 0},
                                     ScaleForm{WeightsScale::kBlock, 4, 20},
                                     ScaleForm{WeightsScale::kTensor, 0, 0}};
  const std::size_t turn = layers.size();
  const ScaleForm& form = kForms[turn % kForms.size()];
  if (LayerProblem* const problem =
          add(layers, layer, fmt::format("-eight-bits-{}", name(form.scale)))) {
    Problem& lora = problem->lora;
    lora.dtype[Role::kA] = lora.dtype[Role::kB] = turn % 2 == 0 ? Dtype::kE4m3 : Dtype::kE5m2;
    lora.weights_scale = form.scale;
    lora.block_rows = form.rows;
    lora.block_columns = form.columns;
  }
}

// Adapters that bring other things: a bias, rows of a table, and of pairs some or fewer.
void add_adapters(std::vector<TellingLayer>& layers, ShardedLayer layer) {
  const LayerDescription& description = description_of(layer.kind);
  const auto blocks = static_cast<std::int64_t>(layer.widths.size());
  if (LayerProblem* const biased = add(layers, layer, "-adapter-bias")) {
    biased->lora.bias = true;
  }
  if (!description.joint && blocks > 1) {
    if (LayerProblem* const listed = add(layers, layer, "-missing-listed")) {
      listed->missing = {{1}, {}, {0}};
    }
  }
  for (const std::vector<std::int64_t>& packed :
       {std::vector<std::int64_t>{blocks}, std::vector<std::int64_t>{blocks - 1, 1}}) {
    const std::string what = fmt::format("-packed{}", packed.size());
    LayerProblem* const problem = takes_packed(layer.kind) ? add(layers, layer, what) : nullptr;
    if (problem != nullptr) {
      problem->missing_slices = false;
      problem->packed = packed;
    }
  }
  if (description.looks_up) {
    layer.extra = 5;
    add(layers, layer, "-added");
  }
}

}  // namespace

std::vector<TellingLayer> telling_layers() {
  std::vector<TellingLayer> layers;
  for (const LayerDescription& description : layer_descriptions()) {
    for (const std::int64_t tp : {2, 4, 8, 1}) {
      for (const bool fully_sharded : {false, true}) {
        ShardedLayer layer = small_layer(description, tp, fully_sharded);
        add(layers, layer, "");
        add_results(layers, layer);
        add_adapters(layers, layer);
        add_eight_bits(layers, layer);
        if (description.heads) {
          layer.widths[2] = 24;
          add(layers, layer, "-wider-v");
          layer.widths[2] = 0;
          add(layers, layer, "-without-v");
        }
      }
    }
  }
  return layers;
}

ShardOutputs faulty_outputs(const LayerStory& story, LayerFault fault) {
  const Problem& lora = story.problem.lora;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(lora.tokens));
  std::iota(tokens.begin(), tokens.end(), 0);
  ShardOutputs outputs;
  for (const std::vector<double>& rows : model_layer(story, fault, tokens)) {
    const std::vector<float> numbers(rows.begin(), rows.end());
    Matrix y{lora.dtype[Role::kY],
             lora.tokens,
             static_cast<std::int64_t>(rows.size()) / lora.tokens,
             {}};
    y.data.resize(rows.size() * static_cast<std::size_t>(size_bytes(lora.dtype[Role::kY])));
    encode(lora.dtype[Role::kY], numbers, y.data.data());
    outputs.push_back(std::move(y));
  }
  return outputs;
}

SelfTestRow hunt_layer(const LayerFaultDoc& doc, const std::vector<TellingLayer>& layers,
                       const Stop& stop) {
  SelfTestRow row;
  row.fault = fmt::format("layer:{}", doc.key);
  for (const TellingLayer& layer : layers) {
    if (stop()) {
      return row;
    }
    const Prepared prepared(layer.problem);
    const ShardOutputs outputs = faulty_outputs(prepared.story(), doc.fault);
    Verdict verdict = compare_shards(layer.problem, prepared.oracle, outputs);
    if (verdict.failure) {
      name_fault(verdict, prepared.story(), prepared.oracle, outputs);
      row.caught = true;
      row.level = name(verdict.failure->level);
      row.hypothesis = verdict.failure->hypothesis;
      row.named_right = row.hypothesis == doc.key;
      row.case_id = layer.id;
      return row;
    }
  }
  return row;
}

void try_right_layers(const std::vector<TellingLayer>& layers, SelfTestReport& report,
                      const Stop& stop) {
  const std::unique_ptr<Backend> base = make_base_product(Space::kHost);
  const std::unique_ptr<Backend> lora = make_cpu_backend({1, ""});
  const std::unique_ptr<Memory> memory = make_host_memory();
  const auto note = [&](const char* what, const TellingLayer& layer, const Verdict& verdict) {
    ++report.correct_cases;
    report.correct_passed += verdict.status == Status::kPassed ? 1 : 0;
    if (verdict.status != Status::kPassed) {
      ++report.false_alarms;
      report.alarm_messages.push_back(fmt::format("{}, {}: {}", what, layer.id, verdict.message));
    }
  };
  for (const TellingLayer& layer : layers) {
    if (stop()) {
      return;
    }
    note("layers", layer, verify_layer(layer.problem, *base, *lora, *memory, {}));
    const Prepared prepared(layer.problem);
    note("layers' model", layer,
         compare_shards(layer.problem, prepared.oracle,
                        faulty_outputs(prepared.story(), LayerFault::kNone)));
  }
}

}  // namespace lora_bench
