"""The examples run as a newcomer runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SCREEN = 80


def test_there_are_examples() -> None:
    assert ROOT / "examples" / "demo.py" in EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and not done.stderr
    if path.stem == "demo":
        for shown in ("[assistant]", "branch 2", "days", "int", "reused from cache", "tokens/s"):
            assert shown in done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_one_screen_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= SCREEN
