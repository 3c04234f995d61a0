"""Where in the user's code something was written: what errors point at."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType

_OWN_PACKAGE = "treille.dsl"
# A `with` written as a generator has a frame of this module between it and the user.
_TRANSPARENT = frozenset({"contextlib"})


@dataclass(frozen=True, slots=True)
class Location:
    """One line of source."""

    filename: str
    lineno: int

    @property
    def source(self) -> str:
        """The line itself without its indentation; empty where the file cannot be read."""
        return linecache.getline(self.filename, self.lineno).strip()

    def __str__(self) -> str:
        place = f"{self.filename}, line {self.lineno}"
        return f"{place}: {self.source}" if self.source else place


def caller() -> Location:
    """The line that called into this package: the nearest frame that is not the package's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None and _is_own(frame):
        frame = frame.f_back
    if frame is None:
        return Location("<unknown>", 0)
    return Location(frame.f_code.co_filename, frame.f_lineno)


def last_line_in(code: CodeType, traceback: TracebackType | None) -> Location | None:
    """The line that `code` had reached when the exception with this traceback passed it, if it did."""
    found: Location | None = None
    while traceback is not None:
        if traceback.tb_frame.f_code is code:
            found = Location(code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _is_own(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return bool(name == _OWN_PACKAGE or name in _TRANSPARENT or name.startswith(_OWN_PACKAGE + "."))
