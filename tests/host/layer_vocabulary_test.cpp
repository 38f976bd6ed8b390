#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "core/dtype.h"
#include "layers/layer_engine.h"
#include "ops/backends.h"
#include "ops/vocabulary.h"
#include "support/layer_case.h"
#include "verify/layer_proof.h"

using namespace lora_bench;

namespace {

struct Ran {
  LayerTensors tensors;
  std::vector<Matrix> outputs;  // of each shard
};

Ran run(const LayerProblem& problem, bool with_lora = true) {
  const auto cpu = make_cpu_backend({.threads = 1, .isa = ""});
  const auto memory = make_host_memory();
  Ran ran{draw_layer_tensors(problem, Fill::kBounded, 3), {}};
  LayerEngine engine(problem, *cpu, *cpu, *memory);
  load_layer(engine, problem, ran.tensors);
  engine.forward(*make_local_communicator(Space::kHost), Stream{}, with_lora);
  for (std::int64_t rank = 0; rank < engine.shards(); ++rank) {
    ran.outputs.push_back(engine.output(rank));
  }
  CHECK(engine.damage().empty());
  return ran;
}

float at(const Matrix& matrix, std::int64_t row, std::int64_t column) {
  return load(matrix.dtype, matrix.data.data(), row * matrix.columns + column);
}

}  // namespace

TEST_CASE("logits end in the order of the whole vocabulary, without padding, on every shard") {
  LayerProblem whole = layer_problem(layer_of(LayerKind::kLogits, 1, false));
  const Ran undivided = run(whole);
  CHECK(undivided.outputs[0].columns == 43);
  for (const std::int64_t tp : {2, 4, 8}) {
    const LayerProblem problem = layer_problem(layer_of(LayerKind::kLogits, tp, false));
    CHECK(order_of_gathered(problem.layer).size() > 43);
    for (const Matrix& output : run(problem).outputs) {
      CHECK(output == undivided.outputs[0]);
    }
  }
}

TEST_CASE("logits that are gathered at the first shard are there alone, and are those of all") {
  for (const std::int64_t tp : {1, 2, 4}) {
    LayerProblem problem = layer_problem(layer_of(LayerKind::kLogits, tp, false));
    const Matrix everywhere = run(problem).outputs.back();
    const std::int64_t sent = exchanged_bytes(problem).y;
    problem.layer.gather_to = GatherTo::kFirst;
    const Ran ran = run(problem);
    CHECK(ran.outputs[0] == everywhere);
    for (std::size_t rank = 1; rank < ran.outputs.size(); ++rank) {
      CHECK(ran.outputs[rank].columns == 0);
      CHECK(columns_of_output(problem.layer, static_cast<std::int64_t>(rank)).empty());
    }
    CHECK(exchanged_bytes(problem).y * (tp == 1 ? 1 : tp - 1) == sent);
    const auto cpu = make_cpu_backend({.threads = 1, .isa = ""});
    const auto memory = make_host_memory();
    const Verdict verdict = verify_layer(problem, *cpu, *cpu, *memory, {.relations = true});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
  }
}

TEST_CASE("a vocabulary of one block needs no other order, and loses its padding") {
  ShardedLayer layer = layer_of(LayerKind::kLogits, 4, false);
  layer.widths = {43};
  layer.padding_unit = 1;
  const Ran divided = run(layer_problem(layer));
  layer.tp = 1;
  const Ran undivided = run(layer_problem(layer));
  CHECK(divided.outputs[3].columns == 43);
  CHECK(divided.outputs[3] == undivided.outputs[0]);
}

TEST_CASE("logits are capped, then scaled, once the adapters have added to them") {
  LayerProblem problem = layer_problem(layer_of(LayerKind::kLogits, 2, false), Dtype::kFp32);
  const Matrix plain = run(problem).outputs[1];
  problem.soft_cap = 1.5F;
  problem.logit_scale = 0.25F;
  const Matrix capped = run(problem).outputs[1];
  bool bends = false;
  for (std::int64_t column = 0; column < plain.columns; ++column) {
    const double value = static_cast<double>(at(plain, 0, column));
    const double expected = 0.25 * 1.5 * std::tanh(value / 1.5);
    CHECK(static_cast<double>(at(capped, 0, column)) == doctest::Approx(expected).epsilon(1e-5));
    bends = bends || std::fabs(value) > 1.5;
  }
  CHECK(bends);
}

TEST_CASE("an embedding without adapters is the row of its table, whichever shard has it") {
  for (const std::int64_t tp : {1, 2, 8}) {
    const LayerProblem problem = layer_problem(layer_of(LayerKind::kVocabEmbedding, tp, false));
    const Ran ran = run(problem, false);
    for (const Matrix& output : ran.outputs) {
      for (std::int64_t token = 0; token < problem.lora.tokens; ++token) {
        const std::int64_t id = ran.tensors.ids[static_cast<std::size_t>(token)];
        for (std::int64_t column = 0; column < output.columns; ++column) {
          CHECK(at(output, token, column) == at(ran.tensors.w, column, id));
        }
      }
    }
  }
}

TEST_CASE("an embedding has the same bits however its vocabulary is divided") {
  const Matrix undivided =
      run(layer_problem(layer_of(LayerKind::kVocabEmbedding, 1, false))).outputs[0];
  for (const std::int64_t tp : {2, 4, 8}) {
    // 96 ids among 7 do not divide either.
    for (const Matrix& output :
         run(layer_problem(layer_of(LayerKind::kVocabEmbedding, tp, false))).outputs) {
      CHECK(output == undivided);
    }
  }
  CHECK(run(layer_problem(layer_of(LayerKind::kVocabEmbedding, 7, false))).outputs[6] == undivided);
  CHECK(shard_of(layer_of(LayerKind::kVocabEmbedding, 7, false), 6).inputs == IndexRange{84, 12});
}

TEST_CASE("an id that an adapter added finds that adapter's row, whichever shard has it") {
  for (const std::int64_t tp : {1, 2, 8}) {
    ShardedLayer layer = layer_of(LayerKind::kVocabEmbedding, tp, false);
    layer.extra = 5;  // which 2 and 8 do not divide
    const LayerProblem problem = layer_problem(layer);
    const Ran ran = run(problem, false);
    int added = 0;
    for (std::int64_t token = 0; token < problem.lora.tokens; ++token) {
      const std::int64_t id = ran.tensors.ids[static_cast<std::size_t>(token)];
      const std::int32_t slot = problem.lora.plan.adapter_of_token[static_cast<std::size_t>(token)];
      const std::int64_t column = id < 96 ? id : 96 + slot * 5 + (id - 96);
      added += id < 96 ? 0 : 1;
      for (const Matrix& output : ran.outputs) {
        for (std::int64_t i = 0; i < output.columns; ++i) {
          CHECK(at(output, token, i) == at(ran.tensors.w, i, column));
        }
      }
    }
    CHECK(added > 0);
    const auto cpu = make_cpu_backend({.threads = 1, .isa = ""});
    const auto memory = make_host_memory();
    const Verdict verdict = verify_layer(problem, *cpu, *cpu, *memory, {.relations = true});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
  }
}

TEST_CASE("rows of a table that another shard has are zeros") {
  const std::vector<float> table{1, 2, 3, 4};
  const std::vector<std::int32_t> ids{9, 10, 11, 12, 0};
  std::vector<float> rows(10, 7.0F);
  read_table(Space::kHost,
             {.dtype = Dtype::kFp32,
              .table = table.data(),
              .ids = ids.data(),
              .to = rows.data(),
              .rows = 5,
              .columns = 2,
              .first = 10,
              .count = 2,
              .vocabulary = 13},
             Stream{});
  CHECK(rows == std::vector<float>{0, 0, 1, 2, 3, 4, 0, 0, 0, 0});
}

TEST_CASE("layers of a vocabulary do not run beside their base, since they add after it") {
  for (const LayerKind kind : {LayerKind::kLogits, LayerKind::kVocabEmbedding}) {
    const ShardedLayer layer = layer_of(kind, 2, false);
    CHECK(why_not_overlapped(layer, Comm::kNone, Overlap::kAuto).empty());
    CHECK_FALSE(why_not_overlapped(layer, Comm::kNone, Overlap::kDelta).empty());
  }
}
