"""What is asked of a peer after it was timed: whether what was timed is what was proved."""
import numpy as np

import base_product
import idle_rows
from changed_rows import MOST_APART, Changed, apart
from timing import TURN

MOST_LOOKS = 16  # at launches whose output those after them overwrite
MOST_COLUMNS = 512  # of the product of a layer in such a look


def wrong(sequence, proved):
    """How what was timed differs from what was proved, "" where it does not: `proved` is what one launch of the
    first set left for the proof."""
    sets, clock = sequence.sets, sequence.clock
    timed = sets.arrays.copied(sets.output())

    def left(launches):
        sets.restore()
        for launch in launches:
            launch()
        return sets.arrays.copied(sets.output())
    checks = [("a launch leaves another output than the one that was proved", left(sets.launches[:1]), proved)]
    if sets.arrays.on_gpu:
        checks.append(("the graph that was timed leaves another output than its launches one by one",
                       left([clock.run]), left(sequence.launches)))
    elif sets.case.layer:
        checks.append(("the timed launches left another output than one by one", timed, left(sequence.launches)))
    elif sequence.accumulates:
        rounds = sequence.accumulated // len(sequence.launches)
        checks.append(("the timed launches left another output than as many untimed", timed,
                       left([clock.run] * rounds)))
    found = [(what, _differs(sets, *outputs)) for what, *outputs in checks]
    sets.restore()
    clock.run()
    found.append(("the timed launches wrote rows without an adapter", idle_rows.written(sets)))
    return "; ".join(f"{what}: {how}" for what, how in [*found, *_wrong_with_another_x(sequence)] if how)


def _wrong_with_another_x(sequence):
    """The timed launches once more, on an x that differs in a few rows, held against what they have to come to."""
    sets, case, arrays = sequence.sets, sequence.sets.case, sequence.sets.arrays
    if not case.meta["shrink"] or not case.groups:
        return []
    changed = Changed(case)
    for x in sets.inputs:
        for row, values in zip(changed.rows, changed.x):
            arrays.put_row(x, int(row), values)
    sets.restore()
    sequence.clock.run()
    left = arrays.rows(sets.output(), changed.rows, _row_axis(case))
    numbers = range(sets.count) if len(sets.states) == 1 else [0]  # whose launches write this output
    turns = [TURN * number for number in numbers] * (len(sequence.launches) // sets.count)
    before = changed.before()
    if case.layer:
        x, w = sets.inputs[0], sets.base_weights[numbers[-1]]
        turns, before = turns[-1:], base_product.rows_in_double(arrays, x, w, changed.rows)[0].astype(np.float32)
    missing = _missing(sets, changed, left, turns, before)
    if missing:
        return [("the timed launches left a wrong output once x was another", missing)]
    if sequence.accumulates and len(sets.states) == 1:
        return []  # y is the sum of all launches
    return _wrong_on_the_way(sequence, changed)


def _wrong_on_the_way(sequence, changed):
    """The sequence once more, with a look behind some launches, drawn only now: at its end y or h shows nothing of
    those that another launch overwrote, or that wrote elsewhere."""
    sets, case, arrays = sequence.sets, sequence.sets.case, sequence.sets.arrays
    launches, overwrites = list(sequence.launches), not sequence.accumulates
    dice = np.random.default_rng()
    places = [int(p) for p in np.sort(dice.choice(len(launches), min(MOST_LOOKS, len(launches)), replace=False))]
    idle, seen = idle_rows.drawn(case), {}
    index = arrays.index(np.concatenate([changed.rows, idle]))

    def looked_at(place, launch, output):
        def look():
            if overwrites and not case.layer:
                arrays.clear(output)  # what an earlier launch left there is no answer of this one
            launch()
            seen[place] = arrays.taken(output, index, _row_axis(case))
        return look
    for place in places:
        launches[place] = looked_at(place, launches[place], sets.output(place % sets.count))
    sequence.clock.load(launches)
    sets.restore()
    sequence.clock.run()
    for place in places:
        number, rounds, before, columns = place % sets.count, 1 + place // sets.count, changed.before(), slice(None)
        if case.layer:
            w = sets.base_weights[number]
            columns = np.sort(dice.choice(w.shape[0], min(MOST_COLUMNS, w.shape[0]), replace=False))
            x = arrays.doubled(sets.inputs[min(number, len(sets.inputs) - 1)], changed.rows)
            before = np.zeros((len(changed.rows), w.shape[0]), np.float32)
            before[:, columns] = arrays.in_numpy(x @ arrays.doubled(w, columns).T)
        left = arrays.rows(seen[place], np.arange(len(changed.rows)), _row_axis(case))
        missing = _missing(sets, changed, left, [TURN * number] * (1 if overwrites else rounds), before, columns)
        told = f"launch {place + 1} of the {len(launches)} timed"
        if missing:
            return [(f"{told} left a wrong output once x was another", missing)]
        written = _written(sets, number, idle, seen[place], overwrites, columns)
        if written:
            return [(f"{told} wrote rows without an adapter", written)]
    return []


def _written(sets, number, idle, seen, cleared, columns):
    """What a launch that was looked at wrote into rows without an adapter, which lie behind those that changed."""
    case, arrays = sets.case, sets.arrays
    if not len(idle):
        return ""
    left = arrays.doubled(seen, slice(seen.shape[0] - len(idle), None))
    if case.layer:
        return idle_rows.not_the_product(sets, number, idle, left, columns)
    before = 0 if cleared else arrays.doubled(sets.y_before, idle)
    apart = arrays.largest(left - before)
    return "" if apart == 0 else f"up to {apart:.3g} was added or taken away"


def _row_axis(case):
    return 0 if case.meta["expand"] else 1  # h has slices first


def _missing(sets, changed, left, turns, before, columns=slice(None)):
    """How changed rows of an output lack what launches with weights turned so have to add, "" where they do not."""
    case, arrays = sets.case, sets.arrays
    wanted = changed.left(turns, lambda values: arrays.kept(values, case.dtype), before)
    if case.meta["expand"]:
        left, wanted, before = left[:, columns], wanted[:, columns], before[:, columns]
    else:
        left = left.swapaxes(0, 1)
    far = apart(left, wanted, before)
    return f"{100 * far:.3g} % of what they have to add is missing or too much" if not far <= MOST_APART else ""


def _differs(sets, left, wanted):
    """Whether two outputs differ by more than the order of sums explains, or what was done is missing in one."""
    arrays = sets.arrays
    apart, size = arrays.largest(left - wanted), arrays.largest(wanted)
    done, needed = ((arrays.largest(y if sets.y_before is None else y - sets.y_before)) for y in (left, wanted))
    # Sums that meet in another order may round y to a neighbour, at most once a launch.
    if apart <= 0.02 * size and done >= 0.5 * needed:
        return ""
    return f"up to {apart:.3g} of {size:.3g}"
