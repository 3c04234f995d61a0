"""Log-probabilities in OpenAI's two shapes.

The values are the model's own, before penalties, masks and temperature (see `SamplingParams`). Every
one is finite: OpenAI's -9999.0 stands for whatever is less likely than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from treille.runtime.types import PromptLogprobs, TokenLogprob
from treille.server.answers import ChatLogprobs, ChatTokenLogprob, CompletionLogprobs, TopLogprob
from treille.server.seam import ServingTokenizer

FLOOR = -9999.0


def finite(logprob: float) -> float:
    """The value as JSON can hold it. NaN is a fault of ours, never a value."""
    if math.isnan(logprob):
        raise RuntimeError("a log-probability is NaN")
    return max(float(logprob), FLOOR)


def token_bytes(tokenizer: ServingTokenizer, token_id: int) -> bytes | None:
    """The token's bytes; None for special tokens, which stand for no text."""
    table = tokenizer.token_bytes
    return table[token_id] if token_id < len(table) else None


def token_text(tokenizer: ServingTokenizer, token_id: int) -> tuple[str, bytes | None]:
    """How the token is shown, and its bytes. Bytes that are no whole characters are escaped."""
    raw = token_bytes(tokenizer, token_id)
    if raw is None:
        return f"<|{token_id}|>", None
    try:
        return raw.decode("utf-8"), raw
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in raw), raw


def chat_logprobs(tokenizer: ServingTokenizer, items: Iterable[TokenLogprob], num_top: int) -> ChatLogprobs:
    """The chat shape: one entry a token, with its bytes and its `num_top` likeliest alternatives."""
    content = []
    for item in items:
        shown = _top(tokenizer, item.token_id, item.logprob)
        top = [_top(tokenizer, token_id, logprob) for token_id, logprob in item.top[:num_top]]
        content.append(ChatTokenLogprob(**shown.model_dump(), top_logprobs=top))
    return ChatLogprobs(content=content, refusal=None)


def _top(tokenizer: ServingTokenizer, token_id: int, logprob: float) -> TopLogprob:
    text, raw = token_text(tokenizer, token_id)
    # Special tokens have no text: with an empty list, the joined bytes of all tokens are the answer's text.
    return TopLogprob(token=text, logprob=finite(logprob), bytes=list(raw or b""))


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt as an answer repeats it: its tokens, its text, and where in that each token begins."""

    token_ids: tuple[int, ...]
    text: str
    offsets: tuple[int, ...]


def echo_of(tokenizer: ServingTokenizer, token_ids: Sequence[int], text: str | None) -> Echo:
    """A prompt that came as `text`, which is repeated as it came; of one that came as ids (None) the text is
    that of its ordinary tokens, as in the output."""
    offsets, place = [], 0
    for token_id in token_ids:
        offsets.append(place if text is None else min(place, len(text)))
        raw = token_bytes(tokenizer, token_id)
        place += _num_starts(raw)
        if text is None:
            continue
        if raw is None:  # spelled in the text, or put before it by the tokenizer
            spelled = tokenizer.spelling(token_id)
            place += len(spelled) if text.startswith(spelled, place) else 0
        elif raw.startswith(b" ") and not text.startswith(" ", offsets[-1]):
            place -= 1  # a space that the tokenizer puts before a text
    if text is None:
        pieces = (token_bytes(tokenizer, token_id) or b"" for token_id in token_ids)
        text = b"".join(pieces).decode("utf-8", "replace")
    return Echo(tuple(token_ids), text, tuple(min(offset, len(text)) for offset in offsets))


class CompletionColumns:
    """The completions shape, one choice's tokens bit by bit: offsets go on from call to call, behind those of
    the `echo` that the choice begins with."""

    def __init__(self, tokenizer: ServingTokenizer, num_top: int, echo: Echo | None = None) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._echo = echo
        self._num_chars = 0 if echo is None else len(echo.text)

    def add(self, items: Iterable[TokenLogprob], prompt: PromptLogprobs | None = None) -> CompletionLogprobs:
        """The columns of the next tokens, behind those of the prompt, where its values are given."""
        columns = CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
        if prompt is not None and self._echo is not None:
            echo = self._echo
            for token_id, offset, entry in zip(echo.token_ids, echo.offsets, prompt, strict=True):
                self._append(columns, token_id, entry, offset)
        for item in items:
            self._append(columns, item.token_id, item, self._num_chars)
            self._num_chars += _num_starts(token_bytes(self._tokenizer, item.token_id))
        return columns

    def _append(
        self, columns: CompletionLogprobs, token_id: int, item: TokenLogprob | None, offset: int
    ) -> None:
        name = self._name(token_id)
        columns.tokens.append(name)
        columns.token_logprobs.append(None if item is None else finite(item.logprob))
        columns.top_logprobs.append(None if item is None else self._top(name, item))
        columns.text_offset.append(offset)

    def _top(self, name: str, item: TokenLogprob) -> dict[str, float]:
        top = {self._name(token_id): finite(logprob) for token_id, logprob in item.top[: self._num_top]}
        # As OpenAI has it: the token itself is always there, over and above the likeliest ones.
        top.setdefault(name, finite(item.logprob))
        return top

    def _name(self, token_id: int) -> str:
        text, raw = token_text(self._tokenizer, token_id)
        return (
            f"bytes:{text}"
            if raw is not None and text.startswith("\\x") and not raw.startswith(b"\\x")
            else text
        )


def _num_starts(raw: bytes | None) -> int:
    """Characters that begin in these bytes: every byte of UTF-8 that does not continue one."""
    return 0 if raw is None else sum(byte & 0xC0 != 0x80 for byte in raw)
