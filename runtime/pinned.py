"""`CachedPrefix`: what `Engine.cache` gives back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from types import TracebackType

from treille.radix.cache import PrefixCache
from treille.radix.errors import PinLimit
from treille.runtime.errors import CacheFull


class CachedPrefix:
    """A prefix that is computed and stays in the cache until it is released.

    `release()` lets it go, from any thread; twice is harmless, and so is a closed engine. As a context
    manager it is released at the end. `num_tokens` is its length.
    """

    def __init__(self, num_tokens: int, release: Callable[[], None]) -> None:
        self.num_tokens = num_tokens
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Let the prefix be evicted like any other."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> CachedPrefix:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def keep_prefix(
    cache: PrefixCache,
    prompt_ids: Sequence[int],
    namespace: Hashable,
    post: Callable[[Callable[[], None]], None],
) -> CachedPrefix:
    """Pin what is cached of a prompt. `post` has something done by the cache's thread. Raises CacheFull."""
    try:
        pin = cache.pin(prompt_ids, namespace=namespace)
    except PinLimit as error:
        raise CacheFull(
            f"{error.needed * cache.page_size} tokens would be kept in the cache, and at most "
            f"{error.limit * cache.page_size} may be: release some, or raise kv_memory"
        ) from error
    return CachedPrefix(pin.num_tokens, lambda: post(lambda: cache.unpin(pin)))
