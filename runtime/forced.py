"""Jump-forward: the text that a constraint leaves no choice about becomes tokens without being sampled.

**What holds.** Let T be the output so far and F the whole characters that must follow.

1. The text is what it would be without: only bytes that are forced anyway are added, and every token is
   accepted by the constraint's matcher.
2. A token is added only if it would be in the tokenizer's own tokens of T + F + Y for every text Y that the
   constraint lets follow. The tokens of T + F + Y change from those of T + F at the earliest where one
   begins that swallows the end of F; so the places at which such a token exists and is allowed are found,
   and the tokens are added that T + F has in common with T + F cut at each of these places. What comes
   after them is left to the mask, and the choice of its tokens to the model.
3. Where F makes the tokenizer write the end of T otherwise, tokens of T are replaced (healed). Tokens of T
   that F does not touch stay as the model chose them, be they the tokenizer's own or not.

So the tokens of a text that is forced throughout are the tokenizer's own. Greedy text is the same with and
without jump-forward wherever the model, left alone, writes what is forced as the tokenizer does; where it
would spell it otherwise, it goes on from other tokens.

The second point is exact for tokenizers of whose tokens the first n are the tokens of their own text, as
it is for merges (BPE) and for the longest match; a pre-tokenizer that looks ahead can break it, and then the
tokens may not be the tokenizer's own while the text still is right. T is looked at from its end, as far back
as it takes for the tokens to be independent of where one begins to read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from treille.runtime.matching import TextMatcher, TokenIndex, accepts
from treille.runtime.tokenizer import Tokenizer

MAX_FORCED = 65_536  # bytes that are added at a time: what is left is forced a token later
LOOKBACKS = (48, 1024)  # bytes of the output that are read again, and the second try
MAX_TAIL = 1024  # bytes of a long forced text that are read again to see where it ends
ANCHOR = "\n"  # put before a text where the tokenizer would else begin it with a space of its own


@dataclass(frozen=True, slots=True)
class Jump:
    """Replace the output's last `num_replaced` tokens by `token_ids`.

    `pieces` are the bytes that each adds to the text, `matcher` is past them all.
    """

    num_replaced: int
    token_ids: tuple[int, ...]
    pieces: tuple[bytes, ...]
    matcher: TextMatcher


@dataclass(frozen=True, slots=True)
class _Seam:
    """Where new tokens begin: after so many bytes, which are so many tokens of `tokens`, in the window.

    `num_replaced` tokens of the output lie behind it.
    """

    num_bytes: int
    num_tokens: int
    num_replaced: int


class JumpForward:
    """Finds jumps for one tokenizer. Keeps nothing of a text. `index` is asked for when it is needed."""

    def __init__(self, tokenizer: Tokenizer, index: Callable[[], TokenIndex]) -> None:
        self._tokenizer = tokenizer
        self._spellings = tokenizer.token_bytes
        self._index = index

    def find(
        self, output_ids: Sequence[int], matcher: TextMatcher, *, room: int, avoid: Container[int] = ()
    ) -> Jump | None:
        """The jump from here, or None. Changes nothing.

        `matcher` has accepted all of `output_ids`; at most `room` tokens may be added to them. No token
        of `avoid` is added, nor one behind it: these are left to the model.
        """
        index = self._index()
        forced = matcher.forced_bytes(min(room * index.longest, MAX_FORCED)) if room > 0 else b""
        if not forced or index.swallows(matcher, forced):
            return None
        for lookback in LOOKBACKS:
            first, window = self._window(output_ids, lookback)
            text = _whole(window + forced)
            tokens = self.encode(text) if len(text) > len(window) else None
            if tokens is None:
                return None
            seam = self._seam(output_ids[first:], window, tokens, is_whole=not first)
            if seam is not None:
                return self._jump(matcher, text, len(window), tokens, seam, room, avoid)
        return None

    def _jump(
        self,
        matcher: TextMatcher,
        text: bytes,
        num_known: int,
        tokens: list[int],
        seam: _Seam,
        room: int,
        avoid: Container[int],
    ) -> Jump | None:
        """The jump by those of `tokens`, the tokens of `text`, that are certain. `num_known` of its bytes
        are in the output."""
        base = matcher.copy()
        base.rollback(seam.num_replaced)
        count = self._certain(text, num_known, tokens, seam, base)
        new = tokens[seam.num_tokens : count][: room + seam.num_replaced]
        new = list(takewhile(lambda token_id: token_id not in avoid, new))
        pieces = self._pieces(new, num_known - seam.num_bytes)
        if not pieces or not pieces[-1] or not accepts(base, new):
            return None
        return Jump(seam.num_replaced, tuple(new), tuple(pieces), base)

    def encode(self, text: bytes) -> list[int] | None:
        """The tokenizer's own tokens of a text, or None if they do not spell it byte for byte."""
        try:
            string = text.decode()
        except UnicodeDecodeError:
            return None
        ids = self._tokenizer.encode(string, add_bos=False)
        if self._spell(ids) == text:
            return ids
        anchor = self._tokenizer.encode(ANCHOR, add_bos=False)
        ids = self._tokenizer.encode(ANCHOR + string, add_bos=False)
        if ids[: len(anchor)] == anchor and self._spell(ids[len(anchor) :]) == text:
            return ids[len(anchor) :]
        return None

    def _spell(self, ids: Sequence[int]) -> bytes | None:
        pieces = [self._spellings[token_id] for token_id in ids]
        return None if None in pieces else b"".join(piece for piece in pieces if piece)

    def _window(self, output_ids: Sequence[int], lookback: int) -> tuple[int, bytes]:
        """The output's end, from a token that begins with a whole character: its number, and the bytes."""
        pieces: list[bytes] = []
        size = 0
        for piece in (self._spellings[token_id] for token_id in reversed(output_ids)):
            is_start = not pieces or _begins_character(pieces[-1])
            if piece is None or (size >= lookback and is_start):
                break
            pieces.append(piece)
            size += len(piece)
        return len(output_ids) - len(pieces), b"".join(reversed(pieces))

    def _seam(
        self, actual: Sequence[int], window: bytes, tokens: list[int], *, is_whole: bool
    ) -> _Seam | None:
        """Where the new tokens begin; None if that may be before the window, which `is_whole` rules out."""
        if tokens[: len(actual)] == list(actual):
            return _Seam(len(window), len(actual), 0)
        before = self.encode(window)
        if before is None:
            return None
        untouched = _num_common(before, tokens)
        if untouched == len(before):
            return _Seam(len(window), untouched, 0)
        # The last place before what the forced text changes where both have a token's end.
        ends = {end: n for n, end in enumerate(self._ends(tokens[:untouched]))}
        own = self._ends(actual)
        shared = [(n, end) for n, end in enumerate(own) if end in ends]
        n, end = shared[-1]
        if not end and not is_whole:
            return None
        return _Seam(end, ends[end], len(actual) - n)

    def _certain(
        self, text: bytes, num_known: int, tokens: list[int], seam: _Seam, matcher: TextMatcher
    ) -> int:
        """How many of `tokens`, those of `text`, stay whatever follows. `matcher` stands at the seam."""
        ends = self._ends(tokens)
        certain = len(tokens)
        at, done = matcher.copy(), seam.num_bytes  # where the walk along the text is
        number = seam.num_tokens
        for place in range(max(seam.num_bytes, len(text) - self._index().longest + 1), len(text)):
            if not len(self._index().longer(text[place:])):
                continue
            while done == ends[number] and ends[number + 1] <= place:
                if not accepts(at, [tokens[number]]):
                    return seam.num_tokens
                number += 1
                done = ends[number]
            step = self._index().spell(at, text[done:place])
            if step is None or not accepts(at, step):
                return min(certain, number)  # the vocabulary cannot say: nothing from here on is certain
            done = place
            if not self._index().swallows(at, text[place:]):
                continue
            if place <= num_known:
                return seam.num_tokens
            certain = min(certain, self._shared(text[:place], tokens, ends))
        return certain

    def _shared(self, cut: bytes, tokens: list[int], ends: list[int]) -> int:
        """How many of `tokens` are also those of `cut`, a beginning of their text."""
        place = bisect_left(ends, len(cut))
        if ends[place] == len(cut):
            return place  # the first n tokens of a text are the tokens of their own text
        cut = _whole(cut)
        start = 0
        while start + 1 < len(ends) and ends[start + 1] <= len(cut) - MAX_TAIL:
            start += 1
        found = self.encode(cut[ends[start] :])
        return 0 if found is None else start + _num_common(found, tokens[start:])

    def _ends(self, ids: Sequence[int]) -> list[int]:
        """Where each token ends, after a 0."""
        return list(accumulate((len(self._spellings[i] or b"") for i in ids), initial=0))

    def _pieces(self, ids: Sequence[int], known: int) -> list[bytes]:
        """The bytes of each token, without the first `known` of all."""
        pieces = []
        for token_id in ids:
            piece = self._spellings[token_id] or b""
            pieces.append(piece[known:])
            known = max(0, known - len(piece))
        return pieces


def _begins_character(piece: bytes) -> bool:
    return not 0x80 <= piece[0] < 0xC0


def _whole(text: bytes) -> bytes:
    """`text` without the beginning of a character at its end."""
    for size in range(1, min(3, len(text)) + 1):
        byte = text[-size]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return text[:-size] if size < needed else text
        if byte < 0x80:
            break
    return text


def _num_common(first: Sequence[int], second: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
