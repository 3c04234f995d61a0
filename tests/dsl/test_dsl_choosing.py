"""The scoring rules of `select` on the numbers of the reports B26 and B28, and against brute force."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treille.dsl.choosing import METHODS, choose, gain, greedy, mean, total
from treille.dsl.protocol import ChoiceScore


def score(*logprobs: float, ids: tuple[int, ...] | None = None) -> ChoiceScore:
    return ChoiceScore(ids if ids is not None else tuple(range(len(logprobs))), logprobs)


def test_b26_the_three_rules_on_one_long_choice() -> None:
    a, b = score(-1.0, ids=(1,)), score(-3.0, -0.01, -0.01, -0.01, ids=(2, 3, 4, 5))
    assert [total(s.logprobs) for s in (a, b)] == pytest.approx([-1.0, -3.03])
    assert [mean(s.logprobs) for s in (a, b)] == pytest.approx([-1.0, -0.7575])
    assert choose("token_length_normalized", [a, b]) == 1
    assert choose("greedy_token", [a, b]) == 0
    assert max((total(s.logprobs), i) for i, s in enumerate((a, b)))[1] == 0


def test_b28_a_likely_beginning_does_not_win_a_scored_choice() -> None:
    stone = score(math.log(0.6), math.log(0.001), ids=(1, 2))
    river = score(math.log(0.3), ids=(3,))
    assert choose("token_length_normalized", [stone, river]) == 1
    assert choose("greedy_token", [stone, river]) == 0
    assert math.exp(total(stone.logprobs)) == pytest.approx(0.0006)
    assert math.exp(total(river.logprobs)) == pytest.approx(0.3)


def test_unconditional_takes_what_the_prompt_made_likelier() -> None:
    common, rare = score(-1.0), score(-2.0)
    assert choose("token_length_normalized", [common, rare]) == 0
    assert choose("unconditional_likelihood_normalized", [common, rare], [score(-1.0), score(-9.0)]) == 1
    assert gain(score(-1.0, -1.0), score(-2.0, -4.0)) == pytest.approx(2.0)


@pytest.mark.parametrize("method", METHODS)
def test_equal_scores_take_the_first(method: str) -> None:
    assert choose(method, [score(-1.0)] * 3, [score(-2.0)] * 3) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([score(-0.5, -3.0, ids=(1, 2)), score(-0.5, -1.0, ids=(1, 3)), score(-0.6, ids=(4,))], 1),
        ([score(-0.5, ids=(1,)), score(-0.5, -0.1, ids=(1, 2))], 1),  # longer: -0.1 against a mean of -0.5
        ([score(-0.5, ids=(1,)), score(-0.5, -0.9, ids=(1, 2))], 0),
        ([score(-0.5, -9.0, ids=(1, 2)), score(-0.4, -9.0, ids=(3, 2)), score(-0.4, -8.0, ids=(3, 4))], 2),
        ([score(-1.0, -2.0, ids=(1, 2)), score(-1.0 + 1e-9, -3.0, ids=(1, 3))], 0),  # one token, two rows
        ([score(-1.0, ids=(1,))], 0),
    ],
)
def test_greedy_walks_token_by_token(scores: list[ChoiceScore], expected: int) -> None:
    assert greedy(scores) == expected


@settings(deadline=None)
@given(st.dictionaries(st.lists(st.integers(0, 2), min_size=3, max_size=3).map(tuple), st.none(), min_size=1))
def test_greedy_is_greedy_decoding_where_no_choice_begins_another(
    choices: dict[tuple[int, ...], None],
) -> None:
    """Log-probabilities are a function of the path, as a model's are."""

    def logprob(path: tuple[int, ...]) -> float:
        return -float((7 * path[-1] + 5 * sum(path) + 3 * len(path)) % 11) - path[-1] / 10

    ids = list(choices)
    scores = [ChoiceScore(i, tuple(logprob(i[: d + 1]) for d in range(len(i)))) for i in ids]
    prefix: tuple[int, ...] = ()
    while len(prefix) < 3:
        options = {i[len(prefix)] for i in ids if i[: len(prefix)] == prefix}
        prefix += (max(options, key=lambda token: logprob((*prefix, token))),)
    assert ids[greedy(scores)] == prefix
