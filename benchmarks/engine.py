"""How fast is the engine beside transformers? The same weights, token ids and output lengths, in turn.

    make bench-engine                    # every workload, three rounds
    python benchmarks/engine.py --only single --rounds 5

Each engine runs in a process of its own, one after the other, round by round, on SmolLM2 in bfloat16 with
greedy sampling and ignored end tokens. Prints a row a workload with each engine's median seconds over the
rounds and the ratio of the medians (above 1: Treille is faster), and ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

Batch = list[list[int]]
Run = Callable[[Batch, int], int]


@dataclass(frozen=True)
class Workload:
    """`count` prompts of `length` tokens, the first `shared` of them the same, `new` tokens each."""

    count: int
    length: int
    shared: int
    new: int

    def batch(self, seed: str) -> Batch:
        """Prompts of random ids that share nothing with those of another seed."""
        rng = random.Random(seed)
        head = [rng.randrange(100, 49_000) for _ in range(self.shared)]
        return [
            head + [rng.randrange(100, 49_000) for _ in range(self.length - self.shared)]
            for _ in range(self.count)
        ]


WORKLOADS = {
    "single": Workload(1, 16, 0, 64),
    "decode32": Workload(32, 16, 0, 64),
    "mixed32": Workload(32, 512, 0, 64),
    "chat64": Workload(64, 128, 0, 128),
    "prefill8": Workload(8, 1024, 0, 1),
    "prefix64": Workload(64, 1024, 960, 16),
}


def treille(folder: Path) -> Run:
    """This project's engine."""
    import treille as tr

    engine = tr.Engine(str(folder), dtype="bfloat16", max_num_seqs=64, max_seq_len=2048)

    def run(batch: Batch, new: int) -> int:
        params = tr.SamplingParams(temperature=0, max_tokens=new, ignore_eos=True)
        return sum(len(done.token_ids) for done in engine.generate(batch, params))

    return run


def transformers(folder: Path) -> Run:
    """transformers' `generate` on a static batch."""
    import torch
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()

    def run(batch: Batch, new: int) -> int:
        ids = torch.tensor(batch)
        mask = torch.ones_like(ids)
        with torch.inference_mode():
            made = net.generate(
                ids, attention_mask=mask, do_sample=False, min_new_tokens=new, max_new_tokens=new
            )
        return int(made.numel() - ids.numel())

    return run


ENGINES = {"treille": treille, "transformers": transformers}


def serve(name: str, folder: Path, pipe: Connection) -> None:
    """One engine's process: loads, then runs what the pipe asks for and answers with seconds."""
    run = ENGINES[name](folder)
    run(Workload(2, 16, 0, 4).batch("warm-up"), 4)
    pipe.send(None)
    while (task := pipe.recv()) is not None:
        batch, new = task
        start = time.perf_counter()
        made = run(batch, new)
        seconds = time.perf_counter() - start
        if made != len(batch) * new:
            raise SystemExit(f"{name} made {made} tokens, not {len(batch) * new}")
        pipe.send(seconds)


def main() -> None:
    """Runs the rounds and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", choices=list(WORKLOADS), help="a workload; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()

    from treille.runtime.models.resolve import resolve_model

    folder = resolve_model("smollm2-135m").path
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    for name in ENGINES:
        pipes[name], theirs = context.Pipe()
        context.Process(target=serve, args=(name, folder, theirs), daemon=True).start()
        pipes[name].recv()
    result = {}
    for label in args.only or WORKLOADS:
        workload = WORKLOADS[label]
        seconds: dict[str, list[float]] = {name: [] for name in ENGINES}
        for number in range(args.rounds):
            batch = workload.batch(f"{label}-{number}")
            for name, pipe in pipes.items():
                pipe.send((batch, workload.new))
                seconds[name].append(pipe.recv())
        ours, theirs_s = (statistics.median(seconds[name]) for name in ("treille", "transformers"))
        tokens = workload.count * (workload.length + workload.new)
        result[label] = {
            "treille_s": round(ours, 3),
            "transformers_s": round(theirs_s, 3),
            "ratio": round(theirs_s / ours, 2),
            "treille_new_per_s": round(workload.count * workload.new / ours, 1),
            "treille_tokens_per_s": round(tokens / ours, 1),
        }
        print(
            f"{label:10} treille {ours:8.3f} s {workload.count * workload.new / ours:8.1f} new/s "
            f"{tokens / ours:9.1f} tokens/s   transformers {theirs_s:8.3f} s   ratio {theirs_s / ours:5.2f}",
            flush=True,
        )
    for pipe in pipes.values():
        pipe.send(None)
    print(json.dumps({"benchmark": "engine", "rounds": args.rounds, "workloads": result}))


if __name__ == "__main__":
    main()
