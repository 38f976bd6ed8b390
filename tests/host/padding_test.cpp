#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "device/memory.h"
#include "measure/ceilings.h"
#include "measure/small_changes.h"
#include "ops/backends.h"
#include "scenario/scenario.h"
#include "verify/mutants.h"
#include "verify/verify.h"
#include "workload/problem.h"
#include "workload/tensors.h"

using namespace lora_bench;

namespace {

Case padded_case(const std::string& more) {
  return parse_scenario(
             "name: padded\nlayer: {in: 40, out: [24, 16]}\nbatch: {decode: 12}\n"
             "adapters: {slots: 4, rank: [2, 0, 5, 8], max_rank: 8, padding: zeros}\n"
             "skew: distinct\n" +
                 more,
             "padded.yaml", {})
      .cases.front();
}

std::vector<float> numbers(const HostTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements));
  decode(tensor.dtype, tensor.data.data(), values);
  return values;
}

}  // namespace

TEST_CASE("padding: every adapter that has lanes is handed at the largest rank") {
  const Problem problem = make_problem(padded_case(""));
  CHECK(problem.rank == std::vector<std::int64_t>{8, 0, 8, 8});
  CHECK(problem.own_rank == std::vector<std::int64_t>{2, 0, 5, 8});
  Case unread = padded_case("");
  unread.adapters.padding = Padding::kUnread;
  CHECK(make_problem(unread).rank == std::vector<std::int64_t>{2, 0, 5, 8});
  CHECK(make_problem(unread).own_rank.empty());
  CHECK(content_of(problem) != content_of(make_problem(unread)));
}

TEST_CASE("padding: lanes behind an adapter's own hold zeros in A and B, in every fill") {
  const Problem problem = make_problem(padded_case(""));
  for (const Fill fill : {Fill::kExact, Fill::kBounded, Fill::kUneven, Fill::kTiming}) {
    const Tensors tensors = draw_tensors(problem, fill, 5);
    const std::vector<float> a = numbers(tensors.a[1]);
    const std::vector<float> b = numbers(tensors.b[1]);
    for (const std::int64_t slot : {0, 2, 3}) {
      const std::int64_t own = problem.own_rank[static_cast<std::size_t>(slot)];
      std::int64_t other_than_zero = 0;
      for (std::int64_t lane = 0; lane < 8; ++lane) {
        const float of_a = a[static_cast<std::size_t>((slot * 8 + lane) * 40 + 7)];
        const float of_b = b[static_cast<std::size_t>((slot * 16 + 3) * 8 + lane)];
        REQUIRE_FALSE(std::isnan(of_a));
        REQUIRE_FALSE(std::isnan(of_b));
        CAPTURE(slot);
        CAPTURE(lane);
        if (lane >= own) {
          CHECK(of_a == 0.0F);
          CHECK(of_b == 0.0F);
        } else {
          other_than_zero += of_a != 0.0F && of_b != 0.0F ? 1 : 0;
        }
      }
      CHECK(other_than_zero > 0);
    }
  }
}

TEST_CASE("padding: an h that is given to a row without an adapter holds numbers in every lane") {
  Case spec = padded_case("op: expand\nno_adapter: 50%\n");
  spec.adapters.max_rank = 512;
  const Problem problem = make_problem(spec);
  const std::vector<float> h = numbers(draw_tensors(problem, Fill::kTiming, 5).h);
  std::int64_t rows = 0;
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    if (problem.plan.adapter_of_token[static_cast<std::size_t>(token)] == kNoAdapter) {
      ++rows;
      const auto first = h.begin() + token * 512;
      CHECK(std::count(first, first + 512, 0.0F) == 0);
    }
  }
  CHECK(rows == 6);
}

TEST_CASE("padding: a backend that reads all lanes is right on zeros and wrong on what is unread") {
  const auto memory = make_host_memory();
  const auto cpu = make_cpu_backend();
  const auto reads_all = make_mutant("padding-lanes-read");
  int proved = 0;
  for (const char* op : {"shrink", "expand", "linear"}) {
    Case spec = padded_case(std::string("op: ") + op + "\n");
    CAPTURE(op);
    const Problem zeros = make_problem(spec);
    const Verdict right = verify(zeros, *cpu, *memory, {});
    CHECK(right.message == "");
    proved += right.compared > 0 ? 1 : 0;
    CHECK(verify(zeros, *reads_all, *memory, {}).message == "");
    spec.adapters.padding = Padding::kUnread;
    // Of shrink the lanes of h tell nothing of what was read.
    CHECK(verify(make_problem(spec), *reads_all, *memory, {}).failure.has_value() ==
          (spec.op != Op::kShrink));
  }
  CHECK(proved == 3);
}

TEST_CASE("padding: what a shrink is proved by are the lanes that hold numbers, be they few") {
  Case spec = padded_case("op: shrink\n");
  spec.adapters.rank.list = {1, 64};
  spec.adapters.max_rank = 64;
  spec.skew.kind = Skew::kIdentical;  // slot 0 alone: of 64 lanes one holds numbers
  const auto memory = make_host_memory();
  const auto cpu = make_cpu_backend();
  const Problem few = make_problem(spec);
  REQUIRE(few.plan.active_ids == std::vector<std::int32_t>{0});
  const Verdict right = verify(few, *cpu, *memory, {});
  CHECK(right.status == Status::kPassed);
  CHECK(right.message == "");
  CHECK(right.compared >= 12 * 64 * 2);
  // With a scale of 0 that lane is 0 too, and nothing is left to prove by.
  spec.adapters.scale = {0};
  spec.scale_at = ScaleAt::kShrink;
  const Problem none = make_problem(spec);
  const Tensors tensors = draw_tensors(none, Fill::kBounded, 5);
  std::vector<std::byte> zeros(tensors.h.data.size());
  const Numerics numerics = cpu->numerics(none);
  const Comparison idle = compare_output(none, tensors, numerics, zeros.data(), {0, 1, 2});
  CHECK(idle.wrong == 0);
  CHECK(idle.zero_share == 1);
  // A lane of zeros that holds another number is wrong.
  const auto bytes = static_cast<std::size_t>(size_bytes(none.dtype[Role::kH]));
  std::fill_n(zeros.begin() + static_cast<std::ptrdiff_t>(7 * bytes), bytes, std::byte{0x3f});
  CHECK(compare_output(none, tensors, numerics, zeros.data(), {0, 1, 2}).wrong == 1);
}

TEST_CASE("padding: lanes of zeros do not make a row of h finer than its numbers are") {
  Case spec = padded_case("op: shrink\n");
  spec.adapters.rank.list = {1, 64};
  spec.adapters.max_rank = 64;
  spec.skew.kind = Skew::kIdentical;
  const Problem problem = make_problem(spec);
  const Tensors tensors = draw_tensors(problem, Fill::kBounded, 5);
  Numerics loose;
  loose.unit_roundoff = 0x1p-4;
  loose.shrink_depth = 8;
  const std::vector<std::byte> got(tensors.h.data.size());
  CHECK(compare_output(problem, tensors, loose, got.data(), {0, 1, 2}).coarse_rows == 3);
}

TEST_CASE("padding: a number that is changed after timing is one of a lane that holds numbers") {
  for (const char* op : {"expand", "linear"}) {
    const Problem problem = make_problem(padded_case(std::string("op: ") + op + "\n"));
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      CAPTURE(seed);
      Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
      Replaced replaced;
      const SmallChange change{problem, 3, owned_rows(problem), seed, &replaced};
      if (has_shrink(problem.op)) {
        change_a(change, tensors);
      } else {
        change_rows(change, tensors);
      }
      change_b(change, tensors);
      REQUIRE(replaced.size() > 2);
      std::int64_t was_zero = 0;
      for (const OldNumber& number : replaced) {
        was_zero += number.value == 0 ? 1 : 0;
      }
      CHECK(was_zero == 0);
    }
  }
}

TEST_CASE("padding: the floor counts the zeros that are computed with") {
  Case spec = padded_case("");
  const Work zeros = count_work(make_problem(spec));
  spec.adapters.padding = Padding::kUnread;
  const Work unread = count_work(make_problem(spec));
  CHECK(zeros.weight_bytes > unread.weight_bytes);
  CHECK(zeros.flops > unread.flops);
}
