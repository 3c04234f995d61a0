"""Fixed white space: noise under every layout ends, in the text that `json.dumps` has, spellings aside."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import numpy as np
import pytest

from treille.runtime.grammar import Grammar, Vocabulary, compile_json_schema
from treille.runtime.schema.options import Layout

END = 256
SELDOM = frozenset(b"\\.eE0")
TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.0-9eE]+|[a-z]+')
SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {
            "t": {"enum": [1]},
            "u": {"enum": ["a"]},
            "v": {"type": "array", "items": {"type": "null"}},
        },
        "required": ["u"],
        "additionalProperties": False,
    },
    {"enum": [[1, 2], {"a": 1}, [], {}, [[]]]},
    {"type": "array", "maxItems": 0},
    {"type": "array", "minItems": 2, "uniqueItems": True, "items": {"enum": [True, "a"]}},
    {"type": "array", "contains": {"const": True}, "items": {"type": "boolean"}},
    {"type": "object", "additionalProperties": False},
]
LAYOUTS = [Layout(2, ",", ": "), Layout(0, ",", ":"), Layout(None, ", ", ": "), Layout(1, ",\t", ":\n")]


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    return Vocabulary([*(bytes([byte]) for byte in range(256)), None], eos_ids=[END])


def noise(grammar: Grammar, rng: random.Random) -> str:
    """A text of random bytes; digits and escapes come seldom, so that it ends soon."""
    matcher = grammar.matcher()
    row = np.zeros(grammar.vocab.num_words, np.uint32)
    data = b""
    while True:
        matcher.fill_mask(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
        assert allowed, f"nothing may follow {data!r}"
        few = [token for token in allowed if token not in SELDOM]
        token = rng.choice(few or allowed)
        if token == END:
            return data.decode()
        matcher.accept(token)
        data += bytes([token])
        assert len(data) < 1000


@pytest.mark.parametrize("order", ["schema", "any"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=range(len(LAYOUTS)))
def test_noise_is_laid_out(vocab: Vocabulary, layout: Layout, order: str) -> None:
    separators = (layout.item_separator, layout.key_separator)
    for schema in SCHEMAS:
        grammar = compile_json_schema(schema, vocab, whitespace=layout, property_order=order)
        for seed in range(8):
            text = noise(grammar, random.Random(seed))
            wanted = json.dumps(json.loads(text), indent=layout.indent, separators=separators)
            assert TOKENS.split(text) == TOKENS.split(wanted)
