"""Programs in a Python file, and their arguments as words of a command line."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import typing
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from treille.cli_errors import CommandError, UsageError
from treille.dsl.program import Program


def load_program(place: str) -> Program:
    """The program that `FILE.py` or `FILE.py:NAME` means. The file is run, as `python FILE.py` would, but
    not as `__main__`.

    Without a name the file must hold one program of its own. Raises CommandError, or what the file raises.
    """
    file, name = _split(place)
    module = _load(file)
    if name is not None:
        found = getattr(module, name, None)
        if isinstance(found, Program):
            return found
        what = "is no program" if hasattr(module, name) else "does not exist"
        raise CommandError(f"{name} {what} in {file}; {_listing(_programs(module))}")
    programs = _programs(module)
    if len(programs) != 1:
        mend = f"; name one: {file}:{next(iter(programs))}" if programs else ""
        raise CommandError(f"{file} does not hold one program: {_listing(programs)}{mend}")
    return next(iter(programs.values()))


def read_arguments(program: Program, words: Sequence[str]) -> dict[str, Any]:
    """The program's arguments from words `name=value`, converted by its annotations.

    A text that stands for a value of the annotated type is taken for it (`3`, `yes`, a Literal's or an
    Enum's value), otherwise it must be JSON for it. Without an annotation it stays text. Raises UsageError.
    """
    parameters = dict(list(inspect.signature(program).parameters.items())[1:])
    hints = _hints(program)
    arguments: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--arg {word!r} must look like name=value")
        if name not in parameters:
            close = get_close_matches(name, parameters, n=1)
            mend = f"did you mean {close[0]}?" if close else f"it takes {', '.join(parameters) or 'none'}"
            raise UsageError(f"{program.__name__} has no argument {name}; {mend}")
        if name in arguments:
            raise UsageError(f"--arg {name} is given twice")
        arguments[name] = _convert(name, text, hints.get(name, str))
    missing = [
        name
        for name, parameter in parameters.items()
        if name not in arguments and parameter.default is inspect.Parameter.empty
    ]
    if missing:
        raise UsageError(f"{program.__name__} needs {' '.join(f'--arg {name}=...' for name in missing)}")
    return arguments


def _split(place: str) -> tuple[Path, str | None]:
    """A colon may also stand in a Windows path; a program's name holds no dot and no slash."""
    file, colon, name = place.rpartition(":")
    if colon and name.isidentifier() and file:
        return Path(file), name
    return Path(place), None


def _load(file: Path) -> ModuleType:
    if not file.is_file():
        raise CommandError(f"{file} does not exist; give a Python file, or FILE.py:PROGRAM")
    module_name = f"treille_program_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise CommandError(f"{file} is no Python file; give one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pydantic look a class's module up by name; imports beside the file must be found.
    sys.modules[module_name] = module
    sys.path.insert(0, str(file.resolve().parent))
    spec.loader.exec_module(module)
    return module


def _programs(module: ModuleType) -> Mapping[str, Program]:
    """The programs that the module itself defines, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, Program) and value.__module__ == module.__name__
    }


def _listing(programs: Mapping[str, Program]) -> str:
    return f"it has {', '.join(programs)}" if programs else "it has no @program"


def _hints(program: Program) -> dict[str, Any]:
    try:
        return typing.get_type_hints(program.__wrapped__)
    except NameError as error:
        raise CommandError(f"an annotation of {program.__name__} cannot be read: {error}") from error


def _convert(name: str, text: str, annotation: Any) -> Any:
    if annotation is str:
        return text
    try:
        adapter = TypeAdapter(annotation)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise UsageError(f"{name} is {annotation!r}: no text stands for that") from error
    try:
        return adapter.validate_strings(text)
    except ValidationError:
        pass
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        shown = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        reason = error.errors()[0]["msg"]
        raise UsageError(f"--arg {name}={text} does not stand for {shown}: {reason}") from error
