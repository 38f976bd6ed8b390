#include "verify/evidence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "core/dtype.h"
#include "verify/oracle.h"

namespace lora_bench {
namespace {

constexpr std::size_t kRowsLookedAt = 6;

// One row of each adapter first, in the order of the rows.
std::vector<std::int64_t> choose_rows(const Problem& problem, const Comparison& comparison) {
  std::vector<std::int64_t> chosen;
  std::set<std::int32_t> seen;
  for (const bool fresh : {true, false}) {
    for (const std::int64_t token : comparison.wrong_rows) {
      const bool is_new = seen.insert(problem.plan.adapter_of_token[at(token)]).second;
      const bool taken = std::find(chosen.begin(), chosen.end(), token) != chosen.end();
      if (chosen.size() < kRowsLookedAt && !taken && (is_new || !fresh)) {
        chosen.push_back(token);
      }
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

WrongRow look_at(const Evidence& evidence, const void* got, std::int64_t token) {
  const Dtype dtype = output_dtype(evidence.problem);
  const auto bytes = static_cast<std::size_t>(size_bytes(dtype));
  const std::vector<std::byte>& before = output_before(evidence.problem, evidence.tensors).data;
  // A launch finds no h that the tensors hold, unless it adds to it.
  const bool of_scratch = !evidence.expand && !evidence.adds;
  const std::vector<std::byte> scratch(bytes, evidence.tensors.scratch);
  WrongRow row;
  row.token = token;
  row.adapter = evidence.problem.plan.adapter_of_token[at(token)];
  row.right = reference::evaluate(oracle_problem(evidence.problem, evidence.tensors),
                                  oracle_arithmetic(evidence.problem, evidence.numerics),
                                  std::vector<std::int64_t>{token});
  for (std::int64_t column = 0; column < row.right.columns; ++column) {
    const std::int64_t index = output_index(evidence.problem, token, column);
    const std::byte* now = static_cast<const std::byte*>(got) + at(index) * bytes;
    const std::byte* old = of_scratch ? scratch.data() : before.data() + at(index) * bytes;
    row.got.push_back(static_cast<double>(load(dtype, got, index)));
    row.before.push_back(static_cast<double>(load(dtype, old, 0)));
    row.untouched.push_back(std::memcmp(now, old, bytes) == 0);
  }
  return row;
}

bool keeps_unowned(const Problem& problem, std::size_t column) {
  return has_expand(problem.op) ||
         problem.keeps_other_lanes(static_cast<std::int64_t>(column) / problem.max_rank);
}

// As the comparison judges: the exact fill allows no bound.
void mark_wrong(const Evidence& evidence, WrongRow& row) {
  const reference::Rows judged =
      evaluate_rows(evidence.problem, evidence.tensors, evidence.numerics, std::vector{row.token});
  for (std::size_t column = 0; column < row.got.size(); ++column) {
    const double expected = judged.expected[column];
    const double bound = judged.bound[column];
    row.allowed.push_back(bound);
    const bool right = judged.owned[column] != 0
                           ? within(evidence, row.got[column], expected - bound, expected + bound)
                           : !keeps_unowned(evidence.problem, column) || row.untouched[column] != 0;
    row.wrong.push_back(right ? 0 : 1);
  }
}

std::vector<std::byte> copy_of_row(const HostTensor& tensor, std::int64_t row, std::int64_t width) {
  const std::int64_t bytes = width * size_bytes(tensor.dtype);
  const auto first = tensor.data.begin() + row * bytes;
  return {first, first + bytes};
}

}  // namespace

Evidence gather_evidence(const Problem& problem, const Tensors& tensors, const Numerics& numerics,
                         const void* got, const Comparison& comparison) {
  Evidence evidence{problem,
                    tensors,
                    numerics,
                    number_of(output_dtype(problem)),
                    has_expand(problem.op),
                    has_expand(problem.op) ? problem.add_inputs : problem.adds_to_h(),
                    {}};
  for (const std::int64_t token : choose_rows(problem, comparison)) {
    evidence.rows.push_back(look_at(evidence, got, token));
    mark_wrong(evidence, evidence.rows.back());
  }
  return evidence;
}

std::vector<std::byte> without_subnormals(Dtype dtype, std::vector<std::byte> bytes) {
  const unsigned fraction = dtype == Dtype::kE4m3 ? 0x07U : 0x03U;
  for (std::byte& byte : bytes) {
    const unsigned magnitude = std::to_integer<unsigned>(byte) & 0x7fU;
    byte = magnitude <= fraction ? std::byte{0} : byte;
  }
  return bytes;
}

RowModel::RowModel(const Evidence& evidence, const WrongRow& row)
    : evidence_(evidence),
      problem_(oracle_problem(evidence.problem, evidence.tensors)),
      adapter_(row.adapter),
      rank_(evidence.problem.rank),
      scale_(evidence.tensors.scale) {
  problem_.tokens = 1;
  problem_.row_of_x = {};
  if (!problem_.factor.empty()) {
    factor_ = problem_.factor[at(row.token)];
    problem_.factor = {&factor_, 1};
  }
  problem_.rank = rank_;
  problem_.scale = scale_;
  read_row(row.token);
  if (evidence.expand) {
    y_ = copy_of_row(evidence.tensors.y, row.token, problem_.y_stride);
    problem_.y = y_.data();
  }
}

void RowModel::read_row(std::int64_t token) {
  if (problem_.shrink) {
    x_.clear();
    for (std::int64_t slice = 0; slice < (problem_.own_inputs ? evidence_.problem.slices() : 1);
         ++slice) {
      const std::vector<std::byte> row = copy_of_row(
          evidence_.tensors.x, evidence_.problem.x_row(slice, token), problem_.x_stride);
      x_.insert(x_.end(), row.begin(), row.end());
    }
    problem_.x = x_.data();
  }
  read_scales_of_row(token);
  if (problem_.shrink && !problem_.adds_to_h) {
    return;
  }
  h_.clear();
  for (std::int64_t slice = 0; slice < evidence_.problem.slices(); ++slice) {
    const std::vector<std::byte> lanes = copy_of_row(
        evidence_.tensors.h, slice * evidence_.problem.tokens + token, problem_.max_rank);
    h_.insert(h_.end(), lanes.begin(), lanes.end());
  }
  problem_.h = h_.data();
}

void RowModel::read_scales_of_row(std::int64_t token) {
  const Problem& problem = evidence_.problem;
  if (!problem.has_scaled_activations()) {
    return;
  }
  const ScalesOfRows scales = problem.scales_of_rows();
  const HostTensor& tensor =
      problem.has_scaled_x() ? evidence_.tensors.x_scale : evidence_.tensors.h_scale;
  std::vector<float> of_token;
  for (std::int64_t slice = 0; slice < (problem.own_activations() ? problem.slices() : 1);
       ++slice) {
    const std::int64_t first =
        scales.at(problem.row_of_activations(slice, token), problem.tokens, 0);
    for (std::int64_t group = 0; group < scales.across; ++group) {
      of_token.push_back(load(tensor.dtype, tensor.data.data(), first + group));
    }
  }
  use_scales_of_row(std::move(of_token));
}

void RowModel::read_row_of_x(std::int64_t row) {
  read_x(copy_of_row(evidence_.tensors.x, row, problem_.x_stride));
}

reference::RowScales& RowModel::scales_of_row() {
  return evidence_.problem.has_scaled_x() ? problem_.x_scale : problem_.h_scale;
}

void RowModel::use_scales_of_row(std::vector<float> of_groups) {
  scales_of_row_ = std::move(of_groups);
  scales_of_row().scales = scales_of_row_.data();
  scales_of_row().one = false;
}

void RowModel::read_activations_as(reference::Number number) {
  (problem_.shrink ? problem_.numbers.x : problem_.numbers.h) = number;
}

void RowModel::read_activations(std::vector<std::byte> rows) {
  if (problem_.shrink) {
    read_x(std::move(rows));
  } else {
    h_ = std::move(rows);
    problem_.h = h_.data();
  }
}

void RowModel::read_x(std::vector<std::byte> rows) {
  x_ = std::move(rows);
  problem_.x = x_.data();
}

void RowModel::read_weights(Role role, std::int64_t slice, std::vector<std::byte> values) {
  std::vector<const void*>& addresses = role == Role::kA   ? problem_.a
                                        : role == Role::kB ? problem_.b
                                                           : problem_.bias;
  addresses[at(slice)] = weights_.emplace_back(std::move(values)).data();
}

void RowModel::read_scales(Role role, std::int64_t slice, std::vector<float> of_numbers) {
  problem_.block_rows = problem_.block_columns = 1;
  std::vector<const float*>& addresses =
      role == Role::kAScale ? problem_.a_scale : problem_.b_scale;
  addresses[at(slice)] = scales_.emplace_back(std::move(of_numbers)).data();
}

void RowModel::read_numbers(reference::Number number) {
  problem_.numbers.a = problem_.numbers.b = number;
}

void RowModel::use_adapter(std::int32_t adapter) { adapter_ = adapter; }

void RowModel::clear_inputs() {
  std::fill(x_.begin(), x_.end(), std::byte{0});
  std::fill(h_.begin(), h_.end(), std::byte{0});
}

void RowModel::drop_k_tail(std::int64_t elements) {
  const std::int64_t bytes = size_bytes(evidence_.problem.dtype[Role::kX]);
  const std::int64_t row_bytes = problem_.x_stride * bytes;
  for (std::int64_t row = 0; row < std::ssize(x_); row += row_bytes) {
    const auto end = x_.begin() + row + problem_.in_features * bytes;
    std::fill(end - elements * bytes, end, std::byte{0});
  }
}

void RowModel::drop_lanes(std::int64_t lanes) {
  if (rank() > lanes) {
    rank_[at(adapter_)] -= lanes;
  } else {
    clear_inputs();
  }
}

void RowModel::use_scale(float scale) { scale_[at(adapter_)] = scale; }
float RowModel::scale() const { return scale_[at(adapter_)]; }
std::int64_t RowModel::rank() const { return adapter_ < 0 ? 0 : rank_[at(adapter_)]; }
void RowModel::forget_bias() { problem_.bias.clear(); }

void RowModel::swap_slices(std::size_t left, std::size_t right, bool with_bias) {
  std::swap(problem_.a[left], problem_.a[right]);
  std::swap(problem_.b[left], problem_.b[right]);
  if (!problem_.b_scale.empty()) {
    std::swap(problem_.a_scale[left], problem_.a_scale[right]);
    std::swap(problem_.b_scale[left], problem_.b_scale[right]);
  }
  if (with_bias && !problem_.bias.empty()) {
    std::swap(problem_.bias[left], problem_.bias[right]);
  }
  const auto lanes =
      static_cast<std::size_t>(problem_.max_rank * size_bytes(evidence_.problem.dtype[Role::kH]));
  if (!h_.empty()) {
    std::swap_ranges(h_.begin() + static_cast<std::ptrdiff_t>(left * lanes),
                     h_.begin() + static_cast<std::ptrdiff_t>((left + 1) * lanes),
                     h_.begin() + static_cast<std::ptrdiff_t>(right * lanes));
  }
  if (evidence_.problem.has_scaled_h()) {
    const auto across = static_cast<std::size_t>(evidence_.problem.scales_of_rows().across);
    const auto scales = [&](std::size_t slice) {
      return scales_of_row_.begin() + static_cast<std::ptrdiff_t>(slice * across);
    };
    std::swap_ranges(scales(left), scales(left + 1), scales(right));
  }
}

void RowModel::change_h(const std::function<double(double)>& change) {
  change_all_of_h(
      [&](std::vector<double>& h) { std::transform(h.begin(), h.end(), h.begin(), change); });
}

void RowModel::change_all_of_h(const std::function<void(std::vector<double>&)>& change) {
  const std::int32_t ids[] = {adapter_};
  reference::Problem first = problem_;
  first.expand = false;
  first.adapter_of_token = ids;
  reference::Rows h =
      reference::evaluate(first, oracle_arithmetic(evidence_.problem, evidence_.numerics),
                          std::vector<std::int64_t>{0});
  change(h.expected);
  changed_h_.assign(h.expected.begin(), h.expected.end());
  problem_.shrink = false;
  problem_.numbers.h = reference::Number::kFp32;
  problem_.h = changed_h_.data();
  problem_.h_scale = {};
}

Prediction RowModel::predict() const {
  const std::int32_t ids[] = {adapter_};
  reference::Problem problem = problem_;
  problem.adapter_of_token = ids;
  Prediction prediction;
  if (!problem.expand && !problem.shrink) {
    prediction.least.assign(changed_h_.begin(), changed_h_.end());
    prediction.most = prediction.least;
    prediction.owned.assign(changed_h_.size(), 1);
    return prediction;
  }
  // Within the bound of sums that are exact any code could be right. Of an h that is changed no sum
  // is left but the second, which is not exact.
  const bool exact_h =
      problem.shrink && is_exact(evidence_.tensors.fill) && evidence_.problem.h_quantiser;
  const reference::Rows rows =
      reference::evaluate(problem, oracle_arithmetic(evidence_.problem, evidence_.numerics),
                          std::vector<std::int64_t>{0},
                          exact_h ? reference::Rounding::kModelled : reference::Rounding::kBounded);
  for (std::size_t column = 0; column < rows.expected.size(); ++column) {
    prediction.least.push_back(rows.expected[column] - rows.bound[column]);
    prediction.most.push_back(rows.expected[column] + rows.bound[column]);
  }
  prediction.owned = rows.owned;
  return prediction;
}

std::vector<double> delta_of(const Evidence& evidence, const WrongRow& row) {
  std::vector<double> delta(row.right.expected.size());
  for (std::size_t column = 0; column < delta.size(); ++column) {
    const double before = evidence.adds ? row.before[column] : 0;
    delta[column] = row.right.owned[column] != 0 ? row.right.expected[column] - before : 0;
  }
  return delta;
}

bool within(const Evidence& evidence, double got, double least, double most) {
  if (std::isnan(least) || std::isnan(most)) {
    return std::isnan(got);
  }
  return reference::round_to(evidence.number, least) <= got &&
         got <= reference::round_to(evidence.number, most);
}

namespace {

// Whether what is predicted of an element is what is right, so that it explains no error, however
// far a bound reaches.
bool predicts_right(const WrongRow& row, const Prediction& prediction, std::size_t column) {
  const double expected = row.right.expected[column], bound = row.right.bound[column];
  return prediction.least[column] == expected - bound &&
         prediction.most[column] == expected + bound;
}

}  // namespace

Agreement agrees(const Evidence& evidence, const WrongRow& row, const Prediction& prediction) {
  bool finite = false;
  for (std::size_t column = 0; column < row.got.size(); ++column) {
    const bool both = row.right.owned[column] != 0 && prediction.owned[column] != 0;
    const bool either = row.right.owned[column] != 0 || prediction.owned[column] != 0;
    // What is wrong beside the slices must be explained too.
    if (!either && row.wrong[column] != 0) {
      return Agreement::kNo;
    }
    // Lanes of h that only one of the two writes hold nothing to compare with.
    if (evidence.expand ? !either : !both) {
      continue;
    }
    if (!within(evidence, row.got[column], prediction.least[column], prediction.most[column]) ||
        (both && row.wrong[column] != 0 && predicts_right(row, prediction, column))) {
      return Agreement::kNo;
    }
    finite = finite || std::isfinite(row.got[column]);
  }
  return finite ? Agreement::kYes : Agreement::kEmpty;
}

}  // namespace lora_bench
