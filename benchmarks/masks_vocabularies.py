"""The vocabularies of `masks.py`: the embedded model's, and byte-level BPE ones of 128k and 256k tokens.

The large ones are trained here, once, on what text the machine has: Python sources, documentation, manual
pages and translations (for scripts other than Latin). Another machine's text gives other tokens of the same
kind, so figures compare only within one run.
"""

from __future__ import annotations

import gettext
import gzip
import json
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from treille.runtime.models.resolve import resolve_model

END = "<|endoftext|>"
SIZES = {"128k": 128 * 1024, "256k": 256 * 1024}
NAMES = ("smollm2", *SIZES)
PIECE = 1 << 16  # characters handed to the trainer at once


def vocabulary_folder(name: str, cache: Path) -> Path:
    """The folder with the vocabulary's tokenizer.json; trained now if it is not there (minutes)."""
    if name == "smollm2":
        return resolve_model("smollm2-135m").path
    folder = cache / f"bpe-{name}"
    if not (folder / "tokenizer_config.json").exists():
        _train(cache)
    return folder


def corpus() -> Iterator[str]:
    """Local text in pieces, in a fixed order; each kind up to a number of bytes, so that none rules."""
    libraries = [Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))]
    share = Path("/usr/share")
    yield from _pieces(libraries, (".py", ".md", ".rst", ".txt", ".json", ".csv"), 120 << 20)
    yield from _pieces([share / "doc", share / "perl"], (".gz", ".md", ".txt", ".html", ".pm"), 120 << 20)
    yield from _pieces([share / "man", share / "vim", share / "dict"], (".gz", ".txt", ""), 120 << 20)
    yield from _pieces([Path("/usr/include")], (".h", ".hpp"), 40 << 20)
    yield from _pieces([share / "locale", *libraries], (".mo", ".po"), 160 << 20)


def _pieces(roots: list[Path], suffixes: tuple[str, ...], limit: int) -> Iterator[str]:
    for root in roots:
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = Path(folder, name)
                if path.suffix not in suffixes or path.is_symlink() or not path.is_file():
                    continue
                text = _read(path)
                limit -= len(text.encode("utf-8", "replace"))
                if limit < 0:
                    return
                yield from (text[at : at + PIECE] for at in range(0, len(text), PIECE))


def _read(path: Path) -> str:
    """A file's text; empty for what is none."""
    try:
        if path.suffix == ".mo":
            with path.open("rb") as file:
                catalogue = gettext.GNUTranslations(file)
            return "\n".join(str(text) for text in catalogue._catalog.values())  # type: ignore[attr-defined]
        return (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    except (OSError, UnicodeError, ValueError, EOFError, LookupError):
        return ""


def _train(cache: Path) -> None:
    """Trains the largest; a smaller one is its first merges, which is what training it would have given."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=max(SIZES.values()),
        min_frequency=2,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=64,
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    largest = json.loads(tokenizer.to_str())
    for name, size in SIZES.items():
        folder = cache / f"bpe-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(_first(largest, size)), encoding="utf-8")
        settings = {"eos_token": END, "tokenizer_class": "PreTrainedTokenizerFast"}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def _first(largest: dict[str, object], size: int) -> dict[str, object]:
    """The tokenizer with the tokens below `size` alone."""
    model = largest["model"]
    if not isinstance(model, dict):
        raise TypeError("a tokenizer's model is an object")
    vocab = {token: token_id for token, token_id in model["vocab"].items() if token_id < size}
    merges = [pair for pair in model["merges"] if "".join(pair) in vocab]
    return {**largest, "model": {**model, "vocab": vocab, "merges": merges}}
