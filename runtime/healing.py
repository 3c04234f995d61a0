"""Healing the seam between a prompt and its output: the prompt's last tokens are taken back and written anew.

A text prompt ends where its writer stopped, often inside what the tokenizer would make one token: after
`http:` comes `//`, but the tokenizer knows `://`. So the last tokens are taken back if a longer token begins
among them, and the output must begin with their bytes: a token may be a part of what is left of them, or
all of it with something behind. The bytes taken back are no part of the output's text, so prompt and output
together are the same text, byte for byte, as without.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treille.runtime.errors import GrammarError
from treille.runtime.matching import FEW, Mask, TextMatcher, TokenIndex


def take_back(prompt_ids: Sequence[int], index: TokenIndex) -> tuple[int, bytes]:
    """How many of a prompt's last tokens to take back, and their bytes.

    All from the earliest place on where a token begins that holds the rest of the prompt and goes on.
    Tokens without text, such as a turn's mark, stay, and so does the first token.
    """
    taken, count = b"", 0
    for size, token_id in enumerate(prompt_ids[:0:-1], 1):
        spelling = index.spellings[token_id] if token_id < len(index.spellings) else None
        if not spelling or len(taken) >= index.longest:
            break
        taken = spelling + taken
        if any(len(index.longer(taken[place:])) for place in range(len(spelling))):
            count = size
    if not count:
        return 0, b""
    return count, b"".join(index.spellings[token_id] or b"" for token_id in prompt_ids[-count:])


class Seam:
    """What one request takes back: `taken`, then what the constraint allows. Shared by its samples.

    `inner` is a matcher at the start of the constraint's text, None for free text; it is not changed.
    """

    def __init__(self, taken: bytes, index: TokenIndex, inner: TextMatcher | None) -> None:
        self.taken = taken
        self.index = index
        self.inner = inner
        self._live = [False] * len(taken) + [True]
        for place in reversed(range(len(taken))):
            self._live[place] = bool(self.parts(place)) or any(
                self.goes_on(place, token_id) for token_id in index.longer(taken[place:]).tolist()
            )
        self._rows: dict[int, Mask] = {}

    def matcher(self) -> HealedMatcher:
        """A matcher at the start of what was taken back."""
        return HealedMatcher(self, None if self.inner is None else self.inner.copy())

    def parts(self, place: int) -> list[int]:
        """Tokens that are the next bytes of `taken` from `place` on and leave a way to the end of it."""
        ends = range(place + 1, min(len(self.taken), place + self.index.longest) + 1)
        return [i for end in ends if self._live[end] for i in self.index.same(self.taken[place:end])]

    def goes_on(self, place: int, token_id: int) -> bool:
        """Whether the token holds all of `taken` from `place` on, and then what the constraint allows."""
        return self.after(place, token_id, self.inner) is not None

    def after(self, place: int, token_id: int, inner: TextMatcher | None) -> list[int] | None:
        """The tokens by which `inner` gets past what the token adds to `taken`; None if it may not."""
        spelling = self.index.spellings[token_id]
        rest = self.taken[place:]
        if spelling is None or len(spelling) <= len(rest) or not spelling.startswith(rest):
            return None
        return [] if inner is None else self.index.spell(inner, spelling[len(rest) :])

    def row(self, place: int) -> Mask:
        """The tokens allowed after `place` bytes of `taken`: uint32, 32 tokens a word."""
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = np.zeros(self.index.num_words, np.uint32)
            longer = self.index.longer(self.taken[place:])
            ids = np.array([*self.parts(place), *self._candidates(place, longer.tolist())], np.uint32)
            np.bitwise_or.at(row, ids >> 5, np.uint32(1) << (ids & 31))
        return row

    def _candidates(self, place: int, longer: list[int]) -> list[int]:
        """Of tokens that go on behind `taken`, those that the constraint allows."""
        if self.inner is None:
            return longer
        if len(longer) <= FEW:
            return [token_id for token_id in longer if self.goes_on(place, token_id)]
        # Most texts behind the seam are tokens themselves: one mask tells about them all.
        mask = np.zeros(self.index.num_words, np.uint32)
        self.inner.fill_mask(mask)
        size = len(self.taken) - place
        found = []
        for token_id in longer:
            spelling = self.index.spellings[token_id] or b""
            same = self.index.same(spelling[size:])
            if any(mask[i >> 5] >> (i & 31) & 1 for i in same) or self.goes_on(place, token_id):
                found.append(token_id)
        return found


class HealedMatcher:
    """A matcher that first wants what was taken back. `num_accepted` and `rollback` count its own tokens."""

    __slots__ = ("_done", "_history", "_inner", "_seam")

    def __init__(self, seam: Seam, inner: TextMatcher | None) -> None:
        self._seam = seam
        self._inner = inner
        self._done = 0  # bytes of what was taken back
        self._history: list[tuple[int, int]] = []  # bytes and inner tokens of each token

    @property
    def is_free(self) -> bool:
        """Whether nothing limits the text from here on."""
        return self._inner is None and self._done == len(self._seam.taken)

    @property
    def num_accepted(self) -> int:
        """Tokens accepted so far, and not rolled back."""
        return len(self._history)

    def fill_mask(self, row: Mask) -> None:
        """As `grammar.Matcher.fill_mask`. In free text every token is allowed."""
        if self._done < len(self._seam.taken):
            known = self._seam.row(self._done)
            row[: len(known)] = known
            row[len(known) :] = 0
        elif self._inner is None:
            row[:] = np.uint32(0xFFFFFFFF)
        else:
            self._inner.fill_mask(row)

    def allows(self, token_id: int) -> bool:
        """Whether `accept` would take the token."""
        return self._next(token_id) is not None

    def accept(self, token_id: int) -> None:
        """Goes on by one token. Raises `GrammarError` if it is not allowed; the state is unchanged."""
        following = self._next(token_id)
        if following is None:
            raise GrammarError(f"token {token_id} is not allowed after {self.num_accepted} tokens")
        size, inner = following
        if self._inner is not None:
            for one in inner:
                self._inner.accept(one)
        self._done += size
        self._history.append((size, len(inner)))

    def rollback(self, n: int) -> None:
        """Takes the last `n` tokens back. Raises `GrammarError`, unchanged, if there are fewer."""
        if n < 0:
            raise ValueError(f"cannot roll back {n} tokens")
        if n > len(self._history):
            raise GrammarError(f"cannot roll back {n} tokens of {len(self._history)}")
        for size, num_inner in self._history[len(self._history) - n :]:
            self._done -= size
            if self._inner is not None:
                self._inner.rollback(num_inner)
        del self._history[len(self._history) - n :]

    def copy(self) -> HealedMatcher:
        """A matcher at the same place, independent from now on."""
        other = HealedMatcher(self._seam, None if self._inner is None else self._inner.copy())
        other._done = self._done
        other._history = self._history[:]
        return other

    def can_stop(self) -> bool:
        """Whether the text so far is accepted as it is."""
        return self._done == len(self._seam.taken) and (self._inner is None or self._inner.can_stop())

    def must_stop(self) -> bool:
        """Whether the text so far is accepted and nothing can be added."""
        return self._done == len(self._seam.taken) and self._inner is not None and self._inner.must_stop()

    def is_finished(self) -> bool:
        """Whether the text is complete."""
        return self._done == len(self._seam.taken) and self._inner is not None and self._inner.is_finished()

    def forced_bytes(self, limit: int | None = None) -> bytes:
        """What is left of the bytes taken back, then what the constraint forces; at most `limit` bytes."""
        forced = self._seam.taken[self._done :]
        if self._inner is not None and (limit is None or len(forced) < limit):
            forced += self._inner.forced_bytes(None if limit is None else limit - len(forced))
        return forced if limit is None else forced[:limit]

    def _next(self, token_id: int) -> tuple[int, list[int]] | None:
        """Bytes of what was taken back, and inner tokens, that a token stands for; None if not allowed."""
        place, seam = self._done, self._seam
        left = len(seam.taken) - place
        if not left:
            if self._inner is None:
                return 0, [token_id]
            return (0, [token_id]) if self._inner.allows(token_id) else None
        if not 0 <= token_id < len(seam.index.spellings):
            return None
        if token_id in seam.parts(place):
            return len(seam.index.spellings[token_id] or b""), []
        inner = seam.after(place, token_id, self._inner)
        return None if inner is None else (left, inner)


def released(matcher: TextMatcher | None) -> TextMatcher | None:
    """The matcher to go on with: None once nothing limits the text any more."""
    return None if isinstance(matcher, HealedMatcher) and matcher.is_free else matcher
