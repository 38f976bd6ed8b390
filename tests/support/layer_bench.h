#pragma once

#include <memory>
#include <vector>

#include "layers/layer_engine.h"
#include "ops/backends.h"
#include "verify/layer_proof.h"

namespace lora_bench {

// Where tests run layers on the host.
struct LayerBench {
  std::unique_ptr<Backend> backend = make_cpu_backend({.threads = 1, .isa = ""});
  std::unique_ptr<Memory> memory = make_host_memory();
  std::unique_ptr<Communicator> communicator = make_local_communicator(Space::kHost);

  [[nodiscard]] LayerEngine engine(const LayerProblem& problem) const {
    return {problem, *backend, *backend, *memory};
  }
  std::vector<Matrix> forward(LayerEngine& engine, bool with_lora = true) const {
    engine.forward(*communicator, Stream{}, with_lora);
    return outputs_of(engine);
  }
  [[nodiscard]] std::vector<Matrix> run(const LayerProblem& problem,
                                        const LayerTensors& tensors) const {
    LayerEngine made = engine(problem);
    load_layer(made, problem, tensors);
    return forward(made);
  }
  [[nodiscard]] Verdict verdict(const LayerEngine& engine, const LayerProblem& problem,
                                const LayerTensors& tensors) const {
    return compare_layer(
        engine, problem,
        layer_oracle(problem, tensors, layer_arithmetic(problem, *backend, *backend),
                     sample_rows(problem.lora, 256, 1)));
  }
};

}  // namespace lora_bench
