#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/units.h"
#include "scenario/case.h"
#include "scenario/diagnostics.h"
#include "scenario/yaml_tree.h"

namespace lora_bench {

// Throws UsageError for a word that stands for nothing.
using CheckWord = std::function<void(const std::string&)>;

struct TraceFile {
  std::vector<std::int32_t> ids;
  std::vector<Location> places;  // of each id, for the check against the slots
};

// Trace files that the scenario names, each read once.
class Traces {
 public:
  // Reads `name` beside `folder`; what is wrong with it goes to `diagnostics`, once.
  const TraceFile& read(const std::string& name, const std::filesystem::path& folder,
                        const Location& where, Diagnostics& diagnostics);

 private:
  std::map<std::string, TraceFile> files_;
};

// What a router said, token after token, with the line of each.
struct RoutingTraceFile {
  std::vector<RoutedToken> tokens;
  std::vector<Location> places;
};

// The same of traces of routing.
class RoutingTraces {
 public:
  const RoutingTraceFile& read(const std::string& name, const std::filesystem::path& folder,
                               const Location& where, Diagnostics& diagnostics);

 private:
  std::map<std::string, RoutingTraceFile> files_;
};

// Reads one value into a field of a case and reports what does not fit, always with what would.
class Reader {
 public:
  // `swept`: where `sweep` takes several values of it, to be told where a list stands for one.
  Reader(const Value& value, std::string path, std::string allowed, Diagnostics& diagnostics,
         bool swept = false)
      : value_(value),
        path_(std::move(path)),
        allowed_(std::move(allowed)),
        diagnostics_(diagnostics),
        swept_(swept) {}

  void integer(std::int64_t& target, std::int64_t least, std::int64_t most) const;
  void seed(std::uint64_t& target) const;
  void real(double& target, double least, double most) const;
  void share(double& target, double most) const;  // 0.25 or 25%
  void optional_real(std::optional<double>& target, double least, double most) const;
  void optional_share(std::optional<double>& target, double most) const;
  void boolean(bool& target) const;
  void word(std::string& target) const;
  void text(std::string& target) const;
  void words(std::vector<std::string>& target) const;  // one or a list
  // The same; what `check` throws of a word is told of its place. It may be empty.
  void words(std::vector<std::string>& target, const CheckWord& check) const;
  void integers(std::vector<std::int64_t>& target, std::int64_t least, std::int64_t most) const;

  void lists(std::vector<std::vector<std::int64_t>>& target, std::int64_t least,
             std::int64_t most) const;

  void choice(std::string& target, const std::vector<std::string>& names) const;  // one of them
  // One of these names of an enumeration.
  template <HasNames Enum>
  void choice(Enum& target, const std::vector<std::string>& names) const {
    if (const std::optional<std::string> chosen = one_of(names)) {
      target = *named<Enum>(*chosen);
    }
  }

  void prefill(std::vector<std::int64_t>& target, std::int64_t most_tokens) const;
  void rank(RankLaw& target, std::int64_t most) const;
  void scale(std::vector<double>& target) const;
  void skew(SkewLaw& target, Traces& traces, const std::filesystem::path& folder) const;
  void routing(RoutingLaw& target, RoutingTraces& traces,
               const std::filesystem::path& folder) const;

 private:
  void routing_law(RoutingLaw& law, const Value::Entry& said, RoutingTraces& traces,
                   const std::filesystem::path& folder) const;
  [[nodiscard]] std::optional<std::string> one_of(const std::vector<std::string>& names) const;
  [[nodiscard]] std::optional<std::int64_t> integer_of(const Value& value, std::int64_t least,
                                                       std::int64_t most) const;
  [[nodiscard]] std::optional<double> real_of(const Value& value, double least, double most) const;
  [[nodiscard]] std::optional<double> share_of(const Value& value, double most) const;
  [[nodiscard]] std::optional<std::string> word_of(const Value& value) const;
  // With how to sweep, where a list stands for one value.
  [[nodiscard]] std::string allowed_for(const Value& value) const;
  void rank_shares(RankLaw& target, std::int64_t most) const;
  // The scalar or every item of the list goes to `take`.
  void one_or_list(const std::function<void(const Value&)>& take) const;
  void complain(const Value& value) const;
  void complain(const Value& value, const std::string& what) const;

  const Value& value_;
  std::string path_;
  std::string allowed_;
  Diagnostics& diagnostics_;
  bool swept_;
};

}  // namespace lora_bench
