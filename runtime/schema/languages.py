"""`Languages`: what can be asked of sets of strings.

A string here is a decoded one, of Unicode scalar values; one with a lone surrogate is in no set.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

import numpy as np

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.arena import Arena
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.store import NUM_NODES, Bytes
from treille.runtime.schema.expressions import Expression, Expressions, regular_part
from treille.runtime.schema.programs import Programs
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.walks import Walks, num_texts

NO_STRING = Strings(only=frozenset())
MAX_DRAWN = 1 << 20
"""Code points that a string may need so that one can still be drawn."""
_FEW = 32  # strings that are listed before one is drawn
_TRIES = 64
_MANY_STATES, _MANY_NODES = 1 << 14, 1 << 18  # in an arena that is given up for a fresh one

_Answer = TypeVar("_Answer")


class Languages:
    """The languages of one document. For numbers, places and errors of the constructor see `Programs`; past
    the limits of the regular engine, every question raises `UnsupportedConstraint`.

    `arena`: where the states are that `start` gives. Not safe to share between threads: questions that were
    not asked before add to it.
    """

    def __init__(
        self, patterns: Iterable[str] = (), formats: Iterable[str] = (), *, budget: Budget | None = None
    ) -> None:
        self._programs = programs = Programs(patterns, formats, budget)
        self._expressions = Expressions(programs)
        self._scratch: Expressions | None = None
        self._walks: Walks | None = None
        self._are_empty: dict[Strings, bool] = {}
        self._few: dict[Strings, list[str] | None] = {}
        self.arena = self._expressions.arena
        self.classes = programs.classes

    def release(self) -> Expressions:
        """Gives what was asked so far to the caller, with its arena, and goes on in a fresh one. The first
        `NUM_FIXED` rows of both stores are the same."""
        released = self._expressions
        self._expressions = Expressions(self._programs)
        self.arena = self._expressions.arena
        return released

    def pattern(self, text: str) -> int:
        """The number of a pattern that was given. Raises `KeyError` for another."""
        return self._programs.patterns[text]

    def format(self, name: str) -> int:
        """The number of a format that was given. Raises `KeyError` for another."""
        return self._programs.formats[name]

    def start(self, strings: Strings) -> int:
        """The state of the regular part (`every`, `none`, `low`, `high`) before any text, dead or alive; -1
        if that part is any string."""
        return self._expressions.start(strings)

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
        self._programs.check_exact(strings.every)
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
        self._programs.check_exact(strings.none)
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
        language = regular_part(strings)
        missing = sum(self.contains(language, word) for word in strings.excluded)
        return self._count_regular(language, limit + missing) - missing

    def _count_regular(self, language: Strings, limit: int) -> int:
        if not language.every and not language.none:
            return num_texts(language.low, language.high, limit)
        if not self._expressions.is_live(language) or limit <= 1:
            return min(limit, int(self._expressions.is_live(language)))
        return min(limit, self._walked(language, lambda walks, state: walks.count(state, limit)))

    def _walked(self, strings: Strings, question: Callable[[Walks, int], _Answer]) -> _Answer:
        """The answer to a question of walks from the start on. They may go far, so that they have a room of
        their own, which can be left."""
        scratch, walks = self._scratch, self._walks
        if scratch is None or walks is None or _is_much(scratch.arena):
            self._scratch = scratch = Expressions(self._programs)
            self._walks = walks = Walks(scratch.arena, self.classes)
        found = walks
        return scratch.asked(strings, lambda: question(found, scratch.state(strings)))

    def words(self, strings: Strings, limit: int) -> list[str] | None:
        """All strings in it, the shorter first, if they are at most `limit`."""
        if self.count(strings, limit + 1) > limit:
            return None
        return sorted(self._first(strings, limit), key=lambda word: (len(word), word))

    def _first(self, strings: Strings, limit: int) -> list[str]:
        """Some strings in it: at most `limit`, and all if there are fewer."""
        if strings.only is not None:
            return [word for word in strings.only if self.contains(strings, word)][:limit]
        if _is_contradiction(strings) or not self._expressions.is_live(strings):
            return []

        def first(walks: Walks, state: int) -> list[str]:
            allowed = (word for word in walks.words(state) if word not in strings.excluded)
            return list(islice(allowed, limit))

        return self._walked(strings, first)

    def sample(self, strings: Strings, rng: random.Random) -> str:
        """A string in it, by chance: of moderate length if it may be, and now and then of strange characters.

        Raises `ValueError` if there is none, and `UnsupportedConstraint` if all are longer than `MAX_DRAWN`.
        """
        if strings not in self._few:
            self._few[strings] = self.words(strings, max(_FEW, len(strings.only or ())))
        few = self._few[strings]
        if few is not None:
            if not few:
                raise ValueError("there is no string to draw")
            return rng.choice(few)
        if strings.low > MAX_DRAWN:
            raise UnsupportedConstraint(
                "minLength", "#", f"none of at most {MAX_DRAWN} characters is allowed"
            )
        for _ in range(_TRIES):
            word = self._walked(strings, lambda walks, state: walks.sample(state, rng, strings.low))
            if word not in strings.excluded:
                return word
        return rng.choice(self._first(strings, _FEW))


def _is_much(arena: Arena) -> bool:
    """Whether an arena should not be gone on with."""
    return arena.num_states > _MANY_STATES or arena.store.facts[NUM_NODES] > _MANY_NODES


def _is_contradiction(strings: Strings) -> bool:
    """Whether there is no string for a plain reason."""
    return bool(strings.every & strings.none) or (strings.high is not None and strings.low > strings.high)


def _is_long_enough(strings: Strings, text: str) -> bool:
    """Whether the length of a string is within the bounds."""
    return strings.low <= len(text) and (strings.high is None or len(text) <= strings.high)
