#!/usr/bin/env python3
"""Pictures of results: what `lora-bench run --out rows.jsonl` wrote, as PNG or SVG.

  plot.py bars rows.jsonl --out rows.png       time over floor, by case and backend
  plot.py tokens rows.jsonl --out rows.svg     time against tokens, with the floor
  plot.py heat rows.jsonl --out rows.png       time over floor by rank and tokens
  plot.py skew rows.jsonl --out rows.png       time against the spread over adapters
  plot.py curve rows.jsonl --out rows.png      time over floor of all points, sorted

Only rows that were proved and timed are drawn; standard error says which are not. Exit code 0: drawn; 1: a
command line or file that makes no sense; 5: no matplotlib, or a file that cannot be written.
"""
import argparse
import math
import sys
from pathlib import Path

from plotting.rows import UsageError, filtered, read_rows, results

USAGE, ENVIRONMENT = 1, 5
# What each kind draws unless told otherwise, and its title.
KINDS = {"bars": ("floor_ratio", "{} by case and backend"),
         "tokens": ("time_us", "{} against tokens"),
         "heat": ("floor_ratio", "{} by rank and tokens"),
         "skew": ("time_us", "{} against the spread over adapters"),
         "curve": ("floor_ratio", "{} of all points, sorted")}


def say(text):
    print(f"plot.py: {text}", file=sys.stderr)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        say(f"{message}; see plot.py --help")
        sys.exit(USAGE)


def parse(arguments):
    parser = Parser(prog="plot.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("file", nargs="+", help="results of one machine, .jsonl or .csv")
    parser.add_argument("--out", action="append", required=True, metavar="FILE", help=".png or .svg; may be repeated")
    parser.add_argument("--filter", action="append", default=[], metavar="'COLUMN OP VALUE'",
                        help="draw the rows for which it holds, as with `lora-bench report`; may be repeated")
    parser.add_argument("--value", metavar="COLUMN", help="what to draw: floor_ratio, time_us, bandwidth_GBps ...")
    parser.add_argument("--threshold", type=float, action="append", default=[], metavar="NUMBER",
                        help="`curve`: a line at this value, and how many points stay below it; may be repeated")
    parser.add_argument("--title")
    return parser.parse_args(arguments)


def check(options):
    for file in options.out:
        if Path(file).suffix not in (".png", ".svg"):
            raise UsageError(f"--out {file}: pictures are .png or .svg")
    for threshold in options.threshold:
        if options.kind != "curve":
            raise UsageError(f"--threshold is of `curve`, which says how many points stay below it, not of "
                             f"`{options.kind}`")
        if not 0 < threshold < math.inf:
            raise UsageError(f"--threshold {threshold:g}: a positive number is wanted")


def draw(options):
    # Not before the command line and its errors, nor --help: matplotlib takes a second.
    from plotting import axes, curve, page, pictures
    usual_value, title = KINDS[options.kind]
    rows = read_rows(options.file, say)
    if usual_value == "floor_ratio" and not any(row.number("floor_ratio") for row in rows):
        usual_value = "stream_ratio"  # of files of schema 1, whose rows know no floor
    value = options.value or usual_value
    title = title.format(axes.TITLES.get(value, value)) if options.title is None else options.title
    page.use_style()
    # Before the filter, so that a backend looks alike in all pictures of the files.
    styles = page.series_style(list(dict.fromkeys(row.text("backend") for row in rows)))
    asked = filtered(rows, options.filter)
    kept, not_drawn = results(asked, value, say)
    foot = [f"Not drawn: {not_drawn}"] if not_drawn else []
    doubtful = [row for row in kept if row.values["warning"]]
    if doubtful:
        foot.append(f"{len(doubtful)} of {len(kept)} measured in doubt, the first: {doubtful[0].values['warning']}")
        say(foot[-1])
    wish = pictures.Wish(value, title, styles, foot, asked, options.threshold)
    figure = getattr(curve if options.kind == "curve" else pictures, options.kind)(kept, wish)
    for sentence in page.misplaced_texts(figure):
        say(f"{sentence}; choose less with --filter")
    return {file: page.bytes_of(figure, Path(file).suffix) for file in options.out}


def main(arguments=None):
    options = parse(arguments)
    try:
        check(options)
        files = draw(options)
    except UsageError as error:
        say(error)
        return USAGE
    except ImportError as error:
        requirements = Path(__file__).resolve().with_name("requirements.txt")
        say(f"{error}; {sys.executable} needs matplotlib 3.6 or newer: {sys.executable} -m pip install "
            f"-r {requirements}, or for the Python of Debian and Ubuntu apt-get install python3-matplotlib")
        return ENVIRONMENT
    for file, content in files.items():
        try:
            Path(file).write_bytes(content)
        except OSError as error:
            say(f"--out {file}: cannot be written: {error.strerror}")
            return ENVIRONMENT
    return 0


if __name__ == "__main__":
    sys.exit(main())
