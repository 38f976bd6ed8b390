#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/reader.h"
#include "scenario/scenario.h"

namespace lora_bench {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 20;
constexpr std::int64_t kMaxRank = 4096;
constexpr std::int64_t kMaxSlots = 65536;
constexpr std::int64_t kMaxShards = 64;
constexpr std::int64_t kMaxFeatures = std::int64_t{1} << 24;
constexpr std::int64_t kMaxSlices = 64;
constexpr std::int64_t kMaxStride = std::int64_t{1} << 31;
constexpr std::int64_t kMaxColumnStride = 64;
constexpr std::int64_t kMaxExperts = 4096;
constexpr std::int64_t kMaxTopK = 64;

// With these limits no product of sizes that a case multiplies leaves int64: the largest is the
// bytes of all B, slices x slots x features x rank x 4.
static_assert(kMaxSlices * kMaxSlots <= (INT64_MAX / 4) / (kMaxFeatures * kMaxRank));
static_assert(kMaxTokens <= (INT64_MAX / 4) / kMaxStride);

struct FieldContext {
  Traces traces;
  RoutingTraces routing_traces;
  std::filesystem::path folder;  // that trace files are named from
  CheckWord check_backend;       // may be empty
  std::function<std::optional<SettingFault>(const Tuning&)> check_tuning;  // may be empty
  std::function<std::optional<SettingFault>(const Case&)> check_layer;     // may be empty
  bool timed = true;
};

// What a field says something of: adapters, an x, or products of it with adapters.
enum class About : std::uint8_t { kAnyOp, kAdapters, kX, kProducts };

// One key of a scenario: what docs say of it, how it gets into a case, and how it is written from
// one. Fields without `read` shape the file (include, sweep, cases); expand.cpp and settings.cpp
// know them.
struct Field {
  FieldDoc doc;
  std::function<void(const Reader& reader, Case& target, FieldContext& context)> read = {};
  std::function<std::string(const Case& spec)> text = {};  // of a value, as a scenario writes it
  // Whether a scenario of the case must say it: most fields, where the text is not that of a case
  // which says nothing.
  std::function<bool(const Case& spec)> is_said = {};
  std::optional<Op> of_op_alone = {};  // no other op takes it ...
  bool of_quantised_h = false;         // ... but one that quantises h
  About about = About::kAnyOp;         // ops that have no such thing do not take it
  std::string instead_of_layer = {};   // what would do where op is layer; "": a layer takes it
  bool alone_in_ids = false;           // the id of a case has its value without its name
};

using Fields = std::vector<Field>;

// What an op that has nothing to do with the field is like; "" where it has.
[[nodiscard]] std::string_view why_no_field(const Field& field, Op op);

// The rows of op metadata, of op layer, of how a plan is handed over and of what an op computes.
[[nodiscard]] std::vector<Field> fields_of_metadata();
[[nodiscard]] std::vector<Field> fields_of_layer();
[[nodiscard]] std::vector<Field> fields_of_plan();
[[nodiscard]] std::vector<Field> fields_of_op();
[[nodiscard]] std::vector<Field> fields_of_eight_bits();
// What op quantise does.
[[nodiscard]] std::vector<Field> fields_of_quantiser();
// The experts of a layer, and how tokens choose them.
[[nodiscard]] std::vector<Field> fields_of_experts();
inline constexpr const char* kExperts = "experts.";
inline constexpr const char* kRouting = "routing";
// Rows that ops without products do not take, and rows that ops without adapters do not.
[[nodiscard]] std::vector<Field> of_products(std::vector<Field> rows);
[[nodiscard]] std::vector<Field> of_adapters(std::vector<Field> rows);
inline constexpr const char* kOwnOperands =
    "op linear, shrink or expand: a layer has its own operands";
inline constexpr const char* kOwnRows = "op linear: a layer has its own rows, and adds to its base";

// The one table; unknown keys, docs, `list` and defaults follow from it. A tuning is one row of it,
// for the text of a case.
[[nodiscard]] const Fields& fields();

// The table as files are read: in the place of that row one for each knob.
[[nodiscard]] Fields fields_with(const std::vector<Knob>& knobs);

[[nodiscard]] const Field* find_field(const Fields& fields, const std::string& path);

// "batch" of "batch.decode".
[[nodiscard]] bool is_group(const Fields& fields, const std::string& path);

// "decode" of "batch.decode".
[[nodiscard]] std::string last_part(const std::string& path);

// The key that was meant by unknown `path`, or "".
[[nodiscard]] std::string nearest_field(const Fields& fields, const std::string& path);

}  // namespace lora_bench
