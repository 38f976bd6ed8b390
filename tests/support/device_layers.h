#pragma once

#include <doctest/doctest.h>

#include <memory>

#include "layers/layer_engine.h"
#include "ops/backends.h"
#include "run/select.h"
#include "verify/layer_proof.h"

namespace lora_bench {

// Where tests run layers on a GPU.
struct DeviceLayers {
  explicit DeviceLayers(const char* adapters = "auto") : lora(select_backend(adapters)) {}

  std::unique_ptr<Memory> memory = make_device_memory();
  std::unique_ptr<Backend> base = make_base_product(Space::kDevice);
  std::unique_ptr<Communicator> communicator = make_local_communicator(Space::kDevice);
  Selected lora;

  void prove(const LayerProblem& problem, bool relations = true) const {
    const Verdict verdict =
        verify_layer(problem, *base, *lora.backend, *memory, {.relations = relations});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
  }
  [[nodiscard]] LayerEngine engine(const LayerProblem& problem) const {
    return {problem, *base, *lora.backend, *memory};
  }
  void forward(LayerEngine& engine, bool with_lora = true) const {
    memory->synchronize();
    engine.forward(*communicator, Stream{}, with_lora);
    memory->synchronize();
  }
  // A graph of so many launches, one after the other.
  [[nodiscard]] std::function<void()> recorded(LayerEngine& engine, int launches = 1) const {
    return memory->record([&engine, this, launches](void* stream) {
      for (int launch = 0; launch < launches; ++launch) {
        engine.forward(*communicator, Stream{stream});
      }
    });
  }
};

}  // namespace lora_bench
