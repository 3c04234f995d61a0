"""How long do masks take beside llguidance and xgrammar? The same regexes, texts and tokens in one run.

    python benchmarks/masks.py --peers-python PEERS/bin/python --data MASKBENCH     # see benchmarks/README.md
    python benchmarks/masks.py --quick
    python benchmarks/masks.py --schemas --peers-python PEERS/bin/python --data MASKBENCH

Each engine works in a process of its own, one after the other, round by round. `first` is compiling a
pattern and its first mask, `step` accepting a token and making the next mask on that fresh grammar, `warm`
the same text on a grammar that was used before. A call's time is its median over the rounds, so that what
else the machine does counts little; figures are microseconds over the calls on the inputs that an engine and
llguidance both take. Prints a table a vocabulary, with what each engine got wrong, and ends with one line of
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from masks_inputs import Inputs, endings, gather
from masks_schemas import bench_schemas
from masks_vocabularies import NAMES, vocabulary_folder
from masks_workers import Answer, Options, Task, Worker

from treille.runtime.grammar import Vocabulary
from treille.runtime.tokenizer import Tokenizer

PEERS = ("llguidance", "xgrammar")
BARS = {
    "first median": 2.0,
    "first p99": 1.0,
    "step mean": 1.0,
    "step p99": 1.0,
    "warm mean": 0.5,
}
QUICK = 60


@dataclass
class Record:
    """An engine's answers: by round, by input."""

    version: str
    rounds: list[list[Answer]] = field(default_factory=list)

    def taken(self) -> set[int]:
        """The inputs that it compiled, and whose text it took to the end, in every round."""
        return {
            at
            for at in range(len(self.rounds[0]))
            if all("first" in one[at] and one[at]["cold"]["masked"] is None for one in self.rounds)
        }

    def faults(self) -> dict[str, int]:
        """In the first round: patterns refused, given up, with a right token masked out, with a wrong end."""
        answers = self.rounds[0]
        walks = [[one["cold"], one["warm"]] for one in answers if "first" in one]
        return {
            "refused": sum("refused" in one for one in answers),
            "died": sum("died" in one for one in answers),
            "masked": sum(any(one["masked"] is not None for one in pair) for pair in walks),
            "wrong_end": sum(any(one["wrong_ends"] for one in pair) for pair in walks),
        }

    def figures(self, chosen: set[int]) -> dict[str, float]:
        """Microseconds over the calls on the chosen inputs; a call's time is its median over the rounds."""
        rounds: dict[str, list[list[int]]] = {"first": [], "step": [], "warm": []}
        for answers in self.rounds:
            picked = [answers[at] for at in sorted(chosen)]
            rounds["first"].append([one["first"] for one in picked])
            rounds["step"].append([ns for one in picked for ns in one["cold"]["ns"]])
            rounds["warm"].append([ns for one in picked for ns in one["warm"]["ns"]])
        found: dict[str, float] = {}
        for kind, times in rounds.items():
            micro = np.median(np.array(times, np.float64), axis=0) / 1000
            found[f"{kind} mean"] = round(float(micro.mean()), 1)
            found[f"{kind} median"] = round(float(np.median(micro)), 1)
            found[f"{kind} p99"] = round(float(np.percentile(micro, 99)), 1)
        return found


def make_tasks(inputs: Inputs, folder: Path) -> list[Task]:
    """The inputs in a vocabulary's own tokens, with what `re` says about ending after each."""
    tokenizer = Tokenizer.from_folder(folder)
    spellings = Vocabulary.from_tokenizer(tokenizer).tokens
    tasks = []
    for one in inputs.inputs:
        tokens = tokenizer.encode(one.text, add_bos=False)
        prefixes = [b""]
        for token in tokens:
            prefixes.append(prefixes[-1] + (spellings[token] or b""))
        if prefixes[-1] != one.text.encode():
            raise SystemExit(f"{folder} cannot spell {one.text!r}")
        tasks.append(
            {"pattern": one.full, "ecma": one.ecma, "tokens": tokens, "endings": endings(one.full, prefixes)}
        )
    return tasks


def run(tasks: list[Task], folder: Path, pythons: dict[str, str], options: Options) -> dict[str, Record]:
    """Every engine's answers; in each round another one begins."""
    workers = {name: Worker(name, python, folder, options) for name, python in pythons.items()}
    records = {name: Record(worker.version) for name, worker in workers.items()}
    names = list(workers)
    for number in range(options.rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            records[name].rounds.append([workers[name].ask(task) for task in tasks])
    for worker in workers.values():
        worker.close()
    return records


def summarise(records: dict[str, Record]) -> dict[str, Any]:
    """Each engine's faults and figures, and its ratios to llguidance on the inputs that both take."""
    base = records.get("llguidance")
    result: dict[str, Any] = {}
    for name, record in records.items():
        chosen = record.taken() & base.taken() if base else record.taken()
        result[name] = {
            "version": record.version,
            "inputs": len(chosen),
            **record.faults(),
            **record.figures(chosen),
        }
        if base and record is not base:
            peer = base.figures(chosen)
            result[name]["ratios"] = {bar: round(result[name][bar] / peer[bar], 3) for bar in BARS}
    return result


def show(name: str, size: int, tasks: list[Task], result: dict[str, Any]) -> None:
    """A vocabulary's table."""
    num_tokens = sum(len(task["tokens"]) for task in tasks)
    print(f"{name}: {size} tokens; {len(tasks)} patterns, texts of {num_tokens} tokens; microseconds")
    print(
        f"  {'':12}{'refused':>8}{'died':>6}{'masked':>8}{'wrong end':>10}{'both take':>10}"
        f"{'first median / p99':>22}{'step mean / median / p99':>28}{'warm mean / median / p99':>28}"
    )
    for engine, row in result.items():
        triples = "".join(
            f"{row[f'{kind} mean']:>11.1f} /{row[f'{kind} median']:>6.1f} /{row[f'{kind} p99']:>7.0f}"
            for kind in ("step", "warm")
        )
        print(
            f"  {engine:12}{row['refused']:>8}{row['died']:>6}{row['masked']:>8}{row['wrong_end']:>10}"
            f"{row['inputs']:>10}{row['first median']:>13.0f} /{row['first p99']:>7.0f}{triples}"
        )
    for engine, row in result.items():
        if "ratios" in row:
            marks = [
                f"{bar} {ratio:.2f}" + (f" (bar {BARS[bar]}{'' if ratio <= BARS[bar] else ', MISSED'})")
                if engine == "treille"
                else f"{bar} {ratio:.2f}"
                for bar, ratio in row["ratios"].items()
            ]
            print(f"  {engine} / llguidance: " + ", ".join(marks))
    print(flush=True)


def show_worst(tasks: list[Task], records: dict[str, Record], number: int) -> None:
    """The inputs on which Treille loses most time to llguidance: in the first mask, in the longest step."""
    if not {"treille", "llguidance"} <= records.keys():
        return
    ours, theirs = (records[name] for name in ("treille", "llguidance"))
    both = sorted(ours.taken() & theirs.taken())

    def first(record: Record, at: int) -> float:
        return float(statistics.median(one[at]["first"] for one in record.rounds)) / 1000

    def step(record: Record, at: int) -> float:
        return float(statistics.median(max(one[at]["cold"]["ns"], default=0) for one in record.rounds)) / 1000

    for label, measure in (("first", first), ("longest step", step)):
        worst = sorted(both, key=lambda at: measure(theirs, at) - measure(ours, at))[:number]
        print(f"  {label}, Treille / llguidance in microseconds:")
        for at in worst:
            shown = tasks[at]["ecma"] or tasks[at]["pattern"]
            print(f"  {measure(ours, at):10.0f} /{measure(theirs, at):8.0f}  {shown[:84]!r}")
    print(flush=True)


def main() -> None:
    """Runs what the options say and prints it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("TREILLE_TEST_DATA")
    parser.add_argument("--data", type=Path, default=Path(data) if data else None, help="MaskBench's files")
    parser.add_argument("--peers-python", help="the Python of an environment with llguidance and xgrammar")
    parser.add_argument("--engine", action="append", choices=["treille", *PEERS], help="may be repeated")
    parser.add_argument("--vocabulary", action="append", choices=NAMES, help="may be repeated")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/treille/bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worst", type=int, default=0, help="show so many inputs with the largest losses")
    parser.add_argument("--limit", type=float, default=60, help="seconds that one input may take")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: for a busy machine")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} patterns and the smallest vocabulary")
    parser.add_argument("--schemas", action="store_true", help="whole schemas instead of their patterns")
    parser.add_argument("--property-order", choices=["schema", "any"], default="schema", help="of --schemas")
    args = parser.parse_args()
    options = Options(args.rounds, args.limit, args.clock, "schemas" if args.schemas else "patterns")
    if args.schemas and not args.data:
        raise SystemExit("--schemas needs MaskBench's folder: --data or TREILLE_TEST_DATA")
    if not args.data:
        print("no --data and no TREILLE_TEST_DATA: only the regexes picked by hand are measured")
    pythons = {"treille": sys.executable}
    if args.peers_python:
        pythons |= dict.fromkeys(PEERS, args.peers_python)
    else:
        print("no --peers-python: llguidance and xgrammar are left out, and so are the ratios")
    # xgrammar takes many minutes over whole schemas: there it is measured only if it is asked for.
    chosen = args.engine or [name for name in pythons if not (args.schemas and name == "xgrammar")]
    pythons = {name: python for name, python in pythons.items() if name in chosen}
    if args.schemas:
        folder = vocabulary_folder((args.vocabulary or NAMES)[0], args.cache)
        order, quick = args.property_order, args.quick
        bench_schemas(args.data, folder, pythons, options, order=order, quick=quick, worst=args.worst)
        return
    inputs = gather(args.data, QUICK if args.quick else None)
    if inputs.left_out:
        print(f"patterns left out: {', '.join(f'{n} with {why}' for why, n in inputs.left_out.items())}")
    results = {}
    for name in args.vocabulary or (NAMES[:1] if args.quick else NAMES):
        folder = vocabulary_folder(name, args.cache)
        tasks = make_tasks(inputs, folder)
        size = Tokenizer.from_folder(folder).vocab_size
        records = run(tasks, folder, pythons, options)
        result = summarise(records)
        show(name, size, tasks, result)
        if args.worst:
            show_worst(tasks, records, args.worst)
        results[name] = {"tokens": size, "patterns": len(tasks), "engines": result}
    print(
        json.dumps(
            {"benchmark": "masks", "rounds": args.rounds, "clock": args.clock, "vocabularies": results}
        )
    )


if __name__ == "__main__":
    main()
