#include "verify/mutant_hunt.h"

#include <fmt/format.h>
#include <algorithm>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "verify/metadata_proof.h"
#include "verify/random_case.h"

namespace lora_bench {

namespace {

// What a race leaves is not the same from run to run, and so is its name.
constexpr std::string_view kGpuPrefix = "gpu-";

Problem problem_of(const Case& spec) { return make_problem(spec); }

std::unique_ptr<Memory> memory_of(const Backend& backend) {
  return backend.space() == Space::kDevice ? make_device_memory() : make_host_memory();
}

Verdict verdict_of(Groundwork& groundwork, const Backend& backend, bool relations,
                   const Prover& prover, Part without = Part::kNone) {
  const std::unique_ptr<Memory> memory = memory_of(backend);
  VerifyOptions options;
  options.relations = relations;
  options.seed = groundwork.seed();
  options.without = without;
  return prover ? prover(groundwork.problem(), backend, *memory, options)
                : verify(groundwork, backend, *memory, options);
}

// "relations: permuted rows" where the level alone says little.
std::string caught_at(const Failure& failure) {
  const std::string level(name(failure.level));
  const bool values = failure.level == Level::kExact || failure.level == Level::kBounded;
  return values ? level : level + ": " + failure.what;
}

// Of a telling case; all of them together take a tenth of it.
constexpr std::int64_t kGroundworkBytes = std::int64_t{64} << 20;

}  // namespace

HuntingGround::HuntingGround(const std::vector<Case>& cases) {
  for (const Case& spec : cases) {
    places_.push_back(
        {spec, std::make_unique<Groundwork>(problem_of(spec), spec.seed, kGroundworkBytes)});
  }
}

SelfTestRow hunt(const std::string& fault, const HuntingGround& ground, Part without,
                 const Stop& stop, const Prover& prover) {
  SelfTestRow row;
  row.fault = fault;
  for (const auto& [spec, groundwork] : ground.places()) {
    if (stop()) {
      return row;
    }
    const std::unique_ptr<Backend> mutant = make_mutant(fault);
    if (!mutant->supports(groundwork->problem(), facts_of(mutant->space())).yes) {
      continue;
    }
    const Verdict verdict = verdict_of(*groundwork, *mutant, true, prover, without);
    if (verdict.failure) {
      row.caught = true;
      row.level = caught_at(*verdict.failure);
      row.hypothesis = verdict.failure->hypothesis;
      row.case_id = spec.id;
      return row;
    }
  }
  return row;
}

SelfTestRow hunt_and_judge(const MutantDoc& doc, const HuntingGround& ground, const Stop& stop,
                           const Prover& prover) {
  SelfTestRow row = hunt(doc.fault, ground, Part::kNone, stop, prover);
  const bool any_name =
      doc.hypothesis.empty() && (doc.any_name || doc.fault.starts_with(kGpuPrefix));
  row.named_right = any_name || row.hypothesis == doc.hypothesis;
  row.part_needed =
      doc.alone == Part::kNone || !hunt(doc.fault, ground, doc.alone, stop, prover).caught;
  return row;
}

void try_correct(const Backend& backend, std::int64_t cases, std::uint64_t seed,
                 SelfTestReport& report, const Stop& stop, const Prover& prover) {
  const DeviceFacts& here = facts_of(backend.space());
  for (std::int64_t index = 0; index < cases && !stop(); ++index) {
    const Case spec = random_case(seed, static_cast<std::uint64_t>(index));
    Groundwork groundwork(problem_of(spec), spec.seed, 0);  // nobody comes back for it
    if (!backend.supports(groundwork.problem(), here).yes) {
      continue;
    }
    std::string alarm;
    try {
      const Verdict verdict = verdict_of(groundwork, backend, index % 4 == 0, prover);
      alarm = verdict.failure ? verdict.message : "";
      report.correct_passed += verdict.status == Status::kPassed && verdict.compared > 0 ? 1 : 0;
    } catch (const std::exception& error) {
      alarm = error.what();
    }
    ++report.correct_cases;
    if (!alarm.empty()) {
      ++report.false_alarms;
      report.alarm_messages.push_back(std::string(backend.name()) + ", " + spec.id + ": " + alarm);
    }
  }
}

namespace {

// A fault that is none where it is declared: sums meet in another order in every second launch.
class Varying final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "varying"; }
  [[nodiscard]] std::string_view summary() const override { return kernel_->summary(); }
  [[nodiscard]] Space space() const override { return kernel_->space(); }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    return kernel_->supports(problem, device);
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics = kernel_->numerics(problem);
    numerics.deterministic = numerics.batch_invariant = false;
    return numerics;
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return kernel_->workspace_bytes(problem);
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    kernel_->launch(problem, operands, stream);
  }

 private:
  std::unique_ptr<Backend> kernel_ = make_mutant("order-varies-by-run");
};

std::vector<std::unique_ptr<Backend>> correct_backends() {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::make_unique<Varying>());
  for (const char* fault : {"none", "gpu-none"}) {
    if (why_no_mutant(fault).empty()) {
      backends.push_back(make_mutant(fault));
    }
  }
  for (const BackendEntry& entry : backend_registry()) {
    if (entry.why_not_here.empty()) {
      backends.push_back(entry.make());
    }
  }
  return backends;
}

template <typename Docs>
auto share_of(const Docs& docs, Share share) {
  std::vector<typename Docs::value_type> taken;
  for (std::size_t at = share.index; at < docs.size(); at += share.count) {
    taken.push_back(docs[at]);
  }
  return taken;
}

void try_mutants(const std::vector<MutantDoc>& docs, SelfTestReport& report,
                 const ProgressLine& progress, const Stop& stop) {
  const HuntingGround ground(telling_cases());
  for (const MutantDoc& doc : docs) {
    const std::string why_not = why_no_mutant(doc.fault);
    if (!why_not.empty()) {
      ++report.skipped;
      report.why_skipped = why_not;
      continue;
    }
    const SelfTestRow row = hunt_and_judge(doc, ground, stop);
    if (stop()) {
      return;
    }
    report.rows.push_back(row);
    progress(row.caught ? fmt::format("{}: caught by {}", row.fault, row.level)
                        : fmt::format("{}: NOT CAUGHT", row.fault));
  }
}

void try_layer_faults(Share share, SelfTestReport& report, const ProgressLine& progress,
                      const Stop& stop) {
  const std::vector<TellingLayer> layers = telling_layers();
  for (const LayerFaultDoc& doc : share_of(layer_faults(), share)) {
    const SelfTestRow row = hunt_layer(doc, layers, stop);
    if (stop()) {
      return;
    }
    report.rows.push_back(row);
    progress(row.caught ? fmt::format("{}: caught by {}", row.fault, row.level)
                        : fmt::format("{}: NOT CAUGHT", row.fault));
  }
}

void try_metadata_faults(Share share, SelfTestReport& report, const ProgressLine& progress,
                         const Stop& stop) {
  const std::vector<TellingMetadata> steps = telling_metadata();
  for (const MetadataFaultDoc& doc : share_of(metadata_faults(), share)) {
    if (stop()) {
      return;
    }
    const SelfTestRow row = hunt_metadata(doc, steps);
    report.rows.push_back(row);
    progress(row.caught ? fmt::format("{}: caught by {}", row.fault, row.level)
                        : fmt::format("{}: NOT CAUGHT", row.fault));
  }
}

void try_what_is_right(std::int64_t correct_cases, std::uint64_t seed, SelfTestReport& report,
                       const ProgressLine& progress, const Stop& stop) {
  try_right_layers(telling_layers(), report, stop);
  if (!stop()) {
    try_right_metadata(telling_metadata(), report);
  }
  const std::vector<std::unique_ptr<Backend>> backends = correct_backends();
  const auto share = static_cast<std::int64_t>(backends.size());
  for (std::int64_t turn = 0; turn < share && !stop(); ++turn) {
    const std::int64_t cases_of_backend =
        correct_cases / share + (turn < correct_cases % share ? 1 : 0);
    const Backend& backend = *backends[static_cast<std::size_t>(turn)];
    progress(fmt::format("{}: {} random cases", backend.name(), cases_of_backend));
    try_correct(backend, cases_of_backend, seed, report, stop);
  }
}

}  // namespace

bool sound(const SelfTestReport& report) {
  return !report.rows.empty() && report.false_alarms == 0 &&
         10 * report.correct_passed >= 9 * report.correct_cases &&
         std::all_of(report.rows.begin(), report.rows.end(), [](const SelfTestRow& row) {
           return row.caught && row.named_right && row.part_needed;
         });
}

SelfTestReport self_test(std::int64_t correct_cases, std::uint64_t seed,
                         const std::function<void(const std::string&)>& progress, const Stop& stop,
                         Share share) {
  SelfTestReport report;
  try_mutants(share_of(mutants(), share), report, progress, stop);
  try_mutants(share_of(gpu_mutants(), share), report, progress, stop);
  try_layer_faults(share, report, progress, stop);
  try_metadata_faults(share, report, progress, stop);
  if (share.index == 0) {
    try_what_is_right(correct_cases, seed, report, progress, stop);
  }
  report.interrupted = stop();
  return report;
}

namespace {

Case plain_case(const std::string& id) {
  Case spec;
  spec.scenario = "self-test";
  spec.id = id;
  spec.layer.name = "custom";
  spec.layer.in_features = 100;
  spec.layer.widths = {64};
  spec.batch.decode = 24;
  spec.adapters.slots = 4;
  spec.adapters.rank.list = {8};
  spec.adapters.max_rank = 8;
  spec.adapters.scale = {2.0, 0.5, 3.0, 1.5};
  spec.skew.kind = Skew::kDistinct;
  spec.prefill_skew = spec.skew;
  spec.verify.relations = true;
  return spec;
}

Case packed_case() {
  Case spec = plain_case("packed-bias-base-rows");
  spec.layer.widths = {48, 33, 33};
  spec.layer.offset_start = 3;
  spec.layer.x_stride = 107;
  spec.layer.y_stride = 122;
  spec.batch.prefill = {7, 3};
  spec.adapters.slots = 7;
  spec.adapters.active = 5;
  spec.adapters.rank.list = {8, 3, 8, 2, 5};
  spec.adapters.bias = true;
  spec.no_adapter = 0.25;
  return spec;
}

Case idle_slots_case() {
  Case spec = plain_case("idle-slots");
  spec.adapters.slots = 6;
  spec.adapters.active = 3;
  spec.skew.kind = Skew::kUniform;
  spec.prefill_skew = spec.skew;
  return spec;
}

Case shrink_case() {
  Case spec = plain_case("shrink-fp32");
  spec.op = Op::kShrink;
  spec.layer.in_features = 257;
  return spec;
}

// Each asks one thing beyond the plain op.
std::vector<Case> semantics_cases() {
  Case zeroed = plain_case("overwrite-zeroed");
  zeroed.add_inputs = false;
  zeroed.idle_rows = IdleRows::kZeroed;
  zeroed.adapters.rank.list = {0, 4, 8};
  zeroed.no_adapter = 0.25;

  Case adding = shrink_case();
  adding.id = "shrink-adds";
  adding.shrink_adds = true;
  adding.adapters.rank.list = {8, 5, 8, 3};
  adding.no_adapter = 0.25;

  Case biased = plain_case("bias-of-some-slices");
  biased.layer.widths = {48, 33, 20};
  biased.layer.y_stride = 101;
  biased.adapters.rank.list = {8, 0, 3};
  biased.adapters.bias = true;
  biased.adapters.bias_slices = {0, 2};

  Case rank_zero = plain_case("rank-zero-bias");
  rank_zero.adapters.rank.list = {0, 4};
  rank_zero.adapters.bias = true;
  rank_zero.adapters.rank0_bias = true;

  Case other_dtype = plain_case("adapters-fp16");
  other_dtype.adapters.dtype = Dtype::kFp16;

  Case own_x = plain_case("own-inputs");
  own_x.layer.widths = {40, 24};
  own_x.inputs = Inputs::kPerSlice;

  Case packed = plain_case("packed-with-gaps");
  packed.layer.widths = {40, 24};
  packed.layer.x_column_stride = 2;
  packed.layer.x_stride = 2 * packed.layer.in_features;
  packed.layer.h_stride = 2 * packed.adapters.max_rank + 3;
  packed.adapters.placing = Placing::kPacked;
  packed.adapters.rank.list = {3, packed.adapters.max_rank};
  return {zeroed, adding, biased, rank_zero, other_dtype, own_x, packed};
}

// Weights of eight bits.
std::vector<Case> eight_bits_cases() {
  Case blocks = plain_case("eight-bits-blocks");
  blocks.layer.widths = {40, 24};
  blocks.weights = {Dtype::kE4m3, WeightsScale::kBlock, {8, 32}};

  Case channels = plain_case("eight-bits-channels");
  channels.op = Op::kShrink;
  channels.weights = {Dtype::kE5m2, WeightsScale::kChannel, {}};
  return {channels, blocks};  // of y a delta of nearly nothing says less
}

// Cases whose plan is handed over in a published form.
std::vector<Case> form_cases() {
  Case kernel = plain_case("kernel-form");
  kernel.plan.form = PlanForm::kKernel;
  kernel.no_adapter = 0.25;

  Case chunked = plain_case("chunked-form");
  chunked.plan.form = PlanForm::kChunked;
  chunked.plan.largest_chunk = 64;
  chunked.plan.idle_segments = true;
  chunked.batch.decode = 150;
  chunked.skew.kind = chunked.prefill_skew.kind = Skew::kUniform;
  chunked.no_adapter = 0.25;
  return {kernel, chunked};
}

// One size far beyond the others, which are small.
Case far_case(const std::string& id, std::int64_t features, std::vector<std::int64_t> widths,
              std::int64_t tokens, std::int64_t rank) {
  Case spec = plain_case(id);
  spec.layer.in_features = features;
  spec.layer.widths = std::move(widths);
  spec.batch.decode = tokens;
  spec.adapters.rank.list = {rank};
  spec.adapters.max_rank = rank;
  return spec;
}

std::vector<Case> far_cases() {
  Case slots = far_case("1100-slots", 8, {8}, 40, 2);
  slots.adapters.slots = 1100;
  slots.skew.kind = Skew::kUniform;
  std::vector<Case> cases{far_case("700-tokens", 12, {8}, 700, 3),
                          far_case("2500-tokens", 8, {6}, 2500, 2),
                          far_case("66000-tokens", 4, {4}, 66000, 2),
                          slots,
                          far_case("rank-700", 12, {12}, 6, 700),
                          far_case("rank-1500", 8, {8}, 5, 1500),
                          far_case("12-slices", 20, std::vector<std::int64_t>(12, 4), 8, 4),
                          far_case("40-slices", 20, std::vector<std::int64_t>(40, 3), 6, 3),
                          far_case("6000-of-k", 6000, {8}, 6, 4),
                          far_case("6000-columns", 8, {6000}, 6, 4)};
  for (Case& spec : cases) {
    spec.prefill_skew = spec.skew;
  }
  return cases;
}

}  // namespace

std::vector<Case> telling_cases() {
  Case narrow = plain_case("rank-32-scale-at-expand");
  narrow.adapters.rank.list = {32, 16, 32, 7};
  narrow.adapters.max_rank = 32;
  narrow.scale_at = ScaleAt::kExpand;

  Case gap = plain_case("empty-slice");
  gap.layer.widths = {32, 0, 24};
  gap.layer.y_stride = 60;

  Case uneven = plain_case("uneven-slices");
  uneven.layer.widths = {64, 16, 16};
  uneven.layer.y_stride = 110;

  Case nothing = plain_case("rank-zero");
  nothing.adapters.rank.list = {0, 4};

  Case overwrite = plain_case("overwrite");
  overwrite.add_inputs = false;

  Case wide = plain_case("fp32");
  wide.dtype = Dtype::kFp32;

  Case half = plain_case("fp16");
  half.dtype = Dtype::kFp16;

  std::vector<Case> cases{packed_case(), idle_slots_case(), narrow,        gap,  uneven,
                          nothing,       overwrite,         shrink_case(), wide, half};
  for (const std::vector<Case>& more :
       {semantics_cases(), form_cases(), eight_bits_cases(), far_cases()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace lora_bench
