"""JSON-Schema-Test-Suite, all drafts: nothing is judged wrong, and next to nothing is refused.

`TREILLE_TEST_DATA` names the folder where the suite is unpacked. `benchmarks/suite.py` prints the table.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from benchmarks.suite_cases import DRAFTS, Outcome, judge, read_groups, suite_folder
from treille.runtime.grammar import Vocabulary
from treille.runtime.schema.formats import NARROWED

LEAST = 0.95
# Dialects that are nobody's but the suite's.
NO_DIALECT = "localhost:1234"
# Past a limit: the multiples of 123456789, as many states as that; and three `contains` of one array.
PAST_LIMITS = {
    ("multipleOf", "float division = inf"),
    ("unevaluatedItems", "unevaluatedItems and contains interact to control item dependency relationship"),
}
Judged = Callable[[str, str], list[Outcome]]


@pytest.fixture(scope="module")
def judged(byte_vocab: Vocabulary) -> Judged:
    """The outcomes of a draft's required tests (""), or of a part, where `format` is asserted."""
    data = os.environ.get("TREILLE_TEST_DATA")
    folder = suite_folder(Path(data)) if data else None
    if folder is None:
        pytest.skip("TREILLE_TEST_DATA names no folder with JSON-Schema-Test-Suite")

    @cache
    def outcomes(draft: str, part: str) -> list[Outcome]:
        formats = "assert" if part else "annotation"
        return [judge(group, byte_vocab, formats=formats) for group in read_groups(folder, draft, part)]

    return outcomes


@pytest.mark.parametrize("part", ["", "optional/format"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_nothing_is_judged_wrong(judged: Judged, draft: str, part: str) -> None:
    outcomes = judged(draft, part)
    assert sum(len(one.group.tests) for one in outcomes) > 200
    assert [wrong for one in outcomes for wrong in one.accepted] == []
    for outcome in outcomes:
        narrowed = part and outcome.group.schema.get("format") in NARROWED
        assert narrowed or outcome.rejected == []


@pytest.mark.parametrize("part", ["", "optional/format"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_nearly_all_is_judged(judged: Judged, draft: str, part: str) -> None:
    outcomes = judged(draft, part)
    tests = sum(len(one.group.tests) for one in outcomes)
    empty = sum(len(one.group.tests) for one in outcomes if one.is_rightly_empty)
    right = sum(one.num_right for one in outcomes) + empty
    assert right >= LEAST * tests, f"{right} of {tests}, {empty} of them since nothing satisfies the schema"


def test_integers_of_draft_4_have_no_fraction(judged: Judged) -> None:
    found = [one for one in judged("draft4", "optional") if one.group.file == "zeroTerminatedFloats"]
    assert found
    assert all(one.num_right == len(one.group.tests) for one in found)


@pytest.mark.parametrize("draft", DRAFTS)
def test_refusals_say_why(judged: Judged, draft: str) -> None:
    for outcome in judged(draft, ""):
        if outcome.refusal and not outcome.is_rightly_empty:
            known = (outcome.group.file, outcome.group.description) in PAST_LIMITS
            assert known or NO_DIALECT in outcome.group.schema["$schema"], (outcome.group, outcome.refusal)
        if outcome.refusal and outcome.refusal[0] != "invalid":
            keyword, place, reason = outcome.refusal
            assert keyword and place.startswith("#") and reason
