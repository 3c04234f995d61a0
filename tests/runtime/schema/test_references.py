"""References: URIs as RFC 3986 has them, and where `$ref`, `$dynamicRef` and `$recursiveRef` lead."""

from __future__ import annotations

import time
from typing import Any

import pytest
from jsonschema_specifications import REGISTRY

from benchmarks.suite_cases import takes
from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import Vocabulary
from treille.runtime.schema.compile import compile_json_schema
from treille.runtime.schema.document import Document, Draft, Node
from treille.runtime.schema.references import resolve
from treille.runtime.schema.values import INTEGER_OF_4

SEVEN = {"$schema": "http://json-schema.org/draft-07/schema#"}
FOUR = {"$schema": "http://json-schema.org/draft-04/schema#"}
NINETEEN = {"$schema": "https://json-schema.org/draft/2019-09/schema"}

# RFC 3986, sections 5.4.1 and 5.4.2, against http://a/b/c/d;p?q. Empty fragments are left out.
EXAMPLES = """
g:h g:h | g http://a/b/c/g | ./g http://a/b/c/g | g/ http://a/b/c/g/ | /g http://a/g | //g http://g
?y http://a/b/c/d;p?y | g?y http://a/b/c/g?y | #s http://a/b/c/d;p?q#s | g#s http://a/b/c/g#s
g?y#s http://a/b/c/g?y#s | ;x http://a/b/c/;x | g;x http://a/b/c/g;x | . http://a/b/c/ | ./ http://a/b/c/
.. http://a/b/ | ../ http://a/b/ | ../g http://a/b/g | ../.. http://a/ | ../../ http://a/ | ../../g http://a/g
../../../g http://a/g | ../../../../g http://a/g | /./g http://a/g | /../g http://a/g | g. http://a/b/c/g.
.g http://a/b/c/.g | g.. http://a/b/c/g.. | ..g http://a/b/c/..g | ./../g http://a/b/g | ./g/. http://a/b/c/g/
g/./h http://a/b/c/g/h | g/../h http://a/b/c/h | g;x=1/./y http://a/b/c/g;x=1/y | g;x=1/../y http://a/b/c/y
g?y/./x http://a/b/c/g?y/./x | g#s/../x http://a/b/c/g#s/../x | http:g http:g
"""


@pytest.mark.parametrize("example", EXAMPLES.replace("\n", "|").strip("| ").split("|"))
def test_uris_are_resolved_as_the_rfc_shows(example: str) -> None:
    reference, wanted = example.split()
    assert resolve("http://a/b/c/d;p?q", reference) == wanted


@pytest.mark.parametrize(
    ("base", "reference", "wanted"),
    [
        ("", "a/b.json#c", "a/b.json#c"),
        ("a/b.json", "c.json", "a/c.json"),
        ("b.json", "", "b.json"),
        ("urn:uuid:1234", "#a", "urn:uuid:1234#a"),
        ("http://a", "b", "http://a/b"),
        ("http://a/b", "http://c#", "http://c"),
        ("tag:a,2020:b", "tag:a,2020:c", "tag:a,2020:c"),
    ],
)
def test_uris_of_other_kinds_and_bases_that_are_relative(base: str, reference: str, wanted: str) -> None:
    assert resolve(base, reference) == wanted


LEADS: list[tuple[dict[str, Any], str]] = [
    ({"$ref": "#"}, "#"),
    ({"$ref": "#/$defs/a"}, "#/$defs/a"),
    ({"$ref": "#/%24defs/a%25b"}, "#/$defs/a%b"),
    ({"$ref": "#/$defs/t~0i~1s"}, "#/$defs/t~0i~1s"),
    ({"$ref": "#/$defs/list/anyOf/1"}, "#/$defs/list/anyOf/1"),
    ({"$ref": "#/$defs/list/anyOf/0"}, "#/$defs/list/anyOf/0"),
    ({"$ref": "#/x/y/0"}, "#/x/y/0"),
    ({"$ref": "#/x/y/1/properties/q"}, "#/x/y/1/properties/q"),
    ({"$ref": "#named"}, "#/$defs/named"),
    ({"$ref": "#moving"}, "#/$defs/moving"),
    ({"$ref": "http://a.example/root.json"}, "#"),
    ({"$ref": "root.json#/$defs/a"}, "#/$defs/a"),
    ({"$ref": "/inner/"}, "#/$defs/inner"),
    ({"$ref": "http://a.example/inner/#/$defs/deep"}, "#/$defs/inner/$defs/deep"),
    ({"$ref": "inner/#near"}, "#/$defs/inner/$defs/deep"),
    ({"$ref": "inner/leaf"}, "#/$defs/inner/$defs/leaf"),
    ({"$ref": "urn:example:thing"}, "#/$defs/urn"),
    ({"$ref": "#/$defs/inner/$defs/deep"}, "#/$defs/inner/$defs/deep"),
]
AROUND = {
    "$id": "http://a.example/root.json",
    "$defs": {
        "a": {},
        "a%b": {},
        "t~i/s": {},
        "list": {"anyOf": [True, {}]},
        "named": {"$anchor": "named"},
        "moving": {"$dynamicAnchor": "moving"},
        "inner": {
            "$id": "inner/",
            "$defs": {"deep": {"$anchor": "near", "$ref": "#/$defs/leaf"}, "leaf": {"$id": "leaf"}},
        },
        "urn": {"$id": "urn:example:thing"},
    },
    "x": {"y": [{"type": "string"}, {"properties": {"q": {}}}]},
}


@pytest.mark.parametrize(("schema", "pointer"), LEADS)
def test_where_references_lead(schema: dict[str, Any], pointer: str) -> None:
    document = Document({**AROUND, "properties": {"here": schema}})
    here = document.child(document.root, "properties", "here")
    target = document.target(here)
    assert target.pointer == pointer
    assert document.target(here) is target
    if pointer.endswith("$defs/deep"):  # relative to the resource it is in
        assert document.target(target).pointer == "#/$defs/inner/$defs/leaf"


X = "#/definitions/x"


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (FOUR | {"id": "http://a/b", "allOf": [{"$ref": "c"}], "definitions": {"x": {"id": "c"}}}, X),
        (FOUR | {"allOf": [{"$ref": "#c"}], "definitions": {"x": {"id": "#c"}}}, X),
        (SEVEN | {"allOf": [{"$ref": "#c"}], "definitions": {"x": {"$id": "#c"}}}, X),
        (SEVEN | {"allOf": [{"$ref": "b#c"}], "definitions": {"x": {"$id": "b#c"}}}, X),
        # Beside $ref nothing counts: the base is still the document's. Definitions can still be led into.
        (
            SEVEN
            | {"$id": "http://a/b/", "allOf": [{"$id": "z/", "$ref": "c"}]}
            | {"definitions": {"x": {"$id": "c"}}},
            X,
        ),
        (
            SEVEN | {"allOf": [{"$ref": "#/allOf/0/definitions/x", "definitions": {"x": {}}}]},
            "#/allOf/0/definitions/x",
        ),
        (SEVEN | {"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {}}}, "#/$defs/x"),
        (NINETEEN | {"allOf": [{"$ref": "#c"}], "$defs": {"x": {"$anchor": "c"}}}, "#/$defs/x"),
    ],
)
def test_where_references_of_other_drafts_lead(schema: dict[str, Any], pointer: str) -> None:
    document = Document(schema)
    assert document.target(document.child(document.root, "allOf", 0)).pointer == pointer


@pytest.mark.parametrize(
    "reference",
    [
        *("#/nowhere", "#nowhere", "#inner", "inner/#/$defs/none", "#/$id", "#/"),
        *(f"#/$defs/list/anyOf/{token}" for token in ("2", "01", "-1", "x", "")),
    ],
)
def test_references_that_lead_nowhere_are_named_early(reference: str) -> None:
    with pytest.raises(InvalidConstraint, match=r"#/(properties/here/\$ref|\$id)"):
        Document({**AROUND, "properties": {"here": {"$ref": reference}}})


@pytest.mark.parametrize("reference", ["http://b.example/", "other.json", "inner", "../x#/a"])
def test_other_documents_are_not_fetched(reference: str) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        Document({**AROUND, "properties": {"here": {"$ref": reference}}})
    assert (caught.value.keyword, caught.value.path) == ("$ref", "#/properties/here/$ref")
    assert (
        "is not in the document, and nothing is fetched: put that schema under $defs, or give it in documents"
        in caught.value.reason
    )


POINT = "http://other.example/point.json"


@pytest.mark.parametrize(
    ("schema", "documents", "valid", "invalid"),
    [
        ({"$ref": POINT}, {POINT: {"type": "integer"}}, "1", "null"),
        ({"$ref": POINT}, {POINT: '{"type": "integer"}'}, "1", "null"),
        ({"$ref": POINT + "#/$defs/n"}, {POINT: {"$defs": {"n": {"type": "null"}}}}, "null", "1"),
        # Its own references are relative to where it is, or to what it calls itself.
        (
            {"items": {"$ref": POINT}},
            {POINT: {"$ref": "n.json"}, "http://other.example/n.json": {"type": "null"}},
            "[null]",
            "[1]",
        ),
        (
            {"$ref": POINT},
            {POINT: {"$id": "http://b.example/x/", "$ref": "n"}, "http://b.example/x/n": {"const": 7}},
            "7",
            "8",
        ),
        # It is of the draft that it names, else of that of the schema.
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": POINT},
            {POINT: {"items": [{"type": "null"}]}},
            "[null,1]",
            "[1]",
        ),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": POINT},
            {
                POINT: {
                    "$schema": "https://json-schema.org/draft/2020-12/schema",
                    "prefixItems": [{"type": "null"}],
                }
            },
            "[null,1]",
            "[1]",
        ),
        ({"type": "null"}, {POINT: {"type": 3}}, "null", "1"),  # what nothing leads to is not looked at
    ],
)
def test_documents_that_come_with_it(
    byte_vocab: Vocabulary, schema: Any, documents: dict[str, Any], valid: str, invalid: str
) -> None:
    grammar = compile_json_schema(schema, byte_vocab, documents=documents)
    assert takes(grammar, valid.encode()) and not takes(grammar, invalid.encode())


def test_documents_that_are_none() -> None:
    for documents in ({"point.json": {}}, {POINT + "#a": {}}, {POINT: 3}, {7: {}}, {POINT: "{"}):
        with pytest.raises(InvalidConstraint):
            Document({"$ref": POINT}, documents=documents)  # type: ignore[arg-type]
    with pytest.raises(InvalidConstraint, match="type"):
        Document({"$ref": POINT}, documents={POINT: {"type": 3}})


def test_only_references_in_use_must_lead_somewhere() -> None:
    document = Document({"$defs": {"unused": {"$ref": "http://b.example/"}}, "const": {"$ref": "#/no"}})
    assert document.root.number == 0


def test_what_a_reference_leads_to_is_checked_though_no_keyword_puts_it_there() -> None:
    Document({"x": {"type": "strin"}})
    with pytest.raises(InvalidConstraint, match="#/x/type: 'strin' is no type"):
        Document({"x": {"type": "strin"}, "$ref": "#/x"})
    with pytest.raises(InvalidConstraint, match="#/x: 5 is no schema"):
        Document({"x": 5, "$ref": "#/x"})


def test_two_schemas_with_one_uri_or_one_anchor() -> None:
    two = {"a": {"$id": "http://a/b"}, "b": {"$id": "http://a/b"}}
    Document({"$defs": two})
    with pytest.raises(InvalidConstraint, match="two schemas"):
        Document({"$defs": two, "$ref": "http://a/b"})
    with pytest.raises(InvalidConstraint, match=r"#/\$defs/b/\$anchor: the anchor 'n' is also at #/\$defs/a"):
        Document({"$defs": {"a": {"$anchor": "n"}, "b": {"$anchor": "n"}}})


@pytest.mark.parametrize("length", [1, 2, 3, 10_000])
def test_references_round_in_a_circle_are_found_soon(length: int) -> None:
    names = {str(number): {"$ref": f"#/$defs/{(number + 1) % length}"} for number in range(length)}
    start = time.process_time()
    with pytest.raises(InvalidConstraint, match=r"circle: #/\$defs/\d+ -> ") as caught:
        Document({"properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": names})
    assert time.process_time() - start < 5
    assert len(str(caught.value)) < 1000
    names["0"] = {"items": {"$ref": "#/$defs/0"}}
    assert Document({"$ref": "#/$defs/0", "$defs": names}).root.number == 0


@pytest.mark.parametrize("uri", sorted(uri for uri in REGISTRY if "draft-03" not in uri))
def test_metaschemas_of_the_drafts_are_known(uri: str) -> None:
    document = Document({"properties": {"schema": {"$ref": uri}, "again": {"$ref": uri}}})
    first, second = (
        document.target(document.child(document.root, "properties", name)) for name in ("schema", "again")
    )
    assert first is second
    assert first.raw == REGISTRY[uri].contents
    assert first.pointer == uri.removesuffix("#") + "#"


def test_a_reference_into_a_metaschema() -> None:
    document = Document({"$ref": "https://json-schema.org/draft-04/schema#/definitions/positiveInteger"})
    target = document.target(document.root)
    assert (target.draft, target.schema) == (Draft.D4, {"minimum": 0, "type": INTEGER_OF_4})
    assert target.pointer == "https://json-schema.org/draft-04/schema#/definitions/positiveInteger"


TREE = {
    "$id": "http://a/root",
    "$ref": "list",
    "$defs": {
        "text": {"$dynamicAnchor": "item", "type": "string"},
        "list": {
            "$id": "list",
            "items": {"$dynamicRef": "#item"},
            "$defs": {"any": {"$dynamicAnchor": "item"}},
        },
    },
}


def walk(document: Document, *path: str) -> tuple[Node, tuple[int, ...]]:
    """The node and the dynamic scope at the end of a path of keywords; "$ref" follows one."""
    node, scope = document.root, document.enter((), document.root)
    for key in path:
        node = document.target(node) if key == "$ref" else document.child(node, key)
        scope = document.enter(scope, node)
    return node, scope


def test_a_dynamic_reference_leads_to_the_outermost_anchor() -> None:
    document = Document(TREE)
    node, scope = walk(document, "$ref", "items")
    assert document.dynamic_target(node, scope).pointer == "#/$defs/text"
    assert document.dynamic_target(node, ()).pointer == "#/$defs/list/$defs/any"
    assert document.enter(scope, node) == scope
    alone = Document(TREE["$defs"]["list"])  # type: ignore[index]
    node, scope = walk(alone, "items")
    assert alone.dynamic_target(node, scope).pointer == "#/$defs/any"


@pytest.mark.parametrize(
    "change", [{"items": {"$dynamicRef": "#/$defs/any"}}, {"$defs": {"any": {"$anchor": "item"}}}]
)
def test_a_dynamic_reference_to_no_dynamic_anchor_is_an_ordinary_one(change: dict[str, Any]) -> None:
    changed = {**TREE["$defs"]["list"], **change}  # type: ignore[index]
    document = Document({**TREE, "$defs": {**TREE["$defs"], "list": changed}})  # type: ignore[dict-item]
    node, scope = walk(document, "$ref", "items")
    assert document.dynamic_target(node, scope).pointer == "#/$defs/list/$defs/any"


def test_scopes_stay_finite_and_are_empty_without_dynamic_references() -> None:
    document = Document(TREE)
    node, scope = walk(document, "$ref", "items")
    for _ in range(5):
        for each in (document.root, document.target(document.root), node):
            scope = document.enter(scope, each)
    assert len(scope) <= 2
    static = Document({"$id": "http://a/", "properties": {"b": {"$id": "b", "$dynamicAnchor": "x"}}})
    assert static.enter((), static.root) == ()


@pytest.mark.parametrize(("inner", "pointer"), [(True, "#"), (False, "#/$defs/list")])
def test_recursive_references(inner: bool, pointer: str) -> None:
    inside = {"$id": "list", "$recursiveAnchor": inner, "items": {"$recursiveRef": "#"}}
    document = Document(
        NINETEEN | {"$id": "http://a/", "$recursiveAnchor": True, "$ref": "list", "$defs": {"list": inside}}
    )
    node, scope = walk(document, "$ref", "items")
    assert document.dynamic_target(node, scope).pointer == pointer


def test_what_dynamic_references_may_lead_to_is_in_use() -> None:
    schema = {**TREE, "$defs": {**TREE["$defs"], "text": {"$dynamicAnchor": "item", "pattern": "x"}}}  # type: ignore[dict-item]
    assert dict(Document(schema).patterns) == {"x": "#/$defs/text/pattern"}


def test_an_embedded_resource_may_be_of_another_draft() -> None:
    old = {**SEVEN, "$id": "old", "items": [{}], "additionalItems": False}
    document = Document({"$id": "http://a/", "properties": {"a": old, "b": {**SEVEN, "items": {}}}})
    a, b = (document.child(document.root, "properties", name) for name in "ab")
    assert (a.draft, b.draft) == (Draft.D7, Draft.D2020)  # without an $id it is no resource
    assert document.child(a, "prefixItems", 0).draft is Draft.D7
    assert document.child(a, "items").schema is False
