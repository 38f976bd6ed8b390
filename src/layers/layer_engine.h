#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/dtype.h"
#include "device/gpu_group.h"
#include "device/memory.h"
#include "device/side_stream.h"
#include "layers/communicator.h"
#include "layers/layer_problem.h"
#include "ops/backend.h"
#include "workload/tensors.h"

namespace lora_bench {

// Where a shard lies and what runs it: `base` makes the base products, `lora` the adapters' part.
struct ShardPlace {
  const Backend& base;
  const Backend& lora;
  Memory& memory;
  // Where each shard has a GPU of its own, as its backends and its memory know by themselves.
  std::shared_ptr<const GpuGroup> gpus = nullptr;
  std::int64_t rank = 0;
};

// Runs a layer of any kind from the description of the kind alone.
// An adapter's life: set at a slot, used by the batches that are activated, reset to none.
class LayerEngine {
 public:
  // One place for all shards, or one for each, of one space. Everything starts poisoned: what is
  // read without having been set shows.
  LayerEngine(const LayerProblem& problem, const std::vector<ShardPlace>& places);
  LayerEngine(const LayerProblem& problem, const Backend& base, const Backend& lora, Memory& memory)
      : LayerEngine(problem, std::vector<ShardPlace>{{base, lora, memory}}) {}

  void load_base(const Matrix& w, const Matrix& bias);  // W [N, K]; bias [1, N], empty without
  // Cuts the weights for each shard. Blocks that the adapter leaves alone become zero; lanes above
  // its rank, which nothing may read, become NaN. The slot keeps nothing of what it held.
  void set_adapter(std::int64_t slot, const AdapterWeights& given, float scale);
  void reset_adapter(std::int64_t slot);
  void activate(const Plan& plan);                  // of as many tokens
  void set_input(const std::vector<std::byte>& x);  // [M, K]
  // [M] of layers that look up: below K, or of a row with an adapter below K and what that adds.
  void set_ids(const std::vector<std::int32_t>& ids);
  // All that was loaded into another engine of the same problem in the same places.
  void load_from(const LayerEngine& other);

  // One shard by itself, without what is exchanged; `with_lora` false = the base layer alone.
  void run_before_h(std::int64_t rank, bool with_lora, Stream stream);
  void run_after_h(std::int64_t rank, Stream stream);
  // What is left when y was exchanged: of layers of a vocabulary the adapters' part and the end.
  void run_after_y(std::int64_t rank, bool with_lora, Stream stream);
  // Shrink or expand of one shard alone, whatever the layer launches for both.
  void run_half(std::int64_t rank, Op half, Stream stream);
  // From now on shrink and expand are launches of their own wherever a shard makes both.
  void launch_halves() { in_halves_ = true; }
  // The whole layer, shards in turn.
  void forward(Communicator& communicator, Stream stream, bool with_lora = true);
  // Steps of forward, where shards were run by themselves.
  void exchange_h(Communicator& communicator, Stream stream);
  void exchange_y(Communicator& communicator, Stream stream);
  [[nodiscard]] bool exchanges_h() const { return at(0).problem.h != Exchange::kNone; }
  // All that the shard writes by itself, so that what is read there afterwards was written since.
  void poison_results(std::int64_t rank);
  void poison_h(std::int64_t rank);

  [[nodiscard]] Matrix output(std::int64_t rank) const;
  // The base layer's bias, whole, for the caller to add; empty unless it is skipped.
  [[nodiscard]] const Matrix& returned_bias() const { return returned_bias_; }
  [[nodiscard]] const ShardProblem& shard(std::int64_t rank) const { return at(rank).problem; }
  [[nodiscard]] std::int64_t shards() const { return static_cast<std::int64_t>(parts_.size()); }
  // "guard of y of shard 0 damaged: ..."; "" = all are intact.
  [[nodiscard]] std::string damage() const;
  // Which input or weight differs from that of an engine that was loaded alike, or which rank,
  // scale or array of the plan from what was given; "" = none.
  [[nodiscard]] std::string changed_input(const LayerEngine& other) const;

 private:
  // Of a batch; with room for every slot, so that another batch lies at the same addresses and what
  // was captured may serve it.
  using PlanArrays = std::array<GuardedBuffer, kPlanArrays.size()>;
  // What is launched with a problem of its own.
  struct Launched {
    GuardedBuffer rank, scale, workspace;
    GuardedBuffer prepared;  // see Backend::prepare
    Operands operands;
  };
  // What all shards of a place share: all of x, and the batch.
  struct Place {
    ShardPlace uses;
    GuardedBuffer x;
    PlanArrays base_plan, lora_plan, rest_plan;
    std::unique_ptr<SideStream> side;  // null where nothing runs beside the base
  };
  struct Part {
    Place* place = nullptr;
    ShardProblem problem;
    GuardedBuffer w, bias, base_fp32, y, delta, gathered_y, h, whole_h;
    // Where gathered columns are put in order: the whole y then, and the place of each column.
    GuardedBuffer ordered_y, order;
    GuardedBuffer table_rows;                // of each slot, which its adapter adds to a table
    std::vector<GuardedBuffer> a, b, added;  // one for each slice; what is added is a bias
    std::vector<GuardedBuffer> a_scale, b_scale;
    Launched base, lora, expand;
    std::array<GuardedBuffer, 2> prepared_halves;  // of shrink and of expand by themselves
    GuardedBuffer fused;                           // workspace of a launch for both
    std::optional<Plan> rest;  // rows whose adapters that launch leaves to an expand
  };

  enum class Use : std::uint8_t { kInput, kResult, kScratch };
  template <class Buffer>
  struct Held {
    const char* name;
    Use use;
    Buffer* buffer;
  };
  // All buffers of a shard but ranks and scales. Those of two shards stand in one order.
  template <class SomePart>
  [[nodiscard]] static auto buffers_of(SomePart& part);

  [[nodiscard]] const Part& at(std::int64_t rank) const {
    return parts_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Part& at(std::int64_t rank) { return parts_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::string changed_buffer(const LayerEngine& other) const;
  [[nodiscard]] std::string changed_index() const;
  void allocate(Part& part);
  void point_operands(Part& part);
  void allocate_order(Part& part);
  // What the shard ends with.
  [[nodiscard]] static const GuardedBuffer& last_y(const Part& part);
  // What no backend launches: on the GPU and the stream that the shard's backends use.
  static void launch_own(const Part& part, Stream stream,
                         const std::function<void(Space, Stream)>& launch);
  void look_up_base(Part& part, Stream stream) const;
  static void look_up_lanes(const Part& part, Stream stream);
  void allocate_weights(Part& part);
  static void allocate_scales(Part& part);
  // What the adapters' backend launches with weights that it may prepare: the part whole, an expand
  // after an exchange, and the halves of a part that makes both. Calls `act` with the problem, the
  // operands and the buffer of each.
  template <class Act>
  static void for_each_prepared(Part& part, const Act& act);
  static void allocate_prepared(Part& part);
  static void prepare_weights(Part& part);
  static Operands operands_of_half(const Part& part, Op half);
  [[nodiscard]] PlanArrays plan_arrays(Memory& memory, std::int64_t slots) const;
  static void upload_plan(const Plan& plan, PlanArrays& arrays);
  static void prepare(const Problem& problem, Memory& memory, const PlanArrays& arrays,
                      Launched& launched);
  static void use_plan(const PlanArrays& arrays, Operands& operands);
  static void upload_ranks(const Problem& problem, Launched& launched);
  static void upload_ranks(Part& part);
  static void write_slot(Part& part, std::int64_t slot, const AdapterWeights& weights);
  void set_rank(std::int64_t slot, std::int64_t rank, float scale);
  void take_slot(std::int64_t slot, std::int64_t rank, float scale);
  // Where the base adds all of a delta, rows without an adapter must have 0 there.
  void forget_deltas();
  static void launch_half(const Part& part, Op half, Stream stream);
  static void launch_fused(const Part& part, Stream stream);
  void plan_rest(Part& part) const;
  static void launch_rest(const Part& part, Stream stream);
  void launch_base(Part& part, bool on_delta, Stream stream) const;
  // On the host: y of part.base_fp32 and what is still to be added.
  static void finish_base(Part& part, bool on_delta);
  static void add_delta(const Part& part, Stream stream);

  LayerProblem problem_;
  std::vector<Place> places_;
  std::vector<Part> parts_;
  Matrix returned_bias_;
  bool in_halves_ = false;
};

// How the engine lays out what it holds.

inline std::int64_t bytes_of(Dtype dtype, std::int64_t elements) {
  return elements * size_bytes(dtype);
}

inline void* advance(void* address, std::int64_t bytes) {
  return address == nullptr ? nullptr : static_cast<char*>(address) + bytes;
}

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

// Weights and input of a whole layer in host memory.
struct LayerTensors {
  Tensors lora;                   // x, A and B of all slots, scales
  Matrix w;                       // [N, K]
  Matrix bias;                    // [1, N], empty without
  std::vector<std::int32_t> ids;  // [M] of layers that look up: x has a one there, else zeros
};

// Sized so that what the adapters add is about as large as the base.
[[nodiscard]] LayerTensors draw_layer_tensors(const LayerProblem& problem, Fill fill,
                                              std::uint64_t seed);

// Makes of an A and B for each output what adapters bring: B and bias of zeros for an output that
// one leaves alone, and one A for all outputs that a packed pair covers.
void hold_as_adapters_bring(const LayerProblem& problem, Tensors& lora);

// The adapter of a slot as its file would have it: no lanes above its rank.
[[nodiscard]] AdapterWeights adapter_of(const LayerProblem& problem, const LayerTensors& tensors,
                                        std::int64_t slot);

// Every adapter at its slot; none where its rank is 0.
void load_adapters(LayerEngine& engine, const LayerProblem& problem, const LayerTensors& tensors);
// Loads what was drawn: the base, the input, and the adapters.
void load_layer(LayerEngine& engine, const LayerProblem& problem, const LayerTensors& tensors);

}  // namespace lora_bench
