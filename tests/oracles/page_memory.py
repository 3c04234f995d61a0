"""A KV memory that remembers which token lies in which slot, and sequences to fill it with."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from treille.runtime.params import SamplingParams
from treille.runtime.scheduler import Scheduler, StepPlan
from treille.runtime.sequence import Kind
from treille.runtime.sequence import Sequence as TokenSequence

_names = itertools.count()


def make_sequence(
    prompt: Iterable[int],
    *,
    kind: Kind = Kind.SAMPLE,
    continuation: Iterable[int] = (),
    max_pages: int = 512,
    priority: int = 0,
    namespace: object = None,
    **params: object,
) -> TokenSequence:
    """A sequence under a new name."""
    return TokenSequence(
        request_id=str(next(_names)),
        index=0,
        kind=kind,
        prompt=tuple(prompt),
        continuation=tuple(continuation),
        params=SamplingParams(**params),
        seed=0,
        matcher=None,
        max_pages=max_pages,
        priority=priority,
        namespace=namespace,
    )


class PageMemory:
    """Pages of token ids."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.size = page_size
        self.slots = np.full((num_pages, page_size), -1)

    def compute(self, plan: StepPlan) -> None:
        """Write a plan's tokens, and see that each sequence then finds its own tokens on its pages."""
        for chunk in plan.chunks:
            if chunk.copy is not None:
                self.slots[chunk.copy[1]] = self.slots[chunk.copy[0]]
        for chunk in plan.chunks:
            seq, end = chunk.seq, chunk.start + chunk.count
            for position in range(chunk.start, end):
                self.slots[seq.page_row[position // self.size], position % self.size] = seq.tokens[position]
        for chunk in plan.chunks:
            end = chunk.start + chunk.count
            seen = self.slots[chunk.seq.page_row[: chunk.seq.num_pages]].reshape(-1)[:end]
            assert seen.tolist() == chunk.seq.tokens[:end].tolist(), "the pages hold other tokens"


def run_all(scheduler: Scheduler, memory: PageMemory, *, num_new: int = 1) -> int:
    """Run what the scheduler has until each sequence has `num_new` sampled tokens; the tokens computed.
    Samples are tokens that no prompt holds."""
    computed = 0
    while scheduler.num_waiting + scheduler.num_running:
        plan = scheduler.plan()
        assert plan.chunks
        memory.compute(plan)
        computed += plan.num_tokens
        for chunk in plan.chunks:
            scheduler.advance(chunk)
            seq = chunk.seq
            if seq.pending == 0:
                if seq.kind is Kind.SAMPLE and len(seq.output_ids) + 1 < num_new:
                    scheduler.append(seq, 10_000 + len(seq.output_ids))
                else:
                    scheduler.finish(seq)
        scheduler.check()
    return computed


def count_nodes(texts: Iterable[Sequence[int]]) -> int:
    """Nodes of the trie of some texts, the root apart: the fewest tokens that all of them can be had for."""
    return len({tuple(text[: end + 1]) for text in texts for end in range(len(text))})
