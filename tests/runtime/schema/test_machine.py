"""The machine that follows JSON texts: what it takes, its masks token by token, and its states."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import numpy as np
import pytest

from treille.runtime.errors import GrammarError, InvalidConstraint
from treille.runtime.grammar import Matcher, Vocabulary
from treille.runtime.grammar import arena as regular_arena
from treille.runtime.schema.compile import compile_json_schema
from treille.runtime.schema.options import Layout

STARTS_WITH_1 = {"not": {"patternProperties": {"^1": {"enum": [3, 7]}}}}  # some such key, with another value
STARTS_WITH_11 = {"not": {"patternProperties": {"^11": {"const": 4}}}}
STRING = {"type": "string"}
UNIQUE_STRINGS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
PATTERNS = {
    "type": "object",
    "patternProperties": {"^a": {"type": "integer"}},
    "additionalProperties": {"type": "string"},
}
COUNTED = {"type": "array", "contains": {"const": 1}, "minContains": 2, "maxContains": 3, "maxItems": 4}
NESTED_UNIQUE = {
    "type": "array",
    "items": {"type": "object", "properties": {"t": {"type": "array", "uniqueItems": True}}},
    "uniqueItems": True,
}
DEPENDENT = {"type": "object", "dependentRequired": {"a": ["b"]}, "maxProperties": 2}
NOT_CLOSED = {"not": {"type": "object", "additionalProperties": False, "properties": {"a": True}}}

ROWS: list[tuple[Any, list[str], list[str]]] = [
    (
        UNIQUE_STRINGS,
        ['["a","b"]', '["a"]', '["ab","a","b"]', "[]", '["", "a"]'],
        ['["a","a"]', '["a","\\u0061"]', '["a","b","a"]', '["",""]'],
    ),
    (
        {"type": "array", "uniqueItems": True},
        ['[{"a":1,"b":2},{"b":1}]', "[[1],[2]]", "[1,true]", '["1",1]'],
        ['[{"a":1,"b":2},{"b":2.0,"a":1}]', "[[1],[1]]", '[{"x":1},{"\\u0078":1}]', "[1e1,10]"],
    ),
    (
        NESTED_UNIQUE,
        ['[{"t":[1,2]},{"t":[2,1]}]', '[{"t":[1,[1]]},{"t":[1]}]'],
        ['[{"t":[1,1]}]', '[{"t":[1,2]},{"t":[1,2]}]', '[{"x":1,"x":2}]'],
    ),
    (
        {"type": "object", "maxProperties": 1, "allOf": [STARTS_WITH_1, STARTS_WITH_11]},
        ['{"11":1}', '{"111":5}'],
        ['{"1":1}', '{"11":4}', "{}", '{"11":1,"1":1}'],
    ),
    (COUNTED, ["[1,1]", "[1,1,1,2]", "[2,1,1,1]", "[3,1,4,1]"], ["[1]", "[1,1,1,1]", "[2,2,2,1]", "[]"]),
    (
        PATTERNS,
        ['{"a":1,"b":"x","aa":2}', '{"\\u0061":1}'],
        ['{"a":"x"}', '{"b":1}', '{"aa":1,"aa":2}', '{"\\u0061":"s"}', '{"aa":1,"\\u0061a":2}'],
    ),
    (
        {"type": "object", "minProperties": 2, "maxProperties": 2},
        ['{"a":1,"b":2}'],
        ['{"a":1}', "{}", '{"a":1,"b":2,"c":3}', '{"a":1,"a":2}'],
    ),
    (
        DEPENDENT,
        ['{"a":1,"b":2}', '{"b":1,"c":2}', '{"c":1,"d":1}', "{}"],
        ['{"a":1,"c":2}', '{"a":1}', '{"c":1,"a":2}'],
    ),
    (NOT_CLOSED, ['{"b":1}', '{"a":1,"b":2}', "1", "[]"], ["{}", '{"a":1}']),
    ({"type": "object", "propertyNames": {"maxLength": 2}}, ['{"ab":1,"c":2}', '{"é":1}'], ['{"abc":1}']),
    ({"const": "\U0001f419"}, ['"\U0001f419"', '"\\ud83d\\udc19"'], ['"\\ud83d"', '"\\ud83d\\ud83d"', '"x"']),
    (
        {"type": "string", "pattern": "^(a|b.*)$", "not": {"enum": ["a", "b", "bc"]}},
        ['"bb"', '"bcc"', '"b\\n"'.replace("\\n", "\\u0020")],
        ['"a"', '"b"', '"bc"', '"c"'],
    ),
    ({"type": "array", "prefixItems": [{"const": 1}], "items": False}, ["[1]", "[]"], ["[1,2]", "[2]"]),
]
TABLE = [(schema, text, True) for schema, good, _ in ROWS for text in good]
TABLE += [(schema, text, False) for schema, _, bad in ROWS for text in bad]


@pytest.mark.parametrize(("schema", "text", "verdict"), TABLE)
def test_verdicts(accepts: Callable[..., bool], schema: Any, text: str, verdict: bool) -> None:
    assert accepts(schema, text, property_order="any") is verdict


@pytest.mark.parametrize(
    ("layout", "dumped"),
    [
        (Layout(), {}),
        (Layout(indent=2, item_separator=","), {"indent": 2}),
        (Layout(indent=0, item_separator=","), {"indent": 0}),
        (Layout(item_separator=",", key_separator=":"), {"separators": (",", ":")}),
    ],
)
def test_fixed_layouts_are_those_of_json(accepts: Callable[..., bool], layout: Layout, dumped: Any) -> None:
    value = {"a": [1, {"b": {}, "c": [[]]}, "x"], "d": {}}
    text = json.dumps(value, **dumped)
    assert accepts(True, text, whitespace=layout)
    for other in ({"indent": 3}, {"separators": (" ,", ":")}, {"separators": (",  ", ": ")}):
        if json.dumps(value, **other) != text:
            assert not accepts(True, json.dumps(value, **other), whitespace=layout)


def test_compact_has_no_blank(accepts: Callable[..., bool]) -> None:
    assert accepts(True, '{"a":[1,2]}', whitespace="compact")
    assert not accepts(True, '{"a": 1}', whitespace="compact")
    assert accepts(True, '{"a b":" "}', whitespace="compact")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("whitespace", "wide"),
        ("property_order", "sorted"),
        ("number_style", "hex"),
        ("formats", "maybe"),
        ("escapes", "few"),
    ],
)
def test_unknown_options_are_refused(byte_vocab: Vocabulary, name: str, value: str) -> None:
    with pytest.raises(InvalidConstraint, match=name):
        compile_json_schema(True, byte_vocab, **{name: value})


def test_a_layout_is_blanks_only() -> None:
    with pytest.raises(InvalidConstraint, match="item_separator"):
        Layout(item_separator=",x")
    with pytest.raises(InvalidConstraint, match="indent"):
        Layout(indent=-1)


# Tokens that end strings, cross items, begin keys, hold escapes and parts of characters.
PIECES = [
    *(b'",', b'","', b'":', b'": ', b'":"', b'"}', b'"]', b'{"', b'["', b'"a', b'"a"', b'a"', b"ab", b'abc"'),
    *(
        b'\\"',
        b'\\""',
        b"\\n",
        b"\\u00",
        b'\\u0061"',
        b"\\ud83d",
        b"\\udc19",
        b"a\\",
        b', "',
        b'"a":',
        b'"b":1',
    ),
    *(b"\xc3", b"\xa9", b"\xf0\x9f", b"\x90\x99", b"\xc3\xa9", b"12", b"1.", b"e1", b"1,", b"1]", b"[1,"),
    *(
        b"true",
        b"null,",
        b"  ",
        b"\n",
        b"\n  ",
        b"\n  ]",
        b' "',
        b" ,",
        b'a","a"',
        b'b","',
        b"[[",
        b"]]",
        b"}}",
    ),
    *(b'c":1,"c"', b'":1,"a', b'":1}', b'":1,"', b'""'),
]


@pytest.fixture(scope="module")
def mixed_vocab() -> Vocabulary:
    tokens = [bytes([byte]) for byte in range(256)] + PIECES
    return Vocabulary([*tokens, None], eos_ids=[len(tokens)])


LIVELY: list[Any] = [
    True,
    {
        "anyOf": [
            {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
            {"type": "object", "properties": {"x": {"type": ["string", "null"]}}, "required": ["x"]},
        ]
    },
    UNIQUE_STRINGS,
    {"type": "array", "uniqueItems": True},
    NESTED_UNIQUE,
    COUNTED,
    PATTERNS,
    DEPENDENT,
    {"type": "object", "properties": {"a": {"type": "string"}, "abc": {"enum": ["a", "ab", 1]}}},
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "array"}},
        "required": ["b"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 40}},
    {"type": "array", "items": {"type": "string", "pattern": "^[ab\u00e9]+$"}},
    {"type": "string", "pattern": "^(K_\\w+=\\S+)*(\\sK_\\w+=\\S+)*$"},
    {"type": "array", "items": {"type": "number", "minimum": 1, "maximum": 12.5}},
    {
        "anyOf": [
            {"type": "object", "required": ["a"]},
            {"type": "object", "maxProperties": 1},
            {"type": "null"},
        ]
    },
]


def drawn(
    matcher: Matcher, vocab: Vocabulary, rng: random.Random, most: int, check_all: float
) -> bytes | None:
    """A text drawn token by token from the masks; now and then every token of a mask is checked."""
    row = np.zeros(vocab.num_words, np.uint32)
    text = b""
    eos = vocab.vocab_size - 1
    for _ in range(most):
        matcher.fill_mask(row)
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")[: vocab.vocab_size]
        allowed = np.flatnonzero(bits).tolist()
        assert allowed
        if rng.random() < check_all:
            assert allowed == [one for one in range(vocab.vocab_size) if matcher.allows(one)]
        if eos in allowed and rng.random() < 0.3:
            return text
        token = rng.choice(allowed)
        if token == eos:
            return text
        # Rather what ends things than what begins them.
        ends = [one for one in allowed if one != eos and (vocab.tokens[one] or b"")[:1] in b'"]},']
        if ends and rng.random() < 0.4:
            token = rng.choice(ends)
        matcher.accept(token)
        text += vocab.tokens[token] or b""
    return None


ESCAPE = re.compile(rb"\\(u[0-9a-fA-F]{4}|.)")
NEEDED = re.compile(rb'["\\bfnrt]|u00(?:0[0-7bBeEfF]|1[0-9a-fA-F])')


@pytest.mark.parametrize(("order", "escapes"), [("any", "any"), ("any", "minimal"), ("schema", "minimal")])
@pytest.mark.parametrize("schema", LIVELY)
def test_masks_are_what_is_allowed_and_texts_are_valid(
    mixed_vocab: Vocabulary, schema: Any, order: str, escapes: str
) -> None:
    rng = random.Random(7)
    grammar = compile_json_schema(schema, mixed_vocab, property_order=order, escapes=escapes)
    validator = jsonschema.Draft202012Validator(schema)
    for _ in range(6):
        text = drawn(grammar.matcher(), mixed_vocab, rng, 60, 0.3)
        if text is not None:
            pairs = json.loads(text, object_pairs_hook=_without_duplicates)
            validator.validate(pairs)
            assert escapes == "any" or all(map(NEEDED.fullmatch, ESCAPE.findall(text)))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object"}, '{"a":1,"\\f":1,"'),
        ({"type": "object"}, '{"a":1,"\\"":1,"'),
        ({"type": "object"}, '{"a":1,"\\\\x":1,"'),
        ({"type": "object", "properties": {'"': False, "a": STRING, "": False}}, '{"'),
    ],
)
def test_keys_that_cannot_be_written_as_they_are_hide_no_others(
    mixed_vocab: Vocabulary, schema: Any, text: str
) -> None:
    matcher = compile_json_schema(schema, mixed_vocab).matcher()
    for byte in text.encode():
        matcher.accept(byte)
    row = np.zeros(mixed_vocab.num_words, np.uint32)
    matcher.fill_mask(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")[: mixed_vocab.vocab_size]
    allowed = [one for one in range(mixed_vocab.vocab_size) if matcher.allows(one)]
    assert np.flatnonzero(bits).tolist() == allowed


@pytest.mark.parametrize(
    ("most", "text"),
    [(2, '{"a'), (2, '{"11":1,"1'), (2, '{"2":1,"2'), (3, '{"a":1,"b'), (3, '{"1":1,"a')],
)
def test_a_key_that_leaves_no_room_for_others_is_not_begun(
    byte_vocab: Vocabulary, most: int, text: str
) -> None:
    other = {"not": {"patternProperties": {"^2": False}}}
    schema = {"type": "object", "maxProperties": most, "allOf": [STARTS_WITH_1, STARTS_WITH_11, other]}
    matcher = compile_json_schema(schema, byte_vocab).matcher()
    *before, last = text.encode()
    for byte in before:
        matcher.accept(byte)
    assert not matcher.allows(last)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names)
    return dict(pairs)


def test_rolled_back_and_copied_matchers_are_where_they_were(mixed_vocab: Vocabulary) -> None:
    rng = random.Random(3)
    grammar = compile_json_schema(NESTED_UNIQUE, mixed_vocab)
    matcher = grammar.matcher()
    row, other = np.zeros((2, mixed_vocab.num_words), np.uint32)
    masks = []
    for _ in range(40):
        matcher.fill_mask(row)
        masks.append(row.copy())
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        allowed = [int(one) for one in allowed if one != mixed_vocab.vocab_size - 1]
        if not allowed:
            break
        matcher.accept(rng.choice(allowed))
    copy = matcher.copy()
    for back in (1, 3, 5):
        matcher.rollback(back)
        copy.rollback(back)
        matcher.fill_mask(row)
        copy.fill_mask(other)
        assert (row == masks[matcher.num_accepted]).all()
        assert (row == other).all()
    with pytest.raises(GrammarError):
        matcher.rollback(1000)


def test_full_arenas_are_replaced_and_nothing_is_lost(
    mixed_vocab: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}
    text = json.dumps({f"key {number}": [str(number)] for number in range(60)}).encode()
    text += b""
    calm = compile_json_schema(schema, mixed_vocab).matcher()
    monkeypatch.setattr(regular_arena, "MAX_STATES", 512)
    tight = compile_json_schema({**schema, "title": "tight"}, mixed_vocab)
    matcher, first = tight.matcher(), tight.arena
    row, other = np.zeros((2, mixed_vocab.num_words), np.uint32)
    for byte in text:
        calm.fill_mask(row)
        matcher.fill_mask(other)
        assert (row == other).all()
        calm.accept(byte)
        matcher.accept(byte)
    assert tight.arena is not first
    assert matcher.can_stop()
    matcher.rollback(len(text) - 5)
    calm.rollback(len(text) - 5)
    matcher.fill_mask(other)
    calm.fill_mask(row)
    assert (row == other).all()
    again = b'{"key 1":[]}'
    for byte in again[5:]:
        matcher.accept(byte)
    assert not matcher.allows(ord(","))


def test_what_is_forced_is_told(mixed_vocab: Vocabulary) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kind": {"const": "x"}},
        "required": ["name", "kind"],
        "additionalProperties": False,
    }
    free = compile_json_schema(schema, mixed_vocab, whitespace="compact", escapes="any").matcher()
    assert free.forced_bytes() == b'{"'  # and then n, or an escape
    matcher = compile_json_schema(schema, mixed_vocab, whitespace="compact").matcher()
    assert matcher.forced_bytes() == b'{"name":"'
    for byte in b'{"name":"v"':
        matcher.accept(byte)
    assert not matcher.is_finished()
    assert matcher.forced_bytes() == b',"kind":"x"}'
    for byte in b',"kind":"x"':
        matcher.accept(byte)
    assert matcher.forced_bytes() == b"}"
    matcher.accept(ord("}"))
    assert matcher.is_finished()
    assert matcher.must_stop()


LONG = {"type": "string", "pattern": "^[ab\u00e9]*$", "minLength": 70_000, "maxLength": 200_000}


@pytest.mark.parametrize(
    ("schema", "before", "after"),
    [
        (LONG, b'"', b'"'),
        ({"type": "object", "properties": {"a": {"anyOf": [LONG, {"minLength": 99_999}]}}}, b'{"a":"', b'"}'),
    ],
)
def test_long_strings_are_followed_to_their_ends(
    mixed_vocab: Vocabulary, schema: Any, before: bytes, after: bytes
) -> None:
    """A bound on the length counts in states of their own: more than an arena has."""
    grammar = compile_json_schema(schema, mixed_vocab)
    matcher, first = grammar.matcher(), grammar.arena
    accent = mixed_vocab.tokens.index("\u00e9".encode())
    tokens = [*b"ab", accent, *"\u00e9".encode()]  # four characters
    for byte in before:
        matcher.accept(byte)
    most = 0
    for number in range(25_000):
        assert matcher.allows(ord('"')) == (4 * number >= 70_000), number
        for token in tokens:
            matcher.accept(token)
        if number % 1000 == 0:
            matcher.fill_mask(np.zeros(mixed_vocab.num_words, np.uint32))
            most = max(most, grammar.nbytes)
    assert grammar.arena is not first
    assert most < 256 << 20
    for byte in after:
        matcher.accept(byte)
    assert matcher.can_stop()


def test_a_string_within_a_character_is_moved(
    mixed_vocab: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever an arena is full, all goes on: verdicts and masks are those of one that is not."""
    schema = {
        "type": "array",
        "items": {"type": "string", "pattern": "^([ab]\u00e9|\U0001f419){3,}", "maxLength": 400},
        "uniqueItems": True,
    }
    items = ["a\u00e9b\u00e9" * 60, "\U0001f419" * 190, "a\u00e9" * 140, "b\u00e9" * 199]
    text = json.dumps(items, ensure_ascii=False).encode()
    rows = [np.zeros(mixed_vocab.num_words, np.uint32) for _ in text]
    calm = compile_json_schema(schema, mixed_vocab).matcher()
    for place, byte in enumerate(text):
        if place % 7 == 0:
            calm.fill_mask(rows[place])
        calm.accept(byte)
    monkeypatch.setattr(regular_arena, "MAX_STATES", 512)
    matcher = compile_json_schema({**schema, "title": "tight"}, mixed_vocab).matcher()
    num_arenas, last = 0, matcher.grammar.arena
    row = np.zeros(mixed_vocab.num_words, np.uint32)
    for place, byte in enumerate(text):
        if place % 7 == 0:
            matcher.fill_mask(row)
            assert (row == rows[place]).all()
        matcher.accept(byte)
        num_arenas += matcher.grammar.arena is not last
        last = matcher.grammar.arena
    assert num_arenas > 5
    assert matcher.can_stop()
