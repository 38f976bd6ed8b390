#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/dtype.h"
#include "measure/layer_time.h"
#include "measure/small_changes.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kOtherRowStream = 1ULL << 19;
constexpr std::uint64_t kOtherIdStream = 1ULL << 20;
constexpr std::uint64_t kOtherLaneStream = 1ULL << 21;
constexpr std::int64_t kRowsOfOthers = 2;
// How much larger than any other a changed number of lanes that are looked up is, where the format
// holds that.
constexpr float kLaneFactor = 16;
// What scales of A and of B are multiplied with: one that is forgotten shows, as do both.
constexpr float kOtherScaleOfA = -0.5F, kOtherScaleOfB = 1.5F;

// Reverses the order of `count` groups of elements.
void turn(HostTensor& tensor, std::int64_t first, std::int64_t count, std::int64_t elements) {
  const std::int64_t bytes = elements * size_bytes(tensor.dtype);
  std::byte* const start = tensor.data.data() + first * size_bytes(tensor.dtype);
  for (std::int64_t one = 0, other = count - 1; one < other; ++one, --other) {
    std::swap_ranges(start + one * bytes, start + (one + 1) * bytes, start + other * bytes);
  }
}

// Puts other numbers into the tensors of a layer, and the old ones back.
class OtherNumbers {
 public:
  OtherNumbers(const LayerProblem& problem, LayerTensors& tensors, std::uint64_t secret)
      : problem_(problem),
        tensors_(tensors),
        ids_(tensors.ids),
        scales_(tensors.lora.scale),
        a_scale_(tensors.lora.a_scale),
        b_scale_(tensors.lora.b_scale),
        secret_(secret),
        looks_up_(description_of(problem.layer.kind).looks_up) {}

  [[nodiscard]] bool looks_up() const { return looks_up_; }

  // One number for each of these rows, or of their first adapters.
  void change_one_of_b(const std::vector<std::int64_t>& rows) {
    change_b(small_change(rows), tensors_.lora);
  }
  void change_one_of_a(const std::vector<std::int64_t>& rows) {
    looks_up_ ? change_lanes(rows) : change_a(small_change(rows), tensors_.lora);
  }
  void change_one_of_x(const std::vector<std::int64_t>& rows) {
    looks_up_ ? change_ids(rows) : change_rows(small_change(rows), tensors_.lora);
  }

  // Every scale, in `problem` too.
  void change_scales(Problem& problem) { lora_bench::change_scales(problem, tensors_.lora); }

  // Those of weights of eight bits.
  void change_weight_scales() {
    multiply(tensors_.lora.a_scale, kOtherScaleOfA);
    multiply(tensors_.lora.b_scale, kOtherScaleOfB);
  }

  // All of x and every adapter in use.
  void change_all() {
    turn_adapters();
    if (looks_up_) {
      change_ids(count_to(problem_.lora.tokens));
    } else {
      negate_x();
    }
    all_changed_ = true;
  }

  void put_back_all() {
    if (std::exchange(all_changed_, false)) {
      turn_adapters();
      if (!looks_up_) {
        negate_x();
      }
    }
    put_back(replaced_);
    replaced_.clear();
    tensors_.ids = ids_;
    tensors_.lora.scale = scales_;
    tensors_.lora.a_scale = a_scale_;
    tensors_.lora.b_scale = b_scale_;
  }

 private:
  [[nodiscard]] SmallChange small_change(const std::vector<std::int64_t>& rows) {
    return {problem_.lora, 0, rows, secret_, &replaced_};
  }

  static void multiply(std::vector<HostTensor>& scales, float factor) {
    for (HostTensor& of_slice : scales) {
      for (std::int64_t i = 0; i < of_slice.elements; ++i) {
        store(of_slice.dtype, of_slice.data.data(), i,
              factor * load(of_slice.dtype, of_slice.data.data(), i));
      }
    }
  }

  void replace_by(HostTensor& tensor, std::int64_t index, float value) {
    replaced_.push_back({&tensor, index, load(tensor.dtype, tensor.data.data(), index)});
    store(tensor.dtype, tensor.data.data(), index, value);
  }

  // x has one number that is not 0: A must change where that is.
  void change_lanes(const std::vector<std::int64_t>& rows) {
    HostTensor& a = tensors_.lora.a.front();
    for (const std::int64_t row : rows) {
      const std::int64_t slot = slot_of(problem_.lora, row);
      const std::int64_t rank = rank_of(problem_.lora, slot);
      const auto place = [&](std::int64_t lane) {
        return (slot * problem_.lora.max_rank + lane) * problem_.lora.in_features +
               problem_.whole_id(row, tensors_.ids[static_cast<std::size_t>(row)]);
      };
      float largest = 0;
      for (std::int64_t lane = 0; lane < rank; ++lane) {
        largest = std::max(largest, std::fabs(load(a.dtype, a.data.data(), place(lane))));
      }
      const std::int64_t changed = place(drawn_below(secret_, kOtherLaneStream, row, rank));
      const float most = static_cast<float>(largest_finite(a.dtype));
      replace_by(a, changed,
                 std::copysign(std::min(kLaneFactor * largest, most),
                               -load(a.dtype, a.data.data(), changed)));
    }
  }

  void change_ids(const std::vector<std::int64_t>& rows) {
    const std::int64_t vocabulary = problem_.layer.in_features;
    const std::int64_t width = problem_.lora.in_features;
    for (const std::int64_t row : rows) {
      std::int32_t& id = tensors_.ids[static_cast<std::size_t>(row)];
      const auto other = static_cast<std::int32_t>(
          vocabulary > 1
              ? (id + 1 + drawn_below(secret_, kOtherIdStream, row, vocabulary - 1)) % vocabulary
              : 0);
      replace_by(tensors_.lora.x, row * width + problem_.whole_id(row, id), 0);
      replace_by(tensors_.lora.x, row * width + other, 1);
      id = other;
    }
  }

  // Twice is nothing.
  void negate_x() { negate(tensors_.lora.x.data, size_bytes(tensors_.lora.x.dtype)); }

  // Every adapter in use from its other end: K in A, the columns in B. Twice is nothing.
  void turn_adapters() {
    const Problem& lora = problem_.lora;
    for (const std::int32_t slot : lora.plan.active_ids) {
      for (std::size_t slice = 0; slice < lora.widths.size(); ++slice) {
        for (std::int64_t lane = 0; lane < rank_of(lora, slot); ++lane) {
          turn(tensors_.lora.a[slice], (slot * lora.max_rank + lane) * lora.in_features,
               lora.in_features, 1);
        }
        turn(tensors_.lora.b[slice], slot * lora.widths[slice] * lora.max_rank, lora.widths[slice],
             lora.max_rank);
      }
    }
  }

  const LayerProblem& problem_;
  LayerTensors& tensors_;
  const std::vector<std::int32_t> ids_;
  const std::vector<float> scales_;
  const std::vector<HostTensor> a_scale_, b_scale_;
  std::uint64_t secret_;
  bool looks_up_;
  bool all_changed_ = false;
  Replaced replaced_;
};

// Runs the timed layer with other numbers, and asks whether it has computed with them.
class LayerWithOthers {
 public:
  LayerWithOthers(const LayerMeasureRequest& request, const TimedLayer& timed, std::uint64_t secret)
      : request_(request),
        problem_(request.problem),
        timed_(timed),
        secret_(secret),
        numbers_(request.problem, *request.tensors, secret) {}

  std::string first_wrong() {
    const std::vector<std::int64_t> few = few_of(owned_rows(problem_.lora));
    if (few.empty()) {
      return "";  // no adapter is used
    }
    numbers_.change_one_of_b(few);
    load_adapters();
    std::string wrong = look_and_put_back("another number in B", problem_, few);
    if (wrong.empty()) {
      numbers_.change_one_of_a(few);
      load_adapters();
      wrong = look_and_put_back("another number in A", problem_, few);
    }
    if (wrong.empty()) {
      timed_.run();  // that weights were prepared to put them back serves the next launch alone
      numbers_.change_one_of_x(few);
      load_input();
      wrong = look_and_put_back("another number in x", problem_, few);
    }
    if (wrong.empty()) {
      // They come with an adapter that is set, which what was recorded before has to see.
      LayerProblem other = problem_;
      numbers_.change_scales(other.lora);
      load_adapters();
      wrong = look_and_put_back("other scales", other, few);
    }
    if (wrong.empty() && problem_.lora.has_scaled_weights()) {
      numbers_.change_weight_scales();
      load_adapters();
      wrong = look_and_put_back("other scales of weights", problem_, few);
    }
    if (wrong.empty()) {
      numbers_.change_all();
      load_adapters();
      load_input();
      wrong = look("another x and other adapters", problem_, few);
      wrong = wrong.empty() ? other_batch() : wrong;
      put_back_all();
    }
    return wrong;
  }

 private:
  [[nodiscard]] std::vector<std::int64_t> few_of(std::vector<std::int64_t> rows) const {
    return drawn_of(std::move(rows), kRowsOfOthers, secret_, kOtherRowStream);
  }

  // Few of those to which another adapter adds than before, or none any more; where there are none,
  // few of those to which one adds.
  [[nodiscard]] std::vector<std::int64_t> changed_rows(const std::vector<std::int32_t>& ids) const {
    const auto adds = [&](std::int64_t slot) {
      return slot >= 0 && rank_of(problem_.lora, slot) > 0;
    };
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < problem_.lora.tokens; ++row) {
      const std::int64_t before = slot_of(problem_.lora, row);
      const std::int64_t now = ids[static_cast<std::size_t>(row)];
      if (before != now && (adds(before) || adds(now))) {
        rows.push_back(row);
      }
    }
    return few_of(rows.empty() ? owned_rows(problem_.lora) : std::move(rows));
  }

  std::string look(const char* what, const LayerProblem& problem,
                   const std::vector<std::int64_t>& rows) const {
    for (std::int64_t rank = 0; rank < timed_.layer.shards(); ++rank) {
      timed_.layer.poison_results(rank);
    }
    timed_.run();
    const std::string wrong = request_.check_rows(timed_.layer, problem, rows);
    return wrong.empty() ? "" : fmt::format("with {}: {}", what, wrong);
  }

  std::string look_and_put_back(const char* what, const LayerProblem& problem,
                                const std::vector<std::int64_t>& rows) {
    std::string wrong = look(what, problem, rows);
    put_back_all();
    return wrong;
  }

  void put_back_all() {
    numbers_.put_back_all();
    timed_.layer.load_from(request_.loaded);
  }

  void load_input() const {
    const LayerTensors& tensors = *request_.tensors;
    numbers_.looks_up() ? timed_.layer.set_ids(tensors.ids)
                        : timed_.layer.set_input(tensors.lora.x.data);
  }

  // Those in use.
  void load_adapters() const {
    const LayerTensors& tensors = *request_.tensors;
    for (const std::int32_t slot : problem_.lora.plan.active_ids) {
      if (rank_of(problem_.lora, slot) > 0) {
        timed_.layer.set_adapter(slot, adapter_of(problem_, tensors, slot),
                                 tensors.lora.scale[static_cast<std::size_t>(slot)]);
      }
    }
  }

  // Backwards, so that rows that lay together do so still and no workspace is too small.
  std::string other_batch() {
    LayerProblem other = problem_;
    std::vector<std::int32_t> ids = problem_.lora.plan.adapter_of_token;
    std::reverse(ids.begin(), ids.end());
    other.lora.plan = make_plan(ids, problem_.lora.slots);
    timed_.layer.activate(other.lora.plan);
    timed_.record();
    return look("another batch", other, changed_rows(ids));
  }

  const LayerMeasureRequest& request_;
  const LayerProblem& problem_;
  const TimedLayer& timed_;
  std::uint64_t secret_;
  OtherNumbers numbers_;
};

}  // namespace

std::string remembered_in(const LayerMeasureRequest& request, const TimedLayer& timed,
                          std::uint64_t secret) {
  return LayerWithOthers(request, timed, secret).first_wrong();
}

}  // namespace lora_bench
