"""What a command prints when it fails: one line with the cause, and what to do about it."""

from __future__ import annotations

import importlib.util
import traceback
from pathlib import Path

import typer

from treille.dsl.errors import ProgramError
from treille.runtime.errors import TreilleError

FAILED = 1
MISUSED = 2
INTERRUPTED = 130
PACKAGES = ("treille", "treille.dsl", "treille.runtime", "treille.radix", "treille.kernels")
HINT = "--traceback shows more"


class CommandError(Exception):
    """A command cannot go on; the message says why and what would help."""

    exit_code = FAILED


class UsageError(CommandError):
    """The command line does not say what is needed."""

    exit_code = MISUSED


def one_line(error: Exception) -> tuple[str, int]:
    """The line for stderr (empty if all is said already), and the exit code."""
    if isinstance(error, typer.Abort):
        return "", INTERRUPTED
    if isinstance(error, (CommandError, TreilleError)):
        return _line(str(error)), getattr(error, "exit_code", FAILED)
    # Errors of the command-line parser itself; where their class lives depends on typer's version.
    message = getattr(error, "format_message", None)
    if callable(message):
        code = getattr(error, "exit_code", MISUSED)
        text = message()
        return _line(f"{text} (see treille --help)") if text else "", code
    if isinstance(error, ProgramError):
        return _line(str(error)), FAILED
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        return _line(f"{named}; {HINT}"), FAILED
    return _line(f"{type(error).__name__}: {error}{_place(error)}; {HINT}"), FAILED


def _line(text: str) -> str:
    return f"treille: {' '.join(text.split())}"


def _place(error: Exception) -> str:
    """Where in the user's own code: the note that the language put on, else the innermost line that is
    neither of this package nor of an installed one."""
    notes = getattr(error, "__notes__", ())
    if notes:
        return f" ({'; '.join(notes)})"
    ours = [Path(place) for name in PACKAGES for place in _places(name)]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_file() and "site-packages" not in file.parts and not set(ours) & set(file.parents):
            return f" ({file.name}, line {frame.lineno})"
    return ""


def _places(package: str) -> list[str]:
    spec = importlib.util.find_spec(package)
    return [] if spec is None else list(spec.submodule_search_locations or ())
