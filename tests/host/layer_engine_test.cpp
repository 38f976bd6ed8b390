#include "layers/layer_engine.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "ops/backends.h"
#include "support/layer_bench.h"
#include "support/layer_case.h"
#include "support/plain_backend.h"
#include "verify/layer_proof.h"
#include "verify/mutants.h"

using namespace lora_bench;

namespace {

// The whole y from what the shards ended with.
Matrix whole_output(const LayerEngine& engine, const LayerProblem& problem) {
  const std::int64_t size = size_bytes(problem.lora.dtype[Role::kY]);
  Matrix whole{problem.lora.dtype[Role::kY], problem.lora.tokens, problem.columns(), {}};
  whole.data.resize(static_cast<std::size_t>(whole.rows * whole.columns * size));
  for (std::int64_t rank = 0; rank < engine.shards(); ++rank) {
    const Matrix part = engine.output(rank);
    const std::vector<std::int64_t> columns = columns_of_output(problem.layer, rank);
    for (std::int64_t row = 0; row < whole.rows; ++row) {
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::int64_t from = row * part.columns + static_cast<std::int64_t>(i);
        std::copy_n(part.data.begin() + from * size, size,
                    whole.data.begin() + (row * whole.columns + columns[i]) * size);
      }
    }
  }
  return whole;
}

Matrix run_whole(const LayerBench& bench, const LayerProblem& problem, const LayerTensors& tensors,
                 bool with_lora = true) {
  LayerEngine engine = bench.engine(problem);
  load_layer(engine, problem, tensors);
  bench.forward(engine, with_lora);
  return whole_output(engine, problem);
}

LayerProblem undivided(LayerProblem problem) {
  problem.layer.tp = 1;
  problem.layer.fully_sharded = false;
  problem.layer.gather_output = false;
  return problem;
}

}  // namespace

TEST_CASE("every kind of layer, divided in every way, is the layer that is not divided") {
  const LayerBench bench;
  for (LayerProblem problem : all_layers()) {
    problem.base_bias = true;
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
      INFO(told(problem), " ", name(dtype));
      problem.lora.dtype = OperandDtypes(dtype, problem.lora.dtype[Role::kH]);
      problem.lora.dtype[Role::kH] = dtype == Dtype::kFp16 ? dtype : Dtype::kFp32;
      problem.lora.scale_at = dtype == Dtype::kFp16 ? ScaleAt::kExpand : ScaleAt::kShrink;
      const Verdict verdict =
          verify_layer(problem, *bench.backend, *bench.backend, *bench.memory, {});
      CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
      CHECK(verdict.rows_checked == 1.0);
    }
  }
}

TEST_CASE(
    "shards of columns have the bits of the whole layer, terms of a row where sums are exact") {
  const LayerBench bench;
  for (LayerProblem problem : all_layers()) {
    INFO(told(problem));
    const bool terms = description_of(problem.layer.kind).y == Exchange::kReduce;
    problem.lora.dtype =
        OperandDtypes(terms ? Dtype::kFp32 : Dtype::kBf16, problem.lora.dtype[Role::kH]);
    const LayerTensors tensors =
        draw_layer_tensors(problem, terms ? Fill::kExact : Fill::kBounded, 3);
    CHECK(run_whole(bench, problem, tensors) == run_whole(bench, undivided(problem), tensors));
  }
}

TEST_CASE("gathered columns lie as in the layer that is not divided, on every shard") {
  const LayerBench bench;
  int gathered = 0;
  for (LayerProblem problem : all_layers()) {
    if (!description_of(problem.layer.kind).may_gather) {
      continue;
    }
    INFO(told(problem));
    problem.layer.gather_output = true;
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    const Matrix whole = bench.run(undivided(problem), tensors).front();
    LayerEngine engine = bench.engine(problem);
    load_layer(engine, problem, tensors);
    for (const Matrix& output : bench.forward(engine)) {
      CHECK(output == whole);
    }
    CHECK(bench.verdict(engine, problem, tensors).status == Status::kPassed);
    ++gathered;
  }
  CHECK(gathered > 40);
}

TEST_CASE("a row layer has the same bits whether its input is split already or not") {
  const LayerBench bench;
  for (const bool fully_sharded : {false, true}) {
    for (const std::int64_t tp : {1, 2, 8}) {
      LayerProblem problem = layer_problem(layer_of(LayerKind::kRow, tp, fully_sharded));
      const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
      const Matrix strided = run_whole(bench, problem, tensors);
      problem.layer.input_split = true;
      CHECK(shard_problem(problem, 0).base.x_stride == 96 / tp);
      CHECK(run_whole(bench, problem, tensors) == strided);
    }
  }
}

TEST_CASE("terms that a row layer keeps add up to the layer, and each is proved by itself") {
  const LayerBench bench;
  for (const bool fully_sharded : {false, true}) {
    LayerProblem problem = layer_problem(layer_of(LayerKind::kRow, 4, fully_sharded), Dtype::kFp32);
    problem.base_bias = true;
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kExact, 3);
    const Matrix whole = bench.run(problem, tensors).front();
    problem.layer.reduce_results = false;
    CHECK(exchanged_bytes(problem).y == 0);
    const std::vector<Matrix> terms = bench.run(problem, tensors);
    for (std::int64_t i = 0; i < whole.rows * whole.columns; ++i) {
      float sum = 0;
      for (const Matrix& term : terms) {
        sum += load(term.dtype, term.data.data(), i);
      }
      CHECK(sum == load(whole.dtype, whole.data.data(), i));
    }
    const Verdict verdict =
        verify_layer(problem, *bench.backend, *bench.backend, *bench.memory, {.relations = true});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    // One term in the place of another is wrong, though the sum would be the same.
    LayerEngine engine = bench.engine(problem);
    load_layer(engine, problem, tensors);
    std::vector<Matrix> swapped = bench.forward(engine);
    std::swap(swapped[0], swapped[1]);
    const reference::LayerRows oracle =
        layer_oracle(problem, tensors, layer_arithmetic(problem, *bench.backend, *bench.backend),
                     sample_rows(problem.lora, 256, 1));
    CHECK(compare_shards(problem, oracle, swapped).status == Status::kFailed);
  }
}

TEST_CASE("a bias of adapters is added once, to the columns that are its own") {
  const LayerBench bench;
  for (LayerProblem problem : all_layers()) {
    INFO(told(problem));
    problem.lora.bias = true;
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    LayerTensors without = tensors;  // B of zeros: the bias is all that an adapter adds
    for (HostTensor& b : without.lora.b) {
      std::fill(b.data.begin(), b.data.end(), std::byte{0});
    }
    const Verdict verdict =
        verify_layer(problem, *bench.backend, *bench.backend, *bench.memory, {.relations = true});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    LayerEngine engine = bench.engine(problem);
    load_layer(engine, problem, without);
    bench.forward(engine);
    const Verdict of_bias = bench.verdict(engine, problem, without);
    CHECK_MESSAGE(of_bias.status == Status::kPassed, of_bias.message);
    CHECK(bench.verdict(engine, problem, tensors).status == Status::kFailed);
  }
}

TEST_CASE("a bias that is skipped is returned and not added") {
  const LayerBench bench;
  LayerProblem problem = layer_problem(layer_of(LayerKind::kRow, 2, true));
  problem.base_bias = true;
  problem.skip_bias_add = true;
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  LayerEngine engine = bench.engine(problem);
  load_layer(engine, problem, tensors);
  bench.forward(engine);
  CHECK(engine.returned_bias() == tensors.bias);
  LayerProblem without = problem;
  without.base_bias = false;
  CHECK(whole_output(engine, problem) == run_whole(bench, without, tensors));
}

TEST_CASE("what a slot held leaves no trace in its next adapter") {
  const LayerBench bench;
  for (const LayerProblem& problem : all_layers()) {
    INFO(told(problem));
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    // Each slot first held an adapter of the highest rank with every block.
    LayerProblem before = problem;
    before.lora.rank = {16, 16, 16, 16, 16};
    const LayerTensors stale = draw_layer_tensors(before, Fill::kBounded, 4);
    LayerEngine engine = bench.engine(problem);
    load_layer(engine, before, stale);
    bench.forward(engine);
    load_layer(engine, problem, tensors);
    bench.forward(engine);
    CHECK(whole_output(engine, problem) == run_whole(bench, problem, tensors));
    for (std::int64_t slot = 0; slot < problem.lora.slots; ++slot) {
      engine.reset_adapter(slot);
    }
    bench.forward(engine);
    CHECK(whole_output(engine, problem) == run_whole(bench, problem, tensors, false));
  }
}

TEST_CASE("a block that an adapter leaves alone gets nothing, and its neighbours their own") {
  const LayerBench bench;
  for (const LayerKind kind : {LayerKind::kMergedColumn, LayerKind::kMergedQkv}) {
    for (const bool fully_sharded : {false, true}) {
      const LayerProblem problem = layer_problem(layer_of(kind, 4, fully_sharded));
      INFO(told(problem));
      LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
      LayerEngine engine = bench.engine(problem);
      load_layer(engine, problem, tensors);
      AdapterWeights without_first = adapter_of(problem, tensors, 0);
      without_first.a[0].reset();
      without_first.b[0].reset();
      engine.set_adapter(0, without_first, tensors.lora.scale[0]);
      bench.forward(engine);
      // To the oracle: B of zeros.
      const std::int64_t numbers = problem.lora.widths[0] * problem.lora.max_rank;
      std::fill_n(tensors.lora.b[0].data.begin(),
                  numbers * size_bytes(problem.lora.dtype[Role::kY]), std::byte{0});
      const Verdict verdict = bench.verdict(engine, problem, tensors);
      CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    }
  }
}

TEST_CASE("a packed pair is the same as one pair for each output that it covers") {
  const LayerBench bench;
  for (const LayerKind kind : {LayerKind::kMergedColumn, LayerKind::kMergedColumnVariable}) {
    for (const bool fully_sharded : {false, true}) {
      LayerProblem problem = layer_problem(layer_of(kind, 4, fully_sharded));
      if (!why_not_sharded(problem.layer).empty()) {
        continue;
      }
      INFO(told(problem));
      const std::size_t blocks = problem.layer.widths.size();
      LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
      for (std::size_t block = 1; block < blocks; ++block) {
        tensors.lora.a[block] = tensors.lora.a[0];
      }
      const Matrix apart = run_whole(bench, problem, tensors);
      problem.packed = {static_cast<std::int64_t>(blocks)};
      CHECK(adapter_of(problem, tensors, 0).b.size() == 1);
      CHECK(run_whole(bench, problem, tensors) == apart);
      problem.packed = {1, static_cast<std::int64_t>(blocks) - 1};
      CHECK(adapter_of(problem, tensors, 0).b.size() == 2);
      CHECK(run_whole(bench, problem, tensors) == apart);
      const Verdict verdict =
          verify_layer(problem, *bench.backend, *bench.backend, *bench.memory, {.relations = true});
      CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    }
  }
}

TEST_CASE("blocks that a list says are missing are base alone, all others are not") {
  const LayerBench bench;
  for (const LayerKind kind : {LayerKind::kMergedQkv, LayerKind::kMergedColumnVariable}) {
    for (const std::int64_t tp : {1, 4}) {
      LayerProblem problem = layer_problem(layer_of(kind, tp, false));
      problem.missing = {{1}, {}, {0, 2}};  // slot 3 as slot 0
      INFO(told(problem));
      const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
      const Matrix base = run_whole(bench, problem, tensors, false);
      const Matrix layer = run_whole(bench, problem, tensors);
      for (std::int64_t row = 0; row < layer.rows; ++row) {
        const std::int32_t slot = problem.lora.plan.adapter_of_token[static_cast<std::size_t>(row)];
        std::int64_t first = 0;
        for (std::size_t block = 0; block < problem.layer.widths.size(); ++block) {
          const std::int64_t width = problem.layer.widths[block];
          const bool adds = slot >= 0 && problem.lora.rank[static_cast<std::size_t>(slot)] > 0 &&
                            !(slot % 3 == 0 && block == 1) && !(slot == 2 && block != 1);
          const bool same =
              cut(base, {row, 1}, {first, width}) == cut(layer, {row, 1}, {first, width});
          CHECK(same == (!adds || width == 0));
          first += width;
        }
      }
      const Verdict verdict =
          verify_layer(problem, *bench.backend, *bench.backend, *bench.memory, {.relations = true});
      CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    }
  }
}

TEST_CASE("another batch is activated without loading anything anew") {
  const LayerBench bench;
  LayerProblem problem = layer_problem(layer_of(LayerKind::kMergedQkv, 4, true));
  LayerProblem other = problem;
  const std::vector<std::int32_t> ids{4, 4, 1, -1, 0, 0, 0, 3, 2};
  other.lora.plan = make_plan(ids, other.lora.slots);
  // Both batches' adapters and rows hold numbers.
  LayerProblem every = problem;
  const std::vector<std::int32_t> used{0, 1, 2, 3, 4, 0, 1, 2, 3};
  every.lora.plan = make_plan(used, every.lora.slots);
  const LayerTensors tensors = draw_layer_tensors(every, Fill::kBounded, 3);
  LayerEngine engine = bench.engine(problem);
  load_layer(engine, every, tensors);
  bench.forward(engine);
  engine.activate(other.lora.plan);
  bench.forward(engine);
  CHECK(whole_output(engine, problem) == run_whole(bench, other, tensors));
}

TEST_CASE("an engine that took over what another had loaded gives its bits") {
  const LayerBench bench;
  for (LayerProblem problem : all_layers()) {
    INFO(told(problem));
    problem.base_bias = true;
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    LayerEngine loaded = bench.engine(problem);
    load_layer(loaded, problem, tensors);
    LayerEngine engine = bench.engine(problem);
    engine.load_from(loaded);
    CHECK(engine.changed_input(loaded).empty());
    bench.forward(engine);
    CHECK(whole_output(engine, problem) == run_whole(bench, problem, tensors));
  }
}

TEST_CASE("shards that lie in memories of their own end with the bits of shards in one") {
  const LayerBench bench;
  for (LayerProblem problem : all_layers()) {
    INFO(told(problem));
    problem.base_bias = true;
    std::vector<std::unique_ptr<Memory>> memories;
    std::vector<ShardPlace> places;
    for (std::int64_t rank = 0; rank < problem.layer.tp; ++rank) {
      memories.push_back(make_host_memory());
      places.push_back({*bench.backend, *bench.backend, *memories.back()});
    }
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    LayerEngine loaded(problem, places);
    load_layer(loaded, problem, tensors);
    LayerEngine engine(problem, places);
    engine.load_from(loaded);
    bench.forward(engine);
    CHECK(engine.changed_input(loaded).empty());
    CHECK(whole_output(engine, problem) == run_whole(bench, problem, tensors));
  }
}

TEST_CASE("sums that round after each term have a wider bound, and no wider than that") {
  const LayerBench bench;
  for (const std::int64_t tp : {2, 8}) {
    LayerProblem problem = layer_problem(layer_of(LayerKind::kRow, tp, false));
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    reference::LayerArithmetic arithmetic =
        layer_arithmetic(problem, *bench.backend, *bench.backend);
    const std::vector<std::int64_t> rows = sample_rows(problem.lora, 256, 1);
    const reference::LayerRows once = layer_oracle(problem, tensors, arithmetic, rows);
    arithmetic.rounds_each_sum = true;
    const reference::LayerRows each = layer_oracle(problem, tensors, arithmetic, rows);
    // Terms as they are stored, added in bf16 backwards.
    std::vector<double> sum(each.rows.expected.size());
    LayerEngine engine = bench.engine(problem);
    load_layer(engine, problem, tensors);
    for (std::int64_t rank = tp - 1; rank >= 0; --rank) {
      engine.run_before_h(rank, true, Stream{});
      const Matrix term = engine.output(rank);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] = reference::round_to(
            reference::Number::kBf16,
            sum[i] + load(term.dtype, term.data.data(), static_cast<std::int64_t>(i)));
      }
    }
    bool once_is_enough = true;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const double error = std::fabs(sum[i] - each.rows.expected[i]);
      const double last = reference::spacing(reference::Number::kBf16, sum[i]) / 2;
      CHECK(error <= each.rows.bound[i] + last);
      once_is_enough = once_is_enough && error <= once.rows.bound[i] + last;
      CHECK(each.rows.bound[i] > once.rows.bound[i]);
      CHECK(each.rows.bound[i] < static_cast<double>(2 * tp) * (once.rows.bound[i] + last));
    }
    CHECK((tp == 2 || !once_is_enough));
  }
}

TEST_CASE("where the product adds the bias, it gives y and nothing is added after it") {
  LayerProblem problem = layer_problem(layer_of(LayerKind::kRow, 2, false));
  problem.base_bias = true;
  CHECK(shard_problem(problem, 0).base.dtype[Role::kH] == Dtype::kFp32);
  CHECK_FALSE(shard_problem(problem, 0).base.bias);
  problem.bias_in_product = true;
  CHECK(shard_problem(problem, 0).base.dtype[Role::kH] == Dtype::kBf16);
  CHECK(shard_problem(problem, 0).base.bias);
  CHECK_FALSE(shard_problem(problem, 1).base.bias);  // the first term has it
}

TEST_CASE("rows without adapter are the base layer's, bit for bit") {
  const LayerBench bench;
  for (const LayerProblem& problem : all_layers()) {
    INFO(told(problem));
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    const Matrix base = run_whole(bench, problem, tensors, false);
    const Matrix layer = run_whole(bench, problem, tensors);
    const std::int64_t bytes = base.columns * size_bytes(base.dtype);
    for (const std::int64_t row : {2, 6, 7}) {
      CHECK(std::equal(base.data.begin() + row * bytes, base.data.begin() + (row + 1) * bytes,
                       layer.data.begin() + row * bytes));
    }
    CHECK(!(base == layer));
  }
}

TEST_CASE("the oracle of a layer catches what is wrong") {
  const LayerBench bench;
  const LayerProblem problem = layer_problem(layer_of(LayerKind::kRow, 2, true));
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  LayerEngine engine = bench.engine(problem);
  load_layer(engine, problem, tensors);
  bench.forward(engine, false);
  const Verdict verdict = bench.verdict(engine, problem, tensors);
  CHECK(verdict.status == Status::kFailed);
  CHECK(verdict.message.find("shard 0, token 0 (adapter 1), column") != std::string::npos);
}

TEST_CASE("bounds that what no adapter added would lie in prove nothing of a layer") {
  const LayerBench bench;
  const LayerProblem problem = layer_problem(layer_of(LayerKind::kRow, 2, true));
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  LayerEngine engine = bench.engine(problem);
  load_layer(engine, problem, tensors);
  bench.forward(engine);
  reference::LayerRows oracle =
      layer_oracle(problem, tensors, layer_arithmetic(problem, *bench.backend, *bench.backend),
                   sample_rows(problem.lora, 256, 1));
  CHECK(compare_layer(engine, problem, oracle).status == Status::kPassed);
  for (double& bound : oracle.rows.bound) {
    bound = 1e6;
  }
  CHECK(compare_layer(engine, problem, oracle).status == Status::kMistrusted);
}

TEST_CASE("a launch that changes a weight, the plan or a scale, or writes behind y, is found") {
  const LayerBench bench;
  for (const bool fully_sharded : {false, true}) {
    const LayerProblem problem = layer_problem(layer_of(LayerKind::kQkv, 2, fully_sharded));
    INFO(told(problem));
    const auto verdict = [&](const std::unique_ptr<Backend>& lora) {
      return verify_layer(problem, *bench.backend, *lora, *bench.memory, {});
    };
    const Verdict changed = verdict(make_mutant("weights-changed"));
    CHECK(changed.status == Status::kFailed);
    CHECK(changed.message == "memory: the launch changed A of shard 0");
    const auto changes = [&](auto change) {
      return verdict(std::make_unique<PlainBackend>(PlainBackend::Faults{
          .then = [change](const Problem&, const Operands& operands) { change(operands); }}));
    };
    const Verdict rank =
        changes([](const Operands& given) { ++const_cast<std::int32_t*>(given.rank)[0]; });
    CHECK(rank.message == "memory: the launch changed rank of shard 0");
    const Verdict scale =
        changes([](const Operands& given) { const_cast<float*>(given.scale)[1] *= 2; });
    CHECK(scale.message == "memory: the launch changed scale of shard 0");
    const Verdict plan = changes([](const Operands& given) {
      const_cast<std::int32_t*>(given.token_order)[0] = given.token_order[1];
    });
    CHECK(plan.message == "memory: the launch changed token_order");
    const Verdict outside = verdict(make_fake("outside"));
    CHECK(outside.status == Status::kFailed);
    CHECK(outside.message.find("memory: guard of y of shard 0 damaged: ") == 0);
  }
}

TEST_CASE("rows of a layer that were not sampled are looked at for NaN, and for infinities") {
  const LayerBench bench;
  const LayerProblem problem = layer_problem(layer_of(LayerKind::kColumn, 2, false));
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  const auto of_rows = [&](const std::vector<std::int64_t>& rows) {
    return layer_oracle(problem, tensors, layer_arithmetic(problem, *bench.backend, *bench.backend),
                        rows);
  };
  LayerEngine engine = bench.engine(problem);
  load_layer(engine, problem, tensors);
  bench.forward(engine);
  const ShardOutputs right = outputs_of(engine);
  const std::int64_t last = problem.lora.tokens - 1;
  const std::int64_t at = last * right[1].columns + 2;
  const auto verdict_of = [&](float value, const MoreRows& more) {
    ShardOutputs got = right;
    store(got[1].dtype, got[1].data.data(), at, value);
    return compare_shards(problem, of_rows({0, 1}), got, Level::kBounded, more);
  };
  const float written = load(right[1].dtype, right[1].data.data(), at);
  CHECK(verdict_of(written, {of_rows, {}}).status == Status::kPassed);
  const Verdict nan = verdict_of(std::numeric_limits<float>::quiet_NaN(), {});
  CHECK(nan.status == Status::kFailed);
  REQUIRE(nan.failure);
  CHECK(nan.failure->level == Level::kMemory);
  CHECK(nan.message.find(fmt::format("first in shard 1, token {} (adapter", last)) !=
        std::string::npos);
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(verdict_of(infinity, {of_rows, {}}).status == Status::kFailed);
  CHECK(verdict_of(infinity, {}).status == Status::kPassed);  // nobody can say
  CHECK(verdict_of(written + 8, {of_rows, {}}).status == Status::kPassed);
  CHECK(verdict_of(written + 8, {of_rows, {last}}).status == Status::kFailed);
}

TEST_CASE("any row of a layer may be looked at after timing") {
  LayerProblem problem = layer_problem(layer_of(LayerKind::kColumn, 2, false));
  problem.lora.tokens = 100;
  std::set<std::int64_t> seen;
  for (std::uint64_t secret = 0; secret < 200; ++secret) {
    const std::vector<std::int64_t> rows = any_layer_rows(problem, secret);
    CHECK(rows.size() == 16);
    CHECK(std::set<std::int64_t>(rows.begin(), rows.end()).size() == rows.size());
    seen.insert(rows.begin(), rows.end());
  }
  CHECK(seen.size() == 100);
}
