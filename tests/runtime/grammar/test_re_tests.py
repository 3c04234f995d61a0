"""CPython's table of regular expressions: every pattern that is regular agrees with `re.fullmatch`."""

from __future__ import annotations

import re

import pytest
from oracles.re_table import Row, malformed, rows
from oracles.tree_match import matches

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar.normal import normalize, whole_text
from treille.runtime.grammar.parse_python import parse_python

_ROWS = rows()
_BACK_REFERENCE = re.compile(r"(?<!\[)\\(?![0-3][0-7]{2})[1-9]|\(\?P=")


def _refusal(row: Row) -> str | None:
    try:
        parse_python(row.pattern)
    except UnsupportedConstraint as error:
        return error.keyword
    return None


def test_agrees_with_re() -> None:
    for row in _ROWS:
        if _refusal(row) is not None:
            continue
        tree = parse_python(row.pattern)
        normal = normalize(tree)
        whole = whole_text(normal)
        compiled = re.compile(row.pattern)
        for text in row.texts:
            expected = compiled.fullmatch(text) is not None
            for one in (tree, normal, whole):
                assert matches(one, text) == expected, (row.pattern, text)


def test_what_is_refused() -> None:
    refused = {row.pattern: keyword for row in _ROWS if (keyword := _refusal(row)) is not None}
    assert set(refused.values()) == {"back-reference"}
    assert set(refused) == {row.pattern for row in _ROWS if _BACK_REFERENCE.search(row.pattern)}
    assert len(refused) > 15
    assert len(_ROWS) - len(refused) > 200


@pytest.mark.parametrize("pattern", malformed())
def test_malformed(pattern: str) -> None:
    try:
        re.compile(pattern)
        raise AssertionError(pattern)
    except re.error as error:
        expected = error
    with pytest.raises(InvalidConstraint) as caught:
        parse_python(pattern)
    assert (str(caught.value).removesuffix(f" at offset {expected.pos}"), caught.value.offset) == (
        expected.msg,
        expected.pos,
    )
