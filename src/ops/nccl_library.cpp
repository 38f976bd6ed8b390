#include "ops/nccl_library.h"

#include "core/error.h"
#include "device/facts.h"
#ifdef LORA_BENCH_HAVE_NCCL
#include <fmt/format.h>
#include <nccl.h>

#include <numeric>
#include <vector>

#include "device/found_library.h"
#endif

namespace lora_bench {
#ifdef LORA_BENCH_HAVE_NCCL
namespace {

// The functions of the library that are used here; `missing` says why there are none.
struct NcclFunctions {
  decltype(&ncclGetVersion) version = nullptr;
  decltype(&ncclGetErrorString) error_text = nullptr;
  decltype(&ncclCommInitAll) create_all = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclGroupStart) begin = nullptr;
  decltype(&ncclGroupEnd) end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  std::string missing;
};

NcclFunctions load_nccl() {
  FoundLibrary found("NCCL", "libnccl.so", NCCL_MAJOR);
  NcclFunctions library;
  found.find("ncclGetVersion", library.version);
  found.find("ncclGetErrorString", library.error_text);
  found.find("ncclCommInitAll", library.create_all);
  found.find("ncclCommDestroy", library.destroy);
  found.find("ncclGroupStart", library.begin);
  found.find("ncclGroupEnd", library.end);
  found.find("ncclAllReduce", library.all_reduce);
  found.find("ncclAllGather", library.all_gather);
  found.find("ncclSend", library.send);
  found.find("ncclRecv", library.receive);
  library.missing = found.missing();
  return library;
}

const NcclFunctions& nccl() {
  static const NcclFunctions kFunctions = load_nccl();
  return kFunctions;
}

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) {
    throw CaseError(fmt::format("{}: {}; NCCL_DEBUG=INFO in the environment makes it tell more",
                                what, nccl().error_text(result)));
  }
}

std::size_t bytes_of(Dtype dtype) { return static_cast<std::size_t>(size_bytes(dtype)); }

ncclDataType_t nccl_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return ncclFloat32;
    case Dtype::kBf16:
      return ncclBfloat16;
    case Dtype::kFp16:
      return ncclFloat16;
    default:
      throw CaseError(fmt::format("{} is not exchanged through NCCL", name(dtype)));
  }
}

}  // namespace

std::string why_no_nccl() {
  const std::string no_gpu = why_no_gpu();
  return no_gpu.empty() ? nccl().missing : no_gpu;
}

struct Nccl::State {
  std::vector<ncclComm_t> ranks;

  // One call for all ranks: the same of each alone would wait for the others.
  template <typename Call>
  void for_all(const char* what, const Call& call) const {
    check(nccl().begin(), "ncclGroupStart");
    ncclResult_t result = ncclSuccess;
    for (std::size_t rank = 0; rank < ranks.size() && result == ncclSuccess; ++rank) {
      result = call(rank);
    }
    const ncclResult_t ended = nccl().end();
    check(result, what);
    check(ended, what);
  }
};

Nccl::Nccl(std::shared_ptr<const GpuGroup> gpus)
    : gpus_(std::move(gpus)), state_(std::make_unique<State>()) {
  if (const std::string why_not = why_no_nccl(); !why_not.empty()) {
    throw EnvironmentError(why_not);
  }
  std::vector<int> devices(static_cast<std::size_t>(gpus_->size()));
  std::iota(devices.begin(), devices.end(), 0);
  state_->ranks.resize(devices.size());
  const CurrentGpu unchanged(0);
  check(nccl().create_all(state_->ranks.data(), static_cast<int>(devices.size()), devices.data()),
        "ncclCommInitAll");
}

Nccl::~Nccl() {
  for (ncclComm_t rank : state_->ranks) {
    if (rank != nullptr) {
      static_cast<void>(nccl().destroy(rank));
    }
  }
}

std::string Nccl::version() const {
  int code = 0;
  check(nccl().version(&code), "ncclGetVersion");
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

void Nccl::all_reduce(Dtype dtype, std::int64_t elements, std::span<const NcclPart> parts) {
  if (elements == 0) {
    return;
  }
  state_->for_all("ncclAllReduce", [&](std::size_t rank) {
    return nccl().all_reduce(
        parts[rank].from, parts[rank].to, static_cast<std::size_t>(elements), nccl_type(dtype),
        ncclSum, state_->ranks[rank],
        static_cast<cudaStream_t>(gpus_->stream(static_cast<std::int64_t>(rank))));
  });
}

void Nccl::all_gather(Dtype dtype, std::int64_t elements, std::span<const NcclPart> parts) {
  if (elements == 0) {
    return;
  }
  state_->for_all("ncclAllGather", [&](std::size_t rank) {
    return nccl().all_gather(
        parts[rank].from, parts[rank].to, static_cast<std::size_t>(elements), nccl_type(dtype),
        state_->ranks[rank],
        static_cast<cudaStream_t>(gpus_->stream(static_cast<std::int64_t>(rank))));
  });
}

void Nccl::gather(Dtype dtype, std::int64_t elements, std::span<void* const> parts, void* to) {
  if (elements == 0) {
    return;
  }
  const auto count = static_cast<std::size_t>(elements);
  const ncclDataType_t type = nccl_type(dtype);
  const auto stream_of = [&](std::size_t rank) {
    return static_cast<cudaStream_t>(gpus_->stream(static_cast<std::int64_t>(rank)));
  };
  // The first rank sends its part to itself, as all others do to it, and receives one from each.
  state_->for_all("ncclSend and ncclRecv", [&](std::size_t rank) {
    ncclResult_t result =
        nccl().send(parts[rank], count, type, 0, state_->ranks[rank], stream_of(rank));
    for (std::size_t from = 0; rank == 0 && from < parts.size() && result == ncclSuccess; ++from) {
      result = nccl().receive(static_cast<char*>(to) + from * count * bytes_of(dtype), count, type,
                              static_cast<int>(from), state_->ranks[0], stream_of(0));
    }
    return result;
  });
}

#else

struct Nccl::State {};

std::string why_no_nccl() {
  const std::string no_gpu = why_no_gpu();
  return no_gpu.empty() ? "this lora-bench was built without NCCL: nccl.h was not found" : no_gpu;
}

Nccl::Nccl(std::shared_ptr<const GpuGroup>) { throw EnvironmentError(why_no_nccl()); }
Nccl::~Nccl() = default;
std::string Nccl::version() const { return ""; }
void Nccl::all_reduce(Dtype, std::int64_t, std::span<const NcclPart>) {}
void Nccl::all_gather(Dtype, std::int64_t, std::span<const NcclPart>) {}
void Nccl::gather(Dtype, std::int64_t, std::span<void* const>, void*) {}

#endif
}  // namespace lora_bench
