"""Every field is honoured or refused by name: nothing is accepted and ignored."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

Post = Callable[..., httpx.Response]
HELLO = [{"role": "user", "content": "hello"}]
DEEP = "[" * 100_000


def error_of(answer: httpx.Response, status: int = 400) -> dict[str, str]:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("suffix", "end"),
        ("best_of", 2),
        ("best_of", True),
        ("store", True),
        ("store", 0),
    ],
)
def test_completion_fields_that_are_not_supported(post: Post, field: str, value: object) -> None:
    error = error_of(post("completions", prompt="a", **{field: value}))
    assert error["param"] == field and "not supported" in error["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
        ("parallel_tool_calls", False),
        ("audio", {"voice": "alloy", "format": "mp3"}),
        ("modalities", ["text", "audio"]),
        ("prediction", {"type": "content", "content": "x"}),
        ("reasoning_effort", "high"),
        ("verbosity", "low"),
        ("service_tier", "priority"),
        ("web_search_options", {}),
        ("store", True),
    ],
)
def test_chat_fields_that_are_not_supported(post: Post, field: str, value: object) -> None:
    error = error_of(post("chat/completions", messages=HELLO, **{field: value}))
    assert error["param"] == field and "not supported" in error["message"]


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
@pytest.mark.parametrize("field", ["guided_json", "ebnf", "top-k", "\ud800", "x" * 5000])
def test_unknown_fields_are_named(post: Post, route: str, field: str) -> None:
    start = {"prompt": "a"} if route == "completions" else {"messages": HELLO}
    error = error_of(post(route, **start, **{field: 1}))
    assert len(error["message"]) < 200
    if field != "\ud800":
        assert error["code"] == "unknown_field" and field.startswith(error["param"])


def test_other_servers_names_get_a_hint(post: Post) -> None:
    error = error_of(post("completions", prompt="a", guided_regex="a+"))
    assert "regex" in error["message"] and error["param"] == "guided_regex"


def test_values_that_ask_for_nothing_are_fine(post: Post) -> None:
    nothing = {"echo": False, "suffix": None, "best_of": 1, "store": False, "user": "me", "seed": None}
    assert post("completions", prompt="a", **nothing).status_code == 200
    chat = {
        "tools": [],
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "reasoning_effort": None,
        "store": False,
        "metadata": {"job": "7"},
        "user": "me",
        "safety_identifier": "me",
        "prompt_cache_key": "k",
        "stop": None,
        "service_tier": "auto",
        "stream": None,
    }
    assert post("chat/completions", messages=HELLO, **chat).status_code == 200


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("n", 0, "n"),
        ("n", 10**9, "n"),
        ("n", True, "n"),
        ("n", "2", "n"),
        ("max_tokens", -1, "max_tokens"),
        ("max_tokens", 10**12, "max_tokens"),
        ("max_tokens", 1.5, "max_tokens"),
        ("temperature", -1, "temperature"),
        ("temperature", "hot", "temperature"),
        ("top_p", 2, "top_p"),
        ("top_k", -1, "top_k"),
        ("min_p", 1.5, "min_p"),
        ("min_tokens", 17, "min_tokens"),
        ("frequency_penalty", 3, "frequency_penalty"),
        ("repetition_penalty", 0, "repetition_penalty"),
        ("logprobs", 21, "logprobs"),
        ("logprobs", True, "logprobs"),
        ("echo", 1, "echo"),
        ("logit_bias", {"x": 1}, "logit_bias"),
        ("logit_bias", {"１": 1}, "logit_bias"),
        ("logit_bias", {"1": 101}, "logit_bias"),
        ("logit_bias", {str(i): 1 for i in range(5000)}, "logit_bias"),
        ("stop", [str(i) for i in range(65)], "stop"),
        ("stop", [""], "stop"),
        ("stop", ["a", 1], "stop"),
        ("stop", "x" * 1025, "stop"),
        ("stop_token_ids", [-1], "stop_token_ids"),
        ("stop_token_ids", list(range(1025)), "stop_token_ids"),
        ("ignore_eos", 1, "ignore_eos"),
        ("regex", "a" * 70_000, "regex"),
        ("choices", [], "choices"),
        ("choices", "ab", "choices"),
        ("choices", [1], "choices"),
        ("seed", 2**63, "seed"),
        ("stream", "yes", "stream"),
        ("stream_options", {"include_usage": True}, "stream_options"),
        ("metadata", {str(i): "x" for i in range(65)}, "metadata"),
        ("prompt", [], "prompt"),
        ("prompt", [[]], "prompt"),
        ("prompt", ["a", 1], "prompt"),
        ("prompt", [True], "prompt"),
        ("prompt", [[1], "a"], "prompt"),
        ("prompt", None, "prompt"),
        ("prompt", {"text": "a"}, "prompt"),
        ("prompt", [1, 259], "prompt"),
        ("prompt", [-1], "prompt"),
        ("prompt", ["a"] * 1025, "prompt"),
        ("prompt", "\ud800", "prompt"),
        ("prompt", ["a", "\udc00"], "prompt"),
        ("regex", "[\ud800]", "regex"),
        ("choices", ["\ud800"], "choices"),
        ("stop", "\ud800", "stop"),
        ("cache_salt", "", "cache_salt"),
        ("cache_salt", "x" * 257, "cache_salt"),
        ("cache_salt", 7, "cache_salt"),
    ],
)
def test_values_out_of_range_name_their_field(post: Post, field: str, value: object, param: str) -> None:
    error = error_of(post("completions", **{"prompt": "a", field: value}))
    assert error["type"] == "invalid_request_error"
    assert error["param"].split(".")[0] == param
    assert len(error["message"]) < 500


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hello", "messages"),
        ([{"role": "user"}], "messages.0.content"),
        ([{"role": "user", "content": None}], "messages.0.content"),
        ([{"role": "user", "content": 3}], "messages.0.content"),
        ([{"role": "poet", "content": "a"}], "messages.0.role"),
        ([{"role": "tool", "content": "a", "tool_call_id": "x"}], "messages.0.role"),
        ([{"role": "user", "content": "a", "name": "Ann"}], "messages.0.name"),
        ([{"role": "user", "content": "a", "mood": "good"}], "messages.0.mood"),
        ([{"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]}], "messages.0.tool_calls"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages.0.content",
        ),
        ([{"role": "user", "content": "no template"}], "messages"),
        ([{"role": "user", "content": "a"}] * 5000, "messages"),
    ],
)
def test_messages_that_cannot_be_used(post: Post, messages: object, param: str) -> None:
    assert error_of(post("chat/completions", messages=messages))["param"] == param


def test_limits_that_contradict_each_other(post: Post) -> None:
    error = error_of(post("chat/completions", messages=HELLO, max_tokens=3, max_completion_tokens=4))
    assert error["param"] == "max_tokens"
    error = error_of(post("chat/completions", messages=HELLO, top_logprobs=2))
    assert error["param"] == "top_logprobs"
    assert post("chat/completions", messages=HELLO, max_tokens=3, max_completion_tokens=3).status_code == 200


def test_a_message_that_an_answer_gave_can_be_sent_back(post: Post) -> None:
    first = post("chat/completions", messages=HELLO).json()["choices"][0]["message"]
    empty = {"annotations": None, "audio": None, "function_call": None, "tool_calls": None}
    answer = post("chat/completions", messages=[*HELLO, {**first, **empty}, *HELLO])
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'"a"', 400),
        (b"\xff\xfe", 400),
        (DEEP.encode(), 400),
        (b'{"prompt": "a", "temperature": NaN}', 400),
        (b'{"prompt": "a", "temperature": Infinity}', 400),
        (b'{"prompt": "a", "temperature": 1e999}', 400),
        (b'{"prompt": "a", "seed": ' + b"9" * 6000 + b"}", 400),
    ],
)
def test_bodies_that_are_no_request(plain_client: httpx.Client, content: bytes, status: int) -> None:
    answer = plain_client.post(
        "/v1/completions", content=content, headers={"content-type": "application/json"}
    )
    error_of(answer, status)


def test_a_body_of_another_type(plain_client: httpx.Client) -> None:
    answer = plain_client.post(
        "/v1/completions", content=b'{"prompt": "a"}', headers={"content-type": "text/plain"}
    )
    assert "application/json" in error_of(answer)["message"]


def test_bodies_full_of_faults_are_refused_at_once(post: Post) -> None:
    """A report on each of a million wrong entries held the server for seconds."""
    many = {f"x{i}": "x" for i in range(100_000)}
    for field in ("metadata", "logit_bias"):
        error = error_of(post("completions", prompt="a", **{field: many}))
        assert error["param"] == field and "100000" in error["message"]
    error = error_of(post("completions", prompt="a", **many))
    assert error["message"].startswith("100001 fields") and error["param"] is None
    part = {"type": "text", "text": 1}
    message = {"role": "user", "content": [part] * 1000}
    error = error_of(post("chat/completions", messages=[message] * 100))
    assert error["param"].startswith("messages.0.content.0")


def test_texts_far_beyond_the_context_are_not_encoded(post: Post) -> None:
    """The fake's longest token is one byte, its context 1000 tokens: 70,000 characters never fit."""
    text = "a" * 70_000
    for route, field, value in (
        ("completions", "prompt", text),
        ("completions", "prompt", ["b" * 70_000, "a"]),
        ("chat/completions", "messages", [{"role": "user", "content": text}]),
    ):
        error = error_of(post(route, **{field: value}))
        assert error["code"] == "context_length_exceeded" and error["param"] == field
        assert "70000 characters" in error["message"]
