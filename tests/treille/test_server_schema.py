"""JSON by HTTP: `response_format` as OpenAI's clients send it, and `schema` with its options."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from treille.runtime.params import SamplingParams
from treille.runtime.schema_source import Spacing

Send = Callable[..., httpx.Response]
HELLO = [{"role": "user", "content": "hello"}]
START: dict[str, dict[str, Any]] = {"completions": {"prompt": "a"}, "chat/completions": {"messages": HELLO}}
ROUTES = list(START)


class Server:
    """A fake engine's server, and what reached the engine."""

    def __init__(self, engine: Any, client: httpx.Client) -> None:
        self.engine = engine
        self._client = client

    def post(self, route: str, body: str) -> httpx.Response:
        head = {"content-type": "application/json"}
        return self._client.post(f"/v1/{route}", content=body, headers=head)

    def asked(self, route: str, **fields: object) -> SamplingParams:
        """The engine's parameters of a request that is fine."""
        answer = self.post(route, json.dumps({**START[route], **fields}))
        assert answer.status_code == 200, answer.text
        return self.engine.submitted[-1].params  # type: ignore[no-any-return]

    def error(self, route: str, **fields: object) -> dict[str, Any]:
        answer = self.post(route, json.dumps({**START[route], **fields}))
        assert answer.status_code == 400, answer.text
        return answer.json()["error"]  # type: ignore[no-any-return]


@pytest.fixture
def server(serve_fake: Callable[..., Any]) -> Iterator[Server]:
    engine, live = serve_fake()
    with live.http() as client:
        yield Server(engine, client)


def named(schema: object, **more: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}


@pytest.mark.parametrize("route", ROUTES)
def test_what_reaches_the_engine(server: Server, route: str) -> None:
    for form, text in (
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, '{"type":"object"}'),
        (named({"type": "array"}), '{"type":"array"}'),
        (named({"b": 1, "a": [2.50, True]}, strict=False, description="d"), '{"b":1,"a":[2.5,true]}'),
        (named(True, strict=True), "true"),
    ):
        assert server.asked(route, response_format=form).schema == text
    assert server.asked(route, schema={"a": None}).schema == '{"a":null}'
    assert server.asked(route, schema='{"a": 1.50}').schema == '{"a":1.50}'


@pytest.mark.parametrize("route", ROUTES)
def test_numbers_are_exact(server: Server, route: str) -> None:
    schema = '{"multipleOf":0.10,"maximum":1E400,"const":0.30000000000000000001,"minimum":-1}'
    rest = json.dumps(START[route])[1:-1]
    forms = f'"type": "json_schema", "json_schema": {{"name": "x", "schema": {schema}}}'
    for field in (f'"schema": {schema}', f'"response_format": {{{forms}}}'):
        answer = server.post(route, f'{{{rest}, "temperature": 0.50, "logit_bias": {{"1": 2.50}}, {field}}}')
        assert answer.status_code == 200, answer.text
        params = server.engine.submitted[-1].params
        assert params.schema == schema
        assert params.temperature == 0.5 and params.logit_bias == {1: 2.5}


@pytest.mark.parametrize("route", ROUTES)
def test_options(server: Server, route: str) -> None:
    spaces = {"indent": 2, "separators": [",", ": "]}
    options = {"property_order": "any", "number_style": "plain", "formats": "annotation", "escapes": "any"}
    for more in ({"schema": True}, {"response_format": {"type": "json_object"}}):
        params = server.asked(route, whitespace=spaces, **options, **more)
        assert params.whitespace == Spacing(2, ",", ": ")
        assert {name: getattr(params, name) for name in options} == options
    assert server.asked(route, schema=True, whitespace="compact").whitespace == "compact"


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": named({}) | {"type": "json_object"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": named({}, strict="yes")}, "response_format.json_schema.strict"),
        ({"response_format": named({}, mode=1)}, "response_format.json_schema.mode"),
        ({"response_format": named([1])}, "response_format.json_schema.schema"),
        ({"response_format": named(None)}, "response_format.json_schema.schema"),
        ({"response_format": named(False)}, "response_format.json_schema.schema"),
        ({"response_format": named({}), "schema": {}}, "response_format"),
        ({"response_format": named({}), "regex": "a"}, "regex"),
        ({"schema": 3}, "schema"),
        ({"schema": "{"}, "schema"),
        ({"schema": False}, "schema"),
        ({"schema": {}, "grammar": "start: /a/"}, "schema"),
        ({"schema": {}, "whitespace": "none"}, "whitespace"),
        ({"schema": {}, "whitespace": {"indent": 2.0}}, "whitespace"),
        ({"schema": {}, "property_order": 1}, "property_order"),
        ({"schema": {}, "property_order": "sorted"}, "property_order"),
        ({"schema": {}, "number_style": "hex"}, "number_style"),
        ({"schema": {}, "formats": "maybe"}, "formats"),
        ({"schema": {}, "escapes": "few"}, "escapes"),
        ({"whitespace": "compact"}, "whitespace"),
        ({"response_format": {"type": "text"}, "formats": "assert"}, "formats"),
    ],
)
def test_errors_name_the_clients_field(
    server: Server, route: str, fields: dict[str, Any], param: str
) -> None:
    error = server.error(route, **fields)
    assert error["param"] == param and len(error["message"]) < 300
    if fields in ({"schema": False}, {"response_format": named(False)}):
        assert error["code"] == "unsupported_constraint" and "#/not" in error["message"]
    stream = server.error(route, **fields, stream=True)
    assert stream == error


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"response_format": named({}, whitespace="compact")},
            "unknown field response_format.json_schema.whitespace; it goes beside response_format",
        ),
        (
            {"response_format": {"type": "json_object", "escapes": "any"}},
            "unknown field response_format.escapes; it goes beside response_format",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"type": "object", "properties": {}}}},
            'give {"name": "...", "schema": {...}}, with the schema as the field schema',
        ),
        (
            {"response_format": {"type": "json_schema", "schema": {"type": "object"}}},
            'a schema goes into json_schema: {"name": "...", "schema": {...}}',
        ),
        ({"response_format": "json_object"}, 'response_format: give an object: {"type": "text"}, '),
        ({"response_format": [1]}, "response_format: give an object"),
        ({"schema": {}, "formats": True}, "formats must be assert or annotation, not True"),
        ({"schema": {}, "number_style": ["plain"]}, "number_style must be json or plain, not ['plain']"),
        ({"schema": '{"a"\n 1}'}, "schema is not JSON: Expecting ':' delimiter at line 2 column 2"),
    ],
)
def test_errors_say_what_to_do(server: Server, route: str, fields: dict[str, Any], words: str) -> None:
    assert words in server.error(route, **fields)["message"]


def test_a_body_that_is_no_json(server: Server) -> None:
    answer = server.post("completions", '{"prompt": "a",\n "schema": {"a" 1}}')
    message = answer.json()["error"]["message"]
    assert message == "the body is not JSON: Expecting ':' delimiter at line 2 column 17"


@pytest.mark.parametrize("name", ["guided_json", "json_schema"])
def test_other_servers_names_get_a_hint(server: Server, name: str) -> None:
    assert "it is called schema here" in server.error("completions", **{name: {}})["message"]


def test_deep_and_broken_bodies(server: Server) -> None:
    for schema in ("[" * 5000, '{"a":' * 5000 + "1" + "}" * 5000, "1" * 5000, '{"a": NaN}', '{"a": 1e}'):
        answer = server.post("completions", f'{{"prompt": "a", "schema": {schema}}}')
        assert answer.status_code == 400 and "error" in answer.json()


def test_openais_client(serve_fake: Callable[..., Any]) -> None:
    """Its `parse` sends a pydantic model's schema and gives the instance."""

    class Point(BaseModel):
        x: int
        name: str

    engine, live = serve_fake(reply=lambda request, index: b'{"x": 3, "name": "p"}')
    with live.client() as client:
        done = client.chat.completions.parse(
            model="fake",
            messages=HELLO,  # type: ignore[arg-type]
            response_format=Point,
            max_completion_tokens=100,
        )
    assert done.choices[0].message.parsed == Point(x=3, name="p")
    sent = json.loads(engine.submitted[-1].params.schema)
    assert sent["required"] == ["x", "name"] and sent["additionalProperties"] is False


class TestTheRealEngine:
    """The engine's own constraints, over a model that says noise."""

    def test_json_mode_is_any_object(self, serve_history: Callable[..., Any]) -> None:
        _, live = serve_history()
        with live.http() as client:
            for seed in range(4):
                body = {"prompt": "x", "max_tokens": 900, "seed": seed, "whitespace": "compact"}
                body["response_format"] = {"type": "json_object"}
                body["logit_bias"] = {str(ord("}")): 12, str(ord('"')): 6, str(ord("0")): 6}
                answer = client.post("/v1/completions", json=body)
                assert answer.status_code == 200, answer.text
                (choice,) = answer.json()["choices"]
                assert choice["text"].startswith("{")
                if choice["finish_reason"] == "stop":
                    assert isinstance(json.loads(choice["text"]), dict)

    def test_refusals_name_the_place(self, serve_history: Callable[..., Any]) -> None:
        _, live = serve_history()
        bad = {"properties": {"a": {"pattern": "(a)\\1"}}}
        never = {"type": "string", "minLength": 2, "maxLength": 1}
        with live.http() as client:
            for schema, code, words in (
                (bad, "unsupported_constraint", "#/properties/a/pattern"),
                (never, "invalid_constraint", "no value"),
                ({"type": 3}, "invalid_constraint", "#/type"),
            ):
                for field, body in (
                    ("schema", {"schema": schema}),
                    ("response_format.json_schema.schema", {"response_format": named(schema)}),
                ):
                    answer = client.post("/v1/completions", json={"prompt": "x", **body})
                    error = answer.json()["error"]
                    assert answer.status_code == 400 and error["param"] == field
                    assert error["code"] == code and words in error["message"]
