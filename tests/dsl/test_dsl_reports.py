"""Faults that were reported for others, on programs over a real engine: B26, B28, B29."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from oracles.history_model import VOCAB, HistoryModel, byte_tokenizer

import treille as tr
from treille.dsl.choosing import mean, total
from treille.dsl.results import Generation, Selection
from treille.runtime.models.load import LoadedModel

README = Path(__file__).resolve().parents[2] / "README.md"
Table = Mapping[tuple[int, ...], Mapping[int, float]]


class TableModel(HistoryModel):
    """Log-probabilities from a table: what was said since the last `:` -> the next token's; the rest even."""

    def __init__(self, table: Table, num_tokens: int) -> None:
        super().__init__(num_tokens=num_tokens)
        self.table = table

    def logits(self, context: Iterable[int]) -> np.ndarray:
        tokens = list(context)
        start = max((place for place, token in enumerate(tokens) if token == ord(":")), default=-1)
        given = self.table.get(tuple(tokens[start + 1 :]), {})
        others = (1 - sum(map(math.exp, given.values()))) / (self.num_tokens - len(given))
        logits = np.full(self.num_tokens, math.log(others))
        logits[list(given)] = list(given.values())
        return logits


@pytest.fixture
def table_engine() -> Iterator[Callable[..., tr.Engine]]:
    """Makes engines on a table; `words` have the ids from VOCAB on."""
    made: list[tr.Engine] = []

    def make(table: Table, words: list[bytes]) -> tr.Engine:
        model = TableModel(table, VOCAB + len(words))
        loaded = LoadedModel("table", model.config, model, byte_tokenizer(words=words), None)
        made.append(tr.Engine(loaded, max_seq_len=256, page_size=4, kv_memory=2**20))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def test_b26_every_rule_can_be_had(table_engine: Callable[..., tr.Engine]) -> None:
    """The choice `A` has [-1], the choice `Bcde` [-3, -.01, -.01, -.01]."""
    rest = {(257, *range(258, 258 + n)): {258 + n: -0.01} for n in range(3)}
    table = {(): {ord("A"): -1.0, 257: -3.0}, **rest}
    engine = table_engine(table, [b"B", b"c", b"d", b"e"])

    @tr.program
    def pick(s: tr.State) -> None:
        s += ":" + tr.select("default", ["A", "Bcde"])
        for method in ("token_length_normalized", "greedy_token"):
            s += ":" + tr.select(method, ["A", "Bcde"], method=method)

    state = pick.run(backend=engine)
    scores = state.scores("default")
    assert scores["A"] == pytest.approx([-1.0], abs=1e-5)
    assert scores["Bcde"] == pytest.approx([-3.0, -0.01, -0.01, -0.01], abs=1e-5)
    # From the numbers, the caller can apply each rule, that of the sum too.
    assert mean(scores["Bcde"]) == pytest.approx(-0.7575, abs=1e-5)
    assert total(scores["Bcde"]) == pytest.approx(-3.03, abs=1e-5)
    assert max(scores, key=lambda choice: sum(scores[choice])) == "A"
    assert state["token_length_normalized"] == "Bcde"
    assert state["greedy_token"] == "A"
    # The default is named: in the signature, with the result and in the README.
    meta = state.meta("default")
    assert isinstance(meta, Selection)
    assert meta.method == inspect.signature(tr.select).parameters["method"].default
    assert meta.method == "token_length_normalized"
    assert state["default"] == "Bcde"
    readme = " ".join(README.read_text().split())
    assert "highest mean log-probability per token** unless told otherwise (`token_length_norm" in readme


def test_b28_a_likely_beginning(table_engine: Callable[..., tr.Engine]) -> None:
    """P(st) = 0.6, P(one | st) = 0.001, P(river) = 0.3."""
    table = {(): {257: math.log(0.6), 259: math.log(0.3)}, (257,): {258: math.log(0.001)}}
    engine = table_engine(table, [b"st", b"one", b"river"])

    @tr.program
    def ask(s: tr.State) -> None:
        s += ":" + tr.select("scored", ["stone", "river"])
        s += "\n:" + tr.gen("decoded", choices=["stone", "river"]) + "!"

    state = ask.run(backend=engine, temperature=0)
    scores = state.scores("scored")
    assert math.exp(total(scores["stone"])) == pytest.approx(0.0006, rel=1e-4)
    assert math.exp(total(scores["river"])) == pytest.approx(0.3, rel=1e-4)
    assert state["scored"] == "river"
    assert state["decoded"] == "stone"
    assert state.text() == ":river\n:stone!"  # and nothing around a choice
    readme = " ".join(README.read_text().split())
    assert "the first may answer `stone`; the second answers `river`" in readme


def test_b29_several_samples(table_engine: Callable[..., tr.Engine]) -> None:
    engine = table_engine({}, [])

    @tr.program
    def ask(s: tr.State) -> None:
        s += "color:" + tr.gen("c", n=3, regex="(red|blue)", seed=1) + "\n"

    state = ask.run(backend=engine)
    colors = state["c"]
    assert isinstance(colors, list)
    assert len(colors) == 3
    assert set(colors) == {"red", "blue"}  # each has a place of its own in the pattern
    meta = state.meta("c")
    assert isinstance(meta, tuple)
    assert all(isinstance(one, Generation) and one.finish_reason == "stop" for one in meta)
    assert state.usage.prompt_tokens == len("color:")
    assert state.text() == "color:\n"

    @tr.program
    def wrong(s: tr.State) -> None:
        s += "color:" + tr.gen("c", n=3, regex="(red|blue)")
        s += tr.user(s["c"])  # type: ignore[arg-type]

    with pytest.raises(tr.InvalidExpression, match="n > 1 is a list"):
        wrong.run(backend=engine)
    assert engine.stats()["unfinished_requests"] == 0
