"""What the engine asks of a constraint's matcher, and the vocabulary's tokens in the order of their bytes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from treille.runtime.errors import GrammarError

Mask = NDArray[np.uint32]
Ids = NDArray[np.int64]

# So many tokens are asked about one by one before a whole mask is filled for them.
FEW = 16


class TextMatcher(Protocol):
    """One text's place in its constraint: `grammar.Matcher`, or what stands before one. See there."""

    @property
    def num_accepted(self) -> int: ...
    def fill_mask(self, row: Mask) -> None: ...
    def allows(self, token_id: int) -> bool: ...
    def accept(self, token_id: int) -> None: ...
    def rollback(self, n: int) -> None: ...
    def copy(self) -> TextMatcher: ...
    def can_stop(self) -> bool: ...
    def must_stop(self) -> bool: ...
    def is_finished(self) -> bool: ...
    def forced_bytes(self, limit: int | None = None) -> bytes: ...


class TokenIndex:
    """Tokens by their bytes. Immutable, any thread. `spellings` has None for tokens that are not text.

    `longest` is the length of the longest token, `num_words` that of a mask over these tokens.
    """

    def __init__(self, spellings: Sequence[bytes | None]) -> None:
        pairs = sorted((text, token_id) for token_id, text in enumerate(spellings) if text)
        self.spellings = spellings
        self.longest = max((len(text) for text, _ in pairs), default=0)
        self.num_words = -(-len(spellings) // 32)
        self._texts = [text for text, _ in pairs]
        self._ids: Ids = np.array([token_id for _, token_id in pairs], dtype=np.int64)

    def same(self, text: bytes) -> list[int]:
        """The tokens with exactly these bytes."""
        found: list[int] = self._ids[
            bisect_left(self._texts, text) : bisect_right(self._texts, text)
        ].tolist()
        return found

    def longer(self, text: bytes) -> Ids:
        """The tokens that begin with `text` and go on."""
        if len(text) >= self.longest:
            return self._ids[:0]
        low = bisect_right(self._texts, text)
        return self._ids[low : bisect_left(self._texts, _after(text), low)]

    def swallows(self, matcher: TextMatcher, text: bytes) -> bool:
        """Whether the matcher allows a token that begins with `text` and goes on."""
        ids = self.longer(text)
        if len(ids) <= FEW:
            return any(map(matcher.allows, ids.tolist()))
        row = np.zeros(self.num_words, np.uint32)
        matcher.fill_mask(row)
        return bool((row[ids >> 5] >> (ids & 31).astype(np.uint32) & 1).any())

    def spell(self, matcher: TextMatcher, text: bytes) -> list[int] | None:
        """Tokens by which a copy of `matcher` can be brought past `text`: where a byte is a token of its own,
        any text can be spelled. None if it is not allowed, or if the tokens cannot say."""
        for token_id in self.same(text):
            if matcher.allows(token_id):
                return [token_id]
        trial = matcher.copy()
        spelled: list[int] = []
        for byte in text:
            found = next((i for i in self.same(bytes([byte])) if trial.allows(i)), None)
            if found is None:
                return None
            trial.accept(found)
            spelled.append(found)
        return spelled


def accepts(matcher: TextMatcher, token_ids: Sequence[int]) -> bool:
    """Goes on by all these tokens; False, at the first that is not allowed, if one is not."""
    try:
        for token_id in token_ids:
            matcher.accept(token_id)
    except GrammarError:
        return False
    return True


def _after(text: bytes) -> bytes:
    """The least text above all that begin with `text`; one above all tokens if there is none."""
    stem = text.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\xff" * (len(text) + 1024)
