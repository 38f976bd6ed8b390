#include "run/layer_places.h"

#include <fmt/format.h>

#include "ops/backend_on_gpu.h"
#include "ops/backends.h"
#include "ops/cublaslt_library.h"

namespace lora_bench {
namespace {

// Each made while its GPU is the current one: what it holds of CUDA belongs to that.
void add_gpu(LayerPlaces& places, const Selected& lora, std::int64_t rank,
             const std::shared_ptr<Pulse>& pulse) {
  const CurrentGpu current(static_cast<int>(rank));
  const auto watched_there = [&](std::shared_ptr<const Backend> backend) {
    return on_gpu(watched(std::move(backend), pulse), places.gpus, rank);
  };
  places.base.push_back(watched_there(make_base_product(Space::kDevice, BaseAlgorithm::kFirst)));
  places.lora.push_back(
      watched_there(rank == 0 ? lora.backend : select_backend(lora.name).backend));
  places.memories.push_back(watched(places.gpus->memory(rank), pulse));
}

}  // namespace

LayerHome LayerPlaces::home() const {
  LayerHome home;
  for (std::size_t place = 0; place < memories.size(); ++place) {
    home.places.push_back(
        {*base[place], *lora[place], *memories[place], gpus, static_cast<std::int64_t>(place)});
  }
  home.communicator = communicator;
  return home;
}

std::string why_no_places(const CaseRequest& request) {
  const Selected& lora = request.backend;
  const bool on_host = lora.backend->space() == Space::kHost;
  if (request.spec.setup.comm == Comm::kNccl) {
    if (on_host) {
      return fmt::format("comm nccl gives each shard a GPU, and {} runs on the host", lora.name);
    }
    if (!lora.plugin.empty()) {
      return "comm nccl: a plugin may keep what belongs to one GPU";
    }
    if (const std::string why = why_no_nccl_communicator(request.spec.setup.tp); !why.empty()) {
      return "comm nccl: " + why;
    }
  }
  const std::string why = on_host ? "" : why_no_cublaslt();
  return why.empty() ? "" : fmt::format("the base product of a layer: {}", why);
}

LayerPlaces layer_places(const CaseRequest& request, Targets& targets,
                         const std::shared_ptr<Pulse>& pulse) {
  LayerPlaces places;
  const Space space = request.backend.backend->space();
  if (request.spec.setup.comm == Comm::kNone) {
    places.base.push_back(watched(
        std::shared_ptr<const Backend>(make_base_product(space, request.spec.setup.base_algorithm)),
        pulse));
    places.lora.push_back(watched(request.backend.backend, pulse));
    places.memories.push_back(watched(targets.memory(space), pulse));
    places.communicator = make_local_communicator(space);
    return places;
  }
  places.gpus = targets.gpus(request.spec.setup.tp);
  for (std::int64_t rank = 0; rank < request.spec.setup.tp; ++rank) {
    add_gpu(places, request.backend, rank, pulse);
  }
  places.connected = targets.communicator(request.spec.setup.tp);
  return places;
}

void connect(LayerPlaces& places, const std::shared_ptr<Pulse>& pulse) {
  if (places.gpus == nullptr) {
    return;
  }
  if (places.connected == nullptr) {
    const std::int64_t before = pulse->enter();
    places.connected = make_nccl_communicator(places.gpus);
    pulse->leave(before);
  }
  places.communicator = watched(places.connected, pulse);
}

}  // namespace lora_bench
