"""The product of the layer around an op: y = x W^T, to which the op adds. The same library computes it for every
peer, as an engine would; its time is no peer's, what the op adds to it is the tax."""
import numpy as np

MOST_ROWS = 4
MOST_ELEMENTS = 1 << 24  # of W in fp64 at a time


def weights(case, arrays):
    """W [N, K], so that y is about as large as x."""
    return arrays.drawn((sum(case.widths), case.in_features), (3 / case.in_features) ** 0.5, case.dtype)


def fill_rows(case, arrays, x):
    """Rows without an adapter, which no op reads, hold no numbers: a product reads them all."""
    owned = np.concatenate([rows for _, rows in case.groups])
    others = np.setdiff1d(np.arange(case.tokens), owned)
    arrays.copy_rows(x, others, np.resize(owned, len(others)).astype(np.int64))


def rows_in_double(arrays, x, w, rows):
    """Those rows of the product in fp64, and of that of the magnitudes."""
    inputs = arrays.doubled(x, rows)
    step = max(1, MOST_ELEMENTS // inputs.shape[1])
    right, size = [], []
    for first in range(0, w.shape[0], step):
        part = arrays.doubled(w, slice(first, first + step)).T
        right.append(arrays.in_numpy(inputs @ part))
        size.append(arrays.in_numpy(abs(inputs) @ abs(part)))
    return np.concatenate(right, 1), np.concatenate(size, 1)


def some_in_double(sets, number, rows, columns):
    """The same of some columns too, by the weights of a set."""
    w = sets.arrays.taken(sets.base_weights[number], sets.arrays.index(columns), 0)
    return rows_in_double(sets.arrays, sets.inputs[min(number, len(sets.inputs) - 1)], w, rows)


def far(case, got, right, size):
    """Which elements differ from the product by more than fp32 sums in any order and one rounding explain."""
    # The last rounding of numbers that are not normal is no share of them.
    allowed = (case.in_features * 2.0**-23 * size
               + case.meta["unit_roundoff_of_output"] * np.abs(right) * (1 + 2.0**-7) + 2.0**-24)
    return ~(np.abs(got - right) <= allowed)


def wrong(case, arrays, x, w, y):
    """How some rows of y, no one knows which, differ from the product; "" where they do not."""
    rows = np.sort(np.random.default_rng().choice(case.tokens, min(MOST_ROWS, case.tokens), replace=False))
    right, size = rows_in_double(arrays, x, w, rows)
    got = arrays.in_numpy(arrays.doubled(y, rows))
    wrong_ones = far(case, got, right, size)
    if not wrong_ones.any():
        return ""
    row, column = np.argwhere(wrong_ones)[0]
    return (f"the product of the layer is wrong in {wrong_ones.sum()} of {wrong_ones.size} elements; token "
            f"{rows[row]}, column {column}: expected {right[row, column]:.9g}, got {got[row, column]:.9g}")
