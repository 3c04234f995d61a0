"""Everything the language raises on purpose.

    ProgramError                   a program cannot go on; knows the program's file and line
    ├── InvalidExpression          an argument of `gen`, `select`, a role or `run` is wrong (a ValueError)
    ├── UnknownVariable            nothing of that name was generated (a KeyError)
    └── GenerationFailed           the backend failed, or the text is not what was asked for
        └── WrongText              a text came, and is not what was asked for: it has the text
            └── CutOff             max_tokens or a stop ended it before it was complete
    ProgramCancelled               the caller went away; a BaseException, raised inside programs only

An exception of the user's own code inside a program is passed on as it is, with a note that names the
program's line.
"""

from __future__ import annotations

from treille.dsl.location import Location


class ProgramError(Exception):
    """A program cannot go on. `filename`, `lineno` and `line` say where, `branch` in which fork's branch."""

    def __init__(self, message: str, *, where: Location | None = None, branch: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.branch = branch

    @property
    def filename(self) -> str | None:
        """The file of the program's line."""
        return None if self.where is None else self.where.filename

    @property
    def lineno(self) -> int | None:
        """The number of the program's line."""
        return None if self.where is None else self.where.lineno

    @property
    def line(self) -> str | None:
        """The program's line itself."""
        return None if self.where is None else self.where.source

    def __str__(self) -> str:
        text = f"branch {self.branch}: {self.message}" if self.branch else self.message
        return text if self.where is None else f"{text}\n  at {self.where}"


class InvalidExpression(ProgramError, ValueError):
    """An argument is wrong. `field` names it, where one is to blame."""

    def __init__(self, message: str, *, where: Location | None = None, field: str | None = None) -> None:
        super().__init__(message, where=where)
        self.field = field


class UnknownVariable(ProgramError, KeyError):
    """Nothing of that name was generated, selected or captured before this line."""


class GenerationFailed(ProgramError):
    """The backend failed (see `__cause__`), or the text it wrote is not what was asked for."""


class WrongText(GenerationFailed):
    """The text that came is not what was asked for. `text` is that text, `texts` those of all samples.

    Where a type refused it, `__cause__` says why.
    """

    def __init__(
        self,
        message: str,
        *,
        text: str,
        texts: tuple[str, ...] = (),
        where: Location | None = None,
        branch: str = "",
    ) -> None:
        super().__init__(message, where=where, branch=branch)
        self.text = text
        self.texts = texts or (text,)


class CutOff(WrongText):
    """`max_tokens` or a stop ended the text before it was what was asked for."""


class ProgramCancelled(BaseException):
    """The caller left and the program is unwound. No Exception, so that `except Exception` lets it by."""
