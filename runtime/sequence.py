"""`Sequence`: the one mutable record of a token sequence on its way through the engine."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from treille.radix.cache import Lease
from treille.runtime.matching import TextMatcher
from treille.runtime.params import SamplingParams


class Kind(Enum):
    """What a sequence is computed for."""

    PREFILL = "prefill"  # to have its tokens in the cache
    SAMPLE = "sample"  # to be continued token by token
    SCORE = "score"  # for the log-probabilities of the tokens after its prompt


class Status(Enum):
    """Where a sequence is. Preemption leads back from running to waiting."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """Known tokens, how many of them are computed, and the pages that hold those.

    *Known* tokens were given, sampled or forced; *computed* ones have their keys and values in the cache.
    A step computes some of the difference. `page_row[:num_pages]` are the page ids in order: first
    those borrowed from the prefix tree through `lease`, then those owned.

    Only the scheduler calls the methods that change a sequence; each checks the state it starts from
    and raises RuntimeError for a wrong one. `tokens` is `prompt_ids` and then `output_ids`;
    `num_taken_back` counts the tokens that once were in it and were replaced. Sequences of higher `priority`
    keep their pages longer; those of one `namespace` share what they compute, and with no other.
    """

    __slots__ = (
        "cached_tokens",
        "index",
        "kind",
        "lease",
        "matcher",
        "namespace",
        "num_computed",
        "num_pages",
        "num_prompt",
        "num_taken_back",
        "output_ids",
        "owned",
        "page_row",
        "params",
        "priority",
        "prompt_ids",
        "request_id",
        "seed",
        "status",
        "tokens",
    )

    def __init__(
        self,
        *,
        request_id: str,
        index: int,
        kind: Kind,
        prompt: tuple[int, ...],
        continuation: tuple[int, ...] = (),
        params: SamplingParams,
        seed: int,
        matcher: TextMatcher | None,
        max_pages: int,
        namespace: Hashable = None,
        priority: int = 0,
    ) -> None:
        self.request_id = request_id
        self.index = index
        self.kind = kind
        self.prompt_ids = prompt
        self.num_prompt = len(prompt)
        self.output_ids: list[int] = list(continuation)
        self.tokens = array("q", (*prompt, *continuation))  # the tree reads arrays fastest
        self.params = params
        self.seed = seed
        self.matcher = matcher
        self.namespace = namespace
        self.priority = priority
        self.status = Status.WAITING
        self.num_computed = 0
        self.num_taken_back = 0
        self.cached_tokens: int | None = None
        self.priority = priority
        self.namespace = namespace
        self.lease: Lease | None = None
        self.owned: list[int] = []
        self.page_row: NDArray[np.int32] = np.zeros(max_pages, dtype=np.int32)
        self.num_pages = 0

    @property
    def target(self) -> int:
        """How many tokens must be computed before the sequence yields anything: a scored text's last token
        predicts nothing that was asked for."""
        return len(self.tokens) - (self.kind is Kind.SCORE)

    @property
    def pending(self) -> int:
        """Tokens still to compute."""
        return self.target - self.num_computed

    @property
    def reuse_limit(self) -> int:
        """Tokens that may come from the cache: the position whose logits are wanted must be computed."""
        return (self.num_prompt if self.kind is Kind.SCORE else len(self.tokens)) - 1

    @property
    def in_prefill(self) -> bool:
        """Whether more than the token just sampled is still to compute."""
        return self.pending > 1

    def logit_rows(self, count: int) -> range:
        """Which of the next `count` tokens must return logits, as offsets into them."""
        if self.kind is Kind.PREFILL:
            return range(0)
        if self.kind is Kind.SAMPLE:
            return range(count - 1, count) if count == self.pending else range(0)
        return range(min(max(self.num_prompt - 1 - self.num_computed, 0), count), count)

    def admit(self, lease: Lease, pages: list[int], num_cached: int) -> None:
        """Waiting to running: `num_cached` tokens are in the cache already, `pages` follow the lease's."""
        self._expect(Status.WAITING)
        self.status = Status.RUNNING
        self.num_computed = num_cached
        if self.cached_tokens is None:
            self.cached_tokens = num_cached
        self.relink(lease, pages)

    def relink(self, lease: Lease, owned: list[int]) -> None:
        """Replace the pages: the tree took some over."""
        self._expect(Status.RUNNING)
        borrowed = len(lease.pages)
        self.lease = lease
        self.owned = owned
        self.num_pages = borrowed + len(owned)
        self.page_row[:borrowed] = lease.pages
        self.page_row[borrowed : self.num_pages] = owned

    def add_pages(self, pages: list[int]) -> None:
        """More room at the end."""
        self._expect(Status.RUNNING)
        self.owned.extend(pages)
        self.page_row[self.num_pages : self.num_pages + len(pages)] = pages
        self.num_pages += len(pages)

    def advance(self, count: int) -> None:
        """`count` more tokens are computed."""
        self._expect(Status.RUNNING)
        if count > self.pending:
            raise RuntimeError(f"advanced by {count} of {self.pending} pending tokens")
        self.num_computed += count

    def extend(self, token_ids: Iterable[int]) -> None:
        """Tokens were sampled, or forced."""
        self._expect(Status.RUNNING)
        for token_id in token_ids:
            self.tokens.append(token_id)
            self.output_ids.append(token_id)

    def truncate(self, num_tokens: int) -> None:
        """Forget the known tokens past the first `num_tokens`, which may be computed."""
        self._expect(Status.RUNNING)
        if not self.num_prompt <= num_tokens <= len(self.tokens):
            raise RuntimeError(f"cannot keep {num_tokens} tokens of {self.num_prompt} to {len(self.tokens)}")
        self.num_taken_back += len(self.tokens) - num_tokens
        del self.tokens[num_tokens:]
        del self.output_ids[num_tokens - self.num_prompt :]
        self.num_computed = min(self.num_computed, num_tokens)

    def drop_owned(self, kept: int) -> list[int]:
        """Hand back the owned pages past the first `kept`."""
        self._expect(Status.RUNNING)
        dropped = self.owned[kept:]
        del self.owned[kept:]
        self.num_pages -= len(dropped)
        return dropped

    def shorten(self, lease: Lease) -> None:
        """Go on from a shorter lease, without pages of its own."""
        self.relink(lease, [])
        self.num_computed = lease.num_tokens

    def leave(self, status: Status) -> tuple[Lease, list[int]]:
        """Running to waiting (preempted) or finished: hand back the lease and the owned pages."""
        self._expect(Status.RUNNING)
        if self.lease is None or status is Status.RUNNING:
            raise RuntimeError("a running sequence has a lease and leaves to another state")
        lease, owned = self.lease, self.owned
        self.lease, self.owned = None, []
        self.num_pages = self.num_computed = 0
        self.status = status
        return lease, owned

    def drop(self) -> None:
        """Waiting to finished: it never ran, or was preempted."""
        self._expect(Status.WAITING)
        self.status = Status.FINISHED

    def _expect(self, status: Status) -> None:
        if self.status is not status:
            raise RuntimeError(
                f"sequence {self.request_id}/{self.index} is {self.status.value}, not {status.value}"
            )
