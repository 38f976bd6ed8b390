#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "core/bytes.h"
#include "core/dtype.h"
#include "measure/after_timing.h"
#include "measure/scales_of_rows.h"
#include "measure/small_changes.h"
#include "workload/excerpt.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kPositionStream = 1ULL << 33;
constexpr std::uint64_t kStartStream = 1ULL << 34;
constexpr double kMissed = 1e-3;      // the chance that a share of left-out work does not show
constexpr double kMostUnseen = 0.02;  // of the launches
// A median says the same whatever happens in less than half of the samples. Work that is left out
// of at least half of them shows in one of so many whole runs but once in a thousand times.
constexpr std::int64_t kEnoughWholeRuns = 10;
constexpr std::int64_t kLooksOfARun = 64;
constexpr std::int64_t kMostRuns = 40;
constexpr double kSeconds = 0.25;
constexpr std::int64_t kColumns = 64;  // of y
constexpr std::int64_t kLanes = 8;     // of h, each of which costs a sum over K
constexpr std::int64_t kBytesOfAComparison = std::int64_t{64} << 20;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

HostTensor zeros(Dtype dtype, std::int64_t elements) {
  return {dtype, elements, std::vector<std::byte>(at(elements * size_bytes(dtype)))};
}

// What is looked at of one launch of a run: elements `first` on of one row of one slice.
struct Piece {
  std::int64_t position = 0;  // in the sequence
  std::int64_t set = 0, row = 0, slot = 0, slice = 0, first = 0, count = 0;
  bool negated = false;     // the row of x, or of a given h
  std::int64_t logged = 0;  // where in the log it begins, in bytes
};

std::int64_t input_row_bytes(const Problem& problem) {
  return has_shrink(problem.op) ? problem.in_features * size_bytes(problem.dtype[Role::kX])
                                : problem.max_rank * size_bytes(problem.dtype[Role::kH]);
}

std::int64_t input_offset(const Problem& problem, const Piece& piece) {
  return has_shrink(problem.op) ? problem.x_row(piece.slice, piece.row) * problem.x_stride *
                                      size_bytes(problem.dtype[Role::kX])
                                : (piece.slice * problem.tokens + piece.row) * problem.max_rank *
                                      size_bytes(problem.dtype[Role::kH]);
}

std::int64_t output_offset(const Problem& problem, const Piece& piece) {
  if (!has_expand(problem.op)) {
    return ((piece.slice * problem.tokens + piece.row) * problem.max_rank + piece.first) *
           size_bytes(problem.dtype[Role::kH]);
  }
  const std::int64_t before = std::accumulate(
      problem.widths.begin(), problem.widths.begin() + piece.slice, problem.offset_start);
  return (piece.row * problem.y_stride + before + piece.first) *
         size_bytes(problem.dtype[Role::kY]);
}

std::int64_t output_bytes(const Problem& problem, const Piece& piece) {
  return piece.count *
         size_bytes(has_expand(problem.op) ? problem.dtype[Role::kY] : problem.dtype[Role::kH]);
}

// Pieces of one width, as a problem in which each is a token with an adapter of its own.
class PiecesAsProblem {
 public:
  PiecesAsProblem(const Problem& whole, const Tensors& tensors, const std::vector<Piece>& pieces)
      : whole_(whole), from_(tensors), pieces_(pieces), problem_(whole) {
    const auto count = static_cast<std::int64_t>(pieces.size());
    const std::int64_t width = pieces.front().count;
    problem_.tokens = problem_.slots = count;
    problem_.offset_start = 0;
    problem_.x_stride = whole.in_features;
    problem_.widths = {width};
    problem_.inputs = Inputs::kShared;
    problem_.bias_slices.clear();  // zeros of those that have none
    problem_.y_stride = width;
    problem_.rank.clear();
    problem_.own_rank.clear();
    problem_.scale.clear();
    std::vector<std::int32_t> ids(pieces.size());
    std::iota(ids.begin(), ids.end(), 0);
    problem_.plan = make_plan(ids, count);
    problem_.route = {};
    for (const Piece& piece : pieces) {
      problem_.rank.push_back(has_expand(whole.op) ? rank_of(whole, piece.slot) : width);
      problem_.scale.push_back(whole.scale[at(piece.slot)]);
      tensors_.scale.push_back(tensors.scale[at(piece.slot)]);
    }
    problem_.max_rank = *std::max_element(problem_.rank.begin(), problem_.rank.end());
    tensors_.fill = tensors.fill;
    tensors_.x = zeros(whole.dtype[Role::kX], has_shrink(whole.op) ? count * whole.in_features : 0);
    tensors_.h = zeros(whole.dtype[Role::kH], count * problem_.max_rank);
    tensors_.y = zeros(whole.dtype[Role::kY], has_expand(whole.op) ? count * width : 0);
    tensors_.a.resize(1);
    tensors_.b.resize(1);
    tensors_.bias.resize(1);
    add_inputs();
    if (has_shrink(whole.op)) {
      add_a();
    }
    if (has_expand(whole.op)) {
      add_b();
    }
    std::vector<RowsOfWeights> rows;
    for (const Piece& piece : pieces) {
      rows.push_back({piece.slot, piece.set, piece.slice, piece.first, piece.row});
    }
    add_scales_of_rows(whole, tensors, rows, problem_, tensors_);
  }

  [[nodiscard]] const Problem& problem() const { return problem_; }
  // With what lay in the output before.
  [[nodiscard]] const Tensors& tensors(const std::vector<std::byte>& log) {
    (has_expand(whole_.op) ? tensors_.y : tensors_.h).data = cut(log);
    return tensors_;
  }
  [[nodiscard]] std::vector<std::byte> cut(const std::vector<std::byte>& log) const {
    const std::int64_t width = pieces_.front().count;
    const Dtype dtype = has_expand(whole_.op) ? whole_.dtype[Role::kY] : whole_.dtype[Role::kH];
    std::vector<std::byte> bytes;
    for (const Piece& piece : pieces_) {
      const auto first = log.begin() + piece.logged;
      bytes.insert(bytes.end(), first, first + width * size_bytes(dtype));
    }
    return bytes;
  }

 private:
  // The rows that the op reads, of x or a given h.
  void add_inputs() {
    const bool shrinks = has_shrink(whole_.op);
    const HostTensor& from = shrinks ? from_.x : from_.h;
    HostTensor& into = shrinks ? tensors_.x : tensors_.h;
    const std::int64_t bytes = size_bytes(into.dtype);
    std::byte* to = into.data.data();
    for (const Piece& piece : pieces_) {
      const std::int64_t row = (shrinks ? whole_.in_features : rank_of(whole_, piece.slot)) * bytes;
      std::copy_n(from.data.data() + input_offset(whole_, piece), row, to);
      if (piece.negated) {
        negate({to, at(row)}, bytes);
      }
      to += (shrinks ? whole_.in_features : problem_.max_rank) * bytes;
    }
  }

  void add_a() {
    const std::int64_t lane = whole_.in_features * size_bytes(whole_.dtype[Role::kA]);
    HostTensor a =
        zeros(whole_.dtype[Role::kA], problem_.tokens * problem_.max_rank * whole_.in_features);
    for (std::size_t index = 0; index < pieces_.size(); ++index) {
      const Piece& piece = pieces_[index];
      const std::int64_t first = has_expand(whole_.op) ? 0 : piece.first;
      copy_elements_of_set(
          {whole_, Role::kA, from_.a[at(piece.slice)]}, piece.slot, piece.set,
          first * whole_.in_features, problem_.rank[index] * whole_.in_features,
          a.data.data() + static_cast<std::int64_t>(index) * problem_.max_rank * lane);
    }
    tensors_.a[0] = std::move(a);
  }

  void add_b() {
    const std::int64_t width = pieces_.front().count;
    HostTensor b = zeros(whole_.dtype[Role::kB], problem_.tokens * width * problem_.max_rank);
    HostTensor bias = zeros(whole_.dtype[Role::kBias], whole_.bias ? problem_.tokens * width : 0);
    std::byte* to = b.data.data();
    std::byte* bias_to = bias.data.data();
    for (std::size_t index = 0; index < pieces_.size(); ++index) {
      const Piece& piece = pieces_[index];
      for (std::int64_t column = piece.first; column < piece.first + width; ++column) {
        copy_elements_of_set({whole_, Role::kB, from_.b[at(piece.slice)]}, piece.slot, piece.set,
                             column * whole_.max_rank, problem_.rank[index], to);
        to += problem_.max_rank * size_bytes(b.dtype);
      }
      if (whole_.has_bias(piece.slice)) {
        copy_elements_of_set({whole_, Role::kBias, from_.bias[at(piece.slice)]}, piece.slot,
                             piece.set, piece.first, width, bias_to);
      }
      bias_to += whole_.bias ? width * size_bytes(bias.dtype) : 0;
    }
    tensors_.b[0] = std::move(b);
    tensors_.bias[0] = std::move(bias);
  }

  const Problem& whole_;
  const Tensors& from_;
  const std::vector<Piece>& pieces_;
  Problem problem_;
  Tensors tensors_;
};

// Draws the launches of a run that are looked at, and of each the piece.
class PieceDraw {
 public:
  PieceDraw(const SequenceToLookAt& timed, std::uint64_t secret)
      : timed_(timed), secret_(secret), rows_(owned_rows(timed.request.problem)) {
    const std::vector<std::int64_t>& widths = timed.request.problem.widths;
    for (std::size_t slice = 0; slice < widths.size(); ++slice) {
      if (widths[slice] > 0) {
        slices_.push_back(static_cast<std::int64_t>(slice));
      }
    }
  }

  [[nodiscard]] bool is_possible() const { return !rows_.empty() && !slices_.empty(); }

  [[nodiscard]] std::vector<Piece> pieces_of(std::uint64_t run) const {
    std::vector<Piece> pieces;
    std::int64_t logged = 0;
    for (const std::int64_t position : drawn_positions(run)) {
      Piece piece;
      piece.position = position;
      piece.set = position % timed_.sets.count();
      draw_place(piece, run);
      piece.logged = logged;
      logged += output_bytes(timed_.request.problem, piece);
      pieces.push_back(piece);
    }
    draw_signs(pieces);
    return pieces;
  }

 private:
  [[nodiscard]] std::vector<std::int64_t> drawn_positions(std::uint64_t run) const {
    std::vector<std::int64_t> positions =
        drawn_of(count_to(timed_.launches), kLooksOfARun, secret_, kPositionStream + run);
    std::sort(positions.begin(), positions.end());
    return positions;
  }

  void draw_place(Piece& piece, std::uint64_t run) const {
    const Problem& problem = timed_.request.problem;
    std::int64_t drawn = 4 * piece.position;
    const auto below = [&](std::int64_t bound) {
      return drawn_below(secret_, kStartStream + run, drawn++, bound);
    };
    piece.row = rows_[at(below(static_cast<std::int64_t>(rows_.size())))];
    piece.slot = slot_of(problem, piece.row);
    const bool expands = has_expand(problem.op);
    // Of all columns, or lanes that hold numbers, each is as likely: a lane of zeros tells nothing
    // of a launch.
    const auto elements = [&](std::int64_t slice) {
      return expands ? problem.widths[at(slice)] : problem.own_lanes(piece.slot);
    };
    std::int64_t all = 0;
    for (const std::int64_t slice : slices_) {
      all += elements(slice);
    }
    std::int64_t element = below(all);
    for (const std::int64_t slice : slices_) {
      piece.slice = slice;
      if (element < elements(slice)) {
        break;
      }
      element -= elements(slice);
    }
    const std::int64_t room = elements(piece.slice);
    piece.count = std::min(room, expands ? kColumns : kLanes);
    piece.first = std::min(element / piece.count * piece.count, room - piece.count);
  }

  void draw_signs(std::vector<Piece>& pieces) const {
    if (timed_.sets.outputs() != timed_.sets.count()) {
      return;  // the launch before has other weights
    }
    std::map<std::int64_t, const Piece*> last;  // by set
    for (Piece& piece : pieces) {
      const Piece*& before = last[piece.set];
      const bool same_row = before != nullptr && before->row == piece.row &&
                            before->slice == piece.slice &&
                            before->position + timed_.sets.count() == piece.position;
      piece.negated = !(same_row && before->negated);
      before = &piece;
    }
  }

  const SequenceToLookAt& timed_;
  std::uint64_t secret_;
  std::vector<std::int64_t> rows_;    // that the op writes
  std::vector<std::int64_t> slices_;  // that have columns
};

// Runs the timed sequence again, recorded anew, with a copy of a piece of the output before and
// after each launch that is looked at, and holds the pieces against the oracle. Nothing else
// changes for the backend where the next launch of an output has other weights; where it has the
// same, the row that is looked at has the other sign for that launch, so that what the launch
// before left is no answer.
class SingleLaunchLooks {
 public:
  SingleLaunchLooks(const SequenceToLookAt& timed, std::uint64_t secret)
      : timed_(timed), problem_(timed.request.problem), secret_(secret), draw_(timed, secret) {}

  // Until enough was seen or it has taken as long as it may.
  SingleLaunches look() {
    SingleLaunches seen;
    if (!draw_.is_possible()) {
      return seen;
    }
    const double start = timed_.seconds();
    for (std::int64_t turn = 0; turn < kMostRuns; ++turn) {
      const std::vector<Piece> pieces = draw_.pieces_of(static_cast<std::uint64_t>(turn));
      const Look found = compare(pieces, run(pieces));
      seen.wrong = found.wrong;
      if (!seen.wrong.empty() || found.compared == 0) {
        break;
      }
      const auto looks = static_cast<std::int64_t>(pieces.size());
      seen.looks += looks;
      seen.telling += found.telling_rows;
      seen.whole_runs += looks == timed_.launches && found.telling_rows == looks ? 1 : 0;
      const bool long_enough = timed_.seconds() - start > kSeconds && turn + 1 >= kEnoughWholeRuns;
      if (unseen_share(seen) <= kMostUnseen || long_enough) {
        break;
      }
    }
    return seen;
  }

 private:
  struct Log {
    std::vector<std::byte> before, after;
  };

  // Of each piece the input row with the other sign, and as it is.
  std::vector<std::byte> rows_of(const std::vector<Piece>& pieces) const {
    const bool shrinks = has_shrink(problem_.op);
    const std::vector<std::byte>& from = (shrinks ? timed_.tensors.x : timed_.tensors.h).data;
    const std::int64_t bytes = input_row_bytes(problem_);
    std::vector<std::byte> rows(at(2 * bytes * std::ssize(pieces)));
    std::byte* to = rows.data();
    for (const Piece& piece : pieces) {
      to = std::copy_n(from.data() + input_offset(problem_, piece), bytes, to);
      negate({to - bytes, at(bytes)},
             size_bytes(shrinks ? problem_.dtype[Role::kX] : problem_.dtype[Role::kH]));
      to = std::copy_n(from.data() + input_offset(problem_, piece), bytes, to);
    }
    return rows;
  }

  Launch looked_at(const Piece& piece, std::byte* before, std::byte* after,
                   const std::byte* rows) const {
    Memory& memory = timed_.memory;
    const std::byte* const output =
        timed_.sets.output_of(piece.set) + output_offset(problem_, piece);
    std::byte* const input = timed_.sets.inputs_of_set(piece.set) + input_offset(problem_, piece);
    const std::int64_t row_bytes = piece.negated ? input_row_bytes(problem_) : 0;
    const std::int64_t bytes = output_bytes(problem_, piece);
    return [=, &memory, launch = timed_.launch_of(piece.set)](Stream stream) {
      memory.enqueue_copy(stream.handle, input, rows, row_bytes);
      memory.enqueue_copy(stream.handle, before, output, bytes);
      launch(stream);
      memory.enqueue_copy(stream.handle, after, output, bytes);
      memory.enqueue_copy(stream.handle, input, rows + row_bytes, row_bytes);
    };
  }

  Log run(const std::vector<Piece>& pieces) const {
    const std::int64_t bytes = pieces.back().logged + output_bytes(problem_, pieces.back());
    const GuardedBuffer before(timed_.memory, bytes);
    const GuardedBuffer after(timed_.memory, bytes);
    const bool negates =
        std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.negated; });
    const std::vector<std::byte> rows = negates ? rows_of(pieces) : std::vector<std::byte>();
    GuardedBuffer negated(timed_.memory, std::ssize(rows));
    negated.upload(rows);
    std::vector<Launch> sequence;
    auto next = pieces.begin();
    for (std::int64_t position = 0; position < timed_.launches; ++position) {
      if (next == pieces.end() || next->position != position) {
        sequence.push_back(timed_.launch_of(position % timed_.sets.count()));
        continue;
      }
      const std::int64_t row =
          negates ? 2 * input_row_bytes(problem_) * (next - pieces.begin()) : 0;
      sequence.push_back(looked_at(*next, static_cast<std::byte*>(before.data()) + next->logged,
                                   static_cast<std::byte*>(after.data()) + next->logged,
                                   static_cast<const std::byte*>(negated.data()) + row));
      ++next;
    }
    timed_.run(std::move(sequence));
    timed_.memory.synchronize();
    return {before.download(), after.download()};
  }

  Look compare(const std::vector<Piece>& pieces, const Log& log) const {
    std::map<std::int64_t, std::vector<Piece>> by_width;
    for (const Piece& piece : pieces) {
      by_width[piece.count].push_back(piece);
    }
    const std::int64_t lane_bytes =
        (has_shrink(problem_.op) ? problem_.in_features * size_bytes(problem_.dtype[Role::kA])
                                 : 0) +
        (has_expand(problem_.op) ? kColumns * size_bytes(problem_.dtype[Role::kB]) : 0);
    const std::int64_t most =
        std::max<std::int64_t>(1, kBytesOfAComparison / (problem_.max_rank * lane_bytes + 1));
    Look all;
    for (const auto& [width, alike] : by_width) {
      for (std::int64_t first = 0; first < std::ssize(alike) && all.wrong.empty(); first += most) {
        const std::int64_t past = std::min(first + most, std::ssize(alike));
        const std::vector<Piece> some(alike.begin() + first, alike.begin() + past);
        PiecesAsProblem asked(problem_, timed_.tensors, some);
        const std::vector<const Tensors*> sets{&asked.tensors(log.before)};
        std::vector<std::int64_t> rows, columns;
        for (const Piece& piece : some) {
          rows.push_back(piece.row);
          columns.push_back(piece.first);
        }
        const std::vector<std::byte> after = asked.cut(log.after);
        const Look look = timed_.request.check(
            {asked.problem(), sets, after, 1, count_to(std::ssize(some)), rows, secret_, columns});
        all.compared += look.compared;
        all.telling_rows += look.telling_rows;
        all.wrong = look.wrong;
      }
    }
    return all;
  }

  const SequenceToLookAt& timed_;
  const Problem& problem_;
  std::uint64_t secret_;
  PieceDraw draw_;
};

}  // namespace

double unseen_share(const SingleLaunches& seen) {
  return seen.telling == 0 ? 1 : 1 - std::pow(kMissed, 1 / static_cast<double>(seen.telling));
}

bool too_much_unseen(const SingleLaunches& seen) {
  return seen.looks > 0 && seen.whole_runs < kEnoughWholeRuns && unseen_share(seen) > kMostUnseen;
}

SingleLaunches look_at_single_launches(const SequenceToLookAt& timed, std::uint64_t secret) {
  return SingleLaunchLooks(timed, secret).look();
}

}  // namespace lora_bench
