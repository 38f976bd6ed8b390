"""Axes: their words, scales and ticks, and how several share a page."""
import math

from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from plotting.page import GREY, WIDTH

WORDS = {"time_us": "time of a launch (µs)", "floor_us": "floor (µs)", "plan_us": "time to group the ids (µs)",
         "base_us": "time without adapters (µs)", "tax_us": "what adapters add (µs)",
         "tax_pct": "what adapters add (%)", "tax_ratio": "tax / its floor",
         "floor_ratio": "time / floor", "stream_ratio": "time / one pass over all bytes",
         "touch_us": "time to touch all operands (µs)", "tokens_per_s": "tokens per second",
         "bandwidth_GBps": "bandwidth (GB/s)", "compute_TFLOPps": "compute (TFLOP/s)",
         "tokens": "tokens in the step", "rank": "rank"}
TITLES = {"time_us": "Time", "floor_ratio": "Time over floor", "stream_ratio": "Time over one pass over all bytes",
          "bandwidth_GBps": "Bandwidth",
          "compute_TFLOPps": "Compute", "tokens_per_s": "Tokens per second", "base_us": "Time of the base",
          "tax_us": "Tax", "tax_pct": "Tax", "tax_ratio": "Tax over its floor"}
WIDE = 12  # largest over smallest value from which an axis is logarithmic


def words_of(key):
    return WORDS.get(key, key)


def short(value):
    """Three digits, as in the tables of the tool."""
    if value >= 1e6:
        return f"{value:.3g}"
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 4}f}"


def tick_text(value):
    """Thousands in groups; a narrow no-break space parts them."""
    return f"{value:,.0f}".replace(",", "\u202f") if value >= 1e4 else f"{value:.4g}"


def is_wide(values):
    return max(values) > WIDE * min(values)


def set_scale(axis, values, logarithmic, key):
    is_x = axis.axis_name == "x"
    low, high = min(values), max(values)
    if logarithmic:
        (axis.axes.set_xscale if is_x else axis.axes.set_yscale)("log")
        margin = 1.15 * (high / low) ** 0.04
        # A ratio has its beginning at 1.
        low, high = 1.0 if key in ("floor_ratio", "stream_ratio") and low >= 1 else low / margin, high * margin
    else:
        low, high = 0, 1.08 * high
    (axis.axes.set_xlim if is_x else axis.axes.set_ylim)(low, high)
    set_ticks(axis, low, high, logarithmic)


def set_ticks(axis, low, high, logarithmic, most=10):
    """At 1, 2, 5 of each decade, at 1 where that is too many; or at some even step."""
    axis.set_minor_locator(NullLocator())
    for steps in ((1, 2, 5), (1,)):
        ticks = [step * 10.0 ** power for power in range(-9, 16) for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            break
    if not logarithmic or len(ticks) < 2:
        ticks = MaxNLocator(min(6, most), steps=(1, 2, 5, 10)).tick_values(low, high)
        ticks = [tick for tick in ticks if low <= tick <= high]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter([tick_text(tick) for tick in ticks]))


def axes_of_panels(count, inches, across, page):
    """A figure from page(inches) and its axes, `across` beside one another, all of one scale."""
    down = math.ceil(count / across)
    figure = page(inches * down)
    grid = list(figure.subplots(down, across, sharex="all", sharey="all", squeeze=False).flat)
    for unused in grid[count:]:
        unused.remove()
    return figure, grid[:count]


def name_axes(all_axes, across, x_words, y_words):
    """The words and figures of an axis stand at the outer panels only, below the last of each column."""
    for i, axes in enumerate(all_axes):
        lowest = i + across >= len(all_axes)
        axes.tick_params(labelbottom=lowest)
        axes.set(xlabel=x_words if lowest else "", ylabel=y_words if i % across == 0 else "")


def token_ticks(axes, values, narrow):
    """The tokens that were measured, without those whose text would lie on the one before."""
    axes.set_xscale("log", base=2)
    low, high = values[0], values[-1]
    margin = 1.2 * (high / low) ** 0.03
    axes.set_xlim(low / margin, high * margin)
    least = (high * margin ** 2 / low) ** (0.11 if narrow else 0.055)
    ticks = []
    for value in values:
        if not ticks or value >= least * ticks[-1]:
            ticks.append(value)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([tick_text(tick) for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())


def category_ticks(axes, texts, narrow):
    """Of two lines each, or slanted where they would lie on one another."""
    inches = (WIDTH - 1) / (2 if narrow else 1)
    slanted = max(len(line) for text in texts for line in text.split("\n")) * len(texts) * 0.08 > inches
    texts = [text.replace("\n", ", ") for text in texts] if slanted else texts
    axes.set_xlim(-0.4, len(texts) - 0.6)
    axes.set_xticks(range(len(texts)), texts, rotation=35 if slanted else 0, ha="right" if slanted else "center",
                    rotation_mode="anchor")


def turn_of_columns(texts, columns, across):
    """Degrees by which the figures of a map are turned: upright where its columns are narrower than they are."""
    return 90 if max(map(len, texts)) * 0.085 > (WIDTH - 2) / across / columns else 0


def draw_map(axes, grid, norm, turned):
    """Cells with their figures; light is little, so that what is far from the floor is dark."""
    masked = [[float("nan") if value is None else value for value in line] for line in grid]
    image = axes.imshow(masked, cmap="cividis_r", norm=norm, aspect="auto", origin="lower")
    for y, line in enumerate(grid):
        for x, value in enumerate(line):
            red, green, blue, _ = image.cmap(norm(value)) if value is not None else (1, 1, 1, 1)
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.47
            axes.text(x, y, "–" if value is None else short(value), ha="center", va="center", fontsize=8.5,
                      color=GREY if value is None else "white" if dark else "black",
                      rotation=0 if value is None else turned)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
