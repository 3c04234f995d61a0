"""A client that went away frees what it held, whatever its request was doing at the time."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable

import pytest

LONG = 100_000


def long_reply(request: object, index: int) -> bytes:
    return b"x" * LONG


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def connect(port: int, route: str, body: dict[str, object]) -> socket.socket:
    """Send a request and keep the bare connection."""
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/{route} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(head.encode() + content)
    return connection


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("num_prompts", [1, 3])
@pytest.mark.parametrize("route", ["completions", "chat/completions"])
def test_a_running_request_is_aborted(serve_fake, route: str, stream: bool, num_prompts: int) -> None:
    engine, live = serve_fake(reply=long_reply, max_seq_len=2 * LONG, step_s=0.002)
    prompts = {"prompt": ["hello"] * num_prompts}
    chat = {"messages": [{"role": "user", "content": "hello"}], "n": num_prompts}
    body = prompts if route == "completions" else chat
    connection = connect(live.port, route, {**body, "stream": stream, "max_tokens": LONG})
    if stream:
        assert b"200 OK" in connection.recv(4096)
    wait_until(lambda: len(engine.live) == len(engine.submitted) > 0 and engine.steps > 3)
    connection.close()
    wait_until(lambda: not engine.live)
    assert engine.steps < 500 * num_prompts
    assert len(engine.aborted) == len(set(engine.aborted)) == len(engine.submitted)


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_waits_is_aborted(serve_fake, stream: bool) -> None:
    engine, live = serve_fake(reply=long_reply, max_seq_len=2 * LONG, max_running=1, step_s=0.002)
    body = {"prompt": "hello", "stream": True, "max_tokens": LONG}
    first = connect(live.port, "completions", body)
    wait_until(lambda: engine.steps > 0)
    second = connect(live.port, "completions", {**body, "stream": stream})
    wait_until(lambda: len(engine.live) == 2)
    second.close()
    wait_until(lambda: engine.aborted == ["req-1"])
    first.close()
    wait_until(lambda: not engine.live)


def test_the_next_request_gets_the_freed_place(serve_fake) -> None:
    engine, live = serve_fake(
        reply=lambda request, index: b"x" * request.params.max_tokens,
        max_seq_len=2 * LONG,
        max_running=1,
        step_s=0.002,
    )
    connection = connect(live.port, "completions", {"prompt": "hello", "stream": True, "max_tokens": LONG})
    connection.recv(4096)
    connection.close()
    start = time.monotonic()
    with live.client() as client:
        answer = client.completions.create(model="fake", prompt="hi", max_tokens=3)
        assert answer.choices[0].text == "xxx"
        stream = client.completions.create(model="fake", prompt="hi", max_tokens=LONG, stream=True)
        next(iter(stream))
        stream.close()
    assert time.monotonic() - start < 5
    wait_until(lambda: not engine.live)


def test_a_request_that_ends_by_itself_is_not_aborted(serve_fake) -> None:
    engine, live = serve_fake()
    with live.client() as client:
        client.completions.create(model="fake", prompt=["a", "b"])
        list(client.completions.create(model="fake", prompt=["a", "b"], stream=True))
    assert engine.aborted == []
