"""The README's Python runs as it stands, and what it says a line gives is what it gives."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

import treille as tr
from treille.server.app import create_app

ROOT = Path(__file__).resolve().parents[1]
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
CLAIM = re.compile(r"^(?P<expression>\S.*?)  # -> (?P<value>.+)$", re.MULTILINE)


def run(block: str, names: dict[str, Any]) -> int:
    """Run a block and check its claims (`expression  # -> repr of its value`); returns how many it made."""
    exec(compile(block, "README.md", "exec", dont_inherit=True), names)
    claims = list(CLAIM.finditer(block))
    for claim in claims:
        value = eval(claim["expression"], names)  # noqa: S307 - our own README
        assert repr(value) == claim["value"], claim[0]
    return len(claims)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """What `treille serve smollm2-135m` serves, on a free port: its address."""
    with tr.Engine("smollm2-135m") as engine, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        running = uvicorn.Server(uvicorn.Config(create_app(engine), log_level="error", lifespan="off"))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        while not running.started and thread.is_alive():
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        running.should_exit = True
        thread.join()


def test_the_tour_runs() -> None:
    """The blocks about the language, in their order, as one session."""
    names: dict[str, Any] = {"__name__": "readme"}
    made = [run(block, names) for block in BLOCKS if "openai" not in block]
    assert len(made) == 4 and all(made)


def test_the_client_example_runs(server: str) -> None:
    (block,) = [block for block in BLOCKS if "openai" in block]
    assert "http://127.0.0.1:8000" in block
    names: dict[str, Any] = {"__name__": "readme"}
    assert run(block.replace("http://127.0.0.1:8000", server), names) == 1
    names["client"].close()
