"""How long do the prefix cache's calls take? Thousand-token prompts in a tree of ten thousand pages.

Run `python benchmarks/radix.py`; the last line is JSON: medians and 99th percentiles in microseconds.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from treille.radix import Lease, PrefixCache


@dataclass
class Scene:
    """A warm cache; `known` prompts were given to it, and the oldest may be evicted later."""

    cache: PrefixCache
    rng: random.Random
    num_tokens: int
    known: list[list[int]]

    def fresh(self) -> list[int]:
        return [self.rng.randrange(50_000) for _ in range(self.num_tokens)]

    def num_pages(self, lease: Lease, num_tokens: int) -> int:
        return -(-(num_tokens - lease.num_tokens) // self.cache.page_size)


def warm(num_pages: int, page_size: int, num_tokens: int, seed: int) -> Scene:
    """Fill the cache with prompts, half of which begin with one of a few shared stems."""
    rng = random.Random(seed)
    scene = Scene(PrefixCache(num_pages, page_size), rng, num_tokens, [])
    stems = [scene.fresh()[: num_tokens * share // 10] for share in (0, 0, 1, 3, 6)]
    while scene.cache.num_free >= num_tokens // page_size + 1:
        stem = rng.choice(stems)
        prompt = stem + scene.fresh()[len(stem) :]
        lease = scene.cache.acquire(prompt)
        pages = scene.cache.allocate(scene.num_pages(lease, num_tokens))
        scene.cache.release(lease, prompt, pages)
        scene.known.append(prompt)
    return scene


def microseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1000


def time_hits(scene: Scene, rounds: int, times: dict[str, list[float]]) -> None:
    """Lookup, acquire and release of prompts that are cached; each is a copy, as a new request's would be."""
    cache = scene.cache
    for _ in range(rounds):
        prompt = [token + 0 for token in scene.rng.choice(scene.known)]
        leases: list[Lease] = []
        times["lookup, hit"].append(microseconds(lambda p=prompt: cache.lookup(p)))
        times["acquire, hit"].append(
            microseconds(lambda p=prompt, out=leases: out.append(cache.acquire(p, limit=len(p) - 1)))
        )
        lease = leases[0]
        own = prompt[: lease.num_tokens]
        times["release, hit"].append(microseconds(lambda a=lease, b=own: cache.release(a, b, [])))


def time_misses(scene: Scene, rounds: int, times: dict[str, list[float]]) -> None:
    """Prompts that are new: all their pages have to be evicted first, and are then published at once."""
    cache = scene.cache
    for _ in range(rounds):
        prompt = scene.fresh()
        leases = [cache.acquire(prompt)]
        pages: list[list[int]] = []
        spare = cache.allocate(cache.num_free)  # nothing is free now: allocate has to evict
        count = scene.num_pages(leases[0], len(prompt))
        times["allocate, evicting all"].append(
            microseconds(lambda n=count, out=pages: out.append(cache.allocate(n)))
        )

        def publish(a: list[Lease] = leases, p: list[int] = prompt, g: list[list[int]] = pages) -> None:
            a[0], g[0] = cache.publish(a[0], p, g[0])

        times["publish, whole prompt"].append(microseconds(publish))
        times["release, miss"].append(
            microseconds(lambda a=leases, p=prompt, g=pages: cache.release(a[0], p, g[0]))
        )
        cache.free(spare)


def time_decode(scene: Scene, rounds: int, times: dict[str, list[float]]) -> None:
    """One running sequence that publishes each page as it fills."""
    cache = scene.cache
    tokens = scene.fresh()
    lease = cache.acquire(tokens)
    lease, rest = cache.publish(lease, tokens, cache.allocate(scene.num_pages(lease, len(tokens))))
    for _ in range(rounds):
        tokens += scene.fresh()[: cache.page_size]
        start = time.perf_counter_ns()
        lease, rest = cache.publish(lease, tokens, [*rest, *cache.allocate(1)])
        times["allocate + publish, one page"].append((time.perf_counter_ns() - start) / 1000)
    cache.release(lease, tokens, rest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=300)
    args = parser.parse_args()

    scene = warm(args.pages, args.page_size, args.tokens, seed=0)
    names = ["lookup, hit", "acquire, hit", "release, hit", "allocate, evicting all"]
    names += ["publish, whole prompt", "release, miss", "allocate + publish, one page"]
    times: dict[str, list[float]] = {name: [] for name in names}
    time_hits(scene, args.rounds, times)
    time_decode(scene, args.rounds, times)
    time_misses(scene, args.rounds, times)
    scene.cache.check()

    print(f"{args.tokens} tokens, {args.pages} pages of {args.page_size}, {args.rounds} rounds")
    print(f"{'call':30}{'median us':>12}{'p99 us':>12}")
    result: dict[str, object] = {"benchmark": "radix", **vars(args)}
    for name, values in times.items():
        values.sort()
        median, p99 = values[len(values) // 2], values[len(values) * 99 // 100]
        print(f"{name:30}{median:12.1f}{p99:12.1f}")
        result[name] = {"median_us": round(median, 1), "p99_us": round(p99, 1)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
