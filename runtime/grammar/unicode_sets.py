r"""The sets that ECMA-262 names: `\d \w \s .` and `\p{...}`.

`\p` has the general categories and those binary properties that follow exactly from what Python's Unicode
tables tell (`unicodedata.unidata_version` says which Unicode that is), or that Unicode promises never to
change. Scripts and all other properties would need tables of our own, and are refused.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import groupby

from treille.runtime.grammar import charset
from treille.runtime.grammar.charset import Ranges

DIGITS: Ranges = ((48, 57),)
WORDS: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACES: Ranges = (
    (0x9, 0xD),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
LINE_ENDS: Ranges = ((0xA, 0xA), (0xD, 0xD), (0x2028, 0x2029))

_CATEGORIES = """
C Other; Cc Control cntrl; Cf Format; Cn Unassigned; Co Private_Use; Cs Surrogate; L Letter; LC Cased_Letter;
Ll Lowercase_Letter; Lm Modifier_Letter; Lo Other_Letter; Lt Titlecase_Letter; Lu Uppercase_Letter;
M Mark Combining_Mark; Mc Spacing_Mark; Me Enclosing_Mark; Mn Nonspacing_Mark;
N Number; Nd Decimal_Number digit; Nl Letter_Number; No Other_Number; P Punctuation punct;
Pc Connector_Punctuation; Pd Dash_Punctuation;
Pe Close_Punctuation; Pf Final_Punctuation; Pi Initial_Punctuation; Po Other_Punctuation; Ps Open_Punctuation;
S Symbol; Sc Currency_Symbol; Sk Modifier_Symbol; Sm Math_Symbol; So Other_Symbol; Z Separator;
Zl Line_Separator; Zp Paragraph_Separator; Zs Space_Separator
"""
_SHORT = {name: entry.split()[0] for entry in _CATEGORIES.split(";") for name in entry.split()}

_FIXED: dict[str, Ranges] = {
    "Any": charset.SCALARS,
    "ASCII": ((0, 0x7F),),
    "ASCII_Hex_Digit": ((48, 57), (65, 70), (97, 102)),
    "Join_Control": ((0x200C, 0x200D),),
    "Noncharacter_Code_Point": (
        (0xFDD0, 0xFDEF),
        *((plane + 0xFFFE, plane + 0xFFFF) for plane in range(0, 0x110000, 0x10000)),
    ),
    "Pattern_White_Space": ((0x9, 0xD), (0x20, 0x20), (0x85, 0x85), (0x200E, 0x200F), (0x2028, 0x2029)),
    "Regional_Indicator": ((0x1F1E6, 0x1F1FF),),
}
_TESTED: dict[str, Callable[[str], bool]] = {
    "Bidi_Mirrored": lambda one: unicodedata.mirrored(one) == 1,
    "Lowercase": str.islower,
    "Uppercase": str.isupper,
    "White_Space": lambda one: one.isspace() and not "\x1c" <= one <= "\x1f",
    "XID_Continue": lambda one: f"a{one}".isidentifier(),
    "XID_Start": lambda one: one != "_" and one.isidentifier(),
}
_ALIASES = {
    "AHex": "ASCII_Hex_Digit",
    "Join_C": "Join_Control",
    "NChar": "Noncharacter_Code_Point",
    "Pat_WS": "Pattern_White_Space",
    "RI": "Regional_Indicator",
    "Bidi_M": "Bidi_Mirrored",
    "Lower": "Lowercase",
    "Upper": "Uppercase",
    "space": "White_Space",
    "XIDC": "XID_Continue",
    "XIDS": "XID_Start",
}
_OTHER_NAMES = re.compile(r"[A-Za-z0-9_]+(?:=[A-Za-z0-9_]+)?")


def ecma_category(letter: str) -> Ranges:
    r"""The set of `\d`, `\w` or `\s`, or of its negation in upper case, without the i flag."""
    found = {"d": DIGITS, "w": WORDS, "s": SPACES}[letter.lower()]
    return charset.complement(found) if letter.isupper() else found


def is_property_text(text: str) -> bool:
    r"""Whether the text between the braces of `\p{...}` has the form that ECMA-262 asks for."""
    return _OTHER_NAMES.fullmatch(text) is not None


def unicode_property(text: str) -> Ranges | None:
    r"""The set of `\p{text}`, or None where it is not known exactly. Names as in ECMA-262, case and all."""
    name, _, value = text.partition("=")
    if value:
        return _general_category(value) if name in ("gc", "General_Category") else None
    name = _ALIASES.get(name, name)
    if name in _FIXED:
        return _FIXED[name]
    if name == "Assigned":
        return charset.complement(_by_category()["Cn"])
    return _tested(name) if name in _TESTED else _general_category(name)


@cache
def _general_category(name: str) -> Ranges | None:
    short = _SHORT.get(name)
    if short is None:
        return None
    members = (
        ("Lu", "Ll", "Lt") if short == "LC" else (one for one in _by_category() if one.startswith(short))
    )
    return charset.union(*(_by_category()[one] for one in members))


@cache
def _by_category() -> dict[str, Ranges]:
    found: dict[str, list[tuple[int, int]]] = {one: [] for one in _SHORT.values() if len(one) == 2}
    start = 0
    for name, run in groupby(map(unicodedata.category, charset.all_characters())):
        end = start + sum(1 for _ in run)
        found[name].append((start, end - 1))
        start = end
    return {name: charset.make_set(pairs) for name, pairs in found.items()}


@cache
def _tested(name: str) -> Ranges:
    test = _TESTED[name]
    return charset.make_set((code, code) for code in range(sys.maxunicode + 1) if test(chr(code)))
