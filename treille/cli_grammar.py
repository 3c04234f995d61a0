"""`treille grammar`: what a constraint allows, what it makes of a text, and what it costs."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from treille.cli_errors import FAILED, CommandError
from treille.cli_parts import duration, ends, explained_wait, grid, new_console, num_texts, read_vocabulary
from treille.grammar_source import GrammarSource, Kind, option_words
from treille.runtime.constraints import schema_options
from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar import (
    Grammar,
    Matcher,
    Vocabulary,
    compile_json_schema,
    compile_lark,
    compile_regex,
)
from treille.runtime.grammar.arena import Arena
from treille.runtime.grammar.automaton import Dfa
from treille.runtime.grammar.drawing import draw_dfa, in_character
from treille.runtime.grammar.explain import Verdict, byte_vocabulary, describe, judge, name_of, readable
from treille.runtime.grammar.regex import whole_dfa
from treille.runtime.tokenizer import Tokenizer

MAX_ROWS = 400  # positions of a text that are listed
MAX_FORCED = 40  # bytes shown of what must come next
DRAWING_SECONDS = 60
# Compiled first, so that no time is taken for loading code.
EXAMPLES: dict[Kind, str] = {"regex": "a", "lark": 'start: "a"', "schema": '{"type": "object"}'}


@dataclass(frozen=True, slots=True)
class Position:
    """The mask at one place of a text: before `token_id`, or at the end of it (None).

    `num_allowed` does not count the ids that end a text. `end` is "", "may" or "must".
    """

    offset: int
    token_id: int | None
    num_allowed: int
    end: str
    forced: bytes
    is_refused: bool = False


def grammar(
    source: GrammarSource, *, tokenizer: str, text: bytes | None, draw: Path | None, in_bytes: bool
) -> None:
    """Print the report, and draw, byte by byte if `in_bytes`. Exit code 1 if the text is not accepted."""
    console = new_console()
    known, vocab = read_vocabulary(tokenizer)
    bytewise = byte_vocabulary()
    with explained_wait():
        vocab.prepare()
        _compiled(GrammarSource("", EXAMPLES[source.kind], source.kind), bytewise)
    compiled, facts = _measured(source, vocab)
    judging = _compiled(source, bytewise)
    found = positions(compiled, [] if text is None else token_ids(known, vocab, text))
    verdict = None if text is None else judge(judging, text)
    facts.append(("states reached", Text(f"{compiled.num_states:,}")))
    whole = _whole(judging)
    facts.append(("whole automaton", Text(whole if isinstance(whole, str) else _size(whole))))
    if text is not None and verdict is not None:
        facts.extend(explain(text, verdict))
    described = f"{tokenizer}: {num_texts(vocab):,} tokens that are text, {ends(vocab)}"
    console.print(grid([("constraint", Text(_name(source))), ("tokenizer", Text(described)), *facts]))
    console.print()
    console.print(density_table(vocab, found))
    if draw is not None:
        if isinstance(whole, str):
            raise CommandError(f"cannot draw {draw}: {whole}")
        write_picture(draw, draw_dfa(whole, source.title, in_bytes=in_bytes))
        console.print(Text(f"drawn: {draw}"))
    if verdict is not None and not verdict.is_accepted:
        raise typer.Exit(FAILED)


def _measured(source: GrammarSource, vocab: Vocabulary) -> tuple[Grammar, list[tuple[str, Text]]]:
    """The grammar, and what it took to get there."""
    started = time.perf_counter()
    compiled = _compiled(source, vocab)
    took = duration(time.perf_counter() - started)
    row = np.zeros(vocab.num_words, np.uint32)
    started = time.perf_counter()
    compiled.matcher().fill_mask(row)
    first_mask = duration(time.perf_counter() - started)
    return compiled, [("compiled in", Text(took)), ("first mask in", Text(first_mask))]


def token_ids(tokenizer: Tokenizer, vocab: Vocabulary, text: bytes) -> list[int]:
    """The tokenizer's own tokens of a text; where they do not spell it byte for byte (some tokenizers put
    a space before it), the longest tokens that do, as far as there are any."""
    ids: list[int] = tokenizer.encode(text.decode(), add_bos=False)
    if b"".join(vocab.tokens[one] or b"" for one in ids) == text:
        return ids
    by_spelling = {spelling: one for one, spelling in enumerate(vocab.tokens) if spelling is not None}
    longest = max(map(len, by_spelling), default=0)
    ids, at = [], 0
    while at < len(text):
        sizes = range(min(longest, len(text) - at), 0, -1)
        size = next((size for size in sizes if text[at : at + size] in by_spelling), None)
        if size is None:
            break
        ids.append(by_spelling[text[at : at + size]])
        at += size
    return ids


def positions(grammar: Grammar, ids: list[int]) -> list[Position]:
    """The mask before each token and at the end; the first token that is not allowed is the last one."""
    matcher = grammar.matcher()
    found, offset = [], 0
    for token_id in ids:
        is_refused = not matcher.allows(token_id)
        found.append(_position(matcher, offset, token_id, is_refused=is_refused))
        if is_refused:
            return found
        matcher.accept(token_id)
        offset += len(grammar.vocab.tokens[token_id] or b"")
    return [*found, _position(matcher, offset, None, is_refused=False)]


def _position(matcher: Matcher, offset: int, token_id: int | None, *, is_refused: bool) -> Position:
    vocab = matcher.grammar.vocab
    row = np.zeros(vocab.num_words, np.uint32)
    matcher.fill_mask(row)
    num_allowed = int(np.unpackbits((row & ~vocab.eos_words).view(np.uint8)).sum())
    end = "must" if matcher.must_stop() else "may" if matcher.can_stop() else ""
    return Position(offset, token_id, num_allowed, end, matcher.forced_bytes(MAX_FORCED), is_refused)


def density_table(vocab: Vocabulary, found: list[Position]) -> Table:
    """How many tokens are allowed at each position."""
    table = Table("at byte", "next token", "id", "allowed", "% of tokens", "end", box=None, pad_edge=False)
    for column in (0, 2, 3, 4):
        table.columns[column].justify = "right"
    table.add_column("must go on with", overflow="fold")
    for one in found[:MAX_ROWS]:
        spelling = "" if one.token_id is None else f'"{readable(vocab.tokens[one.token_id] or b"")}"'
        token = Text(f"{spelling}  not allowed" if one.is_refused else spelling)
        token.stylize("bold red" if one.is_refused else "green")
        share = f"{100 * one.num_allowed / max(1, num_texts(vocab)):.3f}"
        cells = ("" if one.token_id is None else str(one.token_id), f"{one.num_allowed:,}", share, one.end)
        forced = Text(f'"{readable(one.forced)}"' if one.forced else "", style="cyan")
        table.add_row(str(one.offset), token, *cells, forced)
    if len(found) > MAX_ROWS:
        table.add_row("", Text(f"and {len(found) - MAX_ROWS} positions more"))
    return table


def explain(text: bytes, verdict: Verdict) -> Iterator[tuple[str, Text]]:
    """What is to be said about a text, as pairs of a name and its words."""
    if verdict.is_accepted:
        yield "text", Text("accepted", style="bold green")
        yield "could go on with", Text(describe(verdict.allowed))
        return
    if verdict.offset == len(text):
        yield "text", Text(f"not accepted: it ends too soon, after byte {len(text)}", style="bold red")
    else:
        byte, rest = text[verdict.offset], text[verdict.start :].decode()
        place = (
            f"not accepted: byte {verdict.offset} (0x{byte:02X}, of the character {name_of(ord(rest[0]))})"
        )
        yield "text", Text(f"{place} is not allowed", style="bold red")
    before = text[: verdict.start]
    shown = readable(before[-60:].decode(errors="ignore").encode())
    yield "after", Text(f'"{shown}"' if len(before) <= 60 else f'..."{shown}"')
    ending = ", or the end of the text" if verdict.may_stop else ""
    yield "allowed there", Text(describe(verdict.allowed) + ending)


def write_picture(path: Path, drawing: str) -> None:
    """Writes DOT, or has graphviz draw it. Raises `CommandError` where graphviz is missing (the DOT text is
    written then) or fails."""
    if path.suffix.lower() == ".dot":
        path.write_text(drawing, encoding="utf-8")
        return
    program = shutil.which("dot")
    if program is None:
        instead = path.with_suffix(".dot")
        instead.write_text(drawing, encoding="utf-8")
        raise CommandError(
            f"{path} needs graphviz's `dot`, which is not installed: get it with `apt-get install graphviz` "
            f"or `brew install graphviz`; the drawing is in {instead} for now"
        )
    try:
        done = subprocess.run(
            [program, "-Tsvg"],
            input=drawing.encode(),
            capture_output=True,
            timeout=DRAWING_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"dot took more than {DRAWING_SECONDS} s to draw {path}") from None
    except subprocess.CalledProcessError as error:
        raise CommandError(f"dot could not draw {path}: {error.stderr.decode(errors='replace')}") from error
    path.write_bytes(done.stdout)


def _compiled(source: GrammarSource, vocab: Vocabulary) -> Grammar:
    if source.kind == "regex":
        return compile_regex(source.text, vocab, dialect=source.dialect)
    if source.kind == "schema":
        return compile_json_schema(source.text, vocab, **schema_options(source.schema))
    return compile_lark(source.text, vocab, start=source.start, parser=source.parser)


def _whole(grammar: Grammar) -> Dfa | str:
    """The minimal automaton, or why there is none."""
    if not isinstance(grammar.arena, Arena):
        return "a pushdown: texts nest without bound"
    try:
        return whole_dfa(grammar.arena)
    except UnsupportedConstraint as error:
        return f"not finite, or too large to be explored: {error.reason}"


def _size(whole: Dfa) -> str:
    num_between = whole.num_states - int(in_character(whole).sum())
    return f"minimal; {num_between:,} states between characters, {whole.num_states:,} between bytes"


def _name(source: GrammarSource) -> str:
    if source.kind == "regex":
        return f"regex ({source.dialect}) {readable(source.text.encode(errors='replace'))}"
    if source.kind == "schema":
        return ", ".join(filter(None, (f"JSON Schema {source.title}", option_words(source.schema))))
    return f"Lark grammar {source.title}, from {source.start}, as the {source.parser} parser takes it"
