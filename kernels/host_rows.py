"""Rows of logits in host memory: what looks at every one of them, compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from treille.kernels.api import require
from treille.kernels.cpu_sampling import best_source, forbid_source, weights_source
from treille.kernels.parallel import ThreadTeam, Worker, fingerprint
from treille.kernels.simd import LOG2_E

Rows = NDArray[np.float32]
Mask = NDArray[np.uint32]
HIGHEST_SCALE = 1e300
MIN_TEAM_LOGITS = 1 << 18  # below this, waking threads costs more than they save


class RowKernels:
    """Kernels over rows of float32 logits [R, V]. A mask has bit t set if token t is allowed: uint32, 32
    tokens a word; tokens beyond its end are forbidden."""

    def __init__(self) -> None:
        key = fingerprint()
        self._team = ThreadTeam()
        self._best = Worker(best_source(key))
        self._forbid = Worker(forbid_source(key))
        self._weigh = Worker(weights_source(key))

    def best(
        self, logits: Rows, rows: Sequence[int], masks: Sequence[Mask | None] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """For each of `rows` the lowest allowed id with the highest logit, that logit (-inf, and id 0, where
        nothing is allowed), and the highest of all logits. NaN counts as highest."""
        count = len(rows)
        ids, tops, highest = (
            np.empty(count, np.int64),
            np.empty(count, np.float32),
            np.empty(count, np.float32),
        )
        places = _places(logits, rows, masks)
        self._run(self._best, logits, places, (ids.ctypes.data, tops.ctypes.data, highest.ctypes.data))
        return ids, tops, highest

    def forbid(self, logits: Rows, rows: Sequence[int], masks: Sequence[Mask]) -> None:
        """Sets to -inf what the masks of `rows` do not allow."""
        self._run(self._forbid, logits, _places(logits, rows, masks), ())

    def block_sums(
        self,
        logits: Rows,
        rows: Sequence[int],
        tops: Sequence[float],
        temperatures: Sequence[float],
        *,
        block: int,
    ) -> NDArray[np.float64]:
        """Sums of exp((logit - top) / temperature), for each of `rows`, over every `block` (a multiple of 16)
        of logits, none of which is above `top`: [len(rows), ceil(V / block)]."""
        num_tokens = logits.shape[1]
        sums = np.empty((len(rows), -(-num_tokens // block)), np.float64)
        places = _places(logits, rows, None)[0]
        # A temperature so low that its inverse is infinite still leaves the top its weight of 1.
        with np.errstate(over="ignore", divide="ignore"):
            scales = np.minimum(LOG2_E / np.array(temperatures, np.float64), HIGHEST_SCALE)
        highest = np.array(tops, np.float64)
        inputs = (num_tokens, block, places.ctypes.data, highest.ctypes.data, scales.ctypes.data)
        self._over_rows(self._weigh, len(rows), num_tokens, (*inputs, sums.ctypes.data))
        return sums

    def _run(self, worker: Worker, logits: Rows, places: NDArray[np.int64], results: tuple[int, ...]) -> None:
        num_tokens, inputs = logits.shape[1], tuple(row.ctypes.data for row in places)
        self._over_rows(worker, places.shape[1], num_tokens, (num_tokens, *inputs, *results))

    def _over_rows(self, worker: Worker, count: int, num_tokens: int, words: tuple[int, ...]) -> None:
        """Runs a worker whose first word is the number of rows."""
        if count:
            num_threads = torch.get_num_threads() if count * num_tokens >= MIN_TEAM_LOGITS else 1
            self._team.run(worker, (count, *words), num_threads=min(num_threads, count))


def _places(logits: Rows, rows: Sequence[int], masks: Sequence[Mask | None] | None) -> NDArray[np.int64]:
    """int64 [3, n]: addresses of logits, addresses of masks (0: none), tokens that a mask has bits for."""
    require(logits.dtype == np.float32 and logits.ndim == 2, "logits must be float32 [R, V]")
    require(logits.strides[1] == 4 or logits.shape[1] < 2, "a row's logits must lie side by side")
    numbers = np.asarray(rows, np.int64)
    require(not numbers.size or (numbers.min() >= 0 and numbers.max() < len(logits)), "no such row")
    places = np.zeros((3, len(numbers)), np.int64)
    places[0] = logits.ctypes.data + numbers * logits.strides[0]
    if masks is not None:
        require(len(masks) == len(numbers), "one mask a row")
        for place, mask in enumerate(masks):
            if mask is not None:
                require(mask.dtype == np.uint32 and mask.ndim == 1, "a mask must be uint32 [W]")
                require(mask.size and mask.strides[0] == 4, "a mask's words must lie side by side")
                places[1, place], places[2, place] = mask.ctypes.data, 32 * len(mask)
    return places
