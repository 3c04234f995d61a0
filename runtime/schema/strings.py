"""`Strings`: a set of strings as a conjunction of simple ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Strings:
    """The strings (decoded values) that hold all of this at once.

    `every`, `none`: numbers of languages (patterns and formats, see `Languages`) that it is in, and not in.
    `low`, `high`: its length in code points. `only`: if it is not None, the strings it may be. `excluded`:
    the strings it may not be; empty where `only` is given.
    """

    every: frozenset[int] = frozenset()
    none: frozenset[int] = frozenset()
    low: int = 0
    high: int | None = None
    only: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
