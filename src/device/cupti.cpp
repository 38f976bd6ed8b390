#include "device/cupti.h"

#include "device/facts.h"
#ifdef LORA_BENCH_HAVE_CUPTI
#include <cuda.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_result.h>
#include <cupti_target.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "device/cuda_check.h"
#include "device/found_library.h"
#endif

namespace lora_bench {
#ifdef LORA_BENCH_HAVE_CUPTI
namespace {

constexpr int kGpu = 0;
constexpr std::size_t kRanges = 1;  // in a pass: the launch
constexpr std::uint16_t kOuterLevel = 1;

// The functions of CUPTI that are used here.
#define LORA_BENCH_CUPTI_FUNCTIONS(USE)             \
  USE(cuptiGetResultString)                         \
  USE(cuptiGetErrorMessage)                         \
  USE(cuptiProfilerInitialize)                      \
  USE(cuptiProfilerDeInitialize)                    \
  USE(cuptiProfilerDeviceSupported)                 \
  USE(cuptiProfilerGetCounterAvailability)          \
  USE(cuptiDeviceGetChipName)                       \
  USE(cuptiProfilerHostInitialize)                  \
  USE(cuptiProfilerHostDeinitialize)                \
  USE(cuptiProfilerHostConfigAddMetrics)            \
  USE(cuptiProfilerHostGetConfigImageSize)          \
  USE(cuptiProfilerHostGetConfigImage)              \
  USE(cuptiProfilerHostGetNumOfPasses)              \
  USE(cuptiProfilerHostEvaluateToGpuValues)         \
  USE(cuptiRangeProfilerEnable)                     \
  USE(cuptiRangeProfilerDisable)                    \
  USE(cuptiRangeProfilerGetCounterDataSize)         \
  USE(cuptiRangeProfilerCounterDataImageInitialize) \
  USE(cuptiRangeProfilerSetConfig)                  \
  USE(cuptiRangeProfilerStart)                      \
  USE(cuptiRangeProfilerStop)                       \
  USE(cuptiRangeProfilerPushRange)                  \
  USE(cuptiRangeProfilerPopRange)                   \
  USE(cuptiRangeProfilerDecodeData)                 \
  USE(cuptiRangeProfilerGetCounterDataInfo)

// Each under its own name, and one of the driver; `missing` says why there are none.
struct Cupti {
// A name is declared, which takes no parentheses.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define LORA_BENCH_DECLARE(function) decltype(&::function) function = nullptr;
  LORA_BENCH_CUPTI_FUNCTIONS(LORA_BENCH_DECLARE)
#undef LORA_BENCH_DECLARE
  decltype(&::cuCtxGetCurrent) cuCtxGetCurrent = nullptr;
  std::string missing;
};

Cupti load_cupti() {
  constexpr int kToolkit = CUDART_VERSION / 1000;  // CUPTI's libraries are named after it
  FoundLibrary found("CUPTI, a part of the CUDA toolkit,", "libcupti.so", kToolkit,
                     {"/usr/local/cuda/extras/CUPTI/lib64"});
  FoundLibrary driver("the NVIDIA driver's libcuda.so", "libcuda.so", 1);
  Cupti cupti;
#define LORA_BENCH_FIND(function) found.find(#function, cupti.function);
  LORA_BENCH_CUPTI_FUNCTIONS(LORA_BENCH_FIND)
#undef LORA_BENCH_FIND
  driver.find("cuCtxGetCurrent", cupti.cuCtxGetCurrent);
  cupti.missing = found.missing().empty() ? driver.missing() : found.missing();
  return cupti;
}

const Cupti& cupti() {
  static const Cupti kFunctions = load_cupti();
  return kFunctions;
}

std::string text_of(decltype(&cuptiGetResultString) ask, CUptiResult result) {
  const char* text = nullptr;
  return ask(result, &text) == CUPTI_SUCCESS && text != nullptr
             ? std::string(text)
             : fmt::format("result {}", static_cast<int>(result));
}

void check(CUptiResult result, const char* call) {
  if (result != CUPTI_SUCCESS) {
    throw CountersFailed(why_counters_failed(call, text_of(cupti().cuptiGetResultString, result),
                                             text_of(cupti().cuptiGetErrorMessage, result)));
  }
}

// Calls a function of CUPTI, and throws CountersFailed with its name.
#define LORA_BENCH_CUPTI_CALL(function, params) check(cupti().function(&(params)), #function)

// Declares parameters of one as it wants them: zeros but for their own size.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define LORA_BENCH_CUPTI_PARAMS(Params, name) \
  Params name{};                              \
  name.structSize = Params##_STRUCT_SIZE
// NOLINTEND(bugprone-macro-parentheses)

// CUPTI's hooks in the driver, while it lives.
class Attached {
 public:
  Attached() {
    LORA_BENCH_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params, asked);
    LORA_BENCH_CUPTI_CALL(cuptiProfilerInitialize, asked);
  }
  ~Attached() {
    LORA_BENCH_CUPTI_PARAMS(CUpti_Profiler_DeInitialize_Params, asked);
    static_cast<void>(cupti().cuptiProfilerDeInitialize(&asked));
  }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;
};

// That of the runtime on this thread, made if there is none.
CUcontext current_context() {
  LORA_BENCH_CUDA_CHECK(cudaSetDevice(kGpu));
  LORA_BENCH_CUDA_CHECK(cudaFree(nullptr));
  CUcontext context = nullptr;
  if (const CUresult result = cupti().cuCtxGetCurrent(&context);
      result != CUDA_SUCCESS || context == nullptr) {
    throw CountersFailed(fmt::format("the GPU's counters cannot be read (cuCtxGetCurrent: {})",
                                     static_cast<int>(result)));
  }
  return context;
}

// Throws what stands in the way of profiling this kind of GPU or machine.
void check_device_supported() {
  LORA_BENCH_CUPTI_PARAMS(CUpti_Profiler_DeviceSupported_Params, asked);
  asked.cuDevice = kGpu;
  asked.api = CUPTI_PROFILER_RANGE_PROFILING;
  LORA_BENCH_CUPTI_CALL(cuptiProfilerDeviceSupported, asked);
  if (asked.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED) {
    return;
  }
  std::vector<std::string> reasons;
  const auto look = [&](CUpti_Profiler_Support_Level level, const char* reason) {
    if (level != CUPTI_PROFILER_CONFIGURATION_SUPPORTED) {
      reasons.emplace_back(reason);
    }
  };
  look(asked.architecture, "its architecture");
  look(asked.sli, "SLI");
  look(asked.vGpu, "a virtual GPU that may not be profiled");
  look(asked.confidentialCompute, "confidential computing mode");
  look(asked.cmp, "a mining processor");
  look(asked.wsl, "WSL");
  throw CountersFailed(
      fmt::format("the counters of this GPU cannot be read (cuptiProfilerDeviceSupported), because "
                  "of: {}",
                  fmt::join(reasons, ", ")));
}

std::string name_of_chip() {
  LORA_BENCH_CUPTI_PARAMS(CUpti_Device_GetChipName_Params, asked);
  asked.deviceIndex = kGpu;
  LORA_BENCH_CUPTI_CALL(cuptiDeviceGetChipName, asked);
  return asked.pChipName == nullptr ? "" : asked.pChipName;
}

// Which counters this user can read on the GPU of the context. Fails without permission.
std::vector<std::uint8_t> counter_availability(CUcontext context) {
  LORA_BENCH_CUPTI_PARAMS(CUpti_Profiler_GetCounterAvailability_Params, asked);
  asked.ctx = context;
  LORA_BENCH_CUPTI_CALL(cuptiProfilerGetCounterAvailability, asked);
  std::vector<std::uint8_t> image(asked.counterAvailabilityImageSize);
  asked.pCounterAvailabilityImage = image.data();
  LORA_BENCH_CUPTI_CALL(cuptiProfilerGetCounterAvailability, asked);
  return image;
}

// CUPTI's side of the host: what it knows of the metrics of a chip.
class MetricHost {
 public:
  explicit MetricHost(const CounterSetup& setup) {
    LORA_BENCH_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params, asked);
    asked.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    asked.pChipName = setup.chip.c_str();
    asked.pCounterAvailabilityImage = setup.availability.data();
    LORA_BENCH_CUPTI_CALL(cuptiProfilerHostInitialize, asked);
    object_ = asked.pHostObject;
  }
  ~MetricHost() {
    LORA_BENCH_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params, asked);
    asked.pHostObject = object_;
    static_cast<void>(cupti().cuptiProfilerHostDeinitialize(&asked));
  }
  MetricHost(const MetricHost&) = delete;
  MetricHost& operator=(const MetricHost&) = delete;

  // What the GPU is told so that it counts the metrics. To be called once: an object keeps what was
  // added to it.
  [[nodiscard]] std::vector<std::uint8_t> config(std::vector<const char*> metrics) const {
    LORA_BENCH_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, added);
    added.pHostObject = object_;
    added.ppMetricNames = metrics.data();
    added.numMetrics = metrics.size();
    LORA_BENCH_CUPTI_CALL(cuptiProfilerHostConfigAddMetrics, added);
    LORA_BENCH_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, sized);
    sized.pHostObject = object_;
    LORA_BENCH_CUPTI_CALL(cuptiProfilerHostGetConfigImageSize, sized);
    std::vector<std::uint8_t> image(sized.configImageSize);
    LORA_BENCH_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, asked);
    asked.pHostObject = object_;
    asked.configImageSize = image.size();
    asked.pConfigImage = image.data();
    LORA_BENCH_CUPTI_CALL(cuptiProfilerHostGetConfigImage, asked);
    return image;
  }

  // Of the launch that `counter_data` is about.
  [[nodiscard]] std::vector<double> values(const std::vector<std::uint8_t>& counter_data,
                                           std::vector<const char*> metrics) const {
    std::vector<double> values(metrics.size());
    LORA_BENCH_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, asked);
    asked.pHostObject = object_;
    asked.pCounterDataImage = counter_data.data();
    asked.counterDataImageSize = counter_data.size();
    asked.rangeIndex = 0;
    asked.ppMetricNames = metrics.data();
    asked.numMetrics = metrics.size();
    asked.pMetricValues = values.data();
    LORA_BENCH_CUPTI_CALL(cuptiProfilerHostEvaluateToGpuValues, asked);
    return values;
  }

 private:
  CUpti_Profiler_Host_Object* object_ = nullptr;
};

std::int64_t passes_of(std::vector<std::uint8_t>& config) {
  LORA_BENCH_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params, asked);
  asked.configImageSize = config.size();
  asked.pConfigImage = config.data();
  LORA_BENCH_CUPTI_CALL(cuptiProfilerHostGetNumOfPasses, asked);
  return static_cast<std::int64_t>(asked.numOfPasses);
}

// Counts the launch between push and pop, in as many passes as CUPTI asks for; the destructor ends
// what an exception left open.
class Profiler {
 public:
  explicit Profiler(CUcontext context) {
    LORA_BENCH_CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params, asked);
    asked.ctx = context;
    LORA_BENCH_CUPTI_CALL(cuptiRangeProfilerEnable, asked);
    object_ = asked.pRangeProfilerObject;
  }
  ~Profiler() {
    if (pushed_) {
      static_cast<void>(pop());
    }
    if (started_) {
      bool all_submitted = false;
      static_cast<void>(stop(all_submitted));
    }
    LORA_BENCH_CUPTI_PARAMS(CUpti_RangeProfiler_Disable_Params, asked);
    asked.pRangeProfilerObject = object_;
    static_cast<void>(cupti().cuptiRangeProfilerDisable(&asked));
  }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // `setup` is used until this object goes.
  void configure(const CounterSetup& setup) {
    std::vector<const char*> metrics = setup.metrics.names();
    LORA_BENCH_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params, sized);
    sized.pRangeProfilerObject = object_;
    sized.pMetricNames = metrics.data();
    sized.numMetrics = metrics.size();
    sized.maxNumOfRanges = kRanges;
    sized.maxNumRangeTreeNodes = kRanges;
    LORA_BENCH_CUPTI_CALL(cuptiRangeProfilerGetCounterDataSize, sized);
    counter_data_.assign(sized.counterDataSize, 0);
    LORA_BENCH_CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, cleared);
    cleared.pRangeProfilerObject = object_;
    cleared.counterDataSize = counter_data_.size();
    cleared.pCounterData = counter_data_.data();
    LORA_BENCH_CUPTI_CALL(cuptiRangeProfilerCounterDataImageInitialize, cleared);
    LORA_BENCH_CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params, told);
    told.pRangeProfilerObject = object_;
    told.pConfig = setup.config.data();
    told.configSize = setup.config.size();
    told.pCounterDataImage = counter_data_.data();
    told.counterDataImageSize = counter_data_.size();
    told.range = CUPTI_UserRange;
    told.replayMode = CUPTI_UserReplay;
    told.maxRangesPerPass = kRanges;
    told.numNestingLevels = kOuterLevel;
    told.minNestingLevel = kOuterLevel;
    told.passIndex = 0;
    told.targetNestingLevel = kOuterLevel;
    LORA_BENCH_CUPTI_CALL(cuptiRangeProfilerSetConfig, told);
  }

  // Whether it was the last one that CUPTI needs.
  [[nodiscard]] bool pass(const std::function<void()>& prepare,
                          const std::function<void()>& launch) {
    LORA_BENCH_CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params, begun);
    begun.pRangeProfilerObject = object_;
    LORA_BENCH_CUPTI_CALL(cuptiRangeProfilerStart, begun);
    started_ = true;
    prepare();
    LORA_BENCH_CUDA_CHECK(cudaDeviceSynchronize());
    LORA_BENCH_CUPTI_PARAMS(CUpti_RangeProfiler_PushRange_Params, range);
    range.pRangeProfilerObject = object_;
    range.pRangeName = "launch";
    LORA_BENCH_CUPTI_CALL(cuptiRangeProfilerPushRange, range);
    pushed_ = true;
    launch();
    check(pop(), "cuptiRangeProfilerPopRange");
    bool all_submitted = false;
    check(stop(all_submitted), "cuptiRangeProfilerStop");
    return all_submitted;
  }

  // What was counted; empty where CUPTI kept no range.
  [[nodiscard]] std::vector<std::uint8_t> counter_data() {
    LORA_BENCH_CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params, decoded);
    decoded.pRangeProfilerObject = object_;
    LORA_BENCH_CUPTI_CALL(cuptiRangeProfilerDecodeData, decoded);
    LORA_BENCH_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params, asked);
    asked.pCounterDataImage = counter_data_.data();
    asked.counterDataImageSize = counter_data_.size();
    LORA_BENCH_CUPTI_CALL(cuptiRangeProfilerGetCounterDataInfo, asked);
    return asked.numTotalRanges == 0 ? std::vector<std::uint8_t>() : counter_data_;
  }

 private:
  CUptiResult pop() {
    LORA_BENCH_CUPTI_PARAMS(CUpti_RangeProfiler_PopRange_Params, asked);
    asked.pRangeProfilerObject = object_;
    pushed_ = false;
    return cupti().cuptiRangeProfilerPopRange(&asked);
  }
  CUptiResult stop(bool& all_submitted) {
    LORA_BENCH_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params, asked);
    asked.pRangeProfilerObject = object_;
    started_ = false;
    const CUptiResult result = cupti().cuptiRangeProfilerStop(&asked);
    all_submitted = asked.isAllPassSubmitted != 0;
    return result;
  }

  CUpti_RangeProfiler_Object* object_ = nullptr;
  std::vector<std::uint8_t> counter_data_;
  bool started_ = false, pushed_ = false;
};

}  // namespace

CounterSetup set_up_counters() {
  if (std::string why = why_no_gpu(); !why.empty()) {
    throw CountersFailed(why);
  }
  if (!cupti().missing.empty()) {
    throw CountersFailed(cupti().missing);
  }
  CUcontext const context = current_context();
  const Attached attached;
  check_device_supported();
  CounterSetup setup;
  setup.chip = name_of_chip();
  setup.availability = counter_availability(context);
  static_cast<void>(MetricHost(setup));  // says of an unknown chip that it is one
  std::string refused;
  setup.metrics = choose_counter_metrics(setup.chip, [&](const char* metric) {
    try {
      static_cast<void>(MetricHost(setup).config({metric}));
      return true;
    } catch (const CountersFailed& failed) {
      refused = failed.what();
      return false;
    }
  });
  if (setup.metrics.names().empty()) {
    throw CountersFailed(fmt::format("{}; of the last one: {}", setup.metrics.missing, refused));
  }
  setup.config = MetricHost(setup).config(setup.metrics.names());
  setup.passes = passes_of(setup.config);
  return setup;
}

std::vector<double> count_by_cupti(const CounterSetup& setup, const std::function<void()>& prepare,
                                   const std::function<void()>& launch) {
  CUcontext const context = current_context();
  const Attached attached;
  const MetricHost host(setup);
  Profiler profiler(context);
  profiler.configure(setup);
  const std::int64_t most = 2 * setup.passes + 2;
  for (std::int64_t pass = 1; !profiler.pass(prepare, launch); ++pass) {
    if (pass == most) {
      throw CountersFailed(
          fmt::format("the GPU's counters cannot be read (cuptiRangeProfilerStop: not done after "
                      "{} passes, cuptiProfilerHostGetNumOfPasses: {})",
                      most, setup.passes));
    }
  }
  const std::vector<std::uint8_t> counter_data = profiler.counter_data();
  return counter_data.empty() ? std::vector<double>()
                              : host.values(counter_data, setup.metrics.names());
}

#else

CounterSetup set_up_counters() {
  const std::string no_gpu = why_no_gpu();
  throw CountersFailed(
      no_gpu.empty()
          ? "this lora-bench was built without CUPTI: cupti_range_profiler.h was not found; CUDA "
            "toolkits from 12.6 have it, some of them in extras/CUPTI/include"
          : no_gpu);
}

std::vector<double> count_by_cupti(const CounterSetup&, const std::function<void()>&,
                                   const std::function<void()>&) {
  return {};
}

#endif
}  // namespace lora_bench
