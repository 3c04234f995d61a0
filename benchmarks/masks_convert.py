"""From an ECMA-262 search to a regex for a full match that Python's `re` and Rust's `regex` read alike.

The tree is `re`'s own parser's, which reads what JSON Schemas' patterns are made of as ECMA does; what the
classes mean is ECMA's (`\\d` and `\\w` are ASCII, `.` stops at four line ends). Anchors go where they are
plain: at the ends of the whole or of a top-level alternative.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

from masks_texts import complement, parse

LAST = 0x10FFFF
ANYTHING = "(?s:.*)"
DIGITS = [(48, 57)]
WORD = [(48, 57), (65, 90), (95, 95), (97, 122)]
SPACE = [
    (9, 13),
    (32, 32),
    (160, 160),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
]
SPACE += [(0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]
LINE_ENDS = [(10, 10), (13, 13), (0x2028, 0x2029)]
CLASSES = {"DIGIT": DIGITS, "WORD": WORD, "SPACE": SPACE}

Tree = Any  # of `re`'s parser


class NotConverted(Exception):
    """A pattern that has no plain counterpart here; says why."""


def search_to_full(pattern: str) -> str:
    """The regex for `fullmatch` that takes the texts in which ECMA finds `pattern`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = list(parse(pattern))
    except (re.error, OverflowError):
        raise NotConverted("not in Python's syntax") from None
    branches = [_branch(one) for one in _alternatives(tree)]
    return branches[0] if len(branches) == 1 else "|".join(branches)


def _alternatives(tree: list[Tree]) -> list[list[Tree]]:
    """The top-level alternatives, through groups that hold everything, and so that anchors stand outside."""
    if len(tree) == 1 and str(tree[0][0]) == "SUBPATTERN" and _plain(tree[0][1]):
        return _alternatives(list(tree[0][1][3]))
    for at, (op, argument) in enumerate(tree):
        if str(op) == "BRANCH" and (len(tree) == 1 or _anchored(argument[1])):
            made = []
            for one in argument[1]:
                made += _alternatives([*tree[:at], *one, *tree[at + 1 :]])
            return made
        if str(op) == "SUBPATTERN" and _plain(argument) and _anchored([argument[3]]):
            return _alternatives([*tree[:at], *argument[3], *tree[at + 1 :]])
    return [tree]


def _plain(group: Tree) -> bool:
    return not group[1] and not group[2]


def _anchored(branches: list[Tree]) -> bool:
    """Whether an anchor stands in one of the branches, at any depth of groups."""
    for branch in branches:
        for op, argument in branch:
            name = str(op)
            if name == "AT":
                return True
            if name == "BRANCH" and _anchored(argument[1]):
                return True
            if name == "SUBPATTERN" and _anchored([argument[3]]):
                return True
    return False


def _branch(tree: list[Tree]) -> str:
    first = next((at for at, one in enumerate(tree) if not _is(one, "AT_BEGINNING")), len(tree))
    tree, before = tree[first:], "" if first else ANYTHING
    last = len(tree)
    while last and _is(tree[last - 1], "AT_END"):
        last -= 1
    after = "" if last < len(tree) else ANYTHING
    if before and after and not last:
        return ANYTHING
    return before + _spell(tree[:last]) + after


def _is(item: Tree, where: str) -> bool:
    return str(item[0]) == "AT" and str(item[1]) == where


def _spell(tree: Tree) -> str:
    return "".join(_one(str(op), argument) for op, argument in tree)


def _one(name: str, argument: Tree) -> str:
    if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
        return spell_class(ranges_of(name, argument))
    if name == "BRANCH":
        return "(?:" + "|".join(_spell(one) for one in argument[1]) + ")"
    if name == "SUBPATTERN" and _plain(argument):
        return f"(?:{_spell(argument[3])})"
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, body = argument
        inner = _spell(body)
        if len(body) != 1 or str(body[0][0]) not in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "SUBPATTERN"):
            inner = f"(?:{inner})"
        return inner + _count(int(low), None if str(high) == "MAXREPEAT" else int(high))
    if name in ("ASSERT", "ASSERT_NOT"):
        sign = ("" if argument[0] > 0 else "<") + ("=" if name == "ASSERT" else "!")
        return f"(?{sign}{_spell(argument[1])})"
    raise NotConverted({"AT": "an anchor inside", "GROUPREF": "a back-reference"}.get(name, name.lower()))


def _count(low: int, high: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    if short:
        return short
    return f"{{{low},}}" if high is None else f"{{{low}}}" if low == high else f"{{{low},{high}}}"


def ranges_of(name: str, argument: Tree) -> list[tuple[int, int]]:
    """What a class of the tree holds, as ECMA reads it, sorted and apart."""
    if name == "LITERAL":
        return [(argument, argument)]
    if name == "NOT_LITERAL":
        return complement([(argument, argument)])
    if name == "ANY":
        return complement(LINE_ENDS)
    ranges: list[tuple[int, int]] = []
    negated = False
    for op, value in argument:
        if str(op) == "NEGATE":
            negated = True
        elif str(op) == "CATEGORY":
            kind = str(value).removeprefix("CATEGORY_")
            one = CLASSES[kind.removeprefix("NOT_")]
            ranges += complement(one) if kind.startswith("NOT_") else one
        else:
            ranges.append(value if str(op) == "RANGE" else (value, value))
    outside = complement(ranges)
    return outside if negated else complement(outside)


def spell_class(ranges: list[tuple[int, int]]) -> str:
    """A literal, or a class with only ranges in it."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _escape(ranges[0][0], r"\.+*?()|[]{}^$")
    if ranges and ranges[-1][1] == LAST and len(ranges) > 1:
        return f"[^{_members(complement(ranges))}]"
    return f"[{_members(ranges)}]" if ranges else r"[^\x00-\U0010ffff]"


def _members(ranges: list[tuple[int, int]]) -> str:
    def spell(char: int) -> str:
        return _escape(char, r"\[]^-")

    return "".join(
        spell(low) if low == high else spell(low) + ("" if high == low + 1 else "-") + spell(high)
        for low, high in ranges
    )


def _escape(char: int, special: str) -> str:
    if chr(char) in special:
        return "\\" + chr(char)
    if char < 32 or 127 <= char < 160:
        return f"\\x{char:02x}"
    return f"\\u{char:04x}" if 0x2000 <= char < 0x2070 or char == 0xFEFF else chr(char)
