#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace lora_bench {

// Host backends that misbehave on purpose, to test everything around a backend. "" behaves.
struct FakeDoc {
  std::string behaviour;
  std::string meaning;
};
[[nodiscard]] const std::vector<FakeDoc>& fake_behaviours();
// Throws UsageError for an unknown behaviour.
[[nodiscard]] std::unique_ptr<Backend> make_fake(const std::string& behaviour);
// Every `fake:hang` that hangs now returns by throwing CaseError, so that a test can join it.
void release_hung_fakes();

}  // namespace lora_bench
