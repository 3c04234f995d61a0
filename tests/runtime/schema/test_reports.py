"""Faults that users of such engines reported, each as a row: B07 to B10, B12, B14, B15, B17 to B20, B50.

A row is a schema, a JSON text and the verdict on it. Texts are written as they stand in the output, so a
backslash of JSON is a backslash here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.suite_cases import END, takes
from treille.runtime.errors import ConstraintError, UnsupportedConstraint
from treille.runtime.grammar import Matcher, Vocabulary
from treille.runtime.schema.compile import compile_json_schema

Accepts = Callable[..., bool]

STRING = {"type": "string"}
PAIR = {"type": "object", "properties": {"p": {"const": "on"}, "q": {"const": "off"}}, "required": ["q"]}
MIXED_ENUM = {"enum": [True, None, 'a"b', "\\n", 0, {"k": [1]}]}
ONE_OF_RANGES = {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]}
ONE_OF_NUMBERS = {"oneOf": [{"type": "integer"}, {"type": "number"}]}
NODE = {
    "$defs": {
        "n": {
            "type": "object",
            "properties": {
                "v": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]},
            },
            "required": ["v", "next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/n",
}


def nodes(depth: int, last: str = "null") -> str:
    return '{"v": 1, "next": ' * depth + last + "}" * depth


def one_of(*branches: Any) -> dict[str, Any]:
    return {"oneOf": list(branches)}


TAGGED = one_of(
    {"type": "object", "properties": {"t": {"const": "a"}, "x": {"type": "integer"}}, "required": ["t", "x"]},
    {"type": "object", "properties": {"t": {"const": "b"}, "x": {"type": "string"}}, "required": ["t", "x"]},
)
B07 = [
    ({"type": "string", "pattern": "b+"}, ['"abc"', '"b"'], ['"xyz"', '""']),
    ({"type": "string", "pattern": "^a|b$"}, ['"axx"', '"xxb"'], ['"xax"', '"ba"']),
    (
        {"type": "string", "pattern": "^a.c$"},
        ['"abc"', '"a🐙c"', r'"a\u0085c"', '"a\x7fc"'],
        [r'"a\nc"', r'"a\rc"', '"a\u2028c"', r'"a\u2028c"', r'"a\u2029c"', r'"a\u000ac"'],
    ),
    ({"type": "string", "pattern": "^a$"}, ['"a"', r'"\u0061"'], [r'"a\n"', '"a\n"', r'"a\u000A"']),
]
B08 = [
    (
        {"type": "string", "maxLength": 1},
        [r'"\ud83d\udc19"', '"🐙"', r'"\n"', r'"\\"', '""'],
        ['"ab"', r'"\ud83d\udc19x"', '"\n"', r'"\ud83d"', r'"\udc19"', r'"\udc19\ud83d"'],
    ),
    (
        {"type": "string", "minLength": 2},
        ['"e\u0301"', r'"e\u0301"', r'"\n\n"', '"🐙🐙"'],
        ['"\u00e9"', r'"\u00e9"', '"🐙"', r'"\ud83d\udc19"', '"a"', r'"\ud83dx"'],
    ),
    (STRING, [r'"\ud83d\udc19"'], [r'"\ud83d"', r'"\ud83dx"', r'"\ud83d\n"', r'"\ud83d\ud83d"', r'"\udc19"']),
]
B09 = [
    (
        {"type": "string", "pattern": "^[ab]+$", "minLength": 3, "maxLength": 4},
        ['"aba"', '"bbbb"', r'"b\u0062b"'],
        ['"ab"', '"aaaaa"', '"abc"'],
    ),
    (
        {"type": "string", "format": "date", "pattern": "^2"},
        ['"2020-02-29"', '"2024-04-30"'],
        ['"2020-02-30"', '"2020-04-31"', '"1999-01-01"', '"2"', '"2021-02-29"'],
    ),
    (
        {"type": "string", "format": "uuid"},
        ['"2eb8aa08-aa98-11ea-f4aa-73b441d16380"', '"2EB8AA08-AA98-11EA-B4AA-73B441D16380"'],
        [
            r'"2eb8aa08-aa98-11ea-f4aa-73b441d16380\n"',
            '"2eb8aa08-aa98-11ea-f4aa-73b441d1638০"',
            '"2eb8aa08aa9811eaf4aa73b441d16380"',
        ],
    ),
]
B10 = [
    (
        {
            "type": "array",
            "items": {"enum": [1, 2]},
            "uniqueItems": True,
            "minItems": 2,
            "maxItems": 2,
        },
        ["[1,2]", "[2.0,1]", "[2, 1]"],
        ["[1,1]", "[1,1.0]", "[2,2]", "[1]"],
    ),
    (
        {"type": "number", "multipleOf": 0.01},
        ["4.35", "0.07", "19.99", "1e-2", "0", "-3"],
        ["4.355", "0.001", "1e-3"],
    ),
    ({"type": "integer"}, ["1", "1.0", "-0", "1e2"], ["1.5", "true", '"1"', "1e-1", "01", "+1"]),
]
B12 = [
    (
        MIXED_ENUM,
        ["true", "null", r'"a\"b"', r'"\\n"', "0", '{"k":[1]}', '{"k": [1]}'],
        ["True", "None", "false", r'"\n"', "1", '{"k":[2]}', '{"k":[1,1]}', '{"k":[1],"l":1}', "{}"],
    ),
    ({"const": None}, ["null"], ['"null"', "0", '""', "None", "false"]),
    ({"const": False}, ["false"], ["0", "False", "true", "null", '"false"']),
    ({"enum": ["a/b"]}, ['"a/b"', r'"a\/b"'], [r'"a\\/b"', '"a"', '"ab"']),
]
B14 = [
    (
        PAIR,
        ['{"q":"off"}', '{"p":"on","q":"off"}', '{"q":"off","r":1}', '{"q":"off","p":"on"}'],
        [
            '{"q":"off","p":"no"}',
            '{"p":"on"}',
            r'{"q":"off","\u0070":"no"}',
            r'{"\u0070":"no","q":"off"}',
            '{"q":"off","q":"off"}',
            r'{"q":"off","\u0071":"off"}',
            '{"q":"off","r":1,"r":1}',
            r'{"q":"off","r":1,"\u0072":2}',
            r'{"\u0072":1,"q":"off","r":1}',
            '{"p":"on","q":"off","p":"on"}',
        ],
    ),
]
B15 = [
    ({"type": "object"}, ["{}", '{"a":1}', '{"a":{"b":[]}}'], ["[]", "[{}]", "1", '"x"', "null", "true"]),
    ({"type": "object", "required": ["k"]}, ['{"k":1}', '{"b":2,"k":null}'], ["{}", '{"b":2}', '["k"]']),
    ({"type": "array", "minItems": 1}, ["[1]", "[null,{}]"], ["[]", "{}", "1"]),
    ({"type": "object", "properties": {}, "additionalProperties": False}, ["{}", "{ }"], ['{"a":1}', "[]"]),
]
B17 = [
    (ONE_OF_RANGES, ["11", "-1", "1e2"], ["0", "5", "10", "1.5", "5.0", '"5"', "null"]),
    (ONE_OF_NUMBERS, ["3.5", "0.1"], ["3", "3.0", "30e-1", '"3.5"']),
    (
        TAGGED,
        ['{"t":"a","x":1}', '{"t":"b","x":"1"}', '{"x":1,"t":"a"}'],
        ['{"t":"a","x":"1"}', '{"t":"b","x":1}', '{"t":"c","x":1}', '{"x":1}'],
    ),
]
B18 = [
    (NODE, [nodes(1), nodes(4), nodes(8), nodes(100)], [nodes(4, "0"), nodes(8, "0"), nodes(0), '{"v":1}']),
    ({"$defs": {"a~b": {"const": 1}}, "$ref": "#/$defs/a~0b"}, ["1"], ["2"]),
    ({"$defs": {"a/b": {"const": 1}}, "$ref": "#/$defs/a~1b"}, ["1"], ["2"]),
    ({"$defs": {"a%b": {"const": 1}}, "$ref": "#/$defs/a%25b"}, ["1"], ["2"]),
    (
        {"properties": {"t": {"anyOf": [{"const": 1}]}, "u": {"$ref": "#/properties/t/anyOf/0"}}},
        ['{"u":1}', '{"t":1,"u":1}', "3"],
        ['{"u":2}'],
    ),
]
B20 = [
    (
        STRING,
        [r'"\/"', r'"\u00e9"', r'"\u00E9"', '"\x7f"', r'"\"\\\b\f\n\r\t"', '"\'"'],
        [r'"\'"', r'"\x41"', r'"\u12"', '"\t"', '"\n"', r'"\u12g4"', '"\x00"', r'"\U0001f600"', '"a'],
    ),
]
ROWS = [
    pytest.param(schema, text, verdict, id=f"{name}-{'takes' if verdict else 'refuses'}-{text}"[:60])
    for name, table in {
        "B07": B07,
        "B08": B08,
        "B09": B09,
        "B10": B10,
        "B12": B12,
        "B14": B14,
        "B15": B15,
        "B17": B17,
        "B18": B18,
        "B20": B20,
    }.items()
    for schema, taken, refused in table
    for verdict, texts in ((True, taken), (False, refused))
    for text in texts
]


@pytest.mark.parametrize(("schema", "text", "verdict"), ROWS)
def test_verdicts(accepts: Accepts, schema: Any, text: str, verdict: bool) -> None:
    assert accepts(schema, text, property_order="any") == verdict


@pytest.mark.parametrize(("schema", "text", "verdict"), ROWS)
def test_the_order_of_the_schema_only_narrows(
    accepts: Accepts, schema: Any, text: str, verdict: bool
) -> None:
    if not verdict or text not in ('{"q":"off","p":"on"}', '{"x":1,"t":"a"}'):
        assert accepts(schema, text) == verdict


PATTERN_THAT_CANNOT_BE = {"type": "string", "format": "date", "pattern": r"(\d)\1"}


def test_what_cannot_be_enforced_is_refused_with_its_place(byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        compile_json_schema({"properties": {"a/b": PATTERN_THAT_CANNOT_BE}}, byte_vocab)
    assert caught.value.keyword == "back-reference"
    assert caught.value.path == "#/properties/a~1b/pattern"


@pytest.mark.parametrize("keyword", ["const", "enum", "default", "examples"])
def test_data_that_looks_like_a_schema_is_data(accepts: Accepts, keyword: str) -> None:
    value = PATTERN_THAT_CANNOT_BE
    schema = {keyword: [value] if keyword in ("enum", "examples") else value}
    assert accepts(schema, json.dumps(value), property_order="any")
    assert accepts(schema, '"2020-01-01"') == (keyword in ("default", "examples"))


def test_a_cycle_that_consumes_nothing_is_refused(byte_vocab: Vocabulary) -> None:
    with pytest.raises(ConstraintError):
        compile_json_schema({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, byte_vocab)


# B19: whitespace

ONE_STRING = {
    "type": "object",
    "properties": {"a": STRING},
    "required": ["a"],
    "additionalProperties": False,
}
BLANKS = [" ", "\t", "\n", "\r"]
NO_BLANKS = ["\u00a0", "\f", "\u202f", "\v", "\u2028", "\ufeff", "\x00"]
PLACES = ["{0}{{'a':'x'}}", "{{{0}'a':'x'}}", "{{'a'{0}:'x'}}", "{{'a':{0}'x'}}", "{{'a':'x'{0}}}"]


def padded(place: str, blank: str) -> str:
    return place.format(blank).replace("'", '"')


@pytest.mark.parametrize("place", [*PLACES, "{{'a':'x'}}{0}"])
def test_json_has_four_blanks(accepts: Accepts, place: str) -> None:
    for blank in BLANKS:
        assert accepts(ONE_STRING, padded(place, blank), whitespace="any")
        assert accepts(ONE_STRING, padded(place, blank * 300), whitespace="any")
        assert not accepts(ONE_STRING, padded(place, blank), whitespace="compact")
    for blank in NO_BLANKS:
        for whitespace in ("any", "flexible", "compact"):
            assert not accepts(ONE_STRING, padded(place, blank), whitespace=whitespace)


@pytest.mark.parametrize("place", PLACES[1:])
def test_a_run_of_blanks_is_bounded_by_default(accepts: Accepts, place: str) -> None:
    for blank in BLANKS:
        assert accepts(ONE_STRING, padded(place, blank))
        assert not accepts(ONE_STRING, padded(place, blank * 300))


@pytest.mark.parametrize("whitespace", ["flexible", "compact", "any"])
def test_no_policy_touches_the_inside_of_strings(accepts: Accepts, whitespace: str) -> None:
    for inside in (" " * 300, "\u00a0", "\u202f", r"\n\r\t\f"):
        assert accepts(ONE_STRING, '{"a":"' + inside + '"}', whitespace=whitespace)


@pytest.mark.parametrize("whitespace", ["flexible", "compact"])
def test_a_model_that_loves_line_feeds_comes_to_an_end(byte_vocab: Vocabulary, whitespace: str) -> None:
    matcher = compile_json_schema(ONE_STRING, byte_vocab, whitespace=whitespace).matcher()
    text = bytearray()
    for _ in range(400):
        choice = next(one for one in (*b"\n", END, *b'"', *range(256)) if matcher.allows(one))
        matcher.accept(choice)
        if choice == END:
            break
        text.append(choice)
    assert choice == END
    assert json.loads(text) == {"a": ""}


# B20: what a mask holds in the middle of an escape


def allowed(matcher: Matcher) -> set[int]:
    row = np.zeros(matcher.grammar.vocab.num_words, np.uint32)
    matcher.fill_mask(row)
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ('"\\', b'"\\/bfnrtu'),
        ('"\\u', b"0123456789abcdefABCDEF"),
        ('"\\u0', b"0123456789abcdefABCDEF"),
        ('"\\u00', b"0123456789abcdefABCDEF"),
        ('"\\u00e', b"0123456789abcdefABCDEF"),
        ('"\\ud', b"0123456789abAB"),
        ('"\\ud83d', b"\\"),
        ('"\\ud83d\\', b"u"),
        ('"\\ud83d\\u', b"dD"),
        ('"\\ud83d\\ud', b"cdefCDEF"),
    ],
)
def test_masks_in_an_escape(byte_vocab: Vocabulary, before: str, expected: bytes) -> None:
    matcher = compile_json_schema(STRING, byte_vocab, escapes="any").matcher()
    for byte in before.encode():
        matcher.accept(byte)
    assert allowed(matcher) == {*expected}


# B50: work is bounded

SECONDS = 20.0  # what a compile may take before it has to give up, a slow and busy machine in mind


def nested(depth: int, *, tagged: bool) -> Any:
    """`oneOf` of two objects, both of which hold the next level, written out."""
    if depth == 0:
        return {"type": "integer"}
    inner = nested(depth - 1, tagged=tagged)
    branches = []
    for tag in ("a", "b"):
        properties = {"t": {"const": tag}, "x": inner} if tagged else {tag: inner}
        branches.append({"type": "object", "properties": properties, "required": sorted(properties)})
    return one_of(*branches)


def nested_by_reference(depth: int, *, tagged: bool) -> Any:
    """The same, each level written once."""
    definitions = {"0": {"type": "integer"}}
    for level in range(1, depth + 1):
        below = {"$ref": f"#/$defs/{level - 1}"}
        branches = nested(1, tagged=tagged)["oneOf"]
        for branch in branches:
            for key, value in branch["properties"].items():
                if value == {"type": "integer"}:
                    branch["properties"][key] = below
        definitions[str(level)] = one_of(*branches)
    return {"$defs": definitions, "$ref": f"#/$defs/{depth}"}


@pytest.mark.parametrize("depth", range(1, 15))
def test_tagged_branches_nest(byte_vocab: Vocabulary, depth: int) -> None:
    schemas = [nested_by_reference(depth, tagged=True)] + [nested(depth, tagged=True)] * (depth <= 8)
    for schema in schemas:
        start = time.thread_time()
        grammar = compile_json_schema(schema, byte_vocab, property_order="any")
        assert takes(grammar, b'{"t":"a","x":' * depth + b"1" + b"}" * depth)
        assert not takes(grammar, b'{"t":"a","x":' * depth + b'""' + b"}" * depth)
        assert time.thread_time() - start < SECONDS


@pytest.mark.parametrize("depth", [1, 2, 5, 8, 14, 40, 100])
def test_branches_that_overlap_nest(byte_vocab: Vocabulary, depth: int) -> None:
    start = time.thread_time()
    one = both = b"1"
    for _ in range(depth):
        one, both = b'{"a":' + one + b"}", b'{"a":' + one + b',"b":' + one + b"}"
    grammar = compile_json_schema(nested_by_reference(depth, tagged=False), byte_vocab, property_order="any")
    assert takes(grammar, one)
    assert not takes(grammar, both)
    assert time.thread_time() - start < SECONDS


def test_an_enum_of_20000_values(byte_vocab: Vocabulary) -> None:
    start = time.thread_time()
    grammar = compile_json_schema({"enum": [f"value {n}" for n in range(20_000)]}, byte_vocab)
    assert takes(grammar, b'"value 0"') and takes(grammar, b'"value 19999"')
    assert not takes(grammar, b'"value 20000"') and not takes(grammar, b'"value"')
    assert time.thread_time() - start < SECONDS
