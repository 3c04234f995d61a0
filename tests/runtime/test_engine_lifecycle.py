"""Requests that end early, engines that are full, closed or misused: nobody waits for ever, nothing leaks."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest
from oracles.history_model import GREEDY, HistoryModel, idle, random_prompts, request

from treille.runtime.errors import EngineClosed, EngineOverloaded, InvalidRequest, ModelError, RequestAborted
from treille.runtime.params import SamplingParams
from treille.runtime.types import Failed, Finished, Request, ScoreRequest, TokenEvent


def wait_for(condition, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


class TestLifecycle:
    def test_abort_frees_everything(self, make_engine) -> None:
        engine, _ = make_engine(max_num_seqs=1)
        first = engine.submit(request(max_tokens=400, ignore_eos=True))
        waiting = engine.submit(request("wait", max_tokens=5))
        next(first)
        for _ in range(2):  # twice is harmless
            first.abort()
        *_, end = first
        assert isinstance(end, Finished) and end.completions[0].finish_reason == "abort"
        assert len(end.completions[0].token_ids) < 400
        assert isinstance(list(waiting)[-1], Finished)
        first.abort()
        assert idle(engine)

    def test_abort_while_waiting(self, make_engine) -> None:
        engine, _ = make_engine(max_num_seqs=1)
        busy = engine.submit(request(max_tokens=300, ignore_eos=True))
        next(busy)
        stream = engine.submit(request("x"))
        stream.abort()
        *_, end = stream
        assert end.completions[0].finish_reason == "abort" and end.completions[0].token_ids == ()
        busy.abort()
        list(busy)

    def test_abort_a_score_request(self, make_engine) -> None:
        engine, _ = make_engine(max_num_seqs=1)
        busy = engine.submit(request(max_tokens=300, ignore_eos=True))
        next(busy)
        stream = engine.submit(ScoreRequest(prompt_ids=(1, 2), continuations=((3,),)))
        stream.abort()
        (end,) = stream
        assert isinstance(end, Failed) and isinstance(end.error, RequestAborted)
        busy.abort()
        list(busy)

    def test_overflow_is_refused_at_once(self, make_engine) -> None:
        """B40: three are served, two refused; later batches get their own results in order."""
        engine, model = make_engine(max_num_seqs=1, max_queued=2)
        streams, refused = [], 0
        for i in range(5):
            try:
                streams.append(engine.submit(request(f"p{i}", max_tokens=300, ignore_eos=True)))
            except EngineOverloaded:
                refused += 1
        assert (len(streams), refused) == (3, 2)
        assert all(isinstance(list(stream)[-1], Finished) for stream in streams)
        for seed in (1, 2):
            prompts = random_prompts(3, 3, 9, seed=seed)
            done = engine.generate(prompts, GREEDY)
            assert [list(c.token_ids) for c in done] == [
                model.greedy(p, 12, stop_at_eos=False) for p in prompts
            ]

    def test_priority_goes_first(self, make_engine) -> None:
        gate = threading.Event()
        order: list[int] = []

        class Gated(HistoryModel):
            def logits(self, context):
                gate.wait(10)
                tokens = list(context)
                if tokens[0] not in order:
                    order.append(tokens[0])
                return super().logits(tokens)

        engine, _ = make_engine(Gated(), max_num_seqs=1, schedule_policy="priority")
        streams = [
            engine.submit(Request(prompt_ids=(level,), params=GREEDY, priority=level))
            for level in (9, 1, 3, 2)
        ]
        gate.set()
        for stream in streams:
            list(stream)
        assert [level for level in order if level < 9] == [3, 2, 1]

    def test_ids_are_unique(self, make_engine) -> None:
        engine, _ = make_engine()
        mine = Request(prompt_ids=(1,), params=GREEDY, request_id="req-0")
        list(engine.submit(mine))
        with pytest.raises(InvalidRequest, match="used before"):
            engine.submit(mine)
        names = {engine.submit(request()).request_id for _ in range(5)}
        assert len(names) == 5 and "req-0" not in names

    def test_a_failing_step_ends_its_requests_and_no_others(self, make_engine) -> None:
        engine, model = make_engine()
        model.fail_with = ModelError("no memory")
        (end,) = engine.submit(request())
        assert isinstance(end, Failed) and end.error is model.fail_with
        model.fail_with = None
        (done,) = engine.generate(["abc"], GREEDY)
        assert list(done.token_ids) == model.greedy(b"abc", 12, stop_at_eos=False)
        assert engine.is_alive and idle(engine)

    def test_nan_logits_fail_their_row(self, make_engine, history_model) -> None:
        history_model.bias[5] = np.nan
        engine, _ = make_engine(history_model)
        (end,) = engine.submit(request())
        assert isinstance(end, Failed) and "finite" in str(end.error)

    def test_close_ends_what_runs(self, make_engine) -> None:
        engine, _ = make_engine()
        stream = engine.submit(request(max_tokens=400, ignore_eos=True))
        next(stream)
        engine.close()
        engine.close()
        *_, end = stream
        assert isinstance(end, Failed) and isinstance(end.error, EngineClosed)
        assert not engine.is_alive
        for call in (lambda: engine.submit(request()), engine.flush_cache):
            with pytest.raises(EngineClosed):
                call()

    def test_many_threads(self, make_engine) -> None:
        engine, model = make_engine(max_num_seqs=4)
        found: dict[int, list[int]] = {}

        def work(i: int) -> None:
            *_, end = engine.submit(Request(prompt_ids=(i, i + 1), params=GREEDY))
            found[i] = list(end.completions[0].token_ids)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {i: model.greedy((i, i + 1), 12, stop_at_eos=False) for i in range(20)}

    async def test_async_streams(self, make_engine) -> None:
        engine, model = make_engine()

        async def run(i: int) -> list[int]:
            ids: list[int] = []
            async for event in engine.submit(Request(prompt_ids=(i,), params=GREEDY)):
                if isinstance(event, TokenEvent):
                    ids.extend(event.token_ids)
            return ids

        found = await asyncio.gather(*map(run, range(10)))
        assert found == [model.greedy((i,), 12, stop_at_eos=False) for i in range(10)]

    def test_a_reader_whose_loop_is_gone(self, make_engine) -> None:
        engine, _ = make_engine()
        stream = engine.submit(request(max_tokens=200, ignore_eos=True))

        async def read_one() -> None:
            await anext(stream)

        asyncio.run(read_one())
        wait_for(lambda: idle(engine))
        assert isinstance(list(stream)[-1], Finished)


class TestAccounting:
    def test_pages_add_up(self, make_engine) -> None:
        """B36: shared prefixes, an end at a page edge and an abort after prefill leave nothing behind."""
        engine, _ = make_engine(page_size=4)
        shared = list(range(6))
        stream = engine.submit(request([*shared, 6, 7, 8, 9], max_tokens=400, ignore_eos=True))
        next(stream)
        engine.generate([[*shared, 60, 70]], SamplingParams(max_tokens=3))
        stream.abort()
        list(stream)
        engine.generate([[9] * 8], SamplingParams(max_tokens=4, ignore_eos=True))
        assert idle(engine)
        engine.flush_cache()
        assert engine.stats()["free_pages"] == engine.stats()["pages"]


class TestArguments:
    @pytest.mark.parametrize(
        ("prompt", "params", "field"),
        [
            ((), {}, "prompt"),
            ((264,), {}, "prompt"),
            ((-1,), {}, "prompt"),
            ((1,) * 512, {}, "prompt"),
            ((1,), {"logit_bias": {264: 1.0}}, "logit_bias"),
        ],
    )
    def test_request(self, make_engine, prompt, params, field) -> None:
        engine, _ = make_engine()
        with pytest.raises(InvalidRequest) as caught:
            engine.submit(Request(prompt_ids=prompt, params=SamplingParams(**params)))
        assert caught.value.field == field

    @pytest.mark.parametrize("priority", [True, 1.0, "1", 2**31])
    def test_priority(self, make_engine, priority) -> None:
        engine, _ = make_engine()
        with pytest.raises(InvalidRequest) as caught:
            engine.submit(Request(prompt_ids=(1,), params=GREEDY, priority=priority))
        assert caught.value.field == "priority"

    @pytest.mark.parametrize(
        "settings",
        [
            {"max_num_seqs": 0},
            {"page_size": 0},
            {"page_size": "4"},
            {"max_seq_len": 1},
            {"max_seq_len": 5000},
            {"schedule_policy": "random"},
            {"eviction": "fifo"},
            {"eviction": None},
            {"host_memory": "some"},
            {"host_memory": 0},
            {"host_memory": 255},  # a page takes 256
            {"host_memory": "900000GiB"},
            {"kv_memory": "lots"},
            {"kv_memory": 0},
            {"max_queued": -1},
            {"dtype": "float16"},
            {"dtype": "bfloat16"},  # the model handed over is float32
            {"device": "toaster"},
            {"device": "meta"},  # PyTorch knows it
            {"device": "mps"},
        ],
    )
    def test_settings(self, make_engine, settings) -> None:
        with pytest.raises(InvalidRequest):
            make_engine(**settings)

    def test_too_little_memory(self, make_engine) -> None:
        with pytest.raises(ModelError, match="kv_memory"):
            make_engine(kv_memory="4KiB")

    def test_prompts(self, make_engine) -> None:
        engine, _ = make_engine()
        assert engine.generate([], GREEDY) == []
        with pytest.raises(InvalidRequest, match="list"):
            engine.generate("one", GREEDY)
        with pytest.raises(InvalidRequest, match="params"):
            engine.generate(["one"], [GREEDY, GREEDY])
        for prompts, params in (
            (None, GREEDY),
            ([5], GREEDY),
            (b"one", GREEDY),
            (["one"], 5),
            (["one"], [5]),
        ):
            with pytest.raises(InvalidRequest, match="must be"):
                engine.generate(prompts, params)
        with pytest.raises(InvalidRequest, match="ScoreRequest"):
            engine.submit(None)
        (done,) = engine.generate([""], GREEDY)  # goes on from the token that begins a text
        assert len(done.token_ids) == 12
