r"""`idn-hostname` and the domains of `idn-email`: names in Unicode, after RFC 5890 to 5893.

A label is in ASCII, or it is a U-label of characters that RFC 5892 calls PVALID, with its contextual rules.
Names with letters that run from right to left obey the Bidi rule of RFC 5893. What a small automaton cannot
tell is left out, always on the safe side:

- A-labels (`xn--`), as in `hostname`, and all other labels with `--` in the third and fourth place.
- U-labels whose Punycode might have more than 63 octets. Its length depends on all of the label; no label has
  so many that has at most 17 characters, none of them past U+07FF, or at most 11.
- Names that might have more than 253 octets. Up to three labels are taken, and a fourth in ASCII of at most
  60 characters; in names all in ASCII, up to six more of at most 30 after the first.
- Of the characters: all but those of the Basic Multilingual Plane that modern scripts need.
- Of what NFC allows: a mark of a combining class beside another one, viramas aside, and what composes with a
  mark behind it.
- Of the contextual rules: labels with more than one place that needs them; ZERO WIDTH NON-JOINER without a
  virama before it, but between common Arabic and Persian letters.
- Labels in Unicode from left to right in names that have others, and marks in labels from right to left.
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
_ASCII: tuple[Ranges, Ranges] = (((0x30, 0x39),), ((0x61, 0x7A),))
_CATEGORIES = frozenset(("Ll", "Lo", "Lm", "Mn", "Mc", "Nd"))
# RFC 5892, section 2.6, as far as its characters are looked at; then what is ignorable by default.
_VALID = frozenset((0xDF, 0x3C2, 0x6FD, 0x6FE, 0xF0B, 0x3007))
_INVALID = frozenset((0x640, 0x7FA, 0x302E, 0x302F, *range(0x3031, 0x3036), 0x303B))
_INVALID |= frozenset((0x34F, 0x61C, 0x17B4, 0x17B5, *range(0x180B, 0x1810)))

# The scripts and joining types of RFC 5892, appendix A, where they are plain.
_GERESH: Ranges = ((0x5F3, 0x5F4),)
_GREEK: Ranges = ((0x3AC, 0x3CE),)
_HEBREW: Ranges = ((0x5D0, 0x5EA),)
_JAPANESE: Ranges = ((0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FFC))
_JOINING = charset.make_set(
    [(0x626, 0x626), (0x628, 0x628), (0x62A, 0x62E), (0x633, 0x63A), (0x641, 0x647), (0x649, 0x64A)]
    + [(code, code) for code in (0x67E, 0x686, 0x6A9, 0x6AF, 0x6CC)]
)
_JOINED = charset.union(_JOINING, ((0x622, 0x632), (0x648, 0x648), (0x698, 0x698)))

_DOTS: Ranges = ((0x2E, 0x2E), (0x3002, 0x3002), (0xFF0E, 0xFF0E), (0xFF61, 0xFF61))

_DIRECTIONS = {"R": "right", "AL": "right", "AN": "arabic", "EN": "european"}

# In the patterns below a name in angle brackets stands for one character of a set, see `_sets`. There is no
# look-around, for each would be in view at every step.
# Letters and digits, marks behind them; hyphens and marks that NFC would sort stand alone, between others.
_LOW_LABEL = "<lowstart>(?:<lowrest>{0,16}|(?:-?<lowbase>){0,8})"
_LABEL = "<start>(?:<rest>{0,10}|(?:(?:-|<own>)?<base>){0,4}<own>?)"
# The contextual rules, with what they ask for beside them: three characters at most.
_CONTEXT = "l\u00b7l|\u0375<greek>|<start><virama>[\u200c\u200d]|\u30fb<japanese>|<japanese>\u30fb"
_CONTEXT_LABEL = f"(?:<start><base>{{0,2}})?(?:{_CONTEXT})<base>{{0,5}}"
_RIGHT_LABEL = (
    "<right>(?:<european>{0,16}|(?:-?<european>){0,8}|<arabic>{0,16})"
    "|<right>{0,7}<hebrew><geresh><right>{0,8}|<right>{0,4}<joining>\u200c<joined><right>{0,4}"
)


def idn_hostname_tree() -> Tree:
    """The tree of `idn-hostname`."""
    ascii_names = f"{_ascii_label(63)}(?:<dot>{_ascii_label(30)}){{0,6}}"
    return _filled(f"(?:{ascii_names}|{_names()})", _sets() | {"dot": _DOTS})


def mail_domain_tree() -> Tree:
    """Domains with U-labels, for `idn-email`: there a label need not be in NFC, and the dots are plain."""
    sets = _sets()
    return _filled(_names(), sets | {"dot": _DOTS[:1], "own": charset.union(sets["own"], sets["composing"])})


def _names() -> str:
    """Names with U-labels: all from left to right, or by the Bidi rule."""
    options = []
    for labels, first in (
        (f"{_LOW_LABEL}|{_LABEL}|{_CONTEXT_LABEL}", "[A-Za-z0-9]"),
        (_RIGHT_LABEL, "[A-Za-z]"),
    ):
        label = f"(?:{labels}|{_ascii_label(63, first)})"
        options.append(f"{label}(?:<dot>{label}){{0,2}}(?:<dot>{_ascii_label(60, first)})?")
    return f"(?:{'|'.join(options)})"


def _ascii_label(length: int, first: str = "[A-Za-z0-9]") -> str:
    """Labels that have no `--` in the third and fourth place."""
    sign, any_sign = "[A-Za-z0-9]", "[A-Za-z0-9-]"
    long = f"{any_sign}(?:{sign}{any_sign}|-{sign}){any_sign}{{0,{length - 5}}}{sign}"
    return f"{first}(?:{long}|{any_sign}{{1,2}}{sign}|{sign})?"


def _filled(pattern: str, sets: dict[str, Ranges]) -> Tree:
    """The tree of a pattern in which names stand for sets."""
    names = sorted(set(re.findall("<([a-z]+)>", pattern)))
    places = {0xE000 + at: Chars(sets[name]) for at, name in enumerate(names)}
    text = re.sub("<([a-z]+)>", lambda found: chr(0xE000 + names.index(found[1])), pattern)
    return _put_in(parse_ecma(text), places)


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
    """The sets that the patterns name, but for the dots."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for codes in _READ:
        for code in codes:
            one = chr(code)
            decomposed = unicodedata.decomposition(one)
            if decomposed and decomposed[0] != "<" and unicodedata.is_normalized("NFC", one):
                front, behind = (int(part, 16) for part in decomposed.split())
                found["second"].append((behind, behind))
                if not unicodedata.combining(chr(behind)):
                    found["first"].append((front, front))
            if code in _VALID or (code not in _INVALID and _is_valid(one, decomposed)):
                found[_kind(one)].append((code, code))
    sets = {name: charset.make_set(pairs) for name, pairs in found.items()}
    first, second, right = sets["first"], sets["second"], sets["right"]
    virama, own = _without(sets["virama"], second), charset.union(sets["virama"], sets["own"])
    start = _without(charset.union(sets["letter"], sets["european"], _IDEOGRAPHS, *_ASCII), first)
    base = charset.union(start, _without(sets["mark"], first))
    made = {"start": start, "base": base, "rest": charset.union(base, virama)}
    low = {
        f"low{name}": _without(ranges, ((0x800, charset.MAX_CODE_POINT),)) for name, ranges in made.items()
    }
    return {
        **made,
        **low,
        "virama": virama,
        "own": _without(own, second),
        "composing": _without(own, charset.complement(second)),
        "right": right,
        "european": charset.union(right, sets["european"], _ASCII[0]),
        "arabic": charset.union(right, sets["arabic"]),
        "greek": _GREEK,
        "hebrew": _HEBREW,
        "geresh": _GERESH,
        "japanese": _JAPANESE,
        "joining": _JOINING,
        "joined": _JOINED,
    }


def _is_valid(one: str, decomposed: str) -> bool:
    """Whether RFC 5892, section 2, makes a character PVALID, exceptions and what is not looked at aside."""
    if unicodedata.category(one) not in _CATEGORIES:
        return False
    if decomposed and unicodedata.normalize("NFKC", one) != one:
        return False
    folded = one.casefold()
    return folded == one or unicodedata.normalize("NFKC", folded) == one


def _kind(one: str) -> str:
    """The set in which a PVALID character is collected."""
    combining = unicodedata.combining(one)
    if combining:
        return "virama" if combining == 9 else "own"
    if unicodedata.category(one)[0] == "M":
        return "mark"
    return _DIRECTIONS.get(unicodedata.bidirectional(one), "letter")


def _without(one: Ranges, other: Ranges) -> Ranges:
    return charset.complement(charset.union(charset.complement(one), other))
