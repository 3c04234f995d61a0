r"""`idn-hostname` and the domains of `idn-email`: names in Unicode, after RFC 5890 to 5893.

A label is in ASCII, or it is a U-label of characters that RFC 5892 calls PVALID, with its contextual rules.
Names with letters that run from right to left obey the Bidi rule of RFC 5893. What a small automaton cannot
tell is left out, always on the safe side:

- A-labels (`xn--`), as in `hostname`, and all other labels with `--` in the third and fourth place.
- U-labels whose Punycode might have more than 63 octets. Its length depends on all of the label; no label has
  so many that has at most 17 characters, none of them past U+07FF, or at most 11.
- Names with U-labels that might have more than 253 octets. They have up to three labels here, and a fourth if
  it is in ASCII and has at most 60 characters.
- Of the characters: those of the Basic Multilingual Plane that modern scripts need.
- Of what NFC allows: a mark behind a mark, and a mark that composes behind a letter that does.
- ZERO WIDTH NON-JOINER without a virama before it: all but those between common Arabic and Persian letters.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from dataclasses import replace
from functools import cache

from treille.runtime.grammar import charset
from treille.runtime.grammar.charset import Ranges
from treille.runtime.grammar.parse_ecma import parse_ecma
from treille.runtime.grammar.tree import Chars, Choice, Sequence, Tree

# Looked at one by one. Hangul's single letters, which are not PVALID, are left out.
_READ = (range(0xDF, 0x1100), range(0x1200, 0x2000), range(0x3005, 0x3100))
# All of these are PVALID, compose with nothing that is, and run from left to right.
_IDEOGRAPHS: Ranges = ((0x3400, 0x4DBF), (0x4E00, 0x9FFC), (0xAC00, 0xD7A3))
_ASCII: Ranges = ((0x2D, 0x2D), (0x30, 0x39), (0x61, 0x7A))
_CATEGORIES = frozenset(("Ll", "Lo", "Lm", "Mn", "Mc", "Nd"))
# RFC 5892, section 2.6, as far as its characters are looked at; then letters and marks to be ignored by
# default.
_VALID = frozenset((0xDF, 0x3C2, 0x6FD, 0x6FE, 0xF0B, 0x3007))
_INVALID = frozenset((0x640, 0x7FA, 0x302E, 0x302F, *range(0x3031, 0x3036), 0x303B))
_INVALID |= frozenset((0x34F, 0x61C, 0x17B4, 0x17B5, *range(0x180B, 0x1810)))

# The scripts and joining types of RFC 5892, appendix A, where they are plain.
_GERESH: Ranges = ((0x5F3, 0x5F4),)
_JOINERS: Ranges = ((0x200C, 0x200D),)
_CONTEXTUAL: Ranges = ((0xB7, 0xB7), (0x375, 0x375), *_JOINERS, (0x30FB, 0x30FB))
_GREEK: Ranges = ((0x3AC, 0x3CE),)
_HEBREW: Ranges = ((0x5D0, 0x5EA),)
_JAPANESE: Ranges = ((0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FFC))
_JOINING = charset.make_set(
    [(0x626, 0x626), (0x628, 0x628), (0x62A, 0x62E), (0x633, 0x63A), (0x641, 0x647), (0x649, 0x64A)]
    + [(code, code) for code in (0x67E, 0x686, 0x6A9, 0x6AF, 0x6CC)]
)
_JOINED = charset.union(_JOINING, ((0x622, 0x632), (0x648, 0x648), (0x698, 0x698)))

_DOTS: Ranges = ((0x2E, 0x2E), (0x3002, 0x3002), (0xFF0E, 0xFF0E), (0xFF61, 0xFF61))

_DIRECTIONS = {"L": "left", "R": "right", "AL": "right"}
_DIRECTIONS |= {"AN": "arabic", "EN": "european", "NSM": "spaceless"}

# In the patterns below a name in angle brackets stands for one character of a set, see `_sets`; with a `!`,
# for one that is not in it. `common` is what all U-labels hold: length, hyphens, context and NFC.
_END = "(?:<dot>|$)"
_CONTEXT = (
    "<!l>\u00b7|\u00b7(?:<!l>|$)|\u0375(?:<!greek>|$)|<!hebrew><geresh>|<!virama>\u200d"
    f"|<!before>\u200c|<joining>\u200c(?:<!joined>|$)|-{_END}"
)
_COMMON = (
    f"(?=<low>{{1,17}}{_END}|<!dot>{{1,11}}{_END})(?!<!dot>{{2}}--)(?!<!dot>*(?:{_CONTEXT}))"
    f"(?=<!middle>*{_END}|<!dot>*<japanese>)"
)
_COMPOSED = "(?!<!dot>*(?:<ordered><ordered>|<first><second>))"
_LABEL = "<start><notright>*"
_LEFT_LABEL = f"(?=<!dot>*<leftend><spaceless>*{_END})<leftstart><notright>*"
_RIGHT_LABEL = (
    f"(?=<!dot>*<rightend><spaceless>*{_END})(?=<!arabic>*{_END}|<!european>*{_END})<rightstart><right>*"
)


def idn_hostname_tree() -> Tree:
    """The tree of `idn-hostname`."""
    ascii_name = f"(?=[^]{{1,253}}$){_ascii_label(63)}(?:<dot>{_ascii_label(63)})*"
    return _filled(f"(?:{ascii_name}|{_names(_COMMON + _COMPOSED)})", _DOTS)


def mail_domain_tree() -> Tree:
    """Domains with U-labels, for `idn-email`: there a label need not be in NFC, and the dots are plain."""
    return _filled(_names(_COMMON), _DOTS[:1])


def _names(common: str) -> str:
    """Names with U-labels: all labels from left to right, or all by the Bidi rule."""
    options = []
    for labels, first in (
        (f"{common}{_LABEL}", "[A-Za-z0-9]"),
        (f"{common}(?:{_LEFT_LABEL}|{_RIGHT_LABEL})", "[A-Za-z]"),
    ):
        label = f"(?:{labels}|{_ascii_label(63, first)})"
        options.append(f"{label}(?:<dot>{label}){{0,2}}(?:<dot>{_ascii_label(60, first)})?")
    return f"(?:{'|'.join(options)})"


def _ascii_label(length: int, first: str = "[A-Za-z0-9]") -> str:
    """Labels that have no `--` in the third and fourth place."""
    sign, any_sign = "[A-Za-z0-9]", "[A-Za-z0-9-]"
    long = f"{any_sign}(?:{sign}{any_sign}|-{sign}){any_sign}{{0,{length - 5}}}{sign}"
    return f"{first}(?:{long}|{any_sign}{{1,2}}{sign}|{sign})?"


def _filled(pattern: str, dots: Ranges) -> Tree:
    """The tree of a pattern in which names stand for sets."""
    sets = dict(_sets())
    # What runs on to the end of a label stops at a dot.
    sets |= {"dot": dots, "low": _minus(((0, 0x7FF),), dots)}
    sets |= {name: charset.union(sets[name], dots) for name in ("middle", "arabic", "european")}
    names: dict[str, str] = {}
    places: dict[int, Chars] = {}

    def place(found: re.Match[str]) -> str:
        if found[0] not in names:
            code = 0xE000 + len(names)
            ranges = sets[found[2]]
            names[found[0]] = chr(code)
            places[code] = Chars(charset.complement(ranges) if found[1] else ranges)
        return names[found[0]]

    return _put_in(parse_ecma(re.sub("<(!?)([a-z]+)>", place, pattern)), places)


def _put_in(tree: Tree, places: dict[int, Chars]) -> Tree:
    """The tree with a set in each of the places, which are single characters of private use."""
    if isinstance(tree, Chars):
        return places.get(tree.ranges[0][0], tree) if tree.ranges else tree
    if isinstance(tree, Sequence):
        return Sequence(tuple(_put_in(part, places) for part in tree.parts))
    if isinstance(tree, Choice):
        return Choice(tuple(_put_in(option, places) for option in tree.options))
    return replace(tree, body=_put_in(tree.body, places))


@cache
def _sets() -> dict[str, Ranges]:
    """The sets that the patterns name."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    seconds: set[int] = set()
    for codes in _READ:
        for code in codes:
            one = chr(code)
            decomposed = unicodedata.decomposition(one)
            if decomposed and decomposed[0] != "<":
                first, *more = (int(part, 16) for part in decomposed.split())
                if more and unicodedata.is_normalized("NFC", one):
                    found["first"].append((first, first))
                    seconds.add(more[0])
            if code in _VALID or (code not in _INVALID and _is_valid(one, decomposed)):
                _sort_in(one, found)
    for name, ranges in (("left", _IDEOGRAPHS), ("left", _ASCII[2:]), ("european", _ASCII[1:2])):
        found[name] += ranges
    sets = {name: charset.make_set(pairs) for name, pairs in found.items()}
    sets["second"] = charset.make_set((code, code) for code in seconds)
    return sets | _made_of(sets)


def _is_valid(one: str, decomposed: str) -> bool:
    """Whether RFC 5892, section 2, makes a character PVALID, exceptions and what is not looked at aside."""
    if unicodedata.category(one) not in _CATEGORIES:
        return False
    if decomposed and unicodedata.normalize("NFKC", one) != one:
        return False
    folded = one.casefold()
    return folded == one or unicodedata.normalize("NFKC", folded) == one


def _sort_in(one: str, found: dict[str, list[tuple[int, int]]]) -> None:
    """Adds a PVALID character to the sets that it is in."""
    pair = (ord(one), ord(one))
    direction = unicodedata.bidirectional(one)
    combining = unicodedata.combining(one)
    found[_DIRECTIONS.get(direction, "neutral")].append(pair)
    if unicodedata.category(one)[0] == "M":
        found["mark"].append(pair)
    if combining:
        found["ordered"].append(pair)
    if combining == 9:
        found["virama"].append(pair)


def _made_of(sets: dict[str, Ranges]) -> dict[str, Ranges]:
    """The other sets of the patterns."""
    left, right, european, arabic = (sets[name] for name in ("left", "right", "european", "arabic"))
    spaceless, hyphen = sets["spaceless"], _ASCII[:1]
    no_start = charset.union(sets["mark"], hyphen, ((0xB7, 0xB7),), _GERESH, _JOINERS)
    not_right = charset.union(left, european, spaceless, sets["neutral"], hyphen, _CONTEXTUAL)
    return {
        "l": ((0x6C, 0x6C),),
        "middle": ((0x30FB, 0x30FB),),
        "greek": _GREEK,
        "hebrew": _HEBREW,
        "geresh": _GERESH,
        "japanese": _JAPANESE,
        "joining": _JOINING,
        "joined": _JOINED,
        "before": charset.union(sets["virama"], _JOINING),
        "notright": not_right,
        "start": _minus(not_right, no_start),
        "leftstart": _minus(left, no_start),
        "leftend": charset.union(left, european),
        "right": charset.union(right, european, arabic, spaceless, hyphen, _GERESH, _JOINERS),
        "rightstart": _minus(right, no_start),
        "rightend": charset.union(right, european, arabic, _GERESH),
    }


def _minus(one: Ranges, other: Ranges) -> Ranges:
    return charset.complement(charset.union(charset.complement(one), other))
