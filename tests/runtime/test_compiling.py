"""The pool of compilers by itself: one compile for all, in order, cancelled when nobody waits. B50."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from oracles.history_model import byte_tokenizer

from treille.runtime import patience
from treille.runtime.compiling import (
    MAX_REFUSED,
    CompilePool,
    ConstraintCompiler,
    StopPattern,
    Tokens,
    compile_keys,
)
from treille.runtime.constraints import compile_constraint
from treille.runtime.errors import CompileCancelled, InvalidConstraint
from treille.runtime.params import Constraint, SamplingParams


class SlowCompile:
    """Compiles by hand: each key ends when `finish(key)` is called, with an error if one is given."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self._ends: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    def __call__(self, key: str, cancelled) -> str:
        self.begun.append(key)
        end = self._end(key)
        while not end.done():
            if cancelled():
                self.cancelled.append(key)
                raise CompileCancelled
            time.sleep(0.001)
        end.result()
        return key.upper()

    def finish(self, key: str, error: BaseException | None = None) -> None:
        end = self._end(key)
        end.set_result(None) if error is None else end.set_exception(error)

    def _end(self, key: str) -> Future[None]:
        with self._lock:
            return self._ends.setdefault(key, Future())


def wait_for(condition) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.001)


@pytest.fixture
def slow() -> SlowCompile:
    return SlowCompile()


@pytest.fixture
def pool(slow: SlowCompile) -> Iterator[CompilePool[str, str]]:
    pool: CompilePool[str, str] = CompilePool(slow, num_workers=1)
    yield pool
    pool.close()


def ask(pool: CompilePool[str, str], name: str, *keys: str) -> Future[object]:
    """Submit; the future has what `done` was called with, and fails on a second call."""
    answer: Future[object] = Future()
    pool.submit(name, keys, answer.set_result)
    return answer


class TestSharing:
    def test_one_compile_for_all_who_wait(self, pool, slow) -> None:
        answers = [ask(pool, f"r{n}", "a") for n in range(50)]
        assert pool.num_waiting == 50
        slow.finish("a")
        assert [answer.result(10) for answer in answers] == [{"a": "A"}] * 50
        assert slow.begun == ["a"] and pool.num_waiting == pool.num_queued == 0

    def test_what_is_there_never_enters_the_queue(self, slow) -> None:
        pool: CompilePool[str, str] = CompilePool(slow, find={"a": "kept"}.get, num_workers=1)
        assert ask(pool, "1", "a").result(0) == {"a": "kept"}
        assert not slow.begun
        mixed = ask(pool, "2", "a", "b")
        slow.finish("b")
        assert mixed.result(10) == {"a": "kept", "b": "B"} and slow.begun == ["b"]
        pool.close()

    def test_a_request_may_want_several(self, pool, slow) -> None:
        both, one = ask(pool, "both", "a", "b"), ask(pool, "one", "b")
        slow.finish("a")
        wait_for(lambda: slow.begun == ["a", "b"])
        assert not both.done()
        slow.finish("b")
        assert both.result(10) == {"a": "A", "b": "B"} and one.result(10) == {"b": "B"}


class TestOrder:
    def test_first_come_first_served(self, pool, slow) -> None:
        keys = [f"k{n}" for n in range(8)]
        answers = [ask(pool, key, key) for key in keys]
        ask(pool, "again", "k5")  # asking again is no way to the front
        for key, answer in zip(keys, answers, strict=True):
            slow.finish(key)
            answer.result(10)
        assert slow.begun == keys

    def test_workers_run_side_by_side(self, slow) -> None:
        pool: CompilePool[str, str] = CompilePool(slow, num_workers=3)
        answers = {key: ask(pool, key, key) for key in "abcd"}
        wait_for(lambda: sorted(slow.begun) == ["a", "b", "c"])
        assert pool.num_queued == 1
        slow.finish("b")
        answers["b"].result(10)
        wait_for(lambda: "d" in slow.begun)
        pool.close()
        assert sorted(slow.cancelled) == ["a", "c", "d"]


class TestCancel:
    def test_a_queued_one_is_dropped_at_once(self, pool, slow) -> None:
        first, gone, last = ask(pool, "1", "a"), ask(pool, "2", "b"), ask(pool, "3", "c")
        wait_for(lambda: slow.begun == ["a"])
        pool.cancel("2")
        assert pool.num_queued == 1 and pool.num_waiting == 2
        slow.finish("a")
        slow.finish("c")
        assert first.result(10) and last.result(10)
        assert slow.begun == ["a", "c"] and not gone.done()

    def test_a_running_one_is_told_to_stop_when_the_last_one_leaves(self, pool, slow) -> None:
        answers = [ask(pool, name, "a") for name in "xy"]
        wait_for(lambda: slow.begun == ["a"])
        pool.cancel("x")
        pool.cancel("x")  # twice, and unknown ones, are harmless
        pool.cancel("nobody")
        time.sleep(0.02)
        assert slow.cancelled == []
        pool.cancel("y")
        wait_for(lambda: slow.cancelled == ["a"])
        assert not any(answer.done() for answer in answers)

    def test_who_comes_after_a_cancellation_gets_a_compile_of_his_own(self, pool, slow) -> None:
        ask(pool, "1", "a")
        wait_for(lambda: slow.begun == ["a"])
        pool.cancel("1")
        answer = ask(pool, "2", "a")
        slow.finish("a")
        assert answer.result(10) == {"a": "A"}

    def test_anothers_cancellation_is_not_ones_own(self) -> None:
        """Two compiles that share a cache: who waits for the other's is told of its end, and tries again."""
        tries: list[str] = []

        def compile(key: str, cancelled) -> str:
            tries.append(key)
            if len(tries) < 3:
                raise CompileCancelled
            return key

        pool: CompilePool[str, str] = CompilePool(compile, num_workers=1)
        assert ask(pool, "1", "a").result(10) == {"a": "a"}
        assert len(tries) == 3
        pool.close()

    def test_close_while_compiling(self, pool, slow) -> None:
        answers = [ask(pool, "1", "a"), ask(pool, "2", "b")]
        wait_for(lambda: slow.begun == ["a"])
        pool.close()
        pool.close()
        assert slow.cancelled == ["a"] == slow.begun
        assert pool.num_waiting == pool.num_queued == 0
        assert not any(answer.done() for answer in answers)
        assert not ask(pool, "late", "c").done() and pool.num_waiting == 0


class TestFailures:
    @pytest.mark.parametrize("error", [InvalidConstraint("no"), RuntimeError("fault"), SystemExit(1)])
    def test_only_those_who_wait_for_it_fail(self, pool, slow, error) -> None:
        failing, good = [ask(pool, name, "a") for name in "xy"], ask(pool, "z", "b")
        slow.finish("a", error)
        slow.finish("b")
        for answer in failing:
            found = answer.result(10)
            assert found is error if isinstance(error, Exception) else found.__cause__ is error
        assert good.result(10) == {"b": "B"}

    def test_one_failure_cancels_the_rest_of_the_request(self, pool, slow) -> None:
        failing = ask(pool, "1", "a", "b")
        other = ask(pool, "2", "c")
        slow.finish("a", InvalidConstraint("no"))
        slow.finish("c")
        assert isinstance(failing.result(10), InvalidConstraint) and other.result(10)
        assert slow.begun == ["a", "c"] and pool.num_waiting == 0


class TestConstraints:
    def test_keys(self) -> None:
        assert compile_keys(SamplingParams()) == ()
        assert compile_keys(SamplingParams(heal=True)) == (Tokens(),)
        assert compile_keys(SamplingParams(stop_regex="x", regex="a")) == (
            StopPattern("x"),
            Constraint("regex", "a"),
            Tokens(),
        )

    def test_grammars_are_found_while_they_live(self) -> None:
        compiler = ConstraintCompiler(byte_tokenizer())
        key = Constraint("regex", "a+")
        assert compiler.find(key) is None and compiler.find(Tokens()) is None
        grammar = compiler(key, lambda: False)
        assert compiler.find(key) is grammar
        assert compiler(Tokens(), lambda: False) is compiler.find(Tokens()) is compiler.index

    def test_what_was_refused_is_known(self) -> None:
        compiler = ConstraintCompiler(byte_tokenizer())
        keys = [Constraint("regex", f"({n}") for n in range(MAX_REFUSED + 1)]
        for key in keys:
            with pytest.raises(InvalidConstraint):
                compiler(key, lambda: False)
        assert compiler.find(keys[0]) is None  # the oldest is forgotten
        begun = []
        pool = CompilePool(lambda key, cancelled: begun.append(key), find=compiler.find, num_workers=1)
        answer: Future[object] = Future()
        pool.submit("1", [Tokens(), keys[1]], answer.set_result)
        assert isinstance(answer.result(0), InvalidConstraint) and not begun
        assert pool.num_waiting == 0
        pool.close()

    def test_a_long_wait_for_the_first_of_a_kind_is_explained(self, monkeypatch, caplog) -> None:
        """It is said once a kind; what is ready in time is not spoken of."""
        seconds = {"regex": 0.3, "choices": 0.0}

        class Made:
            """In place of a grammar."""

        def compile(constraint, vocab, *, cancelled=None):
            time.sleep(seconds[constraint.kind])
            return Made()

        compiler = ConstraintCompiler(byte_tokenizer(), compile)
        monkeypatch.setattr(compiler, "_vocabulary", lambda: None)
        monkeypatch.setattr(patience, "PATIENCE", 0.1)
        compiler(Constraint("regex", "a"), lambda: False)
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("treille", "WARNING")
        assert record.getMessage() == patience.COMPILED_LOOPS
        compiler(Constraint("regex", "ab"), lambda: False)
        monkeypatch.setattr(patience, "PATIENCE", 30.0)
        compiler(Constraint("choices", ("a",)), lambda: False)
        assert len(caplog.records) == 1

    def test_the_signal_is_handed_on(self) -> None:
        seen = []

        def compile(constraint, vocab, *, cancelled):
            seen.append(cancelled())
            return compile_constraint(constraint, vocab)

        compiler = ConstraintCompiler(byte_tokenizer(), compile)
        compiler(Constraint("choices", ("a",)), lambda: True)
        assert seen == [True]
