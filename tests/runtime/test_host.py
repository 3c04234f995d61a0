"""The second tier in host memory changes how much is computed, and no answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from oracles.history_model import GREEDY, idle, random_prompts

from treille.kernels.api import KVCache
from treille.runtime.engine import Engine
from treille.runtime.host import HostPages
from treille.runtime.params import SamplingParams
from treille.runtime.types import Finished, Request

SMALL = {"kv_memory": 40 * 4 * 64, "max_seq_len": 64}
PROMPTS = random_prompts(12, 30, 40)


def ask(engine: Engine, prompt: tuple[int, ...], salt: str | None = None) -> Finished:
    *_, end = engine.submit(Request(prompt_ids=prompt, params=GREEDY, cache_salt=salt))
    assert isinstance(end, Finished)
    engine._core.scheduler.check()
    return end


def test_evicted_prefixes_come_back(make_engine) -> None:
    engine, model = make_engine(host_memory="64KiB", **SMALL)
    for turn in range(3):
        for prompt in PROMPTS:
            done = ask(engine, prompt)
            assert list(done.completions[0].token_ids) == model.greedy(prompt, 12, stop_at_eos=False)
            # Full pages come back; the last token is computed for its logits.
            assert done.usage.cached_tokens >= (0, (len(prompt) - 1) // 4 * 4)[turn > 0]
    assert engine.stats()["host_pages"] > 0
    assert idle(engine)
    engine.flush_cache()
    assert engine.stats()["host_pages"] == 0
    assert ask(engine, PROMPTS[0]).usage.cached_tokens == 0


def test_salts_hold_in_host_memory(make_engine) -> None:
    engine, _ = make_engine(host_memory="64KiB", **SMALL)
    for salt in ("A", "B", None):
        for prompt in PROMPTS[:6]:
            assert ask(engine, prompt, salt).usage.cached_tokens == 0
    assert ask(engine, PROMPTS[0], "A").usage.cached_tokens > 0


@pytest.mark.parametrize("host_memory", [256, 5 * 256, "64KiB"])
@pytest.mark.parametrize("eviction", ["lru", "lfu"])
def test_random_load_with_and_without(make_engine, host_memory, eviction) -> None:
    """Many at once, in a pool that preempts: what comes back is what was evicted."""
    engine, model = make_engine(host_memory=host_memory, eviction=eviction, **SMALL)
    rng = random.Random(3)
    stems = random_prompts(5, 12, 30, shared=6)
    prompts = [
        (*rng.choice(stems), *(rng.randrange(256) for _ in range(rng.randrange(1, 15)))) for _ in range(80)
    ]
    params = [
        SamplingParams(temperature=0, max_tokens=rng.randrange(0, 15), ignore_eos=True) for _ in prompts
    ]
    streams = [
        engine.submit(Request(prompt_ids=prompt, params=one))
        for prompt, one in zip(prompts, params, strict=True)
    ]
    for prompt, one, stream in zip(prompts, params, streams, strict=True):
        *_, end = stream
        for completion in end.completions:
            assert list(completion.token_ids) == model.greedy(prompt, one.max_tokens, stop_at_eos=False)
    assert idle(engine)
    engine._core.scheduler.check()


def test_pinned_prefixes_come_back_first(make_engine) -> None:
    engine, _ = make_engine(host_memory="64KiB", **SMALL)
    for prompt in PROMPTS:
        ask(engine, prompt)
    with engine.cache(PROMPTS[0]) as prefix:
        assert prefix.num_tokens == len(PROMPTS[0])
        engine.flush_cache()
        assert ask(engine, (*PROMPTS[0], 1)).usage.cached_tokens == len(PROMPTS[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pages_are_copied_bit_for_bit(dtype: torch.dtype) -> None:
    def tensors() -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(6, 2, 4, 8).to(dtype) for _ in range(3))

    kv = KVCache(tensors(), tensors(), 6, 4, 2, 8)
    host = HostPages(kv, 2)
    before = [tensor.clone() for tensor in (*kv.keys, *kv.values)]
    host.store(3, 1)
    host.store(5, 0)
    for tensor in (*kv.keys, *kv.values):
        tensor[3:] = 0
    host.load(1, 0)
    host.load(0, 3)
    for old, new in zip(before, (*kv.keys, *kv.values), strict=True):
        assert torch.equal(new[0], old[3])
        assert torch.equal(new[3], old[5])
        assert torch.equal(new[1:3], old[1:3])


def test_a_real_model_says_the_same(tmp_path: Path, tiny_llama: Callable[[Path], Path]) -> None:
    """A tiny random Llama, its pool too small for the prompts, against one that never evicts."""
    torch.manual_seed(0)
    tiny_llama(tmp_path)
    rng = random.Random(1)
    prompts = [[rng.randrange(49_000) for _ in range(60)] for _ in range(6)]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=0)
    answers = []
    for settings in ({}, {"kv_memory": 25 * 6144, "host_memory": "1MiB"}):
        with Engine(
            tmp_path, dtype="float32", device="cpu", max_seq_len=80, page_size=4, max_num_seqs=4, **settings
        ) as engine:
            answers.append([engine.generate([prompt], params)[0] for _ in range(2) for prompt in prompts])
            if settings:
                assert engine.stats()["host_pages"] > 0
                assert engine.stats()["cached_tokens"] >= 6 * 56
    for alone, tiered in zip(*answers, strict=True):
        assert alone.token_ids == tiered.token_ids
        assert [one.logprob for one in alone.logprobs] == [one.logprob for one in tiered.logprobs]
