"""Which rows share a set of axes: those that differ in nothing but what the axes show."""
from plotting.rows import UsageError, to_number

# Rows that differ in one of these are never joined by a line nor put in one map.
APART = ("scenario", "model", "op", "dtype", "layer", "layer_kind", "tp", "fully_sharded", "comm", "in_features",
         "out_features", "rank", "cache")
# These may go along with what an axis shows (slots with tokens); they part rows only at one place of it.
ALONG = ("mode", "intermediate", "scale_at", "slots", "active", "ranks", "skew", "order", "no_adapter",
         "add_inputs", "bias", "seed", "overlap", "tuning", "plan_limits", "semantics")
MOST_PANELS = 12


def varying(rows, keys):
    return [key for key in keys if len({row.text(key) for row in rows}) > 1]


def split(rows, keys):
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row.text(key) for key in keys), []).append(row)
    return groups


def panels(rows, place_keys, also_apart=()):
    """The rows of each panel, by the texts of the keys that part them. `place_keys` name one place in a panel."""
    keys = []
    for key in varying(rows, (*also_apart, *APART)):
        if key not in place_keys and len(split(rows, (*keys, key))) > len(split(rows, keys)):
            keys.append(key)
    while crowded := next((group for group in split(rows, (*keys, *place_keys)).values() if len(group) > 1), None):
        swept = sorted({key for row in rows for key in row.point})
        more = varying(crowded, (*ALONG, *swept))
        if not more:
            raise UsageError(f"{crowded[0].place} and {crowded[1].place}: {crowded[0].name()} and "
                             f"{crowded[1].name()} fall on one place of the picture; choose with --filter case=...")
        keys.append(more[0])
    found = split(rows, keys)
    if len(found) > MOST_PANELS:
        choices = "; ".join(f"{key}: {', '.join(dict.fromkeys(row.text(key) for row in rows))}" for key in keys)
        raise UsageError(f"{len(found)} panels do not fit in one picture (most {MOST_PANELS}); choose with "
                         f"--filter KEY=VALUE of {choices}")
    return keys, found


def panel_title(keys, texts):
    return ", ".join(text if key in ("scenario", "model", "op", "dtype", "layer", "backend", "cache", "skew", "mode")
                     else f"{key} {text}" for key, text in zip(keys, texts) if text)


def shared_settings(rows):
    """What all rows have in common, for the line under the title."""
    words = []
    if not varying(rows, ("in_features", "out_features")):
        words.append(f"in {rows[0].text('in_features')}, out {rows[0].text('out_features')}")
    for key in ("model", "layer", "op", "dtype", "rank", "tokens", "tp", "fully_sharded", "cache", "mode"):
        if not varying(rows, (key,)) and rows[0].text(key) not in ("", "custom"):
            bare = key not in ("rank", "tokens", "tp", "fully_sharded")
            words.append(rows[0].text(key) if bare else f"{key} {rows[0].text(key)}")
    return words


def going_along(found, place_keys):
    """Settings that change beside what the axes show, along a line or within a map: words with what they take."""
    lines = [line for group in found.values() for line in split(group, ("backend",)).values()]
    words = []
    for key in ALONG:
        if key not in place_keys and any(varying(line, (key,)) for line in lines):
            texts = list(dict.fromkeys(row.text(key) or "none" for line in lines for row in line))
            if all(to_number(text) is not None for text in texts):
                texts.sort(key=to_number)
            words.append(f"{key} ({texts[0]} to {texts[-1]})" if len(texts) > 3 else f"{key} ({', '.join(texts)})")
    return words
