"""The paper of every picture: its style, its title, legend and foot, and the check that no text lies on another."""
import io
import textwrap

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

WIDTH = 9.0  # inches: an SVG of 864 CSS pixels, as wide as a README shows
INK, GREY, RULE = "#222222", "#555555", "#d5d5d5"
# Okabe and Ito's palette without its yellow, told apart by colour-blind readers; marker and hatch tell it again.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "||||", "xxxx", "\\\\\\\\", "++++")
STYLE = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"], "font.size": 9,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": GREY, "axes.labelsize": 9,
    "axes.titlesize": 9.5, "axes.titlelocation": "left", "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False,
    "xtick.color": GREY, "ytick.color": GREY, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "grid.color": RULE, "grid.linewidth": 0.6, "legend.frameon": False, "legend.fontsize": 9,
    "hatch.linewidth": 0.7, "lines.linewidth": 1.6, "lines.markersize": 5.5,
    "svg.fonttype": "none", "svg.hashsalt": "lora-bench",
}
INCH_OF_TITLE, INCH_OF_LINE, INCH_OF_LEGEND = 0.34, 0.19, 0.23
LINE_LENGTH = 135  # characters of small text across the page


def series_style(backends):
    """Colour, marker and hatch of each backend, by its place among all of the files."""
    return {backend: {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)],
                      "hatch": HATCHES[i % len(HATCHES)]} for i, backend in enumerate(backends)}


def new_page(inches_of_axes, title, under_title, foot, handles=()):
    """A figure whose axes fill what title, legend and foot leave."""
    under = textwrap.wrap(under_title, LINE_LENGTH)
    feet = [line for note in foot for line in textwrap.wrap(note, LINE_LENGTH)]
    legend_rows = rows_of_legend(handles)
    head = INCH_OF_TITLE + INCH_OF_LINE * len(under) + INCH_OF_LEGEND * len(legend_rows) + 0.08
    bottom = 0.06 + INCH_OF_LINE * len(feet)
    height = head + inches_of_axes + bottom
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(rect=(0.005, bottom / height, 0.99, inches_of_axes / height))
    down = 0.08
    figure.text(0.012, 1 - down / height, title, fontsize=12.5, fontweight="bold", va="top")
    down = INCH_OF_TITLE
    for line in under:
        figure.text(0.012, 1 - down / height, line, color=GREY, fontsize=8.5, va="top")
        down += INCH_OF_LINE
    for row in legend_rows:
        figure.legend(handles=row, loc="upper left", bbox_to_anchor=(0.0065, 1 - down / height), ncol=len(row),
                      borderaxespad=0, borderpad=0.4, columnspacing=1.6, handlelength=2.2)
        down += INCH_OF_LEGEND
    for i, line in enumerate(reversed(feet)):
        figure.text(0.012, (0.06 + INCH_OF_LINE * i) / height, line, color=GREY, fontsize=8, va="bottom")
    return figure


def rows_of_legend(handles):
    """Rows of handles that fit the width: about 0.08 inches a letter and half an inch for the sign."""
    rows, room = [], 0.0
    for handle in handles:
        inches = 0.6 + 0.08 * len(handle.get_label())
        if not rows or inches > room:
            rows.append([])
            room = WIDTH - 0.2
        rows[-1].append(handle)
        room -= inches
    return rows


def drawn_texts(figure):
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        texts += [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            texts += [label for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
                      if low <= tick.get_loc() <= high for label in (tick.label1, tick.label2)]
    return [text for text in texts if text.get_visible() and text.get_text().strip()]


def misplaced_texts(figure):
    """Sentences about texts that lie on one another or beyond the page."""
    figure.canvas.draw()
    boxes = [(text.get_text(), text.get_window_extent()) for text in drawn_texts(figure)]
    said = [f"'{text}' reaches beyond the page" for text, box in boxes
            if box.x0 < 0 or box.y0 < 0 or box.x1 > figure.bbox.x1 or box.y1 > figure.bbox.y1]
    for i, (text, box) in enumerate(boxes):
        said += [f"'{text}' and '{other}' lie on one another" for other, its_box in boxes[i + 1:]
                 if box.x0 < its_box.x1 and its_box.x0 < box.x1 and box.y0 < its_box.y1 and its_box.y0 < box.y1]
    return said


def bytes_of(figure, suffix):
    """The picture as a file of this suffix; the same for the same rows whenever it is made."""
    kept = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}[suffix]
    out = io.BytesIO()
    figure.savefig(out, format=suffix[1:], dpi=200, metadata=kept)
    return out.getvalue()


def use_style():
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(STYLE)
