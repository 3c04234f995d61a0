"""`gen(schema=...)`: which schema a type has, what becomes of the text, and what there is on the way."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from typing_extensions import TypedDict

import treille as tr
from treille.dsl.backends.local import sampling_params
from treille.dsl.backends.scripted import ScriptedBackend, WrongScript
from treille.dsl.events import PartialEvent, TextEvent, VariableEvent
from treille.dsl.protocol import GenOptions
from treille.dsl.schemas import json_type, schema_text


class Kind(enum.Enum):
    BUG = "bug"
    OTHER = 2


class Step(BaseModel):
    text: str = Field(min_length=2)
    done: bool = False


class Ticket(BaseModel):
    title: str = Field(alias="Title")
    due: datetime.date | None
    steps: list[Step] = []
    kind: Kind = Kind.BUG
    first: Step | None = None


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


class Point(TypedDict, total=False):
    x: float
    y: float


class Free(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Odd(BaseModel):
    limit: float = float("inf")
    price: decimal.Decimal = Field(decimal.Decimal("0.1"), ge=0)

    @field_validator("price")
    @classmethod
    def no_seven(cls, value: decimal.Decimal) -> decimal.Decimal:
        if value == 7:
            raise ValueError("never seven")
        return value


def schema_of(kind: object) -> Any:
    return json.loads(json_type(kind).schema)


def program_of(**options: Any) -> tr.Program:
    @tr.program
    def one(s: tr.State) -> None:
        s += "x: " + tr.gen("x", **options)

    return one


def value_of(text: str, schema: object, **options: Any) -> Any:
    return program_of(schema=schema, **options).run(backend=ScriptedBackend([text]))["x"]


TICKET = '{"Title": "No \\u00e9lan", "due": "2024-02-29", "steps": [{"text": "ab"}], "kind": 2}'


class TestSchemas:
    def test_instances(self) -> None:
        due = datetime.date(2024, 2, 29)
        wanted = Ticket(Title="No élan", due=due, steps=[Step(text="ab")], kind=Kind.OTHER)
        assert value_of(TICKET, Ticket) == wanted
        tree = value_of('{"name": "a", "children": [{"name": "b"}]}', Tree)
        assert tree == Tree("a", [Tree("b")])
        assert value_of('{"x": 1}', Point) == {"x": 1.0}

    @pytest.mark.parametrize(
        ("kind", "text", "value"),
        [
            (list[int], "[1, 2]", [1, 2]),
            (int | str, '"7"', "7"),
            (Literal["a", 1], "1", 1),
            (tuple[int, str], '[1, "b"]', (1, "b")),
            (set[int], "[1, 2]", {1, 2}),
            (dict[str, Kind], '{"k": "bug"}', {"k": Kind.BUG}),
            (Annotated[int, Field(gt=3)], "4", 4),
            (str, '"quoted"', "quoted"),
            (int, "12", 12),
            (None, "null", None),
            (
                datetime.datetime,
                '"2024-02-29T12:00:00Z"',
                datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC),
            ),
        ],
    )
    def test_any_type(self, kind: object, text: str, value: object) -> None:
        found = value_of(text, type(None) if kind is None else kind)
        assert found == value and type(found) is type(value)
        jsonschema.validate(json.loads(text), schema_of(type(None) if kind is None else kind))

    def test_what_a_model_would_ignore_is_not_written(self) -> None:
        ticket = schema_of(Ticket)
        assert ticket["additionalProperties"] is False
        assert ticket["$defs"]["Step"]["additionalProperties"] is False
        assert schema_of(Point)["additionalProperties"] is False
        assert schema_of(Tree)["$defs"]["Tree"]["additionalProperties"] is False
        assert schema_of(Free)["additionalProperties"] is True
        assert schema_of(dict[str, int])["additionalProperties"] == {"type": "integer"}

    def test_odd_fields(self) -> None:
        odd = schema_of(Odd)["properties"]
        assert "default" not in odd["limit"]
        assert odd["price"]["type"] == "number" and odd["price"]["minimum"] == 0
        assert value_of('{"price": 0.30}', Odd).price == decimal.Decimal("0.3")

    def test_a_schema_without_a_type(self) -> None:
        found = value_of('{"a": [1, 1.5, "é", null, true], "b": 18446744073709551617}', {"type": "object"})
        assert found == {"a": [1, 1.5, "é", None, True], "b": 2**64 + 1} and type(found["a"][0]) is int
        assert value_of("[]", '{"type": "array"}') == []
        assert value_of("3", True) == 3

    def test_one_type_is_read_once(self) -> None:
        assert json_type(Ticket) is json_type(Ticket)
        assert tr.gen("x", schema=Ticket) == tr.gen("x", schema=Ticket)

    @pytest.mark.parametrize(
        ("schema", "words"),
        [
            ("int", "schema is not JSON: Expecting value at line 1 column 1"),
            ('{"a": 1,\n "b" 2}', "schema is not JSON: Expecting ':' delimiter at line 2 column 6"),
            ("ticket.json", "at line 1 column 1; give the text of the file, not its name"),
            ("[1]", "schema must be a JSON object"),
            ('{"a": NaN}', "no NaN"),
            ("[" * 100_000, "nested too deeply"),
            ([1], r"schema must be a class or another type, .* or JSON text, not \[1\] of type list"),
            (
                3,
                "schema must be a class or another type, a dict, True, False or JSON text, not 3 of type int",
            ),
            (3.5, "not 3.5 of type float"),
            (b"{}", "not b'{}' of type bytes"),
            (Path("a.json"), "of type PosixPath"),
            (Step(text="ab"), "not an instance of Step: give the class itself"),
            (Tree("a"), "not an instance of Tree: give the class itself"),
            (list[threading.Thread], "schema has no JSON Schema for"),
            (threading.Thread, "schema has no JSON Schema for"),
            ({"a": {1}}, "schema is not JSON"),
            ({"a": float("nan")}, "schema is not JSON"),
            ({"a": [{1: 2}]}, "the key 1 is no string"),
            ({"a": "x" * 4_000_000}, "at most 4000000 characters"),
        ],
    )
    def test_what_is_no_schema(self, schema: object, words: str) -> None:
        with pytest.raises(tr.InvalidExpression, match=words) as caught:
            tr.gen("x", schema=schema)
        assert caught.value.field == "schema" and len(str(caught.value)) < 500

    def test_none_asks_for_nothing(self) -> None:
        assert tr.gen("x", schema=None) == tr.gen("x")
        assert value_of("free text", None) == "free text"

    def test_numbers_stay_as_they_are_spelled(self) -> None:
        text = '{"multipleOf": 0.1000, "maximum": 1e400, "const": 123456789012345678901234567890.5}'
        assert schema_text(text) == text
        params = sampling_params(tr.gen("x", schema=text).options)  # type: ignore[attr-defined]
        assert params.schema == text.replace(" ", "")


class TestOptions:
    def test_they_reach_the_runtime(self) -> None:
        spaces = {"indent": 2, "separators": [",", ": "]}
        made = tr.gen(
            "x",
            schema=Point,
            whitespace=spaces,
            property_order="any",
            number_style="plain",
            formats="annotation",
            escapes="any",
        )
        hash(made)
        params = sampling_params(made.options)  # type: ignore[attr-defined]
        source = params.constraint.source
        assert (source.property_order, source.number_style, source.formats) == ("any", "plain", "annotation")
        assert source.escapes == "any"
        spacing = source.whitespace
        assert (spacing.indent, spacing.item_separator, spacing.key_separator) == (2, ",", ": ")

    @pytest.mark.parametrize(
        ("options", "name", "words"),
        [
            ({"whitespace": "compact"}, "whitespace", "give schema too"),
            ({"formats": "assert", "regex": "a"}, "formats", "give schema too"),
            ({"schema": True, "regex": "a"}, "regex", "regex and schema exclude each other"),
            ({"schema": True, "type": int}, "type", "type and schema exclude each other"),
            ({"schema": True, "whitespace": "none"}, "whitespace", "must be flexible or compact or any"),
            ({"schema": True, "whitespace": {"indent": -1}}, "whitespace", "from 0 to 16"),
            ({"schema": True, "whitespace": {"separators": [";", ":"]}}, "whitespace", "separators"),
            ({"schema": True, "whitespace": {"tabs": 1}}, "whitespace", "only indent and separators"),
            ({"schema": True, "property_order": "sorted"}, "property_order", "must be schema or any"),
            ({"schema": True, "escapes": "few"}, "escapes", "must be minimal or any"),
            ({"type": list[int]}, "type", "schema=... takes other types"),
        ],
    )
    def test_contradictions(self, options: dict[str, Any], name: str, words: str) -> None:
        with pytest.raises(tr.InvalidExpression, match=words) as caught:
            tr.gen("x", **options)
        assert caught.value.field == name


class TestWrongTexts:
    def test_cut_off(self) -> None:
        with pytest.raises(tr.CutOff, match="is not of type Ticket: it was cut off by max_tokens") as caught:
            value_of(TICKET, Ticket, max_tokens=20)
        assert caught.value.text == TICKET[:20] and caught.value.texts == (TICKET[:20],)
        assert isinstance(caught.value, tr.GenerationFailed)
        with pytest.raises(tr.CutOff, match="is not of the schema: it was cut off at the stop 'b'"):
            value_of('{"a": 1, "b": 2}', {}, stop="b")

    def test_nothing_is_lost_of_long_ones(self) -> None:
        text = json.dumps(["x" * 5000])
        with pytest.raises(tr.CutOff) as caught:
            value_of(text, list[str], max_tokens=4000)
        assert caught.value.text == text[:4000] and len(str(caught.value)) < 1000

    def test_messages_show_both_ends(self) -> None:
        whole = '{"a": [' + "1, " * 500 + "0." + "0" * 500 + "]}"
        text = whole[:-2]
        with pytest.raises(tr.CutOff) as caught:
            value_of(whole, {}, max_tokens=len(text))
        shown = (
            f"{text[:300]!r}... (and {len(text) - 400} characters) ...{text[-100:]!r} is not of the schema"
        )
        assert shown in str(caught.value)
        short = '{"a": "' + "x" * 390
        with pytest.raises(tr.CutOff) as caught:
            value_of(short + '"}', {}, max_tokens=len(short))
        assert repr(short) in str(caught.value)

    def test_a_number_may_have_gone_on(self) -> None:
        for kind in (int, {"type": "integer"}):
            with pytest.raises(tr.CutOff, match="may not be a whole number: it was cut off by max"):
                value_of("1234", kind, max_tokens=2)
            with pytest.raises(tr.CutOff, match="at the stop '3'"):
                value_of("1234", kind, stop="3")
            assert value_of("12\n", kind, stop="\n") == 12
            assert value_of("12 ", kind, max_tokens=3) == 12
        assert value_of("[12]", list[int], max_tokens=4) == [12]

    def test_what_the_schema_does_not_say(self) -> None:
        with pytest.raises(tr.WrongText, match="never seven") as caught:
            value_of('{"price": 7}', Odd)
        assert not isinstance(caught.value, tr.CutOff)
        assert isinstance(caught.value.__cause__, ValidationError) and caught.value.text == '{"price": 7}'

    def test_several(self) -> None:
        program = program_of(schema=list[int], n=2, max_tokens=6)
        assert program.run(backend=ScriptedBackend([["[1]", "[2,3]"]]))["x"] == [[1], [2, 3]]
        with pytest.raises(tr.CutOff) as caught:
            program.run(backend=ScriptedBackend([["[1]", "[2, 3, 4]"]]))
        assert caught.value.text == "[2, 3," and caught.value.texts == ("[1]", "[2, 3,")

    def test_a_script_that_is_no_json(self) -> None:
        with pytest.raises(tr.GenerationFailed) as caught:
            value_of("{", {})
        assert isinstance(caught.value.__cause__, WrongScript)


class TestPartials:
    def events(self, text: str, schema: object, **options: Any) -> list[Any]:
        program = program_of(schema=schema, **options)
        return list(program.stream(backend=ScriptedBackend([text], piece=1)))

    def test_one_for_each_piece(self) -> None:
        found = self.events(TICKET, Ticket)
        partial = [event for event in found if isinstance(event, PartialEvent)]
        assert [event.raw for event in partial] == [TICKET[:end] for end in range(1, len(TICKET) + 1)]
        at = next(index for index, event in enumerate(found) if isinstance(event, PartialEvent))
        assert isinstance(found[at - 1], TextEvent) and found[at - 1].text == "{"
        (variable,) = [event for event in found if isinstance(event, VariableEvent)]
        assert partial[-1].value == variable.value

    def test_data_only_grows(self) -> None:
        text = '{"a": [1, {"b": "x\\ud83d\\ude00y"}, true, null], "c": -1.5, "é": "ü"}'
        keys: list[str] = []
        for event in self.events(text, {"type": "object"}):
            if isinstance(event, PartialEvent):
                assert list(event.data)[: len(keys)] == keys or not event.raw.rstrip()[-1].isalnum()
                keys = list(event.data)
                assert event.value == event.data
        assert event_before_last(self.events(text, {})).data == json.loads(text)

    def test_models_grow_field_by_field(self) -> None:
        kind = json_type(Ticket)
        begun: Any = kind.instance('{"Title": "No')
        assert type(begun) is Ticket and begun.title == "No" and begun.model_fields_set == {"title"}
        assert begun.steps == [] and not hasattr(begun, "due")
        later: Any = kind.instance(
            '{"Title": "No", "due": "2024-02-29", "steps": [{"text": "ab"}, {"text": "c'
        )
        assert later.due == datetime.date(2024, 2, 29) and later.steps[0] == Step(text="ab")
        # A field's own rules hold for it: one character is too short a text.
        assert len(later.steps) == 2 and not hasattr(later.steps[1], "text")
        nested: Any = kind.instance('{"Title": "No", "first": {"text": "a')
        assert type(nested.first) is Step and nested.first.model_fields_set == set()
        assert not hasattr(kind.instance('{"Title": "No", "due": "2024-'), "due")

    def test_other_types_show_data(self) -> None:
        assert json_type(Tree).instance('{"name": "a", "chil') == Tree("a")
        assert json_type(Tree).instance('{"children": [') == {"children": []}
        assert json_type(list[int]).instance("[1, 2") == [1, 2]
        steps: Any = json_type(list[Step]).instance('[{"text": "ab"}, {"done": true')
        assert steps[0] == Step(text="ab") and steps[1].done is True and not hasattr(steps[1], "text")
        for text in ("", " ", "-", "tr"):
            assert json_type(Ticket).instance(text) is None

    def test_validators_that_fail_on_half_a_value(self) -> None:
        class Strange(BaseModel):
            name: str
            code: str

            @field_validator("name")
            @classmethod
            def third(cls, value: str) -> str:
                return value + value[2]

            def model_post_init(self, context: Any) -> None:
                assert self.code

        assert json_type(Strange).instance('{"name": "a') == {"name": "a"}
        assert json_type(Strange).instance('{"name": "abc", "code": "x"}').name == "abcc"  # type: ignore[attr-defined]

    def test_none_without_a_name_or_for_several(self) -> None:
        backend = ScriptedBackend([["[1]", "[2]"]])
        events = list(program_of(schema=list[int], n=2).stream(backend=backend))
        assert not [event for event in events if isinstance(event, PartialEvent)]

        @tr.program
        def unnamed(s: tr.State) -> None:
            s += tr.gen(schema=list[int])

        events = list(unnamed.stream(backend=ScriptedBackend(["[1]"])))
        assert not [event for event in events if isinstance(event, PartialEvent)]


def event_before_last(events: list[Any]) -> PartialEvent:
    return [event for event in events if isinstance(event, PartialEvent)][-1]


def test_options_of_the_language_and_of_json_dumps() -> None:
    """The layouts that json.dumps has by default and with an indent."""
    for whitespace, wanted in (({}, (None, ", ", ": ")), ({"indent": 4}, (4, ",", ": "))):
        params = sampling_params(GenOptions(schema="true", whitespace=tuple(whitespace.items())))
        spacing: Any = params.constraint.source.whitespace  # type: ignore[union-attr]
        assert (spacing.indent, spacing.item_separator, spacing.key_separator) == wanted
