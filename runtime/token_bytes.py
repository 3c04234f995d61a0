"""The bytes that each token stands for: the spelling tricks of tokenizer files undone.

Two schemes exist. *Byte-level* vocabularies (GPT-2 and its heirs) spell every byte as one printable
character, so that a space shows as `Ġ`. *SentencePiece* vocabularies write a space as `▁` and a byte
that no piece covers as `<0xE2>`. Added tokens are spelled plainly in both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import tokenizers
from tokenizers import decoders

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class TokenText:
    """How a tokenizer spells text. `strips_first_space`: decoding takes off the space put before a text."""

    scheme: Literal["byte-level", "sentencepiece", "plain"]
    strips_first_space: bool

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer) -> TokenText:
        """Read off the tokenizer's decoder, which exists to undo exactly this."""
        steps = _steps(backend.decoder)
        kinds = {step["type"] for step in steps}
        if "ByteLevel" in kinds:
            return cls("byte-level", strips_first_space=False)
        marker = any(step["type"] == "Replace" and step.get("pattern") == {"String": "▁"} for step in steps)
        if marker or kinds & {"ByteFallback", "Metaspace"}:
            strips = any(step["type"] == "Strip" and step.get("start") for step in steps) or any(
                step["type"] == "Metaspace" and step.get("prepend_scheme") != "never" for step in steps
            )
            return cls("sentencepiece", strips_first_space=strips)
        return cls("plain", strips_first_space=False)


def byte_alphabet() -> dict[str, int]:
    """Byte-level spelling: character -> byte. Printable Latin-1 bytes spell themselves.

    The others (controls, space, soft hyphen, ...) take the characters from U+0100 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    rest = [byte for byte in range(256) if byte not in set(printable)]
    alphabet.update({chr(0x100 + n): byte for n, byte in enumerate(rest)})
    return alphabet


def token_bytes(
    vocab: Mapping[str, int],
    size: int,
    added: Collection[int],
    special: Collection[int],
    text: TokenText,
) -> list[bytes | None]:
    """Bytes by token id, `size` of them; None for ids in `special` and for ids without a token.

    `added` holds the ids whose spelling is plain text.
    """
    table: list[bytes | None] = [None] * size
    alphabet = byte_alphabet()
    known = alphabet.keys()
    to_byte = {ord(character): chr(byte) for character, byte in alphabet.items()}
    for token, token_id in vocab.items():
        if token_id in special:
            continue
        if token_id in added or text.scheme == "plain":
            table[token_id] = token.encode("utf-8", "replace")
        elif text.scheme == "sentencepiece":
            piece = _BYTE_PIECE.fullmatch(token)
            table[token_id] = (
                bytes([int(piece[1], 16)]) if piece else token.replace("▁", " ").encode("utf-8", "replace")
            )
        elif known >= set(token):
            table[token_id] = token.translate(to_byte).encode("latin-1")
        else:  # not spelled in the alphabet, so it cannot come out of encoding; decoders take it literally
            table[token_id] = token.encode("utf-8", "replace")
    return table


def _steps(decoder: decoders.Decoder | None) -> list[dict[str, object]]:
    """The decoder's steps as its JSON form lists them, nested sequences flattened."""
    if decoder is None:
        return []
    state: Any = decoder.__getstate__()  # the bindings' only view of a decoder: its JSON
    return _flatten(json.loads(state))


def _flatten(step: dict[str, object]) -> list[dict[str, object]]:
    inner = step.get("decoders")
    if step.get("type") != "Sequence" or not isinstance(inner, list):
        return [step]
    return [leaf for child in inner for leaf in _flatten(child)]
