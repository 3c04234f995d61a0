"""The sequences that wait for pages, and the policies that order them.

- "lpm": the longest cached prefix first; equal ones in order of arrival.
- "dfs-weight": a depth-first walk of the radix tree of the waiting sequences (Zheng et al., "SGLang",
  arXiv 2312.07104, section 3): at each node the branches that are cached go first, then those below which
  most sequences wait. What shares a prefix is computed while that prefix is in the cache.
- "fcfs": in order of arrival.
- "priority": the highest priority first; equal ones in order of arrival.

**Ageing.** Whatever the policy, the sequence at the head of the queue, which arrived first, is overtaken by
`MAX_OVERTAKES` others at most: then it is its turn, and nobody else is admitted before pages suffice for it
(only while a prefix that it shares is under way do others go on). A sequence with k others before it is so
admitted after (k + 1) * (MAX_OVERTAKES + 1) admissions at the latest.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice, pairwise
from typing import Literal, NamedTuple

from treille.radix.node import TOKEN_BYTES, common_prefix, pack
from treille.runtime.sequence import Sequence

SchedulePolicy = Literal["lpm", "dfs-weight", "fcfs", "priority"]

# So many waiting sequences are put in order at a time: those of highest priority, or those of which most is
# thought to be cached, else the first that came.
WINDOW = 128
MAX_OVERTAKES = 64
# When a sequence is admitted, so many on either side of it in the order of their texts learn what they share.
NEIGHBOURS = 16
# Of a longer text so many tokens count in that order.
MAX_KEY_TOKENS = 1024


class Candidate(NamedTuple):
    """A waiting sequence, and how many of its tokens the cache has."""

    seq: Sequence
    reusable: int


class _Text(NamedTuple):
    """A waiting sequence's place in the order of texts: packed tokens, then arrival."""

    tokens: bytes
    arrival: int
    seq: Sequence


class WaitingQueue:
    """Waiting sequences in order of arrival, each with a guess of how much of it is cached.

    To ask the cache for all of them at each step would take too long. The guess is right when a sequence
    arrives and when it was among the candidates, and goes up when one that begins alike is admitted.
    """

    def __init__(self, policy: SchedulePolicy, reusable: Callable[[Sequence], int]) -> None:
        """`reusable` tells how many tokens of a sequence need no computing."""
        self._policy = policy
        self._reusable = reusable
        self._guesses = policy in ("lpm", "dfs-weight")
        self._seqs: OrderedDict[Sequence, int] = OrderedDict()
        self._texts: defaultdict[Hashable, list[_Text]] = defaultdict(list)
        self._keys: dict[Sequence, _Text] = {}
        self._arrivals = 0
        self._overtakes = 0  # of the head

    def __len__(self) -> int:
        return len(self._seqs)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._seqs)

    def add(self, seqs: Iterable[Sequence], *, front: bool = False) -> None:
        """Queue sequences; `front` is for those whose turn had come already."""
        seqs = list(seqs)
        for seq in seqs:
            self._seqs[seq] = self._reusable(seq) if self._guesses else 0
            if self._guesses:
                self._arrivals += 1
                key = self._keys[seq] = _Text(pack(seq.tokens[:MAX_KEY_TOKENS]), self._arrivals, seq)
                insort(self._texts[seq.namespace], key)
        if front:
            for seq in reversed(seqs):
                self._seqs.move_to_end(seq, last=False)

    def remove(self, seq: Sequence) -> None:
        """Take out a sequence that is over."""
        if seq is self._head():
            self._overtakes = 0
        self._take(seq)

    def admit(self, seq: Sequence) -> None:
        """Take out a sequence whose turn it is."""
        self._overtakes = 0 if seq is self._head() else self._overtakes + 1
        self._take(seq)

    def candidates(self) -> Iterator[Candidate]:
        """Sequences in the order of admission. They may be admitted while this runs."""
        head = self._head()
        aged = False
        for candidate in self._ordered():
            if not aged and self._overtakes >= MAX_OVERTAKES and head is self._head() and head is not None:
                aged = True
                yield Candidate(head, self._reusable(head))
            if not (aged and candidate.seq is head):
                yield candidate

    def _head(self) -> Sequence | None:
        return next(iter(self._seqs), None)

    def _take(self, seq: Sequence) -> None:
        del self._seqs[seq]
        if not self._guesses:
            return
        key, texts = self._keys.pop(seq), self._texts[seq.namespace]
        place = bisect_left(texts, key)
        del texts[place]
        for other in texts[max(place - NEIGHBOURS, 0) : place + NEIGHBOURS]:
            common = common_prefix(key.tokens, 0, other.tokens) // TOKEN_BYTES
            self._seqs[other.seq] = max(self._seqs[other.seq], common)
        if not texts:
            del self._texts[seq.namespace]

    def _ordered(self) -> Iterable[Candidate]:
        if self._policy == "priority":
            first = heapq.nsmallest(WINDOW, self._seqs, key=lambda seq: -seq.priority)
        elif self._guesses and len(self._seqs) > WINDOW:
            first = heapq.nsmallest(WINDOW, self._seqs, key=lambda seq: -self._seqs[seq])
        else:
            first = list(islice(self._seqs, WINDOW))
        if not self._guesses:  # the cache is only asked as far as sequences are admitted
            return (Candidate(seq, self._reusable(seq)) for seq in first)
        for seq in first:
            self._seqs[seq] = self._reusable(seq)
        found = [Candidate(seq, self._seqs[seq]) for seq in first]
        if self._policy == "lpm":
            return sorted(found, key=lambda candidate: -candidate.reusable)
        return depth_first(found)


def depth_first(candidates: list[Candidate]) -> list[Candidate]:
    """The candidates in the order of a walk of the radix tree of their tokens, as stated above.

    Namespaces are branches of the root. Equal branches are walked in the order of the candidates given.
    """
    spaces: dict[object, int] = {}
    rows = sorted(
        (spaces.setdefault(candidate.seq.namespace, len(spaces)), pack(candidate.seq.tokens), place)
        for place, candidate in enumerate(candidates)
    )
    # In sorted order, the leaves below a node stand together; `shared` is what each shares with the last.
    shared = [-1] + [
        common_prefix(one[1], 0, other[1]) // TOKEN_BYTES if one[0] == other[0] else -1
        for one, other in pairwise(rows)
    ]
    found: list[Candidate] = []
    stack = [(0, len(rows))]
    while stack:
        low, high = stack.pop()
        if high - low <= 1:
            found.extend(candidates[row[2]] for row in rows[low:high])
            continue
        depth = min(shared[low + 1 : high])
        cuts = [low, *(place for place in range(low + 1, high) if shared[place] == depth), high]

        def rank(branch: tuple[int, int], depth: int = depth) -> tuple[bool, int, int]:
            places = [row[2] for row in rows[branch[0] : branch[1]]]
            is_cached = any(candidates[place].reusable > depth for place in places)
            return not is_cached, -len(places), min(places)

        stack.extend(sorted(pairwise(cuts), key=rank, reverse=True))
    return found
