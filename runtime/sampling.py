"""From logits to tokens: one draw a row, the same whoever else is in the batch.

The order is penalties, `logit_bias`, hard masks, temperature, top-k, top-p, min-p, draw. A draw takes
one uniform number that depends on the row's seed and position alone (Philox, a counter-based generator:
Salmon et al. 2011) and inverts the cumulative distribution in vocabulary order, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from treille.runtime.dense_rows import BLOCK, DenseRows, Floats, Ints, Mask, dense_rows
from treille.runtime.errors import InvalidRequest, ModelError
from treille.runtime.logits import SampleRow, allowed_masks, edit_logits, needs_edit
from treille.runtime.params import SamplingParams
from treille.runtime.types import TokenLogprob

__all__ = ["LOGPROB_FLOOR", "SampleRow", "Sampled", "sample", "token_logprobs"]

LOGPROB_FLOOR = -9999.0  # what -inf is reported as: JSON has no infinities


@dataclass(frozen=True, slots=True)
class Sampled:
    """A row's token; `logprob` is there if the row's parameters ask for it."""

    token_id: int
    logprob: TokenLogprob | None = None


@torch.inference_mode()
def sample(logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[Sampled | Exception]:
    """One token for each row of float32 logits [R, V], which may be changed.

    V is the number of tokens that exist: padding columns must have been cut off. A row that cannot be
    sampled gives its error in its place: `InvalidRequest` if its parameters leave no token, `ModelError`
    if its logits are NaN or infinite. No token of probability 0 is ever returned.
    """
    if logits.ndim != 2 or len(logits) != len(rows) or logits.dtype != torch.float32 or not logits.shape[1]:
        raise ValueError(f"float32 logits [{len(rows)}, V] wanted, got {logits.dtype} {list(logits.shape)}")
    if not rows:
        return []
    dense = dense_rows(logits)
    everyone, few = range(len(rows)), frozenset(i for i, row in enumerate(rows) if needs_edit(row))
    masks = allowed_masks(rows, dense.num_tokens)
    ids, tops, highest = dense.best(everyone, [None if i in few else masks.get(i) for i in everyone])
    is_plain = not few and all(_is_greedy(row.params) and row.params.logprobs is None for row in rows)
    if is_plain and all(map(math.isfinite, highest)) and min(tops) > -math.inf:
        return [Sampled(token_id) for token_id in ids]
    failed: dict[int, Exception] = {i: _broken() for i in everyone if not math.isfinite(highest[i])}
    with_logprobs = [i for i in everyone if rows[i].params.logprobs is not None and i not in failed]
    raw = dense.copy(with_logprobs) if with_logprobs else dense
    edited = [i for i in sorted(few) if i not in failed]
    if edited:
        failed.update(edit_logits(dense, rows, edited))
        again = dense.best(edited, [masks.get(i) for i in edited])
        for i, token_id, top, _ in zip(edited, *again, strict=True):
            ids[i], tops[i] = token_id, top
    for i in everyone:
        if tops[i] == -math.inf:
            failed.setdefault(i, _nothing_left(masks.get(i)))
        elif not math.isfinite(tops[i]):
            failed.setdefault(i, _broken())
    drawn = [i for i in everyone if i not in failed and not _is_greedy(rows[i].params)]
    hidden = [i for i in drawn if i in masks]
    if hidden:
        dense.forbid(hidden, [masks[i] for i in hidden])
    for i, token_id in _draw(dense, rows, drawn, tops).items():
        ids[i] = token_id
    logprobs: dict[int, TokenLogprob] = {}
    if any(i not in failed for i in with_logprobs):
        counts = [rows[i].params.logprobs or 0 for i in with_logprobs]
        tops = [highest[i] for i in with_logprobs]
        entries = _logprobs(raw, tops, [ids[i] for i in with_logprobs], counts)
        logprobs.update(zip(with_logprobs, entries, strict=True))
    return [failed.get(i) or Sampled(ids[i], logprobs.get(i)) for i in everyone]


def _broken() -> ModelError:
    return ModelError("the model's logits are not finite numbers")


def _nothing_left(mask: Mask | None) -> InvalidRequest:
    whose = "the request's parameters leave" if mask is None or mask.any() else "the constraint leaves"
    return InvalidRequest(f"{whose} no token to go on with")


def _is_greedy(params: SamplingParams) -> bool:
    """Whether only the likeliest token can be drawn (of equally likely ones the lowest id)."""
    return params.temperature == 0 or params.top_p == 0 or params.top_k == 1


def _draw(
    dense: DenseRows, rows: Sequence[SampleRow], drawn: Sequence[int], tops: Sequence[float]
) -> dict[int, int]:
    """Row -> token for the rows that are left to chance. `tops` holds each row's highest logit."""
    limited = [i for i in drawn if 0 < rows[i].params.top_k < dense.num_tokens]
    nucleus = [i for i in drawn if i not in set(limited) and rows[i].params.top_p < 1]
    rest = [i for i in drawn if i not in {*limited, *nucleus}]
    floored = [i for i in rest if rows[i].params.min_p > 0]
    whole = [i for i in rest if i not in set(floored)]
    found: dict[int, int] = {}
    candidates: dict[int, tuple[Ints, Floats]] = {}
    masses: dict[int, float] = {}
    if whole or nucleus:
        summed = [*whole, *nucleus]
        sums = dense.block_sums(
            summed, [tops[i] for i in summed], [rows[i].params.temperature for i in summed]
        )
        found.update(_draw_whole(dense, rows, whole, tops, sums[: len(whole)]))
    if nucleus:
        masses.update(zip(nucleus, sums[len(whole) :].sum(axis=1).tolist(), strict=True))
        candidates.update(_nucleus(dense, rows, masses, tops))
    floors = {i: _logit_of(rows[i].params.min_p, tops[i], rows[i]) for i in floored}
    if limited:
        floors.update(
            zip(limited, dense.floors(limited, [rows[i].params.top_k for i in limited]), strict=True)
        )
    if floors:
        for i, (ids, values) in zip(floors, dense.above(list(floors), list(floors.values())), strict=True):
            candidates[i] = ids, _weights(values, tops[i], rows[i])
    for i, (ids, weights) in candidates.items():
        found[i] = _draw_few(rows[i], ids, weights, masses.get(i))
    return found


def _nucleus(
    dense: DenseRows, rows: Sequence[SampleRow], masses: Mapping[int, float], tops: Sequence[float]
) -> dict[int, tuple[Ints, Floats]]:
    """Row -> ids and weights of its heaviest tokens, enough of them to hold top-p's share of its mass.

    Tokens lighter than (1 - top_p) / V hold less than 1 - top_p of the mass together, so the others are
    always enough. Mostly far fewer are, and sorting them takes less time.
    """
    found: dict[int, tuple[Ints, Floats]] = {}
    left = list(masses)
    for ease in (512, 64, 8, 1):
        spare = [ease * (1 - rows[i].params.top_p) / dense.num_tokens for i in left]
        floors = [_logit_of(weight, tops[i], rows[i]) for i, weight in zip(left, spare, strict=True)]
        for i, (ids, values) in zip(left, dense.above(left, floors), strict=True):
            weights = _weights(values, tops[i], rows[i])
            if ease == 1 or float(weights.sum()) >= rows[i].params.top_p * masses[i]:
                found[i] = ids, weights
        left = [i for i in left if i not in found]
        if not left:
            break
    return found


def _draw_whole(
    dense: DenseRows, rows: Sequence[SampleRow], drawn: Sequence[int], tops: Sequence[float], sums: Floats
) -> dict[int, int]:
    """Draws from whole distributions: first the block of ids, by the blocks' sums, then the id in it."""
    if not drawn:
        return {}
    ends = np.cumsum(sums, axis=1)
    numbers = []
    rests = []
    for i, end in zip(drawn, ends, strict=True):
        number, rest = _invert(end, _uniform(rows[i]) * float(end[-1]))
        numbers.append(number)
        rests.append(rest)
    found = {}
    for i, number, rest, values in zip(drawn, numbers, rests, dense.blocks(drawn, numbers), strict=True):
        inside, _ = _invert(np.cumsum(_weights(values, tops[i], rows[i])), rest)
        found[i] = number * BLOCK + inside
    return found


def _draw_few(row: SampleRow, ids: Ints, weights: Floats, mass: float | None) -> int:
    """Draws from candidates (ids ascending) after top-k, top-p and min-p.

    `mass` is the weight of everything that top-p is a share of, the candidates' own after top-k if None.
    Of equally likely tokens at the edge of top-k or top-p the lower ids are kept.
    """
    params = row.params
    if params.top_k or params.top_p < 1:
        heaviest = np.sort(weights)[::-1]
        if params.top_k:
            heaviest = heaviest[: params.top_k]
        if params.top_p < 1:
            shares = np.cumsum(heaviest)
            wanted = params.top_p * (float(shares[-1]) if mass is None else mass)
            heaviest = heaviest[: int(np.searchsorted(shares, wanted)) + 1]
        weights = _keep(weights, heaviest)
    weights = np.where(weights >= params.min_p, weights, 0.0)
    ends = np.cumsum(weights)
    place, _ = _invert(ends, _uniform(row) * float(ends[-1]))
    return int(ids[place])


def _keep(weights: Floats, heaviest: Floats) -> Floats:
    """`weights` with all but its `heaviest` (sorted, a prefix of the order) set to 0."""
    edge = heaviest[-1]
    kept = np.where(weights > edge, weights, 0.0)
    at_edge = np.flatnonzero(weights == edge)[: len(heaviest) - np.count_nonzero(kept)]
    kept[at_edge] = edge
    return kept


def _invert(ends: Floats, target: float) -> tuple[int, float]:
    """The first interval whose end lies beyond `target`, and how far into it `target` lies.

    Rounding may put the target at or past the last end: then the last interval that is not empty.
    """
    place = int(np.searchsorted(ends, target, side="right"))
    if place == len(ends):
        place = int(np.searchsorted(ends, ends[-1]))
    return place, target - (float(ends[place - 1]) if place else 0.0)


def _weights(values: Floats, top: float, row: SampleRow) -> Floats:
    """Unnormalised probabilities: 1 for the highest logit."""
    with np.errstate(over="ignore"):
        weights: Floats = np.exp((values - top) / row.params.temperature)
    return weights


def _logit_of(weight: float, top: float, row: SampleRow) -> float:
    """A logit a little below the one that has this weight, so that rounding keeps every candidate."""
    floor = top + row.params.temperature * math.log(weight) if weight else -math.inf
    return floor - 1e-6 * (1.0 + abs(floor))


def _uniform(row: SampleRow) -> float:
    """A number in [0, 1) that depends on the seed and the position alone."""
    key = np.array([row.seed % 2**64, len(row.output_ids)], dtype=np.uint64)
    return float(np.random.Generator(np.random.Philox(key=key)).random())


@torch.inference_mode()
def token_logprobs(logits: torch.Tensor, ids: Sequence[int], *, num_top: int = 0) -> list[TokenLogprob]:
    """For each row of float32 logits [R, V], the log-probability of its id, with the `num_top` likeliest ids.

    Raises ModelError where logits are NaN or +inf, or all -inf.
    """
    raw = dense_rows(logits)
    _, tops, _ = raw.best(range(len(ids)))
    if not all(map(math.isfinite, tops)):
        raise _broken()
    return _logprobs(raw, tops, ids, [num_top] * len(ids))


def _logprobs(
    raw: DenseRows, tops: Sequence[float], ids: Sequence[int], counts: Sequence[int]
) -> list[TokenLogprob]:
    """Of each row's id and of its `counts` likeliest ones; `raw` holds the untouched logits, `tops` each
    row's highest."""
    everyone = range(len(ids))
    totals = raw.block_sums(everyone, tops, [1.0] * len(ids)).sum(axis=1)
    norms = [top + math.log(total) for top, total in zip(tops, totals, strict=True)]
    chosen = raw.gather(np.arange(len(ids)), np.asarray(ids, dtype=np.int64))
    wanted = {n: min(counts[n], raw.num_tokens) for n in everyone if counts[n]}
    tables: dict[int, tuple[tuple[int, float], ...]] = {}
    if wanted:
        floors = raw.floors(list(wanted), list(wanted.values()))
        for n, (found, values) in zip(wanted, raw.above(list(wanted), floors), strict=True):
            order = np.argsort(-values, kind="stable")[: wanted[n]]
            tables[n] = tuple((int(found[k]), _finite(float(values[k]) - norms[n])) for k in order)
    return [TokenLogprob(ids[n], _finite(float(chosen[n]) - norms[n]), tables.get(n, ())) for n in everyone]


def _finite(logprob: float) -> float:
    return max(logprob, LOGPROB_FLOOR)
