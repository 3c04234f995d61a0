"""`gen(heal=...)` and forced text in programs, on an engine whose tokens are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from oracles.history_model import VOCAB, HistoryModel, byte_tokenizer

import treille as tr
from treille.dsl.events import TextEvent
from treille.runtime.models.load import LoadedModel

WORDS = (b"://", b"sun", b"sunset")


class Continuer(HistoryModel):
    """Goes on with what `script` says after a text that ends so, by the token given."""

    def __init__(self, script: dict[bytes, int]) -> None:
        super().__init__(num_tokens=VOCAB + len(WORDS))
        self.script = script

    def logits(self, context):
        tokens = list(context)
        text = b"".join(bytes([t]) if t < 256 else WORDS[t - VOCAB] if t >= VOCAB else b"" for t in tokens)
        logits = super().logits(tokens)
        for end, token_id in self.script.items():
            if text.endswith(end):
                logits[token_id] += 100
                return logits
        logits[256] += 100
        return logits


@pytest.fixture
def make() -> Iterator[Callable[..., tr.Engine]]:
    with ExitStack() as stack:

        def engine(script: dict[bytes, int]) -> tr.Engine:
            model = Continuer(script)
            loaded = LoadedModel("history", model.config, model, byte_tokenizer(words=WORDS), None)
            return stack.enter_context(tr.Engine(loaded, max_seq_len=256, kv_memory=2**20))

        yield engine


@tr.program
def link(s, heal: bool) -> None:
    s += "http:" + tr.gen("rest", heal=heal, max_tokens=5) + "!"


@tr.program
def when(s) -> None:
    s += "at " + tr.gen("time", regex="[0-9]:00 hours", max_tokens=20) + "."


def test_a_token_over_the_seam(make) -> None:
    engine = make({b"http": VOCAB, b"://": ord("a")})
    state = link.run(heal=True, backend=engine)
    assert state["rest"] == "//a" and state.text() == "http://a!"
    state = link.run(heal=False, backend=engine)
    assert not state["rest"].startswith("//")
    assert state.text() == f"http:{state['rest']}!"


def test_healing_is_a_default_too(make) -> None:
    engine = make({b"http": VOCAB, b"://": ord("a")})

    @tr.program
    def plain(s) -> None:
        s += "http:" + tr.gen("rest", max_tokens=5)

    assert plain.run(backend=engine, heal=True).text() == "http://a"


def test_the_tokens_of_a_variable_are_the_engines(make) -> None:
    """The model says `s`, which the forced rest makes the tokenizer write as one token with it."""
    engine = make({b"the ": ord("s")})

    @tr.program
    def sky(s) -> None:
        s += "the " + tr.gen("what", regex="(s|m)unset!", max_tokens=9)

    state = sky.run(backend=engine, temperature=0)
    assert state["what"] == "sunset!"
    assert state.meta("what").token_ids == (VOCAB + 2, ord("!"))
    assert state.usage.completion_tokens == 2


async def test_forced_text_is_marked_in_streams(make) -> None:
    engine = make({b"at ": ord("7")})
    events = [event async for event in when.stream(backend=engine, temperature=0)]
    texts = [(event.text, event.kind) for event in events if isinstance(event, TextEvent) and event.text]
    assert ("7", "sampled") in texts and (":00 hours", "forced") in texts


@pytest.mark.parametrize("name", ["heal", "grammar"])
def test_wrong_values_name_the_line(name: str) -> None:
    with pytest.raises(tr.InvalidExpression, match=name) as caught:
        tr.gen("x", **{name: 5})  # the wrong line
    assert caught.value.line.endswith("# the wrong line")


@pytest.mark.parametrize("other", [{"regex": "a"}, {"choices": ["a"]}, {"type": int}])
def test_one_constraint_at_most(other) -> None:
    with pytest.raises(tr.InvalidExpression, match="exclude each other"):
        tr.gen("x", grammar="start: /a/", **other)
