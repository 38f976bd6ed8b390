#include "ops/backends.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "core/dtype.h"
#include "core/error.h"
#include "ops/operands.h"

namespace lora_bench {
namespace {

std::atomic<std::uint64_t> releases{0};

// Where the result of the op lies.
struct Result {
  void* data;
  Dtype dtype;
  std::int64_t elements;
};

Result result_of(const Problem& problem, const Operands& operands) {
  if (has_expand(problem.op)) {
    return {operands.y, problem.dtype[Role::kY], problem.tokens * problem.y_stride};
  }
  return {operands.h, problem.dtype[Role::kH],
          problem.slices() * problem.tokens * problem.max_rank};
}

// Right answers; what derives from it adds one fault.
class Fake : public Backend {
 public:
  explicit Fake(const std::string& behaviour)
      : name_(behaviour.empty() ? "fake" : "fake:" + behaviour) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view summary() const override {
    return "host backend for tests of everything around a backend";
  }
  [[nodiscard]] Space space() const override { return Space::kHost; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return plain_formula_numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  void launch(const Problem& problem, const Operands& operands, Stream) const override {
    apply_plain_formula(problem, operands);
  }

 private:
  std::string name_;
};

class Throwing final : public Fake {
 public:
  using Fake::Fake;
  void launch(const Problem&, const Operands&, Stream) const override {
    throw CaseError("fake:throw throws, as its name says");
  }
};

class Crashing final : public Fake {
 public:
  using Fake::Fake;
  void launch(const Problem&, const Operands&, Stream) const override { std::abort(); }
};

class Lost final : public Fake {
 public:
  using Fake::Fake;
  void launch(const Problem&, const Operands&, Stream) const override {
    throw EnvironmentError("fake:lost says that its device is lost");
  }
};

class Hanging final : public Fake {
 public:
  using Fake::Fake;
  void launch(const Problem&, const Operands&, Stream) const override {
    releases.wait(releases.load());
    throw CaseError("fake:hang was released");
  }
};

class Wrong final : public Fake {
 public:
  using Fake::Fake;
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    Fake::launch(problem, operands, stream);
    const std::vector<std::int32_t>& ids = problem.plan.adapter_of_token;
    for (std::int64_t token = problem.tokens - 1; token >= 0; --token) {
      const std::int32_t id = ids[static_cast<std::size_t>(token)];
      if (id >= 0 && problem.rank[static_cast<std::size_t>(id)] > 0) {
        spoil(problem, operands, token);
        return;
      }
    }
  }

 private:
  // The first element that the op owns in this row. Twice the value and one more differs from any
  // value but -1, which becomes 1.
  static void spoil(const Problem& problem, const Operands& operands, std::int64_t token) {
    const Result result = result_of(problem, operands);
    const bool any_column = std::any_of(problem.widths.begin(), problem.widths.end(),
                                        [](std::int64_t width) { return width > 0; });
    if (has_expand(problem.op) && !any_column) {
      return;
    }
    const std::int64_t element = has_expand(problem.op)
                                     ? token * problem.y_stride + problem.offset_start
                                     : token * problem.max_rank;
    const float right = load(result.dtype, result.data, element);
    store(result.dtype, result.data, element, right == -1.0F ? 1.0F : 2 * right + 1);
  }
};

// Returns with its work undone. The work of the launch before is done when the same buffers come
// again: late, yet without a thread that could write into memory given back meanwhile.
class Late final : public Fake {
 public:
  using Fake::Fake;
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    const std::lock_guard lock(mutex_);
    const std::pair<const void*, const void*> now{operands.h, operands.y};
    if (now == owed_) {
      Fake::launch(problem, operands, stream);
    }
    owed_ = now;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::pair<const void*, const void*> owed_{};
};

// Does its work only where somebody wrote since: right whenever it is looked at, idle when timed.
class Lazy final : public Fake {
 public:
  using Fake::Fake;
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    const std::lock_guard lock(mutex_);
    const Result result = result_of(problem, operands);
    const auto* data = static_cast<const std::byte*>(result.data);
    const auto bytes = static_cast<std::size_t>(result.elements * size_bytes(result.dtype));
    if (left_.size() == bytes && std::equal(left_.begin(), left_.end(), data)) {
      return;
    }
    Fake::launch(problem, operands, stream);
    left_.assign(data, data + bytes);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::byte> left_;
};

class Outside final : public Fake {
 public:
  using Fake::Fake;
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    Fake::launch(problem, operands, stream);
    const Result result = result_of(problem, operands);
    if (result.data != nullptr) {
      auto* end = static_cast<std::byte*>(result.data) + result.elements * size_bytes(result.dtype);
      *end ^= std::byte{0xFF};
    }
  }
};

double parse_factor(const std::string& behaviour) {
  const std::string text = behaviour.substr(behaviour.find('=') + 1);
  double factor = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), factor);
  if (error != std::errc{} || end != text.data() + text.size() || !(factor >= 1) || factor > 1000) {
    throw UsageError(fmt::format("fake:{}: the factor must be a number from 1 to 1000", behaviour));
  }
  return factor;
}

class Slow final : public Fake {
 public:
  explicit Slow(const std::string& behaviour) : Fake(behaviour), factor_(parse_factor(behaviour)) {}
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    using Now = std::chrono::steady_clock;
    const Now::time_point start = Now::now();
    Fake::launch(problem, operands, stream);
    const Now::duration took = Now::now() - start;
    const auto until = start + std::chrono::duration_cast<Now::duration>(took * factor_);
    while (Now::now() < until) {
    }
  }

 private:
  double factor_;
};

class Unsupported final : public Fake {
 public:
  using Fake::Fake;
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override {
    return {false, "fake:unsupported supports nothing"};
  }
};

class OutOfMemory final : public Fake {
 public:
  using Fake::Fake;
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override {
    return std::int64_t{1} << 50;
  }
};

template <typename Kind>
std::unique_ptr<Backend> make(const std::string& behaviour) {
  return std::make_unique<Kind>(behaviour);
}

struct Entry {
  FakeDoc doc;
  std::unique_ptr<Backend> (*make)(const std::string& behaviour);
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries{
      {{"", "right answers by the plain formula"}, make<Fake>},
      {{"throw", "every launch throws"}, make<Throwing>},
      {{"crash", "every launch ends the program"}, make<Crashing>},
      {{"lost", "every launch says that the device is lost"}, make<Lost>},
      {{"hang", "no launch returns"}, make<Hanging>},
      {{"wrong", "one element of the result is wrong"}, make<Wrong>},
      {{"late", "returns before its work is done"}, make<Late>},
      {{"lazy", "does nothing where nobody wrote since its last launch"}, make<Lazy>},
      {{"outside", "writes one byte behind the end of the result"}, make<Outside>},
      {{"slow=FACTOR", "right answers in FACTOR times the time, 1 to 1000"}, make<Slow>},
      {{"unsupported", "supports no problem"}, make<Unsupported>},
      {{"oom", "asks for more workspace than any machine has"}, make<OutOfMemory>},
  };
  return kEntries;
}

// "slow=2" and "slow=FACTOR" are the same kind.
std::string_view kind_of(std::string_view behaviour) {
  return behaviour.substr(0, behaviour.find('='));
}

}  // namespace

const std::vector<FakeDoc>& fake_behaviours() {
  static const std::vector<FakeDoc> kBehaviours = [] {
    std::vector<FakeDoc> docs;
    for (const Entry& entry : entries()) {
      docs.push_back(entry.doc);
    }
    return docs;
  }();
  return kBehaviours;
}

std::unique_ptr<Backend> make_fake(const std::string& behaviour) {
  std::vector<std::string> known;
  for (const Entry& entry : entries()) {
    const bool takes_value = entry.doc.behaviour.find('=') != std::string::npos;
    if (takes_value ? kind_of(entry.doc.behaviour) == kind_of(behaviour)
                    : entry.doc.behaviour == behaviour) {
      return entry.make(behaviour);
    }
    if (!entry.doc.behaviour.empty()) {
      known.push_back(entry.doc.behaviour);
    }
  }
  Diagnostic diagnostic;
  diagnostic.what = fmt::format("unknown fake behaviour '{}'", behaviour);
  diagnostic.allowed = fmt::format("{}", fmt::join(known, ", "));
  diagnostic.suggestion = nearest(behaviour, known);
  throw UsageError({diagnostic});
}

void release_hung_fakes() {
  ++releases;
  releases.notify_all();
}

}  // namespace lora_bench
