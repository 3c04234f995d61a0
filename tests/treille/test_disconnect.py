"""A client that went away frees what it held, whatever its request was doing at the time (B38)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable

import pytest
from oracles.history_model import HistoryModel, idle, request

from treille.runtime.constraints import compile_constraint
from treille.runtime.errors import CompileCancelled

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


class Slow(HistoryModel):
    """Takes a while for each step."""

    def forward(self, inputs, kv):
        time.sleep(0.01)
        return super().forward(inputs, kv)


@pytest.mark.parametrize("stream", [True, False])
class TestB38:
    """The real engine, with room for one request, and a client that leaves."""

    BODY = {"prompt": [7] * 5, "max_tokens": LONG, "ignore_eos": True}  # noqa: RUF012

    def freed(self, engine, live) -> None:
        """The next request is served at once, and all pages come back."""
        start = time.monotonic()
        with live.client() as client:
            assert client.completions.create(model="history", prompt="next", max_tokens=3).usage
        assert time.monotonic() - start < 5
        wait_until(lambda: not engine.stats()["unfinished_requests"])
        engine.flush_cache()
        stats = engine.stats()
        assert stats["running"] == stats["waiting"] == 0
        assert stats["free_pages"] == stats["pages"]

    def leave(self, connection: socket.socket, engine, left: int = 0) -> int:
        """Close the connection; how many steps the engine took until the request was over."""
        steps = engine.stats()["steps"]
        connection.close()
        wait_until(lambda: engine.stats()["unfinished_requests"] == left)
        return int(engine.stats()["steps"] - steps)

    def test_while_it_decodes(self, serve_history, stream: bool) -> None:
        engine, live = serve_history(Slow(), max_num_seqs=1)
        connection = connect(live.port, "completions", {**self.BODY, "stream": stream})
        if stream:
            assert b"200 OK" in connection.recv(4096)
        wait_until(lambda: engine.stats()["sampled_tokens"] > 3)
        assert self.leave(connection, engine) < 100
        assert engine.stats()["sampled_tokens"] < 300
        self.freed(engine, live)

    def test_while_it_waits_in_the_queue(self, serve_history, stream: bool) -> None:
        engine, live = serve_history(model := Slow(), max_num_seqs=1)
        first = connect(live.port, "completions", {**self.BODY, "stream": True})
        wait_until(lambda: engine.stats()["running"] == 1)
        second = connect(live.port, "completions", {**self.BODY, "prompt": [8] * 333, "stream": stream})
        wait_until(lambda: engine.stats()["waiting"] == 1)
        assert self.leave(second, engine, left=1) < 100
        assert (engine.stats()["running"], engine.stats()["waiting"]) == (1, 0)
        self.leave(first, engine)
        assert [333] not in model.steps
        self.freed(engine, live)

    def test_in_the_middle_of_its_prompt(self, serve_history, stream: bool) -> None:
        engine, live = serve_history(Slow(), max_num_seqs=1, max_batched_tokens=4)
        prompt = [index % 250 for index in range(1000)]
        connection = connect(live.port, "completions", {**self.BODY, "prompt": prompt, "stream": stream})
        wait_until(lambda: engine.stats()["computed_tokens"] > 8)
        assert self.leave(connection, engine) < 100
        stats = engine.stats()
        assert stats["computed_tokens"] < 1000 and stats["sampled_tokens"] == 0
        self.freed(engine, live)

    def test_while_its_pattern_is_compiled(self, serve_history, stream: bool) -> None:
        """Its client leaves: the compile is told to stop, and later ones are not held up."""
        begun: list[str] = []
        ended: list[str] = []

        def compile_slowly(constraint, vocab, *, cancelled):
            begun.append(constraint.source)
            while constraint.source != "7" and not cancelled():
                time.sleep(0.001)
            ended.append(constraint.source)
            if cancelled():
                raise CompileCancelled
            return compile_constraint(constraint, vocab)

        engine, live = serve_history(Slow(), max_num_seqs=1, max_queued=2, compile=compile_slowly)
        for number, pattern in enumerate(("one+", "two+")):
            body = {**self.BODY, "regex": pattern, "stream": stream}
            connection = connect(live.port, "completions", body)
            wait_until(lambda: begun[number:] == [pattern])  # noqa: B023
            assert engine.stats()["compiling"] == 1
            assert self.leave(connection, engine) == 0
            assert engine.stats()["compiling"] == 0
            wait_until(lambda: ended == begun)
        self.freed(engine, live)
        with live.client() as client:
            extra = {"regex": "7"}
            answer = client.completions.create(model="history", prompt="x", extra_body=extra)
        assert answer.choices[0].text == "7"
        assert begun == ["one+", "two+", "7"]


def test_aborting_again_is_harmless(serve_history) -> None:
    """B38: in any state."""
    engine, _ = serve_history(Slow(), max_num_seqs=1)
    streams = [engine.submit(request(prompt, max_tokens=500, ignore_eos=True)) for prompt in ("a", "b")]
    next(streams[0])
    for _ in range(3):
        for stream in streams:
            stream.abort()
            engine.abort(stream.request_id)
    ends = [list(stream)[-1] for stream in streams]
    assert [end.completions[0].finish_reason for end in ends] == ["abort", "abort"]
    for stream in streams:
        stream.abort()
    engine.abort("never seen")
    assert idle(engine)
