"""JSON-Schema-Test-Suite: its groups, and how the engine judges them byte by byte.

A group is a schema with instances. Each instance is told as JSON text three ways: with the default separators
of `json.dumps`, with compact ones, and with nothing escaped that JSON does not ask to escape. The verdict on
it is right if all three are. What the suite's own server would serve (its folder of remotes) is given along.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from treille.runtime.errors import ConstraintError, InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import Grammar, Vocabulary
from treille.runtime.schema.compile import compile_json_schema

DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}
SERVER = "http://localhost:1234/"
END = 256
SPELLINGS: tuple[dict[str, Any], ...] = (
    {},
    {"separators": (",", ":")},
    {"ensure_ascii": False},
)


@dataclass(frozen=True)
class Group:
    """A schema and its instances: description, value, whether it is valid."""

    file: str
    description: str
    schema: Any
    tests: list[tuple[str, Any, bool]]
    documents: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass
class Outcome:
    """What became of a group. `refusal`: (keyword, place, reason). `accepted`, `rejected`: wrongly so."""

    group: Group
    refusal: tuple[str, str, str] | None = None
    is_empty: bool = False
    num_right: int = 0
    accepted: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)

    @property
    def is_rightly_empty(self) -> bool:
        """Refused because no value satisfies it, and so the suite says of every instance."""
        return self.is_empty and not any(valid for _, _, valid in self.group.tests)


def suite_folder(data: Path) -> Path | None:
    """The suite in a folder of unpacked archives, or that folder itself."""
    places = (data, data / "json-schema-test-suite")
    return next((one for one in places if (one / "draft2020-12" / "allOf.json").is_file()), None)


def read_groups(folder: Path, draft: str, part: str = "") -> list[Group]:
    """The groups of a draft: of the required tests, or of a `part` such as "optional/format"."""
    groups, documents = [], remotes(folder)
    for file in sorted((folder / draft / part).glob("*.json")):
        for one in json.loads(file.read_text(encoding="utf-8")):
            schema = one["schema"]
            if isinstance(schema, dict) and "$schema" not in schema:
                schema = {"$schema": DRAFTS[draft], **schema}
            tests = [(test["description"], test["data"], bool(test["valid"])) for test in one["tests"]]
            groups.append(Group(file.stem, one["description"], schema, tests, documents))
    return groups


def remotes(folder: Path) -> dict[str, Any]:
    """What the suite's server has, by URI; empty where the folder beside the suite is not there."""
    place = folder.parent / "json-schema-test-suite-remotes"
    files = sorted(place.rglob("*.json"))
    return {
        SERVER + file.relative_to(place).as_posix(): json.loads(file.read_text("utf-8")) for file in files
    }


def byte_vocabulary() -> Vocabulary:
    """Every byte is a token by itself; `END` ends a text."""
    return Vocabulary([*(bytes([byte]) for byte in range(256)), None], eos_ids=[END])


def judge(group: Group, vocab: Vocabulary, **options: Any) -> Outcome:
    """Compiles a group's schema, with the compiler's own `options`, and feeds it every instance."""
    outcome = Outcome(group)
    try:
        grammar = compile_json_schema(
            group.schema, vocab, property_order="any", escapes="any", documents=group.documents, **options
        )
    except UnsupportedConstraint as error:
        outcome.refusal = (error.keyword, error.path, error.reason)
    except ConstraintError as error:
        outcome.refusal = ("invalid", "", str(error))
        outcome.is_empty = isinstance(error, InvalidConstraint) and says_empty(str(error))
    else:
        for description, value, valid in group.tests:
            wrong = [text for text in spellings(value) if takes(grammar, text.encode()) != valid]
            outcome.num_right += not wrong
            if wrong:
                where = f"{group.file}: {group.description}: {description}"
                told = f"{where}: {wrong[0]!r} under {json.dumps(group.schema)}"
                (outcome.rejected if valid else outcome.accepted).append(told)
    return outcome


def says_empty(message: str) -> bool:
    """Whether an error says that no value satisfies the schema."""
    return "no value" in message


def spellings(value: Any) -> list[str]:
    """Texts of a value; lone surrogates, which have no bytes, only escaped."""
    texts = []
    for options in SPELLINGS:
        text = json.dumps(value, **options)
        if text not in texts and text.isascii() | all(not 0xD800 <= ord(char) < 0xE000 for char in text):
            texts.append(text)
    return texts


def takes(grammar: Grammar, data: bytes) -> bool:
    """Whether a text is accepted whole; mask, `allows` and `accept` must be of one mind all the way."""
    matcher = grammar.matcher()
    row = np.zeros(grammar.vocab.num_words, np.uint32)
    for token in [*data, END]:
        matcher.fill_mask(row)
        allowed = bool(row[token >> 5] >> np.uint32(token & 31) & np.uint32(1))
        if not row.any() or allowed != matcher.allows(token):
            raise RuntimeError(f"the mask is wrong after {matcher.num_accepted} bytes of {data!r}")
        if not allowed:
            return False
        matcher.accept(token)
    return True
