"""A linear layer with weights of eight or four bits, laid out for the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from treille.kernels.api import KV_DTYPES, require
from treille.kernels.chain import BLOCK_ROWS, Part
from treille.kernels.cpu_integer import integers_source, rows_source
from treille.kernels.cpu_integer_tile import GROUP, pairs_of
from treille.kernels.instructions import LANES
from treille.kernels.parallel import ThreadTeam, Worker, address, fingerprint
from treille.kernels.quantize import QuantizedWeight

MIN_TEAM_PRODUCTS = 1 << 17
MIN_TEAM_ELEMENTS = 1 << 15
PIECE_PANELS = 4
OWN_ROWS = 8  # up to which each thread rounds the rows for itself: quicker than to wake the team for it


class IntegerWorkers:
    """The compiled kernels for rows of one dtype."""

    def __init__(self, *, bf16: bool) -> None:
        key = fingerprint()
        self.rows = Worker(rows_source(key, bf16=bf16))
        self.multiply = Worker(integers_source(key, bf16=bf16))


class QuantizedLinear:
    """`x [T, in] -> x @ weight.T + bias [T, out]` for a quantised weight, in x's dtype.

    Each 32 inputs of a row are rounded to int16 by their largest one, products are summed exactly in each
    group of 32 and groups in float32, in an order that other rows do not change.
    """

    def __init__(
        self,
        weight: QuantizedWeight,
        bias: Tensor | None,
        workers: IntegerWorkers,
        team: ThreadTeam,
        *,
        dtype: torch.dtype,
    ) -> None:
        """`dtype` is that of rows, outputs and `bias`."""
        require(dtype in KV_DTYPES, "rows must be float32 or bfloat16")
        self.out_features, self.in_features = weight.values.shape
        if bias is not None:
            require(bias.shape == (self.out_features,), "bias must be [out]")
            require(bias.dtype == dtype and bias.is_contiguous(), "bias must be like the rows")
        self._bits, self._bias, self._dtype = weight.bits, bias, dtype
        self._panels = integer_panels(weight)
        self._scales = weight.scales[:, 0].contiguous() if weight.bits == 8 else None
        self._num_groups = self._panels.shape[1]
        self._addresses = tuple(address(tensor) for tensor in (self._panels, self._scales, bias))
        self._workers, self._team = workers, team

    @property
    def num_bytes(self) -> int:
        """What the weight takes."""
        return self._panels.numel() + (0 if self._scales is None else 4 * self._scales.numel())

    def __call__(self, x: Tensor, *, wide: bool = False) -> Tensor:
        """`x`: [T, in]. Returns [T, out]; with `wide` as float32, the same numbers."""
        require(x.ndim == 2 and x.shape[1] == self.in_features, "x must be [T, in]")
        require(x.dtype == self._dtype and x.is_cpu, f"x must be {self._dtype}, on the CPU")
        num_rows = x.shape[0]
        out = x.new_empty(num_rows, self.out_features, dtype=torch.float32 if wide else None)
        if num_rows == 0:
            return out
        x = x if x.stride(1) == 1 else x.contiguous()
        work = num_rows * self.out_features * self.in_features
        num_threads = torch.get_num_threads() if work >= MIN_TEAM_PRODUCTS else 1
        own = num_rows <= OWN_ROWS
        copies = num_threads if own else 1
        rows = torch.empty(copies * num_rows * self._num_groups * GROUP, dtype=torch.int16)
        scales = torch.empty(copies * num_rows * self._num_groups * 2)
        if not own:
            self._round(x, rows, scales)
        given = (x.data_ptr(), x.stride(0), self.in_features) if own else (0, 0, 0)
        words = (
            *self._words(num_rows, rows.data_ptr(), scales.data_ptr(), out.data_ptr()),
            int(wide),
            *given,
        )
        self._team.run(self._workers.multiply, words, num_threads=num_threads)
        return out

    @property
    def can_chain(self) -> bool:
        """`parts` can always be had."""
        return True

    def scratch_bytes(self, num_rows: int) -> int:
        """What `parts` need beside `x` and `out`."""
        return num_rows * self._num_groups * (2 * GROUP + 8)

    def parts(self, x: int, out: int, scratch: int, num_rows: int) -> list[Part]:
        """The layer in a chain: from [num_rows, in] at one address to [num_rows, out] at another."""
        scales = scratch + num_rows * self._num_groups * 2 * GROUP
        rounding = (num_rows, 1, self.in_features, x, self.in_features, scratch, scales)
        words = (*self._words(num_rows, scratch, scales, out), 0, 0, 0, 0)
        return [Part(self._workers.rows, rounding), Part(self._workers.multiply, words, in_blocks=True)]

    def _words(self, num_rows: int, rows: int, scales: int, out: int) -> tuple[int, ...]:
        return (
            num_rows,
            min(num_rows, BLOCK_ROWS),
            self.out_features,
            self._bits,
            self._num_groups,
            PIECE_PANELS,
            rows,
            scales,
            *self._addresses,
            out,
        )

    def _round(self, x: Tensor, rows: Tensor, scales: Tensor) -> None:
        """Writes the rows as int16 [T, groups * GROUP], and their scales [T, groups, 2]."""
        num_rows = x.shape[0]
        num_threads = torch.get_num_threads() if x.numel() >= MIN_TEAM_ELEMENTS else 1
        piece = max(1, num_rows // (4 * num_threads)) if num_threads > 1 else num_rows
        words = (num_rows, piece, self.in_features, x.data_ptr(), x.stride(0), rows.data_ptr())
        self._team.run(self._workers.rows, (*words, scales.data_ptr()), num_threads=num_threads)


def integer_panels(weight: QuantizedWeight) -> Tensor:
    """The weight as `integer_tile` reads it: uint8 [panels, groups, bytes]; outputs and inputs are rounded up
    with zeros."""
    num_outputs, num_inputs = weight.values.shape
    num_panels, num_groups = -(-num_outputs // LANES), -(-num_inputs // GROUP)
    padded = torch.zeros(num_panels * LANES, num_groups * GROUP, dtype=torch.int8)
    padded[:num_outputs, :num_inputs] = weight.values
    if weight.bits == 8:
        pairs = padded.view(num_panels, LANES, num_groups, GROUP // 2, 2)
        return pairs.permute(0, 2, 3, 1, 4).reshape(num_panels, num_groups, -1).view(torch.uint8)
    pairs = padded.view(torch.uint8).view(num_panels, LANES, num_groups, -1, pairs_of(4), 2)
    steps = pairs.permute(0, 2, 3, 1, 5, 4)  # panel, group, step, output, of a pair, pair
    packed = steps[..., 0::2] | (steps[..., 1::2] << 4)
    numbers = torch.zeros(num_panels * LANES, num_groups, 2, dtype=torch.bfloat16)
    numbers[:num_outputs] = torch.stack([weight.scales, weight.offsets], dim=2)
    heads = numbers.view(num_panels, LANES, num_groups, 2).permute(0, 2, 3, 1).flatten(2).view(torch.uint8)
    return torch.cat([heads, packed.reshape(num_panels, num_groups, -1)], dim=2)
