"""SmolLM2 in float32, token for token: against transformers, and against itself under every schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from oracles.prompts import PROMPTS

from treille.runtime.engine import Engine
from treille.runtime.models.load import LoadedModel, load_model
from treille.runtime.params import SamplingParams
from treille.runtime.types import Request, ScoreRequest

LENGTH = 64
GREEDY = SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True)
ROOMY = {"max_seq_len": 2048, "kv_memory": "1GiB"}
# How many of each output's tokens are held against it where one step computes but few.
lengths = pytest.mark.parametrize("length", [24, pytest.param(LENGTH, marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model("smollm2-135m", dtype=torch.float32, device=torch.device("cpu"), max_seq_len=2048)


@pytest.fixture(scope="module")
def engine(loaded: LoadedModel) -> Iterator[Engine]:
    with Engine(loaded, **ROOMY) as engine:
        yield engine


@pytest.fixture(scope="module")
def prompt_ids(engine: Engine) -> list[tuple[int, ...]]:
    return [engine.encode(prompt) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def expected(engine: Engine, prompt_ids) -> list[tuple[int, ...]]:
    """All prompts together, on a cold cache; held against transformers below."""
    engine.flush_cache()
    return [done.token_ids for done in engine.generate(prompt_ids, GREEDY)]


def test_there_are_fifty_prompts() -> None:
    assert len(PROMPTS) == 50 == len(set(PROMPTS))


@pytest.mark.filterwarnings("ignore")
def test_tokens_are_those_of_transformers(engine, prompt_ids, expected, smollm2_folder) -> None:
    """One forward over prompt and output: each output token must be the likeliest after what precedes it,
    which makes it, by induction, what transformers generates."""
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32).eval()
    for prompt, ids, output in zip(PROMPTS, prompt_ids, expected, strict=True):
        with torch.inference_mode():
            logits = net(torch.tensor([[*ids, *output]])).logits[0, len(ids) - 1 : -1]
        best = tuple(logits.argmax(dim=-1).tolist())
        assert output == best, f"prompt {prompt[:40]!r}"


@pytest.mark.filterwarnings("ignore")
def test_prompts_are_encoded_as_transformers_does(engine, smollm2_folder) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(smollm2_folder)
    for prompt in PROMPTS[1:]:
        assert list(engine.encode(prompt)) == reference(prompt).input_ids


@lengths
def test_alone(engine, prompt_ids, expected, length) -> None:
    for ids, output in zip(prompt_ids[::4], expected[::4], strict=True):
        engine.flush_cache()
        (done,) = engine.generate([ids], replace(GREEDY, max_tokens=length))
        assert done.token_ids == output[:length]


def test_on_a_warm_cache(engine, prompt_ids, expected) -> None:
    engine.generate(prompt_ids, SamplingParams(max_tokens=0))
    done = engine.generate(prompt_ids, GREEDY)
    assert [c.token_ids for c in done] == expected
    assert sum(c.usage.cached_tokens for c in done) > 0.8 * sum(map(len, prompt_ids))


@lengths
def test_in_chunks_of_seven(loaded, prompt_ids, expected, length) -> None:
    with Engine(loaded, **ROOMY, max_batched_tokens=7, max_num_seqs=32) as other:
        done = other.generate(prompt_ids[::2], replace(GREEDY, stop=("\0",), max_tokens=length))
    assert [c.token_ids for c in done] == [output[:length] for output in expected[::2]]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_batched_tokens": 512, "max_num_seqs": 32, "enable_prefix_caching": False},
        {"max_batched_tokens": 64, "max_seq_len": 1024, "kv_memory": "50MiB"},
    ],
    ids=["chunks-of-512-no-cache", "preemption"],
)
def test_under_other_schedules(loaded, prompt_ids, expected, settings) -> None:
    with Engine(loaded, **(ROOMY | settings)) as other:
        # With something to stop at, an answer may be short, and more are begun than pages last for.
        done = other.generate(prompt_ids[::2], replace(GREEDY, stop=("\0",)))
        stats = other.stats()
    assert [c.token_ids for c in done] == expected[::2]
    if "kv_memory" in settings:
        assert stats["preemptions"] > 0


@lengths
def test_one_token_a_step(loaded, prompt_ids, expected, length) -> None:
    with Engine(loaded, **ROOMY, max_batched_tokens=1) as other:
        done = other.generate(prompt_ids[3:12:3], replace(GREEDY, max_tokens=length))
    assert [c.token_ids for c in done] == [output[:length] for output in expected[3:12:3]]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_with_any_number_of_threads(loaded, prompt_ids, expected, num_threads) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        with Engine(loaded, **ROOMY) as other:
            done = other.generate(prompt_ids[1::10], replace(GREEDY, max_tokens=24))
    finally:
        torch.set_num_threads(before)
    assert [c.token_ids for c in done] == [output[:24] for output in expected[1::10]]


def test_logprobs_agree_with_scores(engine) -> None:
    ids = engine.encode("The capital of France is")
    (done,) = engine.generate([ids], SamplingParams(temperature=0, max_tokens=5, logprobs=3))
    (end,) = engine.submit(ScoreRequest(prompt_ids=ids, continuations=(done.token_ids,)))
    assert [p.logprob for p in done.logprobs] == pytest.approx(end.logprobs[0], abs=1e-4)
    for one in done.logprobs:
        assert len(one.top) == 3 and one.top[0] == (one.token_id, pytest.approx(one.logprob))
        assert [v for _, v in one.top] == sorted((v for _, v in one.top), reverse=True)


@pytest.mark.filterwarnings("ignore")
def test_prompt_logprobs_are_those_of_transformers(engine, smollm2_folder) -> None:
    """Log-softmax in float64; the second time the prompt is cached."""
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32).eval()
    ids = engine.encode(PROMPTS[0] + " " + PROMPTS[1])
    with torch.inference_mode():
        logits = net(torch.tensor([ids])).logits[0, :-1].double()
    rows = logits.log_softmax(dim=-1)
    params = SamplingParams(max_tokens=0, prompt_logprobs=2)
    for _ in range(2):
        first, *entries = engine.generate([ids], params)[0].prompt_logprobs
        assert first is None and [entry.token_id for entry in entries] == list(ids[1:])
        chosen = rows.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
        assert [entry.logprob for entry in entries] == pytest.approx(chosen, abs=2e-3)
        best = rows.max(dim=-1).values.tolist()
        assert [entry.top[0][1] for entry in entries] == pytest.approx(best, abs=2e-3)


def test_constrained_output_stops_by_itself(engine) -> None:
    params = SamplingParams(temperature=0, max_tokens=40, regex=r"\d{4}-\d{2}-\d{2}")
    stream = engine.submit(Request(prompt_ids=engine.encode("Today is "), params=params))
    *tokens, end = stream
    assert end.completions[0].finish_reason == "stop"
    assert [e.text for e in tokens if e.forced] == ["-", "-"]
