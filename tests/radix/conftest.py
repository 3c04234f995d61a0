"""What the prefix cache's tests share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import pytest

from treille.radix import Lease, PrefixCache

Serve = Callable[..., Lease]


@pytest.fixture
def serve() -> Serve:
    """serve(cache, tokens, namespace=None): one request from acquire to release; returns the dead lease."""

    def run(cache: PrefixCache, tokens: Sequence[int], namespace: Hashable = None) -> Lease:
        lease = cache.acquire(tokens, namespace=namespace)
        cache.check()
        pages = cache.allocate(-(-(len(tokens) - lease.num_tokens) // cache.page_size))
        cache.check()
        cache.release(lease, tokens, pages)
        cache.check()
        return lease

    return run
