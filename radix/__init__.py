"""The prefix cache: a radix tree over token ids that owns KV pages."""

from treille.radix.cache import Lease, PrefixCache
from treille.radix.errors import OutOfPages, PageError, RadixError

__all__ = ["Lease", "OutOfPages", "PageError", "PrefixCache", "RadixError"]
