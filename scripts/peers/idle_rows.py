"""Rows without an adapter: what launches leave there is what was there before, in every set and not only in the first,
which is proved."""
import numpy as np

import base_product
from expected_rows import columns_of, drawn


def of(case):
    """All of them; none where the op has no y."""
    owned = [rows for _, rows in case.groups]
    rows = np.setdiff1d(np.arange(case.tokens), np.concatenate(owned) if owned else [])
    return rows if case.meta["expand"] else rows[:0]


def written(sets, most):
    """What launches left in such rows of each y that was not there before, "" where nothing; of a layer in so many."""
    case, arrays, rows = sets.case, sets.arrays, of(sets.case)
    if not len(rows):
        return ""
    if case.layer:
        rows, columns = drawn(rows, most), columns_of(case)
        left = arrays.in_single(arrays.taken(sets.states[-1][0], arrays.index(rows), 0))[:, columns]
        return changed(sets, sets.count - 1, rows, left, columns)
    index = arrays.index(rows)
    before = arrays.taken(sets.y_before, index, 0)
    return next(filter(None, (_told(arrays.largest(arrays.taken(y, index, 0) - before)) for y, _ in sets.states)), "")


def changed(sets, number, rows, left, columns):
    """How some rows and columns that a launch of a set left differ from what was there before it, of a layer from what
    its product left there; "" where they do not."""
    case, arrays = sets.case, sets.arrays
    if not len(rows):
        return ""
    if not case.layer:
        before = arrays.in_single(arrays.taken(sets.y_before, arrays.index(rows), 0))[:, columns]
        return _told(np.max(np.abs(left - before)))
    right, size = base_product.some_in_double(sets, number, rows, columns)
    far = base_product.far(case, left, right, size)
    return f"{far.sum()} of {far.size} elements are not those of the product of the layer" if far.any() else ""


def _told(apart):
    return "" if apart == 0 else f"up to {apart:.3g} was added or taken away"
