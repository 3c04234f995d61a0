"""Saying what takes so long, if it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

PATIENCE = 3.0  # seconds, before a wait is explained
COMPILED_LOOPS = "making the compiled loops ready; the very first time takes a minute or two"


@contextmanager
def said_if_slow(say: Callable[[str], object], words: str = COMPILED_LOOPS) -> Iterator[None]:
    """Calls `say(words)` once, from a thread of its own, if what is done takes longer than `PATIENCE`."""
    timer = Timer(PATIENCE, say, (words,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
