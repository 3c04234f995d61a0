"""`serve` and `run` from the command line down to the embedded model, which is loaded once for all."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from treille import cli, cli_run, cli_serve

PROGRAM = """
import treille as tr

@tr.program
def count(s, first: int, second: int = 2):
    s += f"{first}, {second}, 3,"
    s += tr.gen("rest", max_tokens=9)
    s += tr.gen("digits", regex=r" [0-9]{3}")
    left, right = s.fork(2)
    left += " A" + tr.gen("left", max_tokens=4)
    right += " B" + tr.gen("right", max_tokens=4)
"""

FAULT = """
import treille as tr

@tr.program
def fault(s):
    s += "one"
    s += tr.gen("x", regex="ab**")
"""


@pytest.fixture
def shared_engine(engine, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Commands get the session's engine instead of one of their own; returns what they asked for."""
    asked: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def lend(model: str, **settings: Any) -> Iterator[object]:
        asked.append({"model": model, **settings})
        yield engine

    monkeypatch.setattr(cli_run, "Engine", lend)
    monkeypatch.setattr(cli_serve, "Engine", lend)
    return asked


def exit_code(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(words))
    return caught.value.code


def test_run(shared_engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "count.py"
    path.write_text(PROGRAM)
    words = ["run", str(path), "--arg", "first=1", "--temperature", "0", "--device", "cpu"]
    assert exit_code(*words) == 0
    captured = capsys.readouterr()
    assert captured.err == "" and "\x1b" not in captured.out
    text, tables = captured.out.split("┏", 1)
    assert text.startswith("1, 2, 3, 4, 5, 6")
    for name in ("left", "right"):
        assert re.search(rf"{name} \(branch \d\) +│ str", tables)
    assert re.search(r"digits +│ str +│ +\d{3} ", tables)
    assert shared_engine == [{"model": "smollm2-135m", "device": "cpu", "dtype": None}]


def test_a_fault_in_a_program(shared_engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fault.py"
    path.write_text(FAULT)
    assert exit_code("run", str(path)) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("one\n")
    assert captured.err.count("\n") == 1
    assert "multiple repeat" in captured.err and "fault.py" in captured.err


def test_serve(shared_engine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    servers: list[uvicorn.Server] = []
    started = uvicorn.Server.startup

    async def startup(self: uvicorn.Server, sockets: Any = None) -> None:
        await started(self, sockets)
        servers.append(self)

    monkeypatch.setattr(uvicorn.Server, "startup", startup)
    monkeypatch.setenv("TREILLE_API_KEY", "key")
    words = ["serve", "some/model", "--port", "0", "--served-model-name", "mine", "--max-queued", "5"]
    words += ["--kv-memory", "1GiB", "--no-prefix-caching", "--log-level", "critical"]
    codes: list[int | str | None] = []
    thread = threading.Thread(target=lambda: codes.append(exit_code(*words)))
    thread.start()
    deadline = time.monotonic() + 60
    while not servers and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert servers, codes
    port = servers[0].servers[0].sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=url, headers={"authorization": "Bearer key"}) as client:
        assert client.get("/v1/models").json()["data"][0]["id"] == "mine"
        body = {"model": "mine", "prompt": "1, 2, 3,", "max_tokens": 3, "temperature": 0}
        assert client.post("/v1/completions", json=body, timeout=30).json()["choices"][0]["text"] == " 4,"
        assert "server" not in client.get("/health").headers
    assert httpx.get(f"{url}/v1/models").status_code == 401
    servers[0].should_exit = True
    thread.join(20)
    assert codes == [0]
    # Read once, at the end: what is written while `capfd` is read may be lost.
    assert f"mine is served on {url}/v1\n" in capfd.readouterr().out
    (asked,) = shared_engine
    assert asked["model"] == "some/model" and asked["max_queued"] == 5 and asked["kv_memory"] == "1GiB"
    assert asked["enable_prefix_caching"] is False
