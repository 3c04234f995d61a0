"""From sampled tokens to text, one token at a time, complete characters only."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from treille.runtime.tokenizer import Tokenizer

_UTF8 = codecs.getincrementaldecoder("utf-8")
_LONGEST_PARTIAL = 3  # bytes of an unfinished UTF-8 character


class Detokenizer:
    """The text that output tokens add to a prompt.

    The deltas add up to the output's bytes decoded as UTF-8, with `�` for what is not UTF-8; control
    tokens have no bytes. A prompt that ends inside a character lends the output its beginning: if the
    first output byte goes on with it, the finished character belongs to the output. No other part of
    the prompt is ever returned.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int] = ()) -> None:
        self._bytes = tokenizer.token_bytes
        self._decoder = _UTF8("replace")
        self._lent = _unfinished(self._tail(prompt_ids))
        # Where the tokenizer puts a space before a text, an output that begins the text drops it again.
        begins = tokenizer.strips_first_space and not any(map(self._piece, prompt_ids))
        self._drops_space = begins

    def push(self, token_id: int) -> str:
        """The characters that this token completes; often one word, sometimes nothing."""
        return self.push_bytes(self._piece(token_id) or b"")

    def push_bytes(self, piece: bytes) -> str:
        """The same for bytes, such as those that a token adds to text that is known already."""
        if not piece:
            return ""
        if self._lent:
            if _goes_on(self._lent, piece):
                self._decoder.decode(self._lent)
            self._lent = b""
        text = self._decoder.decode(piece)
        if self._drops_space and text:
            self._drops_space = False
            text = text.removeprefix(" ")
        return text

    def flush(self) -> str:
        """The end: `�` if the output stops inside a character, else nothing. The cursor starts anew."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._lent = b""
        return text

    def _piece(self, token_id: int) -> bytes | None:
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else None

    def _tail(self, ids: Sequence[int]) -> bytes:
        """At least the last three bytes of the prompt's text, as far as no control token ends it."""
        tail = b""
        for token_id in reversed(ids):
            piece = self._piece(token_id)
            if piece is None or len(tail) >= _LONGEST_PARTIAL:
                break
            tail = piece + tail
        return tail


def _unfinished(tail: bytes) -> bytes:
    """The beginning of a character at the very end of `tail`, or nothing."""
    decoder = _UTF8("replace")
    decoder.decode(tail)
    pending, _ = decoder.getstate()
    return pending


def _goes_on(pending: bytes, piece: bytes) -> bool:
    """Whether the first byte of `piece` may follow the unfinished character `pending`."""
    try:
        _UTF8("strict").decode(pending + piece[:1])
    except UnicodeDecodeError:
        return False
    return True
