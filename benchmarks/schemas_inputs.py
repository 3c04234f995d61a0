"""The inputs of `schemas.py` and `masks.py --schemas`: MaskBench's files, `{schema, tests: [{valid, data}]}`.

An instance is the text that `json.dumps` makes of it, not escaped where JSON does not ask for it, cut up by
the vocabulary's own tokenizer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from treille.runtime.grammar import Vocabulary
from treille.runtime.tokenizer import Tokenizer

DEFAULT = (", ", ": ")
COMPACT = (",", ":")


@dataclass(frozen=True)
class Instance:
    """A text, its tokens with the place in its bytes where each begins, and whether it is valid."""

    valid: bool
    text: str
    tokens: list[int]
    starts: list[int]


@dataclass(frozen=True)
class Case:
    """A file: its schema as JSON text, and its instances."""

    name: str
    schema: str
    tests: list[Instance]


def pick(data: Path, number: int | None, only: list[str]) -> list[Path]:
    """The files to use, always the same: spread evenly over the sorted names, or those named by `only`."""
    files = sorted(data.rglob("*.json"))
    if not files:
        raise SystemExit(f"{data} holds no .json files: unpack MaskBench's there")
    if only:
        return [file for file in files if any(part in file.name for part in only)]
    if number is None or number >= len(files):
        return files
    return [files[at * len(files) // number] for at in range(number)]


def read_cases(files: list[Path], folder: Path, separators: tuple[str, str] = DEFAULT) -> list[Case]:
    """The files in the tokens of the vocabulary in `folder`."""
    tokenizer = Tokenizer.from_folder(folder)
    spellings = Vocabulary.from_tokenizer(tokenizer).tokens
    cases = []
    for file in files:
        content = json.loads(file.read_text(encoding="utf-8"))
        tests = []
        for test in content["tests"]:
            text = instance_text(test["data"], separators)
            tokens = tokenizer.encode(text, add_bos=False)
            pieces = [spellings[token] or b"" for token in tokens]
            if b"".join(pieces) != text.encode():
                raise SystemExit(f"{folder} cannot spell {text[:200]!r}")
            starts = list(accumulate(map(len, pieces), initial=0))
            tests.append(Instance(bool(test["valid"]), text, tokens, starts))
        cases.append(Case(file.stem, json.dumps(content["schema"]), tests))
    return cases


def instance_text(value: Any, separators: tuple[str, str] = DEFAULT) -> str:
    """A value's JSON text; escaped where it holds a lone surrogate, which has no bytes."""
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=separators)
    return text
