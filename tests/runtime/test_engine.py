"""The engine on the history model: whatever else happens, the answer is the one of brute force."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.history_model import GREEDY, idle, random_prompts, request

from treille.runtime.errors import InvalidConstraint, InvalidRequest
from treille.runtime.params import SamplingParams
from treille.runtime.types import Failed, Finished, Request, Scored, ScoreRequest


class TestSameAnswer:
    """Batch, chunks, cache, page size and preemption never change greedy output."""

    @pytest.mark.parametrize("caching", [True, False])
    @pytest.mark.parametrize("chunk", [1, 7, 512])
    @pytest.mark.parametrize("page_size", [1, 4, 16])
    def test_equals_brute_force(self, make_engine, chunk, caching, page_size) -> None:
        engine, model = make_engine(
            max_batched_tokens=chunk, enable_prefix_caching=caching, page_size=page_size, max_num_seqs=8
        )
        prompts = random_prompts(12, 1, 40, shared=9)
        expected = [model.greedy(p, 12, stop_at_eos=False) for p in prompts]
        for _ in range(2):  # the second time on a warm cache
            assert [list(c.token_ids) for c in engine.generate(prompts, GREEDY)] == expected
        assert idle(engine)

    @pytest.mark.parametrize("pages", [20, 28])
    @pytest.mark.parametrize("caching", [True, False])
    def test_preemption(self, make_engine, pages, caching) -> None:
        page_bytes = 4 * 64  # as the history model says
        engine, model = make_engine(
            max_seq_len=64, kv_memory=pages * page_bytes, enable_prefix_caching=caching, max_num_seqs=16
        )
        prompts = random_prompts(16, 1, 20, shared=5)
        params = SamplingParams(temperature=0, max_tokens=30)  # most use all: the guess is too low
        done = engine.generate(prompts, params)
        assert [list(c.token_ids) for c in done] == [model.greedy(p, 30) for p in prompts]
        assert engine.stats()["preemptions"] > 0
        assert idle(engine)

    def test_sampled_output_does_not_depend_on_the_batch(self, make_engine) -> None:
        engine, _ = make_engine()
        prompts = random_prompts(10, 3, 9)
        params = [SamplingParams(seed=i, max_tokens=8, top_p=0.9, top_k=i % 3 * 20) for i in range(10)]
        together = engine.generate(prompts, params)
        alone = [engine.generate([p], q)[0] for p, q in zip(prompts, params, strict=True)]
        assert [c.token_ids for c in together] == [c.token_ids for c in alone]

    def test_engine_seed_makes_runs_repeat(self, make_engine) -> None:
        def run(seed: int) -> list[tuple[int, ...]]:
            engine, _ = make_engine(seed=seed)
            return [c.token_ids for c in engine.generate(["one", "two"], SamplingParams(max_tokens=6, n=2))]

        assert run(3) == run(3) != run(4)

    def test_ends_at_eos(self, make_engine, history_model) -> None:
        history_model.bias[256] = 0.5
        engine, model = make_engine(history_model)
        prompts = random_prompts(20, 1, 8)
        done = engine.generate(prompts, SamplingParams(temperature=0, max_tokens=40))
        assert [list(c.token_ids) for c in done] == [model.greedy(p, 40) for p in prompts]
        assert {c.finish_reason for c in done} == {"stop", "length"}


class TestSharing:
    """What the cache and the scheduler save."""

    def test_a_second_run_computes_one_token_of_the_prompt(self, make_engine) -> None:
        engine, model = make_engine()
        prompt = random_prompts(1, 30, 31)[0]
        engine.generate([prompt], GREEDY)
        model.steps.clear()
        (done,) = engine.generate([prompt], GREEDY)
        assert model.steps[0] == [1]
        assert done.usage.cached_tokens == 29

    def test_requests_that_arrive_together_compute_a_shared_prefix_once(self, make_engine) -> None:
        engine, model = make_engine(max_batched_tokens=512)
        prompts = random_prompts(16, 4, 8, shared=64)
        engine.generate(prompts, SamplingParams(temperature=0, max_tokens=1))
        computed = sum(map(sum, model.steps))
        assert computed <= 64 + sum(len(p) - 64 for p in prompts)

    def test_samples_of_one_request_share_the_prompt(self, make_engine) -> None:
        engine, model = make_engine()
        prompt = random_prompts(1, 30, 31)[0]
        params = SamplingParams(n=5, max_tokens=3, seed=1)
        done = engine.generate([prompt], params)
        assert [c.index for c in done] == [0, 1, 2, 3, 4]
        assert len({c.token_ids for c in done}) > 1
        assert model.steps[:2] == [[29], [1] * 5]
        assert done[0].usage.prompt_tokens == 30

    def test_prompt_only_request_fills_the_cache(self, make_engine) -> None:
        engine, model = make_engine()
        prompt = random_prompts(1, 30, 31)[0]
        (end,) = engine.submit(Request(prompt_ids=prompt, params=SamplingParams(max_tokens=0)))
        assert isinstance(end, Finished) and end.completions == ()
        assert end.usage.prompt_tokens == 30 and end.usage.cached_tokens == 0
        model.steps.clear()
        (end,) = engine.submit(Request(prompt_ids=prompt, params=SamplingParams(max_tokens=0)))
        assert end.usage.cached_tokens == 30 and not model.steps

    def test_flush(self, make_engine) -> None:
        engine, _ = make_engine()
        engine.generate([[1] * 20], GREEDY)
        assert engine.flush_cache() > 0
        assert engine.stats()["free_pages"] == engine.stats()["pages"]


class TestScore:
    def test_equals_brute_force_in_one_extend(self, make_engine) -> None:
        engine, model = make_engine()
        prompt = random_prompts(1, 21, 22)[0]
        rests = [(1, 2, 3), (1, 2), (200,), (7, 7, 7, 7, 7, 7)]
        (end,) = engine.submit(ScoreRequest(prompt_ids=prompt, continuations=tuple(rests)))
        assert isinstance(end, Scored)
        for rest, found in zip(rests, end.logprobs, strict=True):
            for i, (token, value) in enumerate(zip(rest, found, strict=True)):
                logits = model.logits([*prompt, *rest[:i]])
                assert value == pytest.approx(logits[token] - np.logaddexp.reduce(logits), abs=1e-4)
        assert model.steps == [[20], [3, 2, 1, 6]]  # the prompt once, then all continuations together
        assert end.usage.prompt_tokens == 21 + 12

    @pytest.mark.parametrize("settings", [{"max_batched_tokens": 3}, {"enable_prefix_caching": False}])
    def test_whatever_the_chunks(self, make_engine, settings) -> None:
        engine, _ = make_engine()
        other, _ = make_engine(**settings)
        task = ScoreRequest(prompt_ids=(1, 2, 3, 4, 5), continuations=((6, 7, 8, 9, 10, 11), (6,), (1, 1, 1)))
        (one,), (two,) = engine.submit(task), other.submit(task)
        assert np.allclose(np.concatenate(one.logprobs), np.concatenate(two.logprobs))

    @pytest.mark.parametrize(
        ("task", "field"),
        [
            (ScoreRequest(prompt_ids=(), continuations=((1,),)), "prompt"),
            (ScoreRequest(prompt_ids=(1,), continuations=()), "continuations"),
            (ScoreRequest(prompt_ids=(1,), continuations=((),)), "prompt"),
            (ScoreRequest(prompt_ids=(1,) * 500, continuations=((1,) * 13,)), "prompt"),
        ],
    )
    def test_refuses(self, make_engine, task, field) -> None:
        engine, _ = make_engine()
        with pytest.raises(InvalidRequest) as caught:
            engine.submit(task)
        assert caught.value.field == field


class TestStops:
    def test_stream_adds_up_to_the_text(self, make_engine) -> None:
        engine, _ = make_engine()
        events = list(engine.submit(request("tell", temperature=1, seed=5, max_tokens=60, stop=("q", "zz"))))
        *tokens, end = events
        assert isinstance(end, Finished)
        assert "".join(e.text for e in tokens) == end.completions[0].text
        assert sum((e.token_ids for e in tokens), ()) == end.completions[0].token_ids
        assert [e.finish_reason is not None for e in tokens] == [False] * (len(tokens) - 1) + [True]

    @pytest.mark.parametrize(
        ("said", "params", "text", "reason", "stop"),
        [
            ("1;2;3;4", {"stop": ("2;3",)}, "1;", "stop", "2;3"),
            ("ab<<end>>c", {"stop": ("<<end>>",)}, "ab", "stop", "<<end>>"),
            ("<<enX", {"stop": ("<<end>>",), "max_tokens": 5}, "<<enX", "length", None),
            ("<<en", {"stop": ("<<end>>",), "max_tokens": 4}, "<<en", "length", None),
            ("abc123d", {"stop_regex": r"\d{3}"}, "abc", "stop", r"\d{3}"),
            ("abc", {"stop_token_ids": (ord("c"),)}, "ab", "stop", ord("c")),
            ("aXbXc", {"stop": ("X",), "min_tokens": 3}, "aXb", "stop", "X"),
        ],
    )
    def test_stop(self, make_engine, speaker, said, params, text, reason, stop) -> None:
        engine, _ = make_engine(speaker(said.encode()))
        events = list(engine.submit(request("?", **({"max_tokens": 30} | params))))
        (done,) = events[-1].completions
        assert (done.text, done.finish_reason, done.stop_reason) == (text, reason, stop)
        assert "".join(e.text for e in events[:-1]) == text

    def test_prompt_that_ends_inside_a_character(self, make_engine, speaker) -> None:
        engine, _ = make_engine(speaker(b"\xac!"))
        *tokens, end = engine.submit(request(b"abc\xe2\x82", max_tokens=2))
        assert [e.text for e in tokens] == ["€", "!"]
        assert end.completions[0].text == "€!"

    def test_context_is_full(self, make_engine) -> None:
        engine, _ = make_engine(max_seq_len=16)
        (done,) = engine.generate([[1] * 10], SamplingParams(max_tokens=100, ignore_eos=True))
        assert len(done.token_ids) == 6 and done.finish_reason == "length"

    def test_min_tokens_forbids_the_end(self, make_engine, history_model) -> None:
        history_model.bias[256] = 50
        engine, _ = make_engine(history_model)
        done = engine.generate(["a", "b"], [SamplingParams(min_tokens=4, max_tokens=9), SamplingParams()])
        assert [len(c.token_ids) for c in done] == [5, 1]


class TestConstraints:
    def test_hours(self, make_engine, history_model) -> None:
        """B04: the text ends where the pattern does, whatever the model prefers."""
        history_model.bias[ord("1")] = 50
        engine, _ = make_engine(history_model)
        (done,) = engine.generate(["at "], SamplingParams(temperature=0, regex=r"2[0-3]|[01]?\d"))
        assert (done.text, done.finish_reason) == ("11", "stop")

    def test_samples_have_matchers_of_their_own(self, make_engine) -> None:
        """B29: every sample matches, each with its own finish reason; the prompt counts once."""
        engine, _ = make_engine()
        stream = engine.submit(request("color: ", n=3, regex="(red|blue)", temperature=1, seed=2))
        events = list(stream)
        end = events[-1]
        assert [c.index for c in end.completions] == [0, 1, 2]
        assert {c.text for c in end.completions} <= {"red", "blue"}
        assert [c.finish_reason for c in end.completions] == ["stop"] * 3
        assert end.usage.prompt_tokens == len("color: ")
        last = [e.index for e in events[:-1] if e.finish_reason]
        assert sorted(last) == [0, 1, 2]

    def test_choices_that_are_prefixes(self, make_engine) -> None:
        """B28: the end of the text is a step of its own after `sun`, and nothing is added to a choice."""
        engine, _ = make_engine()
        stream = engine.submit(request(n=60, choices=("sun", "sunset", "moon"), temperature=1, seed=3))
        found = [c.text for c in list(stream)[-1].completions]
        assert set(found) == {"sun", "sunset", "moon"}

    def test_forced_tokens_are_marked(self, make_engine) -> None:
        for jump_forward in (False, True):
            engine, _ = make_engine(jump_forward=jump_forward)
            *tokens, _ = engine.submit(request(regex="[ab]-xy-[ab]"))
            sizes = [(len(e.token_ids), e.forced) for e in tokens]
            middle = [(4, True)] if jump_forward else [(1, True)] * 4
            assert sizes == [(1, False), *middle, (1, False)]

    @pytest.mark.parametrize("params", [{"min_tokens": 64}, {"ignore_eos": True}])
    @pytest.mark.parametrize("constraint", [{"choices": ("7",)}, {"regex": "7"}, {"choices": ("", "")}])
    def test_the_constraint_wins(self, make_engine, params, constraint) -> None:
        """B46: a finished grammar ends the text, neighbours go on."""
        engine, model = make_engine()
        stream = engine.submit(request(**params, **constraint, max_tokens=100))
        (neighbour,) = engine.generate(["abc"], GREEDY)
        (done,) = list(stream)[-1].completions
        assert done.text == ("" if constraint == {"choices": ("", "")} else "7")
        assert done.finish_reason == "stop"
        assert list(neighbour.token_ids) == model.greedy(b"abc", 12, stop_at_eos=False)

    def test_bias_lifts_no_mask(self, make_engine) -> None:
        """B48: hard masks hold last."""
        engine, _ = make_engine()
        digit, seven = engine.generate(
            ["x", "x"],
            [
                SamplingParams(regex="[0-9]", logit_bias={ord("a"): 100}),
                SamplingParams(regex="7", logit_bias={ord("7"): -100}),
            ],
        )
        assert digit.text in "0123456789" and seven.text == "7"

    def test_penalties_do_not_depend_on_the_order(self, make_engine) -> None:
        """B48: a neighbour's penalty is the neighbour's."""
        engine, model = make_engine()
        punished = SamplingParams(temperature=0, repetition_penalty=2, max_tokens=20, ignore_eos=True)
        plain = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
        one = engine.generate(["tea tea", "tea tea"], [punished, plain])
        two = engine.generate(["tea tea", "tea tea"], [plain, punished])
        assert [c.token_ids for c in one] == [c.token_ids for c in reversed(two)]
        assert list(one[1].token_ids) == model.greedy(b"tea tea", 20, stop_at_eos=False)

    @pytest.mark.parametrize(
        "params", [{"regex": "ab**"}, {"regex": "(ab"}, {"regex": "[z-a]"}, {"regex": "a{3,1}"}]
    )
    def test_a_broken_constraint_fails_alone(self, make_engine, params) -> None:
        """B03: the fault is the request's own."""
        engine, model = make_engine()
        good = engine.submit(Request(prompt_ids=(1, 2), params=GREEDY))
        (end,) = engine.submit(request(**params))
        assert isinstance(end, Failed) and isinstance(end.error, InvalidConstraint)
        assert list(list(good)[-1].completions[0].token_ids) == model.greedy((1, 2), 12, stop_at_eos=False)
