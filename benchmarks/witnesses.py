"""Is every value that the engine draws valid, and what is not refused? Witnesses, mutants, random texts.

    python benchmarks/witnesses.py --data MASKBENCH                      # witnesses and mutants
    python benchmarks/witnesses.py --data MASKBENCH --random-logits      # and texts of random tokens

For each schema random values of its forms are drawn: `jsonschema` must accept each, and so must the engine,
byte by byte. Values that differ a little from them and that `jsonschema` rejects must be rejected. With
`--random-logits` the embedded model's tokens are drawn from the masks as chance has it: what is finished
must be valid, and no mask may be empty or allow whitespace alone.

Where a verdict hangs on a pattern that Python reads otherwise than ECMA-262, node decides; where it hangs on
a format alone, which `jsonschema` checks loosely or not at all, it is counted apart. Prints a table and the
disagreements, and ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from masks_inputs import seconds
from masks_vocabularies import vocabulary_folder
from schemas_inputs import pick
from witnesses_oracle import EcmaSearch, Oracle

from treille.runtime.errors import ConstraintError, GrammarError
from treille.runtime.grammar import Vocabulary
from treille.runtime.grammar.limits import Budget
from treille.runtime.schema.accepts import accepts
from treille.runtime.schema.compile import compile_json_schema
from treille.runtime.schema.document import Document
from treille.runtime.schema.drafts import Draft
from treille.runtime.schema.json_text import dumps
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.mutants import mutants
from treille.runtime.schema.sets import DocumentSets
from treille.runtime.schema.witness import Witnesses
from treille.runtime.tokenizer import Tokenizer

SIZES = (0, 5, 15, 40, 40, 80)
ORDERS = ("any", "schema")
BYTES_END = 256
SHOWN = 600  # characters of a value in a report
MUTANT_TRIES = 8
SPACES = b" \t\r\n"
CLOSERS = b'"]}'


@dataclass
class Tally:
    """What was counted, and what was found wrong: one dictionary each."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, str]] = field(default_factory=list)

    def wrong(self, kind: str, file: str, **more: str) -> None:
        """Counts and keeps a disagreement."""
        self.counts[kind] += 1
        self.findings.append({"kind": kind, "file": file, **more})


@dataclass
class Subject:
    """One schema, as the engine and as `jsonschema` have it. `formless`: with formats as annotations, where
    there are any."""

    name: str
    text: str
    sets: DocumentSets
    formless: DocumentSets | None
    witnesses: Witnesses
    oracle: Oracle
    tally: Tally

    def compiled(self, vocab: Vocabulary) -> dict[str, Any]:
        """By order of the keys: its grammar."""
        return {
            order: compile_json_schema(self.text, vocab, property_order=order, escapes="any")
            for order in ORDERS
        }

    def judge(self, kind: str, value: Any, *, expected: bool) -> bool:
        """Whether `jsonschema` agrees on a value. Where it does not without an excuse, that is wrong."""
        verdict = self.oracle.verdict(value, expected=expected)
        if verdict.is_valid == expected:
            return True
        if verdict.ecma == expected:
            self.tally.counts[f"{kind}: pattern alone"] += 1
        elif self.formless and accepts(self.formless, self.formless.root, value) == verdict.formless:
            self.tally.counts[f"{kind}: format alone"] += 1
        else:
            self.wrong(kind, value, faults=", ".join(sorted(verdict.faults)))
        return False

    def wrong(self, kind: str, value: Any, **more: str) -> None:
        """Keeps a value with what is wrong about it."""
        self.tally.wrong(kind, self.name, value=dumps(value)[:SHOWN], **more)


def read(path: Path, ecma: EcmaSearch, tally: Tally) -> Subject:
    """A file's schema. Raises `ConstraintError` where it is refused."""
    content = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    schema = content["schema"]
    text = dumps(schema)
    document = Document(text)
    budget = Budget("schema", seconds=20)
    languages = Languages(document.patterns, document.formats, budget=budget)
    sets = DocumentSets(document, languages, check=budget.check_time)
    formless = None
    if document.formats:
        loose = Document(text, formats="annotation")
        formless = DocumentSets(loose, Languages(loose.patterns, ()))
    oracle = Oracle(schema, document.root.draft, ecma)
    return Subject(path.stem, text, sets, formless, Witnesses(sets, languages), oracle, tally)


def follows(grammar: Any, text: str) -> bool:
    """Whether a grammar over single bytes takes a text to its end."""
    matcher = grammar.matcher()
    try:
        for byte in text.encode():
            matcher.accept(byte)
    except GrammarError:
        return False
    return bool(matcher.can_stop())


def check_witnesses(subject: Subject, grammars: dict[str, Any], rng: random.Random, per_file: int) -> None:
    """Draws values and mutants of them, and compares everybody's verdicts."""
    free = subject.oracle.draft is not Draft.D4  # to which 1.0 is another type than 1
    for at in range(per_file):
        value = subject.witnesses.draw(subject.sets.root, rng, size=SIZES[at % len(SIZES)])
        subject.tally.counts["witnesses"] += 1
        subject.judge("witness rejected by jsonschema", value, expected=True)
        if not accepts(subject.sets, subject.sets.root, value):
            subject.wrong("witness rejected by the forms", value)
        for order, grammar in grammars.items():
            texts = [dumps(value), dumps(value, rng, escapes=True, numbers=free, order=order == "any")]
            for text in texts:
                if not follows(grammar, text):
                    subject.wrong(f"witness rejected by the matcher, {order} order", value, text=text[:SHOWN])
                    break
        check_mutants(subject, grammars, value, rng)


def check_mutants(subject: Subject, grammars: dict[str, Any], value: Any, rng: random.Random) -> None:
    """Looks for a mutant that is invalid, and has it rejected; valid ones on the way must be accepted."""
    for mutant in mutants(value, rng, MUTANT_TRIES):
        ours = accepts(subject.sets, subject.sets.root, mutant)
        followed = follows(grammars["any"], dumps(mutant)) if grammars else ours
        if followed != ours:
            subject.wrong(f"mutant: the forms say {ours}, the matcher {followed}", mutant)
        kind = "invalid mutant accepted" if ours else "valid mutant rejected"
        agreed = subject.judge(kind, mutant, expected=ours)
        if agreed and not ours:
            subject.tally.counts["invalid mutants"] += 1
            return
        if agreed:
            subject.tally.counts["valid mutants"] += 1


class RandomModel:
    """Random logits over a vocabulary, with a liking for tokens that close something."""

    def __init__(self, vocab: Vocabulary, rng: random.Random, num_tokens: int) -> None:
        self.vocab = vocab
        self._rng = np.random.default_rng(rng.randrange(1 << 32))
        self._num_tokens = num_tokens
        texts = [text or b"" for text in vocab.tokens] + [b""] * (vocab.vocab_size - len(vocab.tokens))
        self._texts = texts
        self._is_space = np.array([bool(text) and not text.strip(SPACES) for text in texts])
        self._closes = np.array([any(byte in CLOSERS for byte in text) for text in texts])
        self._ends = np.unpackbits(vocab.eos_words.view(np.uint8), bitorder="little", count=vocab.vocab_size)

    def write(self, grammar: Any) -> tuple[bytes, str]:
        """A text, and how it ended: "finished", "unfinished", "empty mask" or "only whitespace"."""
        matcher = grammar.matcher()
        row = np.zeros(self.vocab.num_words, np.uint32)
        written: list[bytes] = []
        for num in range(self._num_tokens):
            matcher.fill_mask(row)
            bits = np.unpackbits(row.view(np.uint8), bitorder="little", count=self.vocab.vocab_size)
            allowed = np.flatnonzero(bits)
            if not len(allowed):
                return b"".join(written), "empty mask"
            if self._is_space[allowed].all():
                return b"".join(written), "only whitespace"
            ending = (bits & self._ends).any()
            if ending and (self._rng.random() < 0.5 or len(allowed) == 1):
                return b"".join(written), "finished"
            allowed = allowed[~self._ends[allowed].astype(bool)]
            if not len(allowed):
                return b"".join(written), "finished"
            closing = allowed[self._closes[allowed]]
            if len(closing) and self._rng.random() < (0.4 if num < self._num_tokens // 2 else 0.9):
                allowed = closing
            token_id = int(self._rng.choice(allowed))
            matcher.accept(token_id)
            written.append(self._texts[token_id])
        return b"".join(written), "unfinished"


def check_random_logits(subject: Subject, model: RandomModel, num_texts: int) -> None:
    """Has random texts written under the masks, and those that are finished judged."""
    for order, grammar in subject.compiled(model.vocab).items():
        for _ in range(num_texts):
            text, ending = model.write(grammar)
            subject.tally.counts[f"random texts {ending}"] += 1
            if ending in ("empty mask", "only whitespace"):
                subject.tally.wrong(ending, subject.name, value=repr(text[-SHOWN:]), order=order)
            if ending != "finished":
                continue
            try:
                value = json.loads(text.decode(), parse_float=Decimal)
            except (ValueError, RecursionError) as error:
                subject.tally.wrong("no JSON", subject.name, value=repr(text[:SHOWN]), error=str(error))
                continue
            subject.judge("random text rejected by jsonschema", value, expected=True)


def warm_up(vocab: Vocabulary) -> None:
    """Has what is compiled by numba compiled before a clock runs."""
    schema = {"type": ["object", "array", "string", "number", "null"], "uniqueItems": True}
    matcher = compile_json_schema(schema, vocab).matcher()
    row = np.zeros(vocab.num_words, np.uint32)
    for text in (b"[", b'"', b"a", b'"', b",", b"{", b'"', b"a", b'"', b":", b"1", b"}", b"]"):
        matcher.fill_mask(row)
        matcher.accept(next(at for at, one in enumerate(vocab.tokens) if one == text))
    matcher.can_stop()


@contextmanager
def guarded(name: str, tally: Tally, limit: float) -> Iterator[None]:
    """Counts what goes wrong instead of ending everything."""
    try:
        with seconds(limit):
            yield
    except ConstraintError as error:
        tally.counts["refused"] += 1
        tally.findings.append({"kind": "refused", "file": name, "error": str(error)[:SHOWN]})
    except TimeoutError:
        tally.wrong("took too long", name, error="".join(traceback.format_exc().splitlines()[-3:-1]))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        tally.wrong("crashed", name, error=f"{type(error).__name__}: {str(error)[:SHOWN]} at {where}")


def run(files: list[Path], options: argparse.Namespace) -> Tally:
    """Everything that is asked for, file by file."""
    tally, ecma = Tally(), EcmaSearch()
    tokens = [*(bytes([byte]) for byte in range(256)), None]
    byte_vocab = Vocabulary(tokens, eos_ids=[BYTES_END])
    model = None
    if options.random_logits:
        folder = vocabulary_folder("smollm2", Path(options.cache))
        vocab = Vocabulary.from_tokenizer(Tokenizer.from_folder(folder))
        model = RandomModel(vocab, random.Random(options.seed), options.tokens)
    warm_up(byte_vocab if model is None else model.vocab)
    for path in files:
        rng = random.Random(f"{options.seed} {path.stem}")
        tally.counts["files"] += 1
        begun = time.process_time()
        with guarded(path.stem, tally, options.limit):
            subject = read(path, ecma, tally)
            if model is None:
                grammars = {} if options.forms_only else subject.compiled(byte_vocab)
                check_witnesses(subject, grammars, rng, options.per_file)
            else:
                check_random_logits(subject, model, options.texts)
            tally.counts["files drawn from"] += 1
        if options.verbose:
            print(f"{path.stem}: {time.process_time() - begun:.2f} s", flush=True)
    ecma.close()
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="MaskBench's files")
    parser.add_argument("--files", type=int, help="so many files, spread over all")
    parser.add_argument("--only", action="append", default=[], help="files with this in their name")
    parser.add_argument("--per-file", type=int, default=20, help="witnesses of each schema")
    parser.add_argument("--forms-only", action="store_true", help="ask the forms, and compile nothing")
    parser.add_argument("--random-logits", action="store_true", help="texts of random tokens instead")
    parser.add_argument("--texts", type=int, default=4, help="random texts a schema and order of keys")
    parser.add_argument("--tokens", type=int, default=400, help="tokens that a random text may have")
    parser.add_argument("--cache", default=str(Path.home() / ".cache/treille-bench"), help="for vocabularies")
    parser.add_argument("--limit", type=float, default=60, help="seconds of processor time a file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="where every finding goes, a line of JSON each")
    parser.add_argument("--worst", type=int, default=20, help="findings to print")
    parser.add_argument("--verbose", action="store_true", help="say how long each file took")
    options = parser.parse_args()
    tally = run(pick(options.data, options.files, options.only), options)
    for name, count in sorted(tally.counts.items()):
        print(f"{count:9,}  {name}")
    bad = [one for one in tally.findings if one["kind"] != "refused"]
    for one in bad[: options.worst]:
        print(json.dumps(one, ensure_ascii=False)[:1000])
    if options.output:
        lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in tally.findings]
        options.output.write_text("".join(lines), encoding="utf-8")
    print(json.dumps({"benchmark": "witnesses", "counts": dict(sorted(tally.counts.items()))}))


if __name__ == "__main__":
    main()
