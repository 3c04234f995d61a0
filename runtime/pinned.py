"""`CachedPrefix`: what `Engine.cache` gives back."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType


class CachedPrefix:
    """A prefix that is computed and stays in the cache until it is released.

    `release()` lets it go, from any thread; twice is harmless, and so is a closed engine. As a context
    manager it is released at the end. `num_tokens` is its length.
    """

    def __init__(self, num_tokens: int, release: Callable[[], None]) -> None:
        self.num_tokens = num_tokens
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Let the prefix be evicted like any other."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> CachedPrefix:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
