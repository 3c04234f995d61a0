"""`s.cache()`: what a program keeps in the cache while it runs, and lets go of however it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from oracles.history_model import GREEDY, HistoryModel, byte_tokenizer, random_prompts

import treille as tr
from treille.dsl.backends.local import LocalBackend
from treille.dsl.backends.scripted import ScriptedBackend
from treille.dsl.events import TextEvent
from treille.dsl.protocol import Prompt, Text
from treille.runtime.models.load import LoadedModel

START = "Thirty letters come first here"
OTHERS = random_prompts(12, 30, 31)
MakeEngine = Callable[..., tr.Engine]


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    """Engines of 40 pages of 4 tokens, for sequences of at most 16 pages."""
    engines: list[tr.Engine] = []

    def make(model: HistoryModel | None = None, **settings: object) -> tr.Engine:
        model = model or HistoryModel()
        loaded = LoadedModel("history", model.config, model, byte_tokenizer(), None)
        fixed = {"kv_memory": 40 * 4 * 64, "max_seq_len": 64, "page_size": 4}
        engines.append(tr.Engine(loaded, **(fixed | settings)))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def press(engine: tr.Engine) -> None:
    """Fill the cache with other things."""
    engine.generate(OTHERS, GREEDY)
    engine.flush_cache()


def cached(engine: tr.Engine, text: str) -> int:
    (done,) = engine.generate([text], tr.SamplingParams(max_tokens=1))
    return done.usage.cached_tokens


def test_the_text_stays_while_the_run_lasts(make_engine: MakeEngine) -> None:
    engine = make_engine()
    found: list[int] = []

    @tr.program
    def kept(s: tr.State, *, pins: bool) -> None:
        s += START
        if pins:
            s.cache()
        assert s.text() == START
        press(engine)
        found.append(cached(engine, START + "!"))
        s += tr.gen("x", max_tokens=3, temperature=0)

    with_pin, without = kept.run(pins=True, backend=engine), kept.run(pins=False, backend=engine)
    assert found[0] == len(START) and found[1] == 0
    assert with_pin.text() == without.text()
    assert with_pin.usage.num_requests == 2  # what it computed counts, as a fork's does
    assert engine.stats()["pinned_pages"] == 0
    press(engine)
    assert cached(engine, START + "!") == 0


class Oops(Exception):
    pass


def test_released_after_an_error_in_the_program_or_the_model(make_engine: MakeEngine) -> None:
    model = HistoryModel()
    engine = make_engine(model)

    @tr.program
    def fails(s: tr.State, *, fault: Exception | None) -> None:
        s += START
        s.cache()
        s.text()
        assert engine.stats()["pinned_pages"] == 8
        if fault is None:
            raise Oops
        model.fail_with = fault
        s += tr.gen("x", max_tokens=3)

    with pytest.raises(Oops):
        fails.run(fault=None, backend=engine)
    assert engine.flush_cache() and engine.stats()["pinned_pages"] == 0
    with pytest.raises(tr.GenerationFailed, match="no memory"):
        fails.run(fault=RuntimeError("no memory"), backend=engine)
    engine.flush_cache()
    assert engine.stats()["pinned_pages"] == 0


def test_released_when_the_reader_of_a_stream_leaves(make_engine: MakeEngine) -> None:
    engine = make_engine()

    @tr.program
    def endless(s: tr.State) -> None:
        s += START
        s.cache()
        while True:
            s += tr.gen(max_tokens=1)
            s.text()

    with endless.stream(backend=engine) as events:
        for event in events:
            if isinstance(event, TextEvent) and event.kind == "sampled":
                break
        assert engine.stats()["pinned_pages"] == 8
    engine.flush_cache()
    assert engine.stats()["pinned_pages"] == 0


def test_branches_and_their_parents(make_engine: MakeEngine) -> None:
    engine = make_engine()

    @tr.program
    def forked(s: tr.State) -> list[int]:
        s += START[:8]
        s.cache()
        with s.fork(3) as branches:
            for number, branch in enumerate(branches):
                branch += f"{number}" * 8
                branch.cache()
        press(engine)
        return [cached(engine, START[:8] + f"{number}" * 8 + "!") for number in range(3)]

    state = forked.run(backend=engine)
    assert state.returned == [16, 16, 16]
    engine.flush_cache()
    assert engine.stats()["pinned_pages"] == 0 and engine.stats()["cached_pages"] == 0


def test_batches_share_a_pin_and_each_lets_go_of_it(make_engine: MakeEngine) -> None:
    engine = make_engine()
    met = threading.Barrier(4, timeout=20)

    @tr.program
    def one(s: tr.State, *, number: int) -> float:
        s += START
        s.cache()
        s.text()
        met.wait()
        pages = engine.stats()["pinned_pages"]
        met.wait()
        s += f"{number}" + tr.gen("x", max_tokens=2, temperature=0)
        return pages

    states = one.batch([{"number": number} for number in range(4)], backend=engine)
    assert [state.returned for state in states] == [8.0] * 4
    engine.flush_cache()
    assert engine.stats()["pinned_pages"] == 0


@pytest.mark.parametrize("settings", [{"enable_prefix_caching": False}, {"kv_memory": 17 * 4 * 64}])
def test_no_room_or_no_cache_changes_nothing(make_engine: MakeEngine, settings: dict[str, object]) -> None:
    engine, roomy = make_engine(**settings), make_engine()

    @tr.program
    def ask(s: tr.State) -> float:
        s += START
        s.cache()
        s.text()
        s += tr.gen("x", max_tokens=3, temperature=0)
        return engine.stats()["pinned_pages"]

    state = ask.run(backend=engine)
    assert state.returned == 0 and state.text() == ask.run(backend=roomy).text()


def test_an_unpinnable_text_fails_as_any_request_does(make_engine: MakeEngine) -> None:
    @tr.program
    def long(s: tr.State) -> None:
        s += "x" * 100
        s.cache()

    with pytest.raises(tr.GenerationFailed, match=r"cache: .*the prompt has 100 tokens") as error:
        long.run(backend=make_engine())
    assert error.value.where is not None and "test_dsl_cache.py" in str(error.value.where)


def test_what_a_backend_is_asked() -> None:
    backend = ScriptedBackend(["one", "two"])

    @tr.program
    def steps(s: tr.State) -> int:
        s.cache()  # nothing is there yet
        with s.user():
            s += "question"
            s.cache()
        s += tr.assistant(tr.gen("x"))
        s.text()
        return len(backend.pinned)

    assert steps.run(backend=backend).returned == 1
    assert [call.kind for call in backend.calls] == ["pin", "generate"]
    assert backend.calls[0].prompt.text == "question" and not backend.pinned


def test_a_backend_without_pins_takes_no_notice() -> None:
    scripted = ScriptedBackend(["one"])

    class Plain:
        generate, score, prime = scripted.generate, scripted.score, scripted.prime

    @tr.program
    def ask(s: tr.State) -> None:
        s += "question"
        s.cache()
        s += tr.gen("x")

    assert ask.run(backend=Plain())["x"] == "one"
    assert [call.kind for call in scripted.calls] == ["generate"]


def test_cancelled_while_the_engine_pins(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pin that comes too late is let go of at once."""
    engine = make_engine()
    begun, may_go = threading.Event(), threading.Event()
    pin = tr.Engine.cache

    def slow(self, prompt, **more):
        begun.set()
        assert may_go.wait(20)
        return pin(self, prompt, **more)

    monkeypatch.setattr(tr.Engine, "cache", slow)

    async def leave() -> None:
        task = asyncio.create_task(LocalBackend(engine).pin(Prompt((Text(START),))))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_go.set()

    asyncio.run(leave())
    engine.flush_cache()
    assert engine.stats()["pinned_pages"] == 0
