"""Names for members whose keys have no standing of their own: strings of a region that are not used yet."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Protocol

from treille.runtime.schema.forms import Region
from treille.runtime.schema.strings import Strings

ENDLESSLY_MANY = 1 << 40
_FEW = 64
_TRIES = 24  # before a name that is not used yet is asked for exactly


class Words(Protocol):
    """What is asked of `Languages`."""

    def sample(self, strings: Strings, rng: random.Random) -> str:
        """Any string of a set that has one."""
        ...

    def words(self, strings: Strings, limit: int) -> list[str] | None:
        """All strings of a set, or None if there are more than `limit`."""
        ...

    def is_empty(self, strings: Strings) -> bool:
        """Whether a set has no string."""
        ...


class RegionNames:
    """Draws names from regions; remembers those that have few."""

    def __init__(self, languages: Words) -> None:
        self._languages = languages
        self._few: dict[Strings, list[str] | None] = {}

    def capacity(self, region: Region) -> int:
        """How many names a region has, with those that have an entry of their own; `ENDLESSLY_MANY`: many."""
        words = self._words(region.names)
        return ENDLESSLY_MANY if words is None else len(words)

    def fresh(self, region: Region, taken: set[str], rng: random.Random) -> str | None:
        """A name that is not `taken`; None if there is none."""
        names = region.names
        words = self._words(names)
        if words is not None:
            free = [one for one in words if one not in taken]
            return rng.choice(free) if free else None
        for _ in range(_TRIES):
            name = self._languages.sample(names, rng)
            if name not in taken:
                return name
        if names.only is not None:
            names = replace(names, only=names.only - taken)
        else:
            names = replace(names, excluded=names.excluded | taken)
        return None if self._languages.is_empty(names) else self._languages.sample(names, rng)

    def _words(self, names: Strings) -> list[str] | None:
        if names not in self._few:
            self._few[names] = self._languages.words(names, _FEW)
        return self._few[names]
