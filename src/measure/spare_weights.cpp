#include "measure/spare_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/backends.h"

namespace lora_bench {
namespace {

GuardedBuffer& prepared_of(const OperandSet& set) {
  const auto found = std::find_if(set.held().begin(), set.held().end(),
                                  [](const HeldOperand& held) { return held.name == kPrepared; });
  return *found->buffer;
}

}  // namespace

SpareWeights::SpareWeights(Memory& memory, const Problem& problem, const Tensors& tensors,
                           const Backend& backend, const OperandSet& like)
    : memory_(memory), problem_(problem), backend_(backend) {
  if (like.operands().prepared != nullptr) {
    spare_ = like.again(tensors, true, false);
  }
}

void SpareWeights::take(const OperandSet& set) {
  for (std::size_t index = 0; index < set.held().size(); ++index) {
    const HeldOperand& to = spare_->held()[index];
    if (to.is_weights() && to.buffer != nullptr) {
      to.buffer->copy_from(*set.held()[index].buffer);
    }
  }
}

void SpareWeights::prepare() {
  prepared_of(*spare_).poison();
  memory_.enqueue_and_wait([&](void* stream) {
    prepare_weights(backend_, problem_, spare_->operands(), Stream{stream});
  });
}

void SpareWeights::hand_to(const OperandSet& set) const {
  prepared_of(set).copy_from(prepared_of(*spare_));
}

std::string SpareWeights::changed(const OperandSet& set) {
  take(set);
  prepare();
  const std::vector<std::byte> now = prepared_of(set).download();
  const std::vector<std::byte> wanted = prepared_of(*spare_).download();
  const auto differs = std::mismatch(now.begin(), now.end(), wanted.begin()).first;
  return differs == now.end()
             ? ""
             : fmt::format(
                   "prepared is not what prepare makes of these weights, first at byte {}: "
                   "a launch wrote there, or prepare does not make the same twice",
                   differs - now.begin());
}

}  // namespace lora_bench
