"""The store of compiled grammars: bounded in bytes, one compilation a key."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import pytest

from treille.runtime.grammar import Vocabulary, compile_choices, compile_regex
from treille.runtime.grammar.automaton import Dfa
from treille.runtime.grammar.cache import ByteCache
from treille.runtime.grammar.compile import choices_dfa
from treille.runtime.grammar.grammar import MAX_MASK_BYTES, RegularGrammar


@dataclass(frozen=True)
class Thing:
    nbytes: int


@dataclass
class Growing:
    nbytes: int = 1


def test_least_recently_used_goes_first() -> None:
    cache = ByteCache(10)
    things = {key: cache.get(key, lambda: Thing(4)) for key in "ab"}
    assert cache.get("a", lambda: Thing(4)) is things["a"]
    cache.get("c", lambda: Thing(4))
    assert (len(cache), cache.nbytes) == (2, 8)
    assert cache.get("a", lambda: Thing(4)) is things["a"]
    assert cache.get("b", lambda: Thing(4)) is not things["b"]
    large = cache.get("large", lambda: Thing(11))
    assert cache.get("large", lambda: Thing(11)) is not large
    assert cache.nbytes == 8
    cache.get("all", lambda: Thing(10))
    assert (len(cache), cache.nbytes) == (1, 10)
    cache.clear()
    assert (len(cache), cache.nbytes) == (0, 0)
    with pytest.raises(ValueError, match="negative"):
        ByteCache(-1)


def test_what_grows_is_measured_again() -> None:
    cache = ByteCache(10)
    growing = Growing()
    for key in "ab":
        cache.get(key, lambda: Thing(2))
    assert cache.get("grows", lambda: growing) is growing
    growing.nbytes = 8
    assert cache.get("c", lambda: Thing(2)) == Thing(2)
    assert cache.nbytes == 10
    assert cache.get("grows", lambda: Thing(1)) is growing
    cache.get("all", lambda: Thing(10))
    assert (len(cache), cache.nbytes) == (1, 10)


def test_failures_are_not_kept() -> None:
    cache = ByteCache(10)

    def fail() -> Thing:
        raise KeyError("no")

    for _ in range(2):
        with pytest.raises(KeyError):
            cache.get("a", fail)
    assert cache.get("a", lambda: Thing(1)).nbytes == 1


def test_made_once_for_all_who_wait() -> None:
    cache, made, got = ByteCache(100), list[int](), list[Thing]()

    def make() -> Thing:
        made.append(1)
        time.sleep(0.05)
        return Thing(1)

    threads = [threading.Thread(target=lambda: got.append(cache.get("a", make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(got) == 8 and all(one is got[0] for one in got)


def test_grammars_are_cached_on_their_vocabulary() -> None:
    tokens = [bytes([byte]) for byte in range(256)]
    one, two = Vocabulary(tokens), Vocabulary(tokens, cache_bytes=0)
    assert compile_regex("a+", one) is compile_regex("a+", one)
    assert compile_regex("a+", one) is not compile_regex("a*", one)
    assert compile_regex("a+", one) is not compile_regex("a+", two)
    assert compile_regex("a+", two) is not compile_regex("a+", two)
    assert compile_regex("ab", one) is not compile_choices(["ab"], one)
    held = [compile_regex(one_pattern, one) for one_pattern in ("a+", "a*", "ab")] + [
        compile_choices(["ab"], one)
    ]
    assert len(one.cache) == 4 and one.cache.nbytes == sum(grammar.nbytes for grammar in held)


def test_masks_are_bounded() -> None:
    """A grammar says how much memory it takes now; its masks keep to a limit."""
    vocab = Vocabulary([*(bytes([byte]) for byte in range(256))], vocab_size=8 << 20)
    dfa: Dfa = choices_dfa(["a" * 60])
    grammar = RegularGrammar(dfa, vocab)
    said = grammar.nbytes
    masks = [grammar.mask(state) for state in range(dfa.num_states)]
    assert sum(mask.nbytes for mask in masks) == 61 << 20
    assert said < grammar.nbytes <= said + MAX_MASK_BYTES
    assert grammar.mask(60) is masks[60] and grammar.mask(0) is not masks[0]
    with pytest.raises(ValueError, match="read-only"):
        masks[0][0] = 1
