"""Whose prefixes a request may find in the cache (B34), and which stay longest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracles.history_model import GREEDY, idle, random_prompts, request

from treille.radix import PageError
from treille.runtime.engine import Engine
from treille.runtime.errors import InvalidRequest
from treille.runtime.params import SamplingParams
from treille.runtime.types import Event, Finished, Namespace, Request, Scored, ScoreRequest

PROMPT = random_prompts(1, 199, 200)[0]


def ask(engine: Engine, salt: str | None, prompt: tuple[int, ...] = PROMPT, **more: object) -> Finished:
    *_, end = engine.submit(Request(prompt_ids=prompt, params=GREEDY, cache_salt=salt, **more))
    assert isinstance(end, Finished)
    return end


class TestB34:
    """Equal prompts of different namespaces have nothing in common."""

    # A name of the model's, an adapter's number, what a joined key would look like, and None's own text.
    SALTS = (None, "A", "a", "history", "0", "None", "history/0", "A ", "\x00", "None\x00A")

    def test_each_first_use_is_cold_and_the_second_is_not(self, make_engine) -> None:
        engine, model = make_engine(kv_memory=2**22)
        expected = model.greedy(PROMPT, 12, stop_at_eos=False)
        for salt in self.SALTS:
            done = ask(engine, salt)
            assert done.usage.cached_tokens == 0
            assert list(done.completions[0].token_ids) == expected
        for salt in self.SALTS:
            done = ask(engine, salt)
            assert done.usage.cached_tokens == len(PROMPT) - 1
            assert list(done.completions[0].token_ids) == expected
        assert idle(engine)

    def test_requests_at_once_share_within_a_salt_only(self, make_engine) -> None:
        engine, _ = make_engine(kv_memory=2**22)
        streams = [
            engine.submit(Request(prompt_ids=PROMPT, params=GREEDY, cache_salt=salt))
            for salt in ("A", "B", "A", None, "B", None)
        ]
        ends: list[Event] = [[*stream][-1] for stream in streams]
        cached = sorted(end.usage.cached_tokens for end in ends if isinstance(end, Finished))
        assert cached[:3] == [0, 0, 0]
        assert min(cached[3:]) >= len(PROMPT) // 4 * 4 - 4
        assert engine.stats()["computed_tokens"] < 4 * len(PROMPT)

    def test_scores_have_a_salt_too(self, make_engine) -> None:
        engine, _ = make_engine()
        found = []
        for salt in ("A", "B", "A"):
            *_, end = engine.submit(
                ScoreRequest(prompt_ids=PROMPT, continuations=((1,), (2,)), cache_salt=salt)
            )
            assert isinstance(end, Scored)
            found.append(end)
        assert [end.usage.cached_tokens > 0 for end in found] == [False, False, True]
        assert found[0].logprobs == found[1].logprobs == found[2].logprobs

    def test_the_key_is_no_joined_string(self) -> None:
        keys = {
            Namespace(model="m"),
            Namespace(model="m", salt="1"),
            Namespace(model="m", adapter=1),
            Namespace(model="m", adapter=2),
            Namespace(model="m", adapter=1, salt="1"),
            Namespace(model="m1"),
        }
        assert len(keys) == 6

    @pytest.mark.parametrize("salt", ["A", "B", None])
    def test_samples_preemption_and_forced_text_stay_inside(self, make_engine, salt) -> None:
        """What goes back over its own tokens, or comes a second time, finds its own namespace again."""
        engine, model = make_engine(kv_memory=24 * 4 * 64, max_seq_len=64, words=(b"ab", b"abc"))
        salts = ("A", "B", None)
        prompts = random_prompts(12, 8, 30, shared=7)
        # With something to stop at, answers may be short, and more are begun than pages last for.
        params = replace(GREEDY, n=2, max_tokens=30, stop=("never said",))
        streams = [
            engine.submit(Request(prompt_ids=prompt, params=params, cache_salt=salts[i % 3]))
            for i, prompt in enumerate(prompts)
        ]
        forced = replace(request("so ", regex="abcabcabc[xy]abcabcab[xy]", max_tokens=30), cache_salt=salt)
        *_, end = engine.submit(forced)
        assert end.completions[0].text.startswith("abcabcabc")
        for prompt, stream in zip(prompts, streams, strict=True):
            *_, done = stream
            for completion in done.completions:
                assert list(completion.token_ids) == model.greedy(prompt, 30, stop_at_eos=False)
        assert engine.stats()["preemptions"] > 0
        assert idle(engine)
        engine._core.scheduler.check()

    @pytest.mark.parametrize("salt", ["", "x" * 257, 3, b"A", ("A",)])
    def test_what_is_no_salt_is_refused(self, make_engine, salt) -> None:
        engine, _ = make_engine()
        for bad in (
            Request(prompt_ids=PROMPT, params=GREEDY, cache_salt=salt),
            ScoreRequest(prompt_ids=PROMPT, continuations=((1,),), cache_salt=salt),
        ):
            with pytest.raises(InvalidRequest, match="1 to 256 characters") as caught:
                engine.submit(bad)
            assert caught.value.field == "cache_salt"


class TestEviction:
    @pytest.mark.parametrize("eviction", ["lru", "lfu", "priority"])
    def test_no_policy_changes_an_answer(self, make_engine, eviction) -> None:
        engine, model = make_engine(eviction=eviction, kv_memory=40 * 4 * 64, max_seq_len=64)
        prompts = random_prompts(40, 3, 30, shared=9)
        done = engine.generate(prompts, SamplingParams(temperature=0, max_tokens=9, ignore_eos=True))
        for prompt, completion in zip(prompts, done, strict=True):
            assert list(completion.token_ids) == model.greedy(prompt, 9, stop_at_eos=False)
        assert idle(engine)
        try:
            engine._core.scheduler.check()
        except PageError as error:
            pytest.fail(str(error))

    @pytest.mark.parametrize(("eviction", "stays"), [("lru", False), ("lfu", True), ("priority", True)])
    def test_what_stays(self, make_engine, eviction, stays) -> None:
        """A prefix used often and by requests of a high priority, but not lately."""
        engine, _ = make_engine(eviction=eviction, kv_memory=40 * 4 * 64, max_seq_len=64)
        first, *others = random_prompts(9, 30, 40)
        for _ in range(3):
            ask(engine, None, first, priority=1)
        for other in others:
            ask(engine, None, other)
        cached = ask(engine, None, first).usage.cached_tokens
        assert (cached == len(first) - 1) if stays else (cached < len(first) - 1)

    @pytest.mark.parametrize("priority", [2**31, -(2**31), 1.0, "high", True])
    def test_what_is_no_priority_is_refused(self, make_engine, priority) -> None:
        engine, _ = make_engine()
        with pytest.raises(InvalidRequest) as caught:
            engine.submit(Request(prompt_ids=PROMPT, params=GREEDY, priority=priority))
        assert caught.value.field == "priority"
