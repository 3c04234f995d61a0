"""Walks through the states of a language, character by character: its words, how many, and one at random."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Set

import numpy as np

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.arena import Arena
from treille.runtime.grammar.classes import Classes
from treille.runtime.grammar.store import Bytes

NUM_CHARACTERS = 0x110000 - 0x800
_LONG = 4  # to this power, there are more of them than 64 bits can count
_PRINTABLE = range(0x20, 0x7F)
_TELLING = '"\\/\n\t\x00\x7f{}éßŁ\u0130\u2028日本\u0301\ufeff\uffff😀\U0010ffff'
_FEW_KEPT = 100_000  # states whose steps are remembered
_USUAL, _LONGEST = 8, 60  # characters of a word by chance: on average, and at most if it may end there
_EARLY = 0.1  # how likely it ends before
_LIKELIEST = 40  # how much likelier a large class of characters is than one character
_MAX_SEARCHED = 100_000  # states that are looked at, for one question
_MAX_NEW = 1000  # characters more than wanted before the shortest way out is sought

Step = tuple[int, int]


def num_texts(low: int, high: int | None, limit: int) -> int:
    """How many texts have from `low` to `high` characters, or `limit` (of 64 bits) if there are as many."""
    if high is None:
        return limit
    total = 0
    for length in range(low, high + 1):
        total += NUM_CHARACTERS ** min(length, _LONG)
        if total >= limit:
            return limit
    return total


class Walks:
    """Ways through live states. Raises what the arena raises."""

    def __init__(self, arena: Arena, classes: Classes) -> None:
        self._arena = arena
        self._ranges = _ranges_of(classes)
        self._sizes = [sum(high - low + 1 for low, high in ranges) for ranges in self._ranges]
        self._weights = [float(min(size, _LIKELIEST)) for size in self._sizes]
        self._data: list[Bytes] = [_encoded(chr(ranges[0][0])) for ranges in self._ranges]
        self._steps: dict[int, tuple[Step, ...]] = {}
        self._likely: dict[int, tuple[str, str]] = {}

    def steps(self, state: int) -> tuple[Step, ...]:
        """The classes of characters that may follow a state, each with the live state that it leads to."""
        found = self._steps.get(state)
        if found is None:
            after = self._arena.after
            ways = ((symbol, after(state, data, 0, len(data))) for symbol, data in enumerate(self._data))
            found = tuple((symbol, following) for symbol, following in ways if following >= 0)
            if len(self._steps) < _FEW_KEPT:
                self._steps[state] = found
        return found

    def count(self, start: int, limit: int) -> int:
        """How many words there are from a live state on, or `limit` if there are at least so many.

        Length by length: a word that is begun and goes on live is one more word at least, and where a word
        has been through more places than there are states, it was in a loop, and there are endlessly many.
        """
        layer = {start: 1}
        seen = {start}
        total = length = work = 0
        while layer:
            work += len(layer)
            if work > _MAX_SEARCHED:
                raise UnsupportedConstraint("pattern", "#", "its texts cannot be counted in time")
            total += sum(ways for state, ways in layer.items() if self._arena.accepts(state))
            following: dict[int, int] = {}
            for state, ways in layer.items():
                for symbol, after in self.steps(state):
                    following[after] = following.get(after, 0) + ways * self._sizes[symbol]
            layer = following
            seen.update(layer)
            length += 1
            if total + sum(layer.values()) >= limit or (layer and length >= len(seen)):
                return limit
        return total

    def words(self, start: int) -> Iterator[str]:
        """The words from a live state on, the shorter first; endless if they are."""
        if self._arena.accepts(start):
            yield ""
        queue = deque([("", start)])
        while queue:
            begun, state = queue.popleft()
            for symbol, after in self.steps(state):
                for low, high in self._ranges[symbol]:
                    for code in range(low, high + 1):
                        word = begun + chr(code)
                        if self._arena.accepts(after):
                            yield word
                        queue.append((word, after))

    def sample(self, start: int, rng: random.Random, low: int = 0) -> str:
        """A word from a live state on, where none is shorter than `low`: wandering for a while, then making
        for new states, and at last, if that leads nowhere, the shortest way to an end."""
        characters: list[str] = []
        wanted = low + min(int(rng.expovariate(1 / _USUAL)), _LONGEST)
        state = start
        seen: set[int] = set()
        while not (self._arena.accepts(state) and (len(characters) >= wanted or rng.random() < _EARLY)):
            seen.add(state)
            step = self._by_chance(state, rng, seen if len(characters) >= wanted else frozenset())
            if step is None or len(characters) > wanted + _MAX_NEW:
                break
            symbol, state = step
            characters.append(self.character(symbol, rng))
        if not self._arena.accepts(state):
            characters.extend(self.character(symbol, rng) for symbol in self._way_out(state, rng))
        return "".join(characters)

    def _by_chance(self, state: int, rng: random.Random, avoided: Set[int]) -> Step | None:
        """A step that leads to no avoided state, if there is one. Most classes are not even tried."""
        ranks = sorted((rng.expovariate(weight), symbol) for symbol, weight in enumerate(self._weights))
        for _, symbol in ranks:
            data = self._data[symbol]
            following = self._arena.after(state, data, 0, len(data))
            if following >= 0 and following not in avoided:
                return symbol, following
        return None

    def _way_out(self, start: int, rng: random.Random) -> list[int]:
        """The classes along a shortest way from a live state to an accepting one."""
        came_from: dict[int, tuple[int, int]] = {start: (-1, -1)}
        queue = deque([start])
        while len(came_from) < _MAX_SEARCHED:
            state = queue.popleft()
            steps = list(self.steps(state))
            rng.shuffle(steps)
            for symbol, after in steps:
                if after not in came_from:
                    came_from[after] = (state, symbol)
                    queue.append(after)
                    if self._arena.accepts(after):
                        return _way_back(came_from, after)
        raise UnsupportedConstraint("pattern", "#", "no text was found in time")

    def character(self, symbol: int, rng: random.Random) -> str:
        """A character of a class: mostly one to be read, sometimes one that needs care, seldom any."""
        if symbol not in self._likely:
            self._likely[symbol] = (
                "".join(chr(code) for code in _PRINTABLE if self._has(symbol, code)),
                "".join(one for one in _TELLING if self._has(symbol, ord(one))),
            )
        chance = rng.random()
        plain, telling = self._likely[symbol]
        if plain and chance < 0.75:
            return rng.choice(plain)
        if telling and chance < 0.9:
            return rng.choice(telling)
        low, high = rng.choice(self._ranges[symbol])
        return chr(rng.randint(low, high))

    def _has(self, symbol: int, code: int) -> bool:
        return any(low <= code <= high for low, high in self._ranges[symbol])


def _way_back(came_from: dict[int, tuple[int, int]], state: int) -> list[int]:
    found: list[int] = []
    while came_from[state][0] >= 0:
        state, symbol = came_from[state]
        found.append(symbol)
    found.reverse()
    return found


def _encoded(text: str) -> Bytes:
    return np.array(bytearray(text.encode()), np.uint8)


def _ranges_of(classes: Classes) -> list[list[tuple[int, int]]]:
    """The code points of each class, as inclusive ranges."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(classes.members.shape[1])]
    starts = classes.starts.tolist()
    ends = [*starts[1:], 0x110000]
    for low, end, number in zip(starts, ends, classes.numbers.tolist(), strict=True):
        if number >= 0:
            found[number].append((low, end - 1))
    return found
