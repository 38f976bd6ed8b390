#include "verify/groundwork.h"

#include <algorithm>
#include <utility>

#include "verify/oracle.h"

namespace lora_bench {
namespace {

std::int64_t bytes_of(const reference::Rows& rows) {
  const std::size_t elements = rows.expected.size();
  return static_cast<std::int64_t>(elements * (2 * sizeof(double) + 1) +
                                   rows.tokens.size() * sizeof(std::int64_t));
}

// Of an exact fill only these are modelled: backends that differ in others share its values.
reference::Arithmetic what_matters(Fill fill, const reference::Arithmetic& declared) {
  if (!is_exact(fill)) {
    return declared;
  }
  reference::Arithmetic modelled;
  modelled.intermediate = declared.intermediate;
  modelled.casts_h = declared.casts_h;
  modelled.rounds_delta = declared.rounds_delta;
  modelled.bias_added = declared.bias_added;
  if (reference::has_eight_bits(modelled.intermediate)) {  // the second sum is bounded
    modelled.unit_roundoff = declared.unit_roundoff;
    modelled.expand_depth = declared.expand_depth;
  }
  return modelled;
}

}  // namespace

bool Room::take(std::int64_t bytes) {
  const bool room = bytes <= most_bytes_ - taken_bytes_;
  taken_bytes_ += room ? bytes : 0;
  return room;
}

std::shared_ptr<const reference::Rows> KnownRows::rows(const Problem& problem,
                                                       const Tensors& tensors,
                                                       const Numerics& numerics,
                                                       std::span<const std::int64_t> rows) {
  const reference::Arithmetic arithmetic =
      what_matters(tensors.fill, oracle_arithmetic(problem, numerics));
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& known) {
    return known.fill == tensors.fill && known.arithmetic == arithmetic &&
           std::equal(rows.begin(), rows.end(), known.rows->tokens.begin(),
                      known.rows->tokens.end());
  });
  if (found != known_.end()) {
    return found->rows;
  }
  auto evaluated =
      std::make_shared<const reference::Rows>(evaluate_rows(problem, tensors, arithmetic, rows));
  if (room_->take(bytes_of(*evaluated))) {
    known_.push_back({tensors.fill, arithmetic, evaluated});
  }
  return evaluated;
}

KnownRows::~KnownRows() {
  for (const Known& known : known_) {
    room_->give_back(bytes_of(*known.rows));
  }
}

Groundwork::Groundwork(Problem problem, std::uint64_t seed, std::int64_t most_bytes)
    : problem_(std::move(problem)),
      seed_(seed),
      room_(std::make_shared<Room>(most_bytes)),
      known_(room_) {}

void Groundwork::tell(const Tuning& tuning) {
  if (!(problem_.tuning == tuning)) {
    for (const auto& [name, derived] : derived_) {
      room_->give_back(tensor_bytes(derived->step.problem));
    }
    derived_.clear();
    problem_.tuning = tuning;
  }
}

std::shared_ptr<const Tensors> Groundwork::tensors(Fill fill) {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const auto& drawn) { return drawn->fill == fill; });
  if (found != tensors_.end()) {
    return *found;
  }
  auto drawn = std::make_shared<const Tensors>(draw_tensors(problem_, fill, seed_));
  if (room_->take(tensor_bytes(problem_))) {
    tensors_.push_back(drawn);
  }
  return drawn;
}

std::shared_ptr<const reference::Rows> Groundwork::rows(const Tensors& tensors,
                                                        const Numerics& numerics,
                                                        std::span<const std::int64_t> rows) {
  return known_.rows(problem_, tensors, numerics, rows);
}

std::shared_ptr<DerivedStep> Groundwork::derived(const std::string& name,
                                                 const std::function<Step()>& make) {
  if (const auto found = derived_.find(name); found != derived_.end()) {
    return found->second;
  }
  auto made = std::make_shared<DerivedStep>(DerivedStep{make(), KnownRows(room_)});
  if (room_->take(tensor_bytes(made->step.problem))) {
    derived_.emplace(name, made);
  }
  return made;
}

}  // namespace lora_bench
