"""`treille schema`: what a JSON Schema is compiled to, what of it counts, and values that it allows."""

from __future__ import annotations

import time

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from treille.cli_errors import FAILED
from treille.cli_parts import duration, explained_wait, grid, new_console, num_texts, read_vocabulary
from treille.grammar_source import GrammarSource, option_words
from treille.runtime.constraints import schema_options
from treille.runtime.errors import ConstraintError, brief_place
from treille.runtime.grammar import Matcher, Vocabulary, compile_json_schema
from treille.runtime.grammar.explain import byte_vocabulary
from treille.runtime.schema.forms import Note
from treille.runtime.schema.number_texts import prepare_numbers
from treille.runtime.schema.report import Refusal, Report, report
from treille.show import PICTURES

MAX_ROWS = 200  # keywords that are listed
MAX_NOTES = 50
MAX_EXAMPLE = 2000  # characters of an example
ON_ONE_LINE = PICTURES | {ord("\n"): 0x240A, ord("\t"): 0x2409}
STYLES = {"enforced": "green", "simplified": "yellow", "annotation": "yellow"}


def schema(source: GrammarSource, *, tokenizer: str | None, witnesses: int, seed: int) -> None:
    """Print the report. Exit code 1 if the schema is refused.

    `tokenizer` is compiled for; None: for single bytes. `witnesses`: how many values are drawn, with `seed`.
    """
    console = new_console()
    vocab = byte_vocabulary() if tokenizer is None else read_vocabulary(tokenizer)[1]
    with explained_wait():
        found = report(source.text, formats=source.schema.formats, count=witnesses, seed=seed)
        refusal = found.refusal
        facts: list[tuple[str, Text]] = []
        if refusal is None:
            refusal, facts = _compiled(source, vocab)
    if tokenizer is not None:
        facts.insert(0, ("tokenizer", Text(f"{tokenizer}: {num_texts(vocab):,} tokens that are text")))
    _print(console, source, found, refusal, facts)
    if refusal is not None:
        raise typer.Exit(FAILED)


def _compiled(source: GrammarSource, vocab: Vocabulary) -> tuple[Refusal | None, list[tuple[str, Text]]]:
    """Why it cannot be compiled, or what that took."""
    options = schema_options(source.schema)
    vocab.prepare()
    prepare_numbers()
    # The first compile and mask are those of another schema, so that no time is taken for loading code.
    _first_mask(compile_json_schema({"type": "object"}, vocab).matcher(), vocab)
    started = time.perf_counter()
    try:
        grammar = compile_json_schema(source.text, vocab, **options)
        compiled = time.perf_counter()
        _first_mask(grammar.matcher(), vocab)
    except ConstraintError as error:
        return Refusal.of(error), []
    took, first = duration(compiled - started), duration(time.perf_counter() - compiled)
    return None, [("compiled in", Text(took)), ("first mask in", Text(first))]


def _first_mask(matcher: Matcher, vocab: Vocabulary) -> None:
    matcher.fill_mask(np.zeros(vocab.num_words, np.uint32))


def _print(
    console: Console,
    source: GrammarSource,
    found: Report,
    refusal: Refusal | None,
    facts: list[tuple[str, Text]],
) -> None:
    rows = [("schema", _shown(", ".join(filter(None, (source.title, option_words(source.schema))))))]
    if found.draft:
        rows.append(("draft", _shown(found.draft)))
        size = f"{found.num_schemas:,} schemas with {found.num_keywords:,} keywords that count"
        rows.append(("size", _shown(size)))
    rows.append(("verdict", _verdict(refusal)))
    console.print(grid([*rows, *facts]))
    if found.keywords:
        console.print()
        console.print(_keywords(found, is_refused=refusal is not None))
    if found.notes:
        console.print()
        console.print(Text("Says nothing about values:", style="bold"))
        console.print(_notes(found.notes))
    if refusal is None:
        _print_values(console, found)


def _verdict(refusal: Refusal | None) -> Text:
    if refusal is None:
        return _shown("enforced exactly", style="bold green")
    if refusal.is_wrong:
        return _shown(f"refused: {refusal.message}", style="bold red")
    place = f"{refusal.keyword} at {brief_place(refusal.pointer)}" if refusal.pointer else refusal.keyword
    return _shown(f"refused: {place} cannot be enforced exactly: {refusal.message}", style="bold red")


def _keywords(found: Report, *, is_refused: bool) -> Table:
    how = "how it would be enforced" if is_refused else "how it is enforced"
    table = Table("where", "value", how, box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    for told in found.keywords[:MAX_ROWS]:
        value = _shown(told.value, style="cyan")
        table.add_row(_shown(told.pointer), value, _shown(told.text, style=STYLES[told.kind]))
    rest = found.num_keywords - min(len(found.keywords), MAX_ROWS)
    if rest:
        table.add_row("", "", _shown(f"and {rest:,} keywords more"))
    return table


def _notes(notes: tuple[Note, ...]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for note in notes[:MAX_NOTES]:
        place = f"{note.keyword} at {note.pointer}" if note.keyword else note.pointer
        table.add_row(_shown(place), _shown(note.text, style=STYLES[note.kind]))
    if len(notes) > MAX_NOTES:
        table.add_row("", _shown(f"and {len(notes) - MAX_NOTES:,} more"))
    return table


def _print_values(console: Console, found: Report) -> None:
    console.print()
    console.print(_shown("Values:", style="bold"))
    for line in found.values:
        console.print(_shown(f"  {line}"))
    if found.examples:
        console.print()
        console.print(_shown("Examples:", style="bold"))
    for example in found.examples:
        rest = len(example) - MAX_EXAMPLE
        shown = example if rest <= 0 else f"{example[:MAX_EXAMPLE]}... and {rest:,} characters more"
        console.print(_shown(f"  {shown}", style="cyan"), soft_wrap=True)
    if found.no_examples:
        console.print(_shown(f"  {found.no_examples}", style="yellow"))


def _shown(words: str, *, style: str = "") -> Text:
    """Words on one line: what a terminal would act upon is shown as a picture."""
    return Text(words.translate(ON_ONE_LINE), style=style)
