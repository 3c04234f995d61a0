"""CPython's own table of regular expressions, for what full matches it says something about."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from test import re_tests

_COMMON_TEXTS = (
    "",
    "a",
    "ab",
    "abc",
    "\n",
    "a\n",
    "abc\n",
    "ab\nc",
    "A",
    " ",
    "aa",
    "abab",
    "b",
    "aaab",
    "xy",
)


@dataclass(frozen=True, slots=True)
class Row:
    """A pattern that `re` compiles, and texts to try on it."""

    pattern: str
    texts: tuple[str, ...]


def rows() -> list[Row]:
    """Every pattern that `re` takes, each once, with the table's texts for it and their starts and ends."""
    texts: dict[str, dict[str, None]] = {}
    for pattern, text in _entries():
        if _compiles(pattern):
            known = texts.setdefault(pattern, dict.fromkeys(_COMMON_TEXTS))
            known.update(dict.fromkeys(_pieces(pattern, text)))
    return [Row(pattern, tuple(known)) for pattern, known in texts.items()]


def malformed() -> list[str]:
    """The table's patterns that `re` does not compile."""
    return [
        pattern for pattern in dict.fromkeys(pattern for pattern, _ in _entries()) if not _compiles(pattern)
    ]


def _entries() -> Iterator[tuple[str, str]]:
    for entry in re_tests.tests:
        yield entry[0], entry[1]


def _pieces(pattern: str, text: str) -> Iterator[str]:
    yield text
    found = re.search(pattern, text)
    if found is not None:
        yield found.group()
        yield text[: found.end()]
        yield text[found.start() :]
    yield text + "\n"
    yield text[1:]
    yield text[:-1]


def _compiles(pattern: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
        except re.error:
            return False
    return True
