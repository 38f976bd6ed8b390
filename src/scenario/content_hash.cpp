#include "scenario/content_hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lora_bench {
namespace {

std::string hashed_text(const SkewLaw& law) {
  return fmt::format("{} {} {}", name(law.kind), law.parameter, fmt::join(law.trace, ","));
}

std::string hashed_text(const RankLaw& law) {
  std::string text = fmt::format("{}", fmt::join(law.list, ","));
  for (const auto& [rank, share] : law.shares) {
    text += fmt::format(" {}:{}", rank, share);
  }
  return text;
}

std::string hashed_text(const std::optional<double>& number) {
  return number ? fmt::format("{}", *number) : "none";
}

// Everything that changes what is run or how it is judged, and nothing else: not tags, not where
// the file lies.
std::string hashed_text(const Case& spec) {
  const LayerShape& layer = spec.layer;
  const AdapterSpec& adapters = spec.adapters;
  const VerifySettings& verify = spec.verify;
  const MeasureSettings& measure = spec.measure;
  const Thresholds& limits = spec.thresholds;
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|{}|", spec.scenario, spec.id, name(spec.op), name(spec.dtype),
                  name(spec.intermediate), name(spec.scale_at), spec.add_inputs);
  text +=
      fmt::format("{}|{}|{}|{}|{}|{}|{}|", layer.model, layer.name, layer.in_features,
                  fmt::join(layer.widths, ","), layer.offset_start, layer.x_stride, layer.y_stride);
  if (spec.op == Op::kLayer) {
    const LayerSetup& setup = spec.setup;
    text += fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|", name(setup.kind), setup.tp, setup.fully_sharded,
                        setup.kv_heads, setup.bias, setup.missing_slices, setup.gather_output,
                        setup.input_split);
    text += setup.skip_bias ? "returned|" : "";
    text += setup.kind == LayerKind::kLogits
                ? fmt::format("{}|{}|{}|", setup.padding, setup.soft_cap, setup.logit_scale)
                : "";
    text += setup.comm == Comm::kNone ? "" : fmt::format("{}|", name(setup.comm));
    text += setup.base_algorithm == BaseAlgorithm::kAuto
                ? ""
                : fmt::format("{}|", name(setup.base_algorithm));
    text += setup.overlap == Overlap::kAuto ? "" : fmt::format("{}|", name(setup.overlap));
  }
  text +=
      fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|", spec.batch.decode, fmt::join(spec.batch.prefill, ","),
                  adapters.slots, adapters.active, hashed_text(adapters.rank), adapters.max_rank,
                  fmt::join(adapters.scale, ","), adapters.bias);
  text += fmt::format("{}|{}|{}|{}|{}|{}|", hashed_text(spec.skew), hashed_text(spec.prefill_skew),
                      spec.no_adapter, name(spec.order), spec.seed, fmt::join(spec.backends, ","));
  const std::string plan = plan_limits_text(spec.plan);
  text += plan.empty() ? "" : plan + "|";
  const std::string tuning = tuning_text(spec.tuning);
  text += tuning.empty() ? "" : tuning + "|";
  // Those that were added later are named by nothing where they are not set, so that what was
  // hashed before stays as it was.
  constexpr std::size_t kFirstThresholds = 3;
  for (std::size_t i = 0; i < kThresholdFields.size(); ++i) {
    const std::optional<double>& limit = limits.*kThresholdFields[i].value;
    text += i < kFirstThresholds || limit ? hashed_text(limit) + "|" : "";
    text += i + 2 == kFirstThresholds ? hashed_text(limits.max_regression) + "|" : "";
  }
  text += fmt::format("{}|{}|{}|{}|", verify.enabled, verify.relations, verify.max_rows,
                      verify.timeout_s);
  text +=
      fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}\n", measure.enabled, name(measure.mode),
                  name(measure.cache), measure.warmup_ms, measure.min_samples, measure.max_samples,
                  measure.min_time_ms, measure.max_time_ms, measure.noise_target, measure.phases);
  return text;
}

}  // namespace

std::uint64_t content_hash(const std::vector<Case>& cases) {
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const Case& spec : cases) {
    for (const char c : hashed_text(spec)) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    }
  }
  return hash;
}

}  // namespace lora_bench
