"""Every test of the language must leave no thread of its own behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

NAMES = ("treille-program", "treille-loop", "asyncio_")


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """Threads of programs and their loops are gone soon after each test."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 5.0
    while left := [t for t in set(threading.enumerate()) - before if t.name.startswith(NAMES)]:
        assert time.monotonic() < deadline, f"threads left behind: {left}"
        time.sleep(0.005)
