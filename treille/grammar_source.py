"""What `treille grammar` and `treille schema` look at, checked before anything slow is loaded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from treille.cli_errors import CommandError, UsageError
from treille.runtime.errors import InvalidRequest
from treille.runtime.schema_source import DEFAULTS, SchemaSource, Spacing, read_choice, read_whitespace

PICTURES = (".svg", ".dot")

Kind = Literal["regex", "lark", "schema"]
NO_SCHEMA = SchemaSource("")


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """A constraint by its text. `kind` says which of the other fields count: `dialect` is a regular
    expression's, `start` and `parser` are a Lark grammar's, `schema` has a JSON Schema's options."""

    title: str
    text: str
    kind: Kind
    dialect: str = "python"
    start: str = "start"
    parser: Literal["earley", "lalr"] = "earley"
    schema: SchemaSource = NO_SCHEMA


def read_source(
    file: str | None,
    regex: str | None,
    schema: str | None,
    *,
    dialect: str | None,
    start: str | None,
    parser: str | None,
    options: dict[str, str | None],
) -> GrammarSource:
    """The one constraint that the command line names. Raises `UsageError` if it is not one, or for an option
    that says nothing about it; `CommandError` for a file that cannot be read."""
    if sum(one is not None for one in (file, regex, schema)) != 1:
        raise UsageError("give one of a FILE with a Lark grammar, --regex PATTERN and --schema FILE")
    kind: Kind = "regex" if regex is not None else "lark" if file is not None else "schema"
    for name, value, about in (
        ("--dialect", dialect, "regex"),
        ("--start", start, "lark"),
        ("--parser", parser, "lark"),
        *((f"--{name.replace('_', '-')}", value, "schema") for name, value in options.items()),
    ):
        if value is not None and kind != about:
            words = {"regex": "--regex", "lark": "a Lark grammar", "schema": "a JSON Schema"}
            raise UsageError(f"{name} is for {words[about]}, not for {words[kind]}")
    if regex is not None:
        _one_of("--dialect", dialect, ("python", "ecma"))
        return GrammarSource(regex, regex, "regex", dialect=dialect or "python")
    if schema is not None:
        return read_schema(schema, options)
    _one_of("--parser", parser, ("earley", "lalr"))
    path = Path(str(file))
    return GrammarSource(
        path.name,
        _read(path),
        "lark",
        start=start or "start",
        parser="lalr" if parser == "lalr" else "earley",
    )


def read_schema(file: str, options: dict[str, str | None]) -> GrammarSource:
    """A file with a JSON Schema, and how its values are written: by `SchemaSource`'s names, None where
    nothing is said. Raises as `read_source` does."""
    path = Path(file)
    known: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        try:
            known[name] = (
                read_whitespace(_layout(value)) if name == "whitespace" else read_choice(name, value)
            )
        except InvalidRequest as error:
            raise UsageError(f"--{str(error).replace('_', '-', 1)}") from None
    return GrammarSource(path.name, _read(path), "schema", schema=SchemaSource("", **known))


def option_words(source: SchemaSource) -> str:
    """A schema's options where they are not the usual ones."""
    words = []
    for name, usual in DEFAULTS.items():
        value = getattr(source, name)
        if isinstance(value, Spacing):
            separators = value.item_separator, value.key_separator
            words.append(f"whitespace as json.dumps(indent={value.indent}, separators={separators})")
        elif value != usual:
            words.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(words)


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


def _layout(value: str) -> object:
    """A name stays as it is; an object is written as JSON."""
    if not value.startswith("{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise UsageError(f"--whitespace: {value} is not JSON") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CommandError(f"{path} does not exist") from None
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 at byte {error.start}") from error


def _one_of(option: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise UsageError(f"{option} must be {' or '.join(choices)}, not {value}")
