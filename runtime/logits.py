"""What a request does to its logits before a token is drawn: penalties, biases, hard masks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from treille.runtime.dense_rows import DenseRows, Floats, Ints, Mask
from treille.runtime.errors import InvalidRequest
from treille.runtime.params import SamplingParams


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One row of logits to sample from.

    `seed` is the sample's own: same seed, same position, same logits, same token. `mask` has bit t set
    if token t is allowed (uint32, 32 tokens a word); ids beyond it are forbidden. `banned` are ids that
    `min_tokens` or `ignore_eos` forbid: if they and the mask leave nothing, the mask wins.
    """

    params: SamplingParams
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    seed: int
    mask: Mask | None = None
    banned: tuple[int, ...] = ()


Edit = tuple[int, Ints, Floats]  # row, ids (none twice), one value for each id


def edit_logits(dense: DenseRows, rows: Sequence[SampleRow], live: Sequence[int]) -> dict[int, Exception]:
    """Applies, in this order, penalties, biases and bans to the rows numbered in `live`; not their masks.

    Returns the rows that cannot be sampled, with the reason; the others are not affected by them. What
    is -inf stays so: penalties and biases only scale and shift.
    """
    failed: dict[int, Exception] = {}
    _apply(dense, _repetitions(dense, rows, live), _repeat)
    _apply(dense, _frequencies(dense, rows, live), np.subtract)
    biases = []
    for i in live:
        bias = rows[i].params.logit_bias
        if any(token_id >= dense.num_tokens for token_id in bias):
            failed[i] = InvalidRequest(
                f"logit_bias names a token that does not exist: the ids end at {dense.num_tokens - 1}",
                field="logit_bias",
            )
        elif bias:
            ids = np.fromiter(bias.keys(), np.int64, len(bias))
            biases.append((i, ids, np.fromiter(bias.values(), np.float64, len(bias))))
    _apply(dense, biases, np.add)
    _apply(dense, _bans(dense, rows, live), lambda _, forbidden: forbidden)
    return failed


def needs_edit(row: SampleRow) -> bool:
    """Whether `edit_logits` would change anything."""
    params = row.params
    return bool(
        (row.banned and row.mask is None)
        or params.logit_bias
        or params.repetition_penalty != 1.0
        or params.presence_penalty
        or params.frequency_penalty
    )


def _apply(dense: DenseRows, edits: Sequence[Edit], change: Callable[[Floats, Floats], Floats]) -> None:
    """logit = change(logit, value) for every edit, in one go."""
    if not edits:
        return
    owners = np.concatenate([np.full(len(ids), row, np.int64) for row, ids, _ in edits])
    ids = np.concatenate([ids for _, ids, _ in edits])
    values = np.concatenate([values for _, _, values in edits])
    dense.scatter(owners, ids, change(dense.gather(owners, ids), values))


def _repeat(logits: Floats, penalty: Floats) -> Floats:
    """Away from the likelier side: Keskar et al. 2019 (CTRL), with the sign minded."""
    return np.where(logits > 0, logits / penalty, logits * penalty)


def _repetitions(dense: DenseRows, rows: Sequence[SampleRow], live: Sequence[int]) -> list[Edit]:
    """Tokens of prompt and output, with the repetition penalty."""
    edits: list[Edit] = []
    for i in live:
        penalty = rows[i].params.repetition_penalty
        if penalty != 1.0:
            seen = {*rows[i].prompt_ids, *rows[i].output_ids}
            ids = _existing(np.fromiter(seen, np.int64, len(seen)), dense.num_tokens)
            edits.append((i, ids, np.full(len(ids), penalty)))
    return edits


def _frequencies(dense: DenseRows, rows: Sequence[SampleRow], live: Sequence[int]) -> list[Edit]:
    """Tokens of the output alone, with presence and frequency penalties."""
    edits: list[Edit] = []
    for i in live:
        params = rows[i].params
        if params.presence_penalty or params.frequency_penalty:
            output = _existing(np.asarray(rows[i].output_ids, dtype=np.int64), dense.num_tokens)
            ids, counts = np.unique(output, return_counts=True)
            amounts = params.presence_penalty + params.frequency_penalty * counts.astype(np.float64)
            edits.append((i, ids, amounts))
    return edits


def allowed_masks(rows: Sequence[SampleRow], num_tokens: int) -> dict[int, Mask]:
    """The masks of the rows that have one, without what is banned there. A ban that would leave nothing is
    dropped."""
    found: dict[int, Mask] = {}
    for i, row in enumerate(rows):
        mask = row.mask
        if mask is None:
            continue
        if 32 * len(mask) > num_tokens:
            mask = mask[: -(-num_tokens // 32)].copy()
            if num_tokens % 32:
                mask[-1] &= np.uint32((1 << num_tokens % 32) - 1)
        found[i] = _without(mask, row.banned) if row.banned else mask
    return found


def _without(mask: Mask, banned: Collection[int]) -> Mask:
    left = mask
    for token_id in banned:
        if 0 <= token_id < 32 * len(mask) and int(mask[token_id // 32]) >> token_id % 32 & 1:
            left = mask.copy() if left is mask else left
            left[token_id // 32] &= ~(np.uint32(1) << np.uint32(token_id % 32))
    return left if left is mask or left.any() else mask


def _bans(dense: DenseRows, rows: Sequence[SampleRow], live: Sequence[int]) -> list[Edit]:
    """What is banned where there is no mask to leave it out of; not if it is everything."""
    bans: list[Edit] = []
    for i in live:
        if rows[i].banned and rows[i].mask is None:
            banned = _existing(np.unique(np.asarray(rows[i].banned, dtype=np.int64)), dense.num_tokens)
            if 0 < len(banned) < dense.num_tokens:
                bans.append((i, banned, np.full(len(banned), -np.inf)))
    return bans


def _existing(ids: Ints, num_tokens: int) -> Ints:
    return ids[(ids >= 0) & (ids < num_tokens)]
