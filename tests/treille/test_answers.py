"""What OpenAI's client reads from the server: shapes, counts, order, log-probabilities."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable

import httpx
import openai
import pytest

HELLO = [{"role": "user", "content": "hello"}]
Post = Callable[..., httpx.Response]


def euro(request: object, index: int) -> bytes:
    return "3 € “x”".encode()


def events(answer: httpx.Response) -> list[dict[str, object]]:
    """The JSON of each event; the stream must end with [DONE]."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    frames = answer.text.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def test_models(plain) -> None:
    with plain.client() as client:
        assert [model.id for model in client.models.list()] == ["fake"]
        assert client.models.retrieve("fake").owned_by == "treille"
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve("org/other")
        assert caught.value.code == "model_not_found"


def test_another_model_is_a_404(plain) -> None:
    with plain.client() as client:
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="gpt-4o", prompt="a")
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="gpt-4o", messages=HELLO, stream=True)


def test_completion(plain) -> None:
    with plain.client() as client:
        answer = client.completions.create(model="fake", prompt="hi", n=2)
    assert [choice.text for choice in answer.choices] == ["hok 0", "hok 1"]
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert {choice.finish_reason for choice in answer.choices} == {"stop"}
    assert answer.usage and answer.usage.prompt_tokens == 3
    assert answer.usage.completion_tokens == 10 and answer.usage.total_tokens == 13
    details = answer.usage.prompt_tokens_details
    assert details and details.cached_tokens == 1


def test_prompts_times_samples(plain) -> None:
    with plain.client() as client:
        answer = client.completions.create(model="fake", prompt=["ab", "cd", "ef"], n=2, max_tokens=4)
        streamed: defaultdict[int, str] = defaultdict(str)
        ends = []
        for chunk in client.completions.create(
            model="fake", prompt=["ab", "cd", "ef"], n=2, max_tokens=4, stream=True
        ):
            for choice in chunk.choices:
                streamed[choice.index] += choice.text
                if choice.finish_reason:
                    ends.append((choice.index, choice.finish_reason))
    assert [choice.text for choice in answer.choices] == ["aok ", "aok ", "cok ", "cok ", "eok ", "eok "]
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert dict(streamed) == {choice.index: choice.text for choice in answer.choices}
    assert sorted(ends) == [(index, "length") for index in range(6)]
    assert answer.usage and answer.usage.prompt_tokens == 9 and answer.usage.completion_tokens == 24


def test_prompts_of_ids_get_no_bos(serve_fake) -> None:
    engine, live = serve_fake()
    with live.client() as client:
        client.completions.create(model="fake", prompt=[[104, 105], [106]])
        client.completions.create(model="fake", prompt=[104, 105])
        client.completions.create(model="fake", prompt="hi")
    prompts = [request.prompt_ids for request in engine.submitted]
    assert prompts == [(104, 105), (106,), (104, 105), (256, 104, 105)]


def test_default_lengths(serve_fake) -> None:
    engine, live = serve_fake(max_seq_len=100)
    with live.client() as client:
        client.completions.create(model="fake", prompt="hi")
        client.chat.completions.create(model="fake", messages=HELLO)
        client.chat.completions.create(model="fake", messages=HELLO, max_completion_tokens=7)
        client.chat.completions.create(model="fake", messages=HELLO, max_tokens=8)
    prompt = len(engine.submitted[1].prompt_ids)
    assert [request.params.max_tokens for request in engine.submitted] == [16, 100 - prompt, 7, 8]


def test_sampling_fields_reach_the_engine(serve_fake) -> None:
    engine, live = serve_fake()
    fields = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 3,
        "min_p": 0.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.3,
        "repetition_penalty": 1.1,
        "seed": -4,
        "min_tokens": 1,
        "ignore_eos": True,
        "heal": True,
        "stop_regex": "x+",
        "choices": ["a", "b"],
    }
    more = {
        "stop": "zz",
        "stop_token_ids": [1, 2],
        "logit_bias": {"5": -100},
        "n": 2,
        "cache_salt": "tenant 7",
    }
    with live.http() as client:
        for body in ({"prompt": "a"}, {"messages": HELLO}):
            route = "completions" if "prompt" in body else "chat/completions"
            assert client.post(f"/v1/{route}", json={**body, **fields, **more}).status_code == 200
    for request in engine.submitted:
        found = {name: getattr(request.params, name) for name in fields}
        assert found == {**fields, "choices": ("a", "b")}
        assert request.params.stop == ("zz",) and request.params.stop_token_ids == (1, 2)
        assert request.params.logit_bias == {5: -100} and request.params.n == 2
        assert request.cache_salt == "tenant 7"


def test_no_tokens_at_all(plain) -> None:
    with plain.client() as client:
        answer = client.completions.create(model="fake", prompt="hi", max_tokens=0, n=2)
        chunks = list(client.completions.create(model="fake", prompt="hi", max_tokens=0, stream=True))
    assert [(choice.text, choice.finish_reason) for choice in answer.choices] == [("", "length")] * 2
    assert [chunk.choices[0].finish_reason for chunk in chunks] == ["length"]


def test_chat(plain) -> None:
    messages = [
        {"role": "developer", "content": "short"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    with plain.client() as client:
        answer = client.chat.completions.create(model="fake", messages=messages)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "sok 0"
    assert answer.choices[0].logprobs is None
    assert answer.usage and answer.usage.prompt_tokens == len("system:short\nuser:ab\n") + 2


def test_chat_stream(post: Post) -> None:
    answer = post("chat/completions", messages=HELLO, n=3, stream=True)
    chunks = events(answer)
    texts: defaultdict[int, str] = defaultdict(str)
    roles: list[int] = []
    ends: list[int] = []
    for chunk in chunks:
        assert chunk["object"] == "chat.completion.chunk" and "usage" not in chunk
        (choice,) = chunk["choices"]
        index, delta = choice["index"], choice["delta"]
        assert index not in ends, "nothing after a choice's end"
        if "role" in delta:
            roles.append(index)
        texts[index] += delta.get("content", "")
        if choice["finish_reason"]:
            ends.append(index)
            assert delta == {} and choice["finish_reason"] == "stop"
    assert sorted(roles) == sorted(ends) == [0, 1, 2]
    assert texts == {0: "uok 0", 1: "uok 1", 2: "uok 2"}
    assert len({chunk["id"] for chunk in chunks}) == 1


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
def test_usage_at_the_end_of_a_stream(post: Post, route: str) -> None:
    body = {"prompt": "a"} if route == "completions" else {"messages": HELLO}
    *chunks, last = events(post(route, **body, stream=True, stream_options={"include_usage": True}))
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 5
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}


def test_chat_logprobs_are_finite_and_carry_bytes(serve_fake) -> None:
    _, live = serve_fake(reply=euro, logprob=float("-inf"))
    with live.client() as client:
        answer = client.chat.completions.create(model="fake", messages=HELLO, logprobs=True, top_logprobs=2)
        alone = client.chat.completions.create(model="fake", messages=HELLO, logprobs=True)
        chunks = list(
            client.chat.completions.create(
                model="fake", messages=HELLO, logprobs=True, top_logprobs=2, stream=True
            )
        )
    content = answer.choices[0].logprobs.content
    assert b"".join(bytes(item.bytes) for item in content).decode() == "3 € “x”"
    assert {item.logprob for item in content} == {-9999.0}
    assert content[2].token == "\\xe2" and content[2].bytes == [0xE2]
    assert [(top.token, top.logprob) for top in content[0].top_logprobs] == [("A", -0.5), ("\\xe2", -9999.0)]
    assert [item.top_logprobs for item in alone.choices[0].logprobs.content] == [[]] * len(content)
    streamed = [
        item
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs
        for item in choice.logprobs.content
    ]
    assert streamed == content


def test_completion_logprobs_in_columns(serve_fake) -> None:
    _, live = serve_fake(reply=euro)
    with live.client() as client:
        whole = client.completions.create(model="fake", prompt="a", logprobs=2).choices[0].logprobs
        alone = client.completions.create(model="fake", prompt="a", logprobs=0).choices[0].logprobs
        chunks = list(client.completions.create(model="fake", prompt="a", logprobs=2, stream=True))
    assert whole.tokens[:6] == ["3", " ", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", " "]
    assert whole.text_offset[:7] == [0, 1, 2, 3, 3, 3, 4]
    assert whole.top_logprobs[0] == {"A": -0.5, "bytes:\\xe2": -9999.0, "3": -0.5}
    assert alone.top_logprobs[0] == {"3": -0.5}
    for column in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        streamed = [item for chunk in chunks for item in getattr(chunk.choices[0].logprobs, column)]
        assert streamed == getattr(whole, column)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "3 € “x”"


def test_a_nan_is_our_fault_and_no_value(serve_fake) -> None:
    _, live = serve_fake(logprob=float("nan"))
    with live.http() as client:
        answer = client.post("/v1/completions", json={"prompt": "a", "logprobs": 1})
    assert answer.status_code == 500 and "NaN" not in answer.text


def test_long_prompts_are_refused_like_openai_does(serve_fake) -> None:
    _, live = serve_fake(max_seq_len=20)
    with live.client() as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="fake", prompt="x" * 19)
        assert caught.value.code == "context_length_exceeded" and caught.value.param == "prompt"
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "x" * 99}])
        assert caught.value.code == "context_length_exceeded" and caught.value.param == "messages"
        assert client.completions.create(model="fake", prompt="x" * 18).choices
