"""What a schema is compiled to, as data for people to read: what is enforced and how, what says nothing, what
is refused and why, and examples of its values."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from treille.runtime.errors import ConstraintError, UnsupportedConstraint
from treille.runtime.grammar.limits import Budget
from treille.runtime.schema.document import Document
from treille.runtime.schema.forms import Forms, Note, Option
from treille.runtime.schema.keyword_words import Told, keywords_told, reachable
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.sets import DocumentSets
from treille.runtime.schema.value_words import value_lines
from treille.runtime.schema.witness import WitnessNotFound, examples

MAX_KEYWORDS = 2000
MAX_SETS = 5000  # that are looked into for refusals
SECONDS = 10.0
SEED = 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a schema is refused. `is_wrong`: it is no schema, or no value satisfies it; otherwise it cannot be
    enforced exactly, for `keyword` at `pointer`."""

    message: str
    is_wrong: bool
    keyword: str = ""
    pointer: str = ""

    @classmethod
    def of(cls, error: ConstraintError) -> Refusal:
        """From the error that compiling it ends with."""
        if isinstance(error, UnsupportedConstraint):
            return cls(error.reason, False, error.keyword, error.path)
        return cls(str(error), True)


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a schema.

    `keywords`: each keyword that counts, "enforced" or "simplified" (says nothing where it stands), at most
    MAX_KEYWORDS of `num_keywords`. `notes`: what is an annotation, with the reason. `values`: what the values
    are, a line for each kind. `examples`: JSON texts of some. `no_examples`: why there are none or fewer.
    What comes after the step that refused the schema is empty.
    """

    draft: str = ""
    num_schemas: int = 0
    num_keywords: int = 0
    keywords: tuple[Told, ...] = ()
    notes: tuple[Note, ...] = ()
    values: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    no_examples: str = ""
    refusal: Refusal | None = None


def report(schema: object, *, formats: str = "assert", count: int = 5, seed: int = SEED) -> Report:
    """The report on a schema (a mapping, a boolean or JSON text) with at most `count` examples.

    Nothing that is wrong with the schema is raised: it is in the report.
    """
    try:
        document = Document(schema, formats=formats)  # type: ignore[arg-type]
    except ConstraintError as error:
        return Report(refusal=Refusal.of(error))
    told, num_keywords = keywords_told(document, MAX_KEYWORDS)
    found = Report(
        draft=document.root.draft.value,
        num_schemas=sum(1 for _ in reachable(document)),
        num_keywords=num_keywords,
        keywords=tuple(told),
        notes=tuple(document.notes),
    )
    try:
        budget = Budget("schema", seconds=SECONDS)
        languages = Languages(document.patterns, document.formats, budget=budget)
        sets = DocumentSets(document, languages, check=budget.check_time)
        values = value_lines(sets.forms(sets.root), _names(document, languages))
        _look_everywhere(sets)
    except ConstraintError as error:
        return replace(found, refusal=Refusal.of(error))
    drawn, none = _examples(sets, languages, count, seed)
    return replace(found, values=tuple(values), examples=drawn, no_examples=none)


def _names(document: Document, languages: Languages) -> dict[int, str]:
    """What the languages are called, by their numbers."""
    names = {
        languages.pattern(text): f"the pattern {json.dumps(text, ensure_ascii=False)}"
        for text in document.patterns
    }
    return names | {languages.format(name): f"the format {name}" for name in document.formats}


def _look_everywhere(sets: DocumentSets) -> None:
    """Work out what values may be below the root: what cannot be said exactly there raises now."""
    seen = {sets.root}
    waiting = [sets.root]
    while waiting and len(seen) < MAX_SETS:
        for option in _options(sets.forms(waiting.pop())):
            if option.value not in seen:
                seen.add(option.value)
                waiting.append(option.value)


def _options(forms: Forms) -> Iterator[Option]:
    for array in forms.arrays:
        for options in (*array.prefix, array.rest):
            yield from options
    for one in forms.objects:
        for key in one.keys:
            yield from key.options
        for region in one.regions:
            yield from region.options


def _examples(sets: DocumentSets, languages: Languages, count: int, seed: int) -> tuple[tuple[str, ...], str]:
    if count < 1:
        return (), ""
    try:
        found = examples(sets, languages, random.Random(seed), count)
    except (WitnessNotFound, ConstraintError) as error:
        return (), str(error)
    return tuple(found), "" if len(found) == count else "there are no others, or none was found"
