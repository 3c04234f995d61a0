"""A JSON Schema in an engine's process: compiled afresh, and every instance followed token by token.

A task is `{schema, options, tests: [tokens, ...]}`, the answer `{first, tests}`, `{refused, keyword}` or
`{crashed}`. `first`: nanoseconds of "compile and first mask". Of each test, `ns`: of "accept a token and make
the next mask"; `stopped`: the place of the token that the mask did not allow, None if all were; `may_end`:
the text may end there; `faults`: what no mask may be, whatever the schema.
"""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

WARM_UP_SCHEMAS = [
    json.dumps(one)
    for one in (
        {"type": "object", "properties": {"up": {"type": "string", "pattern": "^a+$"}}, "required": ["up"]},
        {"type": "array", "items": {"type": "number", "minimum": -3}, "maxItems": 7},
        {"enum": ["warm", 1, None, {"up": [True]}]},
    )
]


class Refused(ValueError):
    """The engine refuses a schema: for the sake of a keyword, where it names one."""

    def __init__(self, keyword: str, reason: str) -> None:
        super().__init__(reason)
        self.keyword = keyword


class Engine(Protocol):
    """What is asked of an engine here; see `masks_peers.py`."""

    row: Any
    eos: int

    def forget(self) -> None: ...

    def schema(self, text: str, options: dict[str, Any]) -> Any: ...

    def matcher(self, grammar: Any) -> Any: ...

    def fill(self, matcher: Any) -> None: ...

    def accept(self, matcher: Any, token: int) -> bool: ...

    def again(self, grammar: Any, matcher: Any) -> Any: ...


def measure_schema(engine: Engine, task: dict[str, Any], clock: Callable[[], int]) -> dict[str, Any]:
    """The answer to a task. An engine's exception is an answer too."""
    engine.forget()
    gc.collect()
    start = clock()
    try:
        grammar = engine.schema(task["schema"], task["options"])
        matcher = engine.matcher(grammar)
        engine.fill(matcher)
        first = clock() - start
        tests = []
        for number, tokens in enumerate(task["tests"]):
            if number:
                matcher = engine.again(grammar, matcher)
                engine.fill(matcher)
            tests.append(follow(engine, matcher, tokens, clock))
    except Refused as error:
        return {"refused": str(error)[:500], "keyword": error.keyword, "ns": clock() - start}
    except Exception:
        return {"crashed": traceback.format_exc()[-1500:]}
    return {"first": first, "tests": tests}


def follow(engine: Engine, matcher: Any, tokens: list[int], clock: Callable[[], int]) -> dict[str, Any]:
    """Follows the tokens up to the first that the mask does not allow; the first mask is made already."""
    fill, accept, row = engine.fill, engine.accept, engine.row
    times: list[int] = []
    answer: dict[str, Any] = {"ns": times, "stopped": None, "may_end": False, "faults": []}
    for at, token in enumerate(tokens):
        if not row.any():
            answer["faults"].append(f"an empty mask before token {at}")
        if not allows(row, token):
            answer["stopped"] = at
            answer["faults"] += _taken_anyway(engine, matcher, token, at)
            return answer
        start = clock()
        try:
            taken = accept(matcher, token)
        except ValueError:  # from llguidance, for a matcher that has stopped
            taken = False
        if taken:
            fill(matcher)
        times.append(clock() - start)
        if not taken:
            answer["stopped"] = at
            answer["faults"].append(f"token {at} is in the mask and not taken")
            return answer
    answer["may_end"] = allows(row, engine.eos)
    return answer


def allows(row: Any, token: int) -> bool:
    """Whether a token's bit is set in a mask, uint32 [words]."""
    return bool(row[token >> 5] >> np.uint32(token & 31) & np.uint32(1))


def _taken_anyway(engine: Engine, matcher: Any, token: int, at: int) -> list[str]:
    """What is wrong if an engine says of a masked token that it would take it; asks only those that can."""
    ask = getattr(engine, "would_take", None)
    wrong = ask is not None and ask(matcher, token)
    return [f"token {at} is not in the mask and would be taken"] if wrong else []
