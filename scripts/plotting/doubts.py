"""What a row says that lora-bench would not have written: src/report/doubts.cpp in Python.

tests/golden/doubts.json holds both to the same sentences."""
import math
from statistics import median

TOLERANCE = 1e-6
LEVELS = ("exact", "bounded", "relations", "memory")
LEAST_SAMPLES, SAMPLES_FOR_MEDIAN = 2, 6
ORDERED = ("time_min_us", "time_q1_us", "time_us", "time_q3_us", "time_max_us")
OF_A_TIME = tuple(key for key in ORDERED if key != "time_us") + (
    "noise_us", "floor_ratio", "stream_ratio", "alone_us", "alone_ratio", "tokens_per_s", "bandwidth_GBps",
    "compute_TFLOPps")
RATES = (("tokens_per_s", "tokens", 1e-6), ("bandwidth_GBps", "bytes", 1e3), ("compute_TFLOPps", "flops", 1e6))
# Of two rows of one name: what they must agree in to be of one case.
OF_THE_CASE = ("op", "dtype", "tokens", "in_features", "out_features", "rank", "ranks", "seed")


def doubt_about(row):
    """One sentence, or "" where nothing contradicts itself."""
    for check in (_about_time, _about_work, _about_proof, _about_figures_of_time, _about_time_alone,
                  _about_samples, _about_rotation, _about_layer, _about_parts, _about_floor):
        doubt = check(row)
        if doubt:
            return doubt
    return ""


def other_case(left, right):
    """Whether two rows of the same names are of two cases: "" or in what they differ."""
    keys = OF_THE_CASE + (("content",) if left.text("content") and right.text("content") else ())
    for key in keys:
        one, other = left.text(key), right.text(key)
        if one != other:
            return f"another case of the same name: {key} '{one}' and '{other}'"
    return ""


def _agree(left, right):
    return abs(left - right) <= TOLERANCE * max(abs(left), abs(right))


def _is_time(value):
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0


def _about_time(row):
    time, samples = row.number("time_us"), row.values.get("samples_us") or []
    if time is not None and not _is_time(time):
        return "time_us is no positive number"
    if samples:
        if not all(_is_time(sample) for sample in samples):
            return "samples_us holds what is no positive number"
        if time is None or not _agree(time, median(samples)):
            return "time_us is not the median of samples_us"
        if row.number("samples") not in (None, len(samples)):
            return "samples is not the number of samples_us"
    known = [value for key in ORDERED if (value := row.number(key)) is not None]
    if any(later < earlier * (1 - TOLERANCE) for earlier, later in zip(known, known[1:])):
        return "the least time, the quartiles, the median and the longest time are not in order"
    for name in ("floor", "stream"):
        least, ratio = row.number(f"{name}_us"), row.number(f"{name}_ratio")
        if None not in (time, least, ratio) and not _agree(ratio * least, time):
            return f"{name}_ratio is not time_us over {name}_us"
    return ""


def _about_work(row):
    tokens, size, weights, flops = (row.number(key) or 0 for key in ("tokens", "bytes", "weight_bytes", "flops"))
    if min(tokens, size, weights, flops) < 0:
        return "tokens, bytes, weight_bytes or flops is below 0"
    if flops > 0 and weights == 0:
        return "weight_bytes is 0 beside flops, which need weights"
    return "weight_bytes is more than bytes" if weights > size else ""


def _are_levels(text):
    """Those that were proved, each once and in their order, "+" between them."""
    levels = text.split("+") if text else []
    return levels == [level for level in LEVELS if level in levels]


def _about_proof(row):
    if not _are_levels(row.text("levels")):
        return "levels are not exact, bounded, relations and memory, or some of them in this order"
    for key in ("bound_share", "rows_checked", "stolen_share"):
        share = row.number(key)
        if share is not None and not 0 <= share <= 1 + TOLERANCE:
            return f"{key} is no share from 0 to 1"
    if row.text("status") != "PASSED":
        return ""
    if not row.text("levels"):
        return "PASSED without a level that was proved"
    if row.text("peer") and row.text("levels") != "bounded":
        return "a peer PASSED at other levels than bounded"
    return "PASSED with wrong elements" if row.text("first_wrong") or row.text("hypothesis") else ""


def _about_figures_of_time(row):
    time = row.number("time_us")
    if time is None:
        some = any(row.number(key) is not None for key in OF_A_TIME)
        return "figures of a time without time_us" if some else ""
    noise, least, most = (row.number(key) for key in ("noise_us", "time_min_us", "time_max_us"))
    if None not in (noise, least, most) and noise > most - least + TOLERANCE * most:
        return "noise_us is more than the samples are apart"
    for key, units, scale in RATES:
        rate = row.number(key)
        if rate is not None and not _agree(rate * time * scale, row.number(units) or 0):
            return f"{key} is not {units} over time_us"
    return ""


def _about_time_alone(row):
    alone, noise, dropped, floor, ratio = (row.number(key) for key in (
        "alone_us", "alone_noise_us", "samples_dropped", "floor_us", "alone_ratio"))
    if alone is not None and not _is_time(alone):
        return "alone_us is no positive number"
    if (noise or 0) < 0 or (dropped or 0) < 0:
        return "alone_noise_us or samples_dropped is below 0"
    apart = None not in (alone, floor, ratio) and not _agree(ratio * floor, alone)
    return "alone_ratio is not alone_us over floor_us" if apart else ""


def _about_samples(row):
    if row.text("status") != "PASSED" or row.number("time_us") is None:
        return ""
    samples = row.number("samples")
    if samples is None:
        samples = len(row.values.get("samples_us") or [])
    if samples < LEAST_SAMPLES:
        return "PASSED with a time of fewer than two samples"
    unknown = samples < SAMPLES_FOR_MEDIAN and not row.text("warning")
    return "PASSED with too few samples to know the median, and no warning" if unknown else ""


def _is_rotated(row, sets, size):
    # Of one set; a whole layer rotates its base too, and of a shard its share.
    touched = {"hot": 0, "cold": row.number("bytes") or 0}.get(row.text("cache"), row.number("weight_bytes") or 0)
    return size % sets == 0 and (row.text("op") == "layer" or size // sets == touched)


def _about_rotation(row):
    known = [row.number(key) for key in ("rotation_sets", "launches", "rotated_bytes")]
    if row.text("peer") and row.text("status") == "PASSED" and row.number("time_us") is not None and None in known:
        return "a peer PASSED with a time and without launches, rotation_sets or rotated_bytes"
    # A sample goes round all sets as often as it has to.
    sets = 1 if known[0] is None else known[0]
    launches = sets if known[1] is None else known[1]
    if sets < 1 or launches < 1 or launches % sets != 0:
        return "launches are not once or more round all rotation_sets"
    cache, size = row.text("cache"), known[2]
    if cache == "hot" and sets > 1:
        return "hot weights, of which several sets were rotated"
    # What is cold lies in no cache: of one set, which every launch has, a run says how large it is.
    cold = cache in ("weights-cold", "cold") and (row.number("weight_bytes") or 0) > 0
    if cold and sets == 1 and size == 0:
        return "cold weights, of which no bytes were rotated"
    apart = None not in (known[0], size) and not _is_rotated(row, sets, size)
    return "rotated_bytes are not what rotation_sets hold" if apart else ""


def _about_layer(row):
    time, base, tax, percent, noise, least, ratio = (row.number(key) for key in (
        "time_us", "base_us", "tax_us", "tax_pct", "tax_noise_us", "tax_floor_us", "tax_ratio"))
    if any(value is not None and not value >= 0 for value in (noise, least, tax)):
        return "a tax, its noise or its floor is below 0"
    if base is not None and not _is_time(base):
        return "base_us is no positive number"
    if None not in (tax, time, base) and not _agree(base + tax, time):
        return "time_us is not base_us and tax_us"
    if None not in (base, time, noise):
        if noise < (row.number("noise_us") or 0) * (1 - TOLERANCE):
            return "tax_noise_us is less than noise_us"
        apart = abs(time - base) - noise
        if abs(apart) > TOLERANCE * time and (apart > 0) != (tax is not None):
            return ("tax_us is missing, though more than tax_noise_us" if tax is None
                    else "tax_us is no more than tax_noise_us")
    if None not in (tax, base, percent) and not _agree(percent * base, 100 * tax):
        return "tax_pct is not tax_us of base_us"
    apart = None not in (tax, least, ratio) and not _agree(ratio * least, tax)
    return "tax_ratio is not tax_us over tax_floor_us" if apart else ""


def _about_parts(row):
    noise, plan, zero, shrink, expand, gap = (row.number(key) for key in (
        "noise_us", "plan_us", "zero_us", "shrink_us", "expand_us", "gap_us"))
    if any(value is not None and not value >= 0 for value in (noise, plan, zero, shrink, expand)):
        return "noise_us, plan_us or a phase is below 0"
    # The parts of a layer are those of its tax.
    key = "time_us" if row.number("base_us") is None else "tax_us"
    whole = row.number(key)
    apart = None not in (whole, shrink, expand, gap) and not _agree((zero or 0) + shrink + expand + gap, whole)
    return f"{key} is not its phases and gap_us" if apart else ""


def _about_floor(row):
    floor, stream, time = row.number("floor_us"), row.number("stream_us"), row.number("time_us")
    for value, key in ((floor, "floor_us"), (stream, "stream_us")):
        if value is not None and not _is_time(value):
            return f"{key} is no positive number"
    if row.text("status") != "PASSED" or time is None:
        return ""
    if floor is None and stream is None:
        nothing_to_do = not row.number("bytes") and not row.number("flops")
        return "" if row.text("peer") or nothing_to_do else "PASSED with a time and without floor_us"
    size = row.number("bytes") or 0
    # Of one pass over all bytes cold weights at least must come from memory.
    share = (row.number("weight_bytes") or 0) / size if row.text("cache") != "hot" and size > 0 else 0
    least = max(floor or 0, (stream or 0) * share) * (1 - TOLERANCE)
    if time + (row.number("noise_us") or 0) < least:
        return "PASSED in a time below what the floor allows"
    base, of_tax = row.number("base_us"), row.number("tax_floor_us")
    if base is not None and of_tax is None:
        return "" if row.text("peer") else "PASSED with a base_us and without tax_floor_us"
    # What the adapters need at least is not the base's.
    below = base is not None and base + (row.number("tax_noise_us") or 0) < least - of_tax
    return "PASSED with a base_us below what the floor allows" if below else ""
