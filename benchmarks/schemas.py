"""How many of MaskBench's files are judged right, and how long does it take?

    python benchmarks/schemas.py --data MASKBENCH                    # see benchmarks/README.md
    python benchmarks/schemas.py --data MASKBENCH --engine llguidance --python PEERS/bin/python

Each schema is compiled and each instance followed, token by token, once with properties in the schema's order
and once in any order. A file is all right if it compiles and every instance gets the verdict that it should:
every token in the mask and the end at its end for a valid one, and not so for an invalid one. A file that
crashes, or takes too long, is counted and ends nothing. Prints a table, the files at fault and the refusals
by keyword, and ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from masks_vocabularies import vocabulary_folder
from masks_workers import Answer, Options, Task, Worker
from schemas_inputs import COMPACT, DEFAULT, Case, pick, read_cases

ORDERS = ("any", "schema")
BARS = {"any": 98.5, "schema": 95.5}


def ask_all(tasks: list[Task], make: Any, num_jobs: int) -> list[Answer]:
    """The answers to the tasks, by as many workers as there are jobs."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(tasks)):
        waiting.put(number)
    answers: list[Answer] = [{"died": "its worker did not start"} for _ in tasks]

    def work() -> None:
        worker = make()
        try:
            while True:
                try:
                    number = waiting.get_nowait()
                except queue.Empty:
                    return
                answers[number] = worker.ask(tasks[number])
                left = waiting.qsize()
                if sys.stderr.isatty() or left % 100 == 0:
                    print(f"\r{left:6} files to go ", end="", file=sys.stderr, flush=True)
        finally:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(max(1, num_jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(file=sys.stderr)
    return answers


def verdict(test: Answer) -> bool:
    """Whether the engine takes an instance."""
    return test["stopped"] is None and bool(test["may_end"])


def judge(case: Case, answer: Answer) -> dict[str, Any]:
    """What a file's answer comes to: `kind` (right, wrong, refused, died, crashed) and details."""
    for kind in ("refused", "died", "crashed"):
        if kind in answer:
            return {"kind": kind, "keyword": answer.get("keyword"), "text": answer[kind]}
    wrong: dict[str, list[str]] = {"rejects": [], "accepts": [], "faults": []}
    for number, (instance, test) in enumerate(zip(case.tests, answer["tests"], strict=True)):
        wrong["faults"] += [f"test {number}: {one}" for one in test["faults"]]
        if verdict(test) != instance.valid:
            kind = "rejects" if instance.valid else "accepts"
            wrong[kind].append(f"test {number}: {_place(case, number, test)}")
    kind = "wrong" if any(wrong.values()) else "right"
    return {"kind": kind, **wrong}


def _place(case: Case, number: int, test: Answer) -> str:
    """Where an instance is stopped: the last of its text before."""
    instance = case.tests[number]
    if test["stopped"] is None:
        return repr(instance.text[:200]) if test["may_end"] else f"may not end after {instance.text[-60:]!r}"
    at, data = instance.starts[test["stopped"]], instance.text.encode()
    before, after = (
        part.decode(errors="replace") for part in (data[max(0, at - 60) : at], data[at : at + 20])
    )
    return f"stopped after {before!r}, before {after!r}"


def summarise(judged: list[dict[str, Any]], answers: list[Answer]) -> dict[str, Any]:
    """Counts and times over all files."""
    kinds = Counter(one["kind"] for one in judged)
    first = np.array([one["first"] for one in answers if "first" in one], np.float64) / 1e6
    steps = [ns for one in answers if "first" in one for test in one["tests"] for ns in test["ns"]]
    micro = np.array(steps, np.float64) / 1e3
    result: dict[str, Any] = {
        "files": len(judged),
        "right": kinds["right"],
        "right_percent": round(100 * kinds["right"] / max(1, len(judged)), 2),
        **{kind: kinds[kind] for kind in ("refused", "died", "crashed")},
        "rejects_valid": sum(bool(one.get("rejects")) for one in judged),
        "accepts_invalid": sum(bool(one.get("accepts")) for one in judged),
        "faults": sum(bool(one.get("faults")) for one in judged),
        "refused_by_keyword": dict(
            Counter(str(one["keyword"]) for one in judged if one["kind"] == "refused").most_common()
        ),
    }
    if len(first) and len(micro):
        result["first_ms"] = _spread(first)
        result["step_us"] = _spread(micro)
    return result


def _spread(values: Any) -> dict[str, float]:
    found = {"mean": values.mean(), "median": np.median(values), "p99": np.percentile(values, 99)}
    return {name: round(float(one), 2) for name, one in {**found, "max": values.max()}.items()}


def show(
    order: str, cases: list[Case], judged: list[dict[str, Any]], result: dict[str, Any], most: int
) -> None:
    """The table of one order, and the files at fault, `most` of each kind."""
    print(
        f"property_order={order}: {result['files']} files, {result['right']} all right "
        f"({result['right_percent']:.2f} %), {result['refused']} refused, {result['died']} died, "
        f"{result['crashed']} crashed, {result['rejects_valid']} reject a valid one, "
        f"{result['accepts_invalid']} accept an invalid one, {result['faults']} with a faulty mask"
    )
    for name, unit in (("first_ms", "compile + first mask, ms"), ("step_us", "accept + mask, us")):
        if name in result:
            print(f"  {unit}: " + ", ".join(f"{key} {one}" for key, one in result[name].items()))
    if result["refused_by_keyword"]:
        refusals = ", ".join(f"{key!r} {one}" for key, one in result["refused_by_keyword"].items())
        print(f"  refused: {refusals}")
    for kind in ("accepts", "rejects", "faults"):
        chosen = [(case, one) for case, one in zip(cases, judged, strict=True) if one.get(kind)]
        for case, one in chosen[:most]:
            print(f"  {kind}: {case.name}: {'; '.join(one[kind])[:300]}")
    for kind in ("crashed", "died", "refused"):
        chosen = [(case, one) for case, one in zip(cases, judged, strict=True) if one["kind"] == kind]
        for case, one in chosen[:most]:
            last = str(one["text"]).strip().splitlines()[-1] if one["text"] else ""
            print(f"  {kind}: {case.name}: {last[:240]}")
    print(flush=True)


def main() -> None:
    """Runs what the options say and prints it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("TREILLE_TEST_DATA")
    parser.add_argument("--data", type=Path, default=Path(data) if data else None, help="MaskBench's files")
    parser.add_argument("--engine", choices=["treille", "llguidance", "xgrammar"], default="treille")
    parser.add_argument("--python", default=sys.executable, help="the Python of the engine's environment")
    parser.add_argument("--order", choices=ORDERS, action="append", help="may be repeated; both by default")
    parser.add_argument("--compact", action="store_true", help="instances without spaces")
    parser.add_argument("--whitespace", help="the compiler's option of that name")
    parser.add_argument("--files", type=int, help="so many, spread evenly")
    parser.add_argument("--only", action="append", default=[], help="files with this in their names")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60, help="seconds that a file may take")
    parser.add_argument("--memory", type=float, default=8, help="GiB that a process may have")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: for a busy machine")
    parser.add_argument("--list", type=int, default=40, help="show so many files of each kind of fault")
    parser.add_argument("--out", type=Path, help="write what each file came to there, as JSON")
    args = parser.parse_args()
    if args.data is None:
        raise SystemExit("name MaskBench's folder with --data or TREILLE_TEST_DATA")
    folder = vocabulary_folder("smollm2", Path())
    cases = read_cases(pick(args.data, args.files, args.only), folder, COMPACT if args.compact else DEFAULT)
    options = Options(1, args.limit, args.clock, "schemas", args.memory)
    results, details = {}, {}
    orders = args.order or (ORDERS if args.engine == "treille" else ORDERS[1:])
    for order in orders:
        settings = {"property_order": order, "escapes": "any"} | (
            {"whitespace": args.whitespace} if args.whitespace else {}
        )
        tasks = [
            {"schema": case.schema, "options": settings, "tests": [one.tokens for one in case.tests]}
            for case in cases
        ]
        answers = ask_all(tasks, lambda: Worker(args.engine, args.python, folder, options), args.jobs)
        judged = [judge(case, answer) for case, answer in zip(cases, answers, strict=True)]
        results[order] = summarise(judged, answers)
        show(order, cases, judged, results[order], args.list)
        details[order] = {
            case.name: one | {"first_ms": round(answer.get("first", answer.get("ns", 0)) / 1e6, 2)}
            for case, one, answer in zip(cases, judged, answers, strict=True)
        }
        if args.engine == "treille" and not args.only:
            reached = results[order]["right_percent"] >= BARS[order] and not results[order]["accepts_invalid"]
            print(f"bar: {BARS[order]} % all right, none accepted: {'held' if reached else 'MISSED'}\n")
    if args.out:
        args.out.write_text(json.dumps(details, indent=1), encoding="utf-8")
    print(json.dumps({"benchmark": "schemas", "engine": args.engine, "orders": results}))


if __name__ == "__main__":
    main()
