#pragma once

#include <memory>

#include "device/memory.h"

// Host memory of which a test changes a part.
class WrappedMemory : public lora_bench::Memory {
 public:
  [[nodiscard]] lora_bench::Space space() const override { return lora_bench::Space::kHost; }
  [[nodiscard]] void* allocate(std::int64_t bytes) override { return host_->allocate(bytes); }
  void release(void* address) noexcept override { host_->release(address); }
  void copy_in(void* to, const void* from, std::int64_t bytes) override {
    host_->copy_in(to, from, bytes);
  }
  void copy_out(void* to, const void* from, std::int64_t bytes) override {
    host_->copy_out(to, from, bytes);
  }
  void copy_within(void* to, const void* from, std::int64_t bytes) override {
    host_->copy_within(to, from, bytes);
  }
  void fill(void* to, std::byte value, std::int64_t bytes) override {
    host_->fill(to, value, bytes);
  }
  void synchronize() override {}
  [[nodiscard]] std::int64_t available_bytes() const override { return host_->available_bytes(); }

 private:
  std::unique_ptr<lora_bench::Memory> host_ = lora_bench::make_host_memory();
};
