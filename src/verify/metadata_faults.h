#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "verify/metadata_proof.h"

namespace lora_bench {

// What a faulty builder is about to write, and what it has kept of the launch before.
struct Spoiled {
  const MetadataProblem& problem;
  const EngineStep& engine;
  const std::vector<std::int32_t>& adapters;  // of each row
  std::vector<FilledArray>& made;
  const std::vector<FilledArray>& first;  // of the first launch

  [[nodiscard]] std::vector<std::int64_t>& of(std::string_view name) const;
  [[nodiscard]] const std::vector<std::int64_t>& first_of(std::string_view name) const;
  // The metadata of a step whose rows have other slots.
  void make_for(const std::vector<std::int32_t>& slots) const;

 private:
  [[nodiscard]] std::size_t index_of(std::string_view name) const;
};

struct MetadataFault {
  MetadataFaultDoc doc;
  void (*spoil)(const Spoiled&) = nullptr;
  bool writes_input = false, writes_past = false;
};
[[nodiscard]] std::vector<MetadataFault> faults_of_align();
[[nodiscard]] const std::vector<MetadataFault>& known_metadata_faults();

}  // namespace lora_bench
