"""How a peer is timed: the method of docs/measuring.md, so that its rows may stand beside ours."""
import math
import time

import numpy as np

import base_product

MOST_LAUNCHES = 2048  # in a sequence
MOST_ROTATED = 2 << 30  # bytes beyond the first set
MOST_ACCUMULATED = {"fp32": 1024}  # launches that y takes before it is restored; 16-bit types:
MOST_ACCUMULATED_NARROW = 256
LEAST_SAMPLES = 6  # fewer say nothing about how well the median is known
TIMES_OVERDRAWN = 5
TURN = 97  # elements along K and N, from the weights of one set to those of the next
NOISY_SPREAD = 0.05


class Sets:
    """Operand sets of one peer on one case: other weights at other addresses in each, enough of them
    that a launch finds its own in no cache, and where they cannot be enough, an eviction instead."""

    def __init__(self, case, peer, arrays, cache_bytes, most_sets):
        self.case, self.peer, self.arrays = case, peer, arrays
        self.cold = case.meta["measure"]["cache"] == "cold"
        row = case.meta["row"]
        touched = {"weights-cold": row["weight_bytes"], "cold": row["bytes"], "hot": 0}[case.meta["measure"]["cache"]]
        self.x, self.y_before = given(case, arrays, "x"), given(case, arrays, "y_before")
        if case.layer:
            base_product.fill_rows(case, arrays, self.x)
        self.a, self.b = ([arrays.take(*case.stored(f"{name}.{i}")) if case.meta[half] else None
                           for i in range(len(case.widths))] for name, half in (("a", "shrink"), ("b", "expand")))
        self.states, self.launches, self.inputs, self.operands = [], [], [], []
        self.base_launches, self.base_weights = [], []  # of a layer: the same without the op
        self._add()
        self.count = self._affordable(touched, cache_bytes, most_sets)
        self.rotated_bytes = self.count * touched
        self.scratch = None
        if touched > 0 and self.rotated_bytes <= 3 * cache_bytes:
            self.scratch = arrays.scratch(2 * cache_bytes)

    def fill(self):
        while len(self.launches) < self.count:
            self._add()

    def restore(self):
        """All outputs as before the first launch: what does nothing must not find its result there."""
        for number in range(len(self.states)):
            self.restore_output(self.output(number))

    def restore_output(self, output):
        if self.case.meta["expand"]:
            self.arrays.assign(output, self.y_before)
        else:
            self.arrays.clear(output)

    def output(self, number=0):
        """What the op returns of a set: y, or h where it is shrink alone."""
        y, state = self.states[min(number, len(self.states) - 1)]
        return y if self.case.meta["expand"] else self.peer.hidden(state)

    def replace_weights(self, number, replaced):
        """Puts others into the operands of a set, where they lie: the same but for some numbers."""
        _, state = self.states[min(number, len(self.states) - 1)]
        other = self.peer.operands(state, *self._weights(number, replaced))
        self.operands.append(other)  # kept, as a table of addresses may say where they are
        if self.arrays.put_into(self.operands[number], other) == 0:
            raise ValueError("operands() returned no array in tuples, lists, dictionaries or attributes, so no weights "
                             "can be changed where they lie, as is done after timing (docs/peers.md, 'A peer of yours')")

    def evict(self):
        if self.scratch is not None:
            self.arrays.touch(self.scratch)

    def _add(self):
        number, arrays, peer = len(self.launches), self.arrays, self.peer
        if not self.states or self.cold:
            y = None if self.y_before is None else arrays.copied(self.y_before)
            x = None if self.x is None else arrays.copied(self.x)
            self.inputs.append(x)
            self.states.append((y, peer.prepare(self.case, x, y, arrays)))
        _, state = self.states[-1]
        operands = peer.operands(state, *self._weights(number))
        self.operands.append(operands)
        if not self.case.layer:
            self.launches.append(lambda: peer.launch(state, operands))
            return
        if number == 0:
            self.base_weights.append(base_product.weights(self.case, arrays))
        else:
            self.base_weights.append(arrays.turned(self.base_weights[0], TURN * number, 0))
        x, y, w = self.inputs[-1], self.states[-1][0], self.base_weights[-1]

        def base():
            arrays.product(x, w, y, self.case.dtype)

        def layer():
            base()
            peer.launch(state, operands)
        self.base_launches.append(base)
        self.launches.append(layer)

    def _weights(self, number, replaced=()):
        """A and B of a set: turned along K and N, so that padding stays where it is; before that some numbers of them
        are others."""
        halves = {"a": list(self.a), "b": list(self.b)}
        for (name, i, *place), value in dict(replaced).items():
            if halves[name][i] is getattr(self, name)[i]:
                halves[name][i] = self.arrays.copied(halves[name][i])
            halves[name][i][tuple(place)] = value
        return [[None if w is None else self.arrays.turned(w, TURN * number, axis) if number else self.arrays.copied(w)
                 for w in halves[name]] for name, axis in (("a", 2), ("b", 1))]

    def _affordable(self, touched, cache_bytes, most_sets):
        if touched == 0:
            return 1
        wanted = min(max(3 * cache_bytes // touched + 1, 2), most_sets)
        one = sum(self.arrays.bytes_of(w) for w in [*self.a, *self.b, *self.base_weights] if w is not None)
        if self.cold:
            one += sum(self.arrays.bytes_of(t) for t in (self.x, self.y_before) if t is not None)
        free = self.arrays.free_bytes()
        room = MOST_ROTATED if free is None else min(MOST_ROTATED, free // 2)
        return max(1, min(wanted, 1 + room // max(one, 1)))


def given(case, arrays, name):
    """x or y as a peer gets it: the columns that the op reads or owns, without padding between rows."""
    if not case.meta["shrink" if name == "x" else "expand"]:
        return None
    values, kind = case.stored(name)
    columns = slice(0, case.in_features) if name == "x" else case.columns
    return arrays.take(np.ascontiguousarray(values[:, columns]), kind)


class Sequence:
    """Launches that go round all sets, loaded into a clock; y is restored before it is too old. The launches of a
    layer begin with a product that overwrites y; `base` times that alone, in as many launches."""

    def __init__(self, sets, clock, base_clock=None):
        self.sets, self.clock, self.base_clock = sets, clock, base_clock
        narrow = MOST_ACCUMULATED.get(sets.case.dtype, MOST_ACCUMULATED_NARROW)
        self.accumulates = sets.case.meta["expand"] and sets.case.add_inputs and not sets.case.layer
        self.most_accumulated = narrow * len(sets.states)
        self.most_launches = self.most_accumulated if self.accumulates else MOST_LAUNCHES
        self.load(1)
        if sets.scratch is None:  # a second pass would find its sets in the cache
            passes = self._passes()
            if passes > 1:
                self.load(passes)

    def load(self, passes):
        self.launches = self.sets.launches * passes
        self.clock.load(self.launches)
        if self.base_clock is not None:
            self.base_clock.load(self.sets.base_launches * passes)
        self.sets.restore()
        self.accumulated = 0

    def run_seconds(self):
        if self.accumulates:
            if self.accumulated > 0 and self.accumulated + len(self.launches) > self.most_accumulated:
                self.sets.restore()
                self.accumulated = 0
            self.accumulated += len(self.launches)
        self.sets.evict()
        return self.clock.run_seconds()

    def base_seconds(self):
        self.sets.evict()
        return self.base_clock.run_seconds()

    def _passes(self):
        seconds = min(self.run_seconds(), self.run_seconds())
        if seconds >= self.clock.least_seconds:
            return 1
        count = self.sets.count
        most = max(1, min(MOST_LAUNCHES, self.most_launches) // count)
        for_time = int(self.clock.least_seconds / seconds) + 1 if seconds > 0 else most
        return min(max(-(-self.clock.least_launches // count), for_time), most)


def median_half_width(samples):
    """Half of the narrowest interval of order statistics that holds the median with 95 %."""
    count, below, rank = len(samples), 0.0, 0
    while 2 * (rank + 1) <= count:
        below += math.comb(count, rank) / 2**count
        if below > 0.025:
            break
        rank += 1
    ordered = sorted(samples)
    return math.inf if rank == 0 else (ordered[count - rank] - ordered[rank - 1]) / 2


def collect(sequence, settings):
    """Samples in seconds of one launch, those of the base of a layer taken in turn with them, and a warning where a
    limit came first."""
    base = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < settings["warmup_ms"] * 1e-3:
        sequence.run_seconds()
    samples, begin = [], time.perf_counter()
    least = max(settings["min_samples"], LEAST_SAMPLES)
    while len(samples) < max(settings["max_samples"], 2):
        spent = time.perf_counter() - begin
        most = settings["max_time_ms"] * 1e-3 * (TIMES_OVERDRAWN if len(samples) < least else 1)
        if len(samples) >= 2 and spent >= most:
            break
        if (len(samples) >= settings["min_samples"] and spent >= settings["min_time_ms"] * 1e-3
                and median_half_width(samples) <= settings["noise_target"] * np.median(samples)):
            return samples, base, ""
        if sequence.base_clock is not None:
            base.append(sequence.base_seconds() / len(sequence.launches))
        samples.append(sequence.run_seconds() / len(sequence.launches))
    known = median_half_width(samples) / np.median(samples)
    if known <= settings["noise_target"]:
        return samples, base, ""
    if math.isinf(known):
        return samples, base, f"limit reached after {len(samples)} samples: too few to know the median"
    return samples, base, (f"limit reached: median known to {100 * known:.1f} %, "
                           f"target {100 * settings['noise_target']:.1f} %")


def columns_of(samples, warning, sequence):
    """The columns of a row that a measurement fills."""
    times = [1e6 * seconds for seconds in samples]
    least, q1, median, q3, most = (float(v) for v in np.quantile(times, [0, 0.25, 0.5, 0.75, 1]))
    gap = abs(float(np.median(times[0::2])) - float(np.median(times[1::2])))
    half_width = median_half_width(times)
    noise = max(gap, (most - least) / 2 if math.isinf(half_width) else half_width)
    warnings = [text for text in (warning, sequence.clock.warning) if text]
    if q3 - q1 > NOISY_SPREAD * median:
        warnings.append(f"noisy: quartiles {100 * (q3 - q1) / median:.0f} % of the median apart")
    return {"time_us": median, "time_min_us": least, "time_q1_us": q1, "time_q3_us": q3, "time_max_us": most,
            "noise_us": noise, "samples_us": times, "samples": len(times), "launches": len(sequence.launches),
            "rotation_sets": sequence.sets.count, "rotated_bytes": sequence.sets.rotated_bytes,
            "warning": "; ".join(warnings)}


def tax_columns(samples, base_samples, noise_us):
    """The columns that a layer has beside those of an op: what it takes more than its base alone."""
    times, base = (1e6 * np.array(some) for some in (samples, base_samples))
    base_us = float(np.median(base))
    tax_us = float(np.median(times)) - base_us
    apart = [float(pair) for pair in times - base]
    half_width = median_half_width(apart)
    known = (max(apart) - min(apart)) / 2 if np.isinf(half_width) else half_width
    tax_noise_us = max(known, abs(float(np.median(apart)) - tax_us), noise_us, -tax_us)
    columns = {"base_us": base_us, "tax_noise_us": tax_noise_us}
    if abs(tax_us) <= tax_noise_us:
        return columns, f"tax < noise ({tax_noise_us:.3g} us)"
    return {**columns, "tax_us": tax_us, "tax_pct": 100 * tax_us / base_us}, ""
