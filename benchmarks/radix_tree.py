"""How long do match, insert and evict take in a large tree, over a million random operations?

Run `python benchmarks/radix_tree.py`; the last line is JSON. An operation is one request: a known prompt, cut
somewhere in its last pages and continued otherwise, is acquired, given pages and released. All free pages are
gone soon, so that the pages of each come from eviction. Times are of the processor, in microseconds.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

from treille.radix import Eviction, PrefixCache

POLICIES: tuple[Eviction, ...] = get_args(Eviction)


@dataclass
class Prompts:
    """Prompts of `page_size` times 1 to `depth` tokens, each a variation of an earlier one."""

    rng: random.Random
    page_size: int
    depth: int
    known: list[array[int]] = field(default_factory=list)
    most: int = 50_000

    def next(self) -> array[int]:
        size, rng = self.page_size, self.rng
        stem = rng.choice(self.known) if self.known else array("q")
        num_pages = len(stem) // size
        if num_pages >= self.depth:
            num_pages = rng.randrange(self.depth)
        kept = max(num_pages - rng.randrange(4), 0)
        fresh = array("H", rng.randbytes(2 * size * rng.randint(1, 3)))
        prompt = stem[: kept * size] + array("q", fresh)
        if len(self.known) < self.most:
            self.known.append(prompt)
        else:
            self.known[rng.randrange(self.most)] = prompt
        return prompt


@dataclass
class Times:
    """Nanoseconds, and what they were spent on."""

    match: int = 0
    insert: int = 0
    evict: int = 0
    num_operations: int = 0
    num_evicted: int = 0

    def means(self) -> dict[str, float]:
        """Microseconds."""
        count = max(self.num_operations, 1) * 1000
        return {
            "match": round(self.match / count, 2),
            "insert": round(self.insert / count, 2),
            "match_and_insert": round((self.match + self.insert) / count, 2),
            "evict_a_page": round(self.evict / max(self.num_evicted, 1) / 1000, 2),
        }


def run(cache: PrefixCache, prompts: Prompts, count: int, clock: Callable[[], int]) -> Times:
    """`count` operations; one whose pages are free already counts, but not as an eviction."""
    times = Times(num_operations=count)
    size = cache.page_size
    for _ in range(count):
        tokens = prompts.next()
        start = clock()
        lease = cache.acquire(tokens, limit=len(tokens) - 1)
        matched = clock()
        free = cache.num_free
        needed = len(tokens) // size - len(lease.pages)
        before = clock()
        pages = cache.allocate(needed)
        allocated = clock()
        cache.release(lease, tokens, pages)
        end = clock()
        times.match += matched - start
        times.insert += end - allocated
        if free == 0:
            times.evict += allocated - before
            times.num_evicted += needed
    return times


def count_nodes(cache: PrefixCache) -> int:
    """Nodes of the tree, without roots."""
    nodes = list(cache._tree.roots.values())
    for node in nodes:
        nodes.extend(node.children.values())
    return len(nodes) - len(cache._tree.roots)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--pages", type=int, default=200_000)
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--depth", type=int, default=64, help="most pages of a prompt")
    parser.add_argument("--eviction", choices=POLICIES, action="append", help="one or more; all by default")
    args = parser.parse_args()

    result: dict[str, object] = {"benchmark": "radix_tree", **vars(args)}
    print(f"{'eviction':10}{'nodes':>10}{'match':>10}{'insert':>10}{'both':>10}{'evict a page':>15}")
    for eviction in args.eviction or POLICIES:
        cache = PrefixCache(args.pages, args.page_size, eviction=eviction)
        prompts = Prompts(random.Random(0), args.page_size, args.depth)
        while cache.num_free:
            run(cache, prompts, 1000, lambda: 0)
        means = run(cache, prompts, args.operations, time.process_time_ns).means()
        cache.check()
        nodes = count_nodes(cache)
        print(
            f"{eviction:10}{nodes:10,}{means['match']:10.2f}{means['insert']:10.2f}"
            f"{means['match_and_insert']:10.2f}{means['evict_a_page']:15.2f}"
        )
        result[eviction] = {"nodes": nodes, **means}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
