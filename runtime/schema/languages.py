"""`Languages`: what can be asked of sets of strings.

A string here is a decoded one, of Unicode scalar values; one with a lone surrogate is in no set.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice

import numpy as np

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.store import Bytes
from treille.runtime.schema.expressions import Expression, Expressions
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.walks import Walks, num_texts

ANY_STRING = Strings()
NO_STRING = Strings(only=frozenset())
MAX_DRAWN = 1 << 20
"""Code points that a string may need so that one can still be drawn."""
_FEW = 32  # strings that are listed before one is drawn
_TRIES = 64


class Languages:
    """The languages of one document. For numbers, places and errors see `Expressions`.

    Not safe to share between threads: questions that were not asked before add to the arena.
    """

    def __init__(
        self, patterns: Iterable[str] = (), formats: Iterable[str] = (), *, budget: Budget | None = None
    ) -> None:
        self._expressions = Expressions(patterns, formats, budget)
        self.arena = self._expressions.arena
        self.classes = self._expressions.classes
        self._are_empty: dict[Strings, bool] = {}
        self._few: dict[Strings, list[str] | None] = {}

    @cached_property
    def _walks(self) -> Walks:
        return Walks(self.arena, self.classes)

    def pattern(self, text: str) -> int:
        """The number of a pattern that was given. Raises `KeyError` for another."""
        return self._expressions.patterns[text]

    def format(self, name: str) -> int:
        """The number of a format that was given. Raises `KeyError` for another."""
        return self._expressions.formats[name]

    def start(self, strings: Strings) -> int:
        """The state of the regular part (`every`, `none`, `low`, `high`) before any text, dead or alive; -1
        if that part is any string."""
        return -1 if self._expressions.is_any(strings) else self._expressions.state(strings)

    def expression(self, strings: Strings) -> Expression:
        """The expression of the regular part, from which the state can be made anew."""
        return self._expressions.expression(strings)

    def meet(self, one: Strings, other: Strings) -> Strings:
        """The strings in both."""
        highs = [high for high in (one.high, other.high) if high is not None]
        met = Strings(
            one.every | other.every,
            one.none | other.none,
            max(one.low, other.low),
            min(highs, default=None),
            excluded=one.excluded | other.excluded,
        )
        if one.only is not None or other.only is not None:
            words = (
                one.only if other.only is None else other.only if one.only is None else one.only & other.only
            )
            return Strings(only=frozenset(word for word in words or () if self.contains(met, word)))
        if met.every & met.none or (met.high is not None and met.low > met.high):
            return NO_STRING
        if not met.excluded:
            return met
        left = frozenset(word for word in met.excluded if _is_long_enough(met, word))
        return Strings(met.every, met.none, met.low, met.high, excluded=left)

    def complement(self, strings: Strings) -> tuple[Strings, ...]:
        """The strings that are not in it, as a union, whose parts may overlap."""
        if strings.only is not None:
            words = frozenset(word for word in strings.only if self.contains(strings, word))
            return (Strings(excluded=words),)
        self._expressions.check_exact(strings.every)
        found = [Strings(none=frozenset((number,))) for number in sorted(strings.every)]
        found += [Strings(every=frozenset((number,))) for number in sorted(strings.none)]
        if strings.low:
            found.append(Strings(high=strings.low - 1))
        if strings.high is not None:
            found.append(Strings(low=strings.high + 1))
        if strings.excluded:
            found.append(Strings(only=strings.excluded))
        return tuple(found)

    def is_empty(self, strings: Strings) -> bool:
        """Whether no string is in it."""
        found = self._are_empty.get(strings)
        if found is None:
            found = self._are_empty[strings] = self._is_empty(strings)
        return found

    def _is_empty(self, strings: Strings) -> bool:
        if strings.only is not None or strings.excluded:
            return self.count(strings, 1) == 0
        if _is_contradiction(strings):
            return True
        return bool(strings.every or strings.none) and not self._expressions.is_live(strings)

    def contains(self, strings: Strings, text: str) -> bool:
        """Whether a string is in it."""
        if not _is_long_enough(strings, text) or text in strings.excluded:
            return False
        if strings.only is not None and text not in strings.only:
            return False
        try:
            data: Bytes = np.frombuffer(bytearray(text, "utf-8"), np.uint8)
        except UnicodeEncodeError:
            return False
        self._expressions.check_exact(strings.none)
        has = self._has
        return all(has(one, data) for one in strings.every) and not any(
            has(one, data) for one in strings.none
        )

    def _has(self, number: int, data: Bytes) -> bool:
        language = Strings(every=frozenset((number,)))
        state = self._expressions.state(language)
        state = self._expressions.asked(language, lambda: self.arena.after(state, data, 0, len(data)))
        return state >= 0 and self.arena.accepts(state)

    def count(self, strings: Strings, limit: int) -> int:
        """How many strings are in it, or `limit` if there are at least so many."""
        if strings.only is not None:
            return min(limit, sum(self.contains(strings, word) for word in strings.only))
        if _is_contradiction(strings):
            return 0
        language = _without_words(strings)
        missing = sum(self.contains(language, word) for word in strings.excluded)
        return self._count_regular(language, limit + missing) - missing

    def _count_regular(self, language: Strings, limit: int) -> int:
        if not language.every and not language.none:
            return num_texts(language.low, language.high, limit)
        if not self._expressions.is_live(language):
            return 0
        state = self._expressions.state(language)
        return min(limit, self._expressions.asked(language, lambda: self._walks.count(state, limit)))

    def words(self, strings: Strings, limit: int) -> list[str] | None:
        """All strings in it, the shorter first, if they are at most `limit`."""
        if self.count(strings, limit + 1) > limit:
            return None
        found = self._expressions.asked(strings, lambda: list(self._words(strings)))
        return sorted(found, key=lambda word: (len(word), word))

    def _words(self, strings: Strings) -> Iterator[str]:
        """All strings in it; endless if they are."""
        if strings.only is not None:
            return (word for word in strings.only if self.contains(strings, word))
        if _is_contradiction(strings) or not self._expressions.is_live(strings):
            return iter(())
        state = self._expressions.state(strings)
        return (word for word in self._walks.words(state) if word not in strings.excluded)

    def sample(self, strings: Strings, rng: random.Random) -> str:
        """A string in it, by chance: of moderate length if it may be, and now and then of strange characters.

        Raises `ValueError` if there is none, and `UnsupportedConstraint` if all are longer than `MAX_DRAWN`.
        """
        if strings not in self._few:
            self._few[strings] = self.words(strings, _FEW)
        few = self._few[strings]
        if few is not None:
            if not few:
                raise ValueError("there is no string to draw")
            return rng.choice(few)
        if strings.low > MAX_DRAWN:
            raise UnsupportedConstraint(
                "minLength", "#", f"none of at most {MAX_DRAWN} characters is allowed"
            )
        return self._expressions.asked(strings, lambda: self._drawn(strings, rng))

    def _drawn(self, strings: Strings, rng: random.Random) -> str:
        state = self._expressions.state(strings)
        for _ in range(_TRIES):
            word = self._walks.sample(state, rng)
            if word not in strings.excluded:
                return word
        return rng.choice(list(islice(self._words(strings), _FEW)))


def _without_words(strings: Strings) -> Strings:
    if not strings.excluded:
        return strings
    return Strings(strings.every, strings.none, strings.low, strings.high)


def _is_contradiction(strings: Strings) -> bool:
    """Whether there is no string for a plain reason."""
    return bool(strings.every & strings.none) or (strings.high is not None and strings.low > strings.high)


def _is_long_enough(strings: Strings, text: str) -> bool:
    """Whether the length of a string is within the bounds."""
    return strings.low <= len(text) and (strings.high is None or len(text) <= strings.high)
