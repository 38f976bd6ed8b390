#pragma once

namespace lora_bench {

// Holds a CUDA stream (its handle) while the host queues work behind it. The word that opens it
// lies in host memory that the device reads, so that opening needs no call of CUDA.
class DeviceGate {
 public:
  DeviceGate();
  ~DeviceGate();
  DeviceGate(const DeviceGate&) = delete;
  DeviceGate& operator=(const DeviceGate&) = delete;

  // The stream goes on after open(), or by itself after half a second.
  void close(void* stream);
  void open();
  // Whether the gate that was closed last went on by itself; ask after a synchronisation.
  [[nodiscard]] bool timed_out() const;

 private:
  struct Words;
  volatile Words* words_ = nullptr;
};

}  // namespace lora_bench
