#pragma once

#include <memory>
#include <vector>

#include "layers/communicator.h"
#include "layers/layer_engine.h"

namespace lora_bench {

// Where a layer runs: where its shards lie, and what they exchange their results through.
struct LayerHome {
  std::vector<ShardPlace> places;  // one for all shards, or one for each
  std::shared_ptr<Communicator> communicator;

  [[nodiscard]] Space space() const { return places.front().memory.space(); }
  [[nodiscard]] const Backend& base() const { return places.front().base; }
  [[nodiscard]] const Backend& lora() const { return places.front().lora; }
  void synchronize() const {
    for (const ShardPlace& place : places) {
      place.memory.synchronize();
    }
  }
};

// All shards in one memory.
[[nodiscard]] inline LayerHome one_home(const Backend& base, const Backend& lora, Memory& memory) {
  return {{{base, lora, memory}}, make_local_communicator(memory.space())};
}

}  // namespace lora_bench
