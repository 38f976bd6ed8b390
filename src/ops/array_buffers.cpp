#include "ops/array_buffers.h"

#include <fmt/format.h>

#include <utility>

namespace lora_bench {

ArrayBuffers::ArrayBuffers(Memory& memory, const ArrayShapes& inputs, const ArrayShapes& outputs,
                           bool shifted) {
  const auto add = [&](const ArrayShapes& arrays, std::vector<Kept>& to, auto& addresses) {
    for (const ArrayShape& array : arrays) {
      to.push_back(
          {array.name, GuardedBuffer(memory, array.bytes(), shifted ? array.element_bytes : 0)});
      addresses.push_back(to.back().buffer.data());
    }
  };
  add(inputs, inputs_, operands_.inputs);
  add(outputs, outputs_, operands_.outputs);
}

void ArrayBuffers::put_inputs(Contents contents) {
  put_ = std::move(contents);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].buffer.upload(put_[i]);
  }
}

void ArrayBuffers::put_outputs(const Contents& contents) {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    outputs_[i].buffer.upload(contents[i]);
  }
}

ArrayBuffers::Contents ArrayBuffers::outputs() const {
  Contents contents;
  for (const Kept& output : outputs_) {
    contents.push_back(output.buffer.download());
  }
  return contents;
}

std::string ArrayBuffers::damage() const {
  for (const std::vector<Kept>* arrays : {&outputs_, &inputs_}) {
    for (const Kept& array : *arrays) {
      if (const std::string damage = array.buffer.damage(); !damage.empty()) {
        return fmt::format("guard of {} damaged: {}", array.name, damage);
      }
    }
  }
  return "";
}

std::string ArrayBuffers::changed_input() const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].buffer.download() != put_[i]) {
      return std::string(inputs_[i].name);
    }
  }
  return "";
}

}  // namespace lora_bench
