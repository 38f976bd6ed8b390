"""What is asked of a peer after it was timed: whether what was timed is what was proved."""

import numpy as np

import base_product
import idle_rows
from expected_rows import MOST_APART, ExpectedRows, affordable, apart, drawn
from timing import TURN

MOST_LOOKS = 32  # at single launches
MOST_OF_LARGEST = 0.02  # that two outputs may differ by
OF_ONE_BY_ONE = 1.5  # times what two runs of the same launches one by one differ by, where they do


def wrong(sequence, proved):
    """How what was timed differs from what was proved, "" where it does not: `proved` is what one launch of the
    first set left for the proof."""
    sets, clock, launches = sequence.sets, sequence.clock, len(sequence.launches)
    looks = min(MOST_LOOKS, launches)
    most_rows = affordable(sets, launches, looks)
    timed = sets.arrays.copied(sets.output())

    def left(launches):
        sets.restore()
        for launch in launches:
            launch()
        return sets.arrays.copied(sets.output())
    checks = [("a launch leaves another output than the one that was proved", left(sets.launches[:1]), proved)]
    found = []
    if sets.arrays.on_gpu:
        found.append(("the graph that was timed leaves another output than its launches one by one",
                      _graph_differs(sequence, left)))
    elif sets.case.layer:
        checks.append(("the timed launches left another output than one by one", timed, left(sequence.launches)))
    elif sequence.accumulates:
        rounds = sequence.accumulated // launches
        checks.append(("the timed launches left another output than as many untimed", timed,
                       left([clock.run] * rounds)))
    found = [(what, _differs(sets, *outputs)) for what, *outputs in checks] + found
    sets.restore()
    clock.run()
    found.append(("the timed launches wrote rows without an adapter", idle_rows.written(sets, most_rows)))
    if sets.case.meta["shrink"] and sets.case.groups:
        found.extend(_wrong_with_another_x(sequence, most_rows, looks)
                     or _wrong_with_other_weights(sequence, most_rows))
    return "; ".join(f"{what}: {how}" for what, how in found if how)


def _wrong_with_another_x(sequence, most_rows, looks):
    """The timed launches once more, on an x that differs in the rows looked at, held against what they have to come
    to."""
    sets, case = sequence.sets, sequence.sets.case
    expected = ExpectedRows(case, most_rows)
    expected.change_x()
    for x in sets.inputs:
        sets.arrays.put_rows(x, expected.rows, expected.x)
    sets.restore()
    sequence.clock.run()
    numbers = range(sets.count) if len(sets.states) == 1 else [0]  # whose launches write this output
    turns = [TURN * number for number in numbers] * (len(sequence.launches) // sets.count)
    if case.layer:  # whose product overwrites y
        turns = turns[-1:]
    seen = Look(sets, expected.rows, expected.columns).at(sets.output())
    missing = _missing(sets, expected, numbers[-1], turns, seen)
    if missing:
        return [("the timed launches left a wrong output once x was another", missing)]
    return _wrong_on_the_way(sequence, expected, most_rows, looks)


def _wrong_on_the_way(sequence, expected, most_rows, looks):
    """The sequence once more, with a look behind some launches, drawn only now: its end shows nothing of those that
    another launch overwrote, or that wrote elsewhere, and little of one among many."""
    sets, case, arrays = sequence.sets, sequence.sets.case, sequence.sets.arrays
    launches, count = list(sequence.launches), len(expected.rows)
    places, idle, seen = drawn(range(len(launches)), looks).tolist(), drawn(idle_rows.of(case), most_rows), {}
    look = Look(sets, np.concatenate([expected.rows, idle]), expected.columns)

    def looked_at(place, launch, output):
        def launch_and_look():
            if not case.layer:  # what an earlier launch left there is no answer of this one
                sets.restore_output(output)
            launch()
            seen[place] = look.at(output)
        return launch_and_look
    for place in places:
        launches[place] = looked_at(place, launches[place], sets.output(place % sets.count))
    sequence.clock.load(launches)
    sets.restore()
    sequence.clock.run()
    for place in places:
        number, told = place % sets.count, f"launch {place + 1} of the {len(launches)} timed"
        of_rows, of_idle = (look.part(seen[place], some) for some in (slice(count), slice(count, None)))
        missing = _missing(sets, expected, number, [TURN * number], of_rows)
        if missing:
            return [(f"{told} left a wrong output once x was another", missing)]
        written = idle_rows.changed(sets, number, idle, arrays.in_single(of_idle), expected.columns)
        if written:
            return [(f"{told} wrote rows without an adapter", written)]
    return []


def _wrong_with_other_weights(sequence, most_rows):
    """Launches of one set, no one knows which, on the x that was timed, with another number in B and then in A of each
    adapter, where they lie: an answer that is kept while x is the same shows."""
    sets, case = sequence.sets, sequence.sets.case
    expected, number = ExpectedRows(case, most_rows), int(np.random.default_rng().integers(sets.count))
    look = Look(sets, expected.rows, expected.columns)
    for x in sets.inputs:
        sets.arrays.assign(x, sets.x)
    sequence.clock.load([sets.launches[number]])
    sets.restore()
    sequence.clock.run()  # from here on the x of the launch before is that of the next
    for name, half, change in (("B", "expand", expected.change_b), ("A", "shrink", expected.change_a)):
        if case.meta[half]:
            change(TURN * number)
            sets.replace_weights(number, expected.replaced)
            sets.restore()
            sequence.clock.run()
            missing = _missing(sets, expected, number, [TURN * number], look.at(sets.output(number)))
            if missing:
                return [(f"a launch left a wrong output once {name} was another beside the same x", missing)]
    return []


class Look:
    """At some rows of an output, and of y at some columns."""

    def __init__(self, sets, rows, columns):
        self.arrays, self.axis = sets.arrays, 0 if sets.case.meta["expand"] else 1  # h has slices first
        self.rows, self.columns = self.arrays.index(rows), self.arrays.index(columns)

    def at(self, output):
        """Where it is: a graph may hold this."""
        rows = self.arrays.taken(output, self.rows, self.axis)
        return self.arrays.taken(rows, self.columns, 1) if self.axis == 0 else rows

    def part(self, seen, rows):
        return seen[rows] if self.axis == 0 else seen[:, rows]


def _missing(sets, expected, number, turns, seen):
    """How rows that were looked at lack what launches with weights turned so have to add, "" where they do not;
    `number` is the set of the last of them."""
    case, arrays = sets.case, sets.arrays
    before, left = expected.before(), arrays.in_single(seen)
    if case.layer:
        right, _ = base_product.some_in_double(sets, number, expected.rows, expected.columns)
        before = right.astype(np.float32)
    wanted = expected.left(turns, lambda values: arrays.kept(values, case.dtype), before)
    far = apart(left if case.meta["expand"] else left.swapaxes(0, 1), wanted, before)
    return f"{100 * far:.3g} % of what a row has to get is missing or too much" if not far <= MOST_APART else ""


def _graph_differs(sequence, left):
    """How the graph differs from its launches one by one, "" where it does not. Launches that leave another output each
    time add in no fixed order; the graph may then differ from them by a little more than they do from one another."""
    graph, one_by_one = left([sequence.clock.run]), left(sequence.launches)
    sets = sequence.sets
    how = _differs(sets, graph, one_by_one)
    if how and sequence.accumulates:
        apart = sets.arrays.largest(left(sequence.launches) - one_by_one)
        how = _differs(sets, graph, one_by_one, OF_ONE_BY_ONE * apart)
    return how


def _differs(sets, left, wanted, room=0):
    """Whether two outputs differ by more than the order of sums explains, or by more than `room` where that is more, or
    what was done is missing in one."""
    arrays = sets.arrays
    apart, size = arrays.largest(left - wanted), arrays.largest(wanted)
    done, needed = ((arrays.largest(y if sets.y_before is None else y - sets.y_before)) for y in (left, wanted))
    if apart <= max(MOST_OF_LARGEST * size, room) and done >= 0.5 * needed:
        return ""
    return f"up to {apart:.3g} of {size:.3g}"
