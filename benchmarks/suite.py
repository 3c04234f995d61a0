"""How much of JSON-Schema-Test-Suite is judged right? A table by draft, every refusal with its reason.

    python benchmarks/suite.py --data FOLDER       # the unpacked suite; or TREILLE_TEST_DATA

Required tests are judged with `format` as an annotation, as the suite has it, those of optional/format with
`format` asserted. A schema that nothing satisfies is refused by the engine; where the suite calls every
instance invalid, these count as right, and in a column of their own. Then what was judged wrong: invalid
instances accepted, valid ones rejected. Ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from suite_cases import DRAFTS, Group, Outcome, byte_vocabulary, judge, read_groups, suite_folder

from treille.runtime.grammar import Vocabulary

COLUMNS = {
    "groups": 8,
    "compiled": 10,
    "tests": 7,
    "right": 7,
    "percent": 9,
    "rightly_empty": 15,
    "accepted": 10,
    "rejected": 10,
    "crashed": 9,
    "seconds": 9,
}
PARTS = {"required": ("", "annotation"), "optional/format": ("optional/format", "assert")}


def judge_safely(group: Group, vocab: Vocabulary, formats: str) -> tuple[Outcome, str | None]:
    """The outcome, and the traceback of an exception that is no answer."""
    try:
        return judge(group, vocab, formats=formats), None
    except Exception:
        return Outcome(group), traceback.format_exc()


def main() -> None:
    """Runs what the options say and prints it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("TREILLE_TEST_DATA")
    parser.add_argument("--data", type=Path, default=Path(data) if data else None, help="the suite's folder")
    parser.add_argument("--draft", action="append", choices=list(DRAFTS), help="may be repeated")
    parser.add_argument("--part", action="append", help="required, optional/format, or another; repeatable")
    parser.add_argument("--file", help="only files with this name, without .json")
    parser.add_argument("--formats", choices=["assert", "annotation"], help="instead of what a part asks for")
    parser.add_argument("--quiet", action="store_true", help="no list of refusals")
    args = parser.parse_args()
    folder = suite_folder(args.data) if args.data else None
    if folder is None:
        raise SystemExit("name the unpacked suite with --data or TREILLE_TEST_DATA")
    vocab = byte_vocabulary()
    results: dict[str, Any] = {}
    print(f"{'':30}" + "".join(f"{title:>{width}}" for title, width in COLUMNS.items()))
    listed: list[str] = []
    for part in args.part or PARTS:
        sub, formats = PARTS.get(part, (part, "assert"))
        for draft in args.draft or DRAFTS:
            start = time.perf_counter()
            groups = [one for one in read_groups(folder, draft, sub) if args.file in (None, one.file)]
            pairs = [judge_safely(one, vocab, args.formats or formats) for one in groups]
            row = count([outcome for outcome, _ in pairs], [one for _, one in pairs if one])
            row["seconds"] = round(time.perf_counter() - start, 1)
            results[f"{draft} {part}"] = row
            print(show_row(f"{draft} {part}", row), flush=True)
            listed += describe(f"{draft} {part}", pairs, quiet=args.quiet)
    print("\n".join(["", *listed]))
    print(json.dumps({"benchmark": "suite", "parts": results}))


def count(outcomes: list[Outcome], crashes: list[str]) -> dict[str, Any]:
    """A row: tests are right if judged so, or if their schema is refused because nothing satisfies it."""
    tests = sum(len(one.group.tests) for one in outcomes)
    empty = sum(len(one.group.tests) for one in outcomes if one.is_rightly_empty)
    right = sum(one.num_right for one in outcomes) + empty
    return {
        "groups": len(outcomes),
        "compiled": sum(one.refusal is None for one in outcomes) - len(crashes),
        "tests": tests,
        "right": right,
        "percent": round(100 * right / max(1, tests), 2),
        "rightly_empty": empty,
        "accepted": sum(len(one.accepted) for one in outcomes),
        "rejected": sum(len(one.rejected) for one in outcomes),
        "crashed": len(crashes),
        "refused_by_keyword": dict(
            Counter(one.refusal[0] for one in outcomes if one.refusal and not one.is_rightly_empty)
        ),
    }


def show_row(name: str, row: dict[str, Any]) -> str:
    """A line of the table."""
    return f"{name:30}" + "".join(f"{row[title]:>{width}}" for title, width in COLUMNS.items())


def describe(name: str, pairs: list[tuple[Outcome, str | None]], *, quiet: bool) -> list[str]:
    """What is wrong or crashed, and unless `quiet` what is refused."""
    lines = []
    for outcome, crash in pairs:
        group = outcome.group
        where = f"{name}/{group.file}: {group.description}"
        lines += [f"ACCEPTED {name}/{one}" for one in outcome.accepted]
        lines += [f"REJECTED {name}/{one}" for one in outcome.rejected]
        if crash:
            lines.append(f"CRASHED {where}: {json.dumps(group.schema)}\n{crash[-900:]}")
        if outcome.refusal and not outcome.is_rightly_empty and not quiet:
            lines.append(f"refused {where} ({len(group.tests)} tests): {': '.join(outcome.refusal)[:240]}")
    return lines


if __name__ == "__main__":
    main()
