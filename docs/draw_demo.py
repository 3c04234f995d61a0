"""Runs the demo and draws what it prints: `make demo-picture` writes docs/demo.svg."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from runpy import run_path

from rich.console import Console
from rich.text import Text

import treille as tr
from treille.show import show_on

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"
WIDTH = 88
# A stretch in one style, ended and begun again at once: what token after token of one kind looks like.
SEAM = re.compile(r"(\x1b\[([0-9;]+)m[^\x1b]*)\x1b\[0m\x1b\[\2m")


def main(target: str) -> None:
    """Run the demo's program, and save what the terminal would show as a picture."""
    guide = run_path(str(DEMO))["guide"]
    shown = io.StringIO()
    with tr.Engine("smollm2-135m") as engine:
        # Once before, so that the times in the picture are not those of a first run.
        guide.run(backend=engine, city="Rome", temperature=0)
        engine.flush_cache()
        terminal = Console(file=shown, width=WIDTH, force_terminal=True, color_system="standard")
        show_on(terminal, guide, engine, {"city": "Rome", "temperature": 0})
    Path(target).write_text(draw(shown.getvalue()))


def draw(ansi: str) -> str:
    """The picture of a terminal's output, as SVG; lines wrap as they would there."""
    joined = SEAM.sub(r"\1", ansi)
    while joined != ansi:
        ansi, joined = joined, SEAM.sub(r"\1", joined)
    paper = Console(file=io.StringIO(), width=WIDTH, record=True, force_terminal=True)
    paper.print(Text.from_ansi(joined))
    picture = paper.export_svg(title="make demo", unique_id="demo")
    # Without the fonts that the picture would fetch from the network: any fixed-width one does.
    picture = re.sub(r"@font-face \{.*?\}|<!--.*?-->", "", picture, flags=re.DOTALL)
    return re.sub(r"\s*\n\s*\n", "\n", picture)


if __name__ == "__main__":
    main(sys.argv[1])
