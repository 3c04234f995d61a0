"""Work over whole rows of logits: numpy and our kernels where they lie on the host, torch on a device.

Sampling decides with small arrays; these classes do the few things that look at every logit, so that
only little crosses from a device to the host. On the host numpy is faster than torch: its exponentials are
vectorised, and waking torch's threads costs more than a row takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from treille.kernels.select import select_row_kernels

BLOCK = 256  # logits whose weights are summed together
_GROUPS = 64
_LOWEST = float(np.finfo(np.float32).min)
_DEVICE_CHUNK = 2**24  # weights held at once on a device

Mask = NDArray[np.uint32]  # bit t: token t is allowed; 32 tokens a word, those beyond its end are not
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class DenseRows(Protocol):
    """Float32 logits [R, V] that may be changed. `rows` are row numbers, no row twice."""

    num_tokens: int

    def best(
        self, rows: Sequence[int], masks: Sequence[Mask | None] | None = None
    ) -> tuple[list[int], list[float], list[float]]:
        """The lowest allowed id with the highest logit of each row, that logit (-inf where nothing is
        allowed), and the highest of all; NaN counts as highest. None: everything is allowed."""

    def gather(self, rows: Ints, ids: Ints) -> Floats:
        """The logits at (row, id) pairs."""

    def scatter(self, rows: Ints, ids: Ints, values: Floats) -> None:
        """Sets the logits at (row, id) pairs, no pair twice."""

    def forbid(self, rows: Sequence[int], masks: Sequence[Mask]) -> None:
        """Sets to -inf what the masks do not allow."""

    def floors(self, rows: Sequence[int], ks: Sequence[int]) -> list[float]:
        """For each row a logit that its k highest logits reach, and not many more do."""

    def above(self, rows: Sequence[int], floors: Sequence[float]) -> list[tuple[Ints, Floats]]:
        """For each row the ids with a finite logit of at least the floor, ascending, and their logits."""

    def block_sums(self, rows: Sequence[int], tops: Sequence[float], temperatures: Sequence[float]) -> Floats:
        """Sums of exp((logit - top) / temperature) over each `BLOCK` of ids: [len(rows), ceil(V / BLOCK)]."""

    def blocks(self, rows: Sequence[int], numbers: Sequence[int]) -> list[Floats]:
        """The logits of one block of each row."""

    def copy(self, rows: Sequence[int]) -> DenseRows:
        """These rows alone, numbered from 0; later changes here do not show there."""


def dense_rows(logits: torch.Tensor) -> DenseRows:
    """A view of float32 logits [R, V]; what is changed there is changed here."""
    return HostRows(logits.detach().numpy()) if logits.device.type == "cpu" else DeviceRows(logits.detach())


class HostRows:
    """`DenseRows` in numpy."""

    def __init__(self, logits: NDArray[np.float32]) -> None:
        self._logits = logits
        self._kernels = select_row_kernels()
        self.num_tokens = int(logits.shape[1])

    def best(
        self, rows: Sequence[int], masks: Sequence[Mask | None] | None = None
    ) -> tuple[list[int], list[float], list[float]]:
        ids, tops, highest = self._kernels.best(self._logits, rows, masks)
        return ids.tolist(), tops.tolist(), highest.tolist()

    def gather(self, rows: Ints, ids: Ints) -> Floats:
        return self._logits[rows, ids].astype(np.float64)

    def scatter(self, rows: Ints, ids: Ints, values: Floats) -> None:
        self._logits[rows, ids] = values

    def forbid(self, rows: Sequence[int], masks: Sequence[Mask]) -> None:
        self._kernels.forbid(self._logits, rows, masks)

    def floors(self, rows: Sequence[int], ks: Sequence[int]) -> list[float]:
        return [_host_floor(self._logits[row], k) for row, k in zip(rows, ks, strict=True)]

    def above(self, rows: Sequence[int], floors: Sequence[float]) -> list[tuple[Ints, Floats]]:
        found = []
        for row, floor in zip(rows, floors, strict=True):
            logits = self._logits[row]
            ids = np.flatnonzero(logits >= np.float32(max(floor, _LOWEST))).astype(np.int64)
            found.append((ids, logits[ids].astype(np.float64)))
        return found

    def block_sums(self, rows: Sequence[int], tops: Sequence[float], temperatures: Sequence[float]) -> Floats:
        return self._kernels.block_sums(self._logits, rows, tops, temperatures, block=BLOCK)

    def blocks(self, rows: Sequence[int], numbers: Sequence[int]) -> list[Floats]:
        return [
            self._logits[row, n * BLOCK : (n + 1) * BLOCK].astype(np.float64)
            for row, n in zip(rows, numbers, strict=True)
        ]

    def copy(self, rows: Sequence[int]) -> HostRows:
        return HostRows(self._logits[list(rows)])


class DeviceRows:
    """`DenseRows` in torch, for any device."""

    def __init__(self, logits: torch.Tensor) -> None:
        self._logits = logits
        self._device = logits.device
        self.num_tokens = int(logits.shape[1])

    def best(
        self, rows: Sequence[int], masks: Sequence[Mask | None] | None = None
    ) -> tuple[list[int], list[float], list[float]]:
        logits = self._take(rows)
        highest: list[float] = logits.amax(dim=-1).tolist()
        if masks is not None and any(mask is not None for mask in masks):
            everything = np.ones(self.num_tokens, np.bool_)
            allowed = [everything if mask is None else unpacked(mask, self.num_tokens) for mask in masks]
            logits = logits.masked_fill(self._forbidden(allowed), -torch.inf)
        values, ids = logits.max(dim=-1)
        return ids.tolist(), values.tolist(), highest

    def gather(self, rows: Ints, ids: Ints) -> Floats:
        return _to_host(self._logits[self._index(rows), self._index(ids)])

    def scatter(self, rows: Ints, ids: Ints, values: Floats) -> None:
        put = torch.from_numpy(values.astype(np.float32)).to(self._device)
        self._logits[self._index(rows), self._index(ids)] = put

    def forbid(self, rows: Sequence[int], masks: Sequence[Mask]) -> None:
        forbidden = self._forbidden([unpacked(mask, self.num_tokens) for mask in masks])
        self._logits[self._index(rows)] = self._take(rows).masked_fill(forbidden, -torch.inf)

    def _forbidden(self, allowed: Sequence[NDArray[np.bool_]]) -> torch.Tensor:
        return torch.from_numpy(~np.stack(allowed)).to(self._device)

    def floors(self, rows: Sequence[int], ks: Sequence[int]) -> list[float]:
        highest = self._take(rows).topk(min(max(ks), self.num_tokens), dim=-1).values
        last = self._index([min(k, self.num_tokens) - 1 for k in ks])
        found: list[float] = highest.gather(1, last[:, None])[:, 0].tolist()
        return found

    def above(self, rows: Sequence[int], floors: Sequence[float]) -> list[tuple[Ints, Floats]]:
        logits = self._take(rows)
        least = [max(floor, _LOWEST) for floor in floors]
        places = (logits >= torch.tensor(least, device=self._device)[:, None]).nonzero()
        owners, ids = places.T.cpu().numpy()
        values = _to_host(logits[places[:, 0], places[:, 1]])
        cuts = np.searchsorted(owners, np.arange(1, len(rows)))
        return list(zip(np.split(ids, cuts), np.split(values, cuts), strict=True))

    def block_sums(self, rows: Sequence[int], tops: Sequence[float], temperatures: Sequence[float]) -> Floats:
        step = max(1, _DEVICE_CHUNK // self.num_tokens)
        scale = torch.tensor([tops, temperatures], dtype=torch.float64, device=self._device)[:, :, None]
        parts = []
        for start in range(0, len(rows), step):
            top, temperature = scale[:, start : start + step]
            weights = self._take(rows[start : start + step]).double().sub_(top).div_(temperature).exp_()
            padded = torch.nn.functional.pad(weights, (0, -self.num_tokens % BLOCK))
            parts.append(_to_host(padded.reshape(len(padded), -1, BLOCK).sum(dim=-1)))
        return np.concatenate(parts)

    def blocks(self, rows: Sequence[int], numbers: Sequence[int]) -> list[Floats]:
        offsets = self._index(numbers)[:, None] * BLOCK + torch.arange(BLOCK, device=self._device)
        inside = offsets.clamp(max=self.num_tokens - 1)
        values = _to_host(self._take(rows).gather(1, inside))
        return [block[: self.num_tokens - n * BLOCK] for block, n in zip(values, numbers, strict=True)]

    def copy(self, rows: Sequence[int]) -> DeviceRows:
        return DeviceRows(self._take(rows))

    def _take(self, rows: Sequence[int]) -> torch.Tensor:
        return self._logits[self._index(rows)]

    def _index(self, values: Sequence[int] | Ints) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values, dtype=np.int64)).to(self._device)


def unpacked(mask: Mask, num_tokens: int) -> NDArray[np.bool_]:
    """bool [num_tokens] from a mask."""
    octets = mask.astype("<u4", copy=False).view(np.uint8)
    bits = np.unpackbits(octets, bitorder="little", count=min(num_tokens, 32 * len(mask)))
    keep = np.zeros(num_tokens, dtype=np.bool_)
    keep[: len(bits)] = bits
    return keep


def _host_floor(logits: NDArray[np.float32], k: int) -> float:
    """The k-th highest of the maxima of groups: k logits reach it, one in each of k groups."""
    size = len(logits) // _GROUPS
    if k > size:
        return float(np.partition(logits, len(logits) - k)[len(logits) - k]) if k <= len(logits) else _LOWEST
    maxima = logits[: size * _GROUPS].reshape(_GROUPS, size).max(axis=0)
    return float(np.partition(maxima, size - k)[size - k])


def _to_host(values: torch.Tensor) -> Floats:
    found: Floats = values.double().cpu().numpy()
    return found
