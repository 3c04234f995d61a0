"""What the commands that look into constraints have in common: tables, a clock, tokenizers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import tokenizers
from rich.console import Console
from rich.table import Table
from rich.text import Text

from treille.cli_errors import CommandError
from treille.runtime.grammar import Vocabulary
from treille.runtime.grammar.spellings import read_tokenizer
from treille.runtime.models.aliases import ALIASES
from treille.runtime.models.gguf import GGUFSource
from treille.runtime.models.resolve import resolve_model
from treille.runtime.patience import said_if_slow
from treille.runtime.tokenizer import Tokenizer


def read_vocabulary(name: str) -> tuple[Tokenizer, Vocabulary]:
    """The tokenizer of an alias, a model folder, a GGUF file, a hub id or a tokenizer.json, and its tokens.

    No weights are read. Raises `CommandError` or `ModelError` with what to do about it.
    """
    path = Path(name).expanduser()
    try:
        if name not in ALIASES and path.suffix == ".json" and path.is_file():
            return _from_file(path)
        known = _from_model(name)
        return known, Vocabulary.from_tokenizer(known)
    except ValueError as error:
        raise CommandError(f"--tokenizer {name}: {error}") from error


def _from_model(name: str) -> Tokenizer:
    place = resolve_model(name)
    if not place.is_gguf:
        return Tokenizer.from_folder(place.path)
    with GGUFSource(place.path) as source, TemporaryDirectory(prefix="treille-") as scratch:
        for file, content in source.tokenizer_files().items():
            (Path(scratch) / file).write_bytes(content)
        return Tokenizer.from_folder(scratch)


def _from_file(path: Path) -> tuple[Tokenizer, Vocabulary]:
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the bindings raise bare Exception for a file that does not parse
        raise CommandError(f"{path} cannot be read as a tokenizer: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    known = Tokenizer.from_folder(path.parent) if path.name == "tokenizer.json" else Tokenizer(backend)
    ends = known.eos_ids or read_tokenizer(backend).eos_ids
    return known, Vocabulary.from_tokenizer(known, eos_ids=ends)


@contextmanager
def explained_wait() -> Iterator[None]:
    """Says on stderr what takes so long, if it does."""
    with said_if_slow(lambda words: print(f"treille: {words}", file=sys.stderr, flush=True)):
        yield


def num_texts(vocab: Vocabulary) -> int:
    """How many tokens are text."""
    return sum(spelling is not None for spelling in vocab.tokens)


def ends(vocab: Vocabulary) -> str:
    """Which ids end a text, in words."""
    ids = ", ".join(map(str, sorted(vocab.eos_ids)))
    return f"ended by {ids}" if ids else "none that ends a text"


def duration(seconds: float) -> str:
    """A time as people read it."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.2f} ms"


def grid(rows: list[tuple[str, Text]]) -> Table:
    """Names and what is to be said of each."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name, style="bold"), value)
    return table


def new_console() -> Console:
    """Standard output."""
    console = Console(highlight=False)
    # A file or a pipe has no width: let no column be cut there.
    return console if console.is_terminal else Console(highlight=False, width=240)
