"""The prefix cache: a radix tree over token ids that owns KV pages."""

from treille.radix.cache import Lease, Pin, PrefixCache
from treille.radix.edges import Edge
from treille.radix.errors import OutOfPages, PageError, PinLimit, RadixError
from treille.radix.host import HostMemory
from treille.radix.order import Eviction

__all__ = [
    "Edge",
    "Eviction",
    "HostMemory",
    "Lease",
    "OutOfPages",
    "PageError",
    "Pin",
    "PinLimit",
    "PrefixCache",
    "RadixError",
]
