"""`escapes`: the texts that each option allows, in full, against the spellings of each value written out."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treille.runtime.grammar import Matcher, Vocabulary
from treille.runtime.schema.compile import compile_json_schema
from treille.runtime.schema.escapes import escapable
from treille.runtime.schema.options import Options
from treille.runtime.tokenizer import Tokenizer

SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
PLANE_4 = "\U00041234"  # its UTF-8 begins with F1
OCTOPUS = "\U0001f419"


def coded(character: str) -> list[str]:
    """A character as \\u and digits, in every case of the digits."""
    units = character.encode("utf-16-be").hex()
    ways = product(*({digit, digit.upper()} for digit in units))
    return ["".join(f"\\u{''.join(way[at : at + 4])}" for at in range(0, len(way), 4)) for way in ways]


def spelled(text: str, escapes: str, missing: str = "") -> set[str]:
    """The ways to write a string. `missing`: what may be written escaped as well, or not as itself."""
    ways = []
    for one in text:
        itself = [one] if one not in SHORT and one >= " " else []
        short = [SHORT[one]] if one in SHORT else []
        if escapes == "any":
            ways.append([*itself, *short, *(["\\/"] if one == "/" else []), *coded(one)])
        elif one in missing:
            ways.append(coded(one))
        else:
            ways.append(itself or short or coded(one))
    return {f'"{"".join(way)}"' for way in product(*ways)}


def allowed(matcher: Matcher) -> list[int]:
    vocab = matcher.grammar.vocab
    row = np.zeros(vocab.num_words, np.uint32)
    matcher.fill_mask(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little", count=vocab.vocab_size)
    return [int(one) for one in np.flatnonzero(bits)]


def written(schema: Any, vocab: Vocabulary, **options: Any) -> set[str]:
    """All texts that the masks lead to; no mask on the way may be empty."""
    found = set()
    waiting = [(compile_json_schema(schema, vocab, whitespace="compact", **options).matcher(), b"")]
    while waiting:
        matcher, text = waiting.pop()
        tokens = allowed(matcher)
        assert tokens, text
        for token in tokens:
            if token in vocab.eos_ids:
                found.add(text.decode())
                continue
            further = matcher.copy()
            further.accept(token)
            waiting.append((further, text + (vocab.tokens[token] or b"")))
    return found


PLAIN = ["", "/", '"', "\\", "\x7f", "é", "\u2028", OCTOPUS]
STRINGS: list[tuple[Any, list[str]]] = [
    ({"const": "a"}, ["a"]),
    ({"enum": PLAIN}, PLAIN),
    ({"enum": [chr(point) for point in range(0x23)]}, [chr(point) for point in range(0x23)]),
    ({"type": "string", "pattern": "^[\\x00-\\x23/\\\\]$"}, [*map(chr, range(0x24)), "/", "\\"]),
    ({"pattern": "^[a\\n]{0,2}$", "type": "string", "not": {"enum": ["\n", "aa"]}},
     ["", "a", "a\n", "\na", "\n\n"]),
    ({"type": "string", "pattern": '^(a"|\\x0b?é)$'}, ['a"', "\x0bé", "é"]),
]  # fmt: skip


@pytest.mark.parametrize("escapes", ["minimal", "any"])
@pytest.mark.parametrize(("schema", "values"), STRINGS)
def test_strings(byte_vocab: Vocabulary, schema: Any, values: list[str], escapes: str) -> None:
    wanted = set().union(*(spelled(value, escapes) for value in values))
    assert written(schema, byte_vocab, escapes=escapes) == wanted
    assert {json.loads(text) for text in wanted} == set(values)


@pytest.mark.parametrize("escapes", ["minimal", "any"])
def test_keys(byte_vocab: Vocabulary, escapes: str) -> None:
    """Declared keys, in their order, and then those of a pattern, but for the ones that were there before."""
    schema = {
        "type": "object",
        "properties": {"/": {"const": None}, "\t": {"const": None}},
        "patternProperties": {'^["\n]$': {"const": True}},
        "additionalProperties": False,
    }
    wanted = set()
    for declared in ([], ["/"], ["\t"], ["/", "\t"]):
        for others in ([], ['"'], ["\n"], ['"', "\n"], ["\n", '"']):
            pairs = [[f"{key}:null" for key in spelled(one, escapes)] for one in declared]
            pairs += [[f"{key}:true" for key in spelled(one, escapes)] for one in others]
            wanted |= {"{" + ",".join(way) + "}" for way in product(*pairs)}
    assert written(schema, byte_vocab, escapes=escapes) == wanted


@pytest.mark.parametrize("escapes", ["minimal", "any"])
def test_no_character_is_out_of_reach(escapes: str) -> None:
    """Vocabularies without some bytes: what they cannot spell is escaped, what they can is not."""
    values = ["é", PLANE_4, OCTOPUS, "a"]
    every = [bytes([byte]) for byte in range(256)]
    without_lead = [one for one in every if one != b"\xf1"]
    ascii_only = [*every[:0x80], "é".encode()]
    for tokens, missing, unspelled in (
        (every, "", ""),
        (without_lead, PLANE_4, PLANE_4),
        (ascii_only, "é" + PLANE_4 + OCTOPUS, PLANE_4 + OCTOPUS),
    ):
        vocab = Vocabulary([*tokens, None], eos_ids=[len(tokens)])
        wanted = set().union(*(spelled(value, escapes, missing) for value in values))
        if escapes == "minimal":
            wanted |= {f'"{one}"' for one in missing}
        wanted -= {f'"{one}"' for one in unspelled}
        assert written({"enum": values}, vocab, escapes=escapes) == wanted


def test_what_may_be_escaped_is_what_must_be() -> None:
    """The ranges against the bytes of each character; that JSON asks for escapes is `json`'s word."""
    rng = np.random.default_rng(1)
    points = [*range(0x3000), *range(0xD000, 0xD800), *range(0xE000, 0x11000), *range(0x30000, 0x110000, 61)]
    for number in range(6):
        single = np.ones(256, np.bool_)
        single[rng.integers(0xC2, 0xF5, number)] = False
        all_of_them, with_digits = escapable("minimal", single)
        for point in points:
            one = chr(point)
            unspelled = point >= 0x80 and not single[list(one.encode())].all()
            shown = json.dumps(one, ensure_ascii=False)[1:-1]
            assert _is_in(point, all_of_them) == (shown != one or unspelled)
            assert _is_in(point, with_digits) == (shown.startswith("\\u") or unspelled)
    single[0x91] = False
    assert _is_in(0x80, escapable("minimal", single)[0]) and not _is_in(0x7F, escapable("minimal", single)[1])


def _is_in(point: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= point <= last for first, last in ranges)


def test_defaults() -> None:
    assert Options().escapes == "minimal"
    assert Options(whitespace="any").escapes == "any"
    assert Options(whitespace="any", escapes="minimal").escapes == "minimal"


def test_a_models_vocabulary(smollm2_folder: Path) -> None:
    """It has no token for F1: what begins with it is written as an escape, and all else as itself."""
    vocab = Vocabulary.from_tokenizer(Tokenizer.from_folder(smollm2_folder))
    assert not vocab.single_bytes[0xF1] and vocab.single_bytes[0x80:0xC0].all()
    schema = {
        "type": "object",
        "properties": {"urgency": {"const": PLANE_4}},
        "required": ["urgency"],
        "additionalProperties": False,
    }
    matcher = compile_json_schema(schema, vocab, whitespace="compact").matcher()
    assert matcher.forced_bytes() == b'{"urgency":"'
    text = b""
    rng = np.random.default_rng(2)
    while not matcher.is_finished():
        token = int(rng.choice(allowed(matcher)))
        matcher.accept(token)
        text += vocab.tokens[token] or b""
    assert json.loads(text) == {"urgency": PLANE_4}
