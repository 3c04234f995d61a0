"""`treille serve`."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import uvicorn

from treille.cli_errors import CommandError, UsageError
from treille.runtime.engine import Engine
from treille.server.app import create_app

LOG_LEVELS = ("critical", "error", "warning", "info", "debug")
MAX_HEAD_BYTES = 64 * 1024
GRACE_SECONDS = 5


def serve(
    model: str,
    settings: Mapping[str, Any],
    *,
    host: str,
    port: int,
    api_key: str | None,
    model_name: str | None,
    log_level: str,
) -> None:
    """Load the model and serve it until a signal comes. `settings` are the engine's."""
    if log_level not in LOG_LEVELS:
        raise UsageError(f"--log-level must be one of {', '.join(LOG_LEVELS)}, not {log_level!r}")
    if api_key == "":
        raise UsageError("the API key is empty: leave --api-key and TREILLE_API_KEY out to let everybody in")
    if sys.stderr.isatty():
        print(f"Loading {model}", file=sys.stderr, flush=True)
    # The port comes first: there is no use in loading a model that cannot be served.
    with _bind(host, port) as listener, Engine(model, **settings) as engine:
        app = create_app(engine, api_key=api_key, model_name=model_name)
        config = uvicorn.Config(
            app,
            # h11 bounds what a client may send before its headers are complete.
            http="h11",
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ws="none",
            lifespan="off",
            server_header=False,
            log_level=log_level,
            timeout_graceful_shutdown=2 * GRACE_SECONDS,
        )
        announce = partial(_announce, model_name or engine.model_name, listener, open_to_all=api_key is None)
        _Server(config, ready=announce, give_up=engine.close).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Calls `ready` once clients are let in, and `give_up` when, after a signal, requests go on for too
    long: that ends them, each with an answer, where uvicorn's own way is to cut them off."""

    def __init__(
        self, config: uvicorn.Config, *, ready: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._give_up = give_up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(GRACE_SECONDS, loop.run_in_executor, None, self._give_up)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet: clients are refused until there is something to serve."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CommandError(f"cannot listen on {host}: {error.strerror}; check --host") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise CommandError(f"cannot listen on {host}:{port}: {error.strerror}; try another --port") from error
    return listener


def _announce(name: str, listener: socket.socket, *, open_to_all: bool) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"{name} is served on http://{shown}:{port}/v1", flush=True)
    if open_to_all and not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        print(
            "treille: everybody who reaches this port can use the model; set TREILLE_API_KEY to change that",
            file=sys.stderr,
        )
