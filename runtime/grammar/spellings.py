"""The bytes of every token of a tokenizer, whichever library it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import models

from treille.runtime.token_bytes import TokenText, token_bytes

# Names that special tokens which end a text go by; only asked where a tokenizer does not say.
_USUAL_ENDS = frozenset(
    ("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>")
) | {"<end_of_turn>", "<|return|>"}


@dataclass(frozen=True, slots=True)
class Spellings:
    """Bytes by token id (None: not text), the ids that end a text, and the width of the vocabulary."""

    tokens: tuple[bytes | None, ...]
    eos_ids: frozenset[int]
    vocab_size: int


def read_tokenizer(tokenizer: Any) -> Spellings:
    """The spellings of this runtime's `Tokenizer`, a `tokenizers.Tokenizer` or a transformers tokenizer.

    Raises `ValueError` for a tokenizer whose pieces are joined by rules and have no bytes of their own,
    `TypeError` for anything else.
    """
    if hasattr(tokenizer, "token_bytes") and hasattr(tokenizer, "eos_ids"):
        tokens = tuple(tokenizer.token_bytes)
        return Spellings(tokens, frozenset(tokenizer.eos_ids), max(len(tokens), tokenizer.vocab_size))
    if isinstance(tokenizer, tokenizers.Tokenizer):
        return _spellings(tokenizer, None)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if isinstance(backend, tokenizers.Tokenizer):
        eos_id = getattr(tokenizer, "eos_token_id", None)
        return _spellings(backend, frozenset() if eos_id is None else frozenset([eos_id]))
    raise TypeError(f"not a tokenizer whose tokens can be read: {type(tokenizer).__name__}")


def _spellings(backend: tokenizers.Tokenizer, eos_ids: frozenset[int] | None) -> Spellings:
    text = TokenText.of(backend)
    if isinstance(backend.model, models.WordPiece):
        raise ValueError("a WordPiece tokenizer's pieces are joined by rules, and have no bytes of their own")
    added = backend.get_added_tokens_decoder()
    special = {token_id for token_id, token in added.items() if token.special}
    if eos_ids is None:
        eos_ids = frozenset(token_id for token_id in special if added[token_id].content in _USUAL_ENDS)
    vocab = backend.get_vocab(with_added_tokens=True)
    size = max(vocab.values(), default=-1) + 1
    return Spellings(tuple(token_bytes(vocab, size, added, special | eos_ids, text)), eos_ids, size)
