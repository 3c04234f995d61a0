"""The model runner: from a step's plan to the model's inputs, and to its logits."""

from __future__ import annotations

import mmap
from array import array

import numpy as np
import torch
from torch import Tensor

from treille.kernels.api import KVCache, Ragged
from treille.runtime.models.llama import LanguageModel, ModelInputs
from treille.runtime.scheduler import Chunk, StepPlan

SYSTEM_PAGE = mmap.PAGESIZE


class ModelRunner:
    """Runs a model over the flat concatenation of a plan's chunks, on a KV pool of its own."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        num_pages: int,
        page_size: int,
        max_positions: int,
        reserve: bool = False,
    ) -> None:
        """`max_positions` is the longest sequence, in tokens. `reserve` takes the pool's memory now."""
        self._model = model
        self._max_positions = max_positions
        self._kv: KVCache = model.new_kv(num_pages, page_size)
        self._page_size = page_size
        if reserve:
            _touch(self._kv)

    @property
    def kv(self) -> KVCache:
        """The pool's memory."""
        return self._kv

    def forward(self, plan: StepPlan) -> Tensor:
        """Compute a plan's tokens. Returns logits, float32 [R, vocab_size], for the rows that the chunks
        want, chunk by chunk."""
        copies = [chunk.copy for chunk in plan.chunks if chunk.copy is not None]
        if copies:
            self._model.copy_pages(self._kv, copies)
        inputs = self._inputs(plan.chunks)
        # The kernels trust these numbers: a wrong one would write to another sequence's memory.
        inputs.ragged.check(self._kv, max_positions=self._max_positions)
        return self._model.forward(inputs, self._kv)

    def _inputs(self, chunks: tuple[Chunk, ...]) -> ModelInputs:
        counts = np.fromiter((chunk.count for chunk in chunks), dtype=np.int64, count=len(chunks))
        starts = np.fromiter((chunk.start for chunk in chunks), dtype=np.int64, count=len(chunks))
        query_start = np.zeros(len(chunks) + 1, dtype=np.int32)
        np.cumsum(counts, out=query_start[1:])
        # Position of each flat token: its offset within its chunk, from where the chunk starts.
        positions = np.arange(query_start[-1]) + np.repeat(starts - query_start[:-1], counts)
        context_lens = (starts + counts).astype(np.int32)
        num_pages = -(-int(context_lens.max()) // self._page_size)
        page_table = np.stack([chunk.seq.page_row[:num_pages] for chunk in chunks])
        page_of = page_table[np.repeat(np.arange(len(chunks)), counts), positions // self._page_size]
        slots = page_of.astype(np.int64) * self._page_size + positions % self._page_size
        token_ids = array("q")
        for chunk in chunks:
            token_ids.extend(chunk.seq.tokens[chunk.start : chunk.start + chunk.count])
        rows = [int(base) + row for base, c in zip(query_start, chunks, strict=False) for row in c.rows]
        device = self._model.device
        ragged = Ragged(
            query_start=torch.from_numpy(query_start).to(device),
            context_lens=torch.from_numpy(context_lens).to(device),
            page_table=torch.from_numpy(page_table).to(device),
            slots=torch.from_numpy(slots).to(device),
            positions=torch.from_numpy(positions).to(device),
        )
        return ModelInputs(
            token_ids=torch.tensor(token_ids, dtype=torch.int64, device=device),
            ragged=ragged,
            logit_rows=torch.tensor(rows, dtype=torch.int64, device=device),
        )


def _touch(kv: KVCache) -> None:
    """Write to every page of memory that the pool lies on what stands there: only then does the system
    hand it out."""
    for tensor in kv.keys + kv.values:
        if tensor.is_cpu:
            tensor.view(-1).view(torch.uint8)[::SYSTEM_PAGE].bitwise_or_(0)
