"""What a compilation may cost: every loop of it stops with an error instead of hanging."""

from __future__ import annotations

import time
from collections.abc import Callable

from treille.runtime.errors import CompileCancelled, UnsupportedConstraint

Cancelled = Callable[[], bool]

MAX_SECONDS = 2.0  # of the compiling thread's processor time: a busy machine refuses nothing more
MAX_STATES = 65_536  # of a finished automaton; 1 KiB each
MAX_CHOICE_BYTES = 1_000_000


class Budget:
    """The time of one compilation, and the words for whatever limit it runs into. `cancelled` says whether
    anybody still waits for it."""

    def __init__(
        self, keyword: str, *, seconds: float = MAX_SECONDS, cancelled: Cancelled | None = None
    ) -> None:
        self._keyword = keyword
        self._seconds = seconds
        self._cancelled = cancelled
        self._deadline = time.thread_time() + seconds

    def restart(self, seconds: float) -> None:
        """Begins anew, for what is done later on, when somebody does wait for it."""
        self._cancelled = None
        self._seconds = seconds
        self._deadline = time.thread_time() + seconds

    def check_time(self) -> None:
        """Raises `UnsupportedConstraint` when the time is up, `CompileCancelled` when nobody waits."""
        if self._cancelled is not None and self._cancelled():
            raise CompileCancelled("nobody waits for the compile any more")
        if time.thread_time() > self._deadline:
            raise self.exceeded(f"compiling it takes longer than the limit of {self._seconds:g} s")

    def check_states(self, count: int, limit: int = MAX_STATES) -> None:
        """Raises `UnsupportedConstraint` when `count` states are more than `limit`."""
        if count > limit:
            raise self.exceeded(f"its automaton needs more than the limit of {limit} states")

    def exceeded(self, reason: str) -> UnsupportedConstraint:
        """The error for a limit, to be raised."""
        return UnsupportedConstraint(self._keyword, "offset 0", reason)
