#include "verify/metadata_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/random.h"
#include "ops/array_buffers.h"
#include "plan/forms.h"
#include "reference/metadata.h"
#include "verify/array_proof.h"

namespace lora_bench {
namespace {

constexpr int kReplaysOnDevice = 50;
constexpr int kReplaysOnHost = 3;

using Bytes = ArrayBuffers::Contents;

const std::vector<std::int32_t>& rows_asked(const MetadataProblem& problem,
                                            const EngineStep& engine) {
  return problem.form == Form::kSampler ? engine.request_of_sample : engine.request_of_token;
}

// Entries of the table that no row names hold what would be wrong: a slot, none, no slot at all.
EngineStep with_poisoned_holes(const MetadataProblem& problem, EngineStep engine) {
  const std::vector<std::int32_t>& rows = rows_asked(problem, engine);
  const std::unordered_set<std::int32_t> named(rows.begin(), rows.end());
  const std::int32_t wrong[] = {static_cast<std::int32_t>(problem.slots) - 1, kNoAdapter, 0,
                                0x7FFFFFFF};
  for (std::size_t request = 0; request < engine.slot_of_request.size(); ++request) {
    if (!named.contains(static_cast<std::int32_t>(request))) {
      engine.slot_of_request[request] = wrong[request % std::size(wrong)];
    }
  }
  return engine;
}

Bytes poison_for(const MetadataProblem& problem, const std::vector<FilledArray>& promised) {
  const std::vector<MetadataArray> arrays = outputs_of(problem);
  Bytes bytes;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    bytes.emplace_back(static_cast<std::size_t>(arrays[i].bytes()));
    for (std::int64_t entry = 0; entry < arrays[i].elements; ++entry) {
      const auto at = static_cast<std::size_t>(entry);
      const bool known = at < promised[i].values.size() && promised[i].values[at] != kLeftAlone;
      put_index(arrays[i], bytes[i].data(), entry,
                poison_of(known ? promised[i].values[at] : entry));
    }
  }
  return bytes;
}

EntriesCompared compare_entries(const MetadataEvidence& evidence) {
  const std::vector<MetadataArray> arrays = outputs_of(evidence.step.problem);
  EntriesCompared all;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::vector<std::int64_t>& promised = evidence.promised[i].values;
    for (std::size_t entry = 0; entry < promised.size(); ++entry) {
      ++all.compared;
      if (evidence.is_wrong(i, entry) && all.wrong++ == 0) {
        all.first = fmt::format("{}[{}]: {}, {}", arrays[i].name, entry,
                                promised[entry] == kLeftAlone
                                    ? "nobody is to write it"
                                    : "expected " + index_text(arrays[i], promised[entry]),
                                evidence.is_poison(i, entry)
                                    ? "was not written"
                                    : "got " + index_text(arrays[i], evidence.got_at(i, entry)));
      }
    }
  }
  return all;
}

class MetadataProof {
 public:
  MetadataProof(const MetadataStep& step, const MetadataBuilder& builder, Memory& memory)
      : step_(step),
        builder_(builder),
        memory_(memory),
        inputs_(shapes_of(inputs_of(step.problem))),
        outputs_(shapes_of(outputs_of(step.problem))),
        promised_(promised_metadata(step.problem, step.engine)) {}

  Verdict run(bool relations) {
    first_launch(false);
    first_launch(true);
    // Where nothing was to be written guards and inputs alone tell.
    const bool writes = verdict_.compared_any();
    if (writes) {
      verdict_.pass(Level::kExact);
    }
    verdict_.pass(Level::kMemory);
    if (relations) {
      replays();
    }
    if (relations && writes) {
      verdict_.pass(Level::kRelations);
    }
    return verdict_.conclude();
  }

 private:
  void load(ArrayBuffers& buffers, const EngineStep& engine) const {
    buffers.put_inputs(input_bytes(step_.problem, with_poisoned_holes(step_.problem, engine)));
  }

  void first_launch(bool shifted) {
    if (verdict_.failed()) {
      return;
    }
    ArrayBuffers buffers(memory_, inputs_, outputs_, shifted);
    load(buffers, step_.engine);
    const Bytes before = poison_for(step_.problem, promised_);
    buffers.put_outputs(before);
    memory_.synchronize();
    builder_.launch(step_.problem, buffers.operands(), Stream{});
    memory_.synchronize();
    look(buffers, Level::kExact, shifted ? "with shifted arrays" : "", step_, promised_, before);
  }

  // Recorded once; what it is replayed for lies over what the step before left, then over poison.
  void replays() {
    if (verdict_.failed()) {
      return;
    }
    ArrayBuffers buffers(memory_, inputs_, outputs_);
    load(buffers, step_.engine);
    buffers.put_outputs(poison_for(step_.problem, promised_));
    const std::function<void()> run = memory_.record(
        [&](void* stream) { builder_.launch(step_.problem, buffers.operands(), Stream{stream}); });
    const int runs = memory_.space() == Space::kDevice ? kReplaysOnDevice : kReplaysOnHost;
    for (int turn = 0; turn < runs && !verdict_.failed(); ++turn) {
      replay(buffers, run, "replayed", step_.engine);
    }
    for (const OtherStep& other : other_steps(step_)) {
      replay(buffers, run, fmt::format("replayed {}", other.name), other.engine);
      replay(buffers, run, "replayed for the first step again", step_.engine);
      if (!verdict_.failed()) {
        buffers.put_outputs(
            poison_for(step_.problem, promised_metadata(step_.problem, other.engine)));
        replay(buffers, run, fmt::format("replayed {}", other.name), other.engine);
      }
    }
  }

  void replay(ArrayBuffers& buffers, const std::function<void()>& run, const std::string& what,
              const EngineStep& engine) {
    if (verdict_.failed()) {
      return;
    }
    const MetadataStep step{step_.problem, engine};
    const std::vector<FilledArray> promised = promised_metadata(step.problem, engine);
    const Bytes before = buffers.outputs();
    load(buffers, engine);
    memory_.synchronize();
    run();
    look(buffers, Level::kRelations, what, step, promised, before);
    earlier_.push_back(promised);
  }

  void look(const ArrayBuffers& buffers, Level level, const std::string& what,
            const MetadataStep& step, const std::vector<FilledArray>& promised,
            const Bytes& before) {
    const Bytes got = in_promised_order(step.problem, promised, buffers.outputs());
    const MetadataEvidence evidence{step, promised, before, got, earlier_};
    verdict_.note(buffers, level, what, compare_entries(evidence),
                  [&] { return diagnose_metadata(evidence); });
  }

  const MetadataStep& step_;
  const MetadataBuilder& builder_;
  Memory& memory_;
  ArrayShapes inputs_, outputs_;
  std::vector<FilledArray> promised_;
  std::vector<std::vector<FilledArray>> earlier_;
  ArrayVerdict verdict_;
};

reference::Engine engine_for_reference(const MetadataProblem& problem, const EngineStep& engine) {
  return {.request_of_row = rows_asked(problem, engine),
          .slot_of_request = engine.slot_of_request,
          .rank = engine.rank,
          .scale = engine.scale,
          .slots = problem.slots,
          .vocabulary = problem.vocabulary,
          .extra_vocabulary = problem.extra_vocabulary,
          .chunk = problem.chunk,
          .most_segments = problem.most_segments(),
          .idle_segments = problem.idle_segments,
          .expert_of_choice = engine.expert_of_choice,
          .experts = problem.experts,
          .top_k = problem.top_k,
          .block = problem.block};
}

static_assert(kLeftAlone == reference::kNotWritten);

}  // namespace

std::int64_t poison_of(std::int64_t promised) { return promised ^ 0x2A5A5A5A; }

std::vector<FilledArray> promised_metadata(const MetadataProblem& problem,
                                           const EngineStep& engine) {
  const reference::Engine asked = engine_for_reference(problem, engine);
  std::vector<reference::Entries> entries;
  switch (problem.form) {
    case Form::kKernel:
      entries = kernel_form(asked);
      break;
    case Form::kPrefill:
      entries = prefill_form(asked);
      break;
    case Form::kSampler:
      entries = sampler_form(asked);
      break;
    case Form::kEmbedding:
      entries = embedding_form(asked);
      break;
    case Form::kChunked:
      entries = chunked_form(asked);
      break;
    case Form::kAlign:
      entries = align_form(asked);
      break;
  }
  std::vector<FilledArray> promised;
  for (reference::Entries& values : entries) {
    promised.push_back({std::move(values)});
  }
  return promised;
}

Verdict verify_metadata(const MetadataStep& step, const MetadataBuilder& builder, Memory& memory,
                        bool relations) {
  return MetadataProof(step, builder, memory).run(relations);
}

std::string wrong_metadata(const MetadataProblem& problem, const EngineStep& engine,
                           const std::vector<std::vector<std::byte>>& outputs) {
  const std::vector<FilledArray> promised = promised_metadata(problem, engine);
  const std::vector<MetadataArray> arrays = outputs_of(problem);
  const Bytes ordered = in_promised_order(problem, promised, outputs);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    for (std::size_t entry = 0; entry < promised[i].values.size(); ++entry) {
      const std::int64_t got =
          index_at(arrays[i], ordered[i].data(), static_cast<std::int64_t>(entry));
      if (promised[i].values[entry] != kLeftAlone && got != promised[i].values[entry]) {
        return fmt::format("{}[{}]: expected {}, got {}", arrays[i].name, entry,
                           index_text(arrays[i], promised[i].values[entry]),
                           index_text(arrays[i], got));
      }
    }
  }
  return "";
}

std::vector<EngineStep> steps_of_one_change(const MetadataStep& step, std::uint64_t secret) {
  const EngineStep& engine = step.engine;
  std::vector<EngineStep> steps;
  const auto drawn = [&](std::uint64_t stream, std::size_t bound) {
    return static_cast<std::size_t>(random_below(secret, stream, steps.size(), bound));
  };
  const auto slot_of = [&](std::int32_t request) {
    return request < 0 ? kNoAdapter : engine.slot_of_request[static_cast<std::size_t>(request)];
  };
  // A row of another request, whose adapter is another one where there is such a request.
  const auto change_row = [&](std::vector<std::int32_t> EngineStep::*rows) {
    const std::size_t requests = engine.slot_of_request.size();
    if ((engine.*rows).empty() || requests == 0) {
      return;
    }
    EngineStep other = engine;
    std::int32_t& row = (other.*rows)[drawn(0, (engine.*rows).size())];
    const std::int32_t before = slot_of(row);
    const std::size_t first = drawn(1, requests);
    for (std::size_t turn = 0; turn < requests; ++turn) {
      row = static_cast<std::int32_t>((first + turn) % requests);
      if (slot_of(row) != before) {
        break;
      }
    }
    steps.push_back(std::move(other));
  };
  change_row(&EngineStep::request_of_token);
  change_row(&EngineStep::request_of_sample);
  const std::vector<std::int32_t>& rows =
      engine.request_of_token.empty() ? engine.request_of_sample : engine.request_of_token;
  const std::int32_t request = rows.empty() ? kNoAdapter : rows[drawn(0, rows.size())];
  if (request >= 0) {
    EngineStep other = engine;
    std::int32_t& slot = other.slot_of_request[static_cast<std::size_t>(request)];
    slot = static_cast<std::int32_t>((slot + 1) % step.problem.slots);
    steps.push_back(std::move(other));
  }
  if (const std::int32_t slot = slot_of(request); slot >= 0) {
    EngineStep other = engine;
    other.scale[static_cast<std::size_t>(slot)] *= -0.5F;
    steps.push_back(std::move(other));
  }
  if (!engine.expert_of_choice.empty()) {
    EngineStep other = engine;
    std::int32_t& expert = other.expert_of_choice[drawn(0, engine.expert_of_choice.size())];
    expert = expert >= 0 ? -1 : 0;
    steps.push_back(std::move(other));
  }
  return steps;
}

std::vector<OtherStep> other_steps(const MetadataStep& step) {
  const auto slots = static_cast<std::int32_t>(step.problem.slots);
  std::vector<OtherStep> others;
  const auto add = [&](std::string_view name, auto change) {
    EngineStep engine = step.engine;
    change(engine);
    others.push_back({name, std::move(engine)});
  };
  const auto rows_of = [](EngineStep& engine, auto change) {
    change(engine.request_of_token);
    change(engine.request_of_sample);
  };
  add("without an adapter", [&](EngineStep& engine) {
    rows_of(engine, [](auto& rows) { std::fill(rows.begin(), rows.end(), kNoAdapter); });
  });
  add("with every slot", [&](EngineStep& engine) {
    for (std::size_t i = 0; i < engine.slot_of_request.size(); ++i) {
      engine.slot_of_request[i] = static_cast<std::int32_t>(i) % slots;
    }
    const auto requests = static_cast<std::int32_t>(engine.slot_of_request.size());
    rows_of(engine, [&](auto& rows) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i] = static_cast<std::int32_t>(i) % requests;
      }
    });
  });
  add("with one adapter", [&](EngineStep& engine) {
    std::fill(engine.slot_of_request.begin(), engine.slot_of_request.end(), slots - 1);
    rows_of(engine, [](auto& rows) { std::fill(rows.begin(), rows.end(), 0); });
  });
  add("with rows in reverse order", [&](EngineStep& engine) {
    rows_of(engine, [](auto& rows) { std::reverse(rows.begin(), rows.end()); });
    std::reverse(engine.rank.begin(), engine.rank.end());
    std::reverse(engine.scale.begin(), engine.scale.end());
    std::reverse(engine.expert_of_choice.begin(), engine.expert_of_choice.end());
  });
  add("with fewer rows", [&](EngineStep& engine) {
    rows_of(engine, [](auto& rows) {
      std::fill(rows.begin() + std::ssize(rows) / 2, rows.end(), kNoAdapter);
    });
  });
  add("with the first row alone", [&](EngineStep& engine) {
    std::fill(engine.slot_of_request.begin(), engine.slot_of_request.end(), 0);
    rows_of(engine, [](auto& rows) {
      std::fill(rows.begin(), rows.end(), kNoAdapter);
      if (!rows.empty()) {
        rows.front() = 0;
      }
    });
  });
  if (step.problem.form == Form::kAlign) {
    const auto experts = static_cast<std::int32_t>(step.problem.experts);
    const auto top_k = static_cast<std::size_t>(step.problem.top_k);
    add("with every expert elsewhere", [](EngineStep& engine) {
      std::fill(engine.expert_of_choice.begin(), engine.expert_of_choice.end(), -1);
    });
    add("with the last expert alone", [&](EngineStep& engine) {
      for (std::size_t pair = 0; pair < engine.expert_of_choice.size(); ++pair) {
        engine.expert_of_choice[pair] = pair % top_k == 0 ? experts - 1 : -1;
      }
    });
    add("with every expert in turn", [&](EngineStep& engine) {
      for (std::size_t pair = 0; pair < engine.expert_of_choice.size(); ++pair) {
        engine.expert_of_choice[pair] = static_cast<std::int32_t>(pair) % experts;
      }
    });
  }
  return others;
}

}  // namespace lora_bench
