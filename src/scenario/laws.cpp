// Values of the vocabulary that are more than a number or a word: prefill lengths, ranks, scales
// and the laws by which sequences choose adapters and tokens experts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <functional>

#include "scenario/reader.h"
#include "scenario/schema.h"

namespace lora_bench {
namespace {

// "32x64": 32 sequences of 64 tokens.
struct Repeated {
  std::int64_t count = 1;
  std::int64_t length = 0;
};

std::optional<Repeated> repeated_in(const Value& item, std::int64_t most) {
  if (item.kind != Value::Kind::kScalar || item.quoted) {
    return std::nullopt;
  }
  const std::string_view text = item.text;
  const std::size_t cross = text.find('x');
  const bool plain = cross == std::string_view::npos;
  const auto count = plain ? 1 : integer_in(text.substr(0, cross));
  const auto length = integer_in(plain ? text : text.substr(cross + 1));
  if (!count || !length || *count < 1 || *count > most || *length < 1 || *length > most) {
    return std::nullopt;
  }
  return Repeated{*count, *length};
}

const std::vector<std::string> kPlainSkews{"identical", "distinct", "uniform", "one-vs-rest",
                                           "blocks"};
const std::vector<std::string> kPlainRoutings{"uniform", "balanced", "identical"};
const std::vector<std::string> kRoutingMaps{"zipf", "hot", "grouped", "trace"};
constexpr const char* kPerAdapter = "per_adapter";

}  // namespace

void Reader::prefill(std::vector<std::int64_t>& target, std::int64_t most_tokens) const {
  std::vector<std::int64_t> lengths;
  std::int64_t tokens = 0;
  bool complained = false;
  one_or_list([&](const Value& item) {
    const auto run = repeated_in(item, most_tokens);
    if (!run) {
      complain(item);
      return;
    }
    tokens += run->count * run->length;
    if (tokens <= most_tokens) {
      lengths.insert(lengths.end(), static_cast<std::size_t>(run->count), run->length);
    } else if (!complained) {
      complain(item, fmt::format("adds up to more than {} tokens", most_tokens));
      complained = true;
    }
  });
  target = std::move(lengths);
}

void Reader::rank(RankLaw& target, std::int64_t most) const {
  if (value_.kind == Value::Kind::kMap) {
    rank_shares(target, most);
    return;
  }
  RankLaw law;
  integers(law.list, 0, most);
  if (value_.kind == Value::Kind::kList && value_.items.empty()) {
    complain(value_, "is an empty list");
  }
  if (!law.list.empty()) {
    target = std::move(law);
  }
}

void Reader::rank_shares(RankLaw& target, std::int64_t most) const {
  RankLaw law;
  double sum = 0;
  bool good = true;
  for (const Value::Entry& entry : value_.entries) {
    const auto rank = integer_in(entry.key);
    if (!rank || *rank < 0 || *rank > most) {
      diagnostics_.add(entry.where, fmt::format("'{}' has the rank '{}'", path_, entry.key),
                       allowed_);
      good = false;
      continue;
    }
    const auto share = share_of(entry.value, 1);
    good = good && share.has_value();
    law.shares.emplace_back(*rank, share.value_or(0));
    sum += share.value_or(0);
  }
  if (good && std::abs(sum - 1) > 1e-6) {
    complain(value_, fmt::format("has shares that add up to {:g}", sum));
    good = false;
  }
  if (good) {
    std::sort(law.shares.begin(), law.shares.end());
    target = std::move(law);
  }
}

void Reader::scale(std::vector<double>& target) const {
  constexpr double kMost = 65536;
  std::vector<double> scales;
  one_or_list([&](const Value& item) {
    if (const auto scale = real_of(item, -kMost, kMost)) {
      scales.push_back(*scale);
    }
  });
  if (value_.kind == Value::Kind::kList && value_.items.empty()) {
    complain(value_, "is an empty list");
  }
  if (!scales.empty()) {
    target = std::move(scales);
  }
}

void Reader::skew(SkewLaw& target, Traces& traces, const std::filesystem::path& folder) const {
  SkewLaw law;
  if (value_.kind != Value::Kind::kMap) {
    choice(law.kind, kPlainSkews);
    target = std::move(law);
    return;
  }
  if (value_.entries.size() != 1) {
    complain(value_, fmt::format("has {} keys", value_.entries.size()));
    return;
  }
  const auto& [key, where, parameter] = value_.entries.front();
  if (key == "zipf") {
    law.kind = Skew::kZipf;
    Reader(parameter, path_ + ".zipf", "a number from 0 to 16", diagnostics_)
        .real(law.parameter, 0, 16);
  } else if (key == "hot") {
    law.kind = Skew::kHot;
    Reader(parameter, path_ + ".hot", "a share from 0 to 1, or 0% to 100%", diagnostics_)
        .share(law.parameter, 1);
  } else if (key == "trace") {
    law.kind = Skew::kTrace;
    if (parameter.kind != Value::Kind::kScalar) {
      Reader(parameter, path_ + ".trace", "a file of adapter ids", diagnostics_)
          .text(law.trace_file);
      return;
    }
    law.trace_file = parameter.text;
    law.trace = traces.read(parameter.text, folder, parameter.where, diagnostics_).ids;
  } else {
    diagnostics_.add(where, fmt::format("'{}' has the law '{}'", path_, key), allowed_,
                     nearest(key, {"zipf", "hot", "trace"}));
    return;
  }
  target = std::move(law);
}

namespace {

// A key that a map must have, and how its value is read.
struct Part {
  const char* key;
  const char* allowed;
  std::function<void(const Reader&)> read;
};

void read_parts(const Value& value, const std::string& path, const std::vector<Part>& parts,
                Diagnostics& diagnostics) {
  std::vector<std::string> keys;
  for (const Part& part : parts) {
    keys.emplace_back(part.key);
  }
  const std::string allowed = fmt::format("a map with {}", fmt::join(keys, " and "));
  if (value.kind != Value::Kind::kMap) {
    diagnostics.add(value.where, fmt::format("'{}' is {}", path, describe(value)), allowed);
    return;
  }
  for (const Value::Entry& entry : value.entries) {
    if (std::find(keys.begin(), keys.end(), entry.key) == keys.end()) {
      diagnostics.add(entry.where, fmt::format("unknown key '{}' in '{}'", entry.key, path),
                      allowed, nearest(entry.key, keys));
    }
  }
  for (const Part& part : parts) {
    if (const Value* said = value.find(part.key)) {
      part.read(Reader(*said, fmt::format("{}.{}", path, part.key), part.allowed, diagnostics));
    } else {
      diagnostics.add(value.where, fmt::format("'{}' without '{}'", path, part.key), allowed);
    }
  }
}

constexpr const char* kShares = "a share from 0 to 1, or 0% to 100%";

}  // namespace

void Reader::routing_law(RoutingLaw& law, const Value::Entry& said, RoutingTraces& traces,
                         const std::filesystem::path& folder) const {
  const auto& [key, where, value] = said;
  const std::string path = path_ + "." + key;
  const std::string counts = fmt::format("an integer from 1 to {}", kMaxExperts);
  const auto count = [&](const char* of, std::int64_t& target) {
    return Part{of, counts.c_str(),
                [&target](const Reader& reader) { reader.integer(target, 1, kMaxExperts); }};
  };
  if (key == "zipf") {
    law.kind = Routing::kZipf;
    Reader(value, path, "a number from 0 to 16", diagnostics_).real(law.parameter, 0, 16);
  } else if (key == "hot") {
    law.kind = Routing::kHot;
    const Part share{"share", kShares,
                     [&law](const Reader& reader) { reader.share(law.parameter, 1); }};
    read_parts(value, path, {count("experts", law.hot), share}, diagnostics_);
  } else if (key == "grouped") {
    law.kind = Routing::kGrouped;
    read_parts(value, path,
               {count("groups", law.groups), count("groups_per_token", law.groups_per_token)},
               diagnostics_);
  } else if (key == "trace") {
    law.kind = Routing::kTrace;
    Reader(value, path, "a file of what a router said", diagnostics_).text(law.trace_file);
    if (value.kind == Value::Kind::kScalar) {
      law.trace = traces.read(law.trace_file, folder, value.where, diagnostics_).tokens;
    }
  } else {
    diagnostics_.add(where, fmt::format("'{}' has the law '{}'", path_, key), allowed_,
                     nearest(key, kRoutingMaps));
  }
}

void Reader::routing(RoutingLaw& target, RoutingTraces& traces,
                     const std::filesystem::path& folder) const {
  RoutingLaw law;
  if (value_.kind != Value::Kind::kMap) {
    choice(law.kind, kPlainRoutings);
    target = std::move(law);
    return;
  }
  const Value* share = value_.find(kPerAdapter);
  const std::size_t laws = value_.entries.size() - (share == nullptr ? 0 : 1);
  if (laws != 1) {
    complain(value_, fmt::format("has {} laws", laws));
    return;
  }
  for (const Value::Entry& entry : value_.entries) {
    if (entry.key != kPerAdapter) {
      routing_law(law, entry, traces, folder);
    }
  }
  if (share != nullptr) {
    Reader(*share, fmt::format("{}.{}", path_, kPerAdapter), kShares, diagnostics_)
        .share(law.per_adapter, 1);
    if (law.kind != Routing::kZipf && law.kind != Routing::kHot) {
      complain(*share, fmt::format("has '{}' beside a law that orders no experts", kPerAdapter));
    }
  }
  target = std::move(law);
}

}  // namespace lora_bench
