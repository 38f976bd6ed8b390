"""What timed launches have to leave in a few rows once x is another one there: an answer that was kept from
before, or a launch left out, shows."""
import numpy as np

from exported import widened

MOST_ROWS = 4
EFFECT = 16  # of the changed number on h, which else is about 1
MOST_APART = 0.1  # of what was added, in the root mean square: 16-bit h, delta and y take up to 0.02


class Changed:
    """A few rows, no one knows which, with another number each at one place of x."""

    def __init__(self, case):
        self.case = case
        dice = np.random.default_rng()
        owned = np.concatenate([rows for _, rows in case.groups])
        self.rows = np.sort(dice.choice(owned, min(MOST_ROWS, len(owned)), replace=False))
        self.x = self._numbers("x", self.rows)[:, :case.in_features]
        for row, x in zip(self.rows, self.x):
            k = dice.integers(case.in_features)
            lanes = np.concatenate([a[:, k] for a in self._of("a", row)])
            size = EFFECT / max(float(np.abs(lanes).mean()), 2.0**-10)
            x[k] = np.copysign(2.0**min(round(np.log2(size)), 14), -x[k])  # any type holds it as it is

    def before(self):
        """The output of these rows before any launch."""
        if not self.case.meta["expand"]:
            return np.float32(0)
        return self._numbers("y_before", self.rows)[:, self.case.columns]

    def left(self, turns, kept, before):
        """The output of these rows after launches whose weights are turned by so much; kept() rounds y as the peer's
        type does."""
        case = self.case
        if not case.meta["expand"]:
            return self._hidden([turns[-1]])[:, 0]
        y = before
        hidden = self._hidden(sorted(set(turns)))
        deltas = {turn: self._delta(hidden[:, number], turn) for number, turn in enumerate(sorted(set(turns)))}
        for turn in turns:
            y = kept(y + deltas[turn] if case.add_inputs else deltas[turn])
        return y

    def _numbers(self, name, index):
        values, kind = self.case.stored(name)
        return widened(values[index], kind)

    def _of(self, name, row):
        """The lanes in use, in all slices, of the adapter of a row."""
        slot = self.case.ids[row]
        rank = self.case.rank[slot]
        weights = [self._numbers(f"{name}.{i}", slot) for i in range(len(self.case.widths))]
        return [w[:rank] if name == "a" else w[:, :rank] for w in weights]

    def _hidden(self, turns):
        """[row][turn][slice][lane], times the scale; weights turned one way are x turned the other."""
        case = self.case
        h = np.zeros((len(self.rows), len(turns), len(case.widths), case.max_rank), np.float32)
        for number, (row, x) in enumerate(zip(self.rows, self.x)):
            turned = np.stack([np.roll(x, -turn) for turn in turns], 1)
            scale = case.scale[case.ids[row]] if case.meta["expand"] or case.meta["scale_at"] == "shrink" else 1
            for i, a in enumerate(self._of("a", row)):
                h[number, :, i, :len(a)] = (a @ turned).T * scale
        return h

    def _delta(self, hidden, turn):
        deltas = []
        for row, h in zip(self.rows, hidden):
            deltas.append(np.concatenate([np.roll(b @ h[i, :b.shape[1]], turn)
                                          for i, b in enumerate(self._of("b", row))]))
        return np.stack(deltas)


def apart(left, wanted, before):
    """How far the output is from the one wanted, as a share of what was to be added."""
    def size(values):
        return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
    added = size(wanted - before)
    return size(left - wanted) / added if added > 0 else size(left - wanted)
