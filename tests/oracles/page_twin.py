"""A twin of the prefix cache that keeps one entry a page and searches by brute force."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from treille.radix import Eviction

Prefix = tuple[object, tuple[int, ...]]  # namespace, all tokens up to the end of a page


@dataclass
class Entry:
    """A cached page of the twin."""

    page: int
    locks: int = 0
    last_used: int = 0
    uses: list[int] = field(default_factory=list)  # the priority of each lease that used it


class Twin:
    """What is cached, page by page, with the rules of the contract written out plainly."""

    def __init__(self, num_pages: int, page_size: int, eviction: Eviction = "lru") -> None:
        self.page_size = page_size
        self.eviction = eviction
        self.free = num_pages
        self.owned: set[int] = set()
        self.cached: dict[Prefix, Entry] = {}
        self.clock = 0
        self.num_slots = 0  # of host memory
        self.host: list[Prefix] = []  # oldest first

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def up_to(self, prefix: Prefix) -> list[Prefix]:
        """The prefixes of all full pages of a path, first to last."""
        namespace, tokens = prefix
        size = self.page_size
        return [(namespace, tokens[:end]) for end in range(size, len(tokens) + 1, size)]

    def siblings(self, parent: Prefix) -> list[Prefix]:
        """The cached pages, full or not, that directly follow a path. Nothing follows a tail."""
        namespace, tokens = parent
        if len(tokens) % self.page_size:
            return []
        return sorted(
            (other, cached)
            for other, cached in self.cached
            if other == namespace
            and len(tokens) < len(cached) <= len(tokens) + self.page_size
            and cached[: len(tokens)] == tokens
        )

    def lookup(self, namespace: object, tokens: tuple[int, ...]) -> int:
        best = 0
        for other, cached in self.cached:
            if other == namespace:
                same = [a == b for a, b in zip(tokens, cached, strict=False)]
                best = max(best, same.index(False) if False in same else len(same))
        return best

    def lock(self, prefix: Prefix) -> None:
        self.cached[prefix].locks += 1

    def unlock(self, prefix: Prefix, *uses: int) -> None:
        entry = self.cached[prefix]
        entry.uses += uses
        entry.locks -= 1
        if entry.locks == 0:
            entry.last_used = self.clock

    def evictable(self) -> int:
        return sum(entry.locks == 0 for entry in self.cached.values())

    def rank(self, entry: Entry) -> float:
        if self.eviction == "lfu":
            return len(entry.uses)
        return max(entry.uses, default=-math.inf) if self.eviction == "priority" else 0

    def evict(self, count: int) -> None:
        for _ in range(count):
            leaves = [
                (self.rank(entry), entry.last_used, -len(prefix[1]), prefix)
                for prefix, entry in self.cached.items()
                if entry.locks == 0 and not self.siblings(prefix)
            ]
            prefix = min(leaves)[3]
            self.drop(prefix)
            if self.num_slots and len(prefix[1]) % self.page_size == 0:
                self.host = [*(other for other in self.host if other != prefix), prefix][-self.num_slots :]

    def drop(self, prefix: Prefix) -> None:
        assert self.cached[prefix].locks == 0
        del self.cached[prefix]
        self.free += 1

    def give(self, page: int) -> None:
        self.owned.remove(page)
        self.free += 1

    def add(self, prefix: Prefix, page: int) -> Entry:
        """Give an owned page to the tree; unlocked tails that it extends go."""
        namespace, tokens = prefix
        parent = (namespace, tokens[: (len(tokens) - 1) // self.page_size * self.page_size])
        for other in self.siblings(parent):
            if tokens[: len(other[1])] == other[1] and self.cached[other].locks == 0:
                self.drop(other)
        self.owned.remove(page)
        self.cached[prefix] = Entry(page)
        return self.cached[prefix]

    def publish(self, old: Prefix, new: Prefix, pages: list[int]) -> None:
        """Move a lock from path `old` to path `new`; `pages` hold what is between them."""
        for prefix, page in zip(self.up_to(new)[len(self.up_to(old)) :], pages, strict=True):
            if prefix in self.cached:
                self.give(page)
            else:
                self.add(prefix, page)
            self.lock(prefix)

    def add_tail(self, prefix: Prefix, page: int, *uses: int) -> None:
        namespace, tokens = prefix
        parent = (namespace, tokens[: len(tokens) // self.page_size * self.page_size])
        longer = [p for p in self.siblings(parent) if p[1][: len(tokens)] == tokens]
        self.tick()
        if longer:
            self.give(page)
            self.lock(longer[0])
            self.unlock(longer[0], *uses)
        else:
            entry = self.add(prefix, page)
            entry.last_used = self.clock
            entry.uses += uses
