"""Hypothesis strategies for patterns of both dialects, and for texts that come near to matching them."""

from __future__ import annotations

from hypothesis import strategies as st

_COMMON_ATOMS = [
    *"abcA_1 -",
    "é",
    "ß",
    ".",
    "\\d",
    "\\w",
    "\\s",
    "\\D",
    "\\W",
    "\\S",
    "\\n",
    "\\.",
    "\\x41",
    "\\u00e9",
]
_COMMON_CLASSES = ["[ab]", "[^a]", "[a-c1]", "[^\\w]", "[\\d_-]", "[\\sA-Z]", "[^\\n]", "[é-ü]", "[\\]b]"]
_COMMON_ANCHORS = ["^", "$", "\\b", "\\B"]
_QUANTIFIERS = ["*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "{0}", "*?", "+?", "??", "{1,3}?", "{0,1}"]


def texts(max_size: int = 6) -> st.SearchStrategy[str]:
    """Short texts of the characters that the patterns are about."""
    return st.text(alphabet="abcAB_1 -\n.éßſK٣\u2028\r]", max_size=max_size)


def python_patterns(*, looks: bool = True, anchors: bool = True) -> st.SearchStrategy[str]:
    """Patterns that `re` compiles and that have only what is regular."""
    atoms = [*_COMMON_ATOMS, *_COMMON_CLASSES, "[^]a]", "\\101", "\\N{LATIN SMALL LETTER E WITH ACUTE}", "K"]
    anchor = [*_COMMON_ANCHORS, "\\A", "\\Z"] if anchors else []
    groups = ["(", "(?:", "(?i:", "(?a:", "(?s:", "(?m:", "(?ai:", "(?-i:", "(?P<name>"]
    fixed = ["(?<=a)", "(?<!b)", "(?<=[ab]1)", "(?<!^)", "(?<=\\w|\\s)", "(?<!(?i:k))"] if looks else []
    body = _bodies(atoms, anchor + fixed, groups, ["(?=", "(?!"] if looks else [])
    flags = st.sampled_from(["", "", "", "(?i)", "(?m)", "(?s)", "(?a)", "(?ims)"])
    return st.builds(lambda start, rest: start + _named_apart(rest, "(?P<name>", "(?P<g{}>"), flags, body)


def ecma_patterns(*, looks: bool = True, anchors: bool = True) -> st.SearchStrategy[str]:
    """Patterns of ECMA-262 with the u flag that have only what is regular."""
    atoms = [
        *_COMMON_ATOMS,
        *_COMMON_CLASSES,
        "\\u{e9}",
        "\\cJ",
        "\\p{L}",
        "\\P{Lu}",
        "[\\p{Ll}1]",
        "\\/",
        "[^]",
    ]
    anchor = _COMMON_ANCHORS if anchors else []
    around = ["(?=", "(?!"] if looks else []
    behind = ["(?<=a*)", "(?<!ab|c)", "(?<=^.)", "(?<!\\w+)"] if looks else []
    body = _bodies(atoms, anchor + behind, ["(", "(?:", "(?<name>"], around)
    return body.map(lambda rest: _named_apart(rest, "(?<name>", "(?<g{}>"))


def _bodies(
    atoms: list[str], anchors: list[str], groups: list[str], looks: list[str]
) -> st.SearchStrategy[str]:
    quantifiers = st.sampled_from(_QUANTIFIERS)
    atom = st.sampled_from(atoms)
    leaf = st.one_of(atom, st.builds(str.__add__, atom, quantifiers))
    if anchors:
        leaf = st.one_of(leaf, leaf, leaf, st.sampled_from(anchors))

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        group = st.builds(lambda start, body: f"{start}{body})", st.sampled_from(groups), inner)
        kinds = [
            st.lists(inner, min_size=2, max_size=4).map("".join),
            st.lists(inner, min_size=2, max_size=3).map("|".join),
            group,
            st.builds(str.__add__, group, quantifiers),
        ]
        if looks:
            kinds.append(st.builds(lambda start, body: f"{start}{body})", st.sampled_from(looks), inner))
        return st.one_of(kinds)

    return st.recursive(leaf, larger, max_leaves=8)


def _named_apart(pattern: str, name: str, template: str) -> str:
    first, *rest = pattern.split(name)
    return first + "".join(template.format(index) + part for index, part in enumerate(rest))
