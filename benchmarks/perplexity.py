"""What do weights of eight and four bits cost in quality? Perplexity of a text under each dtype.

    make bench-perplexity                          # Python's own help texts, SmolLM2-135M
    python benchmarks/perplexity.py --text FILE --windows 32

The text is cut into windows of `--window` tokens, spread evenly over it; of each, every token behind the
first `--context` is scored given all before it. Prints a row a dtype and ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from pydoc_data.topics import topics

from treille.runtime.engine import Engine
from treille.runtime.types import Failed, Scored, ScoreRequest

DTYPES = ("float32", "bfloat16", "int8", "int4")


def windows_of(ids: tuple[int, ...], *, size: int, count: int) -> list[tuple[int, ...]]:
    """`count` windows spread evenly, or all that do not overlap if there are fewer."""
    count = min(count, len(ids) // size)
    if count == 0:
        raise SystemExit(f"the text has {len(ids)} tokens, fewer than one window of {size}")
    starts = [(len(ids) - size) * i // max(count - 1, 1) for i in range(count)]
    return [ids[start : start + size] for start in starts]


def mean_loss(engine: Engine, windows: list[tuple[int, ...]], context: int) -> float:
    """Mean negative log-probability, in nats, of the tokens that are scored."""
    streams = [
        engine.submit(ScoreRequest(prompt_ids=window[:context], continuations=(window[context:],)))
        for window in windows
    ]
    logprobs: list[float] = []
    for stream in streams:
        for event in stream:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Scored):
                logprobs.extend(event.logprobs[0])
    return -sum(logprobs) / len(logprobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--text", type=Path, help="a text file; by default the help texts of this Python")
    parser.add_argument("--window", type=int, default=512, help="tokens")
    parser.add_argument("--context", type=int, default=32, help="tokens of a window that are not scored")
    parser.add_argument("--windows", type=int, default=24)
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    args = parser.parse_args()
    if not 0 < args.context < args.window:
        parser.error("--context must be from 1 to one less than --window")

    text = args.text.read_text() if args.text else "\n\n".join(topics[name] for name in sorted(topics))
    found: dict[str, dict[str, float]] = {}
    base = None
    print(f"{'dtype':10} {'perplexity':>11} {'to the first':>13} {'seconds':>8}")
    for dtype in args.dtype or DTYPES:
        with Engine(args.model, dtype=dtype, max_seq_len=args.window, kv_memory="128MiB") as engine:
            windows = windows_of(engine.encode(text), size=args.window, count=args.windows)
            start = time.perf_counter()
            perplexity = math.exp(mean_loss(engine, windows, args.context))
            seconds = time.perf_counter() - start
        base = perplexity if base is None else base
        print(f"{dtype:10} {perplexity:11.4f} {perplexity / base:13.4f} {seconds:8.1f}", flush=True)
        found[dtype] = {"perplexity": perplexity, "ratio": perplexity / base}
    scored = len(windows) * (args.window - args.context)
    print(json.dumps({"benchmark": "perplexity", "model": args.model, "tokens": scored, "dtypes": found}))


if __name__ == "__main__":
    main()
