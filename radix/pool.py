"""The page pool: which pages exist, and which of three classes each is in.

    free  --take-->  owned  --adopt-->  cached  --reclaim-->  free
                     owned  --give-->   free

*Owned* pages belong to a running sequence, *cached* pages to the tree. The pool knows ids only; the
memory behind them is the kernels'.
"""

from __future__ import annotations

from collections.abc import Sequence

from treille.radix.errors import PageError

FREE, OWNED, CACHED = range(3)
CLASS_NAMES = ("free", "owned", "cached")


class PagePool:
    """Pages 0 to num_pages - 1, all free at first. Every method succeeds whole or changes nothing."""

    def __init__(self, num_pages: int) -> None:
        """Raises ValueError unless there is at least one page."""
        if num_pages < 1:
            raise ValueError(f"a pool needs at least one page, not {num_pages}")
        self.num_pages = num_pages
        self.num_owned = 0
        self.num_cached = 0
        self._classes = bytearray(num_pages)
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, n: int) -> list[int]:
        """Make `n` free pages owned; the caller has seen to it that there are as many."""
        cut = len(self._free) - n
        pages = self._free[cut:]
        del self._free[cut:]
        pages.reverse()
        for page in pages:
            self._classes[page] = OWNED
        self.num_owned += n
        return pages

    def require_owned(self, pages: Sequence[int]) -> None:
        """Raise PageError unless every page is owned and none is named twice."""
        classes, size = self._classes, self.num_pages
        for page in pages:
            if not 0 <= page < size:
                raise PageError(f"there is no page {page}: the pool has {size}")
            if classes[page] != OWNED:
                raise PageError(f"page {page} is {CLASS_NAMES[classes[page]]}, not owned by a sequence")
        if len(pages) > 1 and len(set(pages)) != len(pages):
            raise PageError(f"a page is named twice in {list(pages)}")

    def give(self, pages: Sequence[int]) -> None:
        """Make owned pages free; `require_owned` was asked before."""
        self._release(pages)
        self.num_owned -= len(pages)

    def adopt(self, pages: Sequence[int]) -> None:
        """Make owned pages cached; `require_owned` was asked before."""
        for page in pages:
            self._classes[page] = CACHED
        self.num_owned -= len(pages)
        self.num_cached += len(pages)

    def reclaim(self, pages: Sequence[int]) -> None:
        """Make cached pages free: the tree dropped them."""
        self._release(pages)
        self.num_cached -= len(pages)

    def check(self, cached: Sequence[int]) -> None:
        """Raise PageError unless each page is in one class, and the tree holds exactly the `cached` ones."""
        if len(set(cached)) != len(cached):
            raise PageError("the tree holds a page twice")
        if len(set(self._free)) != len(self._free):
            raise PageError("a page is free twice")
        classes = bytearray([OWNED]) * self.num_pages
        for page in cached:
            classes[page] = CACHED
        for page in self._free:
            if classes[page] == CACHED:
                raise PageError(f"page {page} is free and in the tree")
            classes[page] = FREE
        if classes != self._classes:
            wrong = [page for page in range(self.num_pages) if classes[page] != self._classes[page]]
            raise PageError(f"pages {wrong[:8]} are not in the class they are marked as")
        counts = (self.num_free, self.num_owned, self.num_cached)
        if counts != tuple(classes.count(kind) for kind in (FREE, OWNED, CACHED)):
            raise PageError(f"the counts of free, owned and cached pages are wrong: {counts}")

    def _release(self, pages: Sequence[int]) -> None:
        for page in pages:
            self._classes[page] = FREE
        self._free.extend(reversed(pages))
