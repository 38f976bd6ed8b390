#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "ops/backends.h"
#include "reference/reference.h"
#include "support/cpu_case.h"
#include "support/workload_case.h"
#include "workload/fill_sizes.h"
#include "workload/tensors.h"

using namespace lora_bench;

namespace {

std::vector<float> values_of(const HostTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements));
  decode(tensor.dtype, tensor.data.data(), values);
  return values;
}

std::vector<const HostTensor*> all_of(const Tensors& tensors) {
  std::vector<const HostTensor*> all{&tensors.x, &tensors.h, &tensors.y};
  for (const auto* group : {&tensors.a, &tensors.b, &tensors.bias}) {
    for (const HostTensor& tensor : *group) {
      all.push_back(&tensor);
    }
  }
  return all;
}

bool same_bits(const Tensors& left, const Tensors& right) {
  const auto lefts = all_of(left);
  const auto rights = all_of(right);
  return left.scale == right.scale &&
         std::equal(lefts.begin(), lefts.end(), rights.begin(), rights.end(),
                    [](const auto* a, const auto* b) { return a->data == b->data; });
}

// A sum over K of the largest |x| and |A| that the fill can draw.
double largest_sum_over_k(const Problem& problem, const Tensors& tensors) {
  const auto largest = [](const HostTensor& tensor) {
    double value = 0;
    for (const float element : values_of(tensor)) {
      value =
          std::isnan(element) ? value : std::max(value, std::fabs(static_cast<double>(element)));
    }
    return value;
  };
  return static_cast<double>(problem.in_features) * largest(tensors.x) * largest(tensors.a[0]);
}

reference::Number number_of(Dtype dtype) {
  return dtype == Dtype::kFp32   ? reference::Number::kFp32
         : dtype == Dtype::kBf16 ? reference::Number::kBf16
                                 : reference::Number::kFp16;
}

reference::Rows modelled(const Problem& problem, const Tensors& tensors) {
  reference::Problem asked;
  asked.shrink = has_shrink(problem.op);
  asked.expand = has_expand(problem.op);
  asked.numbers = reference::all_of(number_of(problem.dtype[Role::kY]));
  asked.numbers.h = number_of(problem.dtype[Role::kH]);
  asked.scale_at_shrink = problem.scale_at == ScaleAt::kShrink;
  asked.add_inputs = problem.add_inputs;
  asked.tokens = problem.tokens;
  asked.in_features = problem.in_features;
  asked.offset_start = problem.offset_start;
  asked.x_stride = problem.x_stride;
  asked.y_stride = problem.y_stride;
  asked.slots = problem.slots;
  asked.max_rank = problem.max_rank;
  asked.widths = problem.widths;
  asked.adapter_of_token = problem.plan.adapter_of_token;
  asked.rank = problem.rank;
  asked.scale = tensors.scale;
  asked.x = tensors.x.data.data();
  asked.h = tensors.h.data.data();
  asked.y = tensors.y.data.data();
  for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
    asked.a.push_back(tensors.a[slice].data.data());
    asked.b.push_back(tensors.b[slice].data.data());
    if (problem.bias) {
      asked.bias.push_back(tensors.bias[slice].data.data());
    }
  }
  reference::Arithmetic arithmetic;
  arithmetic.intermediate = asked.numbers.h;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(problem.tokens));
  std::iota(rows.begin(), rows.end(), 0);
  return reference::evaluate(asked, arithmetic, rows, reference::Rounding::kModelled);
}

void check_exact(const Problem& problem, std::uint64_t seed) {
  const Tensors tensors = draw_tensors(problem, Fill::kExact, seed);
  const reference::Rows rows = modelled(problem, tensors);
  CHECK(rows.largest_partial <= 0x1p24);
  std::int64_t zero = 0;
  std::int64_t owned = 0;
  bool finite = true;
  for (std::size_t i = 0; i < rows.expected.size(); ++i) {
    owned += rows.owned[i];
    zero += rows.owned[i] != 0 && rows.expected[i] == 0 ? 1 : 0;
    if (rows.owned[i] != 0) {
      const auto number =
          number_of(has_expand(problem.op) ? problem.dtype[Role::kY] : problem.dtype[Role::kH]);
      finite = finite && std::isfinite(reference::round_to(number, rows.expected[i]));
    }
  }
  CHECK(finite);
  CHECK(zero * 20 <= owned);
}

bool all_nan(const std::vector<float>& values, std::int64_t first, std::int64_t count) {
  return std::all_of(values.begin() + first, values.begin() + first + count,
                     [](float value) { return std::isnan(value); });
}
bool none_nan(const std::vector<float>& values, std::int64_t first, std::int64_t count) {
  return std::none_of(values.begin() + first, values.begin() + first + count,
                      [](float value) { return std::isnan(value); });
}

// Two slots of which one is used, with row and rank padding.
Case padded_case() {
  Case spec = workload_case(2, 2);
  spec.layer.x_stride = 50;
  spec.layer.y_stride = 40;
  spec.adapters.rank.list = {5};
  spec.adapters.bias = true;
  spec.skew.kind = Skew::kTrace;
  spec.skew.trace = {1, -1};
  spec.prefill_skew = spec.skew;
  return spec;
}

}  // namespace

TEST_CASE("every fill has the same bits on one thread and on many") {
  Case spec = workload_case(300, 9);
  spec.layer.in_features = 700;
  spec.layer.widths = {900, 100};
  spec.adapters.rank.list = {8, 16};
  spec.adapters.bias = true;
  const Problem problem = problem_of(spec);
  for (const Fill fill : {Fill::kExact, Fill::kBounded, Fill::kUneven, Fill::kTiming}) {
    const Tensors one = draw_tensors(problem, fill, 7, 1);
    CHECK(same_bits(one, draw_tensors(problem, fill, 7, 5)));
    CHECK(same_bits(one, draw_tensors(problem, fill, 7)));
    CHECK_FALSE(same_bits(one, draw_tensors(problem, fill, 8)));
  }
}

TEST_CASE("batches that differ in order alone have the same adapters") {
  Case spec = workload_case(12, 3);
  const Tensors arrived = draw_tensors(problem_of(spec), Fill::kBounded, 1);
  spec.order = Order::kShuffled;
  const Tensors shuffled = draw_tensors(problem_of(spec), Fill::kBounded, 1);
  CHECK(arrived.a[1].data == shuffled.a[1].data);
  CHECK(arrived.b[0].data == shuffled.b[0].data);
  CHECK(arrived.scale == shuffled.scale);
}

TEST_CASE("fills keep their golden values") {
  const Problem problem = problem_of(workload_case(2, 2));
  const auto first_bits = [](const HostTensor& tensor) {
    std::vector<int> bits;
    for (std::size_t i = 0; i < 8; ++i) {
      bits.push_back(static_cast<int>(tensor.data[i]));
    }
    return bits;
  };
  using Bytes = std::vector<int>;
  const Tensors exact = draw_tensors(problem, Fill::kExact, 1);
  CHECK(first_bits(exact.x) == Bytes{20, 194, 36, 194, 192, 66, 180, 194});
  CHECK(first_bits(exact.b[1]) == Bytes{128, 193, 0, 65, 192, 65, 0, 64});
  const Tensors bounded = draw_tensors(problem, Fill::kBounded, 1);
  CHECK(first_bits(bounded.a[0]) == Bytes{181, 190, 192, 190, 94, 189, 22, 62});
  const Tensors timing = draw_tensors(problem, Fill::kTiming, 1);
  CHECK(first_bits(timing.y) == Bytes{15, 190, 10, 191, 52, 63, 124, 191});
}

TEST_CASE("exact sums stay below 2^24 and finite, and are not mostly zero, in random cases") {
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    CAPTURE(seed);
    const Problem problem = problem_of(random_case(seed));
    CAPTURE(name(problem.op));
    CAPTURE(name(problem.dtype[Role::kY]));
    CAPTURE(problem.in_features);
    CAPTURE(problem.max_rank);
    check_exact(problem, seed);
  }
}

TEST_CASE("exact sums stay below 2^24 at the extremes of K and rank") {
  for (const std::int64_t k : {1, 2, 4096, 28672}) {
    for (const std::int64_t rank : {1, 16, 512}) {
      for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
        CAPTURE(k);
        CAPTURE(rank);
        CAPTURE(name(dtype));
        Case spec = workload_case(3, 1);
        spec.dtype = dtype;
        spec.layer.in_features = k;
        spec.layer.widths = {100};
        spec.adapters.rank.list = {rank};
        spec.adapters.bias = true;
        const Problem problem = problem_of(spec);
        CHECK(largest_sum_over_k(problem, draw_tensors(problem, Fill::kExact, 3)) <= 0x1p24);
        check_exact(problem, 3);
      }
    }
  }
}

TEST_CASE("exact partials of a split sum are too wide for the narrow dtypes") {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
    Case spec = workload_case(1, 1);
    spec.dtype = dtype;
    spec.layer.in_features = 4096;
    const Tensors tensors = draw_tensors(problem_of(spec), Fill::kExact, 1);
    const std::vector<float> x = values_of(tensors.x);
    const std::vector<float> a = values_of(tensors.a[0]);
    std::int64_t rounded = 0;
    for (std::size_t part = 0; part < 16; ++part) {
      double sum = 0;
      for (std::size_t k = part * 256; k < (part + 1) * 256; ++k) {
        sum += static_cast<double>(x[k] * a[k]);
      }
      rounded += reference::round_to(number_of(dtype), sum) == sum ? 0 : 1;
    }
    CHECK(rounded >= 8);
  }
}

TEST_CASE("exact values are integers times a power of two that the dtype holds, none zero") {
  Case spec = workload_case(4, 3);
  spec.adapters.bias = true;
  const Tensors tensors = draw_tensors(problem_of(spec), Fill::kExact, 2);
  for (const float value : values_of(tensors.x)) {
    CHECK(value == std::round(value));
    CHECK(value != 0);
    CHECK(std::fabs(value) <= 256);
  }
  const std::vector<float> y = values_of(tensors.y);
  CHECK(std::count(y.begin(), y.end(), 0.0F) == 0);
  for (std::size_t slot = 0; slot < tensors.scale.size(); ++slot) {
    int exponent = 0;
    CHECK(std::fabs(std::frexp(tensors.scale[slot], &exponent)) == 0.5F);
    CHECK(tensors.scale[slot] != 1.0F);
    CHECK(tensors.scale[slot] != tensors.scale[(slot + 1) % tensors.scale.size()]);
  }
}

TEST_CASE("what an op must not read is NaN where results are proved, and a number where timed") {
  const Problem problem = problem_of(padded_case());
  for (const Fill fill : {Fill::kExact, Fill::kBounded, Fill::kUneven, Fill::kTiming}) {
    const bool poisons = fill != Fill::kTiming;
    const Tensors tensors = draw_tensors(problem, fill, 4);
    const std::vector<float> x = values_of(tensors.x);
    CHECK(none_nan(x, 0, 48));
    CHECK(all_nan(x, 48, 2) == poisons);
    CHECK(all_nan(x, 50, 50) == poisons);
    const std::vector<float> a = values_of(tensors.a[0]);
    const std::int64_t lane = 48;
    CHECK(all_nan(a, 0, 8 * lane) == poisons);
    CHECK(none_nan(a, 8 * lane, 5 * lane));
    CHECK(all_nan(a, 13 * lane, 3 * lane) == poisons);
    const std::vector<float> b = values_of(tensors.b[1]);
    CHECK(all_nan(b, 0, 8 * 8) == poisons);
    CHECK(none_nan(b, 8 * 8, 5));
    CHECK(all_nan(b, 8 * 8 + 5, 3) == poisons);
    CHECK(none_nan(b, 8 * 8 + 8, 5));
    const std::vector<float> bias = values_of(tensors.bias[0]);
    CHECK(all_nan(bias, 0, 24) == poisons);
    CHECK(none_nan(bias, 24, 24));
    CHECK(none_nan(values_of(tensors.y), 0, 80));
    CHECK(all_nan(values_of(tensors.h), 0, 2 * 2 * 8) == poisons);
  }
}

TEST_CASE("what is overwritten holds NaN before a launch, and numbers in an uneven fill") {
  Case spec = padded_case();
  spec.add_inputs = false;
  const Problem problem = problem_of(spec);
  for (const Fill fill : {Fill::kExact, Fill::kBounded, Fill::kUneven, Fill::kUnevenNarrow}) {
    const Tensors tensors = draw_tensors(problem, fill, 4);
    const std::vector<float> y = values_of(tensors.y);
    CHECK(none_nan(y, 0, std::ssize(y)) == is_uneven(fill));
    CHECK(all_nan(y, 0, std::ssize(y)) != is_uneven(fill));
    const std::vector<std::byte> scratch(sizeof(float), tensors.scratch);
    for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
      CHECK(std::isnan(load(dtype, scratch.data(), 0)) != is_uneven(fill));
    }
  }
}

TEST_CASE("a given h is poisoned above the rank and in rows without an adapter") {
  Case spec = padded_case();
  spec.op = Op::kExpand;
  const Tensors tensors = draw_tensors(problem_of(spec), Fill::kExact, 4);
  const std::vector<float> h = values_of(tensors.h);
  for (const std::int64_t slice : {0, 1}) {
    CHECK(none_nan(h, slice * 16, 5));
    CHECK(all_nan(h, slice * 16 + 5, 11));
  }
  CHECK(tensors.x.elements == 0);
}

TEST_CASE("bounded data has full mantissas, both signs, uneven scales and a delta beside y") {
  Case spec = workload_case(20, 4);
  spec.dtype = Dtype::kFp32;
  spec.adapters.scale = {0.01, 7.0};
  const Problem problem = problem_of(spec);
  const Tensors tensors = draw_tensors(problem, Fill::kBounded, 5);
  for (std::size_t slot = 0; slot < 4; ++slot) {
    const float factor = tensors.scale[slot] / problem.scale[slot];
    CHECK(factor >= 0.7499F);
    CHECK(factor <= 1.2501F);
    CHECK((factor == 1.0F || std::fabs(factor - 1.0F) >= 0.0299F));
  }
  const reference::Rows rows = modelled(problem, tensors);
  const std::vector<float> before = values_of(tensors.y);
  double delta = 0;
  double size = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto old = static_cast<double>(before[i]);
    delta += (rows.expected[i] - old) * (rows.expected[i] - old);
    size += old * old;
  }
  CHECK(delta > 0.3 * size);
  CHECK(delta < 3 * size);
  const std::vector<float> x = values_of(tensors.x);
  const auto negative = std::count_if(x.begin(), x.end(), [](float value) { return value < 0; });
  CHECK(std::abs(negative - 480) < 100);
}

TEST_CASE("bounded data has the scale as it is written in one slot that the batch uses") {
  Case spec = workload_case(20, 6);
  spec.skew.kind = Skew::kTrace;
  spec.skew.trace = {1, 2, 3, 4};
  spec.prefill_skew = spec.skew;
  const auto as_written = [&](std::uint64_t seed) {
    const Problem problem = problem_of(spec);
    const Tensors tensors = draw_tensors(problem, Fill::kBounded, seed);
    std::vector<std::size_t> slots;
    for (std::size_t slot = 0; slot < 6; ++slot) {
      if (tensors.scale[slot] == problem.scale[slot]) {
        slots.push_back(slot);
      }
    }
    return slots;
  };
  std::set<std::size_t> shared, apart;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    spec.adapters.scale = {2.0};
    REQUIRE(as_written(seed).size() == 1);
    shared.insert(as_written(seed).front());
    spec.adapters.scale = {2.0, 0.5, 1.0, -1.0, 4.0, 3.0};  // of four used scales every second one
    REQUIRE(as_written(seed).size() == 2);
    apart.insert(as_written(seed).front());
    apart.insert(as_written(seed).back());
  }
  CHECK(shared == std::set<std::size_t>{1, 2, 3, 4});
  CHECK(apart == std::set<std::size_t>{1, 2, 3, 4});
}

TEST_CASE("timing data stays finite through thousands of accumulations") {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
    Case spec = workload_case(4, 2);
    spec.dtype = dtype;
    spec.adapters.scale = {3.0};
    const Problem problem = problem_of(spec);
    const Tensors tensors = draw_tensors(problem, Fill::kTiming, 6);
    CHECK(tensors.scale == problem.scale);
    const reference::Rows rows = modelled(problem, tensors);
    const std::vector<float> before = values_of(tensors.y);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double delta = rows.expected[i] - static_cast<double>(before[i]);
      double y = static_cast<double>(before[i]);
      for (int step = 0; step < 5000; ++step) {
        y = reference::round_to(number_of(dtype), y + delta);
      }
      CHECK(std::fabs(y) < 10000);
    }
  }
}

TEST_CASE("a y that is overwritten holds NaN that no arithmetic leaves as they are") {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
    CAPTURE(name(dtype));
    Case spec = workload_case(2, 2);
    spec.dtype = dtype;
    const auto drawn = [&](bool adds, Fill fill) {
      spec.add_inputs = adds;
      return draw_tensors(problem_of(spec), fill, 1).y;
    };
    for (const Fill fill : {Fill::kExact, Fill::kBounded}) {
      const HostTensor y = drawn(false, fill);
      std::set<std::string> bits;
      for (std::int64_t at = 0; at < y.elements; ++at) {
        const float value = load(y.dtype, y.data.data(), at);
        CHECK(std::isnan(value));
        float again = 0;
        store(y.dtype, &again, 0, 0 * value + 1);
        const auto* element =
            reinterpret_cast<const char*>(y.data.data()) + at * size_bytes(y.dtype);
        const auto bytes = static_cast<std::size_t>(size_bytes(y.dtype));
        CHECK(std::memcmp(&again, element, bytes) != 0);
        bits.insert(std::string(element, bytes));
      }
      CHECK(bits.size() > 8);
      const std::vector<float> added_to = values_of(drawn(true, fill));
      CHECK(none_nan(added_to, 0, static_cast<std::int64_t>(added_to.size())));
    }
    const std::vector<float> timed = values_of(drawn(false, Fill::kTiming));
    CHECK(none_nan(timed, 0, static_cast<std::int64_t>(timed.size())));
  }
}

TEST_CASE(
    "uneven data has rows and lanes where a given h is zero and the sum is not, or it alone") {
  Case spec = workload_case(64, 4);
  spec.op = Op::kShrink;
  spec.shrink_adds = true;
  spec.layer.in_features = 64;
  spec.layer.widths = {16};
  spec.adapters.rank.list = {32};
  spec.adapters.max_rank = 32;
  const Problem problem = problem_of(spec);
  const Tensors tensors = draw_tensors(problem, Fill::kUneven, 3);
  const std::vector<float> given = values_of(tensors.h);
  Problem overwriting = problem;
  overwriting.shrink_adds = false;
  const std::vector<float> added =
      values_of(test::launch_on_host(*make_cpu_backend({1, ""}), overwriting, tensors).h);
  std::vector<std::int64_t> alone_in_row(64), alone_in_lane(32);
  std::int64_t sums_alone = 0;
  for (std::int64_t token = 0; token < 64; ++token) {
    for (std::int64_t lane = 0; lane < 32; ++lane) {
      const auto at = static_cast<std::size_t>(token * 32 + lane);
      const bool alone = given[at] != 0 && added[at] == 0;
      alone_in_row[static_cast<std::size_t>(token)] += alone ? 1 : 0;
      alone_in_lane[static_cast<std::size_t>(lane)] += alone ? 1 : 0;
      sums_alone += given[at] == 0 && added[at] != 0 ? 1 : 0;
    }
  }
  const auto mostly = [](const std::vector<std::int64_t>& counts, std::int64_t least) {
    return std::count_if(counts.begin(), counts.end(),
                         [&](std::int64_t count) { return count >= least; });
  };
  CHECK(mostly(alone_in_row, 24) >= 3);   // x is zero
  CHECK(mostly(alone_in_lane, 40) >= 1);  // A is zero
  CHECK(sums_alone >= 4 * 24);
}

TEST_CASE("a given h to which shrink adds is as large as what is added, whatever the scale") {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kFp16}) {
    for (const ScaleAt scale_at : {ScaleAt::kShrink, ScaleAt::kExpand}) {
      Case spec = workload_case(60, 6);
      spec.op = Op::kShrink;
      spec.shrink_adds = true;
      spec.dtype = dtype;
      spec.scale_at = scale_at;
      spec.layer.in_features = 64;
      spec.adapters.rank.list = {16};
      spec.adapters.scale = {1, 0.002, 0, -1.3, 8, 0.25};
      if (dtype == Dtype::kFp32) {
        spec.adapters.scale = {1, -0x1p-20, 0, -12000, 8, 0.25};
      }
      spec.skew.kind = Skew::kDistinct;
      const Problem problem = problem_of(spec);
      const Tensors tensors = draw_tensors(problem, Fill::kBounded, 3);
      const std::vector<float> given = values_of(tensors.h);
      Problem overwriting = problem;
      overwriting.shrink_adds = false;
      const test::HostResult made =
          test::launch_on_host(*make_cpu_backend({1, ""}), overwriting, tensors);
      const std::vector<float> added = values_of(made.h);
      for (const std::int32_t slot : problem.plan.active_ids) {
        double of_given = 0, of_added = 0;
        for (std::int64_t token = 0; token < problem.tokens; ++token) {
          for (std::int64_t lane = 0; lane < 16; ++lane) {
            const auto at = static_cast<std::size_t>(token * 16 + lane);
            if (problem.plan.adapter_of_token[static_cast<std::size_t>(token)] == slot) {
              of_given += std::fabs(static_cast<double>(given[at]));
              of_added += std::fabs(static_cast<double>(added[at]));
            }
          }
        }
        CAPTURE(name(dtype));
        CAPTURE(slot);
        const bool nothing =
            tensors.scale[static_cast<std::size_t>(slot)] == 0 && scale_at == ScaleAt::kShrink;
        CHECK(of_given > 0);
        CHECK((nothing ? of_added == 0 : of_given > of_added / 2 && of_given < 2 * of_added));
      }
    }
  }
}

TEST_CASE("an fp16 h with a large scale stays far below what fp16 holds") {
  Case spec = workload_case(2, 2);
  spec.dtype = spec.intermediate = Dtype::kFp16;
  spec.scale_at = ScaleAt::kShrink;
  for (const double scale : {1.0, 64.0, 5000.0, 60000.0}) {
    CAPTURE(scale);
    spec.adapters.scale = {scale};
    for (const Fill fill : {Fill::kBounded, Fill::kTiming}) {
      const Problem problem = problem_of(spec);
      const FillSizes sizes = fill_sizes(problem, fill, 1);
      const double deviation = std::sqrt(static_cast<double>(problem.in_features)) *
                               static_cast<double>(sizes.a.factor) / 3;
      double largest = 0;
      for (const float of_slot : sizes.scale) {
        largest = std::max(largest, 8 * deviation * std::fabs(static_cast<double>(of_slot)));
      }
      CHECK(largest < 65504);
      // What h is smaller, B is larger: a delta is about as it was.
      const double delta = deviation * static_cast<double>(sizes.b[0].factor) *
                           std::fabs(static_cast<double>(sizes.scale[0]));
      CHECK(delta > 0.01);
      CHECK(delta < 10);
    }
  }
}

TEST_CASE("an fp16 h with a large scale is finite where all terms of a long sum have one sign") {
  Case spec = workload_case(4, 3);
  spec.dtype = spec.intermediate = Dtype::kFp16;
  spec.scale_at = ScaleAt::kShrink;
  for (const std::int64_t features : {48, 4096, 262144}) {
    spec.layer.in_features = spec.layer.x_stride = features;
    for (const double scale : {1.0, 700.0, 4096.0}) {
      CAPTURE(features);
      CAPTURE(scale);
      spec.adapters.scale = {-0.7, scale};
      const FillSizes sizes = fill_sizes(problem_of(spec), Fill::kBounded, 1);
      const double of_one_sign =
          static_cast<double>(features) * static_cast<double>(sizes.a.factor) / 4;
      CHECK(1.25 * scale * of_one_sign < 65504);
      // Nor does the small scale make it subnormal.
      const double usual = of_one_sign / std::sqrt(static_cast<double>(features));
      CHECK(0.5 * usual > 0x1p-10);
    }
  }
}

namespace {

// 64 rows of four adapters in turn, wide enough for every kind of row, lane and column.
Problem uneven_problem(Dtype dtype, Op op) {
  Case spec = workload_case(64, 4);
  spec.op = op;
  spec.dtype = dtype;
  spec.layer.in_features = spec.layer.x_stride = 200;
  spec.layer.widths = {64, 32};
  spec.layer.y_stride = 100;
  spec.adapters.rank.list = {48};
  spec.adapters.max_rank = 48;
  spec.adapters.bias = true;
  return problem_of(spec);
}

std::vector<float> row_of(const std::vector<float>& values, std::int64_t row, std::int64_t width) {
  return {values.begin() + row * width, values.begin() + (row + 1) * width};
}

std::int64_t rows_of(const std::vector<float>& values, std::int64_t width,
                     const std::function<bool(const std::vector<float>&)>& has) {
  std::int64_t rows = 0;
  for (std::int64_t row = 0; row * width < std::ssize(values); ++row) {
    rows += has(row_of(values, row, width)) ? 1 : 0;
  }
  return rows;
}

bool all_zero(const std::vector<float>& row) {
  return std::all_of(row.begin(), row.end(), [](float value) { return value == 0; });
}

float largest(const std::vector<float>& row) {
  float most = 0;
  for (const float value : row) {
    most = std::max(most, std::fabs(value));
  }
  return most;
}

// The largest is that many times the next.
bool has_outlier(const std::vector<float>& row) {
  std::vector<float> sorted = row;
  std::sort(sorted.begin(), sorted.end(),
            [](float left, float right) { return std::fabs(left) > std::fabs(right); });
  return sorted[1] != 0 && std::fabs(sorted[0]) > 30 * std::fabs(sorted[1]);
}

bool any(const std::vector<float>& values, const std::function<bool(float)>& has) {
  return std::any_of(values.begin(), values.end(), has);
}

}  // namespace

TEST_CASE("uneven data has zeros, -0, outliers, and values from subnormal to beyond fp16") {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
    CAPTURE(name(dtype));
    const Problem linear = uneven_problem(dtype, Op::kLinear);
    const Tensors tensors = draw_tensors(linear, Fill::kUneven, 3);
    const Problem expand = uneven_problem(dtype, Op::kExpand);
    const Tensors given = draw_tensors(expand, Fill::kUneven, 3);
    const bool half = dtype == Dtype::kFp16;
    for (const HostTensor* tensor :
         {&tensors.x, &tensors.a[0], &tensors.b[1], &tensors.y, &tensors.bias[0], &given.h}) {
      const std::vector<float> values = values_of(*tensor);
      CHECK(none_nan(values, 0, std::ssize(values)));
      CHECK(any(values, [](float value) { return value == 0 && !std::signbit(value); }));
      CHECK(any(values, [](float value) { return value == 0 && std::signbit(value); }));
      CHECK(any(values, [](float value) { return std::fabs(value) > 448; }));
      CHECK((half || any(values, [](float value) { return std::fabs(value) > 65504; })));
      const bool small = tensor != &tensors.bias[0];
      CHECK(any(values, [](float value) { return value != 0 && std::fabs(value) < 0x1p-14F; }) ==
            small);
    }
    const std::vector<float> x = values_of(tensors.x);
    CHECK(rows_of(x, 200, all_zero) >= 4);
    CHECK(rows_of(x, 200, has_outlier) >= 4);
    CHECK(rows_of(x, 200, [](const auto& row) { return largest(row) < 0x1p-14F; }) >= 8);
    CHECK(rows_of(values_of(tensors.y), 100, all_zero) >= 4);
    const std::vector<float> a = values_of(tensors.a[0]);
    CHECK(rows_of(a, 200, all_zero) >= 4);
    CHECK(rows_of(values_of(tensors.b[0]), 48, all_zero) >= 4);
    std::int64_t empty_features = 0;
    for (std::int64_t k = 0; k < 200; ++k) {
      bool empty = true;
      for (std::int64_t row = 0; row < 64; ++row) {
        empty = empty && x[static_cast<std::size_t>(row * 200 + k)] == 0;
      }
      empty_features += empty ? 1 : 0;
    }
    CHECK(empty_features >= 3);
  }
}

TEST_CASE("uneven data has subnormal numbers in an fp16 A of eight lanes, whatever the seed") {
  Case spec = workload_case(8, 3);
  spec.dtype = Dtype::kFp16;
  spec.layer.in_features = 64;
  spec.adapters.rank.list = {8};
  spec.adapters.max_rank = 8;
  const Problem problem = problem_of(spec);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const Tensors tensors = draw_tensors(problem, Fill::kUneven, seed);
    CHECK(any(values_of(tensors.a[0]),
              [](float value) { return value != 0 && std::fabs(value) < 0x1p-14F; }));
  }
}

TEST_CASE("uneven data has rows of x that equal others, of the same adapter and of another") {
  const Problem problem = uneven_problem(Dtype::kBf16, Op::kLinear);
  const Tensors tensors = draw_tensors(problem, Fill::kUneven, 3);
  const std::vector<float> x = values_of(tensors.x);
  const std::vector<float> y = values_of(tensors.y);
  std::int64_t same = 0, other = 0;
  for (std::int64_t row = 0; row < problem.tokens; ++row) {
    for (std::int64_t earlier = 0; earlier < row; ++earlier) {
      if (row_of(x, row, 200) == row_of(x, earlier, 200) && !all_zero(row_of(x, row, 200))) {
        const auto& ids = problem.plan.adapter_of_token;
        ++(ids[static_cast<std::size_t>(row)] == ids[static_cast<std::size_t>(earlier)] ? same
                                                                                        : other);
        CHECK(row_of(y, row, 100) != row_of(y, earlier, 100));
      }
    }
  }
  CHECK(same >= 4);
  CHECK(other >= 4);
}

TEST_CASE("uneven data has slots of equal A and others of equal B, and none of both") {
  const Problem problem = uneven_problem(Dtype::kBf16, Op::kLinear);
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    const Tensors tensors = draw_tensors(problem, Fill::kUneven, seed);
    std::int64_t equal_a = 0, equal_b = 0;
    for (std::int64_t slot = 1; slot < problem.slots; ++slot) {
      const auto repeats = [&](const HostTensor& weights) {
        const std::vector<float> values = values_of(weights);
        const std::int64_t of_slot = weights.elements / problem.slots;
        return row_of(values, slot, of_slot) == row_of(values, slot - 1, of_slot);
      };
      const bool a = repeats(tensors.a[0]) && repeats(tensors.a[1]);
      const bool b = repeats(tensors.b[0]) && repeats(tensors.b[1]);
      equal_a += a ? 1 : 0;
      equal_b += b ? 1 : 0;
      CHECK_FALSE((a && b));
    }
    CHECK(equal_a == 1);
    CHECK(equal_b == 1);
  }
}

TEST_CASE("uneven data has the same weights whatever the order of the batch") {
  Case spec = workload_case(12, 3);
  const Tensors arrived = draw_tensors(problem_of(spec), Fill::kUneven, 1);
  spec.order = Order::kShuffled;
  const Tensors shuffled = draw_tensors(problem_of(spec), Fill::kUneven, 1);
  CHECK(arrived.a[1].data == shuffled.a[1].data);
  CHECK(arrived.b[0].data == shuffled.b[0].data);
}

TEST_CASE("uneven data keeps an fp16 h finite, and narrow sums in the range of plain reals") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    Case spec = random_case(seed);
    spec.dtype = spec.intermediate = Dtype::kFp16;
    spec.adapters.scale = {1.0, -30.0};
    const Problem problem = problem_of(spec);
    Problem shrink = problem;
    shrink.op = has_shrink(problem.op) ? Op::kShrink : problem.op;
    const Tensors tensors = draw_tensors(problem, Fill::kUneven, seed);
    const reference::Rows h = modelled(shrink, tensors);
    for (std::size_t i = 0; i < h.expected.size() && has_shrink(problem.op); ++i) {
      CHECK(std::fabs(h.expected[i]) < 65504);
    }
    const Tensors narrow = draw_tensors(problem, Fill::kUnevenNarrow, seed);
    const std::vector<float> x = values_of(narrow.x);
    CHECK_FALSE(any(x, [](float value) { return std::fabs(value) > 1; }));
  }
}
