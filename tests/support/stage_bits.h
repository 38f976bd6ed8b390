#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "verify/staging.h"

namespace lora_bench::test {

// The bits that one launch of `backend` leaves, whose guards are whole.
inline std::vector<std::byte> bits_of_launch(Memory& memory, const Backend& backend,
                                             const Problem& problem, const Tensors& tensors) {
  Stage stage(memory, problem, tensors, {backend.workspace_bytes(problem)});
  stage.launch(backend);
  CHECK(stage.damage().empty());
  return stage.output();
}

}  // namespace lora_bench::test
