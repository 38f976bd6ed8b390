#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "kernels/naive/naive_tuning.h"
#include "kernels/tile/tile_tuning.h"
#include "ops/backends.h"
#include "ops/cublas_backend.h"
#include "scenario/scenario.h"
#include "support/draws.h"
#include "support/plain_backend.h"
#include "support/workload_case.h"
#include "verify/mutants.h"
#include "verify/verify.h"

using namespace lora_bench;

namespace {

namespace fs = std::filesystem;

const fs::path kSuite = fs::path(LORA_BENCH_SOURCE_DIR) / "scenarios" / "verify";

std::vector<Case> cases_of(const std::string& file) {
  return load_scenario(kSuite / file, {}).cases;
}

// A right backend around which a test breaks one thing.
class Broken : public PlainBackend {
 public:
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    right_->launch(problem, operands, stream);
  }

 private:
  std::unique_ptr<Backend> right_ = make_mutant("none");
};

// Loses the last lane of every rank above 256.
class LosesWideLane final : public Broken {
 public:
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    std::vector<std::int32_t> rank(operands.rank, operands.rank + problem.slots);
    for (std::int32_t& lanes : rank) {
      lanes -= lanes > 256 ? 1 : 0;
    }
    Operands narrowed = operands;
    narrowed.rank = rank.data();
    Broken::launch(problem, narrowed, stream);
  }
};

// Leaves row `place` of every group that has it as it was.
class LosesRow final : public Broken {
 public:
  explicit LosesRow(std::size_t place) : place_(place) {}
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    const auto bytes =
        static_cast<std::size_t>(problem.y_stride * size_bytes(problem.dtype[Role::kY]));
    auto* y = static_cast<std::byte*>(operands.y);
    const std::vector<std::byte> before(y, y + static_cast<std::size_t>(problem.tokens) * bytes);
    Broken::launch(problem, operands, stream);
    const auto& starts = problem.plan.group_starts;
    for (std::size_t group = 0; group + 1 < starts.size(); ++group) {
      const std::size_t at = static_cast<std::size_t>(starts[group]) + place_;
      if (at < static_cast<std::size_t>(starts[group + 1])) {
        const auto row = static_cast<std::size_t>(problem.plan.token_order[at]) * bytes;
        std::copy_n(before.data() + row, bytes, y + row);
      }
    }
  }

 private:
  std::size_t place_;
};

// Counts columns, or rows, in 16 bits: what lies beyond starts again.
class WrapsAt16Bits final : public Broken {
 public:
  explicit WrapsAt16Bits(bool columns) : columns_(columns) {}
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    constexpr std::int64_t kPast = 1 << 16;
    const auto bytes = static_cast<std::size_t>(size_bytes(problem.dtype[Role::kY]));
    const std::int64_t elements = problem.tokens * problem.y_stride;
    auto* y = static_cast<std::byte*>(operands.y);
    const std::vector<std::byte> before(y, y + static_cast<std::size_t>(elements) * bytes);
    Broken::launch(problem, operands, stream);
    for (std::int64_t index = 0; index < elements; ++index) {
      if ((columns_ ? index % problem.y_stride : index / problem.y_stride) >= kPast) {
        const auto at = static_cast<std::size_t>(index) * bytes;
        std::copy_n(before.data() + at, bytes, y + at);
      }
    }
  }

 private:
  bool columns_;
};

// Leaves out what lies in K beyond 16 bits.
class ShortK final : public Broken {
 public:
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    constexpr std::int64_t kPast = 1 << 16;
    std::vector<std::byte> x;
    Operands cut = operands;
    if (problem.in_features > kPast) {
      const auto bytes = static_cast<std::size_t>(size_bytes(problem.dtype[Role::kY]));
      const auto row = static_cast<std::size_t>(problem.x_stride) * bytes;
      const auto* from = static_cast<const std::byte*>(operands.x);
      x.assign(from, from + static_cast<std::size_t>(problem.tokens) * row);
      for (std::size_t start = 0; start < x.size(); start += row) {
        std::fill(x.begin() + static_cast<std::ptrdiff_t>(start + kPast * bytes),
                  x.begin() + static_cast<std::ptrdiff_t>(start + row), std::byte{0});
      }
      cut.x = x.data();
    }
    Broken::launch(problem, cut, stream);
  }
};

bool caught(const Backend& backend) {
  const std::vector<Case> cases = cases_of("shapes.yaml");
  return std::any_of(cases.begin(), cases.end(), [&](const Case& spec) {
    const auto memory = make_host_memory();
    return verify(problem_of(spec), backend, *memory, {.seed = spec.seed}).status ==
           Status::kFailed;
  });
}

struct Declaration {
  std::string backend;
  Numerics numerics;
};

// What backends of the GPU declare, also where none of them can run.
std::vector<Declaration> declarations(const Problem& problem) {
  const std::int64_t k = problem.in_features;
  Numerics tile;
  tile.unit_roundoff = 0x1p-23;
  tile.shrink_depth = kernels::tile_shrink_depth(k, 1);
  tile.expand_depth =
      kernels::tile_expand_depth(problem.max_rank, problem.dtype[Role::kH] == Dtype::kFp32);
  tile.intermediate = problem.dtype[Role::kH];
  Numerics naive;
  naive.shrink_depth = kernels::naive_shrink_depth(k);
  naive.expand_depth = kernels::naive_expand_depth(problem.max_rank);
  naive.intermediate = problem.dtype[Role::kH];
  Numerics rounding = cublas_numerics(problem);
  rounding.rounds_delta = true;
  return {{"grouped, chunked", tile},
          {"auto, panel", panel_numerics(problem)},
          {"naive", naive},
          {"bgmv", bgmv_numerics(problem)},
          {"cublas", cublas_numerics(problem)},
          {"cublas with a rounded delta", rounding}};
}

}  // namespace

TEST_CASE("verify suite: it sees a lane that is lost above rank 256") {
  CHECK(caught(LosesWideLane()));
}

TEST_CASE("verify suite: it sees a row that is lost anywhere in the first 192 of a group") {
  const std::vector<std::size_t> few{0, 97, 191};
  const std::vector<std::size_t> all{0, 1, 63, 64, 96, 97, 127, 128, 150, 191};
  for (const std::size_t place : test::kSanitized ? few : all) {
    CAPTURE(place);
    CHECK(caught(LosesRow(place)));
  }
  CHECK_FALSE(caught(LosesRow(1U << 20U)));
}

TEST_CASE("verify suite: it sees indices of 16 bits") {
  CHECK(caught(WrapsAt16Bits(true)));
  CHECK(caught(WrapsAt16Bits(false)));
  CHECK(caught(ShortK()));
  for (const std::size_t place : {32767U, 32768U, 65535U, 65536U}) {
    CAPTURE(place);
    CHECK(caught(LosesRow(place)));  // in a group
  }
}

TEST_CASE("verify suite: what the backends declare is far below what they do") {
  for (const char* file :
       {"shapes.yaml", "dtypes.yaml", "edges.yaml", "ops.yaml", "orders.yaml", "slices.yaml"}) {
    for (const Case& spec : cases_of(file)) {
      const Problem problem = problem_of(spec);
      if (problem.in_features > 1 << 16) {
        continue;  // the bound of so deep a sum is wide: the exact level proves it
      }
      const Tensors tensors = draw_tensors(problem, Fill::kBounded, spec.seed);
      const HostTensor& idle = has_expand(problem.op) ? tensors.y : tensors.h;
      for (const Declaration& declared : declarations(problem)) {
        CAPTURE(spec.id);
        CAPTURE(declared.backend);
        const Comparison comparison = compare_output(problem, tensors, declared.numerics,
                                                     idle.data.data(), sample_rows(problem, 8, 1));
        CHECK(why_no_proof(comparison) == "");
        // A scale of 0 adds nothing, and of the few elements of the smallest cases one may be small
        // by chance.
        const std::vector<double>& scales = spec.adapters.scale;
        const bool some_add_nothing = std::count(scales.begin(), scales.end(), 0.0) > 0;
        CHECK(comparison.zero_share <= (some_add_nothing         ? 0.7
                                        : comparison.owned > 100 ? 0.2
                                                                 : 0.5));
      }
    }
  }
}

TEST_CASE("verify suite: every range of sizes has cases of every op, dtype and place") {
  using Of = std::int64_t (*)(const Case&);
  struct Window {
    const char* what;
    Of of;
    std::int64_t past, to;
    std::size_t ops;
  };
  const Of tokens = [](const Case& spec) {
    return std::accumulate(spec.batch.prefill.begin(), spec.batch.prefill.end(), spec.batch.decode);
  };
  const Of slots = [](const Case& spec) { return spec.adapters.slots; };
  const Of rank = [](const Case& spec) { return spec.adapters.max_rank; };
  const Of slices = [](const Case& spec) {
    return static_cast<std::int64_t>(spec.layer.widths.size());
  };
  const Of features = [](const Case& spec) { return spec.layer.in_features; };
  const Of columns = [](const Case& spec) {
    return *std::max_element(spec.layer.widths.begin(), spec.layer.widths.end());
  };
  const std::vector<Window> windows{
      {"513 to 999 tokens", tokens, 512, 999, 5},
      {"1001 to 4000 tokens", tokens, 1000, 4000, 5},
      {"4001 to 60000 tokens", tokens, 4000, 60000, 5},
      {"more than 60000 tokens", tokens, 60000, 1 << 20, 5},
      {"more than 1024 slots", slots, 1024, 65536, 5},
      {"rank 513 to 1024", rank, 512, 1024, 5},
      {"rank above 1024", rank, 1024, 4096, 5},
      {"more than 8 slices", slices, 8, 64, 4},      // logits has one
      {"K above 4096", features, 4096, 1 << 20, 3},  // the others have no x
      {"N above 4096", columns, 4096, 1 << 20, 4}};  // shrink has no columns
  const std::vector<Case> cases = cases_of("sizes.yaml");
  for (const Window& window : windows) {
    CAPTURE(std::string(window.what));
    std::set<Op> ops;
    std::set<Dtype> dtypes;
    std::set<ScaleAt> places;
    std::set<bool> biases, adds, narrow;
    for (const Case& spec : cases) {
      if (window.of(spec) > window.past && window.of(spec) <= window.to) {
        ops.insert(spec.op);
        dtypes.insert(spec.dtype);
        places.insert(spec.scale_at);
        biases.insert(spec.adapters.bias);
        adds.insert(spec.add_inputs);
        narrow.insert(spec.intermediate != Dtype::kFp32);
      }
    }
    CHECK(ops.size() == window.ops);
    CHECK(dtypes.size() == 3);
    CHECK(places.size() == 2);
    CHECK(biases.size() == 2);
    CHECK(adds.size() == 2);
    CHECK(narrow.size() == 2);
  }
}

TEST_CASE("verify: a bias that cancels the delta of a row of one column is no loose declaration") {
  Case spec = workload_case(256, 3);
  spec.dtype = spec.intermediate = Dtype::kFp16;
  spec.scale_at = ScaleAt::kExpand;
  spec.layer.in_features = spec.layer.x_stride = 1;
  spec.layer.widths = {1};
  spec.layer.y_stride = 1;
  spec.adapters.scale = {1.3, -0.7};
  spec.adapters.bias = true;
  const std::unique_ptr<Backend> right = make_mutant("none");
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    spec.seed = seed;
    const auto memory = make_host_memory();
    const Verdict verdict = verify(problem_of(spec), *right, *memory, {.seed = seed});
    CAPTURE(verdict.message);
    CHECK(verdict.status == Status::kPassed);
  }
}

TEST_CASE("verify: a delta far below y, by the chance of one number, is no loose declaration") {
  Case spec = workload_case(513, 1);
  spec.dtype = Dtype::kFp32;
  spec.layer.in_features = spec.layer.x_stride = 1;
  spec.layer.widths = {300};
  spec.layer.y_stride = 300;
  spec.adapters.rank.list = {1};
  spec.adapters.max_rank = 1;
  const auto memory = make_host_memory();
  const std::unique_ptr<Backend> right = make_mutant("none");
  // Of 1500 seeds these two draw a row whose delta is so far below y.
  for (const std::uint64_t seed : {std::uint64_t{209}, std::uint64_t{492}}) {
    CAPTURE(seed);
    const Verdict verdict = verify(problem_of(spec), *right, *memory, {.seed = seed});
    CAPTURE(verdict.message);
    CHECK(verdict.status == Status::kPassed);
  }
}
