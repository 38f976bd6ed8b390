"""Rows of an output that are looked at, and what launches have to leave in them: a row or a launch that was left out
shows, and an answer that was kept from before once a number in x, A or B is another one."""
import numpy as np

from exported import widened

MOST_COLUMNS = 256  # what is left out of a row lacks in these as in all
LEAST_ROWS = 16
MOST_PRODUCTS = 1 << 31  # of NumPy, for all sets of weights: a second or two where its BLAS is plain
MOST_KEPT = 1 << 26  # numbers
COPY = 32  # products in whose time a number is copied, or rounded
IN_DOUBLE = 8  # and one of the base of a layer is worked out, of rows with an adapter and without
MOST_TURNED = 1 << 24  # numbers of x at a time
TRIES = 8  # for a number that tells
EFFECT = 16  # of a changed number on h, which else is about 1
MOST_APART = 0.15  # of what a row has to get, in the root mean square: 16-bit h, delta and y take up to 0.08


def affordable(sets, launches, looks):
    """How many rows: for more, NumPy would take long to work out what each set of weights adds to them."""
    case, count = sets.case, sets.count
    columns, lanes = min(MOST_COLUMNS, sum(case.widths)), len(case.widths) * case.max_rank
    products = count * (case.in_features * (lanes + COPY) + columns * case.max_rank) + launches * columns * COPY
    if case.layer and not sets.arrays.on_gpu:
        products += IN_DOUBLE * (1 + looks) * case.in_features * columns
    return max(LEAST_ROWS, min(MOST_PRODUCTS // max(products, 1), MOST_KEPT // (count * max(columns, lanes, 1))))


def drawn(numbers, most):
    """Some of them, no one knows which."""
    return np.sort(np.random.default_rng().choice(numbers, min(most, len(numbers)), replace=False))


def columns_of(case):
    return drawn(np.arange(sum(case.widths)), MOST_COLUMNS)


class ExpectedRows:
    """Rows with an adapter and columns that no one knows, and what launches add there with `x`."""

    def __init__(self, case, most_rows):
        self.case = case
        self.rows = drawn(np.concatenate([rows for _, rows in case.groups]), most_rows)
        self.columns = columns_of(case)
        self.x = self._numbers("x", self.rows)[:, :case.in_features]
        slots = case.ids[self.rows]
        self.of_adapters = [(int(slot), np.flatnonzero(slots == slot)) for slot in np.unique(slots)]
        self.replaced, self._added = {}, {}  # (half, slice, slot, row, column) of weights that are not turned: a number

    def change_x(self):
        """Another number at one place of each row, which changes all that the row gets."""
        dice = np.random.default_rng()
        for slot, some in self.of_adapters:
            lanes = self._lanes(slot)
            for row in some:
                k = dice.integers(self.case.in_features)
                size = EFFECT / max(float(np.abs(lanes[:, k]).mean()), 2.0**-10)
                self.x[row, k] = _of_other_sign(self.x[row, k], size)
        self._added = {}

    def change_a(self, turn):
        """Another number at one place in A of each adapter, of weights turned so, which changes what its rows get."""
        dice = np.random.default_rng()
        for slot, some in self.of_adapters:
            i = self._slice_of(dice.integers(len(self.columns)))[0]
            lane = int(dice.integers(self.case.rank[slot]))
            k = max(dice.integers(self.case.in_features, size=TRIES), key=lambda k: abs(self.x[some[0], k]))
            size = EFFECT / max(abs(float(self.x[some[0], k])), 2.0**-10)
            self._replace("a", i, slot, lane, int((k - turn) % self.case.in_features), size)

    def change_b(self, turn):
        """The same in B of each, of a column that is looked at."""
        dice, hidden, added = np.random.default_rng(), self._hidden([turn])[0], self._added_by([turn])[turn]
        for slot, some in self.of_adapters:
            i, column = self._slice_of(dice.integers(len(self.columns)))
            h, usual = np.abs(hidden[some[0], i]), np.sqrt(np.mean(np.square(added[some[0]])))
            size = EFFECT * float(usual / max(h.max(), 2.0**-10))
            self._replace("b", i, slot, int((column - turn) % self.case.widths[i]), int(h.argmax()), size)

    def before(self):
        """The output of these rows before any launch."""
        if not self.case.meta["expand"]:
            return np.float32(0)
        return self._numbers("y_before", self.rows)[:, self.case.columns][:, self.columns]

    def left(self, turns, kept, before):
        """The output of these rows after launches whose weights are turned by so much; kept() rounds y as the peer's
        type does."""
        added = self._added_by(turns)
        if not self.case.meta["expand"]:
            return added[turns[-1]]
        y = before
        for turn in turns:
            y = kept(y + added[turn] if self.case.add_inputs else added[turn])
        return y

    def _numbers(self, name, index):
        values, kind = self.case.stored(name)
        return widened(values[index], kind)

    def _weights(self, name, i, slot):
        """The lanes in use of an adapter in a slice."""
        weights, rank = self._numbers(f"{name}.{i}", slot), self.case.rank[slot]
        for (half, of_slice, of_slot, *place), number in self.replaced.items():
            if (half, of_slice, of_slot) == (name, i, slot):
                weights[tuple(place)] = number
        return weights[:rank] if name == "a" else weights[:, :rank]

    def _slice_of(self, place):
        """That of a column that is looked at, and where in it the column lies; the first where no column is."""
        if not self.case.meta["expand"]:
            return 0, 0
        column = int(self.columns[place])
        i = next(i for i, lane in enumerate(self.case.lanes) if column < lane.stop)
        return i, column - self.case.lanes[i].start

    def _replace(self, name, i, slot, row, column, size):
        self.replaced[name, i, slot, row, column] = _of_other_sign(self._weights(name, i, slot)[row, column], size)
        self._added = {}

    def _lanes(self, slot):
        """Of all slices, A of an adapter."""
        return np.concatenate([self._weights("a", i, slot) for i in range(len(self.case.widths))])

    def _added_by(self, turns):
        """What a launch adds, or h where it is shrink alone, by how far its weights are turned."""
        missing = sorted(set(turns) - self._added.keys())
        if missing:
            hidden = self._hidden(missing)
            added = self._deltas(hidden, missing) if self.case.meta["expand"] else hidden
            self._added.update(zip(missing, added))
        return self._added

    def _hidden(self, turns):
        """[turn][row][slice][lane], times the scale; weights turned one way are x turned the other."""
        case = self.case
        h = np.zeros((len(turns), len(self.rows), len(case.widths), case.max_rank), np.float32)
        step = max(1, MOST_TURNED // (len(turns) * case.in_features))
        for slot, some in self.of_adapters:
            scaled = case.meta["expand"] or case.meta["scale_at"] == "shrink"
            scale, rank = case.scale[slot] if scaled else np.float32(1), case.rank[slot]
            a = self._lanes(slot)
            for rows in (some[first:first + step] for first in range(0, len(some), step)):
                turned = np.stack([np.roll(self.x[rows], -turn, 1) for turn in turns])
                lanes = turned.reshape(-1, case.in_features) @ a.T * scale
                h[:, rows, :, :rank] = lanes.reshape(len(turns), len(rows), len(case.widths), rank)
        return h

    def _deltas(self, hidden, turns):
        """[turn][row][column]."""
        deltas = np.zeros((len(turns), len(self.rows), len(self.columns)), np.float32)
        for i, lane in enumerate(self.case.lanes):
            places = np.flatnonzero((self.columns >= lane.start) & (self.columns < lane.stop))
            for slot, some in self.of_adapters if len(places) else []:
                b = self._weights("b", i, slot)
                for number, turn in enumerate(turns):
                    turned = b[(self.columns[places] - lane.start - turn) % len(b)]
                    deltas[number][np.ix_(some, places)] = hidden[number, some, i, :b.shape[1]] @ turned.T
        return deltas


def _of_other_sign(number, size):
    """A power of two near `size`, which any type holds as it is."""
    return float(np.copysign(2.0**min(round(np.log2(size)), 14), -number))


def apart(left, wanted, before):
    """How far the row is that is farthest from what is wanted, as a share of what was to be added to it."""
    def size(values):
        return np.sqrt(np.mean(np.square(values.reshape(len(values), -1), dtype=np.float64), 1))
    added = size(wanted - before)
    usual = np.sqrt(np.mean(added**2))
    return float(np.max(size(left - wanted) / (np.maximum(added, usual / 4) if usual > 0 else 1)))
