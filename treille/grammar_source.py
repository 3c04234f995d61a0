"""What `treille grammar` is asked to look at, checked before anything slow is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from treille.cli_errors import CommandError, UsageError

PICTURES = (".svg", ".dot")
NO_SCHEMAS = (
    "--schema is not available yet: JSON Schema is not compiled by this version; give --regex PATTERN, or a "
    "FILE with a Lark grammar"
)


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """A constraint by its text. `is_regex` says which of the other fields count: `dialect` is a regular
    expression's, `start` and `parser` are a Lark grammar's."""

    title: str
    text: str
    is_regex: bool
    dialect: str = "python"
    start: str = "start"
    parser: Literal["earley", "lalr"] = "earley"


def read_source(
    file: str | None,
    regex: str | None,
    schema: str | None,
    *,
    dialect: str | None,
    start: str | None,
    parser: str | None,
) -> GrammarSource:
    """The one constraint that the command line names. Raises `UsageError` if it is not one, or for an option
    that says nothing about it; `CommandError` for a file that cannot be read."""
    if schema is not None:
        raise UsageError(NO_SCHEMAS)
    if (file is None) == (regex is None):
        raise UsageError("give either a FILE with a Lark grammar or --regex PATTERN")
    if regex is not None:
        _only_for_files("--start", start)
        _only_for_files("--parser", parser)
        _one_of("--dialect", dialect, ("python", "ecma"))
        return GrammarSource(regex, regex, is_regex=True, dialect=dialect or "python")
    if dialect is not None:
        raise UsageError("--dialect is for --regex: a Lark grammar's terminals are Python's")
    _one_of("--parser", parser, ("earley", "lalr"))
    path = Path(str(file))
    return GrammarSource(
        path.name,
        _read(path),
        is_regex=False,
        start=start or "start",
        parser="lalr" if parser == "lalr" else "earley",
    )


def check_picture(draw: str | None, *, in_bytes: bool) -> Path | None:
    """Where to draw to. Raises `UsageError` for a name that does not say how."""
    if draw is None:
        if in_bytes:
            raise UsageError("--draw-bytes says how to draw: give --draw OUT.svg too")
        return None
    path = Path(draw)
    if path.suffix.lower() not in PICTURES:
        raise UsageError(f"--draw {draw}: its name must end in {' or '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise CommandError(f"--draw {draw}: {path.parent} is not a folder")
    return path


def check_text(text: str | None) -> bytes | None:
    """The text to try, in UTF-8. Raises `UsageError` for one that the shell did not pass as UTF-8."""
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"--text is not UTF-8 at character {error.start}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CommandError(f"{path} does not exist") from None
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 at byte {error.start}") from error


def _only_for_files(option: str, value: str | None) -> None:
    if value is not None:
        raise UsageError(f"{option} is for a Lark grammar, not for --regex")


def _one_of(option: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise UsageError(f"{option} must be {' or '.join(choices)}, not {value}")
