#include "measure/metadata_time.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/facts.h"
#include "measure/fake_clock.h"
#include "ops/backends.h"
#include "support/near.h"
#include "support/short_measure.h"
#include "support/wrapped_memory.h"
#include "verify/metadata_proof.h"

using namespace lora_bench;

namespace {

// The step of that form, with everything in it.
MetadataStep mixed(const std::string& form) {
  for (const TellingMetadata& telling : telling_metadata()) {
    if (telling.id == form + "-mixed") {
      return telling.step;
    }
  }
  return {};
}

Measurement timed(const MetadataStep& step, const Backend& backend, Clock& clock,
                  CacheMode cache = CacheMode::kWeightsCold, Memory* memory = nullptr) {
  const std::unique_ptr<Memory> own = make_host_memory();
  const MeasureSettings settings = test::short_measure(cache);
  MetadataMeasureRequest request{
      .step = step,
      .settings = settings,
      .builder = *backend.metadata(),
      .check = [&](const EngineStep& engine,
                   const auto& outputs) { return wrong_metadata(step.problem, engine, outputs); },
      .others = {},
      .stop = {},
      .alone = true};
  request.others = steps_of_one_change(step, 7);
  for (OtherStep& other : other_steps(step)) {
    request.others.push_back(std::move(other.engine));
  }
  DeviceFacts facts;
  facts.cache_bytes = 1 << 20;
  return measure_metadata(request, memory == nullptr ? *own : *memory, clock, facts);
}

std::string left(const MetadataStep& step, const std::string& mutant) {
  FakeClock clock([](int, std::int64_t) { return 1e-5; });
  const Measurement measurement = timed(step, *make_mutant(mutant), clock);
  CHECK(measurement.check_passed == measurement.check_message.empty());
  return measurement.check_message;
}

// The builder of backend cpu for the first launches; then it does nothing.
class Tiring final : public Backend, public MetadataBuilder {
 public:
  [[nodiscard]] std::string_view name() const override { return "tiring"; }
  [[nodiscard]] std::string_view summary() const override { return "for tests"; }
  [[nodiscard]] Space space() const override { return Space::kHost; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
  [[nodiscard]] Numerics numerics(const Problem&) const override { return {}; }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  void launch(const Problem&, const Operands&, Stream) const override {}
  [[nodiscard]] const MetadataBuilder* metadata() const override { return this; }
  [[nodiscard]] Support supports(const MetadataProblem&, const DeviceFacts&) const override {
    return {};
  }
  void launch(const MetadataProblem& problem, const ArrayOperands& operands,
              Stream stream) const override {
    if (++launches_ <= 10) {
      cpu_->metadata()->launch(problem, operands, stream);
    }
  }

 private:
  mutable int launches_ = 0;
  std::unique_ptr<Backend> cpu_ = make_cpu_backend({1, ""});
};

// Makes the metadata where 16 of the entries of each input are not those of before, and else writes
// what it made then.
class Peeking final : public BackendAround, public MetadataBuilder {
 public:
  Peeking() : BackendAround(cpu()) {}
  [[nodiscard]] const MetadataBuilder* metadata() const override { return this; }
  [[nodiscard]] Support supports(const MetadataProblem&, const DeviceFacts&) const override {
    return {};
  }
  void launch(const MetadataProblem& problem, const ArrayOperands& operands,
              Stream stream) const override {
    std::vector<std::int32_t> seen;
    const std::vector<MetadataArray> inputs = inputs_of(problem);
    for (std::size_t input = 0; input < inputs.size(); ++input) {
      const auto* const entries = static_cast<const std::int32_t*>(operands.inputs[input]);
      const std::int64_t count = inputs[input].elements;
      for (std::int64_t look = 0; look < 16 && count > 0; ++look) {
        seen.push_back(entries[look * (count - 1) / 15]);
      }
    }
    auto& [before, made] = kept_[operands.outputs[0]];
    const bool is_new = before != seen;
    if (is_new) {
      before = seen;
      made.clear();
      cpu().metadata()->launch(problem, operands, stream);
    }
    const std::vector<MetadataArray> outputs = outputs_of(problem);
    for (std::size_t output = 0; output < outputs.size(); ++output) {
      auto* const entries = static_cast<char*>(operands.outputs[output]);
      if (is_new) {
        made.emplace_back(entries, static_cast<std::size_t>(outputs[output].bytes()));
      } else {
        std::memcpy(entries, made[output].data(), made[output].size());
      }
    }
  }

 private:
  static const Backend& cpu() {
    static const std::unique_ptr<Backend> backend = make_cpu_backend({1, ""});
    return *backend;
  }
  mutable std::map<const void*, std::pair<std::vector<std::int32_t>, std::vector<std::string>>>
      kept_;
};

// Host memory that counts what is asked of it.
class CountingMemory final : public WrappedMemory {
 public:
  [[nodiscard]] void* allocate(std::int64_t bytes) override {
    allocated += bytes;
    return WrappedMemory::allocate(bytes);
  }
  std::int64_t allocated = 0;
};

}  // namespace

TEST_CASE("metadata: the time is that of one launch, of sequences that go round the sets") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  for (const char* form : {"kernel", "prefill", "sampler", "embedding", "chunked", "align"}) {
    CAPTURE(std::string(form));
    FakeClock clock([](int, std::int64_t) { return 1e-5; });
    const Measurement measurement = timed(mixed(form), *cpu, clock);
    CHECK(measurement.summary.median == near(1e-5));
    CHECK(measurement.alone_s.value() == near(1e-5));  // launches of a host never overlap
    CHECK(measurement.rotation_sets == 2);
    CHECK(measurement.launches % 2 == 0);
    CHECK(static_cast<double>(measurement.launches) * 1e-5 ==
          near(1e-3));  // a millisecond a sample
    CHECK(measurement.check_message == "");
    CHECK(measurement.check_passed);
  }
}

TEST_CASE("metadata: timed cold, the sets are more than the cache holds") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  FakeClock clock([](int, std::int64_t) { return 1e-5; });
  MetadataStep step = mixed("kernel");
  const Measurement small = timed(step, *cpu, clock, CacheMode::kCold);
  CHECK(small.rotation_sets == 256);  // so many are enough, and the cache is evicted
  CHECK(small.launches == 256);
  step.problem.tokens = 40000;
  const auto has_adapter = [](std::int32_t slot) { return slot >= 0; };
  const std::vector<std::int32_t>& slots = step.engine.slot_of_request;
  step.engine.request_of_token.assign(
      40000, static_cast<std::int32_t>(std::find_if(slots.begin(), slots.end(), has_adapter) -
                                       slots.begin()));
  const Measurement large = timed(step, *cpu, clock, CacheMode::kCold);
  CHECK(large.rotation_sets == 6);  // of 480,000 bytes, in three caches
  CHECK(large.rotated_bytes > 2 << 20);
  CHECK(large.check_message == "");
}

TEST_CASE("metadata: what timed launches leave is looked at, also for other steps") {
  CHECK(left(mixed("kernel"), "metadata-row-twice")
            .starts_with("left by the timed launches: token_order["));
  // Every group is in use in the step that is timed.
  CHECK(left(mixed("kernel"), "metadata-tail-left")
            .starts_with("left by the sequence for another step: active_ids["));
  CHECK(left(mixed("kernel"), "metadata-frozen-flag") ==
        "left by the sequence for another step: no_adapter[0]: expected 1, got 0");
  CHECK(left(mixed("sampler"), "metadata-input-written") ==
        "left by the timed launches: input request_of_sample changed");
  CHECK(left(mixed("embedding"), "metadata-row-too-many")
            .starts_with("left by the timed launches: guard of "));
}

TEST_CASE("metadata: launches that do nothing once they were proved right are seen after timing") {
  FakeClock clock([](int, std::int64_t) { return 1e-5; });
  CHECK(timed(mixed("kernel"), Tiring(), clock).check_message ==
        "left by the timed launches: adapter_of_token[0]: expected -1, got 1532713819");
}

TEST_CASE(
    "metadata: a builder that looks at a few entries to see whether anything is new is found") {
  FakeClock clock([](int, std::int64_t) { return 1e-5; });
  MetadataStep step = mixed("kernel");
  // Rows enough that a few are not all; each row as the mixed step has it, again and again.
  const std::vector<std::int32_t> rows = step.engine.request_of_token;
  step.problem.tokens = 4096;
  step.engine.request_of_token.resize(4096);
  for (std::size_t row = 0; row < 4096; ++row) {
    step.engine.request_of_token[row] = rows[row % rows.size()];
  }
  const std::string found = timed(step, Peeking(), clock).check_message;
  CHECK(found.starts_with("left by the sequence for another step: "));
  for (const EngineStep& other : steps_of_one_change(step, 11)) {
    std::size_t differ = 0;
    for (std::size_t row = 0; row < 4096; ++row) {
      differ += other.request_of_token[row] != step.engine.request_of_token[row];
    }
    CHECK(differ <= 1);
    CHECK(!(other == step.engine));
  }
}

TEST_CASE("metadata: a measurement allocates no more than it says") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kHot, CacheMode::kCold}) {
    for (const char* form : {"kernel", "sampler", "chunked", "align"}) {
      CAPTURE(std::string(form));
      CAPTURE(std::string(name(cache)));
      FakeClock clock([](int, std::int64_t) { return 1e-5; });
      CountingMemory memory;
      const MetadataStep step = mixed(form);
      static_cast<void>(timed(step, *cpu, clock, cache, &memory));
      const std::int64_t said = metadata_bytes(step, cache, 1 << 20);
      CHECK(memory.allocated <= said);
      CHECK(memory.allocated > said / 2);
    }
  }
}
