"""One engine of `masks.py` in its own process: `python masks_peers.py ENGINE FOLDER CLOCK [KIND [GIB]]`.

Reads tasks as lines of JSON and answers each with a line, in at most GIB of memory. KIND "patterns":
`{pattern, ecma, tokens, endings}` is answered with the nanoseconds of "compile and first mask", of "accept a
token and make the next mask" for each token on that fresh grammar and on the same grammar seen before, and
what was wrong. KIND "schemas": see `masks_follow.py`. Imports nothing of this project unless the engine is
`treille`.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from masks_follow import WARM_UP_SCHEMAS, Refused, measure_schema

CLOCKS = {"wall": time.perf_counter_ns, "cpu": time.thread_time_ns}
WARM_UP = [r"(?i)up [a-f0-9]{1,3}", r"\w+\s\d{2,40}x?", r"(a|b)*c"]


class Engine(Protocol):
    """What an engine must be able to do. `row` is uint32 [words], made once and filled by `fill`."""

    row: Any
    eos: int

    def forget(self) -> None:
        """Drops every compiled grammar."""

    def grammar(self, pattern: str, ecma: str | None) -> Any:
        """A fresh grammar. Raises ValueError if the engine refuses."""

    def schema(self, text: str, options: dict[str, Any]) -> Any:
        """A fresh grammar of a JSON Schema. Raises `Refused` if the engine refuses."""

    def matcher(self, grammar: Any) -> Any:
        """A place at the start of the text."""

    def fill(self, matcher: Any) -> None:
        """The mask, into `row`."""

    def accept(self, matcher: Any, token: int) -> bool:
        """Goes on by a token."""

    def again(self, grammar: Any, matcher: Any) -> Any:
        """The start of the text once more, on a grammar that has been used, by whatever is quickest."""


class Treille:
    def __init__(self, folder: Path) -> None:
        from treille.runtime.errors import GrammarError
        from treille.runtime.grammar import Vocabulary
        from treille.runtime.tokenizer import Tokenizer

        self._error = GrammarError
        self.vocab = Vocabulary.from_tokenizer(Tokenizer.from_folder(folder))
        self.vocab.prepare()
        self.row = np.zeros(self.vocab.num_words, np.uint32)
        self.eos = min(self.vocab.eos_ids)

    def forget(self) -> None:
        self.vocab.cache.clear()

    def grammar(self, pattern: str, ecma: str | None) -> Any:
        return ours_compile(pattern, ecma, self.vocab)

    def schema(self, text: str, options: dict[str, Any]) -> Any:
        return ours_schema(text, self.vocab, options)

    def matcher(self, grammar: Any) -> Any:
        return grammar.matcher()

    def fill(self, matcher: Any) -> None:
        matcher.fill_mask(self.row)

    def accept(self, matcher: Any, token: int) -> bool:
        try:
            matcher.accept(token)
        except self._error:
            return False
        return True

    def would_take(self, matcher: Any, token: int) -> bool:
        """Whether `accept` would take the token, whatever the mask says."""
        return bool(matcher.allows(token))

    def again(self, grammar: Any, matcher: Any) -> Any:
        return grammar.matcher()


def ours_compile(pattern: str, ecma: str | None, vocab: Any) -> Any:
    """How Treille compiles an input; `ecma` is the schema's own pattern, None for a picked one."""
    from treille.runtime.errors import ConstraintError
    from treille.runtime.grammar import compile_regex

    try:
        return compile_regex(pattern, vocab)
    except ConstraintError as error:
        raise ValueError(str(error)) from None


def ours_schema(text: str, vocab: Any, options: dict[str, Any]) -> Any:
    """How Treille compiles a JSON Schema; `options` are the compiler's own."""
    from treille.runtime.errors import ConstraintError, UnsupportedConstraint
    from treille.runtime.schema.compile import compile_json_schema

    try:
        return compile_json_schema(text, vocab, **options)
    except UnsupportedConstraint as error:
        raise Refused(error.keyword, f"{error.path}: {error.reason}") from None
    except ConstraintError as error:
        raise Refused("invalid", str(error)) from None


class LlGuidance:
    """The recommended settings: slices as the library chooses them."""

    def __init__(self, folder: Path) -> None:
        llguidance, arrays = import_module("llguidance"), import_module("llguidance.numpy")
        self.make, self.fill_row = llguidance.LLMatcher, arrays.fill_next_token_bitmask
        self.tokenizer = llguidance.LLTokenizer(
            (folder / "tokenizer.json").read_text(encoding="utf-8"), eos_token=_eos(folder)
        )
        self.rows = arrays.allocate_token_bitmask(1, self.tokenizer.vocab_size)
        self.row = self.rows[0].view(np.uint32)
        self.eos = self.tokenizer.eos_token

    def forget(self) -> None:
        """It keeps none."""

    def grammar(self, pattern: str, ecma: str | None) -> Any:
        matcher = self.make(self.tokenizer, self.make.grammar_from_regex(pattern), log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def schema(self, text: str, options: dict[str, Any]) -> Any:
        """`options` are Treille's: this engine knows no other ways to be."""
        try:
            matcher = self.make(self.tokenizer, self.make.grammar_from_json_schema(text), log_level=0)
        except ValueError as error:
            raise Refused("invalid", str(error)) from None
        if matcher.is_error():
            message = str(matcher.get_error())
            raise Refused(message.split("\n")[0][:60], message)
        return matcher

    def matcher(self, grammar: Any) -> Any:
        return grammar

    def fill(self, matcher: Any) -> None:
        self.fill_row(matcher, self.rows)

    def accept(self, matcher: Any, token: int) -> bool:
        return bool(matcher.consume_token(token))

    def again(self, grammar: Any, matcher: Any) -> Any:
        """`reset` keeps the states that the first text made; a new matcher would begin from nothing."""
        matcher.reset()
        return matcher


class XGrammar:
    """One thread, and its cache of whole grammars off, as each is compiled once."""

    def __init__(self, folder: Path) -> None:
        torch, xgrammar = import_module("torch"), import_module("xgrammar")
        transformers = import_module("transformers")
        torch.set_num_threads(1)
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        self.eos = _eos(folder)
        self.info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, stop_token_ids=[self.eos])
        self.compiler = xgrammar.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)
        self.make = xgrammar.GrammarMatcher
        self.rows = xgrammar.allocate_token_bitmask(1, self.info.vocab_size)
        self.row = self.rows[0].numpy().view(np.uint32)

    def forget(self) -> None:
        self.compiler.clear_cache()

    def grammar(self, pattern: str, ecma: str | None) -> Any:
        spelled = pattern.replace("(?s:.*)", r"[\s\S]*")
        try:
            return self.compiler.compile_regex(spelled)
        except RuntimeError as error:
            raise ValueError(str(error)) from None

    def schema(self, text: str, options: dict[str, Any]) -> Any:
        """Any whitespace, and further properties as the schema says; `options` are Treille's."""
        try:
            return self.compiler.compile_json_schema(text, any_whitespace=True, strict_mode=False)
        except RuntimeError as error:
            raise Refused(str(error).split("\n")[-1][:60], str(error)) from None

    def matcher(self, grammar: Any) -> Any:
        return self.make(grammar)

    def fill(self, matcher: Any) -> None:
        if not matcher.fill_next_token_bitmask(self.rows):
            self.row[:] = 0xFFFFFFFF  # it leaves the row alone where everything is allowed

    def accept(self, matcher: Any, token: int) -> bool:
        return bool(matcher.accept_token(token))

    def again(self, grammar: Any, matcher: Any) -> Any:
        return self.make(grammar)


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "treille": Treille,
    "llguidance": LlGuidance,
    "xgrammar": XGrammar,
}


def _eos(folder: Path) -> int:
    """The id that ends a text, by the folder's files."""
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    name = settings["eos_token"]
    name = name["content"] if isinstance(name, dict) else name
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = {one["content"]: one["id"] for one in content["added_tokens"]}
    return int(added[name])


def walk(
    engine: Engine, matcher: Any, tokens: list[int], endings: list[bool | None], clock: Callable[[], int]
) -> dict[str, Any]:
    """Follows the tokens, the mask at the start made already, and checks each mask outside of the clock."""
    fill, accept, row, eos = engine.fill, engine.accept, engine.row, engine.eos
    times: list[int] = []
    wrong_ends = _wrong_end(row, eos, endings[0])
    for at, token in enumerate(tokens):
        if not row[token >> 5] >> np.uint32(token & 31) & np.uint32(1):
            return {"ns": times, "masked": at, "wrong_ends": wrong_ends}
        start = clock()
        taken = accept(matcher, token)
        fill(matcher)
        times.append(clock() - start)
        if not taken:
            return {"ns": times, "masked": at, "wrong_ends": wrong_ends}
        wrong_ends += _wrong_end(row, eos, endings[at + 1])
    return {"ns": times, "masked": None, "wrong_ends": wrong_ends}


def _wrong_end(row: Any, eos: int, expected: bool | None) -> int:  # noqa: FBT001
    may_end = bool(row[eos >> 5] >> np.uint32(eos & 31) & np.uint32(1))
    return int(expected is not None and may_end != expected)


def measure(engine: Engine, task: dict[str, Any], clock: Callable[[], int]) -> dict[str, Any]:
    """One input: compiled afresh, its text followed, and followed again."""
    engine.forget()
    gc.collect()
    start = clock()
    try:
        grammar = engine.grammar(task["pattern"], task["ecma"])
    except ValueError as error:
        return {"refused": str(error)[:200]}
    matcher = engine.matcher(grammar)
    engine.fill(matcher)
    first = clock() - start
    cold = walk(engine, matcher, task["tokens"], task["endings"], clock)
    matcher = engine.again(grammar, matcher)
    engine.fill(matcher)
    warm = walk(engine, matcher, task["tokens"], task["endings"], clock)
    return {"first": first, "cold": cold, "warm": warm}


def main() -> None:
    """Answers tasks until the input ends."""
    kind = sys.argv[4] if len(sys.argv) > 4 else "patterns"
    if len(sys.argv) > 5:
        resource.setrlimit(resource.RLIMIT_AS, (int(float(sys.argv[5]) * 2**30),) * 2)
    engine = ENGINES[sys.argv[1]](Path(sys.argv[2]))
    clock = CLOCKS[sys.argv[3]]
    answer = measure if kind == "patterns" else measure_schema
    warm_up: list[dict[str, Any]] = [{"schema": one, "options": {}, "tests": []} for one in WARM_UP_SCHEMAS]
    if kind == "patterns":
        warm_up = [{"pattern": one, "ecma": None, "tokens": [], "endings": [None]} for one in WARM_UP]
    gc.collect()
    gc.freeze()
    gc.disable()
    for task in warm_up:
        answer(engine, task, clock)
    print(json.dumps({"version": version(sys.argv[1])}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(engine, json.loads(line), clock)), flush=True)


if __name__ == "__main__":
    main()
