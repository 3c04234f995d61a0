"""Healing the seam between prompt and output: what is taken back, masks by brute force, byte-exact text."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.history_model import HistoryModel, Reciter, byte_tokenizer, idle, request
from oracles.merges import bpe_tokenizer, read_tokens

from treille.runtime.engine import Engine
from treille.runtime.errors import GrammarError, InvalidRequest
from treille.runtime.grammar import Vocabulary, compile_choices
from treille.runtime.healing import HealedMatcher, Seam, released, take_back
from treille.runtime.matching import TokenIndex
from treille.runtime.params import SamplingParams
from treille.runtime.types import Request

WORDS = (b"ab", b"abc", b"bcd", b"cd", b"://", b":/", b"http", b"da")
TOKENS = byte_tokenizer(words=WORDS)
INDEX = TokenIndex(TOKENS.token_bytes)
VOCABULARY = Vocabulary.from_tokenizer(TOKENS)


def ids(*pieces: bytes) -> list[int]:
    return [INDEX.same(piece)[0] for piece in pieces]


class TestTakeBack:
    @pytest.mark.parametrize(
        ("prompt", "taken"),
        [
            ([b"x", b"http", b":"], b":"),
            ([b"x", b":", b"/"], b":/"),  # `://` begins two tokens back
            ([b"x", b"a", b"b"], b"ab"),
            ([b"x", b"ab", b"c"], b"abc"),  # `bcd` begins inside of `ab`: whole tokens are taken back
            ([b"x", b"y", b"z"], b""),
            ([b"a"], b""),  # something of the prompt stays
            ([b"a", b"b"], b"b"),
        ],
    )
    def test_as_far_as_a_token_may_reach(self, prompt, taken) -> None:
        count, found = take_back(ids(*prompt), INDEX)
        assert found == taken == b"".join(prompt[len(prompt) - count :])

    def test_marks_stay(self) -> None:
        assert take_back([1, 256, *ids(b":")], INDEX) == (1, b":")
        assert take_back([1, *ids(b":"), 256], INDEX) == (0, b"")
        assert take_back([1, 10_000, *ids(b":")], INDEX) == (1, b":")


def texts_from(matcher_texts: list[str] | None, taken: bytes) -> list[bytes] | None:
    return None if matcher_texts is None else [taken + text.encode() for text in matcher_texts]


def allowed(matcher) -> set[int]:
    row = np.zeros(VOCABULARY.num_words, np.uint32)
    matcher.fill_mask(row)
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


class TestMatcher:
    @given(
        st.sampled_from([b":", b":/", b"ab", b"abc", b"a", b"da", b"http:"]),
        st.lists(st.text("abcd:/", max_size=5), min_size=1, max_size=5) | st.none(),
        st.randoms(use_true_random=False),
    )
    @settings(max_examples=200, deadline=None)
    def test_against_brute_force(self, taken, choices, random) -> None:
        """Of the texts that begin with what was taken back, it allows all beginnings and nothing else."""
        whole = None if choices is None else [taken + text.encode() for text in choices]
        inner = None if choices is None else compile_choices(choices, VOCABULARY).matcher()
        matcher = Seam(taken, INDEX, inner).matcher()
        text, path = b"", []
        for _ in range(12):
            expected = set()
            for token_id, spelling in enumerate(TOKENS.token_bytes):
                longer = text + (spelling or b"")
                if not spelling:
                    continue
                if whole is None:
                    good = longer.startswith(taken) or taken.startswith(longer)
                else:
                    good = any(one.startswith(longer) for one in whole)
                if good:
                    expected.add(token_id)
            if whole is not None and text in whole:
                expected |= TOKENS.eos_ids
            if whole is None and len(text) >= len(taken):
                assert matcher.is_free and released(matcher) is None
                return
            assert allowed(matcher) == expected
            assert {t for t in range(TOKENS.vocab_size) if matcher.allows(t)} == expected
            assert matcher.can_stop() == bool(expected & TOKENS.eos_ids)
            forced = matcher.forced_bytes()
            assert matcher.forced_bytes(2) == forced[:2]
            assert all(one.startswith(text + forced) for one in whole or [taken] if one.startswith(text))
            self.reject_the_rest(matcher, expected, random)
            going_on = sorted(expected - TOKENS.eos_ids)
            if not going_on:
                assert matcher.must_stop()
                return
            token_id = random.choice(going_on)
            matcher = self.accept(matcher, token_id)
            text += TOKENS.token_bytes[token_id] or b""
            path.append(token_id)
            self.same_after_rollback(matcher, path, random, taken, inner)

    def accept(self, matcher: HealedMatcher, token_id: int) -> HealedMatcher:
        other = matcher.copy()
        other.accept(token_id)
        assert other.num_accepted == matcher.num_accepted + 1
        return other

    def reject_the_rest(self, matcher, expected, random) -> None:
        for token_id in (*random.sample(range(TOKENS.vocab_size), 5), -1, 10**6):
            if token_id not in expected:
                count = matcher.num_accepted
                with pytest.raises(GrammarError):
                    matcher.accept(token_id)
                assert matcher.num_accepted == count

    def same_after_rollback(self, matcher, path, random, taken, inner) -> None:
        count = random.randint(0, len(path))
        other = matcher.copy()
        other.rollback(count)
        fresh = Seam(taken, INDEX, inner).matcher()
        for token_id in path[: len(path) - count]:
            fresh.accept(token_id)
        assert allowed(other) == allowed(fresh) and other.num_accepted == fresh.num_accepted
        with pytest.raises(GrammarError):
            other.rollback(other.num_accepted + 1)
        with pytest.raises(ValueError, match="cannot"):
            other.rollback(-1)
        for token_id in path[len(path) - count :]:
            other.accept(token_id)
        assert allowed(other) == allowed(matcher)


class TestEngine:
    def test_the_classic(self, make_engine) -> None:
        """`://` is one token, which a prompt that ends in `:` would keep from being written."""
        script = [257 + WORDS.index(b"://"), *b"a.b"]
        for heal, text in ((True, "//a.b"), (False, None)):
            engine, model = make_engine(Reciter(script, start=2, num_tokens=257 + len(WORDS)), words=WORDS)
            prompt = ids(b"x", b"http", b":")
            *events, end = engine.submit(request(prompt, heal=heal))
            (done,) = end.completions
            if heal:
                assert (done.text, done.token_ids[0]) == (text, script[0])
                assert "".join(e.text for e in events) == text
                assert read_tokens(events) == done.token_ids
                assert model.steps[0] == [2]
            else:
                assert not done.text.startswith("//")
            assert end.usage.prompt_tokens == 3
            assert idle(engine)

    @pytest.mark.parametrize("jump_forward", [True, False])
    @pytest.mark.parametrize("n", [1, 3])
    @pytest.mark.parametrize(
        ("constraint", "pattern"),
        [
            ({}, ".*"),
            ({"regex": "//[ab]{2}c?"}, "//[ab]{2}c?"),
            ({"choices": ("//x", "/", "yes", "")}, "//x|/|yes|"),
            ({"regex": "[0-9]{3}"}, "[0-9]{3}"),
        ],
    )
    def test_with_and_without_constraints(self, make_engine, constraint, pattern, n, jump_forward) -> None:
        engine, _ = make_engine(words=WORDS, jump_forward=jump_forward)
        for seed in range(8):
            *events, end = engine.submit(
                request(
                    ids(b"x", b"http", b":", b"/"),
                    heal=True,
                    temperature=1,
                    seed=seed,
                    n=n,
                    max_tokens=12,
                    **constraint,
                )
            )
            for done in end.completions:
                assert done.finish_reason == "length" or re.fullmatch(pattern, done.text, re.S)
                whole = b"".join(TOKENS.token_bytes[i] or b"" for i in done.token_ids)
                if constraint:
                    assert whole == b":/" + done.text.encode()
                assert "".join(e.text for e in events if e.index == done.index) == done.text
                assert read_tokens(events, done.index) == done.token_ids
        assert idle(engine)

    @pytest.mark.parametrize("settings", [{"max_batched_tokens": 1}, {"enable_prefix_caching": False}, {}])
    def test_whatever_the_schedule(self, make_engine, settings) -> None:
        tokenizer = bpe_tokenizer()
        prompts = [tokenizer.encode(text) for text in ("the inter", "http:", "another su", "x", "über 水")]
        params = SamplingParams(temperature=0, heal=True, max_tokens=9, ignore_eos=True)
        engine, _ = make_engine(tokenizer=tokenizer)
        alone = [engine.generate([prompt], params)[0].token_ids for prompt in prompts]
        other, _ = make_engine(tokenizer=tokenizer, **settings)
        assert [done.token_ids for done in other.generate(prompts, params)] == alone

    def test_nothing_to_take_back(self, make_engine) -> None:
        engine, model = make_engine()  # a token a byte: none begins another
        params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, heal=True)
        (done,) = engine.generate(["abc"], params)
        assert list(done.token_ids) == model.greedy(b"abc", 12, stop_at_eos=False)

    def test_a_prompt_that_ends_inside_a_character(self, make_engine) -> None:
        """What the prompt lends the output stays as it is without healing."""
        words = (b"\xe6\xb0", b"\xe6\xb0\xb4!")
        engine, _ = make_engine(Reciter([258, *b"?"], start=1, num_tokens=259), words=words)
        *events, end = engine.submit(request([ord("x"), 257], heal=True))
        assert end.completions[0].text == "水!?" == "".join(e.text for e in events)

    def test_max_tokens_counts_what_is_written_anew(self, make_engine) -> None:
        model = HistoryModel(num_tokens=257 + len(WORDS))
        model.bias[ord(":")] = 50
        engine, _ = make_engine(model, words=WORDS)
        *_, end = engine.submit(request(ids(b"x", b":"), heal=True, max_tokens=1))
        (done,) = end.completions
        assert (done.text, done.token_ids, done.finish_reason) == ("", tuple(ids(b":")), "length")

    @pytest.mark.parametrize("value", [1, None, "yes"])
    def test_values(self, value) -> None:
        with pytest.raises(InvalidRequest) as caught:
            SamplingParams(heal=value)
        assert caught.value.field == "heal"


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Engine]:
    with Engine("smollm2-135m", dtype="float32", max_seq_len=256, kv_memory="128MiB") as engine:
        yield engine


class TestRealModel:
    @pytest.mark.parametrize(
        ("prompt", "begins"),
        [("The url is http:", "//"), ("I like to pro", "vide"), ("The capital of France is Par", "is")],
    )
    def test_words_are_finished(self, smollm2, prompt, begins) -> None:
        params = SamplingParams(temperature=0, max_tokens=6, heal=True)
        for constraint in ({}, {"regex": "[a-z/.]+"}):
            one = SamplingParams(temperature=0, max_tokens=6, heal=True, **constraint)
            (done,) = smollm2.generate([prompt], one)
            assert done.text.startswith(begins)
            count, _ = take_back(smollm2.encode(prompt), smollm2._compiler.index)
            kept = smollm2.encode(prompt)[: len(smollm2.encode(prompt)) - count]
            # The tokens that stayed and those of the output are those of the whole text.
            assert smollm2.tokenizer.decode([*kept, *done.token_ids]) == prompt + done.text
        (done,) = smollm2.generate([prompt], params)
        whole = smollm2.tokenizer.encode(prompt + done.text)
        assert [*kept, *done.token_ids] == whole

    def test_digits_only(self, smollm2) -> None:
        """No token holds a colon and a digit: the prompt's own token comes back without being sampled."""
        params = SamplingParams(temperature=0, max_tokens=6, heal=True, regex="[0-9]{2}")
        *events, end = smollm2.submit(Request(prompt_ids=smollm2.encode("Port:"), params=params))
        assert (events[0].text, events[0].forced) == ("", True)
        assert re.fullmatch("[0-9]{2}", end.completions[0].text)
