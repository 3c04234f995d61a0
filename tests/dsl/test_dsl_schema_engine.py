"""`gen(schema=...)` on the real engine: whatever the model says, what comes out is an instance."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from oracles.history_model import HistoryModel, byte_tokenizer
from pydantic import BaseModel, Field

import treille as tr
from treille.dsl.events import PartialEvent
from treille.runtime.models.load import LoadedModel


class Kind(Enum):
    """What it is about."""

    BUG = "bug"
    OTHER = "other"


class Ticket(BaseModel):
    """Every text of it is short, so that noise comes to an end."""

    title: str = Field(max_length=6)
    kind: Kind
    urgency: Literal[1, 2, 3]
    due: datetime.date | None
    tags: list[Annotated[str, Field(pattern="^[a-c]{1,2}$")]] = Field(default=[], max_length=2)


@pytest.fixture(scope="module")
def engine() -> Iterator[tr.Engine]:
    model = HistoryModel()
    loaded = LoadedModel("history", model.config, model, byte_tokenizer(), None)
    with tr.Engine(loaded, max_seq_len=1024, page_size=4, kv_memory=2**20) as engine:
        yield engine


def program_of(**options: Any) -> tr.Program:
    @tr.program
    def one(s: tr.State) -> None:
        s += "x: " + tr.gen("x", **options)

    return one


@pytest.mark.parametrize("whitespace", ["flexible", "compact", {"indent": 1}])
@pytest.mark.parametrize("order", ["schema", "any"])
def test_noise_becomes_instances(engine: tr.Engine, whitespace: Any, order: str) -> None:
    program = program_of(
        schema=Ticket, whitespace=whitespace, property_order=order, number_style="plain", max_tokens=600
    )
    checker = jsonschema.Draft202012Validator(Ticket.model_json_schema())
    for seed in range(6):
        state = program.run(backend=engine, seed=seed)
        text = state.raw("x")
        assert isinstance(state["x"], Ticket) and isinstance(text, str)
        checker.validate(json.loads(text))
        if whitespace == "compact":
            wanted = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
            # 1, 1.0 and 1.00 are one here, and so are \u001f and \u001F.
            assert re.sub(r"\.0+", "", text).lower() == re.sub(r"\.0+", "", wanted).lower()
        if order == "schema":
            assert list(json.loads(text)) == [
                name for name in Ticket.model_fields if name in json.loads(text)
            ]


def test_partials_lead_to_the_value(engine: tr.Engine) -> None:
    program = program_of(schema=Ticket, max_tokens=600, whitespace="compact")
    stream = program.stream(backend=engine, seed=3)
    partial = [event for event in stream if isinstance(event, PartialEvent)]
    assert partial[-1].value == stream.state["x"] and partial[-1].raw == stream.state.raw("x")
    assert all(isinstance(event.value, Ticket) for event in partial if event.data is not None)


def test_a_schema_without_a_type(engine: tr.Engine) -> None:
    schema = {"type": "array", "items": {"enum": [None, 1, "a"]}, "maxItems": 3, "uniqueItems": True}
    for seed in range(6):
        value = program_of(schema=schema, max_tokens=300).run(backend=engine, seed=seed)["x"]
        jsonschema.validate(value, schema)


def test_what_is_cut_off_keeps_its_text(engine: tr.Engine) -> None:
    with pytest.raises(tr.CutOff) as caught:
        program_of(schema=Ticket, max_tokens=9).run(backend=engine, seed=0)
    assert caught.value.text.startswith("{") and caught.value.text.lstrip("{ \n\t")


def test_refusals_say_where(engine: tr.Engine) -> None:
    for schema, kind, words in (
        ({"properties": {"a": {"pattern": "(a)\\1"}}}, tr.UnsupportedConstraint, "#/properties/a/pattern"),
        ({"type": "string", "minLength": 2, "maxLength": 1}, tr.InvalidConstraint, "no value"),
        (
            {"pattern": "(a)\\1"},
            tr.UnsupportedConstraint,
            "gen 'x': unsupported constraint: back-",
        ),
        ({"type": 3}, tr.InvalidConstraint, "gen 'x': InvalidConstraint: #/type"),
    ):
        with pytest.raises(tr.GenerationFailed, match="gen 'x'") as caught:
            program_of(schema=schema).run(backend=engine)
        assert isinstance(caught.value.__cause__, kind) and words in str(caught.value)
        assert caught.value.__cause__.field == "schema"
