"""Keys, sizes, overload, and failures: every answer is OpenAI's error body, and nothing leaks."""

from __future__ import annotations

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

HELLO = [{"role": "user", "content": "hello"}]
SECRETS = ("secret", "Traceback", "RuntimeError")


def test_the_key(serve_fake) -> None:
    _, live = serve_fake(api_key="clé")
    with live.http() as client:
        assert client.get("/health").status_code == 200
        for path in ("/v1/models", "/docs", "/openapi.json", "/v1/none"):
            assert client.get(path).status_code == 401
        for value in ("", "Bearer", "Bearer wrong", "Basic clé", "clé", "Bearer clé2"):
            headers = {"authorization": value.encode()}
            answer = client.post("/v1/completions", headers=headers, content=b"not even json")
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == "invalid_api_key" and "clé" not in answer.text
            assert answer.headers["www-authenticate"] == "Bearer"
        right = client.get("/v1/models", headers={"authorization": "Bearer clé".encode()})
        assert right.status_code == 200


def test_an_empty_key_is_no_key(serve_fake) -> None:
    with pytest.raises(ValueError, match="empty"):
        serve_fake(api_key="")


def test_bodies_that_are_too_large(serve_fake) -> None:
    engine, live = serve_fake(max_body_bytes=1000)
    large = json.dumps({"prompt": "x" * 2000}).encode()

    def chunks():
        yield large[:500]
        yield large[500:]

    headers = {"content-type": "application/json"}
    with live.http() as client:
        assert client.post("/v1/completions", content=large, headers=headers).status_code == 413
        unannounced = client.post("/v1/completions", content=chunks(), headers=headers)
        assert unannounced.status_code == 413
        assert unannounced.json()["error"]["message"] == "the body is larger than 1000 bytes"
        assert client.post("/v1/completions", json={"prompt": "x"}).status_code == 200
    assert len(engine.submitted) == 1


def test_headers_that_are_too_large(plain_client: httpx.Client) -> None:
    assert plain_client.get("/health", headers={"x": "y" * 40_000}).status_code == 431
    assert plain_client.get("/health", headers={f"x{i}": "y" for i in range(200)}).status_code == 431


def test_paths_and_methods_that_do_not_exist(plain_client: httpx.Client) -> None:
    for method, path, status in (("GET", "/v1/none", 404), ("GET", "/v1/completions", 405)):
        answer = plain_client.request(method, path)
        assert answer.status_code == status and set(answer.json()) == {"error"}


def test_each_answer_has_an_id(plain_client: httpx.Client) -> None:
    ids = [plain_client.get(path).headers["x-request-id"] for path in ("/health", "/v1/models", "/none")]
    assert len(set(ids)) == 3


def test_health_follows_the_engine(serve_fake) -> None:
    engine, live = serve_fake()
    with live.http() as client:
        assert client.get("/health").status_code == 200
        engine.is_alive = False
        assert client.get("/health").status_code == 503


def test_a_constraint_that_is_wrong_is_a_400_also_when_streaming(plain_client: httpx.Client) -> None:
    for stream in (False, True):
        body = {"prompt": ["a", "b"], "regex": "ab**", "stream": stream}
        answer = plain_client.post("/v1/completions", json=body)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["param"] == "regex" and error["message"] == "multiple repeat at offset 3"


def test_overflow_is_answered_at_once(serve_fake) -> None:
    engine, live = serve_fake(max_running=1, max_queued=2, step_s=0.1)

    def call(number: int) -> tuple[int, float, str | None]:
        start = time.monotonic()
        with httpx.Client(base_url=live.url, timeout=30) as client:
            answer = client.post("/v1/completions", json={"prompt": f"{number}"})
        return answer.status_code, time.monotonic() - start, answer.headers.get("retry-after")

    with ThreadPoolExecutor(5) as pool:
        results = list(pool.map(call, range(5)))
    assert sorted(status for status, _, _ in results) == [200, 200, 200, 503, 503]
    assert all(after is not None for status, _, after in results if status == 503)
    refused = max(seconds for status, seconds, _ in results if status == 503)
    assert refused < min(seconds for status, seconds, _ in results if status == 200)
    assert not engine.live


def test_a_list_of_prompts_that_does_not_fit_leaves_nothing_behind(serve_fake) -> None:
    engine, live = serve_fake(max_running=1, max_queued=2, step_s=0.1)
    with live.client() as client, pytest.raises(openai.InternalServerError) as caught:
        client.completions.create(model="fake", prompt=["a"] * 5)
    assert caught.value.status_code == 503 and caught.value.code == "engine_overloaded"
    assert len(engine.aborted) == 3 and not engine.live


def test_failures_do_not_leak(serve_fake, caplog: pytest.LogCaptureFixture) -> None:
    _, live = serve_fake(fail_after=0)
    with live.http() as client, caplog.at_level(logging.ERROR, "treille.server"):
        for body in ({"prompt": "a"}, {"prompt": "a", "stream": True}, {"prompt": ["a", "b"]}):
            answer = client.post("/v1/completions", json=body)
            assert answer.status_code == 500
            assert not any(word in answer.text for word in SECRETS)
    assert "secret internals" in caplog.text


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
def test_a_failure_within_a_stream_is_an_event(serve_fake, route: str) -> None:
    engine, live = serve_fake(fail_after=2)
    body = {"prompt": ["a", "b"]} if route == "completions" else {"messages": HELLO}
    with live.http() as client:
        answer = client.post(f"/v1/{route}", json={**body, "stream": True})
    assert answer.status_code == 200
    *_, last, end = answer.text.split("\n\n")
    assert end == "" and json.loads(last.removeprefix("data: "))["error"]["code"] == "internal_error"
    assert "[DONE]" not in answer.text and not any(word in answer.text for word in SECRETS)
    assert not engine.live
    with live.client() as client, pytest.raises(openai.APIError):
        list(client.chat.completions.create(model="fake", messages=HELLO, stream=True))


def test_an_engine_that_closes(serve_fake) -> None:
    engine, live = serve_fake(step_s=0.05, reply=lambda request, index: b"x" * 500)
    with live.http() as client, ThreadPoolExecutor(1) as pool:
        body = {"prompt": "a", "max_tokens": 500}
        waiting = pool.submit(client.post, "/v1/completions", json=body)
        while not engine.live:
            time.sleep(0.01)
        engine.close()
        for answer in (waiting.result(), client.post("/v1/completions", json=body)):
            assert answer.status_code == 503 and answer.json()["error"]["code"] == "engine_closed"
            assert "secret" not in answer.text
