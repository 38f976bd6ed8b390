"""The pictures but `curve`. Each takes rows that are results, a row a measurement, and returns a figure."""
from dataclasses import dataclass, field

from matplotlib.colors import LogNorm, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from plotting.axes import (axes_of_panels, category_ticks, draw_map, is_wide, name_axes, set_scale, set_ticks,
                           short, tick_text, token_ticks, turn_of_columns, words_of)
from plotting.page import GREY, INK, new_page
from plotting.panels import going_along, panel_title, panels, shared_settings, varying
from plotting.rows import UsageError

BAR, BETWEEN_CASES = 0.118, 0.1  # inches
MOST_CASES = 64
DASHES = (0, (4, 2))
LINES_OF_RATIOS = {"floor_ratio": "floor: nothing left to gain", "stream_ratio": "one pass over all bytes"}
NO_RESULT = ["–  no result for this case and backend"]


@dataclass
class Wish:
    value: str
    title: str
    styles: dict  # backend: colour, marker, hatch
    foot: list = field(default_factory=list)
    asked: list = field(default_factory=list)  # the rows that are results, and those that are none
    thresholds: list = field(default_factory=list)  # of `curve`


def names(rows, key):
    return list(dict.fromkeys(row.text(key) for row in rows))


def under_title(rows):
    machines = dict.fromkeys(row.machine() for row in rows)
    builds = [f"commit {row.context['commit']}" for row in rows[:1] if row.context.get("commit")]
    if len({row.context.get("commit") for row in rows}) > 1:
        builds = ["several commits"]
    return " · ".join([" and ".join(machines), *builds, *shared_settings(rows)])


def bars(rows, wish):
    """Time over floor, or another value: a group of bars a case, a bar a backend."""
    keys = ["scenario", "case"] if varying(rows, ["scenario"]) else ["case"]
    cases = list(dict.fromkeys("/".join(row.text(key) for key in keys) for row in rows))
    backends = names(rows, "backend")
    at = rows_at(rows, lambda row: ("/".join(row.text(key) for key in keys), row.text("backend")))
    if len(cases) > MOST_CASES:
        raise UsageError(f"{len(cases)} cases do not fit in one picture (most {MOST_CASES}); choose with --filter, or "
                         "draw all of them sorted, a line a backend: plot.py curve")
    values = [row.number(wish.value) for row in rows]
    handles = [Patch(facecolor=wish.styles[backend]["color"], hatch=wish.styles[backend]["hatch"],
                     edgecolor="white", linewidth=0, label=backend) for backend in backends]
    if wish.value in LINES_OF_RATIOS:
        handles.append(floor_line([], [], LINES_OF_RATIOS[wish.value], wish))
    foot = wish.foot + NO_RESULT[:len(rows) < len(cases) * len(backends)]
    group = len(backends) * BAR + BETWEEN_CASES
    figure = new_page(0.5 + len(cases) * group, wish.title, under_title(rows), foot, handles)
    axes = figure.subplots()
    set_scale(axes.xaxis, values, is_wide(values), wish.value)
    start = axes.get_xlim()[0]
    for i, case in enumerate(cases):
        for j, backend in enumerate(backends):
            y, row = i * group + j * BAR, at.get((case, backend))
            value = row.number(wish.value) if row else start
            if row:
                style = wish.styles[backend]
                axes.barh(y, value - start, left=start, height=0.9 * BAR, facecolor=style["color"],
                          hatch=style["hatch"], edgecolor="white", linewidth=0)
            axes.annotate(short(value) if row else "–", (value, y), (3, 0), textcoords="offset points",
                          va="center", fontsize=6.8, color=INK if row else GREY)
    axes.set_yticks([i * group + (len(backends) - 1) * BAR / 2 for i in range(len(cases))], cases)
    axes.set_ylim(len(cases) * group - BAR / 2 - BETWEEN_CASES / 2, -BAR / 2 - BETWEEN_CASES / 2)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel(words_of(wish.value) + (", logarithmic" if is_wide(values) else ""))
    if wish.value in LINES_OF_RATIOS:
        axes.axvline(1, color=INK, linewidth=1.2, linestyle=DASHES)
    return figure


def rows_at(rows, place_of):
    """Rows by their place; another cache or mode at the same place is refused."""
    at = {}
    for row in rows:
        other = at.setdefault(place_of(row), row)
        if other is not row:
            differ = varying([other, row], ("cache", "mode"))
            choice = " or ".join(f"{key}={text}" for key in differ[:1] for text in names([other, row], key))
            raise UsageError(f"{other.place} and {row.place}: {row.name()} with another {' and '.join(differ)}, "
                             f"which fall on one place; choose with --filter {choice}")
    return at


def tokens(rows, wish):
    """Time against tokens in logarithms of both, the floor as a broken line."""
    empty = [row for row in rows if row.count("tokens") == 0]
    if empty:
        raise UsageError(f"{empty[0].place}: {empty[0].name()} has no tokens, and so no place on a logarithmic axis; "
                         "leave such rows out with --filter 'tokens>0'")
    place = ("backend", "tokens")
    keys, found = panels(rows, place)
    foot = wish.foot + words_along(found, place)
    figure, all_axes = curves(found, keys, wish, lambda row: row.count("tokens"), foot, words_of("tokens"), True)
    token_ticks(all_axes[0], sorted({row.count("tokens") for row in rows}), len(found) > 1)
    return figure


def skew(rows, wish):
    """Time against how the batch is spread over adapters: the laws in the order of the adapters they touch."""
    place = ("backend", "skew")
    keys, found = panels(rows, place)
    most_active = {}
    for row in rows:
        most_active[row.text("skew")] = max(row.count("active"), most_active.get(row.text("skew"), 0))
    laws = sorted(most_active, key=most_active.get)
    foot = wish.foot + words_along(found, (*place, "active"))
    figure, all_axes = curves(found, keys, wish, lambda row: laws.index(row.text("skew")), foot,
                              "law by which the batch chooses adapters, and how many it touches", False)
    active = {law: " or ".join(names([row for row in rows if row.text("skew") == law], "active")) for law in laws}
    category_ticks(all_axes[0], [f"{law}\n{active[law]}" for law in laws], len(found) > 1)
    return figure


def words_along(found, place, where="Along a line"):
    along = going_along(found, place)
    return [f"{where} change as well: {', '.join(along)}"] if along else []


def curves(found, keys, wish, x_of, foot, x_words, always_logarithmic):
    """A panel a group of rows, in it a line a backend, and the floor beside times."""
    rows = [row for group in found.values() for row in group]
    floors = {texts: floor_lines(group, x_of, wish.value) for texts, group in found.items()}
    foot += ["Broad bars: from the lower to the upper quartile of the samples"] if wish.value == "time_us" else []
    handles = [Line2D([], [], color=wish.styles[backend]["color"], marker=wish.styles[backend]["marker"],
                      label=backend) for backend in names(rows, "backend")]
    handles += [floor_line([], [], name, wish) for name in dict.fromkeys(name for lines in floors.values()
                                                                         for name in lines)]
    across = min(2, len(found))
    figure, all_axes = axes_of_panels(
        len(found), 3.6 if across == 1 else 2.5, across,
        lambda inches: new_page(inches, wish.title, under_title(rows), foot, handles))
    values = [row.number(wish.value) for row in rows]
    values += [end for row in rows for end in quartiles(row, wish)]
    values += [value for lines in floors.values() for line in lines.values() for value in line.values()]
    for axes, (texts, group) in zip(all_axes, found.items()):
        for name, line in floors[texts].items():
            axes.add_line(floor_line(list(line), list(line.values()), name, wish))
        for backend in names(group, "backend"):
            draw_line(axes, sorted((row for row in group if row.text("backend") == backend), key=x_of), wish, x_of)
        axes.set_title(panel_title(keys, texts))
        axes.grid()
    set_scale(all_axes[0].yaxis, values, always_logarithmic or is_wide(values), wish.value)
    name_axes(all_axes, across, x_words, words_of(wish.value))
    return figure, all_axes


def draw_line(axes, rows, wish, x_of):
    style = wish.styles[rows[0].text("backend")]
    x, y = [x_of(row) for row in rows], [row.number(wish.value) for row in rows]
    axes.plot(x, y, color=style["color"], marker=style["marker"], markeredgecolor="white", markeredgewidth=0.6)
    for row in rows:
        if ends := quartiles(row, wish):
            axes.vlines(x_of(row), *ends, color=style["color"], linewidth=3.2, alpha=0.35)


def quartiles(row, wish):
    """The lower and the upper one, where times are drawn and the row knows both."""
    ends = [row.number("time_q1_us"), row.number("time_q3_us")]
    return ends if wish.value == "time_us" and None not in ends else []


def floor_lines(rows, x_of, value):
    """{name: {x: floor}}: one line for all backends, or a line each where their floors differ by 5 % and more."""
    if value != "time_us":
        line = LINES_OF_RATIOS.get(value)
        return {line: {x_of(row): 1.0 for row in sorted(rows, key=x_of)}} if line else {}
    at = {}
    for row in rows:
        if row.number("floor_us") is not None:
            at.setdefault(x_of(row), []).append((row.number("floor_us"), row.text("backend")))
    at = dict(sorted(at.items()))
    if all(max(found)[0] < 1.05 * min(found)[0] for found in at.values()):
        return {"floor": {x: max(found)[0] for x, found in at.items()}} if at else {}
    return {f"floor of {backend}": {x: floor for x, found in at.items() for floor, its in found if its == backend}
            for backend in names(rows, "backend")}


def floor_line(x, y, name, wish):
    colour = wish.styles.get(name.removeprefix("floor of "), {"color": INK})["color"]
    # A line through one point is none; a dash is seen.
    return Line2D(x, y, color=colour, linestyle=DASHES, linewidth=1.2, label=name, markersize=14,
                  marker="_" if len(x) == 1 else "")


def heat(rows, wish):
    """A map of the value by rank and tokens for each backend."""
    place = ("rank", "tokens")
    refuse_what_is_no_grid(wish.asked, place)
    keys, found = panels(rows, place, ("backend",))
    foot = wish.foot + words_along(found, (*place, "ranks"), "Within a map")
    ranks, steps = (sorted({row.count(key) for row in rows}) for key in place)
    foot += NO_RESULT[:len(rows) < len(found) * len(ranks) * len(steps)]
    across = 1 if len(found) == 1 or len(steps) > 10 else 2
    inches = 0.6 + max(0.8, 0.33 * len(ranks))
    figure, all_axes = axes_of_panels(
        len(found), inches, across,
        lambda inches: new_page(inches, wish.title, under_title(rows), foot))
    values = [row.number(wish.value) for row in rows]
    norm = (LogNorm if is_wide(values) else Normalize)(min(values), max(max(values), 1.01 * min(values)))
    turned = turn_of_columns([*map(short, values), *map(tick_text, steps)], len(steps), across)
    for axes, (texts, group) in zip(all_axes, found.items()):
        at = {(row.count("rank"), row.count("tokens")): row.number(wish.value) for row in group}
        draw_map(axes, [[at.get((rank, step)) for step in steps] for rank in ranks], norm, turned)
        axes.set_xticks(range(len(steps)), map(tick_text, steps), rotation=turned)
        axes.set_yticks(range(len(ranks)), map(tick_text, ranks))
        axes.set_title(panel_title(keys, texts))
    name_axes(all_axes, across, words_of("tokens"), words_of("rank"))
    bar = figure.colorbar(all_axes[0].images[0], ax=all_axes, aspect=14, fraction=0.05, pad=0.02)
    bar.outline.set_visible(False)
    set_ticks(bar.ax.yaxis, norm.vmin, norm.vmax, isinstance(norm, LogNorm), most=int(4 * inches))
    bar.set_label(words_of(wish.value))
    return figure


def refuse_what_is_no_grid(asked, place):
    """Of steps that were drawn one by one hardly two share a row or a column: a map of them would be dashes."""
    down, across = (names(asked, key) for key in place)
    places, taken = len(down) * len(across), len({tuple(row.text(key) for key in place) for row in asked})
    if 2 * taken < places:
        raise UsageError(f"{len(down)} of {place[0]} by {len(across)} of {place[1]}, and only {taken} of these {places} "
                         "places have a row: a map would be mostly dashes; choose a grid with --filter, or draw all "
                         "points sorted: plot.py curve")
