"""What a waiting sequence can share with running ones beyond what the tree has.

The tree gets full pages once they are computed. That leaves two gaps. A prefix may be under way: then a
sequence that shares it waits until it is there, rather than computing it too. And a prefix may end within a
page that belongs to a running sequence: then that part of the page is copied.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Hashable, Iterable

from treille.radix.cache import Lease
from treille.radix.node import TOKEN_BYTES, common_prefix, pack
from treille.runtime.sequence import Sequence

# To wait for fewer tokens than this does not pay: it costs a step.
MIN_AWAITED = 4


class Sharing:
    """The prompts under way and the last pages of the sequences that run when a step is planned."""

    def __init__(self, running: Iterable[Sequence], page_size: int) -> None:
        self._page_size = page_size
        # Prompts that are not computed to their ends, sorted: what shares most with a text stands next to it.
        self._texts: defaultdict[Hashable, list[bytes]] = defaultdict(list)
        self._owners: dict[tuple[Hashable, bytes], Sequence] = {}
        # By the last page that a sequence borrowed, which stands for all before it.
        self._tails: defaultdict[tuple[Hashable, int | None], list[Sequence]] = defaultdict(list)
        for seq in running:
            self.add(seq)
            if seq.lease is not None and seq.num_computed > seq.lease.num_tokens:
                self._tails[_end(seq.namespace, seq.lease)].append(seq)

    def add(self, seq: Sequence) -> None:
        """A sequence was admitted. Its pages hold nothing before the step is over."""
        if seq.num_computed >= seq.num_prompt:
            return
        text = pack(seq.tokens[: seq.num_prompt])
        known = self._owners.get((seq.namespace, text))
        if known is None:
            insort(self._texts[seq.namespace], text)
        if known is None or known.num_computed < seq.num_computed:
            self._owners[seq.namespace, text] = seq

    def is_under_way(self, seq: Sequence, num_reusable: int) -> bool:
        """Whether a running sequence will compute tokens that `seq` begins with and cannot have yet."""
        texts = self._texts.get(seq.namespace)
        if not texts:
            return False
        text = pack(seq.tokens[: seq.reuse_limit])
        place = bisect_left(texts, text)
        for other in texts[max(place - 1, 0) : place + 1]:
            common = common_prefix(text, 0, other) // TOKEN_BYTES
            there = max(num_reusable, self._owners[seq.namespace, other].num_computed)
            if common - there >= MIN_AWAITED:
                return True
        return False

    def tail(self, seq: Sequence, lease: Lease) -> tuple[int, int] | None:
        """(page_id, n): the page of a running sequence whose first n tokens follow the lease's in `seq`
        too, and are computed; the most that there are, None for none."""
        best, page = 0, 0
        start = lease.num_tokens
        wanted = pack(seq.tokens[start : min(seq.reuse_limit, start + self._page_size)])
        for other in self._tails.get(_end(seq.namespace, lease), ()):
            there = pack(other.tokens[start : min(other.num_computed, start + self._page_size)])
            common = common_prefix(wanted, 0, there) // TOKEN_BYTES
            if common > best:
                best, page = common, other.owned[0]
        return (page, best) if best else None


def _end(namespace: Hashable, lease: Lease) -> tuple[Hashable, int | None]:
    return namespace, lease.pages[-1] if lease.pages else None
