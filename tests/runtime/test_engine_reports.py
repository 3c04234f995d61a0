"""Faults that were reported for other engines, on this one: B04, B28, B31, B32, B36, B46, B48."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from oracles.history_model import EOS, GREEDY, VOCAB, HistoryModel, Reciter, byte_tokenizer, request

from treille.radix.errors import PageError
from treille.runtime.config import resolve_config
from treille.runtime.core import EngineCore
from treille.runtime.errors import InvalidRequest
from treille.runtime.group import Start
from treille.runtime.matching import TokenIndex
from treille.runtime.models.load import LoadedModel
from treille.runtime.params import SamplingParams
from treille.runtime.sequence import Sequence
from treille.runtime.types import Event, Failed, Finished, Request

HOUR = r"2[0-3]|[01]?\d"


class TestB04:
    """The hour: nothing follows a text that is complete."""

    @pytest.mark.parametrize("ending", [{}, {"ignore_eos": True}, {"min_tokens": 9}])
    def test_the_text_ends_with_the_pattern(self, make_engine, history_model, ending) -> None:
        history_model.bias[ord("1")] = 50
        engine, _ = make_engine(history_model)
        *_, end = engine.submit(request("at ", regex=HOUR, **ending))
        (done,) = end.completions
        assert (done.text, done.finish_reason) == ("11", "stop")

    @pytest.mark.parametrize(("after", "text"), [("<eos>", "2"), *((c, f"2{c}") for c in "0123")])
    def test_after_a_2_the_text_may_end_or_go_on(self, make_engine, after, text) -> None:
        script = [ord("2"), EOS if after == "<eos>" else ord(after), ord("9")]
        engine, _ = make_engine(Reciter(script, start=3))
        *_, end = engine.submit(request("at ", regex=HOUR))
        assert (end.completions[0].text, end.completions[0].finish_reason) == (text, "stop")

    def test_nothing_else_may_follow_a_2(self, make_engine) -> None:
        engine, _ = make_engine(Reciter(b"29", start=3))
        *_, end = engine.submit(request("at ", regex=HOUR))
        assert end.completions[0].text in {"2", "20", "21", "22", "23"}


class TestB28:
    """Choices of which one begins another."""

    CHOICES = ("sun", "sunset", "moon")
    WORDS = (b"sun", b"set")

    def exact(self, model: HistoryModel, prompt: bytes) -> dict[str, float]:
        """Each choice's probability, by hand: over all ways to spell it, the end of the text a step too."""
        spellings = [bytes([byte]) for byte in range(256)] + [b""] + list(self.WORDS)
        found = dict.fromkeys(self.CHOICES, 0.0)
        paths = [((), "", 1.0)]
        while paths:
            ids, text, reached = paths.pop()
            legal = {
                t: text + spellings[t].decode("latin-1")
                for t in range(model.num_tokens)
                if t != EOS and any(c.startswith(text + spellings[t].decode("latin-1")) for c in self.CHOICES)
            }
            if text in self.CHOICES:
                legal[EOS] = text
            logits = model.logits((*prompt, *ids))[list(legal)]
            weights = np.exp(logits - logits.max())
            for (token_id, longer), weight in zip(legal.items(), weights / weights.sum(), strict=True):
                if token_id == EOS:
                    found[text] += reached * weight
                else:
                    paths.append(((*ids, token_id), longer, reached * weight))
        return found

    def test_probabilities_count_the_end(self, make_engine) -> None:
        # Jumping forward writes `sun` by its own token once there is an `s`: other ways are not taken.
        engine, model = make_engine(words=self.WORDS, jump_forward=False)
        exact = self.exact(model, b"the ")
        assert sum(exact.values()) == pytest.approx(1.0)
        assert min(exact.values()) > 0.01
        count = 128 * 12
        params = SamplingParams(choices=self.CHOICES, n=128)
        done = engine.generate(["the "] * 12, params)
        drawn = Counter(completion.text for completion in done)
        assert set(drawn) == set(self.CHOICES)  # and nothing around a choice
        for choice, chance in exact.items():
            spread = math.sqrt(count * chance * (1 - chance))
            assert abs(drawn[choice] - count * chance) < 4 * spread, choice


class TestB31:
    """A stop string over several tokens."""

    WORDS = (b"<<", b"en", b"d>", b"X")

    def run(self, make_engine, script, prompt=b"prompt", **params) -> tuple[list[str], Finished]:
        model = Reciter(script, start=len(prompt), num_tokens=VOCAB + len(self.WORDS))
        engine, _ = make_engine(model, words=self.WORDS)
        *tokens, end = engine.submit(request(prompt, **params))
        return [event.text for event in tokens], end

    @pytest.mark.parametrize(
        ("said", "stop", "texts", "stopped"),
        [
            ((257, 258, 259, ord(">")), "<<end>>", ["", "", "", ""], True),
            ((257, 258, 260), "<<end>>", ["", "", "<<enX", ""], False),
            ((257, 258), "<<end>>", ["", "", "<<en"], False),
            (b"1;2;3", "2;3", ["1", ";", "", "", ""], True),
        ],
    )
    def test_only_what_is_certain_is_streamed(self, make_engine, said, stop, texts, stopped) -> None:
        streamed, end = self.run(make_engine, said, stop=stop)
        (done,) = end.completions
        assert streamed == texts
        assert done.text == "".join(texts)
        assert (done.finish_reason, done.stop_reason) == ("stop", stop if stopped else None)

    def test_the_prompt_does_not_count(self, make_engine) -> None:
        for prompt in (b"a <<end>>", b"a <<en"):  # whole, or begun
            streamed, end = self.run(make_engine, b"d>>!", prompt, stop="<<end>>")
            assert "".join(streamed) == end.completions[0].text == "d>>!"
            assert end.completions[0].stop_reason is None


class TestB32:
    """Tokens that end inside a character."""

    def test_each_character_is_streamed_once(self, make_engine) -> None:
        """The text seen so far is `B 水` and a part, `B 水火` and a part, `B 水火木`."""
        water, fire, wood = ("水".encode(), "火".encode(), "木".encode())
        words = (b"B " + water + fire[:1], fire[1:] + wood[:2], wood[2:])
        model = Reciter(range(VOCAB, VOCAB + 3), start=1, num_tokens=VOCAB + 3)
        engine, _ = make_engine(model, words=words)
        *tokens, end = engine.submit(request("?"))
        assert [event.text for event in tokens] == ["B 水", "火", "木", ""]
        assert end.completions[0].text == "B 水火木"

    @pytest.mark.parametrize("said", [b"\xac", b"A", b"\xac\xac"])
    def test_no_text_of_the_prompt_is_streamed(self, make_engine, said) -> None:
        engine, _ = make_engine(Reciter(said, start=9))
        *tokens, end = engine.submit(request(b"secret " + b"\xe2\x82"))
        assert tokens[0].text == ("A" if said == b"A" else "€")
        text = "".join(event.text for event in tokens)
        assert text == end.completions[0].text == {b"\xac": "€", b"A": "A", b"\xac\xac": "€�"}[said]


class Steps:
    """An `EngineCore` that is stepped by hand, its pages counted anew after each step."""

    def __init__(self, **settings: int) -> None:
        model = HistoryModel()
        loaded = LoadedModel("history", model.config, model, byte_tokenizer(), None)
        fixed = {"max_num_seqs": 8, "max_batched_tokens": 64, "max_queued": 8, "page_size": 4, "seed": 0}
        config = resolve_config(
            model.config,
            page_bytes=model.page_bytes,
            device="cpu",
            available=1 << 30,
            max_seq_len=64,
            kv_memory=40 * 4 * 64,
            enable_prefix_caching=True,
            schedule_policy="lpm",
            eviction="lru",
            host_memory=None,
            cache_file=None,
            jump_forward=True,
            **(fixed | settings),
        )
        self.core = EngineCore(loaded, config, lambda: TokenIndex(loaded.tokenizer.token_bytes))
        self.sequences: list[Sequence] = []
        self.ends: list[Event] = []
        add = self.core.scheduler.add
        self.core.scheduler.add = lambda seqs, **more: add(self.seen(seqs), **more)

    def seen(self, seqs: list[Sequence]) -> list[Sequence]:
        self.sequences.extend(seqs)
        return seqs

    def of(self, name: str) -> list[Sequence]:
        return [seq for seq in self.sequences if seq.request_id == name]

    def add(self, name: str, prompt, **params) -> None:
        self.core.add(
            name,
            Request(prompt_ids=tuple(prompt), params=SamplingParams(**({"temperature": 0} | params))),
            seed=0,
            start=Start(),
            put=self.ends.append,
        )
        self.check()

    def step(self) -> None:
        self.core.step()
        self.check()

    def finish(self) -> None:
        while self.core.busy:
            self.step()

    def check(self) -> None:
        """free + evictable + in use == total; what is in use is read off the sequences."""
        cache = self.core.cache
        used = {page for seq in self.sequences for page in seq.page_row[: seq.num_pages].tolist()}
        used |= {seq.lease.partial[0] for seq in self.sequences if seq.lease and seq.lease.partial}
        assert cache.num_free + cache.num_evictable + len(used) == cache.num_pages == 40
        owned = [page for seq in self.sequences for page in seq.owned]
        assert len(owned) == len(set(owned)) == cache.num_owned
        self.core.scheduler.check()


class TestB36:
    """Every page is in one class after every step, however its sequence ends."""

    def test_pages_add_up_after_every_step(self) -> None:
        steps = Steps()
        steps.add("1", range(10), max_tokens=5, ignore_eos=True)
        steps.step()
        steps.add("2", [*range(6), 60, 61, 62], max_tokens=5, ignore_eos=True)
        steps.step()
        assert steps.of("2")[0].cached_tokens == 6  # one page borrowed, two tokens of the next one copied
        steps.finish()
        steps.add("edge", [9] * 8, max_tokens=5, ignore_eos=True)  # 12 of its 13 tokens are computed
        steps.finish()
        (edge,) = steps.of("edge")
        assert len(edge.tokens) == 13 and steps.core.cache.lookup(edge.tokens, namespace=edge.namespace) == 12
        self.restored(steps)

    @pytest.mark.parametrize("params", [{}, {"n": 3}])
    @pytest.mark.parametrize("chunk", [3, 64])
    def test_an_abort_between_prefill_and_decode(self, params, chunk) -> None:
        steps = Steps(max_batched_tokens=chunk)
        steps.add("other", range(10), max_tokens=9, ignore_eos=True)
        steps.add("gone", [*range(6), 70, 71], max_tokens=9, ignore_eos=True, **params)
        while steps.of("gone")[0].num_computed < 8 and len(steps.of("gone")) == 1:
            steps.step()
        done = [len(seq.output_ids) for seq in steps.of("gone")]
        assert done == (
            [1] if not params else [0] * 4
        )  # n samples wait for the sequence that fills the prompt
        assert steps.core.abort("gone")
        steps.check()
        assert not steps.core.abort("gone")
        steps.check()
        steps.finish()
        self.restored(steps)

    def test_a_second_release_is_an_error(self) -> None:
        steps = Steps()
        steps.add("1", range(10), max_tokens=5, ignore_eos=True)
        steps.step()
        (seq,) = steps.sequences
        lease, owned, cache = seq.lease, list(seq.owned), steps.core.cache
        steps.finish()
        with pytest.raises(PageError):
            cache.release(lease, seq.tokens[: lease.num_tokens], owned)
        with pytest.raises(PageError):
            cache.free(owned)
        with pytest.raises(RuntimeError, match="finished"):
            seq.leave(seq.status)
        steps.check()
        self.restored(steps)

    def restored(self, steps: Steps) -> None:
        cache = steps.core.cache
        assert cache.num_owned == cache.num_locked == 0 < cache.num_cached
        cache.flush()
        steps.check()
        assert cache.num_free == cache.num_pages


class TestB46:
    """A constraint that leaves nothing but the end, and one that leaves nothing at all."""

    @pytest.mark.parametrize("fields", [{"min_tokens": 64}, {"ignore_eos": True}])
    @pytest.mark.parametrize("temperature", [0, 1])
    @pytest.mark.parametrize("constraint", [{"regex": "7"}, {"choices": ("7",)}, {"choices": ("",)}])
    def test_the_last_way_on_wins(self, make_engine, fields, temperature, constraint) -> None:
        engine, _ = make_engine()
        *tokens, end = engine.submit(request(temperature=temperature, logprobs=0, **constraint, **fields))
        (done,) = end.completions
        assert (done.text, done.finish_reason) == ("" if constraint == {"choices": ("",)} else "7", "stop")
        assert all(entry.logprob > -100 for event in tokens for entry in event.logprobs)

    def test_min_tokens_goes_on_where_the_constraint_can(self, make_engine, history_model) -> None:
        history_model.bias[EOS] = 50
        engine, _ = make_engine(history_model)
        params = [SamplingParams(regex=r"\d{1,9}", min_tokens=count, max_tokens=20) for count in (0, 4, 20)]
        found = [len(done.text) for done in engine.generate(["x"] * 3, params)]
        assert found == [1, 4, 9]

    @pytest.mark.parametrize("temperature", [0, 1])
    def test_an_empty_intersection_is_that_requests_error(self, make_engine, temperature) -> None:
        """The model gives a probability of 0 to all that the constraint allows."""
        model = HistoryModel()
        model.bias[[ord("7"), ord("8")]] = -math.inf
        engine, _ = make_engine(model)
        neighbours = [engine.submit(Request(prompt_ids=(1, i), params=GREEDY)) for i in range(3)]
        *tokens, end = engine.submit(request(regex="ab[78]", temperature=temperature))
        assert "".join(event.text for event in tokens) == "ab"
        assert isinstance(end, Failed) and isinstance(end.error, InvalidRequest)
        for i, stream in enumerate(neighbours):
            *_, last = stream
            assert list(last.completions[0].token_ids) == model.greedy((1, i), 12, stop_at_eos=False)
        assert engine.is_alive


def greedy_with(model: HistoryModel, prompt: bytes, count: int, change) -> list[int]:
    """Brute force with logits changed by `change(logits, prompt, output)`."""
    output: list[int] = []
    for _ in range(count):
        logits = model.logits([*prompt, *output])
        change(logits, prompt, output)
        output.append(int(logits.argmax()))
    return output


def repeat(logits, prompt, output) -> None:
    seen = sorted({*prompt, *output})
    logits[seen] = np.where(logits[seen] > 0, logits[seen] / 2, logits[seen] * 2)


def presence(logits, prompt, output) -> None:
    logits[sorted(set(output))] -= 2


def frequency(logits, prompt, output) -> None:
    for token_id in output:
        logits[token_id] -= 2


class TestB48:
    """Penalties, biases and masks, each request's own and in one order."""

    TEA = b"tea tea"

    @pytest.fixture
    def fond_of_tea(self) -> HistoryModel:
        """Without a penalty it says the letters of its prompt again and again."""
        model = HistoryModel()
        model.bias[[*b"tea "]] = 4
        return model

    @pytest.mark.parametrize(
        ("fields", "change"),
        [
            ({"repetition_penalty": 2}, repeat),
            ({"presence_penalty": 2}, presence),
            ({"frequency_penalty": 2}, frequency),
        ],
    )
    def test_what_penalties_look_at_and_whose_they_are(
        self, make_engine, fond_of_tea, fields, change
    ) -> None:
        # First come, first served: else the longest cached prompt would be the first row in each order.
        engine, model = make_engine(fond_of_tea, schedule_policy="fcfs")
        plain = {"temperature": 0, "max_tokens": 15, "ignore_eos": True}
        punished, free = SamplingParams(**plain, **fields), SamplingParams(**plain)
        expected = greedy_with(model, self.TEA, 15, change)
        assert expected != model.greedy(self.TEA, 15, stop_at_eos=False)
        unpunished = model.greedy(b"quiz", 15, stop_at_eos=False)
        for order in ([punished, free], [free, punished], [free, punished, free]):
            prompts = [self.TEA if params is punished else b"quiz" for params in order]
            done = engine.generate([prompt.decode() for prompt in prompts], order)
            for params, completion in zip(order, done, strict=True):
                assert list(completion.token_ids) == (expected if params is punished else unpunished)

    def test_presence_leaves_the_prompts_tokens_alone(self, make_engine, fond_of_tea) -> None:
        engine, model = make_engine(fond_of_tea)
        first = int(model.logits(self.TEA).argmax())
        assert first in self.TEA
        (done,) = engine.generate(
            ["tea tea"], SamplingParams(temperature=0, presence_penalty=2, max_tokens=1)
        )
        assert done.token_ids == (first,)
        fields = {"temperature": 0, "repetition_penalty": 100, "max_tokens": 1, "ignore_eos": True}
        (done,) = engine.generate(["tea tea"], SamplingParams(**fields))
        assert done.token_ids[0] not in self.TEA

    @pytest.mark.parametrize("temperature", [0, 1])
    def test_masks_hold_last(self, make_engine, temperature) -> None:
        engine, _ = make_engine()
        digit, seven = engine.generate(
            ["x", "x"],
            [
                SamplingParams(temperature=temperature, regex="[0-9]", logit_bias={ord("a"): 100}),
                SamplingParams(temperature=temperature, regex="7", logit_bias={ord("7"): -100}),
            ],
        )
        assert digit.text in set("0123456789")
        assert seven.text == "7"

    @pytest.mark.parametrize("repetition", [0.01, 100])
    def test_penalties_lift_no_minus_infinity(self, make_engine, repetition) -> None:
        model = HistoryModel()
        model.bias[200:256] = -math.inf
        engine, _ = make_engine(model)
        fields = {"repetition_penalty": repetition, "presence_penalty": -2, "frequency_penalty": -2}
        bias = dict.fromkeys(range(200, 256), 100.0)
        params = SamplingParams(**fields, logit_bias=bias, max_tokens=30, ignore_eos=True, n=8)
        done = engine.generate([list(range(256))], params)
        assert len(done) == 8
        assert all(not 200 <= token_id < 256 for completion in done for token_id in completion.token_ids)

    @pytest.mark.parametrize(
        "fields",
        [
            {"temperature": 0, "top_p": 0},
            {"temperature": 0, "top_k": 0},
            {"temperature": 0, "top_p": 0, "top_k": 0},
            {"temperature": 1, "top_p": 0},
            {"temperature": 2, "top_k": 1},
        ],
    )
    def test_the_likeliest_token_alone(self, make_engine, fields) -> None:
        engine, model = make_engine()
        (done,) = engine.generate(["abc"], SamplingParams(**fields, max_tokens=9, ignore_eos=True))
        assert list(done.token_ids) == model.greedy(b"abc", 9, stop_at_eos=False)
