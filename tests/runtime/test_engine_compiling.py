"""Constraints that are slow, broken or hostile: their own requests' trouble and nobody else's. B03, B50."""

from __future__ import annotations

import threading
import time

import pytest
from oracles.history_model import GREEDY, HistoryModel, idle, request

from treille.runtime.constraints import compile_constraint
from treille.runtime.errors import (
    CompileCancelled,
    ConstraintError,
    EngineClosed,
    InvalidConstraint,
    InvalidRequest,
    RequestAborted,
    TreilleError,
    UnsupportedConstraint,
)
from treille.runtime.grammar import Matcher
from treille.runtime.params import SamplingParams
from treille.runtime.types import Failed, Finished, Request


def wait_for(condition) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.001)


class Compiler:
    """The real one, but patterns that begin with `slow` take until `go_on` is set, those with `broken` fail
    as nothing should."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.begun: list[str] = []
        self.cancelled: list[str] = []

    def __call__(self, constraint, vocab, *, cancelled):
        self.begun.append(constraint.source)
        if constraint.source.startswith("slow"):
            while not self.go_on.wait(0.001):
                if cancelled():
                    self.cancelled.append(constraint.source)
                    raise CompileCancelled
        if constraint.source.startswith("broken"):
            raise TypeError("the token table is broken")
        return compile_constraint(constraint, vocab)


@pytest.fixture
def compiler():
    compiler = Compiler()
    yield compiler
    compiler.go_on.set()


class TestWaiting:
    def test_fifty_hostile_requests_take_no_step_from_another(self, make_engine, compiler) -> None:
        """B50. The rate is stated in steps: while the fifty wait, every step is the other request's, and it
        ends before any of them has begun."""
        engine, model = make_engine(compile=compiler)
        hostile = [engine.submit(request(regex="slow[ab]*")) for _ in range(50)]
        wait_for(lambda: engine.stats()["compiling"] == 50)
        (done,) = engine.generate(["abc"], SamplingParams(temperature=0, max_tokens=100, ignore_eos=True))
        assert list(done.token_ids) == model.greedy(b"abc", 100, stop_at_eos=False)
        assert model.steps == [[3]] + [[1]] * 99
        stats = engine.stats()
        assert (stats["compiling"], stats["running"], stats["waiting"]) == (50, 0, 0)
        compiler.go_on.set()
        ends = [list(stream)[-1] for stream in hostile]
        assert all(isinstance(end, Finished) for end in ends)
        assert compiler.begun == ["slow[ab]*"]
        assert engine.stats()["compiling"] == 0

    @pytest.mark.parametrize("pattern", ["((a|b){1,300}c){1,300}", "(((x*)*y?){1,90}){1,90}"])
    def test_fifty_times_a_real_one(self, make_engine, pattern) -> None:
        """B50: compiled or refused, once; another request's answer is the one it always has."""
        begun = []

        def counting(constraint, vocab, *, cancelled):
            begun.append(constraint.source)
            return compile_constraint(constraint, vocab)

        engine, model = make_engine(compile=counting)
        check = neighbours(engine, model)
        hostile = [engine.submit(request(regex=pattern, max_tokens=2)) for _ in range(50)]
        ends = [list(stream)[-1] for stream in hostile]
        refused = [end.error for end in ends if isinstance(end, Failed)]
        assert all(isinstance(error, UnsupportedConstraint) for error in refused)
        assert len(refused) in (0, 50)
        if not refused:
            assert {end.completions[0].finish_reason for end in ends} <= {"length", "stop"}
        assert len(begun) == 1
        check()

    def test_a_known_constraint_does_not_wait(self, make_engine, compiler) -> None:
        engine, _ = make_engine(compile=compiler)
        kept = engine.submit(request(regex="[ab]+", max_tokens=400))
        next(kept)
        blocked = [engine.submit(request(regex=f"slow{n}")) for n in range(8)]  # more than there are workers
        (done,) = engine.generate(["x"], SamplingParams(regex="[ab]+", max_tokens=3))
        assert len(done.text) == 3
        assert compiler.begun.count("[ab]+") == 1
        for stream in blocked:
            stream.abort()

    def test_who_leaves_while_others_wait(self, make_engine, compiler) -> None:
        engine, _ = make_engine(compile=compiler)
        streams = [engine.submit(request(regex="slow")) for _ in range(3)]
        wait_for(lambda: compiler.begun == ["slow"])
        streams[0].abort()
        (end,) = streams[0]
        assert isinstance(end, Failed) and isinstance(end.error, RequestAborted)
        assert engine.stats()["compiling"] == 2 and compiler.cancelled == []
        for stream in streams[1:]:
            stream.abort()
        wait_for(lambda: compiler.cancelled == ["slow"])
        assert idle(engine) or engine.stats()["unfinished_requests"] <= 2
        for stream in streams[1:]:
            assert isinstance(list(stream)[-1], Failed)
        assert idle(engine)

    def test_close(self, make_engine, compiler) -> None:
        engine, _ = make_engine(compile=compiler)
        streams = [engine.submit(request(regex=f"slow{n}")) for n in range(6)]
        wait_for(lambda: compiler.begun)
        engine.close()
        for stream in streams:
            (end,) = stream
            assert isinstance(end, Failed) and isinstance(end.error, EngineClosed)
        assert sorted(compiler.cancelled) == sorted(compiler.begun)
        left = [thread.name for thread in threading.enumerate() if thread.name == "treille-compile"]
        assert not left

    def test_the_queue_is_bounded(self, make_engine, compiler) -> None:
        engine, _ = make_engine(compile=compiler, max_num_seqs=1, max_queued=3)
        streams = [engine.submit(request(regex=f"slow{n}")) for n in range(4)]
        with pytest.raises(TreilleError, match="try again later"):
            engine.submit(request())
        for stream in streams:
            stream.abort()


def neighbours(engine, model: HistoryModel):
    """Starts requests; returns what checks that they end as ever."""
    streams = [engine.submit(Request(prompt_ids=(1, n), params=GREEDY)) for n in range(3)]

    def check() -> None:
        for n, stream in enumerate(streams):
            *_, end = stream
            assert list(end.completions[0].token_ids) == model.greedy((1, n), 12, stop_at_eos=False)
        assert engine.is_alive and idle(engine)

    return check


class TestB03:
    @pytest.mark.parametrize(
        ("fields", "offset"),
        [
            ({"regex": "ab**"}, 3),
            ({"regex": "[z-a]"}, 1),
            ({"regex": "a{3,1}"}, None),
            ({"regex": "(ab"}, 0),
            ({"grammar": ""}, None),
            ({"grammar": "start: ("}, None),
            ({"stop_regex": "ab**"}, 3),
        ],
    )
    def test_malformed(self, make_engine, fields, offset) -> None:
        engine, model = make_engine()
        check = neighbours(engine, model)
        (end,) = engine.submit(request(**fields))
        assert isinstance(end, Failed) and isinstance(end.error, ConstraintError)
        if "grammar" not in fields:
            assert end.error.field == next(iter(fields))
        if offset is not None:
            assert isinstance(end.error, InvalidConstraint) and end.error.offset == offset
        check()

    def test_no_choices(self) -> None:
        with pytest.raises(InvalidRequest) as caught:
            SamplingParams(choices=())
        assert caught.value.field == "choices"

    @pytest.mark.parametrize("other", ["regex", "choices"])
    def test_one_constraint_at_most(self, other) -> None:
        with pytest.raises(InvalidRequest, match="exclude each other"):
            SamplingParams(**{other: "a" if other == "regex" else ("a",)}, grammar="start: /a/")

    def test_one_that_fails_later_in_the_compiler(self, make_engine, compiler) -> None:
        engine, model = make_engine(compile=compiler)
        check = neighbours(engine, model)
        for stream in [engine.submit(request(regex="broken")) for _ in range(2)]:
            (end,) = stream
            assert isinstance(end, Failed) and isinstance(end.error, TreilleError)
            assert isinstance(end.error.__cause__, TypeError)
        check()

    @pytest.mark.parametrize("jump_forward", [True, False])
    @pytest.mark.parametrize("n", [1, 3])
    @pytest.mark.parametrize("method", ["fill_mask", "accept", "must_stop", "forced_bytes", "copy"])
    def test_one_that_fails_in_the_matcher(self, make_engine, monkeypatch, method, n, jump_forward) -> None:
        """From its second use on, in the middle of the text."""
        engine, model = make_engine(jump_forward=jump_forward)
        check = neighbours(engine, model)
        uses = []
        original = getattr(Matcher, method)

        def failing(self, *args, **more):
            uses.append(1)
            if len(uses) > 1:
                raise RuntimeError("the matcher is broken")
            return original(self, *args, **more)

        monkeypatch.setattr(Matcher, method, failing)
        *_, end = engine.submit(request(regex="[ab]xy[ab]*", n=n, max_tokens=50))
        if len(uses) > 1:
            assert isinstance(end, Failed) and str(end.error) == "the matcher is broken"
        else:
            assert isinstance(end, Finished)
        check()
