"""Rows of lora-bench's results files: read, filtered, and freed of what is no result."""
import csv
import difflib
import fnmatch
import hashlib
import io
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from plotting.doubts import doubt_about, other_case

# What tells measurements apart; repeats of one differ in none of these.
IDENTITY = ("scenario", "case", "backend", "cache", "mode")
NEEDED = IDENTITY + ("repetition", "status", "levels", "warning", "layer", "tokens", "active", "rank", "skew")


class UsageError(Exception):
    """A sentence with the place, the cause and what to do."""


@dataclass
class Row:
    values: dict   # column: value as it is stored
    point: dict    # swept key: value
    place: str     # FILE:LINE
    context: dict  # what a .jsonl file says of its machine; empty for a CSV
    changed: bool = False  # since it was written, as its seal tells

    def text(self, key):
        value = self.values.get(key, self.point.get(key))
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (int, float)):
            return f"{value:.12g}"
        return ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)

    def number(self, key):
        """None where the row does not know it."""
        text = self.text(key)
        if text and to_number(text) is None:
            raise UsageError(f"{self.place}: column '{key}' is '{text}', no number; choose one of numbers "
                             "(`lora-bench list metrics`)")
        return to_number(text)

    def count(self, key):
        """A number that no row of a file as the tool writes it is without."""
        number = self.number(key)
        if number is None:
            raise UsageError(f"{self.place}: '{key}' is empty; give a file as `lora-bench run --out` wrote it")
        return number

    def machine(self):
        name = self.context.get("cpu" if self.values["mode"] == "host" else "device_name")
        return name or "machine not named (CSV)"

    def name(self):
        return f"{self.values['case']} on {self.values['backend']}"


def to_number(text):
    try:
        return float(text)
    except ValueError:
        return None


def read_rows(files, note):
    rows = []
    for file in files:
        read = {".jsonl": read_jsonl, ".csv": read_csv}.get(Path(file).suffix)
        if read is None:
            raise UsageError(f"{file}: not a .jsonl or .csv file, as `lora-bench run --out FILE` writes them")
        try:
            text = Path(file).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{file}: is no text; give what `lora-bench run --out FILE` wrote") from error
        found = read(file, text, note)
        if not found:
            raise UsageError(f"{file}: holds no row; did the run end before its first one?")
        rows += found
    for row in rows:
        for key in NEEDED:
            if key not in row.values:
                raise UsageError(f"{row.place}: no column '{key}'; give a file as `lora-bench run --out` "
                                 "writes it")
    refuse_other_machines(rows, note)
    return sorted(rows, key=order_of)


def order_of(row):
    """What no row tells is the order of a scenario's cases, and `run --shuffle` leaves no trace of it in a file: rows
    stand by their names instead, numbers in them as numbers (decode8 before decode32), peers behind ours."""
    def parts(key):
        return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", row.text(key))]
    return parts("scenario"), parts("case"), is_peer(row), parts("backend")


def is_peer(row):
    """A kernel of another project: a row of earlier versions says so, others where the file of the backend lies."""
    return row.text("peer") != "" or "/lora_bench/peers/" in row.text("plugin")


def keys_once(pairs):
    """JSON leaves open which of two values of one key counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def is_changed(line, sealed):
    """Whether the seal of a line is that of another, or missing where lines are sealed (src/report/json_text.h)."""
    body, mark, seal = line.rstrip().rpartition(',"seal":"')
    if not mark:
        return sealed
    return hashlib.sha256((body + "}").encode()).hexdigest()[:16] + '"}' != seal


def read_jsonl(file, text, note):
    rows, context = [], None
    for number, line in enumerate(io.StringIO(text), start=1):
        place = f"{file}:{number}"
        try:
            entry = json.loads(line, object_pairs_hook=keys_once) if line.strip() else {"kind": "blank"}
            kind, point = entry["kind"], dict(entry.get("point", {}))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if context is not None and not line.endswith("\n"):
                note(f"{place}: last line is cut in the middle; dropped")
                break
            raise UsageError(f"{place}: no line of a results file; give what `lora-bench run --out "
                             "FILE.jsonl` wrote") from error
        if kind == "context":
            context = entry
            if entry.get("schema") not in (1, 2):
                raise UsageError(f"{place}: schema {entry.get('schema')}, of which this script knows only 1 and 2; draw "
                                 "with the plot.py of the lora-bench that wrote it")
        elif kind == "row":
            if context is None:
                raise UsageError(f"{place}: a row before any context; the first line of the file is missing")
            rows.append(Row(with_stream(entry) if context["schema"] == 1 else entry, point, place, context,
                            is_changed(line, context.get("sealed", False))))
    return rows


def with_stream(entry):
    """A row of schema 1, whose floor is one pass over all bytes: today's stream_us, and no floor."""
    renamed = {"floor_us": "stream_us", "floor_ratio": "stream_ratio"}
    kept = {renamed.get(key, key): value for key, value in entry.items() if key != "bound_by"}
    return {**kept, "floor_us": None, "floor_ratio": None}


def read_csv(file, text, _note):
    reader = csv.DictReader(io.StringIO(text, newline=""))
    rows = []
    for values in reader:
        place = f"{file}:{reader.line_num}"
        if None in values or None in values.values():
            raise UsageError(f"{place}: more or fewer cells than the header has columns; is the file whole?")
        # A value may hold commas itself: [8,16].
        pairs = re.findall(r"([^=,]+)=((?:[^,]|,(?![^,]+=))*)", values.get("point", ""))
        rows.append(Row(values, dict(pairs), place, {}))
    return rows


def refuse_other_machines(rows, note):
    named = [row for row in rows if row.context]
    for row in named:
        first = named[0]
        for key in ("device_name", "device_identity"):
            one, other = first.context.get(key), row.context.get(key)
            if one != other:
                raise UsageError(f"{first.place} and {row.place}: two machines ('{one}' and '{other}') in one "
                                 "picture, whose times cannot be compared; draw a picture of each")
    builds = sorted({str(row.context.get("commit")) for row in named})
    if len(builds) > 1:
        note(f"rows of several builds in one picture: {', '.join(builds)}")
    if len(named) < len(rows) and len({row.place.rpartition(":")[0] for row in rows}) > 1:
        note("a CSV does not name its machine: only .jsonl files show that all rows are from one")


def check_key(rows, key, what):
    known = sorted({key for row in rows for key in (*row.values, *row.point)})
    if key not in known:
        near = difflib.get_close_matches(key, known, 1)
        raise UsageError(f"{what}: unknown column '{key}'; " +
                         (f"did you mean '{near[0]}'?" if near else "see `lora-bench list metrics`"))


def filtered(rows, expressions):
    """The rows for which every COLUMN OP VALUE holds, as with `lora-bench report --filter`."""
    for expression in expressions:
        what = f"--filter '{expression}'"
        parts = re.fullmatch(r"\s*([^=!<>\s]+)\s*(!=|>=|<=|==|=|<|>)\s*(.*?)\s*", expression)
        if not parts:
            raise UsageError(f"{what}: no operator; write COLUMN OP VALUE with = != >= <= > <")
        key, operator, wanted = parts.groups()
        check_key(rows, key, what)
        if operator[0] in "<>" and to_number(wanted) is None:
            raise UsageError(f"{what}: {operator} compares with a number")
        rows = [row for row in rows if holds(row, key, operator, wanted)]
        if not rows:
            raise UsageError(f"{what}: no row is left to draw; `lora-bench report FILE` shows what there is")
    return rows


def holds(row, key, operator, wanted):
    left, right = to_number(row.text(key)), to_number(wanted)
    if operator[0] in "<>":
        return left is not None and {"<": left < right, "<=": left <= right,
                                     ">": left > right, ">=": left >= right}[operator]
    if left is not None and right is not None:
        equal = left == right
    else:
        texts = row.text(key).split(",") if key == "tags" else [row.text(key)]
        equal = any(fnmatch.fnmatchcase(text, wanted) for text in texts)
    return equal != (operator == "!=")


def why_no_result(row, value):
    """"" for a row that was proved, knows a positive value and does not contradict itself."""
    if row.values["status"] != "PASSED":
        return row.values["status"]
    doubt = doubt_about(row) or ("changed after it was written" if row.changed else "")
    if doubt:
        return doubt
    number = row.number(value)
    if number is None:
        return f"without {value}"
    return "" if number > 0 and math.isfinite(number) else f"{value} is no positive number"


def results(rows, value, note):
    """A row a measurement, of those proved and timed, repeats as their median; and counts of the others in words.
    A repeat that is no result stands for all of its measurement."""
    check_key(rows, value, "--value")
    measurements = {}
    for row in rows:
        measurements.setdefault(tuple(row.text(key) for key in IDENTITY), []).append(row)
    kept, left_out = [], {}
    for repeats in measurements.values():
        refuse_same_repeat(repeats)
        reasons = [why_no_result(row, value) or other_case(repeats[0], row) for row in repeats]
        if not any(reasons):
            kept.append(median_row(repeats, value))
            continue
        for row, why in zip(repeats, reasons):
            left_out.setdefault(why or "beside a repeat that is no result", []).append(row)
    for why, left in left_out.items():
        note(f"not drawn: {len(left)} {why}, the first: {left[0].name()} ({left[0].place})")
    counts = ", ".join(f"{len(left)} {why}" for why, left in left_out.items())
    without = [row for key in ("floor_ratio", "stream_ratio") for row in left_out.get(f"without {key}", [])]
    if any(row.text("peer") for row in without):
        note("rows of peers of earlier versions have no floor; `lora-bench report OURS.jsonl THEIRS.jsonl --out "
             "BOTH.jsonl` lends them ours")
    if not kept:
        hint = ("; --value stream_ratio or time_us draws rows without a floor" if "without floor_ratio" in left_out
                else "")
        raise UsageError(f"{rows[0].place}: no row is left to draw: {counts}{hint}")
    return kept, counts


def refuse_same_repeat(repeats):
    found = {}
    for row in repeats:
        other = found.setdefault(row.text("repetition"), row)
        if other is not row:
            raise UsageError(f"{other.place} and {row.place}: the same measurement twice, {row.name()}; draw "
                             "one run a picture")


def median_row(repeats, value):
    first = repeats[0]
    middle = {}
    for key in {value, "time_us", "floor_us", "floor_ratio", "stream_us", "stream_ratio", "time_q1_us",
                "time_q3_us"} & first.values.keys():
        known = [number for row in repeats if (number := row.number(key)) is not None]
        middle[key] = median(known) if known else None
    return Row({**first.values, **middle}, first.point, first.place, first.context)
