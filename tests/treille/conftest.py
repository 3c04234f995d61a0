"""A fake engine with a real loop thread, and real HTTP servers around it."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx
import openai
import pytest
import torch
import uvicorn
from fastapi import FastAPI
from oracles.history_model import HistoryModel, byte_tokenizer

from treille.runtime.engine import Engine
from treille.runtime.errors import (
    EngineClosed,
    EngineOverloaded,
    InvalidConstraint,
    InvalidRequest,
    UnsupportedConstraint,
)
from treille.runtime.models.load import LoadedModel, load_model
from treille.runtime.stream import EventStream
from treille.runtime.tokenizer import Tokenizer
from treille.runtime.types import (
    Completion,
    Failed,
    Finished,
    FinishReason,
    Request,
    TokenEvent,
    TokenLogprob,
    Usage,
)
from treille.server.app import create_app

BOS, EOS, USER = 256, 257, 258
JSON = {"content-type": "application/json"}
# Clients of plain HTTP: each would read all the system's certificates anew.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class FakeTokenizer:
    """One token a byte, and three special ones."""

    token_bytes: Sequence[bytes | None] = [bytes([value]) for value in range(256)] + [None] * 3

    def spelling(self, token_id: int) -> str:
        return {BOS: "<bos>", EOS: "<eos>", USER: "<user>"}.get(token_id, "")

    def encode_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool, continuation: str = ""
    ) -> list[int]:
        if any("no template" in message["content"] for message in messages):
            raise InvalidRequest("this model has no chat template: set one", field="messages")
        text = "".join(f"{message['role']}:{message['content']}\n" for message in messages)
        return [BOS, USER, *text.encode()]


@dataclass
class FakeRequest:
    """One running or waiting request of the fake."""

    request: Request
    stream: EventStream
    texts: list[bytes]
    sent: int = 0
    slot: bool = False


Reply = Callable[[Request, int], bytes]


@dataclass
class FakeEngine:
    """Emits one byte of each sample's reply in a step. `reply` chooses the texts, `step_s` the speed."""

    reply: Reply = lambda request, index: (
        bytes(i for i in request.prompt_ids if i < 256)[:1] + b"ok %d" % index
    )
    max_running: int = 8
    max_queued: int = 100
    step_s: float = 0.0
    max_seq_len: int = 1000
    model_name: str = "fake"
    is_alive: bool = True
    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)
    aborted: list[str] = field(default_factory=list)
    steps: int = 0
    fail_after: int | None = None
    logprob: float = -0.5
    top: tuple[tuple[int, float], ...] = ((65, -0.5), (0xE2, float("-inf")))

    def __post_init__(self) -> None:
        self.live: dict[str, FakeRequest] = {}
        self.submitted: list[Request] = []
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def encode(self, text: str) -> tuple[int, ...]:
        return (BOS, *text.encode())

    def submit(self, request: Request) -> EventStream:
        with self._lock:
            if self._closing.is_set():
                raise EngineClosed("closed: secret path")
            if any(not 0 <= token_id < 259 for token_id in request.prompt_ids):
                raise InvalidRequest("token ids must be from 0 to 258", field="prompt")
            if len(self.live) >= self.max_running + self.max_queued:
                raise EngineOverloaded("try again later")
            request_id = f"req-{len(self.submitted)}"
            self.submitted.append(request)
            stream = EventStream(request_id, self.abort)
            if request.params.regex == "ab**":
                error = InvalidConstraint("multiple repeat", field="regex", offset=3)
                stream.put(Failed(request_id=request_id, error=error))
                return stream
            if request.params.schema == "false":
                refusal = UnsupportedConstraint("not", "#/not", "a reason", field="schema")
                stream.put(Failed(request_id=request_id, error=refusal))
                return stream
            texts = [self.reply(request, index) for index in range(request.params.n)]
            self.live[request_id] = FakeRequest(request, stream, texts)
            return stream

    def abort(self, request_id: str) -> None:
        with self._lock:
            entry = self.live.pop(request_id, None)
            if entry is not None:
                self.aborted.append(request_id)
                self._finish(entry, "abort")

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._closing.wait(self.step_s or 0.001):
            with self._lock:
                for request_id, entry in list(self.live.items())[: self.max_running]:
                    self.steps += 1
                    self._step(request_id, entry)
        with self._lock:
            for request_id, entry in self.live.items():
                entry.stream.put(Failed(request_id=request_id, error=EngineClosed("closed: secret path")))
            self.live.clear()

    def _step(self, request_id: str, entry: FakeRequest) -> None:
        params = entry.request.params
        if self.fail_after is not None and entry.sent >= self.fail_after:
            del self.live[request_id]
            entry.stream.put(Failed(request_id=request_id, error=RuntimeError("secret internals")))
            return
        entry.sent += 1
        for index, text in enumerate(entry.texts):
            if entry.sent <= min(len(text), params.max_tokens):
                last = entry.sent >= min(len(text), params.max_tokens)
                reason = self._reason(entry, text)
                item = text[entry.sent - 1]
                entry.stream.put(
                    TokenEvent(
                        request_id=request_id,
                        index=index,
                        text=_new_text(text[: entry.sent]),
                        token_ids=(item,),
                        logprobs=None if params.logprobs is None else (self._logprob(item),),
                        finish_reason=reason if last else None,
                    )
                )
        if entry.sent >= min(max(map(len, entry.texts)), params.max_tokens):
            del self.live[request_id]
            self._finish(entry, None)

    def _reason(self, entry: FakeRequest, text: bytes) -> FinishReason:
        return "length" if len(text) > entry.request.params.max_tokens else "stop"

    def _logprob(self, token_id: int) -> TokenLogprob:
        return TokenLogprob(token_id, self.logprob, self.top)

    def _finish(self, entry: FakeRequest, reason: FinishReason | None) -> None:
        params = entry.request.params
        completions = []
        total = 0
        for index, text in enumerate(entry.texts if params.max_tokens else ()):
            ids = tuple(text[: min(entry.sent, params.max_tokens)])
            total += len(ids)
            completions.append(
                Completion(
                    index=index,
                    text=bytes(ids).decode("utf-8", "ignore"),
                    token_ids=ids,
                    finish_reason=reason or self._reason(entry, text),
                    usage=Usage(),
                    logprobs=None if params.logprobs is None else tuple(map(self._logprob, ids)),
                )
            )
        usage = Usage(prompt_tokens=len(entry.request.prompt_ids), cached_tokens=1, completion_tokens=total)
        finished = Finished(request_id=entry.stream.request_id, completions=tuple(completions), usage=usage)
        entry.stream.put(finished)


def _new_text(raw: bytes) -> str:
    """What the last byte added to the whole characters."""
    return raw.decode("utf-8", "ignore")[len(raw[:-1].decode("utf-8", "ignore")) :]


@dataclass(frozen=True)
class Live:
    """A server on this machine; the clients make no second try."""

    url: str
    port: int

    @contextmanager
    def client(self, api_key: str = "none") -> Iterator[openai.OpenAI]:
        transport = openai.DefaultHttpxClient(verify=NO_CERTIFICATES)
        fixed = {"max_retries": 0, "timeout": 30, "http_client": transport}
        with openai.OpenAI(base_url=f"{self.url}/v1", api_key=api_key, **fixed) as client:
            yield client

    @contextmanager
    def http(self) -> Iterator[httpx.Client]:
        with httpx.Client(base_url=self.url, timeout=30, verify=NO_CERTIFICATES) as client:
            yield client


@contextmanager
def serving(app: FastAPI) -> Iterator[Live]:
    """`app` behind uvicorn, in a thread of its own, on a free port."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Live(f"http://127.0.0.1:{port}", port)
    finally:
        server.should_exit = True
        thread.join(10)


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not happen in time")
        time.sleep(0.005)


Serve = Callable[..., tuple[FakeEngine, Live]]


@pytest.fixture
def serve_fake() -> Iterator[Serve]:
    """Start a server over a fake engine: `serve_fake(api_key=..., reply=..., ...)`."""
    closers: list[Callable[[], object]] = []

    def start(
        *, api_key: str | None = None, max_body_bytes: int = 1 << 20, **settings: object
    ) -> tuple[FakeEngine, Live]:
        engine = FakeEngine(**settings)  # type: ignore[arg-type]
        context = serving(create_app(engine, api_key=api_key, max_body_bytes=max_body_bytes))
        live = context.__enter__()
        closers.extend((lambda: context.__exit__(None, None, None), engine.close))
        return engine, live

    yield start
    for close in closers:
        close()


@pytest.fixture(scope="session")
def plain() -> Iterator[Live]:
    """One server over a fake engine with default settings, for tests that change nothing about it."""
    engine = FakeEngine()
    with serving(create_app(engine)) as live:
        yield live
    engine.close()


@pytest.fixture
def plain_client(plain: Live) -> Iterator[httpx.Client]:
    with plain.http() as client:
        yield client


@pytest.fixture
def post(plain_client: httpx.Client) -> Callable[..., httpx.Response]:
    """`post("completions", prompt="hi")`: the answer as it came."""

    def send(route: str, **body: object) -> httpx.Response:
        return plain_client.post(f"/v1/{route}", content=json.dumps(body), headers=JSON)

    return send


@pytest.fixture(scope="session")
def loaded() -> LoadedModel:
    """The embedded default, loaded once for all engines of these tests."""
    return load_model("smollm2-135m", device=torch.device("cpu"), max_seq_len=1024)


@pytest.fixture(scope="session")
def engine(loaded: LoadedModel) -> Iterator[Engine]:
    with Engine(loaded, max_seq_len=1024, max_num_seqs=8, kv_memory="512MiB") as engine:
        yield engine


@pytest.fixture(scope="session")
def live(engine: Engine) -> Iterator[Live]:
    """A server over the real engine."""
    with serving(create_app(engine)) as live:
        yield live


@pytest.fixture
def serve_one(loaded: LoadedModel) -> Iterator[Callable[..., tuple[Engine, Live]]]:
    """A server over a second engine, of other settings or another tokenizer."""
    with ExitStack() as stack:

        def start(model: LoadedModel = loaded, **settings: int) -> tuple[Engine, Live]:
            engine = stack.enter_context(Engine(model, max_seq_len=1024, kv_memory="128MiB", **settings))
            return engine, stack.enter_context(serving(create_app(engine)))

        yield start


@pytest.fixture
def serve_history() -> Iterator[Callable[..., tuple[Engine, Live]]]:
    """A server over a real engine on a history model: `serve_history(model, tokenizer, **settings)`."""
    with ExitStack() as stack:

        def start(
            model: HistoryModel | None = None, tokenizer: Tokenizer | None = None, **settings: int
        ) -> tuple[Engine, Live]:
            model = model or HistoryModel()
            loaded = LoadedModel("history", model.config, model, tokenizer or byte_tokenizer(), None)
            fixed = {"max_seq_len": 1024, "page_size": 4, "kv_memory": 2**20}
            engine = stack.enter_context(Engine(loaded, **(fixed | settings)))
            return engine, stack.enter_context(serving(create_app(engine)))

        yield start
