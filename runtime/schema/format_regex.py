r"""`regex`: a part of the patterns of ECMA-262 with the u flag.

All of them are no regular language: groups nest without end, and names, counts and ranges are compared. This
part has groups three deep; assertions with patterns in them that are in no group and have none; at most one
named group, in no group, with none in it and groups two deep after it; no back-references and no `\0`; ranges
of characters and counts `{n,m}` where comparing is easy; of the properties `\p{...}` the general categories.
"""

from __future__ import annotations

from treille.runtime.grammar.parse_common import one_char
from treille.runtime.grammar.parse_ecma import parse_ecma
from treille.runtime.grammar.tree import EMPTY_TEXT, Choice, Repeat, Sequence, Tree

_HEX = "[0-9A-Fa-f]"
_CATEGORY = "L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?|LC|C[cfno]?"
_SET = rf"[dDsSwW]|[pP]\{{(?:{_CATEGORY})\}}"
_CODE = rf"c[A-Za-z]|x{_HEX}{{2}}|u(?:{_HEX}{{4}}|\{{0*(?:10{_HEX}{{4}}|{_HEX}{{1,5}})\}})"
_ESCAPE = rf"{_SET}|{_CODE}|[fnrtv^$\\.*+?()\[\]{{}}|/]"

_RANGE = "0-[0-9]|1-[1-9]|[2-9]-9|a-[a-z]|[b-z]-z|A-[A-Z]|[B-Z]-Z"
# A `-` is itself only at the edges of a class; anywhere else it makes a range.
_CLASS = rf"\[\^?-?(?:{_RANGE}|[^\\\]-]|\\(?:{_ESCAPE}|[b-]))*-?\]"
_LEAF = rf"[^\^$\\.*+?()\[\]{{}}|]|\.|\\(?:{_ESCAPE})|{_CLASS}"

_SAME_LENGTH = "0,[0-9]|1,[1-9]|2,[2-9]|3,[3-9]|[4-9],9"
_COUNTS = f"[0-9]{{1,4}},?|{_SAME_LENGTH}|[0-9],[1-9][0-9]{{1,3}}|[1-9][0-9],[1-9][0-9]{{2,3}}"
_QUANTIFIER = rf"(?:[*+?]|\{{(?:{_COUNTS})\}})\??"
_NAME = r"\(\?<[A-Za-z_$][A-Za-z0-9_$]*>"


def regex_tree() -> Tree:
    """The tree of those patterns."""
    leaf, quantified = parse_ecma(_LEAF), Choice((EMPTY_TEXT, parse_ecma(_QUANTIFIER)))
    assertion = parse_ecma(r"[\^$|]|\\[bB]")
    group, look, end = parse_ecma(r"\((?:\?:)?"), parse_ecma(r"\(\?<?[=!]"), one_char(ord(")"))

    def pattern(atoms: Tree, assertions: Tree) -> Tree:
        """Any number of either. Alternatives may be empty, so that a `|` may stand anywhere."""
        return Repeat(Choice((Sequence((atoms, quantified)), assertions)), 0, None)

    nested = [pattern(leaf, assertion)]
    looking = Choice((assertion, Sequence((look, nested[0], end))))
    for depth in range(3):
        atoms = Choice((leaf, Sequence((group, nested[-1], end))))
        nested.append(pattern(atoms, looking if depth == 2 else assertion))
    named = Sequence((parse_ecma(_NAME), nested[0], end, quantified, nested[2]))
    return Sequence((nested[3], Choice((EMPTY_TEXT, named))))
