"""How long does the constraint engine take? Compiling, masks and accepting, with the embedded model's tokens.

Run `python benchmarks/grammar.py`; each constraint is followed along random allowed tokens. The last line is
JSON: milliseconds to compile, and medians and 99th percentiles in microseconds of a mask never asked for
before, of one that was, and of accepting a token.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from treille.runtime.grammar import Grammar, Matcher, Vocabulary, compile_choices, compile_regex
from treille.runtime.models.resolve import resolve_model
from treille.runtime.tokenizer import Tokenizer

REGEXES = {
    "hour": r"2[0-3]|[01]?\d",
    "ticket": r"[A-Z]{2,4}-\d{1,5}",
    "date": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "email": r"[\w.+-]+@[\w-]+\.[\w.]{2,10}",
    "string": r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"',
    "sentence": r"(?:[A-Z][\w ,'-]{0,60}\. ?){1,3}",
    "anything": r"(?s).*",
}
CHOICES = [f"the {n * 7919 % 10007}th of {n:05d} choices" for n in range(1000)]


def microseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1000


def walk(grammar: Grammar, rng: np.random.Generator, num_tokens: int, times: dict[str, list[float]]) -> None:
    """Random texts, with the clock on each call; a text that ends is followed by another."""
    vocab = grammar.vocab
    row = np.zeros(vocab.num_words, np.uint32)
    matcher: Matcher = grammar.matcher()
    seen: set[int] = set()
    for _ in range(num_tokens):
        kind = "cached" if matcher.state in seen else "new"
        seen.add(matcher.state)
        times[kind].append(microseconds(lambda matcher=matcher: matcher.fill_mask(row)))
        times["cached"].append(microseconds(lambda matcher=matcher: matcher.fill_mask(row)))
        bits = np.unpackbits(row.view(np.uint8), bitorder="little", count=vocab.vocab_size)
        token_id = int(rng.choice(np.flatnonzero(bits)))
        times["accept"].append(microseconds(lambda matcher=matcher, chosen=token_id: matcher.accept(chosen)))
        if matcher.is_finished():
            matcher = grammar.matcher()


def measure(make: Callable[[], Grammar], vocab: Vocabulary, rounds: int, num_tokens: int) -> dict[str, float]:
    times: dict[str, list[float]] = {"compile": [], "new": [], "cached": [], "accept": []}
    for seed in range(rounds):
        vocab.cache.clear()
        times["compile"].append(microseconds(make))
        walk(make(), np.random.default_rng(seed), num_tokens, times)
    result = {"states": float(make().dfa.num_states), "compile_ms": float(np.median(times["compile"])) / 1000}
    for kind in ("new", "cached", "accept"):
        result[f"{kind}_us"] = float(np.median(times[kind]))
        result[f"{kind}_p99_us"] = float(np.percentile(times[kind], 99))
    return {name: round(value, 2) for name, value in result.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=100)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_folder(resolve_model(args.model).path)
    warm = Vocabulary.from_tokenizer(tokenizer)
    warm.prepare()
    compile_regex(r"(?i)\w\s\d", warm)
    start = time.perf_counter()
    vocab = Vocabulary.from_tokenizer(tokenizer)
    vocab.prepare()
    seconds = time.perf_counter() - start
    results = {
        name: measure(lambda pattern=pattern: compile_regex(pattern, vocab), vocab, args.rounds, args.tokens)
        for name, pattern in REGEXES.items()
    }
    results["choices"] = measure(lambda: compile_choices(CHOICES, vocab), vocab, args.rounds, args.tokens)
    print(f"{vocab.vocab_size} tokens, {len(vocab.trie.byte)} trie nodes, made in {seconds * 1000:.0f} ms")
    print(f"{'':10}{'states':>8}{'compile':>10}{'new mask':>20}{'cached':>18}{'accept':>18}")
    for name, row in results.items():
        pairs = "".join(
            f"{row[f'{kind}_us']:>{width}.1f} /{row[f'{kind}_p99_us']:7.1f}"
            for kind, width in (("new", 11), ("cached", 9), ("accept", 9))
        )
        print(f"{name:10}{row['states']:>8.0f}{row['compile_ms']:>7.1f} ms{pairs}")
    print(json.dumps({"vocab_ms": round(seconds * 1000, 1), **results}))


if __name__ == "__main__":
    main()
