"""Rows without an adapter: what launches leave there is what was there before, in every set and not only in the first,
which is proved."""
import numpy as np

import base_product

MOST_ROWS = 4  # of a product that is worked out in fp64


def of(case):
    """All of them; none where the op has no y."""
    owned = [rows for _, rows in case.groups]
    rows = np.setdiff1d(np.arange(case.tokens), np.concatenate(owned) if owned else [])
    return rows if case.meta["expand"] else rows[:0]


def drawn(case):
    """A few, no one knows which."""
    rows = of(case)
    return np.sort(np.random.default_rng().choice(rows, min(MOST_ROWS, len(rows)), replace=False))


def written(sets):
    """What launches left in such rows of each y that was not there before, "" where nothing."""
    case, arrays, rows = sets.case, sets.arrays, of(sets.case)
    if not len(rows):
        return ""
    if case.layer:
        rows, number = drawn(case), sets.count - 1
        return not_the_product(sets, number, rows, arrays.doubled(sets.states[-1][0], rows))
    index = arrays.index(rows)
    before = arrays.taken(sets.y_before, index, 0)
    for y, _ in sets.states:
        apart = arrays.largest(arrays.taken(y, index, 0) - before)
        if not apart == 0:
            return f"up to {apart:.3g} was added or taken away"
    return ""


def not_the_product(sets, number, rows, left, columns=slice(None)):
    """How some rows and columns that a layer left differ from what its product, by the weights of a set, left
    there; "" where they do not."""
    arrays, w = sets.arrays, sets.base_weights[number]
    w = arrays.taken(w, arrays.index(np.arange(w.shape[0])[columns]), 0)
    right, size = base_product.rows_in_double(arrays, sets.inputs[min(number, len(sets.inputs) - 1)], w, rows)
    far = base_product.far(sets.case, arrays.in_numpy(left)[:, columns], right, size)
    return f"{far.sum()} of {far.size} elements are not those of the product of the layer" if far.any() else ""
