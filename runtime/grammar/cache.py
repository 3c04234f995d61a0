"""A thread-safe store of compiled things, bounded in bytes, least recently used out first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Protocol, TypeVar, cast


class Sized(Protocol):
    """Something that knows its memory."""

    @property
    def nbytes(self) -> int:
        """Memory in bytes, now."""


T = TypeVar("T", bound=Sized)


class ByteCache:
    """Values by key, made at most once at a time however many threads ask. Failures are not kept."""

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 0:
            raise ValueError(f"max_bytes must not be negative: {max_bytes}")
        self.max_bytes = max_bytes
        self._lock = Lock()
        self._values: OrderedDict[Hashable, Sized] = OrderedDict()
        self._making: dict[Hashable, Future[Sized]] = {}
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Memory of the values held, by their own account when the last one came."""
        return self._nbytes

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of `key`; made now, outside of the lock, if it is not there.

        A value larger than the cache is returned and not kept. What `make` raises goes to every thread
        that waits for this key.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return cast(T, self._values[key])
            pending = self._making.get(key)
            mine: Future[Sized] = Future()
            if pending is None:
                self._making[key] = mine
        if pending is not None:
            return cast(T, pending.result())
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._making[key]
            self._keep(key, value)
        mine.set_result(value)
        return value

    def clear(self) -> None:
        """Forgets every value."""
        with self._lock:
            self._values.clear()
            self._nbytes = 0

    def _keep(self, key: Hashable, value: Sized) -> None:
        if value.nbytes > self.max_bytes:
            return
        self._values[key] = value
        # Values grow while they are used: all are measured again.
        sizes = [one.nbytes for one in self._values.values()]
        self._nbytes = sum(sizes)
        for size in sizes:
            if self._nbytes <= self.max_bytes:
                break
            self._values.popitem(last=False)
            self._nbytes -= size
