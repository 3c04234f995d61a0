"""The keywords of JSON Schema by example: what is enforced, a text that is accepted and one that is not.

`docs/json-schema.md` has these tables, and `test_docs.py` checks every line of them, against the engine and
`jsonschema`. `since` and `until` are the first and the last draft that has a keyword: in the others the
refused text is accepted too. With `others="renamed"` that cannot be tried: the schema means something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DRAFTS = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}


@dataclass(frozen=True)
class Example:
    """A line of the table. `refused` is None for what is enforced nowhere. `others`: what the drafts without
    the keyword make of the schema ("ignored" or "renamed")."""

    keyword: str
    says: str
    schema: Any
    accepted: str
    refused: str | None
    since: str = "4"
    until: str = "2020-12"
    others: str = "ignored"

    @property
    def drafts(self) -> list[str]:
        """The drafts that have the keyword."""
        names = list(DRAFTS)
        return names[names.index(self.since) : names.index(self.until) + 1]


_NODE = {"properties": {"next": {"$ref": "#"}}, "required": ["v"]}
_TREE = {
    "$id": "http://x.test/strict",
    "$dynamicAnchor": "node",
    "$ref": "tree",
    "unevaluatedProperties": False,
    "$defs": {
        "tree": {
            "$id": "tree",
            "$dynamicAnchor": "node",
            "properties": {"sub": {"$dynamicRef": "#node"}},
        }
    },
}
_OLD_TREE = {
    "$id": "http://x.test/strict",
    "$recursiveAnchor": True,
    "$ref": "tree",
    "unevaluatedProperties": False,
    "$defs": {
        "tree": {
            "$id": "tree",
            "$recursiveAnchor": True,
            "properties": {"sub": {"$recursiveRef": "#"}},
        }
    },
}

ANY_VALUE = [
    Example("type", "the type; from 6 on `1.0` is an integer", {"type": "integer"}, "1", "1.5"),
    Example(
        "type: integer",
        "no fraction and no exponent part: `1.0` and `1e2` are none",
        {"type": "integer"},
        "100",
        "1e2",
        "4",
        "4",
    ),
    Example("enum", "equality as JSON values: `1` and `1.0` are equal", {"enum": [1, "a"]}, "1.0", "2"),
    Example("const", "the same for one value", {"const": {"a": [None]}}, '{"a": [null]}', "{}", "6"),
    Example("allOf", "all hold", {"allOf": [{"minimum": 1}, {"maximum": 2}]}, "1", "3"),
    Example("anyOf", "one or more hold", {"anyOf": [{"minimum": 2}, {"type": "null"}]}, "null", "1"),
    Example(
        "oneOf", "exactly one holds, not one or more", {"oneOf": [{"minimum": 1}, {"maximum": 2}]}, "3", "2"
    ),
    Example("not", "it does not hold", {"not": {"type": "string"}}, "1", '"a"'),
    Example(
        "if, then, else",
        "as the words say",
        {"if": {"type": "number"}, "then": {"minimum": 1}, "else": {"type": "null"}},
        "null",
        "0",
        "7",
    ),
    Example(
        "true, false",
        "everything; nothing",
        {"properties": {"a": False}},
        "{}",
        '{"a": 1}',
        "6",
        "2020-12",
        "renamed",
    ),
]
NUMBERS = [
    Example("minimum", "exact in decimal", {"minimum": 0.1}, "1e-1", "0.09999"),
    Example("maximum", "exact in decimal", {"maximum": 10}, "1E1", "10.000001"),
    Example(
        "exclusiveMinimum", "a number", {"exclusiveMinimum": 0}, "1e-9", "-0.0", "6", "2020-12", "renamed"
    ),
    Example("exclusiveMaximum", "a number", {"exclusiveMaximum": 0}, "-1", "0", "6", "2020-12", "renamed"),
    Example(
        "exclusiveMinimum: true",
        "of `minimum`; so is `exclusiveMaximum`",
        {"minimum": 0, "exclusiveMinimum": True},
        "1",
        "0",
        "4",
        "4",
        "renamed",
    ),
    Example("multipleOf", "exact in decimal", {"multipleOf": 0.5}, "2.5", "0.75"),
]
STRINGS = [
    Example(
        "minLength", "code points of the value, however it is escaped", {"minLength": 2}, r'"\n\n"', '"🐙"'
    ),
    Example("maxLength", "the same", {"maxLength": 1}, r'"\ud83d\udc19"', '"ab"'),
    Example("pattern", "a search, as ECMA-262 with flag `u` has it", {"pattern": "^a|b$"}, '"ax"', '"ba"'),
    Example(
        "format",
        "the formats below; others are annotations",
        {"format": "date"},
        '"2024-02-29"',
        '"2023-02-29"',
    ),
]
ARRAYS = [
    Example("prefixItems", "by place", {"prefixItems": [{"const": 1}]}, "[1, 2]", "[2]", "2020-12"),
    Example(
        "items: [...]",
        "by place",
        {"items": [{"type": "null"}]},
        "[null, 2]",
        "[2]",
        "4",
        "2019-09",
        "renamed",
    ),
    Example(
        "additionalItems",
        "what comes after an array of `items`",
        {"items": [{}], "additionalItems": {"type": "null"}},
        "[1, null]",
        "[1, 2]",
        "4",
        "2019-09",
        "renamed",
    ),
    Example(
        "items",
        "every item; from 2020-12 on those after `prefixItems`",
        {"items": {"type": "null"}},
        "[null]",
        "[1]",
    ),
    Example("contains", "one or more", {"contains": {"type": "null"}}, "[1, null]", "[1]", "6"),
    Example(
        "minContains",
        "how many; 0 is allowed",
        {"contains": {"type": "null"}, "minContains": 2},
        "[null, null]",
        "[null, 1]",
        "2019-09",
    ),
    Example(
        "maxContains",
        "how many",
        {"contains": {"type": "null"}, "maxContains": 1},
        "[null, 1]",
        "[null, null]",
        "2019-09",
    ),
    Example("minItems", "how many", {"minItems": 2}, "[1, 1]", "[1]"),
    Example("maxItems", "how many", {"maxItems": 1}, "[1]", "[1, 2]"),
    Example("uniqueItems", "no two equal as JSON values", {"uniqueItems": True}, "[1, true]", "[1, 1.0]"),
    Example(
        "unevaluatedItems",
        "what no keyword beside it or inside it has looked at",
        {"allOf": [{"prefixItems": [True]}], "unevaluatedItems": False},
        "[1]",
        "[1, 2]",
        "2020-12",
        "2020-12",
        "renamed",
    ),
    Example(
        "unevaluatedItems (2019-09)",
        "the same; `contains` looks at nothing there",
        {"allOf": [{"items": [True]}], "unevaluatedItems": False},
        "[1]",
        "[1, 2]",
        "2019-09",
        "2019-09",
        "renamed",
    ),
]
OBJECTS = [
    Example(
        "properties",
        "by key, however it is escaped; no key comes twice",
        {"properties": {"a": {"type": "null"}}},
        r'{"\u0061": null}',
        r'{"\u0061": 1}',
    ),
    Example(
        "patternProperties",
        "every pattern that a key has, a search in it",
        {"patternProperties": {"^a": {"type": "null"}}},
        '{"ab": null}',
        '{"ab": 1}',
    ),
    Example(
        "additionalProperties",
        "the keys that neither names",
        {"properties": {"a": {}}, "additionalProperties": False},
        '{"a": 1}',
        '{"b": 1}',
    ),
    Example("required", "keys that must be there, declared or not", {"required": ["a"]}, '{"a": 1}', "{}"),
    Example("minProperties", "how many", {"minProperties": 1}, '{"a": 1}', "{}"),
    Example("maxProperties", "how many", {"maxProperties": 1}, '{"a": 1}', '{"a": 1, "b": 2}'),
    Example(
        "propertyNames",
        "the keys, as strings",
        {"propertyNames": {"maxLength": 1}},
        '{"a": 1}',
        '{"ab": 1}',
        "6",
    ),
    Example(
        "dependencies",
        "what a key asks for: keys, or a schema",
        {"dependencies": {"a": ["b"]}},
        '{"a": 1, "b": 2}',
        '{"a": 1}',
        "4",
        "7",
        "renamed",
    ),
    Example(
        "dependentRequired",
        "the keys that a key asks for",
        {"dependentRequired": {"a": ["b"]}},
        '{"b": 1}',
        '{"a": 1}',
        "2019-09",
    ),
    Example(
        "dependentSchemas",
        "the schema that a key asks for",
        {"dependentSchemas": {"a": {"maxProperties": 1}}},
        '{"a": 1}',
        '{"a": 1, "b": 2}',
        "2019-09",
    ),
    Example(
        "unevaluatedProperties",
        "what no keyword beside it or inside it has looked at",
        {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False},
        '{"a": 1}',
        '{"b": 1}',
        "2019-09",
        "2020-12",
        "renamed",
    ),
]
REFERENCES = [
    Example(
        "$ref",
        "inside the document; recursion without limit",
        _NODE,
        '{"v": 1, "next": {"v": 2}}',
        '{"v": 1, "next": {}}',
    ),
    Example(
        "beside $ref",
        "what stands there holds too; up to draft 7 it is ignored",
        {"$defs": {"a": {}}, "$ref": "#/$defs/a", "type": "null"},
        "null",
        "1",
        "2019-09",
    ),
    Example(
        "$defs, definitions",
        "places for references, and nothing by themselves",
        {"definitions": {"a": {"type": "null"}}, "allOf": [{"$ref": "#/definitions/a"}]},
        "null",
        "1",
    ),
    Example(
        "$id",
        "names a schema in the document (`id` in draft 4)",
        {
            "$defs": {"a": {"$id": "http://x.test/a", "type": "null"}},
            "allOf": [{"$ref": "http://x.test/a"}],
        },
        "null",
        "1",
        "2019-09",
        "2020-12",
        "renamed",
    ),
    Example(
        "$anchor",
        'names a place (`$id: "#name"` up to draft 7)',
        {"$defs": {"a": {"$anchor": "x", "type": "null"}}, "allOf": [{"$ref": "#x"}]},
        "null",
        "1",
        "2019-09",
        "2020-12",
        "renamed",
    ),
    Example(
        "$dynamicRef, $dynamicAnchor",
        "the outermost place of that name",
        _TREE,
        '{"sub": {"sub": {}}}',
        '{"sub": {"other": 1}}',
        "2020-12",
        "2020-12",
        "renamed",
    ),
    Example(
        "$recursiveRef, $recursiveAnchor",
        "the outermost recursive anchor",
        _OLD_TREE,
        '{"sub": {"sub": {}}}',
        '{"sub": {"other": 1}}',
        "2019-09",
        "2019-09",
        "renamed",
    ),
]
ANNOTATIONS = [
    Example(
        "title, description, $comment, default, examples, deprecated, readOnly, writeOnly",
        "nothing: annotations",
        {"title": "t", "default": 1, "examples": [2], "readOnly": True, "$comment": "c"},
        "null",
        None,
    ),
    Example(
        "contentEncoding, contentMediaType, contentSchema",
        "nothing: annotations, as the specification has it",
        {"contentEncoding": "base64", "contentMediaType": "application/json", "contentSchema": False},
        '"not base64"',
        None,
    ),
    Example(
        "any other keyword",
        "nothing, as the specification has it; the report names it",
        {"x-order": 1, "nullable": True, "discriminator": {}},
        '"a"',
        None,
    ),
]
TABLES: dict[str, list[Example]] = {
    "Any value": ANY_VALUE,
    "Numbers": NUMBERS,
    "Strings": STRINGS,
    "Arrays": ARRAYS,
    "Objects": OBJECTS,
    "References": REFERENCES,
    "Not enforced": ANNOTATIONS,
}

# By format: a source, a string that has it and one that has not.
FORMATS: dict[str, tuple[str, str, str]] = {
    "date-time": ("RFC 3339", "2024-02-29T23:59:59.5Z", "2023-02-29T00:00:00Z"),
    "date": ("RFC 3339, days that the calendar has", "2000-02-29", "1900-02-29"),
    "time": ("RFC 3339, leap seconds at midnight UTC only", "23:59:60Z", "12:00:00"),
    "duration": ("RFC 3339, appendix A", "P1Y2M3DT4H", "P1YT"),
    "email": ("RFC 5321", "ann@example.test", "ann@"),
    "idn-email": ("RFC 6531", "åse@例え.test", "åse"),
    "hostname": ("RFC 1123", "www.example.test", "-a.test"),
    "idn-hostname": ("RFC 5890", "www.example.test", "a..test"),
    "ipv4": ("RFC 2673", "192.0.2.1", "192.0.2.01"),
    "ipv6": ("RFC 4291, no zones", "2001:db8::1", "2001:db8::1%eth0"),
    "uri": ("RFC 3986", "https://a.test/b?c#d", "/b"),
    "uri-reference": ("RFC 3986", "../b?c", "a\\b"),
    "iri": ("RFC 3987", "https://例え.test/ä", "/ä"),
    "iri-reference": ("RFC 3987", "ä#b", "a b"),
    "uri-template": ("RFC 6570", "/a/{b}{?c*}", "/a/{b"),
    "uuid": (
        "RFC 4122, any version",
        "2EB8AA08-aa98-11ea-f4aa-73b441d16380",
        "2eb8aa08aa9811eab4aa73b441d16380",
    ),
    "json-pointer": ("RFC 6901", "/a~1b/0", "a/b"),
    "relative-json-pointer": ("draft-bhutton-relative-json-pointer", "1/a", "/a"),
    "regex": ("ECMA-262 with flag u", "^(a|b)+$", "(a"),
    "byte": ("RFC 4648, base64", "YWI=", "YWI"),
}
