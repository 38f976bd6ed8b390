#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/named.h"
#include "core/status.h"
#include "device/facts.h"
#include "device/memory.h"
#include "ops/backend.h"
#include "scenario/case.h"
#include "workload/tensors.h"

namespace lora_bench {

class Groundwork;
struct DerivedStep;

// The ladder of docs/verifying.md.
enum class Level : std::uint8_t { kExact = 1, kBounded = 2, kRelations = 3, kMemory = 4 };
[[nodiscard]] std::string_view name(Level level);

// One wrong element in the words of the domain. For shrink `column` is the rank lane.
struct Mismatch {
  std::int64_t token = 0;
  std::int32_t adapter = 0;
  std::int64_t slice = -1;  // -1 = a column that no slice owns
  std::int64_t column = 0;  // inside the slice; inside the row when slice is -1
  double expected = 0;
  double got = 0;
  double bound = 0;                       // 0 at level 1
  std::int64_t experts = 1, choices = 1;  // of the step, see Route
};

// Mismatches that a report shows.
constexpr std::size_t kFirstShown = 10;

struct Failure {
  Level level = Level::kExact;
  std::string what;        // "wrong values", "relation 'permuted rows'", "guard of y damaged: ..."
  std::int64_t wrong = 0;  // elements
  std::int64_t compared = 0;    // elements
  std::vector<Mismatch> first;  // at most kFirstShown, in row-major order
  std::string hypothesis;       // key of the hypothesis that fits, see verify/diagnose.h; "" = none
  std::string explanation;      // the hypothesis as a sentence
};

struct Verdict {
  Status status = Status::kMistrusted;
  std::string message;        // one line; for FAILED the failure in short
  std::vector<Level> passed;  // levels that were run and held
  double bound_share = 0;     // worst share of the bound that a result of level 2 needed
  double rows_checked = 0;    // share of rows compared in full
  std::int64_t compared = 0;  // elements compared
  std::optional<Failure> failure;
};

// Parts of the proof that can be left out, to learn whether anything else would catch a fault.
// kExact and kBounded are all fills of their levels, kFine and kUneven some of them.
enum class Part : std::uint8_t {
  kNone,
  kExact,
  kFine,
  kShifted,
  kBounded,
  kUneven,
  kRelations,
  kMemory
};
template <>
struct EnumNames<Part> {
  static constexpr std::array<std::string_view, 9> kNames{
      "", "exact", "fine", "shifted", "bounded", "uneven", "relations", "memory", ""};
};

struct VerifyOptions {
  bool relations = false;
  std::int64_t max_rows = 256;
  std::uint64_t seed = 1;      // of the operands, where no groundwork has one
  Part without = Part::kNone;  // for the self-test alone
  // What the backend declared when it was asked first; none = it is asked.
  std::optional<Numerics> declared = {};
};

// The failure in one line: level, how many, the first place, the hypothesis.
[[nodiscard]] std::string describe(const Mismatch& mismatch);
[[nodiscard]] std::string describe(const Failure& failure);

// Levels 1, 2 and 4 (and 3 if asked) of one backend on one case. The backend supports the problem.
// It is launched with operands on 256-byte boundaries and once more with operands shifted by one
// element: the dtype's own alignment is all that it may ask for (the workspace stays aligned).
// Throws what the backend throws.
[[nodiscard]] Verdict verify(const Problem& problem, const Backend& backend, Memory& memory,
                             const VerifyOptions& options);

// The same of a backend among others on one case: what all of them need is made once.
[[nodiscard]] Verdict verify(Groundwork& groundwork, const Backend& backend, Memory& memory,
                             VerifyOptions options);

// The rows that are compared in full when there are more than `max_rows`: of every group the first
// and the last, the rows around tile boundaries, rows without adapter, then by stratum.
[[nodiscard]] std::vector<std::int64_t> sample_rows(const Problem& problem, std::int64_t max_rows,
                                                    std::uint64_t seed);

// What compare_output found.
struct Comparison {
  std::int64_t compared = 0;  // elements, owned or not
  std::int64_t owned = 0;     // of these
  std::int64_t wrong = 0;
  double bound_share = 0;  // the least error before the final rounding that explains the result
  // Of owned elements, for which what is accepted holds what an op that does nothing would leave
  // (after many launches, what half of them would), or has no end. Those to which nothing
  // comes, lanes of zeros and rank 0 without a bias, do not count where there are others.
  double zero_share = 0;
  // Rows in most of whose elements the bound alone reaches an eighth of what the op adds there.
  std::int64_t coarse_rows = 0;
  std::int64_t telling_rows = 0;  // of whose owned elements some would not be accepted so
  double largest_partial = 0;     // exact fill: see reference::Rows and reference::exact_limit
  std::vector<std::int64_t> wrong_rows;  // ascending
  std::vector<Mismatch> first;
};

// Why a comparison without a wrong element proves nothing; "" where it does prove something.
[[nodiscard]] std::string why_no_proof(const Comparison& comparison);
// Whether so large a share of the elements, accepted whatever was done, is no proof.
[[nodiscard]] bool proves_too_little(double zero_share);

// Compares what a launch left in y (or h) with the oracle: bit for bit after one rounding for the
// exact fill, within the rounding interval of the bound else. Columns outside every slice and rows
// without adapter (or with one of rank 0) must be as `tensors` has them, bit for bit; so
// must unowned lanes of an h that is added to; those of another h may hold anything. Used by verify
// and once more after timing. `got` is the whole output in the dtype of the op's result. An op that
// does nothing leaves 0 in an output that is written over, or what `tensors` has there.
enum class Idle : std::uint8_t { kZero, kAsBefore };
[[nodiscard]] Comparison compare_output(const Problem& problem, const Tensors& tensors,
                                        const Numerics& numerics, const void* got,
                                        std::vector<std::int64_t> rows, Idle idle = Idle::kZero);
// With what the groundwork knows of the oracle; `tensors` are its own.
[[nodiscard]] Comparison compare_output(Groundwork& groundwork, const Tensors& tensors,
                                        const Numerics& numerics, const void* got,
                                        std::vector<std::int64_t> rows);
// All rows of a step that was derived from it.
[[nodiscard]] Comparison compare_output(DerivedStep& derived, const Numerics& numerics,
                                        const void* got);

// The same of a y to which the launches of `sets` (operands, alike but for the weights) added in
// turn, `rounds` times, as timing leaves it: of some elements of the rows, drawn from
// `seed`, whether it lies where so many roundings can have taken it. Work that one launch left out
// shows.
[[nodiscard]] Comparison compare_accumulated(const Problem& problem,
                                             const std::vector<const Tensors*>& sets,
                                             const Numerics& numerics, const void* got,
                                             std::int64_t rounds, std::vector<std::int64_t> rows,
                                             std::uint64_t seed);

// Slice and column (or lane) of a column of the output row; slice -1 where none owns it.
struct Place {
  std::int64_t slice = -1;
  std::int64_t column = 0;
};
[[nodiscard]] Place place_of(const Problem& problem, std::int64_t column);

// Whether a lane of h belongs to the op, `column` counting lanes slice after slice.
[[nodiscard]] bool owns_lane(const Problem& problem, std::int64_t token, std::int64_t column);
// Elements of the output that the op must write.
[[nodiscard]] std::int64_t owned_elements(const Problem& problem);

// Without an oracle, over every row: what nobody owns has the bits of before, and what the op owns
// holds no NaN (poison that was never overwritten is one). Nothing when all is well.
[[nodiscard]] std::optional<Failure> scan_all_rows(const Problem& problem, const Tensors& tensors,
                                                   const void* got);

// Whether any of `count` elements is one.
[[nodiscard]] bool holds_nan(Dtype dtype, const std::byte* first, std::int64_t count);
[[nodiscard]] bool holds_infinity_or_nan(Dtype dtype, const std::byte* first, std::int64_t count);

// Rows with an infinity where the op owns the element, the first few: right only where the oracle
// says so.
[[nodiscard]] std::vector<std::int64_t> infinite_rows(const Problem& problem, const void* got);

}  // namespace lora_bench
