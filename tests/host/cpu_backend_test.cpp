#include "ops/backends.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "ops/cpu_kernels.h"
#include "support/cpu_case.h"

using namespace lora_bench;
using namespace lora_bench::test;

namespace {

std::vector<std::string> instruction_sets() {
  std::vector<std::string> sets;
  for (const char* isa : {"baseline", "avx2", "avx512"}) {
    if (cpu_kernels(isa) != nullptr) {
      sets.emplace_back(isa);
    }
  }
  return sets;
}

// A batch of the chosen rows of another one.
struct Cut {
  Problem problem;
  Tensors tensors;
};

void copy_row(const HostTensor& from, std::int64_t row, std::int64_t stride, HostTensor& to,
              std::int64_t to_row) {
  const auto bytes = static_cast<std::size_t>(stride * size_bytes(from.dtype));
  if (bytes > 0) {
    std::memcpy(to.data.data() + static_cast<std::size_t>(to_row) * bytes,
                from.data.data() + static_cast<std::size_t>(row) * bytes, bytes);
  }
}

HostTensor rows_of(const HostTensor& from, const std::vector<std::int64_t>& rows,
                   std::int64_t stride) {
  HostTensor to{from.dtype, static_cast<std::int64_t>(rows.size()) * stride, {}};
  to.data.resize(static_cast<std::size_t>(to.elements * size_bytes(to.dtype)));
  for (std::size_t i = 0; i < rows.size() && from.elements > 0; ++i) {
    copy_row(from, rows[i], stride, to, static_cast<std::int64_t>(i));
  }
  return to;
}

std::vector<std::int64_t> rows_of_h(const Problem& problem, const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> result;
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    for (const std::int64_t row : rows) {
      result.push_back(slice * problem.tokens + row);
    }
  }
  return result;
}

Cut cut(const Problem& problem, const Tensors& tensors, const std::vector<std::int64_t>& rows) {
  Cut part{problem, tensors};
  std::vector<std::int32_t> ids;
  for (const std::int64_t row : rows) {
    ids.push_back(problem.plan.adapter_of_token[static_cast<std::size_t>(row)]);
  }
  part.problem.tokens = static_cast<std::int64_t>(rows.size());
  part.problem.plan = make_plan(ids, problem.slots);
  part.tensors.x = rows_of(tensors.x, rows, tensors.x.elements > 0 ? problem.x_stride : 0);
  part.tensors.y = rows_of(tensors.y, rows, tensors.y.elements > 0 ? problem.y_stride : 0);
  part.tensors.h = rows_of(tensors.h, rows_of_h(problem, rows), problem.max_rank);
  return part;
}

}  // namespace

TEST_CASE("cpu agrees bit for bit with the definition where sums are exact") {
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({2, isa});
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      const Problem problem = random_problem(seed);
      CAPTURE(isa);
      CAPTURE(seed);
      CAPTURE(describe(problem));
      const Tensors tensors = draw_tensors(problem, Fill::kExact, seed);
      const HostResult got = launch_on_host(*backend, problem, tensors);
      const HostResult expected = by_definition(problem, tensors);
      CHECK(got.y.data == expected.y.data);
      CHECK(got.h.data == expected.h.data);
    }
  }
}

TEST_CASE("cpu stays within rounding of the definition on reals") {
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({2, isa});
    for (std::uint64_t seed = 100; seed < 130; ++seed) {
      const Problem problem = random_problem(seed);
      CAPTURE(isa);
      CAPTURE(seed);
      CAPTURE(describe(problem));
      const Tensors tensors = draw_tensors(problem, Fill::kBounded, seed);
      const HostResult got = launch_on_host(*backend, problem, tensors);
      const HostResult expected = by_definition(problem, tensors);
      double largest = 0;
      double error = 0;
      for (std::int64_t i = 0; i < got.y.elements; ++i) {
        largest = std::max(largest, std::fabs(value(expected.y, i)));
        error = std::max(error, std::fabs(value(got.y, i) - value(expected.y, i)));
      }
      const double roundoff =
          std::max(unit_roundoff(problem.dtype[Role::kY]), unit_roundoff(problem.dtype[Role::kH]));
      CHECK(error <= 4 * std::max(roundoff, 0x1p-20) * largest);
    }
  }
}

TEST_CASE("a row's bits do not depend on the rows around it, nor on their order") {
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({2, isa});
    for (std::uint64_t seed = 200; seed < 225; ++seed) {
      const Problem problem = random_problem(seed);
      const Tensors tensors = draw_tensors(problem, Fill::kBounded, seed);
      const HostResult whole = launch_on_host(*backend, problem, tensors);
      std::vector<std::int64_t> rows;
      for (std::int64_t row = problem.tokens - 1; row >= 0; row -= 3) {
        rows.push_back(row);
      }
      const Cut part = cut(problem, tensors, rows);
      const HostResult got = launch_on_host(*backend, part.problem, part.tensors);
      CAPTURE(isa);
      CAPTURE(describe(problem));
      const std::int64_t y_stride = whole.y.elements > 0 ? problem.y_stride : 0;
      CHECK(got.y.data == rows_of(whole.y, rows, y_stride).data);
      CHECK(got.h.data == rows_of(whole.h, rows_of_h(problem, rows), problem.max_rank).data);
    }
  }
}

TEST_CASE("the number of threads changes no bit") {
  const auto one = make_cpu_backend({1, ""});
  const auto three = make_cpu_backend({3, ""});
  const auto seven = make_cpu_backend({7, ""});
  for (std::uint64_t seed = 300; seed < 340; ++seed) {
    const Problem problem = random_problem(seed);
    const Tensors tensors = draw_tensors(problem, Fill::kBounded, seed);
    const HostResult expected = launch_on_host(*one, problem, tensors);
    CAPTURE(describe(problem));
    CHECK(launch_on_host(*three, problem, tensors) == expected);
    CHECK(launch_on_host(*seven, problem, tensors) == expected);
    CHECK(launch_on_host(*seven, problem, tensors) == expected);
  }
}

TEST_CASE("cpu rounds to bf16 and fp16 as the converters do, special values included") {
  std::vector<float> values{0.0F,     -0.0F, 1.0F,   1.00390625F, 1.01171875F, -3.4e38F, 65504.0F,
                            65520.0F, 1e-8F, -6e-8F, 1e-40F,      INFINITY,    -INFINITY};
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random_bits(5, 6, i));
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    values.push_back(std::isnan(value) ? 2.5F : value);
  }
  for (const std::string& isa : instruction_sets()) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
      std::vector<std::uint16_t> got(values.size());
      std::vector<std::uint16_t> expected(values.size());
      cpu_kernels(isa.c_str())
          ->encode(dtype, values.data(), static_cast<std::int64_t>(values.size()), got.data());
      encode(dtype, values, expected.data());
      CAPTURE(isa);
      CHECK(got == expected);
      const float nan = NAN;
      std::uint16_t stored = 0;
      cpu_kernels(isa.c_str())->encode(dtype, &nan, 1, &stored);
      CHECK(std::isnan(load(dtype, &stored, 0)));
    }
  }
}

TEST_CASE("cpu decodes every bf16 and fp16 number as the converters do") {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::uint16_t>(i);
  }
  for (const std::string& isa : instruction_sets()) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
      std::vector<float> got(all.size());
      cpu_kernels(isa.c_str())->decode(dtype, all.data(), 65536, got.data());
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < 65536; ++i) {
        const float expected = load(dtype, all.data(), i);
        const float decoded = got[static_cast<std::size_t>(i)];
        wrong +=
            std::isnan(expected) ? !std::isnan(decoded) : std::memcmp(&expected, &decoded, 4) != 0;
      }
      CAPTURE(isa);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("cpu declines dtypes without kernels and names them") {
  Problem problem = random_problem(1);
  problem.dtype = OperandDtypes(Dtype::kE4m3, problem.dtype[Role::kH]);
  const Support support = make_cpu_backend()->supports(problem, {});
  CHECK_FALSE(support.yes);
  CHECK(support.why_not.find("e4m3") != std::string::npos);
  CHECK_THROWS_AS(static_cast<void>(make_cpu_backend({0, "mmx"})), UsageError);
}

TEST_CASE("the declared depth grows with K by the width of the vectors") {
  Problem problem = random_problem(1);
  problem.op = Op::kLinear;
  problem.in_features = 4096;
  problem.max_rank = 16;
  problem.bias = true;
  problem.add_inputs = true;
  const Numerics numerics = make_cpu_backend({1, "baseline"})->numerics(problem);
  CHECK(numerics.shrink_depth == 4096 / 4 + 2);
  CHECK(numerics.expand_depth == 18);
}
