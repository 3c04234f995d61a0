"""Random logits as the model: whatever is drawn under the masks satisfies its constraint.

200 constraints on two vocabularies; 600 draws here, 10,000 with `-m slow`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar import Grammar, Matcher, Vocabulary, compile_choices, compile_regex
from treille.runtime.tokenizer import Tokenizer

MAX_TOKENS = 120  # of free drawing; then the text is brought to an end
MAX_CLOSING = 200

PICKED = [
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?",
    r"[a-zA-Z0-9._%+-]{1,64}@([a-zA-Z0-9-]{1,63}\.){1,4}[a-zA-Z]{2,10}",
    r"https?://[a-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%-]*)*(\?[^#\s]*)?(#\S*)?",
    r"[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    r"((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])",
    r"([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|(([0-9a-fA-F]{1,4}:){0,5}[0-9a-fA-F]{1,4})?::",
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?",
    r"(\+[0-9]{1,3}[ -]?)?(\([0-9]{2,4}\)[ -]?)?[0-9]{3,4}([ -]?[0-9]{3,4}){1,2}",
    r"[$€£¥]-?[0-9]{1,3}(,[0-9]{3}){0,4}(\.[0-9]{2})?",
    r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?",
    r'"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"',
    r"([A-Za-z0-9+/]{4}){1,40}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
    r".{0,200}",
    r"\w{1,20}",
    r"[^\x00-\x7f]{1,40}",
    r"\w+( \w+){0,5}[.!?]",
    r"(?i)(select|insert|straße) [a-z_, *]{1,30} (from|into) [a-z_]+;?",
    r"(\(([a-z]+(,[a-z]+)*)?(\[([0-9]+(;[0-9]+)*)?\])*\)){1,8}",
    r'([^",\r\n]*|"([^"]|"")*")(,([^",\r\n]*|"([^"]|"")*")){1,9}',
    r"(/[^/\x00]{1,30})+|[A-Z]:(\\[^\\/:*?\"<>|\r\n]{1,30})+",
    r'<[a-z][a-z0-9]*( [a-z-]+="[^"<>]*")*\s*/?>',
    r"M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})",
    r"([A-Z][a-z ]+\. ){1,20}",
    r"(?s).*",
    r"(?s).{3}|",
    r"(?:ab|aba)*c?",
    r"(?m)(?:^[a-z]*$\n?){1,4}",
    r"\b\w+\b(?:\W+\b\w+\b){2}",
    r"[\U0001f300-\U0001f5ff]{1,5}",
    r"(?x) a+ (?: b | c )+ # a comment",
    r"^(?:a|b$|c)+\Z",
    r"(?=.*[0-9])(?=.*[a-z])[a-z0-9]{4,12}",
    r"(?!admin|root)[a-z]{3,10}",
    r"(?:(?!--).)*",
    r"[a-z]+(?<!ing)",
    r"(?<![0-9])[0-9]{2}(?![0-9])",
    r"(?!\d+$)[\w-]{1,12}",
    r"[a-z]{2,}(?<=[aeiou])x?",
    r"(?>a|ab)c|d",
]


@dataclass(frozen=True)
class Case:
    """A constraint: how it is compiled, and who says whether a text satisfies it."""

    name: str
    compile: Callable[[Vocabulary], Grammar]
    is_right: Callable[[str], object]


def regex_case(pattern: str) -> Case:
    return Case(pattern, lambda vocab: compile_regex(pattern, vocab), re.compile(pattern).fullmatch)


def choices_case(choices: list[str]) -> Case:
    return Case(repr(choices), lambda vocab: compile_choices(choices, vocab), set(choices).__contains__)


class Maker:
    """Patterns and choices that no one would think of; the same ones for the same seed."""

    CLASSES = (
        "[a-f]", "[^a-z]", r"\d", r"\w", r"\s", r"\S", ".", "[à-ÿ]", "[α-ωА-я]", "[ぁ-ゖ一-鿿]", "[^\\W\\d]",
        "[-+*/]", r"[\x20-\x7e]", "[^\"\\\\\\n]", "[\U0001f600-\U0001f64f]", "(?i:[k-s])",
    )  # fmt: skip
    WORDS = (
        "a",
        "ab",
        "the ",
        "été",
        "日本",
        "0x",
        "\\.",
        "\\n",
        "\\(",
        "--",
        "Σ",
        "🙂",
        "end",
        "\\x7f",
        " ",
    )
    COUNTS = ("?", "*", "+", "{2}", "{0,3}", "{1,12}", "{5,}", "*?", "{2,4}?", "{0,60}")

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def pattern(self, depth: int = 2) -> str:
        parts = [self.part(depth) for _ in range(self.rng.randint(1, 4))]
        if depth and self.rng.random() < 0.3:
            return "".join(parts) + "|" + self.pattern(depth - 1)
        return "".join(parts)

    def part(self, depth: int) -> str:
        kind = self.rng.random()
        if kind < 0.35:
            return self.rng.choice(self.WORDS)
        if kind < 0.75 or not depth:  # only a class is repeated without end: `re` must not take for ever
            one = self.rng.choice(self.CLASSES)
            return one + self.rng.choice(self.COUNTS) if self.rng.random() < 0.7 else one
        group = f"(?:{self.pattern(depth - 1)})"
        return group + self.rng.choice(("", "?", "{1,3}", "{2}", "{0,2}"))

    def choices(self) -> list[str]:
        letters = self.rng.choice(("ab", "aé日🙂", " \n\tx", "0123456789.", "sunetmoABC é"))
        lengths = self.rng.choice(((0, 3), (1, 12), (4, 40)))
        return [
            "".join(self.rng.choices(letters, k=self.rng.randint(*lengths)))
            for _ in range(self.rng.choice((1, 2, 7, 60)))
        ]


CASES = [
    *map(regex_case, PICKED),
    *(regex_case(Maker(seed).pattern()) for seed in range(120)),
    *(choices_case(Maker(seed).choices()) for seed in range(40)),
]
GROUPS = {"picked": CASES[:40], "made": CASES[40:160], "choices": CASES[160:]}


@pytest.fixture(scope="module")
def vocabularies(smollm2_folder: Path, mixed_vocab: Vocabulary) -> dict[str, Vocabulary]:
    real = Vocabulary.from_tokenizer(Tokenizer.from_folder(smollm2_folder))
    return {"smollm2": real, "small": mixed_vocab}


def mask_of(matcher: Matcher) -> np.ndarray:
    row = np.zeros(matcher.grammar.vocab.num_words, np.uint32)
    matcher.fill_mask(row)
    return row


def draw(grammar: Grammar, hints: list[bytes], rng: np.random.Generator) -> bytes | None:
    """A text: the largest of random logits under the mask, with an end that grows likelier. None: no end."""
    vocab, matcher, text = grammar.vocab, grammar.matcher(), b""
    ends = sorted(vocab.eos_ids)
    for step in range(MAX_TOKENS):
        bits = np.unpackbits(mask_of(matcher).view(np.uint8), bitorder="little", count=vocab.vocab_size)
        assert bits.any(), f"nothing is allowed after {text!r}"
        logits = rng.random(vocab.vocab_size, np.float32)
        logits[ends] += rng.random() < step / 40
        token_id = int(np.where(bits, logits, -1).argmax())
        matcher.accept(token_id)
        if token_id in vocab.eos_ids:
            assert matcher.is_finished()
            return text
        text += vocab.tokens[token_id] or b""
    rest = bring_to_end(matcher, hints, random.Random(len(text)))
    return None if rest is None else text + rest


def bring_to_end(matcher: Matcher, hints: list[bytes], rng: random.Random) -> bytes | None:
    """Bytes to an end, if they are found: words of the pattern, or a byte that makes the mask another."""
    vocab = matcher.grammar.vocab
    singles = {one[0]: token_id for token_id, one in enumerate(vocab.tokens) if one and len(one) == 1}
    rest = b""
    while len(rest) < MAX_CLOSING:
        hint = rng.choice(hints)
        if rng.random() < 0.5 or not all(byte in singles for byte in hint):
            hint = rarest_byte(matcher, singles, rng)
        for byte in hint:
            if matcher.can_stop():
                matcher.accept(min(vocab.eos_ids))
                return rest
            if not matcher.allows(singles[byte]):
                break
            matcher.accept(singles[byte])
            rest += bytes([byte])
    return None


def rarest_byte(matcher: Matcher, singles: dict[int, int], rng: random.Random) -> bytes:
    """A byte that is allowed: any next mask is as likely as any other."""
    following: dict[bytes, int] = {}
    for byte in rng.sample(sorted(singles), len(singles)):
        if matcher.allows(singles[byte]):
            there = matcher.copy()
            there.accept(singles[byte])
            following.setdefault(mask_of(there).tobytes(), byte)
    return bytes([rng.choice(list(following.values()))]) if following else b"\0"


def check_draws(cases: list[Case], vocab: Vocabulary, draws: int) -> None:
    rng = np.random.default_rng(draws)
    refused, endless = [], []
    for case in cases:
        try:
            grammar = case.compile(vocab)
        except UnsupportedConstraint:
            refused.append(case.name)
            continue
        hints = [*re.findall(rb"[\w.,:-]+|\W", case.name.encode()), *(one.encode() for one in Maker.WORDS)]
        for _ in range(draws):
            text = draw(grammar, hints, rng)
            if text is None:
                endless.append(case.name)
            else:
                assert case.is_right(text.decode()), (case.name, text)
    assert all("(?>" in name for name in refused), refused  # an atomic group is all that may be refused
    assert len(endless) <= len(cases) * draws // 20, endless  # found by luck, so not always


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(("vocabulary", "draws"), [("smollm2", 1), ("small", 2)])
def test_draws_satisfy(vocabulary: str, draws: int, group: str, vocabularies: dict[str, Vocabulary]) -> None:
    check_draws(GROUPS[group], vocabularies[vocabulary], draws)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("vocabulary", ["smollm2", "small"])
def test_many_draws_satisfy(vocabulary: str, group: str, vocabularies: dict[str, Vocabulary]) -> None:
    check_draws(GROUPS[group], vocabularies[vocabulary], 25)
