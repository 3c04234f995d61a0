"""`masks.py --schemas`: whole JSON Schemas side by side with llguidance, the same files, texts and tokens.

Each schema is compiled anew in every round, and each of its instances followed token by token, with a mask
before every token, up to the first that is not allowed. `first` is compiling and the first mask, `step`
accepting a token and the next mask. Figures of steps are over the instances that an engine and llguidance
both judge right, those of `first` over the files of which they judge every instance right.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from masks_workers import Answer, Options, Task, Worker
from schemas_inputs import Case, pick, read_cases

NUM_FILES = 400
QUICK_FILES = 60
MAX_SECONDS = 5.0  # of any file
BARS = {"step mean": 1.0, "step p99": 1.0, "first median": 3.0, "first p99": 1.0}
TestPlace = tuple[int, int]


@dataclass
class SchemaRecord:
    """An engine's answers: by round, by file."""

    version: str
    cases: list[Case]
    rounds: list[list[Answer]] = field(default_factory=list)

    def right(self) -> set[TestPlace]:
        """The instances, (file, number in it), that were judged right in every round."""
        return {
            (at, number)
            for at, case in enumerate(self.cases)
            if all("tests" in answers[at] for answers in self.rounds)
            for number, instance in enumerate(case.tests)
            if all(_verdict(answers[at]["tests"][number]) == instance.valid for answers in self.rounds)
        }

    def right_files(self) -> set[int]:
        """The files that compile and whose instances are all judged right."""
        right = self.right()
        return {
            at
            for at, case in enumerate(self.cases)
            if all("tests" in answers[at] for answers in self.rounds)
            and all((at, number) in right for number in range(len(case.tests)))
        }

    def counts(self) -> dict[str, int]:
        """How many files: all right, refused, died or crashed, wrong."""
        first = self.rounds[0]
        found = {
            "right": len(self.right_files()),
            "refused": sum("refused" in one for one in first),
            "died": sum("died" in one or "crashed" in one for one in first),
        }
        return found | {"wrong": len(first) - sum(found.values())}

    def figures(self, chosen_files: set[int], chosen: set[TestPlace]) -> dict[str, float]:
        """Microseconds; a call's time is its median over the rounds."""
        files, places = sorted(chosen_files), sorted(chosen)
        times = {
            "first": [[answers[at]["first"] for at in files] for answers in self.rounds],
            "step": [
                [ns for at, number in places for ns in answers[at]["tests"][number]["ns"]]
                for answers in self.rounds
            ],
        }
        result: dict[str, float] = {"files": len(files), "texts": len(places)}
        for kind, by_round in times.items():
            micro = np.median(np.array(by_round, np.float64), axis=0) / 1000
            if len(micro):
                result |= {
                    f"{kind} mean": round(float(micro.mean()), 1),
                    f"{kind} median": round(float(np.median(micro)), 1),
                    f"{kind} p99": round(float(np.percentile(micro, 99)), 1),
                    f"{kind} max": round(float(micro.max()), 1),
                }
        return result

    def file_seconds(self) -> list[float]:
        """By file: all that was measured of it, in its median round; what died took infinitely long."""
        return [
            float(np.median([_seconds(answers[at]) for answers in self.rounds]))
            for at in range(len(self.cases))
        ]


def _seconds(answer: Answer) -> float:
    if "died" in answer:
        return float("inf")
    steps = sum(ns for test in answer.get("tests", ()) for ns in test["ns"])
    return float(answer.get("first", answer.get("ns", 0)) + steps) / 1e9


def _verdict(test: Answer) -> bool:
    return test["stopped"] is None and bool(test["may_end"])


def run_schemas(
    cases: list[Case], folder: Path, pythons: dict[str, str], options: Options, settings: dict[str, Any]
) -> dict[str, SchemaRecord]:
    """Every engine's answers; in each round another one begins."""
    tasks: list[Task] = [
        {"schema": case.schema, "options": settings, "tests": [one.tokens for one in case.tests]}
        for case in cases
    ]
    workers = {name: Worker(name, python, folder, options) for name, python in pythons.items()}
    records = {name: SchemaRecord(worker.version, cases) for name, worker in workers.items()}
    names = list(workers)
    for number in range(options.rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            records[name].rounds.append([workers[name].ask(task) for task in tasks])
    for worker in workers.values():
        worker.close()
    return records


def summarise_schemas(records: dict[str, SchemaRecord]) -> dict[str, Any]:
    """Each engine's counts and figures, and its ratios to llguidance on what both judge right."""
    base = records.get("llguidance")
    result: dict[str, Any] = {}
    for name, record in records.items():
        files, chosen = record.right_files(), record.right()
        if base:
            files, chosen = files & base.right_files(), chosen & base.right()
        seconds = record.file_seconds()
        row = {"version": record.version, **record.counts(), "longest_file_s": round(max(seconds), 3)}
        row |= record.figures(files, chosen)
        if base and record is not base and "step mean" in row:
            peer = base.figures(files, chosen)
            row["ratios"] = {bar: round(row[bar] / peer[bar], 3) for bar in BARS}
        result[name] = row
    return result


def show_schemas(cases: list[Case], result: dict[str, Any]) -> None:
    """The table."""
    num_tokens = sum(len(one.tokens) for case in cases for one in case.tests)
    num_texts = sum(len(case.tests) for case in cases)
    print(f"{len(cases)} files, {num_texts} texts of {num_tokens} tokens; microseconds")
    print(
        f"  {'':12}{'right':>7}{'refused':>9}{'wrong':>7}{'died':>6}{'files':>7}{'texts':>7}"
        f"{'first median / p99 / max':>32}{'step mean / median / p99 / max':>40}{'longest file, s':>17}"
    )
    for name, row in result.items():
        line = f"  {name:12}{row['right']:>7}{row['refused']:>9}{row['wrong']:>7}{row['died']:>6}"
        line += f"{row['files']:>7}{row['texts']:>7}"
        if "step mean" in row:
            line += f"{row['first median']:>13.0f} /{row['first p99']:>7.0f} /{row['first max']:>8.0f}"
            line += f"{row['step mean']:>13.1f} /{row['step median']:>6.1f} /{row['step p99']:>7.1f}"
            line += f" /{row['step max']:>7.0f}{row['longest_file_s']:>17.2f}"
        print(line)
    for name, row in result.items():
        marks = [
            f"{bar} {ratio:.2f}"
            + (f" (bar {BARS[bar]}{'' if ratio <= BARS[bar] else ', MISSED'})" if name == "treille" else "")
            for bar, ratio in row.get("ratios", {}).items()
        ]
        if name == "treille":
            over = row["longest_file_s"] > MAX_SECONDS
            marks.append(f"longest file {row['longest_file_s']:.2f} s (bar {MAX_SECONDS}{', MISSED' * over})")
        if marks:
            print(f"  {name} / llguidance: " + ", ".join(marks))
    print(flush=True)


def show_worst_schemas(cases: list[Case], records: dict[str, SchemaRecord], number: int) -> None:
    """The files on which Treille spends most: in the first mask, in its longest step, in all its steps."""
    record = records.get("treille")
    if record is None:
        return

    def of_file(name: str, at: int) -> tuple[float, float, float]:
        answers = records[name].rounds[0][at] if name in records else {}
        steps = [ns / 1e3 for test in answers.get("tests", ()) for ns in test["ns"]]
        first = answers.get("first", answers.get("ns", 0)) / 1e3
        return first, max(steps, default=0.0), sum(steps) / max(1, len(steps))

    for place, label in enumerate(("first", "longest step", "mean step")):
        worst = sorted(range(len(cases)), key=lambda at: -of_file("treille", at)[place])[:number]
        print(f"  {label}, Treille / llguidance in microseconds:")
        for at in worst:
            ours, theirs = of_file("treille", at)[place], of_file("llguidance", at)[place]
            print(f"  {ours:12.0f} /{theirs:10.0f}  {cases[at].name}, {len(cases[at].schema)} bytes")
    print(flush=True)


def bench_schemas(
    data: Path,
    folder: Path,
    pythons: dict[str, str],
    options: Options,
    *,
    order: str,
    quick: bool,
    worst: int,
) -> None:
    """Measures, prints the table, and the line of JSON."""
    cases = read_cases(pick(data, QUICK_FILES if quick else NUM_FILES, []), folder)
    records = run_schemas(cases, folder, pythons, options, {"property_order": order})
    result = summarise_schemas(records)
    show_schemas(cases, result)
    if worst:
        show_worst_schemas(cases, records, worst)
    summary = {"benchmark": "masks --schemas", "rounds": options.rounds, "clock": options.clock}
    print(json.dumps(summary | {"property_order": order, "files": len(cases), "engines": result}))
