#include "measure/layer_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "measure/small_changes.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kOtherRowStream = 1ULL << 19;
constexpr std::uint64_t kOtherIdStream = 1ULL << 20;
constexpr std::uint64_t kOtherLaneStream = 1ULL << 21;
constexpr std::int64_t kRowsOfOthers = 2;
// How much larger than any other a changed number of lanes that are looked up is.
constexpr float kLaneFactor = 16;

class OtherNumbers {
 public:
  OtherNumbers(const LayerMeasureRequest& request, const TimedLayer& timed, std::uint64_t secret)
      : request_(request),
        problem_(request.problem),
        tensors_(*request.tensors),
        ids_(request.tensors->ids),
        timed_(timed),
        secret_(secret),
        looks_up_(description_of(request.problem.layer.kind).looks_up) {}

  std::string first_wrong() {
    const std::vector<std::int64_t> few = any_rows();
    if (few.empty()) {
      return "";  // no adapter is used
    }
    const SmallChange change{problem_.lora, 0, few, secret_, &replaced_};
    std::string wrong = changed("another number in B", few, [&] {
      change_b(change, tensors_.lora);
      load_adapters();
    });
    if (wrong.empty()) {
      wrong = changed("another number in A", few, [&] {
        looks_up_ ? change_lanes(few) : change_a(change, tensors_.lora);
        load_adapters();
      });
    }
    if (wrong.empty()) {
      wrong = changed("another number in x", few, [&] {
        looks_up_ ? change_ids(few) : change_rows(change, tensors_.lora);
        load_input();
      });
    }
    if (wrong.empty()) {
      wrong = other_scales(few);
    }
    return wrong.empty() ? all_new() : wrong;
  }

 private:
  [[nodiscard]] std::int64_t below(std::uint64_t stream, std::int64_t index,
                                   std::int64_t bound) const {
    return static_cast<std::int64_t>(random_below(
        secret_, stream, static_cast<std::uint64_t>(index), static_cast<std::uint64_t>(bound)));
  }
  [[nodiscard]] std::int64_t slot_of(std::int64_t row) const {
    return problem_.lora.plan.adapter_of_token[static_cast<std::size_t>(row)];
  }
  [[nodiscard]] std::int64_t rank_of(std::int64_t slot) const {
    return problem_.lora.rank[static_cast<std::size_t>(slot)];
  }

  [[nodiscard]] bool is_adapter(std::int64_t slot) const { return slot >= 0 && rank_of(slot) > 0; }

  // Few of those to which an adapter adds.
  [[nodiscard]] std::vector<std::int64_t> any_rows() const {
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < problem_.lora.tokens; ++row) {
      if (is_adapter(slot_of(row))) {
        rows.push_back(row);
      }
    }
    return few_of(std::move(rows));
  }

  // Few of those to which another adapter adds than before, or none any more; where there are none
  // as any_rows().
  [[nodiscard]] std::vector<std::int64_t> changed_rows(const std::vector<std::int32_t>& ids) const {
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < problem_.lora.tokens; ++row) {
      const std::int64_t before = slot_of(row);
      const std::int64_t now = ids[static_cast<std::size_t>(row)];
      if (before != now && (is_adapter(before) || is_adapter(now))) {
        rows.push_back(row);
      }
    }
    return rows.empty() ? any_rows() : few_of(std::move(rows));
  }

  [[nodiscard]] std::vector<std::int64_t> few_of(std::vector<std::int64_t> rows) const {
    const auto all = static_cast<std::int64_t>(rows.size());
    const std::int64_t wanted = std::min(kRowsOfOthers, all);
    for (std::int64_t index = 0; index < wanted; ++index) {
      const std::int64_t other = index + below(kOtherRowStream, index, all - index);
      std::swap(rows[static_cast<std::size_t>(index)], rows[static_cast<std::size_t>(other)]);
    }
    rows.resize(static_cast<std::size_t>(wanted));
    return rows;
  }

  template <typename Change>
  std::string changed(const char* what, const std::vector<std::int64_t>& rows,
                      const Change& change) {
    change();
    std::string wrong = look(what, problem_, rows);
    put_back(replaced_);
    replaced_.clear();
    tensors_.ids = ids_;
    timed_.layer.load_from(request_.loaded);
    return wrong;
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

  void load_input() const {
    looks_up_ ? timed_.layer.set_ids(tensors_.ids) : timed_.layer.set_input(tensors_.lora.x.data);
  }

  // Those in use.
  void load_adapters() const {
    for (const std::int32_t slot : problem_.lora.plan.active_ids) {
      if (rank_of(slot) > 0) {
        timed_.layer.set_adapter(slot, adapter_of(problem_, tensors_, slot),
                                 tensors_.lora.scale[static_cast<std::size_t>(slot)]);
      }
    }
  }

  void replace(HostTensor& tensor, std::int64_t index, float value) {
    replaced_.push_back({&tensor, index, load(tensor.dtype, tensor.data.data(), index)});
    store(tensor.dtype, tensor.data.data(), index, value);
  }

  // x has one number that is not 0: A must change where that is.
  void change_lanes(const std::vector<std::int64_t>& rows) {
    HostTensor& a = tensors_.lora.a.front();
    for (const std::int64_t row : rows) {
      const std::int64_t slot = slot_of(row);
      const auto place = [&](std::int64_t lane) {
        return (slot * problem_.lora.max_rank + lane) * problem_.lora.in_features +
               tensors_.ids[static_cast<std::size_t>(row)];
      };
      float largest = 0;
      for (std::int64_t lane = 0; lane < rank_of(slot); ++lane) {
        largest = std::max(largest, std::fabs(load(a.dtype, a.data.data(), place(lane))));
      }
      replace(a, place(below(kOtherLaneStream, row, rank_of(slot))), -kLaneFactor * largest);
    }
  }

  void change_ids(const std::vector<std::int64_t>& rows) {
    const std::int64_t vocabulary = problem_.layer.in_features;
    for (const std::int64_t row : rows) {
      std::int32_t& id = tensors_.ids[static_cast<std::size_t>(row)];
      const auto other = static_cast<std::int32_t>(
          vocabulary > 1 ? (id + 1 + below(kOtherIdStream, row, vocabulary - 1)) % vocabulary : 0);
      replace(tensors_.lora.x, row * vocabulary + id, 0);
      replace(tensors_.lora.x, row * vocabulary + other, 1);
      id = other;
    }
  }

  void negate_input() {
    HostTensor& x = tensors_.lora.x;
    const auto bytes = static_cast<std::size_t>(size_bytes(x.dtype));
    for (std::size_t last = bytes; last <= x.data.size(); last += bytes) {
      x.data[last - 1] ^= std::byte{0x80};  // the sign, in little endian
    }
  }

  // Every adapter in use from its other end: K in A, the columns in B. Twice is nothing.
  void turn_adapters() {
    const Problem& lora = problem_.lora;
    for (const std::int32_t slot : lora.plan.active_ids) {
      for (std::size_t slice = 0; slice < lora.widths.size(); ++slice) {
        for (std::int64_t lane = 0; lane < rank_of(slot); ++lane) {
          turn(tensors_.lora.a[slice], (slot * lora.max_rank + lane) * lora.in_features,
               lora.in_features, 1);
        }
        turn(tensors_.lora.b[slice], slot * lora.widths[slice] * lora.max_rank, lora.widths[slice],
             lora.max_rank);
      }
    }
  }

  static void turn(HostTensor& tensor, std::int64_t first, std::int64_t count,
                   std::int64_t elements) {
    const std::int64_t bytes = elements * size_bytes(tensor.dtype);
    std::byte* const start = tensor.data.data() + first * size_bytes(tensor.dtype);
    for (std::int64_t one = 0, other = count - 1; one < other; ++one, --other) {
      std::swap_ranges(start + one * bytes, start + (one + 1) * bytes, start + other * bytes);
    }
  }

  // They come with an adapter that is set, which what was recorded before has to see.
  std::string other_scales(const std::vector<std::int64_t>& rows) {
    LayerProblem other = problem_;
    const std::vector<float> scales = tensors_.lora.scale;
    for (std::size_t slot = 0; slot < scales.size(); ++slot) {
      other.lora.scale[slot] *= -0.5F;
      tensors_.lora.scale[slot] *= -0.5F;
    }
    load_adapters();
    std::string wrong = look("other scales", other, rows);
    tensors_.lora.scale = scales;
    timed_.layer.load_from(request_.loaded);
    return wrong;
  }

  std::string all_new() {
    const std::vector<std::int64_t> rows = any_rows();
    turn_adapters();
    if (looks_up_) {
      std::vector<std::int64_t> all(static_cast<std::size_t>(problem_.lora.tokens));
      std::iota(all.begin(), all.end(), 0);
      change_ids(all);
    } else {
      negate_input();
    }
    load_adapters();
    load_input();
    std::string wrong = look("another x and other adapters", problem_, rows);
    if (wrong.empty()) {
      wrong = other_batch();
    }
    turn_adapters();
    if (looks_up_) {
      put_back(replaced_);
      replaced_.clear();
      tensors_.ids = ids_;
    } else {
      negate_input();
    }
    timed_.layer.load_from(request_.loaded);
    return wrong;
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
  LayerTensors& tensors_;
  const std::vector<std::int32_t> ids_;
  const TimedLayer& timed_;
  std::uint64_t secret_;
  bool looks_up_;
  Replaced replaced_;
};

}  // namespace

std::string remembered_in(const LayerMeasureRequest& request, const TimedLayer& timed,
                          std::uint64_t secret) {
  return OtherNumbers(request, timed, secret).first_wrong();
}

}  // namespace lora_bench
