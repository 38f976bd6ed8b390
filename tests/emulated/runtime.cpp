#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "emulated/launch.h"

// The part of CUDA's runtime that the project asks for. Work is done where it is put on a stream,
// so there is nothing to wait for; a stream that records keeps it in a graph.

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};
struct CUstream_st {
  CUgraph_st* recorded = nullptr;
};
struct CUevent_st {
  CUgraph_st* recorded = nullptr;
  std::chrono::steady_clock::time_point time;
};

namespace {

CUstream_st default_stream;
std::set<CUstream_st*> streams = {&default_stream};
constexpr std::size_t kMemoryBytes = std::size_t{4} << 30;

CUstream_st& at(cudaStream_t stream) { return stream == nullptr ? default_stream : *stream; }

cudaError_t make_stream(cudaStream_t* stream) {
  *stream = new CUstream_st;
  streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t allocate(void** address, std::size_t bytes) {
  constexpr std::size_t kAlignment = 512;
  const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  *address = bytes < kMemoryBytes ? std::aligned_alloc(kAlignment, whole) : nullptr;
  if (*address == nullptr) {
    return cudaErrorMemoryAllocation;
  }
  std::memset(*address, 0xCD, whole);
  return cudaSuccess;
}

}  // namespace

namespace lora_bench::emulated {

void enqueue(cudaStream_t stream, std::function<void()> work) {
  if (at(stream).recorded != nullptr) {
    at(stream).recorded->work.push_back(std::move(work));
    return;
  }
  try {
    work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::abort();
  }
}

}  // namespace lora_bench::emulated

using lora_bench::emulated::enqueue;

extern "C" {

cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the emulated GPU"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
// What kernels are chosen by is that of an H200.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated GPU");
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->l2CacheSize = 60 << 20;
  properties->totalGlobalMem = kMemoryBytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 132;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 232448;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = 233472;
      break;
    case cudaDevAttrClockRate:
      *value = 1'980'000;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, size_t bytes) { return allocate(address, bytes); }
cudaError_t cudaFree(void* address) {
  std::free(address);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  return allocate(address, bytes);
}
cudaError_t cudaFreeHost(void* address) { return cudaFree(address); }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = kMemoryBytes;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  enqueue(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  enqueue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  if (width > to_pitch || width > from_pitch) {
    return cudaErrorInvalidValue;
  }
  for (size_t row = 0; row < height; ++row) {
    cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch,
                    static_cast<const char*>(from) + row * from_pitch, width, kind, nullptr);
  }
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return make_stream(stream);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return make_stream(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  at(stream).recorded = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status =
      at(stream).recorded != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
// A recording has the number of its address.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* number, cudaGraph_t* graph,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  if (number != nullptr) {
    *number = reinterpret_cast<std::uintptr_t>(at(stream).recorded);
  }
  if (graph != nullptr) {
    *graph = at(stream).recorded;
  }
  return cudaStreamIsCapturing(stream, status);
}
// What is recorded is one line of work, whatever it is said to depend on.
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t*, cudaGraph_t graph, const cudaGraphNode_t*,
                                       size_t, cudaGraph_t child) {
  graph->work.insert(graph->work.end(), child->work.begin(), child->work.end());
  return cudaSuccess;
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t*,
                                                const cudaGraphEdgeData*, size_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = at(stream).recorded;
  for (CUstream_st* other : streams) {
    other->recorded = other->recorded == *graph ? nullptr : other->recorded;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (at(stream).recorded != nullptr) {
    return cudaErrorStreamCaptureUnsupported;
  }
  for (const std::function<void()>& work : executable->work) {
    enqueue(stream, work);
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->recorded = at(stream).recorded;
  enqueue(stream, [event] { event->time = std::chrono::steady_clock::now(); });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
// A stream that waits for one that records records as well.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->recorded != nullptr) {
    at(stream).recorded = event->recorded;
  }
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  *ms = std::chrono::duration<float, std::milli>(to->time - from->time).count();
  return cudaSuccess;
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
}
