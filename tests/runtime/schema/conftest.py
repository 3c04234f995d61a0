"""A vocabulary of bytes, and whether a schema's grammar takes a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.suite_cases import byte_vocabulary, takes
from treille.runtime.grammar import Vocabulary
from treille.runtime.schema.compile import compile_json_schema

Accepts = Callable[..., bool]


@pytest.fixture(scope="session")
def byte_vocab() -> Vocabulary:
    """Every byte is a token by itself; 256 ends a text. What the first use compiles is compiled here: no
    test's time counts it."""
    vocab = byte_vocabulary()
    row = np.zeros(vocab.num_words, np.uint32)
    schema = {"type": "array", "items": {"type": "string", "pattern": "a"}, "uniqueItems": True}
    compile_json_schema(schema, vocab).matcher().fill_mask(row)
    return vocab


@pytest.fixture(scope="session")
def accepts(byte_vocab: Vocabulary) -> Accepts:
    """`accepts(schema, text, **options)`: the verdict on a text (or bytes), its mask checked at each byte.
    Every escape counts, unless `escapes` says otherwise."""

    def check(schema: Any, text: str | bytes, **options: Any) -> bool:
        grammar = compile_json_schema(schema, byte_vocab, **{"escapes": "any", **options})
        return takes(grammar, text.encode() if isinstance(text, str) else text)

    return check
