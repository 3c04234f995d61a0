"""What does the engine do beside the model? A step with a model that costs nothing.

    make bench-overhead                        # see benchmarks/README.md
    python benchmarks/overhead.py --clock cpu  # for a busy machine

The model has SmolLM2's vocabulary and says the same noise at every step; the time that it takes to copy its
logits is not counted. Everything else is the engine's own: plan, inputs, masks, sampling, commit, stops,
text, events. Prints milliseconds a step by number of sequences, without and with a regex on each, greedy
and drawn, and ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from treille.kernels.api import KVCache
from treille.runtime.core import EngineCore
from treille.runtime.engine import Engine
from treille.runtime.models.llama import ModelInputs
from treille.runtime.models.load import LoadedModel, load_model
from treille.runtime.params import SamplingParams
from treille.runtime.types import Request

COUNTS = (1, 8, 64, 256, 1024)
BARS = {1: 0.5, 64: 3.0}  # ms a step, of `regex, greedy`
REGEX = r"([a-z]{2,9}[ ,.])+"
STEPS = 40
KINDS: dict[str, tuple[str | None, float]] = {
    "free, greedy": (None, 0.0),
    "regex, greedy": (REGEX, 0.0),
    "free, drawn": (None, 1.0),
    "regex, drawn": (REGEX, 1.0),
}


class NullModel:
    """Fixed noise as logits; counts the time that it takes itself."""

    def __init__(self, like: LoadedModel, num_rows: int, clock: Callable[[], float]) -> None:
        self.config = replace(like.config, num_layers=1, windows=like.config.windows[:1])
        self.dtype, self.device = torch.float32, torch.device("cpu")
        self.seconds = 0.0
        self._clock = clock
        generator = torch.Generator().manual_seed(0)
        self._noise = torch.randn(64, like.config.vocab_size, generator=generator)
        self._room = torch.empty(num_rows, like.config.vocab_size)

    def page_bytes(self, page_size: int) -> int:
        return page_size * 8

    def new_kv(self, num_pages: int, page_size: int) -> KVCache:
        pages = torch.zeros((num_pages, page_size), dtype=torch.int64)
        return KVCache((pages,), (pages,), num_pages, page_size, 1, 8)

    def copy_pages(self, kv: KVCache, pairs: Sequence[tuple[int, int]]) -> None:
        return None

    def forward(self, inputs: ModelInputs, kv: KVCache) -> torch.Tensor:
        start = self._clock()
        rows = self._room[: len(inputs.logit_rows)]
        for first in range(0, len(rows), 64):
            part = rows[first : first + 64]
            part.copy_(self._noise[: len(part)])
        self.seconds += self._clock() - start
        return rows


def measure(
    loaded: LoadedModel, count: int, regex: str | None, temperature: float, clock: Callable[[], float]
) -> float:
    """Milliseconds a step, the median over `STEPS` steps in which all sequences decode."""
    model = NullModel(loaded, count, clock)
    engine = Engine(
        replace(loaded, model=model),
        max_num_seqs=count,
        max_batched_tokens=max(2048, 16 * count),
        max_seq_len=512,
        kv_memory="1GiB",
        jump_forward=False,
    )
    core: EngineCore = engine._core
    times: list[float] = []
    step = core.step

    def timed() -> None:
        before, start = model.seconds, clock()
        decodes = core.scheduler.num_running == count
        step()
        if decodes:
            times.append(clock() - start - (model.seconds - before))

    core.step = timed  # type: ignore[method-assign]
    params = SamplingParams(
        temperature=temperature, max_tokens=STEPS + 12, ignore_eos=True, min_tokens=STEPS + 12, regex=regex
    )
    streams = [
        engine.submit(Request(prompt_ids=(*range(100 + i % 50, 112 + i % 50), 200 + i), params=params))
        for i in range(count)
    ]
    for stream in streams:
        for _ in stream:
            pass
    engine.close()
    return statistics.median(times[4:-4]) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--count", type=int, action="append", help=f"sequences; {COUNTS} by default")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    args = parser.parse_args()
    clock = time.perf_counter if args.clock == "wall" else time.process_time
    loaded = load_model("smollm2-135m", dtype=torch.float32, device=torch.device("cpu"), max_seq_len=512)
    counts, kinds = args.count or list(COUNTS), args.kind or list(KINDS)
    print(f"{'sequences':>10}" + "".join(f"{kind:>16}" for kind in kinds) + "   ms a step beside the model")
    result: dict[str, Any] = {}
    for count in counts:
        row = {kind: measure(loaded, count, *KINDS[kind], clock) for kind in kinds}
        print(f"{count:>10}" + "".join(f"{row[kind]:>16.3f}" for kind in kinds), flush=True)
        result[str(count)] = row
    for count, bar in BARS.items():
        found = result.get(str(count), {}).get("regex, greedy")
        if found is not None:
            print(f"regex, greedy, {count}: {found:.2f} ms (bar {bar}{', MISSED' if found > bar else ''})")
    print(json.dumps({"benchmark": "overhead", "clock": args.clock, "ms": result}))


if __name__ == "__main__":
    main()
