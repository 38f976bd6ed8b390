#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "reference/reference.h"
#include "verify/verify.h"

namespace lora_bench {

[[nodiscard]] inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// What a row would hold if a hypothesis were true, before the final rounding: between least and
// most, by column of the oracle's rows.
struct Prediction {
  std::vector<double> least, most;
  std::vector<std::uint8_t> owned;
};

// One wrong row as it is, as it was and as it should be.
struct WrongRow {
  std::int64_t token = 0;
  std::int32_t adapter = 0;
  std::vector<double> got, before;
  std::vector<std::uint8_t> untouched;  // the bits of before the launch
  std::vector<std::uint8_t> wrong;
  reference::Rows right;        // with the elementwise bound
  std::vector<double> allowed;  // the bound by which it was judged: 0 of the exact fill
};

// A few of the wrong rows, of as many adapters as there are.
struct Evidence {
  const Problem& problem;
  const Tensors& tensors;
  const Numerics& numerics;
  reference::Number number;  // of the output
  bool expand = true;
  bool adds = true;  // the output had a meaning before
  std::vector<WrongRow> rows;
};
[[nodiscard]] Evidence gather_evidence(const Problem& problem, const Tensors& tensors,
                                       const Numerics& numerics, const void* got,
                                       const Comparison& comparison);

// The oracle's problem of one row, in copies that a hypothesis may change.
class RowModel {
 public:
  RowModel(const Evidence& evidence, const WrongRow& row);
  RowModel(const RowModel&) = delete;
  RowModel& operator=(const RowModel&) = delete;

  void read_row(std::int64_t token);         // x and h of another row
  void read_row_of_x(std::int64_t row);      // of the x that rows share
  void read_x(std::vector<std::byte> rows);  // of each slice that has one, x_stride elements
  // x or a given h: of each slice that has one.
  void read_activations(std::vector<std::byte> rows);
  [[nodiscard]] const std::vector<std::byte>& activations() const {
    return problem_.shrink ? x_ : h_;
  }
  // The scales of activations, of each slice that has rows of its own, for every group of columns.
  void use_scales_of_row(std::vector<float> of_groups);
  // Numbers of activations in another format.
  void read_activations_as(reference::Number number);
  // A, B or bias of a slice, as tensors have it.
  void read_weights(Role role, std::int64_t slice, std::vector<std::byte> values);
  // The scale of every number of A or B of a slice, [slots, rows, columns], where all are read so.
  void read_scales(Role role, std::int64_t slice, std::vector<float> of_numbers);
  // Numbers of A and B in another format.
  void read_numbers(reference::Number number);
  void use_adapter(std::int32_t adapter);
  void clear_inputs();  // delta becomes the bias, or nothing
  void drop_k_tail(std::int64_t elements);
  void drop_lanes(std::int64_t lanes);
  void use_scale(float scale);
  [[nodiscard]] float scale() const;
  void use_factor(float factor) { factor_ = factor; }  // of the row, where rows have one
  [[nodiscard]] std::int32_t adapter() const { return adapter_; }
  [[nodiscard]] std::int64_t rank() const;
  void forget_bias();
  // y, or the h that is added to, is overwritten.
  void forget_inputs() { problem_.add_inputs = problem_.adds_to_h = false; }
  void swap_slices(std::size_t left, std::size_t right, bool with_bias);
  // Every element of h goes through `change` between the two sums.
  void change_h(const std::function<double(double)>& change);
  // The same of all of h, [slices, max_rank], which is not quantised then.
  void change_all_of_h(const std::function<void(std::vector<double>&)>& change);
  [[nodiscard]] const reference::HiddenQuantiser& quantiser_of_h() const {
    return problem_.quantiser_of_h;
  }
  [[nodiscard]] Prediction predict() const;

 private:
  void read_scales_of_row(std::int64_t token);
  [[nodiscard]] reference::RowScales& scales_of_row();

  const Evidence& evidence_;
  reference::Problem problem_;
  std::int32_t adapter_ = 0;
  std::vector<std::int64_t> rank_;
  float factor_ = 1;
  std::vector<float> scale_;
  std::vector<std::byte> x_, h_, y_;
  std::vector<std::vector<std::byte>> weights_;
  std::vector<std::vector<float>> scales_;
  std::vector<float> scales_of_row_;
  std::vector<float> changed_h_;
};

// Numbers of eight bits, 0 for each that is subnormal.
[[nodiscard]] std::vector<std::byte> without_subnormals(Dtype dtype, std::vector<std::byte> bytes);

// delta by column: what the right result adds (or, without add_inputs, is).
[[nodiscard]] std::vector<double> delta_of(const Evidence& evidence, const WrongRow& row);

enum class Agreement : std::uint8_t {
  kNo,
  kEmpty,  // agrees, but only in NaN or in nothing at all: proves little
  kYes,
};
// Whether the row holds what is predicted, in every element that the op or the hypothesis writes.
[[nodiscard]] Agreement agrees(const Evidence& evidence, const WrongRow& row,
                               const Prediction& prediction);
[[nodiscard]] bool within(const Evidence& evidence, double got, double least, double most);

}  // namespace lora_bench
