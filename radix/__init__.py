"""The prefix cache: a radix tree over token ids that owns KV pages."""

from treille.radix.cache import Lease, PrefixCache
from treille.radix.errors import OutOfPages, PageError, RadixError
from treille.radix.order import Eviction

__all__ = ["Eviction", "Lease", "OutOfPages", "PageError", "PrefixCache", "RadixError"]
