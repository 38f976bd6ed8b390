"""What tests of pictures share: stored rows, and plot.py drawing them. Leaves with 77, which CTest counts as skipped,
where no matplotlib is."""
import contextlib
import csv
import importlib.util
import io
import os
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SYSTEM_PYTHON = "/usr/bin/python3"
if importlib.util.find_spec("matplotlib") is None:
    if sys.executable != SYSTEM_PYTHON and os.path.exists(SYSTEM_PYTHON):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    print("skipped: no python3 with matplotlib here (apt install python3-matplotlib)", file=sys.stderr)
    sys.exit(77)

CACHE = tempfile.TemporaryDirectory()
os.environ.setdefault("MPLCONFIGDIR", CACHE.name)
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "plot.py"
sys.path.insert(0, str(SCRIPT.parent))
import plot  # noqa: E402

ANCHORS = ROOT / "docs/results/2026-11-21-nvidia-h200-kernels/anchors.jsonl"
SMOKE = ROOT / "tests/golden/plot/smoke.csv"
SKEW = ROOT / "tests/golden/plot/skew.csv"


def texts_of(svg):
    nodes = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(node.itertext()) for node in nodes]


def short(value):
    """A figure as the pictures write it."""
    value = float(value)
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


class PlotTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_plot(self, *arguments):
        """Exit code and standard error."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            try:
                code = plot.main([str(argument) for argument in arguments])
            except SystemExit as ended:
                code = ended.code
        return code, said.getvalue()

    def drawn(self, kind, *arguments):
        """The texts of the picture, none on another, and standard error."""
        svg = self.folder / "picture.svg"
        code, said = self.run_plot(kind, *arguments, "--out", svg)
        self.assertEqual(code, 0, said)
        for misplaced in ("lie on one another", "beyond the page"):
            self.assertNotIn(misplaced, said)
        return texts_of(svg.read_text(encoding="utf-8")), said

    def refused(self, *arguments, code=1):
        """Standard error of a call that draws nothing."""
        out = self.folder / "refused.svg"
        got, said = self.run_plot(*arguments, *([] if "--out" in arguments else ["--out", out]))
        self.assertEqual(got, code, said)
        self.assertFalse(out.exists())
        return said

    def stored(self, file):
        with open(file, newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))

    def written(self, rows, name="rows.csv"):
        """A CSV of these rows."""
        path = self.folder / name
        with open(path, "w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        return path

    def changed(self, file, change, name="changed.csv", backwards=False):
        """A CSV with the rows of a stored one as change(row) leaves them."""
        rows = self.stored(file)[::-1 if backwards else 1]
        for row in rows:
            change(row)
        return self.written(rows, name)
