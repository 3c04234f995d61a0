"""A text that a regex takes whole, made from the tree of `re`'s own parser: no measured engine has a say.

Where a class repeats, the text is of words as far as the class allows: its tokens are long as in real text.
"""

from __future__ import annotations

import random
import re
import warnings
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]
from typing import Any

MAX_CHARS = 200
TEXT = """
the model writes a short report about River 42 and seven green boats near Lyon in May 2019 where
people often talk of prices numbers names addresses version tests cafe data user config value item
Alpha Beta-7 x_1 main.py over-all café naïve größer 12,500 3.14 well-known Straße Москва 東京 done
"""
WORDS = TEXT.split()
COMMON = "etaoinshrdlucmfwypvbgkqjxz0123456789 ETAOINSHRDLU_-./:,;@#'\"()[]{}<>!?&=+*%$~^|\\é漢я\n\t"
Tree = Any


def parse(pattern: str) -> Tree:
    """`re`'s tree of a pattern."""
    return _parser.parse(pattern)


def complement(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The other code points; surrogates are never in."""
    made, after = [], 0
    for low, high in sorted([*ranges, (0xD800, 0xDFFF)]):
        if low > after:
            made.append((after, low - 1))
        after = max(after, high + 1)
    if after <= 0x10FFFF:
        made.append((after, 0x10FFFF))
    return made


def sample_text(full: str) -> str:
    """At most 200 characters with `re.fullmatch(full, text)`. Raises TimeoutError if none are found."""
    rng = random.Random(full)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree, compiled = parse(full), re.compile(full)
    for attempt in range(400):
        text = _Sampler(rng, (40, 12, 6, 3, 1)[attempt // 80]).text(tree)
        if len(text) <= MAX_CHARS and compiled.fullmatch(text):
            return text
    raise TimeoutError


class _Sampler:
    def __init__(self, rng: random.Random, most: int) -> None:
        self.rng, self.most = rng, most

    def text(self, tree: Tree) -> str:
        return "".join(self._one(str(op), argument) for op, argument in tree)

    def _one(self, name: str, argument: Tree) -> str:
        if name == "LITERAL":
            return chr(argument)
        if name == "BRANCH":
            return self.text(self.rng.choice(argument[1]))
        if name == "SUBPATTERN":
            return self.text(argument[3])
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            return self._repeat(*argument)
        if name in ("IN", "ANY", "NOT_LITERAL"):
            return self._char(_class(name, argument))
        return ""  # an assertion or an anchor: the match decides afterwards

    def _repeat(self, low: int, high: Any, body: Tree) -> str:
        limit = low + self.most if str(high) == "MAXREPEAT" else min(int(high), low + 4 * self.most)
        count = self.rng.randint(low, limit)
        if len(body) == 1 and str(body[0][0]) in ("IN", "ANY", "NOT_LITERAL") and count > 2:
            return self._words(_class(str(body[0][0]), body[0][1]), count)
        return "".join(self.text(body) for _ in range(count))

    def _words(self, allowed: str, count: int) -> str:
        text = ""
        for _ in range(count):
            text += _only(self.rng.choice(WORDS) + " ", allowed)
            if len(text) >= count:
                return text[:count]
        return text + "".join(self._char(allowed) for _ in range(count - len(text)))

    def _char(self, allowed: str) -> str:
        found = _only(COMMON, allowed) or _rare(allowed)
        return self.rng.choice(found) if found else ""


@lru_cache(maxsize=1 << 16)
def _only(text: str, allowed: str) -> str:
    """The characters of a text that are in a class."""
    compiled = re.compile(allowed)
    return "".join(char for char in text if compiled.fullmatch(char))


@lru_cache(maxsize=1 << 10)
def _rare(allowed: str) -> str:
    compiled = re.compile(allowed)
    chars = (chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000)
    return next((char for char in chars if compiled.fullmatch(char)), "")


def _class(name: str, argument: Tree) -> str:
    """A class of the tree, alone, as a regex."""
    if name == "ANY":
        return "."
    if name == "NOT_LITERAL":
        return "[^" + re.escape(chr(argument)) + "]"
    parts = []
    for op, value in argument:
        kind = str(op)
        if kind == "NEGATE":
            parts.append("^")
        elif kind == "CATEGORY":
            letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(value).split("_")[-1]]
            parts.append("\\" + (letter.upper() if "NOT_" in str(value) else letter))
        elif kind == "RANGE":
            parts.append(f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}")
        else:
            parts.append(re.escape(chr(value)))
    return "[" + "".join(parts) + "]"
