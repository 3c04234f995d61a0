"""A linear layer in its weights' own precision, laid out for the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from treille.kernels.api import require
from treille.kernels.chain import BLOCK_ROWS, Part
from treille.kernels.cpu_linear import PAIRED, panels, ready_rows
from treille.kernels.gemm_tile import MAX_PANELS
from treille.kernels.instructions import LANES
from treille.kernels.parallel import ThreadTeam, Worker, address

MIN_TEAM_PRODUCTS = 1 << 16


class PackedLinear:
    """A linear layer made by `CpuKernels.pack_linear`."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, worker: Worker, widen: Worker, team: ThreadTeam
    ) -> None:
        self.out_features, self.in_features = weight.shape
        self._dtype = weight.dtype
        self._bias = bias
        self._panels = panels(weight)
        self._num_inputs = self._panels.shape[1] * self._panels.shape[3]
        self._worker, self._widen = worker, widen
        self._team = team
        self._widens = weight.dtype == torch.bfloat16 and not PAIRED

    def __call__(self, x: Tensor, *, wide: bool = False) -> Tensor:
        """`x`: [T, in]. Returns [T, out]; with `wide` as float32, the same numbers."""
        require(x.ndim == 2 and x.shape[1] == self.in_features, "x must be [T, in]")
        require(x.dtype == self._dtype and x.is_cpu, "x must be like the weight")
        num_rows = x.shape[0]
        out = x.new_empty(num_rows, self.out_features, dtype=torch.float32 if wide else None)
        if num_rows == 0:
            return out
        rows = ready_rows(x)
        work = num_rows * self.out_features * self.in_features
        num_threads = torch.get_num_threads() if work >= MIN_TEAM_PRODUCTS else 1
        words = self._words(num_rows, rows.data_ptr(), rows.stride(0) * rows.element_size(), out.data_ptr())
        self._team.run(self._worker, (*words, int(wide)), num_threads=num_threads)
        return out

    @property
    def can_chain(self) -> bool:
        """Whether `parts` can be had: rows of bfloat16 of an odd length have half a word more than `x`."""
        return self._num_inputs == self.in_features

    def scratch_bytes(self, num_rows: int) -> int:
        """What `parts` need beside `x` and `out`."""
        return num_rows * self.in_features * 4 if self._widens else 0

    def parts(self, x: int, out: int, scratch: int, num_rows: int) -> list[Part]:
        """The layer in a chain: from [num_rows, in] at one address to [num_rows, out] at another."""
        parts, row_bytes = [], self.in_features * self._dtype.itemsize
        if self._widens:
            parts.append(Part(self._widen, (num_rows, 1, self.in_features, x, scratch)))
            x, row_bytes = scratch, 4 * self.in_features
        words = (*self._words(num_rows, x, row_bytes, out), 0)
        return [*parts, Part(self._worker, words, in_blocks=True)]

    def _words(self, num_rows: int, rows: int, row_bytes: int, out: int) -> tuple[int, ...]:
        return (
            num_rows,
            min(num_rows, BLOCK_ROWS),
            self.out_features,
            self._num_inputs,
            self._group_panels(),
            rows,
            row_bytes,
            self._panels.data_ptr(),
            address(self._bias),
            out,
        )

    def _group_panels(self) -> int:
        """Panels to a piece: as many as a tile spans, or half where the threads then have like shares."""
        num_panels, num_threads = -(-self.out_features // LANES), torch.get_num_threads()

        def longest(group: int) -> int:
            return -(-num_panels // group // num_threads) * group

        return min((MAX_PANELS, MAX_PANELS // 2), key=longest)
