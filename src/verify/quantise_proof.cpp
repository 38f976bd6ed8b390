#include "verify/quantise_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "core/bytes.h"
#include "ops/array_buffers.h"
#include "ops/thread_pool.h"
#include "reference/quantise.h"
#include "verify/oracle.h"

namespace lora_bench {
namespace {

constexpr int kCodesReplayedOnDevice = 20;
constexpr int kCodesReplayedOnHost = 2;

std::size_t bytes_of_entry(const QuantiseProblem& problem, std::size_t array) {
  return static_cast<std::size_t>(outputs_of(problem)[array].element_bytes);
}

float value_of(const QuantiseProblem& problem, std::size_t array, const std::byte* at) {
  return load(array == 0 ? problem.to : Dtype::kFp32, at, 0);
}

// "q[3, 17]: expected 0x7E (448), got 0x7D (416)".
std::string entry_text(const QuantiseProblem& problem, std::size_t array, std::size_t entry,
                       const QuantiseArrays& promised, const QuantiseArrays& got) {
  const std::size_t bytes = bytes_of_entry(problem, array);
  const auto width = static_cast<std::size_t>(array == 0 ? problem.columns : problem.scales.across);
  const auto one = [&](const QuantiseArrays& arrays) {
    const std::byte* const at = arrays[array].data() + entry * bytes;
    if (array != 0) {
      return fmt::format("{:.9g}", value_of(problem, array, at));
    }
    return fmt::format("0x{:02X} ({:.9g})", std::to_integer<unsigned>(*at),
                       value_of(problem, array, at));
  };
  return fmt::format("{}[{}, {}]: expected {}, got {}", outputs_of(problem)[array].name,
                     entry / width, entry % width, one(promised), one(got));
}

}  // namespace

EntriesCompared compare_codes(const QuantiseProblem& problem, const QuantiseArrays& promised,
                              const QuantiseArrays& got) {
  EntriesCompared all;
  for (std::size_t array = 0; array < promised.size(); ++array) {
    const std::size_t bytes = bytes_of_entry(problem, array);
    const std::size_t entries = promised[array].size() / bytes;
    all.compared += static_cast<std::int64_t>(entries);
    if (same_bytes(promised[array], got[array])) {
      continue;
    }
    for (std::size_t entry = 0; entry < entries; ++entry) {
      if (std::memcmp(promised[array].data() + entry * bytes, got[array].data() + entry * bytes,
                      bytes) != 0 &&
          all.wrong++ == 0) {
        all.first = entry_text(problem, array, entry, promised, got);
      }
    }
  }
  return all;
}

QuantiseArrays unlike(QuantiseArrays promised) {
  for (std::vector<std::byte>& array : promised) {
    for (std::byte& byte : array) {
      byte ^= std::byte{0x5A};
    }
  }
  return promised;
}

Hypothesis diagnose_codes(const QuantiseProblem& problem, const QuantiseArrays& inputs,
                          const QuantiseArrays& before, const QuantiseArrays& earlier,
                          const QuantiseArrays& got) {
  for (const QuantiseFault& fault : quantise_faults()) {
    if (quantised_with(fault.fault, problem, inputs, before, earlier) == got) {
      return {std::string(fault.fault), std::string(fault.meaning)};
    }
  }
  return {};
}

namespace {

class QuantiseProof {
 public:
  QuantiseProof(const QuantiseStep& step, const Quantiser& quantiser, Memory& memory)
      : step_(step),
        problem_(step.problem),
        quantiser_(quantiser),
        memory_(memory),
        inputs_(inputs_of(step.problem)),
        outputs_(outputs_of(step.problem)) {}

  Verdict run(bool relations) {
    for (std::uint64_t draw = 0; draw < kQuantiseDraws; ++draw) {
      const bool shifted = draw % 2 != 0;
      launch_once(draw, (draw / 2 % 2 == 0) != shifted ? XGaps::kNan : XGaps::kHuge, shifted);
    }
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
  void launch_once(std::uint64_t draw, XGaps gaps, bool shifted) {
    if (verdict_.failed()) {
      return;
    }
    const QuantiseArrays inputs = draw_quantise_inputs(problem_, step_.seed + draw, gaps);
    const QuantiseArrays promised = promised_codes(problem_, inputs);
    ArrayBuffers buffers(memory_, inputs_, outputs_, shifted);
    buffers.put_inputs(inputs);
    const QuantiseArrays before = unlike(promised);
    buffers.put_outputs(before);
    memory_.synchronize();
    quantiser_.launch(problem_, buffers.operands(), Stream{});
    memory_.synchronize();
    const bool gapped = problem_.stride > problem_.columns;
    const char* const what = !gapped                ? ""
                             : gaps == XGaps::kHuge ? "with huge numbers in gaps"
                                                    : "with NaN in gaps";
    look(buffers, Level::kExact, what, inputs, promised, before);
  }

  // Recorded once; what it is replayed for lies over what the launch before left.
  void replays() {
    if (verdict_.failed()) {
      return;
    }
    const QuantiseArrays first = draw_quantise_inputs(problem_, step_.seed, XGaps::kNan);
    ArrayBuffers buffers(memory_, inputs_, outputs_);
    buffers.put_inputs(first);
    buffers.put_outputs(unlike(promised_codes(problem_, first)));
    const std::function<void()> run = memory_.record(
        [&](void* stream) { quantiser_.launch(problem_, buffers.operands(), Stream{stream}); });
    const int runs =
        memory_.space() == Space::kDevice ? kCodesReplayedOnDevice : kCodesReplayedOnHost;
    const QuantiseArrays promised = promised_codes(problem_, first);
    for (int turn = 0; turn < runs; ++turn) {
      replay(buffers, run, "replayed", first, promised);
    }
    for (const OtherNumbers& other : other_numbers(step_, first, step_.seed)) {
      replay(buffers, run, fmt::format("replayed {}", other.name), other.inputs,
             promised_codes(problem_, other.inputs));
      replay(buffers, run, "replayed for the first numbers again", first, promised);
    }
  }

  void replay(ArrayBuffers& buffers, const std::function<void()>& run, const std::string& what,
              const QuantiseArrays& inputs, const QuantiseArrays& promised) {
    if (verdict_.failed()) {
      return;
    }
    const QuantiseArrays before = buffers.outputs();
    buffers.put_inputs(inputs);
    memory_.synchronize();
    run();
    look(buffers, Level::kRelations, what, inputs, promised, before);
  }

  void look(const ArrayBuffers& buffers, Level level, const std::string& what,
            const QuantiseArrays& inputs, const QuantiseArrays& promised,
            const QuantiseArrays& before) {
    const QuantiseArrays got = buffers.outputs();
    verdict_.note(buffers, level, what, compare_codes(problem_, promised, got),
                  [&] { return diagnose_codes(problem_, inputs, before, earlier_, got); });
    earlier_ = inputs;
  }

  const QuantiseStep& step_;
  const QuantiseProblem& problem_;
  const Quantiser& quantiser_;
  Memory& memory_;
  ArrayShapes inputs_, outputs_;
  QuantiseArrays earlier_;  // inputs of the launch before
  ArrayVerdict verdict_;
};

}  // namespace

QuantiseArrays promised_codes(const QuantiseProblem& problem, const QuantiseArrays& inputs) {
  constexpr std::int64_t kNumbersAtOnce = 1 << 16;
  const std::int64_t at_once =
      std::max<std::int64_t>(1, kNumbersAtOnce / std::max<std::int64_t>(1, problem.columns));
  const std::int64_t parts = (problem.rows + at_once - 1) / at_once;
  const std::int64_t of_row = problem.scales.by_token ? problem.scales.across : 0;
  std::vector<float> given;
  if (problem.scales_given) {
    given.resize(static_cast<std::size_t>(problem.scale_count()));
    decode(Dtype::kFp32, inputs[1].data(), given);
  }
  std::vector<reference::Quantised> made(static_cast<std::size_t>(parts));
  const auto make = [&](const float* scales) {
    shared_thread_pool().run(parts, [&](std::int64_t part) {
      const std::int64_t first = part * at_once;
      made[static_cast<std::size_t>(part)] = reference::quantise(
          {.rule = oracle_rule(problem),
           .from = number_of(problem.from),
           .rows = std::min(at_once, problem.rows - first),
           .columns = problem.columns,
           .stride = problem.stride,
           .group = problem.scales.columns,
           .one_scale = !problem.scales.by_token,
           .x = inputs[0].data() + first * problem.stride * size_bytes(problem.from),
           .given = scales == nullptr ? nullptr : scales + first * of_row});
    });
  };
  make(problem.scales_given ? given.data() : nullptr);
  std::vector<float> scales;
  if (!problem.scales.by_token && !problem.scales_given && parts > 0) {
    // A scale grows with the largest number, so that of all rows is the largest of their parts.
    scales.assign(static_cast<std::size_t>(problem.scale_count()), 0.0F);
    for (const reference::Quantised& part : made) {
      scales[0] = std::max(scales[0], part.scales[0]);
    }
    make(scales.data());
  }
  QuantiseArrays outputs;
  for (const ArrayShape& array : outputs_of(problem)) {
    outputs.emplace_back();
    outputs.back().reserve(static_cast<std::size_t>(array.bytes()));
  }
  const auto append = [](std::vector<std::byte>& to, const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    to.insert(to.end(), bytes.begin(), bytes.end());
  };
  for (const reference::Quantised& part : made) {
    append(outputs[0], part.codes);
    if (!problem.scales_given && scales.empty()) {
      append(outputs[1], part.scales);
    }
  }
  if (!scales.empty()) {
    append(outputs[1], scales);
  }
  return outputs;
}

Verdict verify_quantise(const QuantiseStep& step, const Quantiser& quantiser, Memory& memory,
                        bool relations) {
  return QuantiseProof(step, quantiser, memory).run(relations);
}

std::vector<OtherNumbers> other_numbers(const QuantiseStep& step, const QuantiseArrays& inputs,
                                        std::uint64_t secret) {
  const QuantiseProblem& problem = step.problem;
  return {{"for other numbers", draw_quantise_inputs(problem, step.seed + 1, XGaps::kNan)},
          {"for smaller numbers", smaller(problem, inputs)},
          {"for one other number", with_one_number_changed(problem, inputs, secret)},
          {"for one other scale", with_one_scale_changed(problem, inputs, secret)},
          {"for zeros", of_zeros(problem, inputs)}};
}

}  // namespace lora_bench
