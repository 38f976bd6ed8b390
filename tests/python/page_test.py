"""What docs/python-api.md shows, run from top to bottom: its outputs are those that come."""

import doctest
import os
import pathlib
import re
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGE = SOURCE / "docs" / "python-api.md"


def main():
    sys.path.insert(0, str(SOURCE / "python"))
    text = PAGE.read_text(encoding="utf-8")
    # Blank lines for what is not shown as Python, so that line numbers are those of the page.
    shown = re.compile(r"```pycon\n(.*?)```\n", re.DOTALL)
    kept, end = "", 0
    for block in shown.finditer(text):
        kept += "\n" * text.count("\n", end, block.start(1)) + block.group(1)
        end = block.end(1)
    if kept.count(">>>") < 10:
        sys.exit(f"{PAGE} shows next to nothing")
    test = doctest.DocTestParser().get_doctest(kept, {}, PAGE.name, str(PAGE), 0)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", folder)
        os.symlink(SOURCE / "examples", pathlib.Path(folder) / "examples")
        os.chdir(folder)
        failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed
        os.chdir(SOURCE)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
