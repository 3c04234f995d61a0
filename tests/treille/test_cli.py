"""The command line: one line for each failure, and no torch where none is needed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from treille import cli, program_file
from treille.cli_errors import CommandError, UsageError, one_line
from treille.runtime.errors import InvalidRequest, ModelNotFound

PROGRAMS = '''
"""Programs."""
from __future__ import annotations
import enum
from typing import Literal
from treille.dsl.program import program
from treille.dsl.state import State

class Size(enum.Enum):
    BIG = "big"

@program
def first(s: State, name: str, count: int = 1, ratio: float = 0.5, loud: bool = False,
          items: list[str] | None = None, mood: Literal["good", "bad"] = "good",
          size: Size | None = None, other=None) -> None:
    s += name
'''
SECOND = """
@program
def second(s: State) -> None:
    s += "x"

number = 3
"""


@pytest.fixture
def one(tmp_path: Path) -> Path:
    path = tmp_path / "one.py"
    path.write_text(PROGRAMS)
    return path


@pytest.fixture
def two(tmp_path: Path) -> Path:
    path = tmp_path / "two.py"
    path.write_text(PROGRAMS + SECOND)
    return path


def fails(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    """The one line on stderr."""
    with pytest.raises(SystemExit) as caught:
        cli.main(list(words))
    captured = capsys.readouterr()
    assert caught.value.code == code, captured.err
    assert captured.err.count("\n") == 1 and captured.err.startswith("treille: ")
    assert "Traceback" not in captured.err
    return captured.err


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def test_help_does_not_load_torch() -> None:
    code = """
import sys
from treille.cli import main
for words in (["--version"], ["--help"], ["serve", "--help"], ["run", "--help"]):
    try:
        main(words)
    except SystemExit as end:
        assert end.code == 0, words
print("loaded:", sorted({"torch", "numpy", "fastapi", "uvicorn"} & set(sys.modules)))
"""
    result = python("-c", code)
    assert result.returncode == 0 and result.stderr == ""
    assert result.stdout.endswith("loaded: []\n"), result.stdout[-80:]


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"treille {version('treille')}\n"


def test_the_package_runs_as_a_module() -> None:
    result = python("-m", "treille", "--version")
    assert (result.returncode, result.stdout) == (0, f"treille {version('treille')}\n")


def test_models(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["models"])
    assert caught.value.code == 0
    assert "smollm2-135m" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["frob"], "frob"),
        (["serve"], "MODEL"),
        (["serve", "x", "--port", "99999"], "port"),
        (["serve", "x", "--portt", "1"], "--portt"),
        (["--frob"], "--frob"),
        (["run"], "FILE.py"),
        (["serve", "x", "--log-level", "loud"], "loud"),
    ],
)
def test_misuse(capsys: pytest.CaptureFixture[str], words: list[str], part: str) -> None:
    assert part in fails(capsys, *words, code=2)


def test_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nope.py does not exist" in fails(capsys, "run", "nope.py", code=1)


def test_arguments_that_do_not_fit(capsys: pytest.CaptureFixture[str], one: Path) -> None:
    assert "--arg name=..." in fails(capsys, "run", str(one), code=2)
    assert "name=value" in fails(capsys, "run", str(one), "--arg", "name", code=2)
    assert "did you mean name" in fails(capsys, "run", str(one), "--arg", "nam=x", code=2)
    assert "twice" in fails(capsys, "run", str(one), "--arg", "name=x", "--arg", "name=y", code=2)
    line = fails(capsys, "run", str(one), "--arg", "name=x", "--arg", "count=two", code=2)
    assert "count=two does not stand for int" in line


def test_a_model_that_does_not_exist(capsys: pytest.CaptureFixture[str], one: Path) -> None:
    words = ["run", str(one), "--arg", "name=x", "--model", "nosuchmodel"]
    assert "nosuchmodel" in fails(capsys, *words, code=1)
    assert "nosuchmodel" in fails(capsys, "serve", "nosuchmodel", "--port", "0", code=1)


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "--port" in fails(capsys, "serve", "smollm2-135m", "--port", str(port), code=1)
    assert "--host" in fails(capsys, "serve", "smollm2-135m", "--host", "no host", code=1)


def test_a_fault_in_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("x = 1\n\ny = x / 0\n")
    assert "ZeroDivisionError: division by zero (broken.py, line 3)" in fails(
        capsys, "run", str(path), code=1
    )
    path.write_text("def (\n")
    assert "SyntaxError" in fails(capsys, "run", str(path), code=1)


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_the_traceback_comes_when_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    words = ["run", "nope.py"]
    if how == "flag":
        words.append("--traceback")
    else:
        monkeypatch.setenv("TREILLE_TRACEBACK", "1")
    with pytest.raises(SystemExit):
        cli.main(words)
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, one: Path
) -> None:
    def interrupt(place: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program_file, "load_program", interrupt)
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", str(one)])
    assert caught.value.code == 130
    assert capsys.readouterr().err == ""


def test_which_program(one: Path, two: Path) -> None:
    load = program_file.load_program
    assert load(str(one)).__name__ == "first"
    assert load(f"{two}:second").__name__ == "second"
    with pytest.raises(CommandError, match=r"it has first, second; name one: .*two\.py:first"):
        load(str(two))
    with pytest.raises(CommandError, match="third does not exist"):
        load(f"{two}:third")
    with pytest.raises(CommandError, match="number is no program"):
        load(f"{two}:number")
    empty = one.with_name("empty.py")
    empty.write_text("from one import first\n")
    with pytest.raises(CommandError, match="no @program"):
        load(str(empty))


def test_arguments_by_annotation(one: Path) -> None:
    program = program_file.load_program(str(one))
    words = [
        "name=12",
        "count=3",
        "ratio=1e-1",
        "loud=yes",
        'items=["a", "b"]',
        "mood=bad",
        "size=big",
        "other=7",
    ]
    found = program_file.read_arguments(program, words)
    assert found.pop("size").value == "big"
    assert found == {
        "name": "12",
        "count": 3,
        "ratio": 0.1,
        "loud": True,
        "items": ["a", "b"],
        "mood": "bad",
        "other": "7",
    }
    assert program_file.read_arguments(program, ["name=a=b"]) == {"name": "a=b"}
    for word in ("count=1.5", "loud=perhaps", "items=a", "mood=so so", "size=small"):
        with pytest.raises(UsageError, match="does not stand for"):
            program_file.read_arguments(program, ["name=x", word])


def test_one_line() -> None:
    assert one_line(ModelNotFound("no\n  model")) == ("treille: no model", 1)
    assert one_line(InvalidRequest("bad", field="dtype")) == ("treille: bad", 1)
    assert one_line(UsageError("so")) == ("treille: so", 2)
    noted = ValueError("bad")
    noted.add_note("in program p, file f.py, line 3")
    assert "ValueError: bad (in program p, file f.py, line 3)" in one_line(noted)[0]
