"""Jump-forward by itself: which tokens are certain, what is healed, and that a text stays in its language."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.history_model import byte_tokenizer
from oracles.merges import bpe_tokenizer

from treille.runtime.forced import Jump, JumpForward
from treille.runtime.grammar import Grammar, Vocabulary, compile_choices, compile_regex
from treille.runtime.matching import TokenIndex
from treille.runtime.models.resolve import resolve_model
from treille.runtime.tokenizer import Tokenizer


class Bench:
    """A tokenizer with all that jumping forward takes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.vocab = Vocabulary.from_tokenizer(tokenizer)
        self.index = TokenIndex(tokenizer.token_bytes)
        self.jumps = JumpForward(tokenizer, lambda: self.index)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_bos=False)

    def bytes(self, ids) -> bytes:
        return b"".join(self.tokenizer.token_bytes[i] or b"" for i in ids)

    def jump(self, grammar: Grammar, output: list[int] = (), **more) -> Jump | None:
        matcher = grammar.matcher()
        for token_id in output:
            matcher.accept(token_id)
        return self.jumps.find(output, matcher, **({"room": 10_000} | more))

    def tokens(self, jump: Jump | None) -> list[bytes]:
        return [] if jump is None else [self.tokenizer.token_bytes[i] for i in jump.token_ids]


@lru_cache
def bench(name: str) -> Bench:
    if name == "bytes":
        return Bench(byte_tokenizer())
    if name == "longest":
        words = (b"ab", b"abc", b"bcd", b"cd", b"in", b"int", b"international", b"://", b":/", b"tern")
        return Bench(byte_tokenizer(words=words))
    if name == "smollm2":
        return Bench(Tokenizer.from_folder(resolve_model("smollm2-135m").path))
    return Bench(bpe_tokenizer(splits=name == "bpe-words"))


NAMES = ("bytes", "longest", "bpe", "bpe-words")
LITERALS = (
    '{"name": "value", "type": "string", "names": ["a", "b"]}',
    "international internal",
    "ab" * 50,
    "über 水火木水火木 é",
    "\n\n  indented\n    more   \n",
    "x" * 300,
    "水",
    " ",
)


def steer(bench: Bench, grammar: Grammar, seed: int, *, room: int = 200) -> tuple[list[int], str]:
    """Tokens drawn at random from the masks, with jumps, until the text is over; checked at each step."""
    rng = np.random.default_rng(seed)
    matcher, output = grammar.matcher(), []
    while True:
        jump = bench.jumps.find(output, matcher, room=room - len(output))
        if jump is not None:
            before = bench.bytes(output)
            del output[len(output) - jump.num_replaced :]
            output.extend(jump.token_ids)
            assert bench.bytes(output) == before + b"".join(jump.pieces)
            matcher = jump.matcher
        same_as_fresh(grammar, matcher, output)
        if matcher.must_stop() or len(output) >= room:
            return output, bench.bytes(output).decode("utf-8", "replace")
        row = np.zeros(bench.vocab.num_words, np.uint32)
        matcher.fill_mask(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        token_id = int(rng.choice(allowed))
        if token_id in bench.vocab.eos_ids:
            return output, bench.bytes(output).decode()
        matcher.accept(token_id)
        output.append(token_id)


def same_as_fresh(grammar: Grammar, matcher, output: list[int]) -> None:
    """B45: the matcher is where one is that was fed the tokens one by one."""
    fresh = grammar.matcher()
    for token_id in output:
        fresh.accept(token_id)
    rows = np.zeros((2, grammar.vocab.num_words), np.uint32)
    matcher.fill_mask(rows[0])
    fresh.fill_mask(rows[1])
    assert np.array_equal(rows[0], rows[1])
    assert matcher.num_accepted == fresh.num_accepted == len(output)
    assert matcher.can_stop() == fresh.can_stop() and matcher.must_stop() == fresh.must_stop()
    assert matcher.forced_bytes(64) == fresh.forced_bytes(64)


class TestForcedThroughout:
    @pytest.mark.parametrize("name", [*NAMES, "smollm2"])
    @pytest.mark.parametrize("text", LITERALS)
    def test_the_tokens_are_the_tokenizers_own(self, name, text) -> None:
        here = bench(name)
        jump = here.jump(compile_regex(re.escape(text), here.vocab))
        assert jump is not None
        assert list(jump.token_ids) == here.encode(text)
        assert jump.matcher.must_stop() and jump.num_replaced == 0

    @pytest.mark.parametrize("name", ["bytes", "smollm2"])
    def test_a_long_text_at_once(self, name) -> None:
        here = bench(name)
        text = "the quick brown fox, " * 1500
        jump = here.jump(compile_choices([text], here.vocab), room=40_000)
        assert jump is not None and list(jump.token_ids) == here.encode(text)

    def test_no_more_than_there_is_room_for(self) -> None:
        here = bench("bpe")
        grammar = compile_regex(re.escape(LITERALS[0]), here.vocab)
        whole = here.encode(LITERALS[0])
        for room in (1, 2, 5):
            jump = here.jump(grammar, room=room)
            assert jump is not None and list(jump.token_ids) == whole[:room]
        assert here.jump(grammar, room=0) is None

    def test_tokens_to_avoid_are_left_to_the_model(self) -> None:
        here = bench("bpe")
        grammar = compile_regex(re.escape(LITERALS[0]), here.vocab)
        whole = here.encode(LITERALS[0])
        jump = here.jump(grammar, avoid={whole[3]})
        assert jump is not None and list(jump.token_ids) == whole[:3]
        assert here.jump(grammar, avoid={whole[0]}) is None


class TestTheEnd:
    """What a longer token could swallow is not added."""

    @pytest.mark.parametrize(
        ("pattern", "tokens"),
        [
            ("xab[cz]", [b"x"]),  # `abc` may come
            ("xab[yz]", [b"x", b"ab"]),
            ("xbc[dz]", [b"x"]),
            ("xabc[dz]", [b"x"]),  # `ab`, `cd` may be what the model wants
            ("xab(cd)?", [b"x"]),
            ("xab", [b"x", b"ab"]),
            ("xyz(ab)?", [b"x", b"y", b"z"]),  # the text may end here: that is a choice of the model
            ("http:(//a|b)", [b"h", b"t", b"t", b"p"]),
            ("http:(b|c)", [b"h", b"t", b"t", b"p", b":"]),
        ],
    )
    def test_longest_match(self, pattern, tokens) -> None:
        here = bench("longest")
        assert here.tokens(here.jump(compile_regex(pattern, here.vocab))) == tokens

    def test_whole_characters_only(self) -> None:
        here = bench("bytes")
        assert here.tokens(here.jump(compile_regex("x(é|è)", here.vocab))) == [b"x"]
        assert here.jump(compile_regex("(é|è)", here.vocab)) is None
        assert here.tokens(here.jump(compile_regex("水(é|è)", here.vocab))) == [b"\xe6", b"\xb0", b"\xb4"]
        # Begun by the model inside a character: it is finished.
        output = list("水".encode()[:1])
        assert here.tokens(here.jump(compile_regex("水火[ab]", here.vocab), output)) == [
            b"\xb0",
            b"\xb4",
            *(bytes([byte]) for byte in "火".encode()),
        ]

    def test_nothing_is_forced(self) -> None:
        here = bench("bytes")
        assert here.jump(compile_regex("[ab]x", here.vocab)) is None
        assert here.jump(compile_regex("x?", here.vocab)) is None

    @given(
        st.lists(st.text("abcd", min_size=1, max_size=7), min_size=1, max_size=4),
        st.text("abcd", max_size=4),
        st.sampled_from(["longest", "bpe"]),
    )
    @settings(max_examples=300, deadline=None)
    def test_certain_means_whatever_follows(self, texts, head, name) -> None:
        """The added tokens are the first ones of each text that the constraint takes."""
        here = bench(name)
        texts = sorted({head + text for text in texts})
        jump = here.jump(compile_choices(texts, here.vocab))
        found = [] if jump is None else list(jump.token_ids)
        for text in texts:
            assert here.encode(text)[: len(found)] == found
        if len(texts) == 1:
            assert found == here.encode(texts[0])


class TestHealing:
    """Tokens of the output that the forced text makes the tokenizer write otherwise."""

    def spell(self, here: Bench, *words: bytes) -> list[int]:
        return [here.index.same(word)[0] for word in words]

    @pytest.mark.parametrize(
        ("pattern", "output", "replaced", "added"),
        [
            ("(a|x)bc!", [b"a"], 1, [b"abc", b"!"]),
            ("(a|x)bc!", [b"x"], 0, [b"b", b"c", b"!"]),
            (r"(x|y)(i|o)nternational\.", [b"x", b"i"], 1, [b"international", b"."]),
            (r"(x|y)(i|o)n(t|u)ernational\.", [b"x", b"in", b"t"], 2, [b"international", b"."]),
            # Already spelled otherwise where the forced text does not matter: that stays.
            ("(a|x)(b|x)(c|x)!!", [b"a", b"b", b"c"], 0, [b"!", b"!"]),
            # `abc` or `abcd`: nothing is certain, so nothing is taken back.
            ("(a|x)b[cd]", [b"a"], 0, []),
        ],
    )
    def test_longest_match(self, pattern, output, replaced, added) -> None:
        here = bench("longest")
        grammar = compile_regex(pattern, here.vocab)
        ids = self.spell(here, *output)
        jump = here.jump(grammar, ids)
        assert here.tokens(jump) == added
        if jump is not None:
            assert jump.num_replaced == replaced
            kept = ids[: len(ids) - replaced]
            same_as_fresh(grammar, jump.matcher, [*kept, *jump.token_ids])

    def test_far_back_in_a_long_output(self) -> None:
        """One long word of the model's own spelling: what is read again may begin anywhere in it."""
        here = bench("bpe")
        grammar = compile_regex("[a-z]{3000}[.!]international", here.vocab)
        output = [here.index.same(bytes([byte]))[0] for byte in b"ab" * 1500 + b"."]
        jump = here.jump(grammar, output)
        assert jump is not None
        assert b"".join(jump.pieces) == b"international"
        assert jump.num_replaced <= 1

    def test_real_words(self) -> None:
        here = bench("smollm2")
        grammar = compile_regex(r"(an|the) (in|un)ternational", here.vocab)
        output = [*here.encode("the"), *self.spell(here, b" in")]
        jump = here.jump(grammar, output)
        assert jump is not None and jump.num_replaced == 1
        assert [*output[:-1], *jump.token_ids] == here.encode("the international")


PATTERNS = (
    r'\{"name": "[a-z]{1,5}", "number": \d{1,3}(, "names": \["(ab|abc)"\])?\}',
    r"(https|http)://(www\.)?example\.(org|com)/(index\.html)?",
    r"(inter|intern|internal|international)( sun| sunset| sunday){1,2}",
    r"(ab|abc|abcd|bcd){1,4}cd",
    r"[水火木é]{2}über(水火|水木)",
    r"(the|there|their|then) *another",
    r"\n*  x|\s+y",
)


class TestAlwaysInTheLanguage:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("pattern", PATTERNS)
    def test_random_draws(self, name, pattern) -> None:
        here = bench(name)
        grammar = compile_regex(pattern, here.vocab)
        for seed in range(12):
            output, text = steer(here, grammar, seed)
            assert len(output) >= 200 or re.fullmatch(pattern, text), text

    @given(st.lists(st.text("abcd\n é", max_size=9), min_size=1, max_size=6), st.integers(0, 9))
    @settings(max_examples=150, deadline=None)
    @pytest.mark.parametrize("name", NAMES)
    def test_random_choices(self, name, texts, seed) -> None:
        here = bench(name)
        _, text = steer(here, compile_choices(texts, here.vocab), seed)
        assert text in texts

    def test_cut_off_anywhere(self) -> None:
        here = bench("bpe")
        grammar = compile_regex(PATTERNS[0], here.vocab)
        for room in range(1, 20):
            output, _ = steer(here, grammar, room, room=room)
            assert len(output) <= room


def test_a_tokenizer_that_begins_texts_with_a_space() -> None:
    """SentencePiece: a text alone gets a space before it, and its tokens must do without."""
    import tokenizers

    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    words = ["▁", "a", "b", "▁a", "▁b", "ab", "▁ab", ":", "x"]
    vocab = {piece: n for n, piece in enumerate(["<unk>", "</s>", *pieces, *words])}
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab=vocab,
            merges=[("a", "b"), ("▁", "a"), ("▁", "b"), ("▁", "ab")],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    backend.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    backend.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    here = Bench(Tokenizer(backend, eos_ids=[1], special_ids=[0, 1]))
    for text, tokens in (
        ("ab ab:x", [b"ab", b" ab", b":", b"x"]),
        (" ab é", [b" ab", b" ", b"\xc3", b"\xa9"]),
    ):
        assert here.tokens(here.jump(compile_regex(re.escape(text), here.vocab))) == tokens
