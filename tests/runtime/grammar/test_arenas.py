"""Arenas that are full: matchers go on in fresh ones, and nothing else changes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import numpy as np
import pytest

from treille.runtime.grammar import Matcher, Vocabulary, arena
from treille.runtime.grammar.grammar import RegularGrammar
from treille.runtime.grammar.regex import regex_blueprint

Read = Callable[[Matcher], set[int]]
PATTERNS = [
    "[ab]*a[ab]{12}",
    r"(?:\w+ ?){1,40}",
    r"\b\w+\b(?:\W+\b\w+\b){3}",
    "(?:(?!aba)[abé])*",
    "(?:[ab]{3,9}x?){30}",
    "(?s:.)*(?<=ab)c",
]


def place(matcher: Matcher) -> tuple[object, ...]:
    row = np.zeros(matcher.grammar.vocab.num_words, np.uint32)
    matcher.fill_mask(row)
    rest = (matcher.can_stop(), matcher.must_stop(), matcher.forced_bytes(8), matcher.num_accepted)
    return (row.tobytes(), *rest)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matchers_move(pattern: str, mixed_vocab: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = RegularGrammar(regex_blueprint(pattern), mixed_vocab)
    monkeypatch.setattr(arena, "MAX_STATES", 64)
    monkeypatch.setattr(arena, "MAX_NODES", 4096)
    tight = RegularGrammar(regex_blueprint(pattern), mixed_vocab)
    monkeypatch.undo()
    arenas = [tight.arena]
    rng = np.random.default_rng(5)
    pairs = [(calm.matcher(), tight.matcher()) for _ in range(3)]
    letters = [one for one, spelling in enumerate(mixed_vocab.tokens) if spelling and spelling.isalpha()]
    for step in range(160):
        one, two = pairs[index := step % len(pairs)]
        with monkeypatch.context() as patch:
            patch.setattr(arena, "MAX_STATES", 64)
            patch.setattr(arena, "MAX_NODES", 4096)
            found = place(two)
        assert place(one) == found, step
        if tight.arena is not arenas[-1]:
            arenas.append(tight.arena)
        row = np.frombuffer(found[0], np.uint32)  # type: ignore[call-overload]
        ids = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        ids = [token for token in ids.tolist() if token not in mixed_vocab.eos_ids]
        back = int(rng.integers(0, one.num_accepted + 1)) if rng.random() < 0.15 or not ids else 0
        if back:
            one.rollback(back)
            two.rollback(back)
        elif rng.random() < 0.1:
            pairs[index] = (one.copy(), two.copy())
            pairs[(index + 1) % 3] = (one, two)
        elif ids:
            usual = [token for token in ids if token in letters]
            token = int(rng.choice(usual or ids))
            one.accept(token)
            with monkeypatch.context() as patch:
                patch.setattr(arena, "MAX_STATES", 64)
                patch.setattr(arena, "MAX_NODES", 4096)
                two.accept(token)
    assert tight.num_states <= 64
    if pattern in PATTERNS[:1]:
        assert len(arenas) > 2
    for one, two in pairs:
        while one.num_accepted:
            one.rollback(1)
            two.rollback(1)
            assert place(one) == place(two)


def test_threads_share_a_grammar(mixed_vocab: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks and steps of matchers of one grammar, in several threads and through full arenas."""
    pattern = "(?:[ab]*a[ab]{9}|[a-z]{1,40})x?"

    def walk(grammar: RegularGrammar, seed: int) -> list[bytes]:
        rng, matcher, seen = np.random.default_rng(seed), grammar.matcher(), []
        row = np.zeros(mixed_vocab.num_words, np.uint32)
        for _ in range(60):
            matcher.fill_mask(row)
            seen.append(row.tobytes())
            ids = [one for one in (97, 98) if matcher.allows(one)]
            if not ids or rng.random() < 0.1:
                matcher.rollback(matcher.num_accepted // 2)
            else:
                matcher.accept(int(rng.choice(ids)))
        return seen

    want = [walk(RegularGrammar(regex_blueprint(pattern), mixed_vocab), seed) for seed in range(4)]
    monkeypatch.setattr(arena, "MAX_STATES", 128)
    shared = RegularGrammar(regex_blueprint(pattern), mixed_vocab)
    got: dict[int, list[bytes]] = {}

    def run(seed: int) -> None:
        got[seed] = walk(shared, seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[seed] for seed in range(4)] == want


def test_slices_change_no_mask(mixed_vocab: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [
        " the",
        "the",
        " The",
        "ABC",
        "12",
        "  ",
        "\n\n",
        " é",
        "été",
        "日本語",
        '",',
        "a,b",
        "\t",
        " \n",
        "x1_y",
    ]
    tokens = [
        *(bytes([byte]) for byte in range(256)),
        *(word.encode() for word in words),
        b"\xc3",
        b" \xe6\x97",
    ]
    vocab = Vocabulary([*tokens, None], eos_ids=[len(tokens)])
    patterns = [
        *PATTERNS,
        r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"',
        "[a-z ]*",
        r"\w+",
        r"\s*x",
        "[0-9]+",
        ".*",
        "(?s).*",
    ]
    patterns += [
        "[^a]*",
        "(?i)[a-z]+",
        "[ -~]*",
        r"(?: ?[A-Za-z]+)*",
        r" ?\w* ?",
        r"(?:[a-z]{2})*",
        r"(?!.*the).*",
    ]
    for pattern in patterns:
        fast, slow = (RegularGrammar(regex_blueprint(pattern), vocab) for _ in range(2))
        monkeypatch.setattr(slow, "_symbols", slow._symbols[:0])
        rng = np.random.default_rng(1)
        for _, (one, two) in itertools.product(range(3), [(fast.matcher(), slow.matcher())]):
            for _ in range(12):
                found = place(one)
                assert found == place(two), pattern
                row = np.frombuffer(found[0], np.uint32)  # type: ignore[call-overload]
                ids = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
                ids = [token for token in ids if token not in vocab.eos_ids]
                if not ids:
                    break
                token = int(rng.choice([one_id for one_id in ids if one_id > 255] or ids))
                one.accept(token)
                two.accept(token)
            one.rollback(one.num_accepted)
            two.rollback(two.num_accepted)
