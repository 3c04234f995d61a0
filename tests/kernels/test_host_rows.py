"""Rows of logits and masks, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from treille.kernels.host_rows import RowKernels

KERNELS = RowKernels()


def bits_of(mask: np.ndarray | None, num_tokens: int) -> np.ndarray:
    if mask is None:
        return np.ones(num_tokens, bool)
    bits = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little")[:num_tokens].astype(bool)
    return np.concatenate([bits, np.zeros(num_tokens - len(bits), bool)])


@pytest.mark.parametrize("num_tokens", [1, 15, 16, 17, 100, 256, 257, 1000, 49_152])
@pytest.mark.parametrize("density", [0.0, 0.001, 0.5, 1.0])
def test_the_best_allowed_and_what_is_forbidden(num_tokens: int, density: float) -> None:
    rng = np.random.default_rng(num_tokens)
    logits = rng.choice([-1.5, 0.0, 2.0, 3.25], size=(7, num_tokens)).astype(np.float32)
    logits[5] = rng.standard_normal(num_tokens)
    masks = []
    for row in range(6):
        words = -(-num_tokens // 32) - (row == 3 and num_tokens > 32)
        mask = np.zeros(words, np.uint32)
        for token in np.flatnonzero(rng.random(32 * words) < density):
            mask[token // 32] |= np.uint32(1) << np.uint32(token % 32)
        masks.append(None if row == 2 else mask)
    rows = [6, 0, 2, 5, 1, 3]
    ids, tops, highest = KERNELS.best(logits, rows, masks)
    for row, mask, best, top, most in zip(rows, masks, ids, tops, highest, strict=True):
        allowed = np.where(bits_of(mask, num_tokens), logits[row], -np.inf)
        assert top == allowed.max() and most == logits[row].max()
        assert best == (int(allowed.argmax()) if np.isfinite(top) else 0)
    whole, tops, highest = KERNELS.best(logits, rows)
    assert whole.tolist() == [int(logits[row].argmax()) for row in rows] and (tops == highest).all()
    before = logits.copy()
    some = [(row, mask) for row, mask in zip(rows, masks, strict=True) if mask is not None]
    KERNELS.forbid(logits, [row for row, _ in some], [mask for _, mask in some])
    for row in range(7):
        mask = dict(some).get(row)
        assert np.array_equal(logits[row], np.where(bits_of(mask, num_tokens), before[row], -np.inf))


@pytest.mark.parametrize("place", [0, 17, 300, 999])
def test_nan_is_highest(place: int) -> None:
    logits = np.zeros((2, 1000), np.float32)
    logits[0, place] = np.nan
    logits[0, 998] = np.inf
    nothing = np.zeros(32, np.uint32)
    ids, tops, highest = KERNELS.best(logits, [0, 1, 0], [None, None, nothing])
    assert ids[0] == place and np.isnan(tops[0]) and np.isnan(highest[0])
    assert ids[1] == 0 and tops[1] == 0 and highest[1] == 0
    assert tops[2] == -np.inf and np.isnan(highest[2])


def test_what_does_not_fit_is_refused() -> None:
    logits = np.zeros((2, 64), np.float32)
    with pytest.raises(ValueError, match="no such row"):
        KERNELS.best(logits, [2])
    with pytest.raises(ValueError, match="one mask a row"):
        KERNELS.best(logits, [0, 1], [None])
    with pytest.raises(ValueError, match="uint32"):
        KERNELS.forbid(logits, [0], [np.zeros(2, np.int64)])
    assert KERNELS.best(logits, [])[0].shape == (0,)


@pytest.mark.parametrize("num_tokens", [1, 15, 16, 17, 100, 256, 257, 1000, 49_152])
@pytest.mark.parametrize("temperature", [1e-320, 1e-3, 0.7, 1.0, 3.0, 1e9])
def test_weights_of_blocks(num_tokens: int, temperature: float) -> None:
    rng = np.random.default_rng(num_tokens)
    logits = (rng.standard_normal((5, num_tokens)) * 9).astype(np.float32)
    logits[1, rng.random(num_tokens) < 0.9] = -np.inf
    logits[1, 0] = 3.0
    logits[2] = -np.inf
    logits[2, num_tokens // 2] = 1.0
    rows = [4, 1, 2, 0]
    tops = [float(logits[row].max()) for row in rows]
    found = KERNELS.block_sums(logits, rows, tops, [temperature] * 4, block=256)
    with np.errstate(over="ignore"):
        exact = np.exp((logits[rows].astype(float) - np.array(tops)[:, None]) / temperature)
    blocks = np.pad(exact, ((0, 0), (0, -num_tokens % 256))).reshape(4, -1, 256)
    assert np.allclose(found, blocks.sum(axis=2), rtol=1e-12, atol=1e-290)
    assert not found[blocks.max(axis=2) == 0].any()
