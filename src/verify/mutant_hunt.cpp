#include "verify/mutant_hunt.h"

#include <fmt/format.h>
#include <algorithm>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "verify/metadata_proof.h"
#include "verify/quantise_proof.h"
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

void try_quantise_faults(Share share, SelfTestReport& report, const ProgressLine& progress,
                         const Stop& stop) {
  const std::vector<TellingQuantise> steps = telling_quantise();
  const std::span<const QuantiseFault> all = quantise_faults();
  for (std::size_t at = share.index; at < all.size() && !stop(); at += share.count) {
    const SelfTestRow row = hunt_quantise(all[at], steps);
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
    try_right_quantisers(telling_quantise(), report);
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
  try_quantise_faults(share, report, progress, stop);
  if (share.index == 0) {
    try_what_is_right(correct_cases, seed, report, progress, stop);
  }
  report.interrupted = stop();
  return report;
}

}  // namespace lora_bench
