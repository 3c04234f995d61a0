"""Names for members whose keys have no standing of their own: strings of a region that are not used yet."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Protocol

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.schema.forms import ObjectForm, Region
from treille.runtime.schema.strings import Strings

ENDLESSLY_MANY = 1 << 40
_TRIES = 24  # before a name that is not used yet is asked for exactly


class Words(Protocol):
    """What is asked of `Languages`."""

    def sample(self, strings: Strings, rng: random.Random) -> str:
        """Any string of a set that has one."""
        ...

    def count(self, strings: Strings, limit: int) -> int:
        """How many strings a set has, or `limit` if there are at least so many."""
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
        self._few: dict[tuple[Region, int], list[str] | None] = {}

    def capacity(self, form: ObjectForm, region: Region) -> int:
        """How many names a region of a form has that are none of its keys; `ENDLESSLY_MANY`: enough."""
        words = self._words(form, region)
        if words is None:
            return ENDLESSLY_MANY
        return len(set(words).difference(key.name for key in form.keys))

    def fresh(self, form: ObjectForm, region: Region, taken: set[str], rng: random.Random) -> str | None:
        """A name that is not `taken`; None if there is none."""
        names = region.names
        words = self._words(form, region)
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

    def _words(self, form: ObjectForm, region: Region) -> list[str] | None:
        """All names of a region if they are so few that an object may use up a good part of them."""
        limit = 64 + 2 * (len(form.keys) + form.low + form.num_exists)
        if (region, limit) not in self._few:
            try:
                some = self._languages.count(region.names, limit) < limit
            except UnsupportedConstraint:  # too many to count
                some = False
            self._few[region, limit] = self._languages.words(region.names, limit) if some else None
        return self._few[region, limit]
