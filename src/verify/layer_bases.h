#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "verify/layer_faults.h"

namespace lora_bench {

inline std::size_t nth(std::int64_t index) { return static_cast<std::size_t>(index); }

[[nodiscard]] double number(const Matrix& matrix, std::int64_t row, std::int64_t column);
[[nodiscard]] std::vector<double> numbers(const Matrix& matrix, std::int64_t row,
                                          std::int64_t first, std::int64_t count);

// What each shard has of x, W and the bias, and the base that it makes of them.
class Bases {
 public:
  Bases(const LayerStory& story, LayerFault fault, const std::vector<std::int64_t>& tokens)
      : problem_(story.problem),
        layer_(problem_.layer),
        description_(description_of(layer_.kind)),
        tensors_(story.tensors),
        fault_(fault),
        tokens_(tokens) {}

  [[nodiscard]] Shard shard_at(std::int64_t rank) const;

  [[nodiscard]] std::vector<double> x(std::size_t row, IndexRange inputs) const;

  // As A has its columns: of ids those of the vocabulary, then those that the adapter added.
  [[nodiscard]] std::vector<double> x_of_adapters(std::size_t row, IndexRange inputs) const;

  [[nodiscard]] std::vector<double> base(std::int64_t rank) const;

 private:
  [[nodiscard]] bool is(LayerFault fault) const { return fault_ == fault; }

  // What an id that an adapter added finds in a shard's part of what the adapters add.
  void add_added_row(std::size_t row, IndexRange part, std::span<double> y) const;

  // Of ids a one among zeros; a shard that does not mask them finds one in its own part for all.
  [[nodiscard]] std::vector<double> x_of_base(std::size_t row, IndexRange inputs) const;

  const LayerProblem& problem_;
  const ShardedLayer& layer_;
  const LayerDescription& description_;
  const LayerTensors& tensors_;
  LayerFault fault_;
  const std::vector<std::int64_t>& tokens_;
};

}  // namespace lora_bench
