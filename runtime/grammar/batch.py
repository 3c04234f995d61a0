"""The masks of many matchers in one call."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from treille.runtime.grammar.grammar import Grammar, Matcher


def fill_masks(
    matchers: Sequence[Matcher], rows: NDArray[np.uint32], executor: Executor | None = None
) -> list[Exception | None]:
    """Fills a row for each matcher, as its `fill_mask` does: `rows` is uint32 [len(matchers), num_words].

    What is known is copied here; what must be walked is walked on the executor's threads, the GIL released,
    where there is more than one grammar to do it for (matchers of one grammar share its states, and take
    turns). Returns what each matcher raised, or None. Raises `ValueError` for another number of rows.
    """
    if len(rows) != len(matchers):
        raise ValueError(f"{len(matchers)} matchers came with {len(rows)} rows")
    errors: list[Exception | None] = [None] * len(matchers)
    waiting: dict[Grammar, list[int]] = {}
    for number, matcher in enumerate(matchers):
        if matcher.is_ready():
            matcher.fill_mask(rows[number])
        else:
            waiting.setdefault(matcher.grammar, []).append(number)

    def fill(numbers: list[int]) -> None:
        for number in numbers:
            try:
                matchers[number].fill_mask(rows[number])
            except Exception as error:
                errors[number] = error

    groups = list(waiting.values())
    if executor is None or len(groups) < 2:
        for numbers in groups:
            fill(numbers)
    else:
        # The last group is this thread's own work.
        others = [executor.submit(fill, numbers) for numbers in groups[:-1]]
        fill(groups[-1])
        for other in others:
            other.result()
    return errors
