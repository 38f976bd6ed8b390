#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace lora_bench {

// Host memory that is not to be written while a watch is held. Its whole pages are made read-only;
// the first write to each is noted, and then let through, so that the writer goes on as if nobody
// had looked. What is put back afterwards is seen all the same. One watch at a time: while there is
// one, another watches nothing.
class WriteWatch {
 public:
  struct Range {
    std::string name;
    std::span<std::byte> bytes;
  };
  explicit WriteWatch(std::vector<Range> ranges);
  ~WriteWatch();
  WriteWatch(const WriteWatch&) = delete;
  WriteWatch& operator=(const WriteWatch&) = delete;

  // Names of the ranges that were written, in their order.
  [[nodiscard]] std::vector<std::string> written() const;

 private:
  std::vector<Range> ranges_;
  bool watches_ = false;
};

}  // namespace lora_bench
