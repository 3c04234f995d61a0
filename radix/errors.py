"""Everything the prefix cache raises on purpose.

    RadixError
    ├── OutOfPages   more pages were asked for than are free or could be evicted; nothing changed
    ├── PinLimit     more would be pinned than the cache allows; nothing changed
    └── PageError    a page or a lease was misused, or an invariant is broken; nothing changed

A number that makes no sense whatever the state (a negative count, a page size of zero) is a
`ValueError`, and a token that is no integer a `TypeError` or an `OverflowError`.
"""

from __future__ import annotations


class RadixError(Exception):
    """Base of every error that depends on the state of the cache."""


class OutOfPages(RadixError):
    """`needed` pages were asked for; only `available` are free or could be evicted."""

    def __init__(self, needed: int, available: int) -> None:
        super().__init__(f"{needed} pages needed, {available} free or evictable")
        self.needed = needed
        self.available = available


class PinLimit(RadixError):
    """`needed` pages would be pinned in all; at most `limit` may be."""

    def __init__(self, needed: int, limit: int) -> None:
        super().__init__(f"{needed} pages would be pinned, and at most {limit} may be: unpin some first")
        self.needed = needed
        self.limit = limit


class PageError(RadixError):
    """A page was released twice, a page is unknown, a dead lease was used, or `check` found a fault."""
