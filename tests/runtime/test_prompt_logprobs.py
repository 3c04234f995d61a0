"""Log-probabilities of the prompt: brute force over the whole context says what they are."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.history_model import VOCAB, HistoryModel

from treille.runtime.errors import InvalidRequest, ModelError
from treille.runtime.params import SamplingParams
from treille.runtime.scheduler import MAX_LOGIT_ROWS
from treille.runtime.types import Finished, Request, ScoreRequest, TokenEvent

PROMPT = tuple(np.random.default_rng(5).integers(0, 256, 64).tolist())


def scoring(**fields: object) -> SamplingParams:
    return SamplingParams(
        **{"temperature": 0, "max_tokens": 3, "ignore_eos": True, "prompt_logprobs": 2} | fields
    )


def check(model: HistoryModel, prompt, found, num_top: int = 2) -> None:
    assert found[0] is None and len(found) == len(prompt)
    for place, entry in enumerate(found[1:], start=1):
        logits = model.logits(prompt[:place])
        logprobs = logits - np.logaddexp.reduce(logits)
        best = np.argsort(-logprobs)[:num_top]
        assert entry.token_id == prompt[place]
        assert entry.logprob == pytest.approx(logprobs[prompt[place]], abs=1e-5)
        assert [token_id for token_id, _ in entry.top] == best.tolist()
        assert [value for _, value in entry.top] == pytest.approx(logprobs[best].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    "settings", [{}, {"max_batched_tokens": 5}, {"enable_prefix_caching": False}, {"page_size": 1}]
)
@pytest.mark.parametrize("fields", [{}, {"n": 3}, {"max_tokens": 0}, {"n": 2, "max_tokens": 0}])
def test_equal_brute_force_cached_or_not(make_engine, settings, fields) -> None:
    engine, model = make_engine(**settings)
    params = scoring(**fields)
    first, second = engine.generate([PROMPT], params), engine.generate([PROMPT], params)
    assert len(first) == params.n
    check(model, PROMPT, first[0].prompt_logprobs)
    for one, other in zip(first, second, strict=True):
        assert one.prompt_logprobs == other.prompt_logprobs == first[0].prompt_logprobs
        assert (
            one.token_ids
            == other.token_ids
            == tuple(model.greedy(PROMPT, params.max_tokens, stop_at_eos=False))
        )
        assert other.usage.cached_tokens == 0
        assert one.finish_reason == "length"


def test_the_first_event_of_a_sample_has_them(make_engine) -> None:
    engine, _ = make_engine()
    for max_tokens in (0, 4):
        *events, end = engine.submit(Request(prompt_ids=PROMPT, params=scoring(n=2, max_tokens=max_tokens)))
        assert isinstance(end, Finished)
        for index in range(2):
            mine = [event for event in events if isinstance(event, TokenEvent) and event.index == index]
            assert mine[0].prompt_logprobs == end.completions[index].prompt_logprobs
            assert [event.prompt_logprobs for event in mine[1:]] == [None] * (len(mine) - 1)
            assert [event.finish_reason for event in mine] == [None] * (len(mine) - 1) + ["length"]


def test_a_prompt_of_one_token(make_engine) -> None:
    engine, model = make_engine()
    for max_tokens in (0, 2):
        (done,) = engine.generate([[7]], scoring(max_tokens=max_tokens))
        assert done.prompt_logprobs == (None,)
        assert list(done.token_ids) == model.greedy([7], max_tokens, stop_at_eos=False)


def test_a_forced_start_comes_after_them(make_engine) -> None:
    engine, model = make_engine()
    *events, end = engine.submit(Request(prompt_ids=PROMPT, params=scoring(regex="abc[de]", max_tokens=9)))
    assert events[0].forced and events[0].prompt_logprobs == end.completions[0].prompt_logprobs
    check(model, PROMPT, end.completions[0].prompt_logprobs)
    assert end.completions[0].text[:3] == "abc"


def test_long_prompts_return_few_rows_a_step(make_engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, model = make_engine(max_batched_tokens=2048, max_seq_len=2048)
    rows: list[int] = []
    forward = HistoryModel.forward

    def count(self, inputs, kv):
        rows.append(len(inputs.logit_rows))
        return forward(self, inputs, kv)

    monkeypatch.setattr(HistoryModel, "forward", count)
    prompts = np.random.default_rng(1).integers(0, 256, (2, 1000)).tolist()
    done = engine.generate(prompts, scoring(max_tokens=1))
    for prompt, one in zip(prompts, done, strict=True):
        check(model, prompt, one.prompt_logprobs)
    assert sum(rows) == 2 * 999 + 2 and max(rows) <= MAX_LOGIT_ROWS + 2


def test_preempted_and_among_others(make_engine) -> None:
    """Pages for one and a half of them: whoever is preempted begins anew."""
    engine, model = make_engine(max_seq_len=64, kv_memory=24 * 4 * 64, max_batched_tokens=16)
    prompts = [[*PROMPT[:40], number] for number in range(4)]
    each = [scoring(max_tokens=20, prompt_logprobs=None if number % 2 else 2) for number in range(4)]
    for prompt, params, one in zip(prompts, each, engine.generate(prompts, each), strict=True):
        assert list(one.token_ids) == model.greedy(prompt, 20, stop_at_eos=False)
        if params.prompt_logprobs is None:
            assert one.prompt_logprobs is None
        else:
            check(model, prompt, one.prompt_logprobs)
    engine._core.scheduler.check()


def test_others_find_the_prompt_in_the_cache(make_engine) -> None:
    engine, _ = make_engine()
    engine.generate([PROMPT], scoring(max_tokens=1))
    (done,) = engine.generate([PROMPT], scoring(max_tokens=1, prompt_logprobs=None))
    assert done.usage.cached_tokens == len(PROMPT) - 1


def test_logits_that_are_no_numbers_end_their_request_alone(make_engine) -> None:
    class Broken(HistoryModel):
        def logits(self, context):
            return super().logits(context) * (float("nan") if list(context)[:1] == [9] else 1)

    model = Broken()
    engine, _ = make_engine(model)
    bad = engine.submit(ScoreRequest(prompt_ids=(9, 1), continuations=((2,), (3,))))
    worse = engine.submit(Request(prompt_ids=(9, 1, 2), params=scoring()))
    good = engine.submit(Request(prompt_ids=PROMPT, params=scoring()))
    assert isinstance([*bad][-1].error, ModelError) and isinstance([*worse][-1].error, ModelError)
    check(model, PROMPT, [*good][-1].completions[0].prompt_logprobs)
    assert engine.stats()["unfinished_requests"] == 0


def test_abort_before_they_are_known(make_engine) -> None:
    engine, _ = make_engine(max_batched_tokens=1)
    stream = engine.submit(Request(prompt_ids=PROMPT * 7, params=scoring()))
    stream.abort()
    end = [*stream][-1]
    assert all(one.finish_reason == "abort" for one in getattr(end, "completions", ()))
    assert engine.generate([PROMPT], scoring(max_tokens=0))[0].prompt_logprobs is not None


@pytest.mark.parametrize(
    ("value", "heal"), [(-1, False), (21, False), (True, False), (1.0, False), (1, True)]
)
def test_refused(value: object, heal: bool) -> None:
    with pytest.raises(InvalidRequest) as error:
        SamplingParams(prompt_logprobs=value, heal=heal)
    assert error.value.field == "prompt_logprobs"


def test_as_many_alternatives_as_there_may_be(make_engine) -> None:
    engine, model = make_engine()
    (done,) = engine.generate([PROMPT[:9]], scoring(prompt_logprobs=20, max_tokens=0))
    check(model, PROMPT[:9], done.prompt_logprobs, 20)
    assert VOCAB > 20
