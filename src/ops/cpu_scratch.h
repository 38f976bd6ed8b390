#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace lora_bench {

// Room for fp32 numbers that a thread keeps between items; contents are lost when it grows.
class CpuScratch {
 public:
  [[nodiscard]] float* reserve(std::int64_t numbers) {
    if (numbers > size_) {
      numbers_.reset();
      size_ = 0;
      numbers_.reset(new (std::align_val_t{64}) float[static_cast<std::size_t>(numbers)]);
      size_ = numbers;
    }
    return numbers_.get();
  }

 private:
  struct Release {
    void operator()(float* numbers) const { operator delete[](numbers, std::align_val_t{64}); }
  };
  std::unique_ptr<float[], Release> numbers_;
  std::int64_t size_ = 0;
};

}  // namespace lora_bench
