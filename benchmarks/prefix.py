"""How much of what could come from the cache does, on the workloads of the SGLang paper?

    make bench-prefix                                  # hit rates against the offline optimum, no model
    make bench-prefix ARGS="--policy dfs-weight --only mmlu"
    make bench-prefix ARGS="--model smollm2-135m --scale 0.1"             # and throughput, cache on and off
    make bench-prefix ARGS="--model FOLDER --peer vllm --peers-python ~/peers/bin/python"

Hit rates come from the scheduler and the cache alone: a script says what each call is answered with. A row a
workload: tokens that the calls need, the fewest that an unbounded cache has to compute (the nodes of the
trie of all their token sequences), what the scheduler computed with a cache of `--share` of those, and the
tokens it saved over the most that could be saved. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from dataclasses import dataclass, field
from typing import get_args

from prefix_engines import compare
from prefix_workloads import WORKLOADS, Call, Ids, Program, text

from treille.radix import PrefixCache
from treille.radix.order import Eviction
from treille.runtime.params import SamplingParams
from treille.runtime.scheduler import Scheduler
from treille.runtime.sequence import Kind, Sequence
from treille.runtime.waiting import SchedulePolicy


@dataclass
class Trace:
    """Programs that have an answer to each call, and the tokens that these need computed."""

    programs: list[Program]
    rng: random.Random
    sequences: list[tuple[int, ...]] = field(default_factory=list)

    def answers(self, calls: list[Call]) -> list[Ids]:
        """What the script says, noted down with the prompts. The last token of each is never computed."""
        found = [text(self.rng, call.new) if call.new else [] for call in calls]
        for call, answer in zip(calls, found, strict=True):
            if call.choices:
                self.sequences += [(*call.prompt, *choice[:-1]) for choice in call.choices]
            else:
                self.sequences.append((*call.prompt, *answer[:-1]))
        return found


def count_nodes(sequences: list[tuple[int, ...]]) -> int:
    """Nodes of the trie of the sequences: in sorted order, what each does not share with the one before."""
    nodes = 0
    last: tuple[int, ...] = ()
    for sequence in sorted(sequences):
        common = 0
        for one, other in zip(sequence, last, strict=False):
            if one != other:
                break
            common += 1
        nodes, last = nodes + len(sequence) - common, sequence
    return nodes


@dataclass
class Round:
    """The calls that a program made at once, and which of them are open."""

    program: Program
    calls: list[Call]
    answers: list[Ids]
    open: int


@dataclass
class Need:
    """What a workload asks for, whatever the order."""

    total: int
    fewest: int
    longest: int


def measure(name: str, seed: int, scale: float) -> Need:
    """Run the programs with nothing in between."""
    trace = Trace(WORKLOADS[name].programs(seed, scale), random.Random(seed))
    for program in trace.programs:
        calls = next(program)
        while calls:
            try:
                calls = program.send(trace.answers(calls))
            except StopIteration:
                break
    lengths = [len(sequence) for sequence in trace.sequences]
    return Need(sum(lengths), count_nodes(trace.sequences), max(lengths))


class Simulation:
    """Programs on a scheduler whose steps compute nothing."""

    def __init__(self, scheduler: Scheduler, trace: Trace, max_pages: int) -> None:
        self.scheduler = scheduler
        self.trace = trace
        self.max_pages = max_pages
        self.computed = self.steps = self.preempted = 0
        self._rounds: dict[Sequence, tuple[Round, int]] = {}
        self._script: dict[Sequence, Ids] = {}

    def run(self) -> None:
        for program in self.trace.programs:
            self._open(program, next(program))
        while self.scheduler.num_running + self.scheduler.num_waiting:
            plan = self.scheduler.plan()
            self.steps += 1
            self.preempted += plan.preempted
            self.computed += plan.num_tokens
            for chunk in plan.chunks:
                self.scheduler.advance(chunk)
                if chunk.seq.pending == 0:
                    self._step(chunk.seq)

    def _open(self, program: Program, calls: list[Call]) -> None:
        opened = Round(program, calls, self.trace.answers(calls), len(calls))
        for place, call in enumerate(calls):
            # As the engine does it: choices wait until one sequence has computed what they share.
            kind = Kind.PREFILL if call.choices else Kind.SAMPLE
            self._add(opened, place, kind, call.prompt[: len(call.prompt) - bool(call.choices)])

    def _add(
        self,
        opened: Round,
        place: int,
        kind: Kind,
        prompt: Ids,
        rest: tuple[int, ...] = (),
        *,
        front: bool = False,
    ) -> None:
        seq = Sequence(
            request_id="",
            index=0,
            kind=kind,
            prompt=tuple(prompt),
            continuation=rest,
            params=SamplingParams(max_tokens=opened.calls[place].new, ignore_eos=True),
            seed=0,
            matcher=None,
            max_pages=self.max_pages,
        )
        self._rounds[seq] = (opened, place)
        self._script[seq] = opened.answers[place]
        self.scheduler.add([seq], front=front)

    def _step(self, seq: Sequence) -> None:
        """A sequence has nothing left to compute."""
        opened, place = self._rounds[seq]
        script = self._script[seq]
        if seq.kind is Kind.SAMPLE and len(seq.output_ids) + 1 < len(script):
            self.scheduler.append(seq, script[len(seq.output_ids)])
            return
        self.scheduler.finish(seq)
        del self._rounds[seq], self._script[seq]
        call = opened.calls[place]
        if seq.kind is Kind.PREFILL:
            opened.open += len(call.choices) - 1
            for choice in reversed(call.choices):
                self._add(opened, place, Kind.SCORE, call.prompt, choice, front=True)
            return
        opened.open -= 1
        if opened.open == 0:
            try:
                calls = opened.program.send(opened.answers)
            except StopIteration:
                return
            self._open(opened.program, calls)


def hit_rate(name: str, args: argparse.Namespace, policy: SchedulePolicy) -> dict[str, float]:
    """One row: one workload under one policy."""
    need = measure(name, args.seed, args.scale)
    max_pages = -(-need.longest // args.page_size) + 1
    pages = max(round(need.fewest * args.share / args.page_size), max_pages + 1)
    cache = PrefixCache(pages, args.page_size, eviction=args.eviction)
    num_seqs = args.num_seqs or max(min(pages // max_pages, 64), 1)
    scheduler = Scheduler(cache, max_num_seqs=num_seqs, max_batched_tokens=args.batched_tokens, policy=policy)
    trace = Trace(WORKLOADS[name].programs(args.seed, args.scale), random.Random(args.seed))
    simulation = Simulation(scheduler, trace, max_pages)
    start = time.perf_counter()
    simulation.run()
    seconds = time.perf_counter() - start
    scheduler.check()
    most = need.total - need.fewest
    return {
        "tokens": need.total,
        "fewest": need.fewest,
        "cache_tokens": pages * args.page_size,
        "num_seqs": num_seqs,
        "computed": simulation.computed,
        "hit_rate": round(1 - simulation.computed / need.total, 4),
        "best_hit_rate": round(1 - need.fewest / need.total, 4),
        "of_optimum": round((need.total - simulation.computed) / most, 4) if most else 1.0,
        "preempted": simulation.preempted,
        "ms_a_step": round(1000 * seconds / simulation.steps, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    policies = get_args(SchedulePolicy)
    parser.add_argument("--only", action="append", choices=list(WORKLOADS), help="may be repeated")
    parser.add_argument("--policy", action="append", choices=policies, help="may be repeated; default lpm")
    parser.add_argument("--eviction", choices=get_args(Eviction), default="lru")
    parser.add_argument("--share", type=float, default=0.25, help="of the distinct tokens, in the cache")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of programs")
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument(
        "--num-seqs", type=int, help="running at a time; default: as many of the longest as fit, at most 64"
    )
    parser.add_argument("--batched-tokens", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="measure throughput too, on this model")
    parser.add_argument("--peer", choices=["vllm"], help="beside this engine, on the same model's folder")
    parser.add_argument("--peers-python", help="the Python that has it")
    args = parser.parse_args()
    names = args.only or list(WORKLOADS)
    result: dict[str, object] = {"benchmark": "prefix", "share": args.share, "scale": args.scale}
    result["eviction"] = args.eviction
    for policy in args.policy or ["lpm"]:
        print(f"policy {policy}, cache of {args.share:.0%} of the distinct tokens")
        print(
            f"{'workload':20}{'tokens':>10}{'fewest':>10}{'computed':>10}{'hit':>8}{'best':>8}{'of best':>9}",
            end="",
        )
        print(f"{'preempted':>11}{'ms/step':>9}")
        rows = {}
        for name in names:
            row = rows[name] = hit_rate(name, args, policy)
            print(
                f"{name:20}{row['tokens']:10}{row['fewest']:10}{row['computed']:10}{row['hit_rate']:8.1%}",
                end="",
            )
            print(f"{row['best_hit_rate']:8.1%}{row['of_optimum']:9.1%}{row['preempted']:11}", end="")
            print(f"{row['ms_a_step']:9.3f}", flush=True)
        mean = statistics.mean(row["of_optimum"] for row in rows.values())
        print(f"mean of {len(rows)}: {mean:.1%} of the optimum (bar: 96 %)")
        result[policy] = {"workloads": rows, "mean_of_optimum": round(mean, 4)}
    if args.model:
        result["throughput"] = compare(args.model, names, args)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
