#include <doctest/doctest.h>

#include <vector>

#include "core/dtype.h"
#include "ops/cublaslt_library.h"
#include "support/device_layers.h"
#include "support/layer_case.h"
#include "support/need_gpu.h"

using namespace lora_bench;

namespace {

// Whether a graph of the layer leaves what its launches leave, in results that held NaN before.
void check_replay(const DeviceLayers& device, const LayerProblem& problem) {
  LayerEngine engine = device.engine(problem);
  load_layer(engine, problem, draw_layer_tensors(problem, Fill::kBounded, 3));
  device.forward(engine);
  const Matrix launched = engine.output(engine.shards() - 1);
  const auto replay = device.recorded(engine);
  for (std::int64_t rank = 0; rank < engine.shards(); ++rank) {
    engine.poison_results(rank);
  }
  replay();
  CHECK(engine.output(engine.shards() - 1) == launched);
}

}  // namespace

TEST_CASE("every kind of layer, divided in every way, is proved on the device") {
  LORA_BENCH_NEED(why_no_cublaslt())
  const DeviceFacts facts = gpu_facts();
  for (const char* name : {"auto", "naive", "grouped"}) {
    const DeviceLayers device(name);
    int proved = 0;
    for (LayerProblem problem : all_layers()) {
      problem.base_bias = true;
      problem.bias_in_product = true;
      for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
        problem.lora.dtype = OperandDtypes(dtype, problem.lora.dtype[Role::kH]);
        const ShardProblem part = shard_problem(problem, 0);
        if (!device.lora.backend->supports(part.lora, facts).yes) {
          continue;
        }
        CAPTURE(name);
        CAPTURE(told(problem));
        device.prove(problem);
        ++proved;
      }
    }
    CHECK(proved > 50);
  }
}

TEST_CASE("every overlap of a layer is proved on the device, launched and as a graph") {
  LORA_BENCH_NEED(why_no_cublaslt())
  const DeviceLayers device;
  const DeviceFacts facts = gpu_facts();
  std::size_t refused = 0;
  const std::vector<LayerProblem> all = all_overlaps();
  for (LayerProblem problem : all) {
    CAPTURE(told_overlap(problem));
    problem.base_bias = true;
    problem.bias_in_product = true;
    const ShardProblem part = shard_problem(problem, 0);
    if (part.base_on_delta && !device.base->supports(*part.base_on_delta, facts).yes) {
      CHECK(problem.overlap == Overlap::kEpilogue);
      ++refused;  // rows of y that do not begin on 16 bytes
      continue;
    }
    device.prove(problem);
    check_replay(device, problem);
  }
  CHECK(refused < all.size() / 3);
}

TEST_CASE("the quickest base product is right, and says of how many it was chosen") {
  LORA_BENCH_NEED(why_no_cublaslt())
  DeviceLayers device;
  device.base = make_base_product(Space::kDevice, BaseAlgorithm::kQuickest);
  for (const bool bias : {false, true}) {
    LayerProblem problem = layer_problem(layer_of(LayerKind::kColumn, 2, false));
    problem.base_bias = bias;
    problem.bias_in_product = true;
    for (const Overlap overlap : {Overlap::kSerial, Overlap::kEpilogue}) {
      problem.overlap = overlap;
      device.prove(problem, false);
    }
    const std::string told = device.base->numerics(shard_problem(problem, 0).base).summation;
    CHECK(told.find(" that were timed") != std::string::npos);
  }
}

TEST_CASE("what a graph of a layer leaves is what its launches leave") {
  LORA_BENCH_NEED(why_no_cublaslt())
  const DeviceLayers device;
  for (const LayerProblem& problem : all_layers()) {
    CAPTURE(told(problem));
    check_replay(device, problem);
  }
}

TEST_CASE("an adapter that is swapped while a graph lives is in what the graph leaves next") {
  LORA_BENCH_NEED(why_no_cublaslt())
  const DeviceLayers device("naive");
  for (const bool fully_sharded : {false, true}) {
    const LayerProblem problem = layer_problem(layer_of(LayerKind::kMergedQkv, 4, fully_sharded));
    const LayerTensors first = draw_layer_tensors(problem, Fill::kBounded, 3);
    LayerTensors second = draw_layer_tensors(problem, Fill::kBounded, 4);
    second.w = first.w;
    second.lora.x = first.lora.x;
    LayerEngine engine = device.engine(problem);
    load_layer(engine, problem, first);
    device.forward(engine);
    const auto replay = device.recorded(engine);
    load_adapters(engine, problem, second);  // of the same ranks
    replay();
    LayerEngine fresh = device.engine(problem);
    load_layer(fresh, problem, second);
    device.forward(fresh);
    CHECK(engine.output(0) == fresh.output(0));
    CHECK(engine.output(3) == fresh.output(3));
  }
}

TEST_CASE("parts are exchanged on the device with the bits of the host") {
  LORA_BENCH_NEED_GPU()
  const auto memory = make_device_memory();
  const auto host = make_host_memory();
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    for (const std::size_t shards : {1U, 2U, 8U}) {
      constexpr std::int64_t kRows = 7;
      constexpr std::int64_t kColumns = 33;
      const std::int64_t bytes = kRows * kColumns * size_bytes(dtype);
      const auto after = [&](Memory& in, Space space, bool sum) {
        std::vector<GuardedBuffer> parts;
        std::vector<GuardedBuffer> to;
        std::vector<void*> part_addresses;
        std::vector<void*> to_addresses;
        for (std::size_t shard = 0; shard < shards; ++shard) {
          std::vector<float> numbers(kRows * kColumns);
          for (std::size_t i = 0; i < numbers.size(); ++i) {
            numbers[i] = static_cast<float>((i * 37 + shard * 101) % 251) / 7.0F - 17.0F;
          }
          std::vector<std::byte> stored(static_cast<std::size_t>(bytes));
          encode(dtype, numbers, stored.data());
          parts.emplace_back(in, bytes, 0, stored.data());
          part_addresses.push_back(parts.back().data());
          to.emplace_back(in, sum ? bytes : bytes * static_cast<std::int64_t>(shards));
          to_addresses.push_back(to.back().data());
        }
        const auto communicator = make_local_communicator(space);
        const PartShape shape{dtype, kRows, kColumns};
        if (sum) {
          communicator->all_reduce(shape, part_addresses, to_addresses, Stream{});
        } else {
          communicator->all_gather(shape, part_addresses, to_addresses, Stream{});
        }
        in.synchronize();
        CHECK(to.back().damage().empty());
        return to.back().download();
      };
      for (const bool sum : {false, true}) {
        CHECK(after(*memory, Space::kDevice, sum) == after(*host, Space::kHost, sum));
      }
    }
  }
}
