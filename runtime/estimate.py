"""How many tokens a running sample will still need, guessed from those that are over."""

from __future__ import annotations

from treille.runtime.sequence import Kind, Sequence

# Before anything is known: samples use half of what they may.
FIRST_SHARE = 0.5
# What the latest sample that ended counts for in the running mean.
WEIGHT = 1 / 16
# A preemption says that the guess was too low: it goes up by this part of what is left to 1.
RAISE = 1 / 4


class OutputEstimate:
    """A running mean of the share of its limit that a sample uses.

    The guess for one that runs is that share of what its limit leaves, so it goes down as the sample grows,
    and never to nothing. A sample that ignores end tokens, and has nothing else to stop at, uses all.
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._share = FIRST_SHARE

    @property
    def share(self) -> float:
        """From 0 to 1: the part of `max_tokens` that a sample is thought to use."""
        return self._share

    def num_left(self, seq: Sequence) -> int:
        """Tokens that `seq` is thought to get besides those it has; none unless it is a sample."""
        if seq.kind is not Kind.SAMPLE:
            return 0
        left = max(self._limit(seq) - len(seq.output_ids), 0)
        params = seq.params
        may_stop = seq.matcher is not None or params.stop or params.stop_regex or params.stop_token_ids
        if params.ignore_eos and not may_stop:
            return left
        least = min(params.min_tokens - len(seq.output_ids), left)
        return max(round(left * self._share), least)

    def ended(self, seq: Sequence) -> None:
        """A sequence that ran is over."""
        limit = self._limit(seq)
        if seq.kind is Kind.SAMPLE and limit > 0:
            self._share += (min(len(seq.output_ids) / limit, 1.0) - self._share) * WEIGHT

    def preempted(self) -> None:
        """Pages were short."""
        self._share += (1 - self._share) * RAISE

    def _limit(self, seq: Sequence) -> int:
        return min(seq.params.max_tokens, len(seq.page_row) * self._page_size - seq.num_prompt)
