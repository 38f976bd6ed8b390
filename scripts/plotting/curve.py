"""All points of a wide scenario in one picture: the values of each backend, sorted."""
from statistics import geometric_mean

from matplotlib.lines import Line2D

from plotting.axes import axes_of_panels, name_axes, set_scale, short, words_of
from plotting.page import GREY, INK, new_page
from plotting.panels import panel_title, panels
from plotting.pictures import names, under_title

# What the points of a scenario range over: it parts no panels here, as it does where a line is one shape's.
POINT = ("backend", "case", "model", "layer", "layer_kind", "tp", "fully_sharded", "comm", "in_features",
         "out_features", "rank")
MARKERS_OF_A_LINE = 12
DOTS = (0, (1, 1.6))
ENDS_EARLY = ["A line that ends before 100 %: of the other points that backend has no result"]


def curve(rows, wish):
    """A line a backend: at x % of all points it has a value of at most y. It ends where it has no further result."""
    keys, found = panels(rows, POINT)
    points = {texts: count_points(wish.asked, keys, texts) for texts in found}
    handles = [Line2D([], [], color=wish.styles[backend]["color"], marker=wish.styles[backend]["marker"],
                      label=backend) for backend in names(rows, "backend")]
    handles.append(Line2D([], [], color=GREY, linestyle=DOTS, linewidth=1.2, label="geometric mean"))
    foot = wish.foot + ENDS_EARLY[:any(len(its) < points[texts] for texts, group in found.items()
                                       for its in values_of(group, wish).values())]
    foot += [sentence for texts, group in found.items()
             for sentence in figures_of(group, points[texts], panel_title(keys, texts), wish)]
    across = min(2, len(found))
    figure, all_axes = axes_of_panels(
        len(found), 4.4 if across == 1 else 2.7, across,
        lambda inches: new_page(inches, wish.title, under_title(rows), foot, handles))
    for axes, (texts, group) in zip(all_axes, found.items()):
        draw_panel(axes, group, points[texts], wish)
        axes.set_title(panel_title(keys, texts))
    all_axes[0].set_xlim(0, 102)
    set_scale(all_axes[0].yaxis, [row.number(wish.value) for row in rows] + wish.thresholds, True, wish.value)
    name_axes(all_axes, across, "share of the points (%), those of the least value first", words_of(wish.value))
    return figure


def count_points(asked, keys, texts):
    """Those that failed are points as well: a backend that has no result of some ends before 100 %."""
    return len({(row.text("scenario"), row.text("case")) for row in asked
                if tuple(row.text(key) for key in keys) == texts})


def values_of(rows, wish):
    """{backend: its values, the least first}"""
    return {backend: sorted(row.number(wish.value) for row in rows if row.text("backend") == backend)
            for backend in names(rows, "backend")}


def draw_panel(axes, rows, points, wish):
    for place, (backend, values) in enumerate(values_of(rows, wish).items()):
        style = wish.styles[backend]
        every = max(1, len(values) // MARKERS_OF_A_LINE)
        axes.axhline(geometric_mean(values), color=style["color"], linestyle=DOTS, linewidth=1.2)
        # Each marks other points than the one before: lines that touch are told apart.
        axes.plot([100 * (i + 1) / points for i in range(len(values))], values, color=style["color"],
                  marker=style["marker"], markevery=(place * every // len(wish.styles), every),
                  markeredgecolor="white", markeredgewidth=0.6)
    for threshold in wish.thresholds:
        axes.axhline(threshold, color=INK, linewidth=0.8)
        axes.annotate(f"{threshold:g}", (1, threshold), (3, 0), xycoords=("axes fraction", "data"),
                      textcoords="offset points", va="center", fontsize=8.5)
    axes.grid()


def figures_of(rows, points, title, wish):
    """The geometric means and what the thresholds part, in words."""
    start = f"{title}: g" if title else "G"
    values = values_of(rows, wish)
    means = [f"{backend} {short(geometric_mean(its))} ({len(its)})" for backend, its in values.items()]
    said = [f"{start}eometric mean (of so many of {points} points): {', '.join(means)}"]
    for threshold in wish.thresholds:
        within = [f"{backend} {sum(value <= threshold for value in its)}" for backend, its in values.items()]
        said.append(f"{title + ': a' if title else 'A'}t most {threshold:g}, of {points} points: {', '.join(within)}")
    return said
