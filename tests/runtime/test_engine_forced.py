"""Jump-forward in the engine: same answers whatever the schedule, fewer steps, and limits that hold."""

from __future__ import annotations

import re

import numpy as np
import pytest
from oracles.history_model import EOS, HistoryModel, Reciter, idle, random_prompts, request
from oracles.merges import bpe_tokenizer, read_tokens

from treille.runtime.forced import JumpForward
from treille.runtime.grammar import Vocabulary, compile_regex
from treille.runtime.matching import TokenIndex
from treille.runtime.params import SamplingParams
from treille.runtime.sequence import Sequence
from treille.runtime.types import Failed, Finished, TokenEvent

RECORD = r'\{"name": "[a-z]{1,5}", "type": "(string|number)"(, "names": \["(ab|abc)"\])?\}'
URL = r"(https|http)://(www\.)?example\.(org|com)/(index\.html)?"
WORDS = r"(inter|intern|internal|international)( sun| sunset| sunday){1,3}"
PATTERNS = (RECORD, URL, WORDS, r"[水火]über(水火|水木)", "a{3}(b|c)(then|there){2}")
PROMPTS = random_prompts(10, 1, 30, shared=7)


def by_hand(model: HistoryModel, prompt: tuple[int, ...], pattern: str, room: int) -> list[int]:
    """What a greedy engine must answer: no pages, no batch, a jump after each token."""
    tokenizer = bpe_tokenizer()
    vocab, index = Vocabulary.from_tokenizer(tokenizer), TokenIndex(tokenizer.token_bytes)
    jumps = JumpForward(tokenizer, lambda: index)
    matcher, output = compile_regex(pattern, vocab).matcher(), []
    while True:
        jump = jumps.find(output, matcher, room=room - len(output))
        if jump is not None:
            output = [*output[: len(output) - jump.num_replaced], *jump.token_ids]
            matcher = jump.matcher
        if len(output) >= room or matcher.must_stop():
            return output
        row = np.zeros(vocab.num_words, np.uint32)
        matcher.fill_mask(row)
        mask = np.unpackbits(row.view(np.uint8), bitorder="little", count=model.num_tokens).astype(bool)
        token_id = int(np.where(mask, model.logits([*prompt, *output]), -np.inf).argmax())
        matcher.accept(token_id)
        output.append(token_id)
        if token_id in tokenizer.eos_ids:
            return output


class TestSameAnswer:
    @pytest.mark.parametrize("caching", [True, False])
    @pytest.mark.parametrize(("chunk", "page_size"), [(1, 4), (5, 1), (512, 16), (512, 3)])
    def test_equals_jumping_by_hand(self, make_engine, chunk, page_size, caching) -> None:
        engine, model = make_engine(
            tokenizer=bpe_tokenizer(),
            max_batched_tokens=chunk,
            page_size=page_size,
            enable_prefix_caching=caching,
            max_num_seqs=6,
        )
        patterns = [PATTERNS[n % len(PATTERNS)] for n in range(len(PROMPTS))]
        params = [SamplingParams(temperature=0, max_tokens=40, regex=pattern) for pattern in patterns]
        expected = [by_hand(model, p, q, 40) for p, q in zip(PROMPTS, patterns, strict=True)]
        for _ in range(2):  # the second time on a warm cache
            done = engine.generate(PROMPTS, params)
            assert [list(c.token_ids) for c in done] == expected
        assert all(
            re.fullmatch(q, c.text) for q, c in zip(patterns, done, strict=True) if c.finish_reason == "stop"
        )
        assert engine.stats()["forced_tokens"] > 0
        assert idle(engine)

    @pytest.mark.parametrize("caching", [True, False])
    def test_preemption(self, make_engine, caching) -> None:
        engine, model = make_engine(
            tokenizer=bpe_tokenizer(),
            max_seq_len=64,
            kv_memory=18 * 4 * 64,
            enable_prefix_caching=caching,
            max_num_seqs=16,
        )
        pattern = '([ab]"name": "[cd]international", ){4}'
        params = SamplingParams(temperature=0, max_tokens=34, regex=pattern)
        prompts = random_prompts(16, 1, 20, shared=2)
        done = engine.generate(prompts, params)
        assert [list(c.token_ids) for c in done] == [by_hand(model, p, pattern, 34) for p in prompts]
        assert engine.stats()["preemptions"] > 0
        assert idle(engine)

    @pytest.mark.parametrize("temperature", [0, 1])
    def test_with_and_without_where_there_is_one_spelling(self, make_engine, temperature) -> None:
        """A token a byte: the tokenizer's tokens are all that there are, so nothing may change at all."""
        answers = []
        for jump_forward in (True, False):
            engine, model = make_engine(jump_forward=jump_forward)
            params = [
                SamplingParams(temperature=temperature, max_tokens=60, regex=pattern, seed=n, n=2)
                for n, pattern in enumerate(PATTERNS)
            ]
            done = engine.generate(PROMPTS[: len(PATTERNS)], params)
            answers.append([(c.token_ids, c.text, c.finish_reason, c.usage.completion_tokens) for c in done])
            answers.append(len(model.steps))
        with_jumps, few, without, many = answers
        assert with_jumps == without and few < many / 2

    def test_samples_have_jumps_of_their_own(self, make_engine) -> None:
        engine, _ = make_engine(tokenizer=bpe_tokenizer())
        *events, end = engine.submit(request(regex=WORDS, n=6, temperature=1, seed=4, max_tokens=60))
        assert len({c.text for c in end.completions}) > 2
        for c in end.completions:
            assert re.fullmatch(WORDS, c.text)
            assert read_tokens(events, c.index) == c.token_ids
            assert "".join(e.text for e in events if e.index == c.index) == c.text
        assert end.usage.completion_tokens == sum(len(c.token_ids) for c in end.completions)


class TestEvents:
    def test_events_add_up(self, make_engine) -> None:
        engine, _ = make_engine(tokenizer=bpe_tokenizer())
        replaced = 0
        for seed in range(20):
            stream = engine.submit(request(regex=WORDS, temperature=1, seed=seed, max_tokens=60))
            *events, end = stream
            (done,) = end.completions
            assert read_tokens(events) == done.token_ids
            assert "".join(e.text for e in events) == done.text
            assert [e.finish_reason is not None for e in events] == [False] * (len(events) - 1) + [True]
            assert all(e.forced for e in events if len(e.token_ids) != 1)
            replaced += sum(e.num_replaced for e in events)
        assert replaced > 0

    def test_all_of_it_is_forced(self, make_engine) -> None:
        """No token of the prompt is computed: nobody asks the model anything."""
        engine, model = make_engine(tokenizer=bpe_tokenizer())
        text = '{"name": "value"}'
        for n in (1, 3):
            *events, end = engine.submit(request(regex=re.escape(text), n=n))
            assert [(e.text, e.forced, e.finish_reason) for e in events] == [(text, True, "stop")] * n
            assert isinstance(end, Finished) and len(end.completions) == n
            ids = bpe_tokenizer().encode(text, add_bos=False)
            assert list(end.completions[0].token_ids) == ids
            assert end.completions[0].usage.completion_tokens == len(ids)
        computed = sum(map(sum, model.steps))
        assert computed <= 2  # the prompt that several samples share
        assert idle(engine)

    def test_the_model_is_asked_once_a_choice(self, make_engine) -> None:
        engine, model = make_engine()
        engine.generate(["ab"], SamplingParams(temperature=0, regex="xxxx[ab]yyyyyyyy[ab]zz", max_tokens=99))
        assert model.steps == [[2 + 4], [1 + 8]]

    def test_aborting(self, make_engine) -> None:
        engine, _ = make_engine(tokenizer=bpe_tokenizer())
        stream = engine.submit(request(regex=r'("name": "[a-z]", ){200}', max_tokens=490))
        next(stream)
        stream.abort()
        end = list(stream)[-1]
        assert end.completions[0].finish_reason in ("abort", "stop", "length")
        assert idle(engine)


class TestLimits:
    @pytest.mark.parametrize("room", range(1, 14))
    def test_max_tokens(self, make_engine, room) -> None:
        engine, _ = make_engine(tokenizer=bpe_tokenizer())
        (done,) = engine.generate(
            ["ab"], SamplingParams(temperature=0, regex='"name": "value", "number": 12!!!', max_tokens=room)
        )
        whole = bpe_tokenizer().encode('"name": "value", "number": 12!!!', add_bos=False)
        assert list(done.token_ids) == whole[:room]
        assert done.finish_reason == ("stop" if room >= len(whole) else "length")

    def test_the_context_is_full(self, make_engine) -> None:
        engine, _ = make_engine(max_seq_len=16)
        (done,) = engine.generate([[1] * 10], SamplingParams(regex="[ab]x{40}", max_tokens=100))
        assert len(done.token_ids) == 6 and done.finish_reason == "length"
        assert idle(engine)

    @pytest.mark.parametrize("jump_forward", [True, False])
    @pytest.mark.parametrize(
        ("fields", "text", "stop"),
        [
            ({"stop": ("2;3",)}, "1;", "2;3"),
            ({"stop": ("3;", "9")}, "1;2;", "3;"),
            ({"stop_regex": r"\d;4"}, "1;2;", r"\d;4"),
            ({"stop_token_ids": (ord("3"),)}, "1;2;", ord("3")),
            ({"stop": (";",), "min_tokens": 4}, "1;2", ";"),
            ({"stop": ("x",)}, "1;2;3;4", None),
        ],
    )
    def test_stops_in_forced_text(self, make_engine, fields, text, stop, jump_forward) -> None:
        engine, _ = make_engine(jump_forward=jump_forward)
        *events, end = engine.submit(request(regex="1;2;3;4", **fields))
        (done,) = end.completions
        assert (done.text, done.finish_reason, done.stop_reason) == (text, "stop", stop)
        assert "".join(e.text for e in events) == text
        assert read_tokens(events) == done.token_ids

    @pytest.mark.parametrize(
        "fields", [{"min_tokens": 30}, {"ignore_eos": True}, {"logit_bias": {120: -100}}]
    )
    def test_the_constraint_wins(self, make_engine, fields) -> None:
        engine, _ = make_engine()
        (done,) = engine.generate(["ab"], SamplingParams(regex="[ab]xyz", **fields))
        assert done.text[1:] == "xyz" and done.finish_reason == "stop"

    def test_log_probabilities_are_the_models_own(self, make_engine) -> None:
        engine, model = make_engine()
        *events, end = engine.submit(request("ab", regex="[ab]xyz[ab]", logprobs=2))
        (done,) = end.completions
        assert [len(e.token_ids) for e in events] == [1] * 5
        for n, entry in enumerate(done.logprobs):
            logits = model.logits([*b"ab", *done.token_ids[:n]])
            assert entry.logprob == pytest.approx(
                logits[done.token_ids[n]] - np.logaddexp.reduce(logits), abs=1e-4
            )

    def test_settings(self, make_engine) -> None:
        with pytest.raises(ValueError, match="jump_forward"):
            make_engine(jump_forward=1)


class TestMatchersInTheEngine:
    """B45, with what the engine commits in place of drafts."""

    def test_each_step_leaves_a_matcher_that_has_read_the_tokens(self, make_engine, monkeypatch) -> None:
        engine, _ = make_engine(tokenizer=bpe_tokenizer())
        grammars = {p: compile_regex(p, Vocabulary.from_tokenizer(bpe_tokenizer())) for p in PATTERNS}
        checked = []

        def check(seq: Sequence) -> None:
            fresh = grammars[seq.params.regex].matcher()
            for token_id in seq.output_ids:
                fresh.accept(token_id)
            rows = np.zeros((2, fresh.grammar.vocab.num_words), np.uint32)
            seq.matcher.fill_mask(rows[0])
            fresh.fill_mask(rows[1])
            assert np.array_equal(rows[0], rows[1])
            assert seq.matcher.num_accepted == len(seq.output_ids)
            assert seq.tokens[seq.num_prompt :].tolist() == seq.output_ids
            checked.append(len(seq.output_ids))

        core = engine._core
        step = core.step

        def checked_step() -> None:
            step()
            for group in core._groups.values():
                for seq in group.live:
                    if seq.matcher is not None:
                        check(seq)
            core.scheduler.check()

        monkeypatch.setattr(core, "step", checked_step)
        params = [SamplingParams(temperature=1, regex=p, max_tokens=60, seed=9, n=2) for p in PATTERNS]
        done = engine.generate(PROMPTS[: len(PATTERNS)], params)
        assert len(done) == 2 * len(PATTERNS) and len(checked) > 20

    def test_a_place_sampled_twice_draws_anew(self, make_engine) -> None:
        """Where a token was replaced by the tokenizer's, its number is not drawn again."""
        engine, _ = make_engine(tokenizer=bpe_tokenizer())
        core, seeds = engine._core, []
        original = core._sample_row

        def watching(seq, mask):
            row = original(seq, mask)
            seeds.append((row.seed, len(row.output_ids)))
            return row

        core._sample_row = watching
        for seed in range(10):
            engine.generate(["ab"], SamplingParams(regex=WORDS, seed=seed, max_tokens=60))
        assert len(seeds) == len(set(seeds))


def test_what_the_model_wants_decides_where_nothing_is_certain(make_engine) -> None:
    """`sun` may be the whole text or the beginning of `sunset`: its last token is the model's."""
    words = (b"sun", b"sunset", b"set")
    for script, text in (([258], "sunset"), ([257, EOS], "sun"), ([257, 259], "sunset")):
        engine, _ = make_engine(Reciter(script, start=1, num_tokens=260), words=words)
        *events, end = engine.submit(request("x", choices=("sun", "sunset")))
        assert not isinstance(end, Failed)
        assert end.completions[0].text == text
        assert next(e.token_ids for e in events if isinstance(e, TokenEvent)) == (script[0],)
