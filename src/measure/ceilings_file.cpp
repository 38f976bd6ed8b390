#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/error.h"
#include "core/version.h"
#include "measure/ceilings.h"

namespace lora_bench {
namespace {

constexpr int kSchema = 5;

using Json = nlohmann::ordered_json;

// FNV-1a: a file name that says which identity it is for without its odd characters.
std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const char byte : text) {
    value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  }
  return value;
}

std::filesystem::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') {  // the standard has relative ones ignored
    return std::filesystem::path(cache) / "lora-bench";
  }
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache" / "lora-bench";
  }
  return {};
}

Json curve_to_json(const std::vector<Ceilings::Point>& curve) {
  Json points = Json::array();
  for (const Ceilings::Point& point : curve) {
    points.push_back({{"bytes", point.bytes}, {"seconds", point.seconds}});
  }
  return points;
}

// Tells a file that was edited: floors and INVALID rest on it.
std::string check_of(Json json) {
  json.erase("check");
  return fmt::format("{:016x}", hash(json.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

double positive(const Json& value) {
  const double number = value.get<double>();
  if (!(number > 0) || !std::isfinite(number)) {
    throw std::invalid_argument("not a positive number");
  }
  return number;
}

std::vector<Ceilings::Point> curve_from_json(const Json& points) {
  std::vector<Ceilings::Point> curve;
  for (const Json& point : points) {
    curve.push_back({point.at("bytes").get<std::int64_t>(), positive(point.at("seconds"))});
    const std::size_t last = curve.size() - 1;
    if (curve[last].bytes <= (last == 0 ? 0 : curve[last - 1].bytes)) {
      throw std::invalid_argument("sizes do not ascend");
    }
  }
  return curve;
}

std::vector<Ceilings::Point> filled_curve_from_json(const Json& points) {
  std::vector<Ceilings::Point> curve = curve_from_json(points);
  if (curve.empty()) {
    throw std::invalid_argument("an empty curve");
  }
  return curve;
}

std::optional<Ceilings> read_stored(const std::filesystem::path& file,
                                    const std::string& identity) {
  if (!why_no_file(file).empty()) {
    return std::nullopt;
  }
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  std::optional<Ceilings> ceilings = ceilings_from_json(text);
  if (ceilings && ceilings->identity != identity) {
    ceilings.reset();
  }
  return ceilings;
}

// To a file of its own, then renamed: a reader or a crash never meets half a record.
void store(const std::filesystem::path& file, const Ceilings& ceilings) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  const std::filesystem::path draft = fmt::format("{}.{}", file.string(), ::getpid());
  std::ofstream stream(draft, std::ios::binary);
  stream << ceilings_to_json(ceilings) << std::flush;
  const bool written = stream.good();
  stream.close();
  if (written) {
    std::filesystem::rename(draft, file, error);
  }
  if (!written || error) {
    std::error_code ignored;
    std::filesystem::remove(draft, ignored);
    std::cerr << "warning: the measured ceilings cannot be stored in " << file.string()
              << "; they are measured again next time\n";
  }
}

}  // namespace

std::filesystem::path ceilings_file(const DeviceFacts& device) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) {
    return {};
  }
  const std::string key = fmt::format("{}|{}", device.identity, build_facts().version);
  return folder / fmt::format("ceilings-{}-{:016x}.json", device.kind, hash(key));
}

std::string ceilings_to_json(const Ceilings& ceilings) {
  Json peaks = Json::array();
  for (const Ceilings::Peak& peak : ceilings.peaks) {
    peaks.push_back({{"dtype", name(peak.dtype)}, {"flops_per_s", peak.flops_per_s}});
  }
  Json json{{"kind", "ceilings"},
            {"schema", kSchema},
            {"tool_version", build_facts().version},
            {"identity", ceilings.identity},
            {"cache_bytes", ceilings.cache_bytes},
            {"kept_bytes", ceilings.kept_bytes},
            {"memory_curve", curve_to_json(ceilings.memory_curve)},
            {"cache_curve", curve_to_json(ceilings.cache_curve)},
            {"again_curve", curve_to_json(ceilings.again_curve)},
            {"copy_bytes_per_s", ceilings.copy_bytes_per_s},
            {"launch_seconds", ceilings.launch_seconds},
            {"update_launch_seconds", ceilings.update_launch_seconds},
            {"peaks", peaks},
            {"product_flops_per_s", ceilings.product_flops_per_s},
            {"load", ceilings.load}};
  json["check"] = check_of(json);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Ceilings> ceilings_from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("schema").get<int>() != kSchema ||
        json.at("tool_version").get<std::string>() != build_facts().version ||
        json.at("check").get<std::string>() != check_of(json)) {
      return std::nullopt;
    }
    Ceilings ceilings;
    ceilings.identity = json.at("identity").get<std::string>();
    ceilings.cache_bytes = json.at("cache_bytes").get<std::int64_t>();
    ceilings.kept_bytes = json.at("kept_bytes").get<std::int64_t>();
    ceilings.memory_curve = filled_curve_from_json(json.at("memory_curve"));
    ceilings.cache_curve = filled_curve_from_json(json.at("cache_curve"));
    ceilings.again_curve = curve_from_json(json.at("again_curve"));
    ceilings.copy_bytes_per_s = positive(json.at("copy_bytes_per_s"));
    ceilings.launch_seconds = positive(json.at("launch_seconds"));
    ceilings.update_launch_seconds = positive(json.at("update_launch_seconds"));
    ceilings.product_flops_per_s = json.at("product_flops_per_s").get<double>();
    ceilings.load = json.at("load").get<double>();
    for (const Json& peak : json.at("peaks")) {
      const std::optional<Dtype> dtype = named<Dtype>(peak.at("dtype").get<std::string>());
      if (!dtype) {
        return std::nullopt;
      }
      ceilings.peaks.push_back({*dtype, positive(peak.at("flops_per_s"))});
    }
    return ceilings;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

namespace {

Ceilings measure_ceilings(const DeviceFacts& device) {
  Ceilings measured = device.kind == "cpu" ? measure_host_ceilings() : measure_device_ceilings();
  measured.identity = device.identity;
  measured.cache_bytes = device.cache_bytes;
  measured.kept_bytes = (device.kind == "cpu" ? 2 : 1) * device.cache_bytes;
  return measured;
}

void warn_of_load(const DeviceFacts& device, const Ceilings& measured) {
  if (measured.load > kDisturbingLoad) {
    std::cerr << fmt::format(
        "warning: the ceilings of {} were measured while others used the machine (load {:.1f} per "
        "core) and may be too low; when it is quiet: lora-bench device --refresh\n",
        device.name, measured.load);
  }
}

void keep(const DeviceFacts& device, const Ceilings& measured) {
  warn_of_load(device, measured);
  const std::filesystem::path file = ceilings_file(device);
  if (file.empty()) {
    std::cerr << "warning: neither XDG_CACHE_HOME nor HOME is set: the measured ceilings are not "
                 "stored\n";
  } else {
    store(file, measured);
  }
}

}  // namespace

Ceilings obtain_ceilings(const DeviceFacts& device, bool refresh) {
  const std::filesystem::path file = ceilings_file(device);
  const std::optional<Ceilings> stored =
      file.empty() ? std::nullopt : read_stored(file, device.identity);
  if (stored && !refresh) {
    warn_of_load(device, *stored);
    return *stored;
  }
  Ceilings measured = measure_ceilings(device);
  // What a busy machine cannot do says nothing against what it could do before.
  const bool busy = measured.load > kDisturbingLoad;
  Ceilings kept = stored && busy ? best_of(*stored, measured) : measured;
  if (stored && busy) {
    std::cerr << fmt::format(
        "note: others use the machine (load {:.1f} per core): the better of each figure of the "
        "ceilings of {} is kept\n",
        measured.load, device.name);
  }
  keep(device, kept);
  return kept;
}

Ceilings raise_ceilings(const DeviceFacts& device, const Ceilings& known) {
  Ceilings raised = best_of(known, measure_ceilings(device));
  keep(device, raised);
  return raised;
}

}  // namespace lora_bench
