"""Which choice a `select` takes, from the log-probabilities of the choices' tokens. Pure functions.

- `token_length_normalized` (the default): the highest mean log-probability per token. A long choice is
  not punished for its length; one whose later tokens are certain gains from them.
- `greedy_token`: what greedy decoding among the choices would take: the likeliest first token wins, the
  choices that share it are compared by the next one, and so on.
- `unconditional_likelihood_normalized`: the highest gain per token over the log-probability that the
  same choice has without any prompt. Favours what the prompt speaks for over what is common anyway.

Where two are equal the earlier choice wins. The highest sum (`total`), which is the likeliest text, is no
method of its own: it can be taken from `State.scores`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from treille.dsl.protocol import ChoiceScore

Method = Literal["token_length_normalized", "greedy_token", "unconditional_likelihood_normalized"]
METHODS: tuple[Method, ...] = (
    "token_length_normalized",
    "greedy_token",
    "unconditional_likelihood_normalized",
)


def choose(method: Method, scores: Sequence[ChoiceScore], unconditional: Sequence[ChoiceScore] = ()) -> int:
    """The index of the choice that `method` takes.

    `unconditional` holds the scores without a prompt, which only the third method reads.
    """
    if method == "greedy_token":
        return greedy(scores)
    if method == "token_length_normalized":
        return _best([mean(score.logprobs) for score in scores])
    return _best([gain(score, base) for score, base in zip(scores, unconditional, strict=True)])


def total(logprobs: Sequence[float]) -> float:
    """The log-probability of the whole choice."""
    return float(sum(logprobs))


def mean(logprobs: Sequence[float]) -> float:
    """The log-probability per token."""
    return total(logprobs) / len(logprobs)


def gain(score: ChoiceScore, base: ChoiceScore) -> float:
    """How much likelier the prompt makes the choice, per token: a difference of log-probabilities."""
    return (total(score.logprobs) - total(base.logprobs)) / len(score.logprobs)


def greedy(scores: Sequence[ChoiceScore]) -> int:
    """Walk the choices token by token, keeping those that begin with the likeliest path.

    A choice that has ended while longer ones go on is weighed by its mean log-probability against their
    next tokens: the score holds no token for "ends here".
    """
    remaining = list(range(len(scores)))
    depth = 0
    while len(remaining) > 1:
        weights = [_weight(scores[index], depth) for index in remaining]
        winner = remaining[_best(weights)]
        if depth >= len(scores[winner].token_ids):
            return winner
        token_id = scores[winner].token_ids[depth]
        remaining = [i for i in remaining if scores[i].token_ids[depth : depth + 1] == (token_id,)]
        depth += 1
    return remaining[0]


def _weight(score: ChoiceScore, depth: int) -> float:
    return score.logprobs[depth] if depth < len(score.logprobs) else mean(score.logprobs)


def _best(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)
