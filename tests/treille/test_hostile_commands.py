"""Options that make no sense are told before a model is loaded, and not as a place in our own code."""

from __future__ import annotations

from pathlib import Path

import pytest

from treille import cli

PROGRAM = """
import treille as tr

@tr.program
def one(s):
    s += "one"
"""


def failure(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int | str | None, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(words))
    return caught.value.code, capfd.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [("--temperature", "nan"), ("--temperature", "-1"), ("--top-p", "2"), ("--max-tokens", "-1")],
)
def test_sampling_options(tmp_path: Path, capfd: pytest.CaptureFixture[str], option: str, value: str) -> None:
    file = tmp_path / "one.py"
    file.write_text(PROGRAM)
    code, said = failure(capfd, "run", str(file), "--model", "no-such-model", option, value)
    assert code == 2 and said.startswith(f"treille: {option} must be ") and said.count("\n") == 1


def test_an_empty_api_key(capfd: pytest.CaptureFixture[str]) -> None:
    code, said = failure(capfd, "serve", "no-such-model", "--api-key", "", "--port", "0")
    assert code == 2 and "API key is empty" in said
