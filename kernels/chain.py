"""Workers run one after the other by a team of threads that is called up once.

Each step of a chain is a worker and its block of words. All threads work at a step, and wait for each other
before the next: a turn of a shared counter costs well under a microsecond, where calling up the team costs
several and Python's part of a call tens. A chain keeps its blocks; between runs its owner rewrites what has
changed in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from treille.kernels.parallel import ARGS, ThreadTeam, Worker, WorkerSource
from treille.kernels.simd import call_number, call_worker, fetch_add, read_i64, read_shared

ADDRESS = 1  # the word of a block that has its worker's address; the counter is word 0
BLOCK_ROWS = 96  # rows of a linear layer that stay in the second cache
_SPINS = 4096  # looks at the counter before a waiting thread offers others its core


class Part(NamedTuple):
    """A worker of a chain whose first two words are how many rows there are and how many to a piece: with
    `in_blocks` up to `BLOCK_ROWS`, otherwise so few that every thread gets some.
    """

    worker: Worker
    words: tuple[int, ...]
    in_blocks: bool = False


def chain_source(key: str) -> WorkerSource:
    """Runs blocks in order. Words: num_blocks, address of the blocks, words to a block, address of the count
    of threads that are done with a step, number of threads, address of a function that knows it better (or
    0), address of one that offers others the core (or 0).
    """

    def run_chain(args: int) -> None:
        if key:
            _run_blocks(args)

    return run_chain


@njit(error_model="numpy")
def _run_blocks(args: int) -> None:
    num_blocks, blocks, width = read_i64(args, ARGS), read_i64(args, ARGS + 1), read_i64(args, ARGS + 2)
    done, num_threads = read_i64(args, ARGS + 3), read_i64(args, ARGS + 4)
    ask, give_way = read_i64(args, ARGS + 5), read_i64(args, ARGS + 6)
    if ask:
        num_threads = call_number(ask)
    for step in range(num_blocks):
        block = blocks + 8 * width * step
        call_worker(read_i64(block, ADDRESS), block)
        if num_threads > 1:
            fetch_add(done, 1)
            spins = 0
            while read_shared(done) < num_threads * (step + 1):
                spins += 1
                if spins > _SPINS and give_way:
                    call_number(give_way)


class Chain:
    """Blocks of words, int64 [num_blocks, ARGS + words], run in order."""

    def __init__(self, team: ThreadTeam, runner: Worker, workers: Sequence[Worker], num_words: int) -> None:
        """`num_words` is the most that a worker takes."""
        self._team = team
        self._runner = runner
        self.blocks: NDArray[np.int64] = np.zeros((len(workers), ARGS + num_words), np.int64)
        self.blocks[:, ADDRESS] = [worker.address for worker in workers]
        self._done = np.zeros(1, np.int64)

    def run(self, num_threads: int, *, num_blocks: int | None = None) -> None:
        """Runs the first blocks (None: all) on up to so many threads; returns when the last is done."""
        self.blocks[:, 0] = 0
        self._done[0] = 0
        words = (
            len(self.blocks) if num_blocks is None else num_blocks,
            self.blocks.ctypes.data,
            self.blocks.shape[1],
            self._done.ctypes.data,
            num_threads,
            self._team.count_entry if num_threads > 1 else 0,
            self._team.yield_entry,
        )
        self._team.run(self._runner, words, num_threads=num_threads)
