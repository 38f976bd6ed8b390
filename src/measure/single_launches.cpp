#include "measure/single_launches.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "core/bytes.h"
#include "core/dtype.h"
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
  HostTensor tensor;
  tensor.dtype = dtype;
  tensor.elements = elements;
  tensor.data.resize(at(elements * size_bytes(dtype)));
  return tensor;
}

}  // namespace

double unseen_share(const SingleLaunches& seen) {
  return seen.telling == 0 ? 1 : 1 - std::pow(kMissed, 1 / static_cast<double>(seen.telling));
}

bool too_much_unseen(const SingleLaunches& seen) {
  return seen.looks > 0 && seen.whole_runs < kEnoughWholeRuns && unseen_share(seen) > kMostUnseen;
}

// Pieces of one width, as a problem in which each is a token with an adapter of its own.
class PiecesAsProblem {
 public:
  using Pieces = std::vector<SingleLaunchLooks::Piece>;

  PiecesAsProblem(const Problem& whole, const Tensors& tensors, const Pieces& pieces)
      : whole_(whole), from_(tensors), pieces_(pieces), problem_(whole) {
    const auto count = static_cast<std::int64_t>(pieces.size());
    const std::int64_t width = pieces.front().count;
    problem_.tokens = problem_.slots = count;
    problem_.offset_start = 0;
    problem_.x_stride = whole.in_features;
    problem_.widths = {width};
    problem_.y_stride = width;
    problem_.rank.clear();
    problem_.scale.clear();
    std::vector<std::int32_t> ids(pieces.size());
    std::iota(ids.begin(), ids.end(), 0);
    problem_.plan = make_plan(ids, count);
    for (const SingleLaunchLooks::Piece& piece : pieces) {
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
    if (has_shrink(whole.op)) {
      add_x();
      add_a();
    } else {
      add_given_h();
    }
    if (has_expand(whole.op)) {
      add_b();
    }
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
    for (const SingleLaunchLooks::Piece& piece : pieces_) {
      const auto first = log.begin() + piece.logged;
      bytes.insert(bytes.end(), first, first + width * size_bytes(dtype));
    }
    return bytes;
  }

 private:
  void add_x() {
    const std::int64_t bytes = size_bytes(whole_.dtype[Role::kX]);
    const std::int64_t row = whole_.in_features * bytes;
    std::byte* to = tensors_.x.data.data();
    for (const SingleLaunchLooks::Piece& piece : pieces_) {
      std::copy_n(from_.x.data.data() + piece.row * whole_.x_stride * bytes, row, to);
      if (piece.negated) {
        negate({to, at(row)}, bytes);
      }
      to += row;
    }
  }

  void add_given_h() {
    const std::int64_t bytes = size_bytes(whole_.dtype[Role::kH]);
    std::byte* to = tensors_.h.data.data();
    for (const SingleLaunchLooks::Piece& piece : pieces_) {
      const std::int64_t lanes = rank_of(whole_, piece.slot) * bytes;
      const std::int64_t first =
          (piece.slice * whole_.tokens + piece.row) * whole_.max_rank * bytes;
      std::copy_n(from_.h.data.data() + first, lanes, to);
      if (piece.negated) {
        negate({to, at(lanes)}, bytes);
      }
      to += problem_.max_rank * bytes;
    }
  }

  void add_a() {
    const std::int64_t lane = whole_.in_features * size_bytes(whole_.dtype[Role::kA]);
    HostTensor a =
        zeros(whole_.dtype[Role::kA], problem_.tokens * problem_.max_rank * whole_.in_features);
    for (std::size_t index = 0; index < pieces_.size(); ++index) {
      const SingleLaunchLooks::Piece& piece = pieces_[index];
      const std::int64_t first = has_expand(whole_.op) ? 0 : piece.first;
      copy_elements_of_set(
          from_.a[at(piece.slice)], whole_.slots, piece.slot, piece.set, first * whole_.in_features,
          problem_.rank[index] * whole_.in_features,
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
      const SingleLaunchLooks::Piece& piece = pieces_[index];
      for (std::int64_t column = piece.first; column < piece.first + width; ++column) {
        copy_elements_of_set(from_.b[at(piece.slice)], whole_.slots, piece.slot, piece.set,
                             column * whole_.max_rank, problem_.rank[index], to);
        to += problem_.max_rank * size_bytes(b.dtype);
      }
      if (whole_.bias) {
        copy_elements_of_set(from_.bias[at(piece.slice)], whole_.slots, piece.slot, piece.set,
                             piece.first, width, bias_to);
        bias_to += width * size_bytes(bias.dtype);
      }
    }
    tensors_.b[0] = std::move(b);
    tensors_.bias[0] = std::move(bias);
  }

  const Problem& whole_;
  const Tensors& from_;
  const Pieces& pieces_;
  Problem problem_;
  Tensors tensors_;
};

SingleLaunchLooks::SingleLaunchLooks(Bench bench, std::uint64_t secret)
    : bench_(std::move(bench)), secret_(secret), rows_(owned_rows(bench_.request.problem)) {
  const std::vector<std::int64_t>& widths = bench_.request.problem.widths;
  for (std::size_t slice = 0; slice < widths.size(); ++slice) {
    if (widths[slice] > 0) {
      slices_.push_back(static_cast<std::int64_t>(slice));
    }
  }
}

SingleLaunches SingleLaunchLooks::look() {
  SingleLaunches seen;
  if (rows_.empty() || slices_.empty()) {
    return seen;
  }
  const double start = bench_.seconds();
  for (std::int64_t turn = 0; turn < kMostRuns; ++turn) {
    const std::vector<Piece> pieces = drawn_pieces(static_cast<std::uint64_t>(turn));
    const Look found = compare(pieces, run(pieces));
    seen.wrong = found.wrong;
    if (!seen.wrong.empty() || found.compared == 0) {
      break;
    }
    const auto looks = static_cast<std::int64_t>(pieces.size());
    seen.looks += looks;
    seen.telling += found.telling_rows;
    seen.whole_runs += looks == bench_.launches && found.telling_rows == looks ? 1 : 0;
    const bool long_enough = bench_.seconds() - start > kSeconds && turn + 1 >= kEnoughWholeRuns;
    if (unseen_share(seen) <= kMostUnseen || long_enough) {
      break;
    }
  }
  return seen;
}

std::vector<std::int64_t> SingleLaunchLooks::drawn_positions(std::uint64_t run) const {
  std::vector<std::int64_t> positions(at(bench_.launches));
  std::iota(positions.begin(), positions.end(), 0);
  positions = drawn_of(std::move(positions), kLooksOfARun, secret_, kPositionStream + run);
  std::sort(positions.begin(), positions.end());
  return positions;
}

std::vector<SingleLaunchLooks::Piece> SingleLaunchLooks::drawn_pieces(std::uint64_t run) const {
  std::vector<Piece> pieces;
  std::int64_t logged = 0;
  for (const std::int64_t position : drawn_positions(run)) {
    Piece piece;
    piece.position = position;
    piece.set = position % bench_.sets.count();
    draw_place(piece, run);
    piece.logged = logged;
    logged += output_bytes(piece);
    pieces.push_back(piece);
  }
  draw_signs(pieces);
  return pieces;
}

void SingleLaunchLooks::draw_place(Piece& piece, std::uint64_t run) const {
  const Problem& problem = bench_.request.problem;
  std::int64_t drawn = 4 * piece.position;
  const auto below = [&](std::int64_t bound) {
    return drawn_below(secret_, kStartStream + run, drawn++, bound);
  };
  piece.row = rows_[at(below(static_cast<std::int64_t>(rows_.size())))];
  piece.slot = slot_of(problem, piece.row);
  const bool expands = has_expand(problem.op);
  // Of all columns, or lanes, each is as likely.
  const auto elements = [&](std::int64_t slice) {
    return expands ? problem.widths[at(slice)] : rank_of(problem, piece.slot);
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

void SingleLaunchLooks::draw_signs(std::vector<Piece>& pieces) const {
  if (bench_.sets.outputs() != bench_.sets.count()) {
    return;  // the launch before has other weights
  }
  std::map<std::int64_t, const Piece*> last;  // by set
  for (Piece& piece : pieces) {
    const Piece*& before = last[piece.set];
    const bool same_row = before != nullptr && before->row == piece.row &&
                          before->slice == piece.slice &&
                          before->position + bench_.sets.count() == piece.position;
    piece.negated = !(same_row && before->negated);
    before = &piece;
  }
}

std::int64_t SingleLaunchLooks::input_row_bytes() const {
  const Problem& problem = bench_.request.problem;
  return has_shrink(problem.op) ? problem.in_features * size_bytes(problem.dtype[Role::kX])
                                : problem.max_rank * size_bytes(problem.dtype[Role::kH]);
}

std::int64_t SingleLaunchLooks::input_offset(const Piece& piece) const {
  const Problem& problem = bench_.request.problem;
  return has_shrink(problem.op) ? piece.row * problem.x_stride * size_bytes(problem.dtype[Role::kX])
                                : (piece.slice * problem.tokens + piece.row) * problem.max_rank *
                                      size_bytes(problem.dtype[Role::kH]);
}

std::int64_t SingleLaunchLooks::output_offset(const Piece& piece) const {
  const Problem& problem = bench_.request.problem;
  if (!has_expand(problem.op)) {
    return ((piece.slice * problem.tokens + piece.row) * problem.max_rank + piece.first) *
           size_bytes(problem.dtype[Role::kH]);
  }
  const std::int64_t before = std::accumulate(
      problem.widths.begin(), problem.widths.begin() + piece.slice, problem.offset_start);
  return (piece.row * problem.y_stride + before + piece.first) *
         size_bytes(problem.dtype[Role::kY]);
}

std::int64_t SingleLaunchLooks::output_bytes(const Piece& piece) const {
  const Problem& problem = bench_.request.problem;
  return piece.count *
         size_bytes(has_expand(problem.op) ? problem.dtype[Role::kY] : problem.dtype[Role::kH]);
}

// Of each piece the input row with the other sign, and as it is.
std::vector<std::byte> SingleLaunchLooks::rows_of(const std::vector<Piece>& pieces) const {
  const Problem& problem = bench_.request.problem;
  const bool shrinks = has_shrink(problem.op);
  const std::vector<std::byte>& from = (shrinks ? bench_.tensors.x : bench_.tensors.h).data;
  const std::int64_t bytes = input_row_bytes();
  std::vector<std::byte> rows(at(2 * bytes * std::ssize(pieces)));
  std::byte* to = rows.data();
  for (const Piece& piece : pieces) {
    to = std::copy_n(from.data() + input_offset(piece), bytes, to);
    negate({to - bytes, at(bytes)},
           size_bytes(shrinks ? problem.dtype[Role::kX] : problem.dtype[Role::kH]));
    to = std::copy_n(from.data() + input_offset(piece), bytes, to);
  }
  return rows;
}

Launch SingleLaunchLooks::looked_at(const Piece& piece, std::byte* before, std::byte* after,
                                    const std::byte* rows) const {
  Memory& memory = bench_.memory;
  const std::byte* const output = bench_.sets.output_of(piece.set) + output_offset(piece);
  std::byte* const input = bench_.sets.inputs_of_set(piece.set) + input_offset(piece);
  const std::int64_t row_bytes = piece.negated ? input_row_bytes() : 0;
  const std::int64_t bytes = output_bytes(piece);
  return [=, &memory, launch = bench_.launch_of(piece.set)](Stream stream) {
    memory.enqueue_copy(stream.handle, input, rows, row_bytes);
    memory.enqueue_copy(stream.handle, before, output, bytes);
    launch(stream);
    memory.enqueue_copy(stream.handle, after, output, bytes);
    memory.enqueue_copy(stream.handle, input, rows + row_bytes, row_bytes);
  };
}

SingleLaunchLooks::Log SingleLaunchLooks::run(const std::vector<Piece>& pieces) const {
  const std::int64_t bytes = pieces.back().logged + output_bytes(pieces.back());
  const GuardedBuffer before(bench_.memory, bytes);
  const GuardedBuffer after(bench_.memory, bytes);
  const bool negates =
      std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.negated; });
  const std::vector<std::byte> rows = negates ? rows_of(pieces) : std::vector<std::byte>();
  GuardedBuffer negated(bench_.memory, std::ssize(rows));
  negated.upload(rows);
  std::vector<Launch> sequence;
  auto next = pieces.begin();
  for (std::int64_t position = 0; position < bench_.launches; ++position) {
    if (next == pieces.end() || next->position != position) {
      sequence.push_back(bench_.launch_of(position % bench_.sets.count()));
      continue;
    }
    const std::int64_t row = negates ? 2 * input_row_bytes() * (next - pieces.begin()) : 0;
    sequence.push_back(looked_at(*next, static_cast<std::byte*>(before.data()) + next->logged,
                                 static_cast<std::byte*>(after.data()) + next->logged,
                                 static_cast<const std::byte*>(negated.data()) + row));
    ++next;
  }
  bench_.run(std::move(sequence));
  bench_.memory.synchronize();
  return {before.download(), after.download()};
}

Look SingleLaunchLooks::compare(const std::vector<Piece>& pieces, const Log& log) const {
  const Problem& problem = bench_.request.problem;
  std::map<std::int64_t, std::vector<Piece>> by_width;
  for (const Piece& piece : pieces) {
    by_width[piece.count].push_back(piece);
  }
  const std::int64_t lane_bytes =
      (has_shrink(problem.op) ? problem.in_features * size_bytes(problem.dtype[Role::kA]) : 0) +
      (has_expand(problem.op) ? kColumns * size_bytes(problem.dtype[Role::kB]) : 0);
  const std::int64_t most =
      std::max<std::int64_t>(1, kBytesOfAComparison / (problem.max_rank * lane_bytes + 1));
  Look all;
  for (const auto& [width, alike] : by_width) {
    for (std::int64_t first = 0; first < std::ssize(alike) && all.wrong.empty(); first += most) {
      const std::int64_t past = std::min(first + most, std::ssize(alike));
      const std::vector<Piece> some(alike.begin() + first, alike.begin() + past);
      PiecesAsProblem asked(problem, bench_.tensors, some);
      const std::vector<const Tensors*> sets{&asked.tensors(log.before)};
      std::vector<std::int64_t> tokens(some.size()), rows, columns;
      std::iota(tokens.begin(), tokens.end(), 0);
      for (const Piece& piece : some) {
        rows.push_back(piece.row);
        columns.push_back(piece.first);
      }
      const std::vector<std::byte> after = asked.cut(log.after);
      const Look look =
          bench_.request.check({asked.problem(), sets, after, 1, tokens, rows, secret_, columns});
      all.compared += look.compared;
      all.telling_rows += look.telling_rows;
      all.wrong = look.wrong;
    }
  }
  return all;
}

}  // namespace lora_bench
