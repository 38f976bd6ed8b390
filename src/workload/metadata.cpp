#include "workload/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "core/error.h"
#include "plan/forms.h"
#include "workload/fill_sizes.h"

namespace lora_bench {
namespace {

bool of_samples(Form form) { return form == Form::kSampler; }

// The ids of the sequences in the table: distinct, with holes between them.
std::vector<std::int32_t> drawn_requests(std::int64_t sequences, std::int64_t requests,
                                         std::uint64_t seed) {
  std::vector<std::int64_t> order = random_order(requests, seed, stream_of(Draw::kRequest));
  order.resize(static_cast<std::size_t>(sequences));
  return {order.begin(), order.end()};
}

std::vector<std::int64_t> widened(const std::vector<std::int32_t>& values) {
  return {values.begin(), values.end()};
}

template <typename Value>
std::vector<std::byte> bytes_of(const std::vector<Value>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(Value));
  if (!bytes.empty()) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  return bytes;
}

std::vector<FilledArray> filled(const KernelForm& form) {
  // Nothing is launched without an adapter: nobody reads the order then.
  const bool read = !form.no_adapter;
  return {{read ? widened(form.adapter_of_token) : std::vector<std::int64_t>{}},
          {read ? widened(form.token_order) : std::vector<std::int64_t>{}},
          {widened(form.active_ids)},
          {widened(form.counts)},
          {widened(form.starts)},
          {{form.active}},
          {{form.no_adapter ? 1 : 0}}};
}

std::vector<FilledArray> filled(const PrefillForm& form) {
  return {{widened(form.starts)},     {widened(form.lengths)}, {widened(form.adapters)},
          {{form.batch_size()}},      {{form.longest}},        {{form.tokens}},
          {{form.no_adapter ? 1 : 0}}};
}

std::vector<FilledArray> filled(AlignForm form) {
  return {{std::move(form.pair_order)},
          {std::move(form.expert_of_block)},
          {std::move(form.padded_pairs)},
          {widened(form.active_ids)},
          {widened(form.enabled)}};
}

std::vector<FilledArray> filled(const ChunkedForm& form, std::int64_t most_segments) {
  std::vector<std::int64_t> starts = widened(form.segment_starts);
  starts.resize(static_cast<std::size_t>(most_segments) + 1, starts.back());
  std::vector<std::int64_t> scale;
  for (const float factor : form.scale) {
    scale.push_back(std::bit_cast<std::int32_t>(factor));
  }
  return {{widened(form.permutation)},
          {std::move(starts)},
          {widened(form.adapter_of_segment)},
          {widened(form.rank)},
          {std::move(scale)},
          {{form.segments()}},
          {{form.chunk}}};
}

// Rows that the batch has not chose nothing.
void draw_choices(const Case& spec, const Batch& batch, MetadataStep& step) {
  if (!spec.experts.any()) {
    throw UsageError(fmt::format(
        "{}: form align lists the experts of rows, and this case has none; allowed: a case with "
        "experts.count",
        spec.id));
  }
  step.problem.experts = spec.experts.count;
  step.problem.top_k = spec.experts.top_k;
  step.problem.block = spec.metadata.block;
  step.engine.expert_of_choice = batch.expert_of_choice;
  step.engine.expert_of_choice.resize(static_cast<std::size_t>(step.problem.pairs()), -1);
}

}  // namespace

std::int64_t MetadataProblem::most_segments() const {
  return lora_bench::most_segments(tokens, segment_slots(), chunk);
}

std::int64_t MetadataProblem::most_pairs() const { return most_listed(pairs(), experts, block); }

std::vector<std::int32_t> EngineStep::adapters_of(const std::vector<std::int32_t>& rows) const {
  std::vector<std::int32_t> adapters;
  adapters.reserve(rows.size());
  for (const std::int32_t request : rows) {
    if (request < -1 || request >= std::ssize(slot_of_request)) {
      throw std::invalid_argument(
          fmt::format("request {} of a table of {}", request, slot_of_request.size()));
    }
    adapters.push_back(request < 0 ? kNoAdapter
                                   : slot_of_request[static_cast<std::size_t>(request)]);
  }
  return adapters;
}

MetadataStep draw_metadata(const Case& spec, const Batch& batch, const Adapters& adapters) {
  const MetadataSpec& asked = spec.metadata;
  const auto sequences = static_cast<std::int64_t>(batch.sequences.size());
  MetadataStep step;
  MetadataProblem& problem = step.problem;
  problem.form = asked.form;
  problem.tokens = static_cast<std::int64_t>(batch.adapter_of_token.size());
  problem.samples = sequences * asked.samples;
  problem.requests = asked.requests > 0 ? asked.requests : std::max<std::int64_t>(1, 2 * sequences);
  problem.slots = spec.adapters.slots;
  problem.vocabulary = asked.vocabulary;
  problem.extra_vocabulary = asked.extra_vocabulary;
  problem.chunk = chunk_of_batch(problem.tokens, spec.plan.largest_chunk);
  problem.idle_segments = spec.plan.idle_segments;

  EngineStep& engine = step.engine;
  const std::vector<std::int32_t> ids = drawn_requests(sequences, problem.requests, spec.seed);
  engine.slot_of_request.assign(static_cast<std::size_t>(problem.requests), kNoAdapter);
  engine.request_of_token.assign(batch.adapter_of_token.size(), kNoAdapter);
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
    const Sequence& sequence = batch.sequences[i];
    engine.slot_of_request[static_cast<std::size_t>(ids[i])] = sequence.adapter;
    std::fill_n(engine.request_of_token.begin() + sequence.first_token, sequence.tokens, ids[i]);
    engine.request_of_sample.insert(engine.request_of_sample.end(),
                                    static_cast<std::size_t>(asked.samples), ids[i]);
  }
  engine.rank.assign(adapters.rank.begin(), adapters.rank.end());
  engine.scale = adapters.scale;
  if (problem.form == Form::kAlign) {
    draw_choices(spec, batch, step);
  }
  return step;
}

std::vector<MetadataArray> inputs_of(const MetadataProblem& problem) {
  std::vector<MetadataArray> inputs;
  inputs.push_back(of_samples(problem.form)
                       ? MetadataArray{"request_of_sample", "", Index::kInt32, problem.samples}
                       : MetadataArray{"request_of_token", "", Index::kInt32, problem.tokens});
  inputs.push_back({"slot_of_request", "", Index::kInt32, problem.requests});
  if (problem.form == Form::kChunked) {
    inputs.push_back({"rank", "", Index::kInt32, problem.slots});
    inputs.push_back({"scale", "", Index::kFloat32, problem.slots});
  }
  if (problem.form == Form::kAlign) {
    inputs.push_back({"expert_of_choice", "", Index::kInt32, problem.pairs()});
  }
  return inputs;
}

std::vector<MetadataArray> outputs_of(const MetadataProblem& problem) {
  const std::int64_t tokens = problem.tokens;
  const std::int64_t slots = problem.slots;
  switch (problem.form) {
    case Form::kKernel:
      return {{"adapter_of_token", "token_lora_mapping", Index::kInt32, tokens},
              {"token_order", "token_indices_sorted_by_lora_ids", Index::kInt32, tokens},
              {"active_ids", "active_lora_ids", Index::kInt32, slots + 1},
              {"counts", "num_tokens_per_lora", Index::kInt32, slots + 1},
              {"starts", "lora_token_start_loc", Index::kInt32, slots + 2},
              {"active", "num_active_loras", Index::kInt32, 1},
              {"no_adapter", "no_lora_flag", Index::kInt32, 1}};
    case Form::kPrefill:
      return {{"starts", "seq_start_locs", Index::kInt32, tokens},
              {"lengths", "seq_lengths", Index::kInt32, tokens},
              {"adapters", "lora_indices_per_batch", Index::kInt32, tokens},
              {"batch_size", "batch_size", Index::kInt32, 1},
              {"longest", "max_length", Index::kInt32, 1},
              {"tokens", "token_nums", Index::kInt32, 1},
              {"no_adapter", "no_lora", Index::kInt32, 1}};
    case Form::kSampler:
      return {{"adapters", "sampler_indices", Index::kInt32, problem.samples},
              {"padded", "sampler_indices_padded", Index::kInt64, problem.samples}};
    case Form::kEmbedding:
      return {{"extra", "embeddings_indices[0]", Index::kInt64, tokens},
              {"table", "embeddings_indices[1]", Index::kInt64, tokens}};
    case Form::kChunked:
      return {{"permutation", "permutation", Index::kInt32, tokens},
              {"segment_starts", "seg_indptr", Index::kInt32, problem.most_segments() + 1},
              {"adapter_of_segment", "weight_indices", Index::kInt32, problem.most_segments()},
              {"rank", "lora_ranks", Index::kInt32, problem.segment_slots()},
              {"scale", "scalings", Index::kFloat32, problem.segment_slots()},
              {"segments", "num_segments", Index::kInt32, 1},
              {"chunk", "max_len", Index::kInt32, 1}};
    case Form::kAlign: {
      const std::int64_t room = problem.most_pairs();
      return {{"pair_order", "sorted_token_ids", Index::kInt32, slots * room},
              {"expert_of_block", "expert_ids", Index::kInt32, slots * (room / problem.block)},
              {"padded_pairs", "num_tokens_post_padded", Index::kInt32, slots},
              {"active_ids", "lora_ids", Index::kInt32, slots + 1},
              {"enabled", "adapter_enabled", Index::kInt32, slots + 1}};
    }
  }
  return {};
}

ArrayShapes shapes_of(const std::vector<MetadataArray>& arrays) {
  ArrayShapes shapes;
  for (const MetadataArray& array : arrays) {
    shapes.push_back({array.name, array.elements, array.element_bytes()});
  }
  return shapes;
}

std::vector<std::vector<std::byte>> input_bytes(const MetadataProblem& problem,
                                                const EngineStep& engine) {
  std::vector<std::vector<std::byte>> inputs{
      bytes_of(of_samples(problem.form) ? engine.request_of_sample : engine.request_of_token),
      bytes_of(engine.slot_of_request)};
  if (problem.form == Form::kChunked) {
    inputs.push_back(bytes_of(engine.rank));
    inputs.push_back(bytes_of(engine.scale));
  }
  if (problem.form == Form::kAlign) {
    inputs.push_back(bytes_of(engine.expert_of_choice));
  }
  return inputs;
}

EngineStep engine_at(const MetadataProblem& problem, const std::vector<const void*>& inputs) {
  EngineStep engine;
  const std::vector<MetadataArray> arrays = inputs_of(problem);
  const auto take = [&](std::size_t input, auto& values) {
    values.resize(static_cast<std::size_t>(arrays[input].elements));
    if (!values.empty()) {
      std::memcpy(values.data(), inputs[input], static_cast<std::size_t>(arrays[input].bytes()));
    }
  };
  take(0, of_samples(problem.form) ? engine.request_of_sample : engine.request_of_token);
  take(1, engine.slot_of_request);
  if (problem.form == Form::kChunked) {
    take(2, engine.rank);
    take(3, engine.scale);
  }
  if (problem.form == Form::kAlign) {
    take(2, engine.expert_of_choice);
  }
  return engine;
}

std::vector<FilledArray> make_metadata(const MetadataProblem& problem, const EngineStep& engine) {
  const std::vector<std::int32_t> adapters = engine.adapters_of(
      of_samples(problem.form) ? engine.request_of_sample : engine.request_of_token);
  switch (problem.form) {
    case Form::kKernel:
      return filled(make_kernel_form(make_plan(adapters, problem.slots), problem.slots));
    case Form::kPrefill:
      check_adapter_ids(adapters, problem.slots);
      return filled(make_prefill_form(adapters));
    case Form::kSampler: {
      const SamplerIndices form = make_sampler_indices(adapters, problem.slots);
      return {{widened(form.adapters)}, {form.padded}};
    }
    case Form::kEmbedding: {
      const EmbeddingIndices form = make_embedding_indices(
          adapters, problem.slots, problem.vocabulary, problem.extra_vocabulary);
      return {{form.extra}, {form.table}};
    }
    case Form::kChunked: {
      const std::vector<std::int64_t> rank(engine.rank.begin(), engine.rank.end());
      return filled(make_chunked_form(make_plan(adapters, problem.slots), rank, engine.scale,
                                      problem.chunk, problem.idle_segments),
                    problem.most_segments());
    }
    case Form::kAlign:
      return filled(make_align_form(adapters, problem.slots, engine.expert_of_choice,
                                    {problem.experts, problem.top_k, problem.block}));
  }
  return {};
}

std::int64_t index_at(const MetadataArray& array, const std::byte* first, std::int64_t index) {
  std::int32_t narrow = 0;
  std::int64_t wide = 0;
  const bool is_wide = array.type == Index::kInt64;
  std::memcpy(is_wide ? static_cast<void*>(&wide) : &narrow, first + index * array.element_bytes(),
              static_cast<std::size_t>(array.element_bytes()));
  return is_wide ? wide : narrow;
}

void put_index(const MetadataArray& array, std::byte* first, std::int64_t index,
               std::int64_t value) {
  const auto narrow = static_cast<std::int32_t>(value);
  const bool is_wide = array.type == Index::kInt64;
  std::memcpy(first + index * array.element_bytes(),
              is_wide ? static_cast<const void*>(&value) : &narrow,
              static_cast<std::size_t>(array.element_bytes()));
}

void put_filled(const MetadataArray& array, std::byte* first, const FilledArray& filled) {
  for (std::size_t entry = 0; entry < filled.values.size(); ++entry) {
    if (filled.values[entry] != kLeftAlone) {
      put_index(array, first, static_cast<std::int64_t>(entry), filled.values[entry]);
    }
  }
}

std::string index_text(const MetadataArray& array, std::int64_t value) {
  if (value == kLeftAlone) {
    return ".";
  }
  return array.type == Index::kFloat32
             ? fmt::format("{}", std::bit_cast<float>(static_cast<std::int32_t>(value)))
             : fmt::format("{}", value);
}

}  // namespace lora_bench
