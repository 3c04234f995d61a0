"""`Worker`: one engine's process, asked in lines of JSON; and how to measure."""

from __future__ import annotations

import json
import selectors
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("masks_peers.py")
START_SECONDS = 600
Task = dict[str, Any]
Answer = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """How to measure: rounds, seconds that one input may take, whose time ("wall" or "cpu"), what the inputs
    are ("patterns" or "schemas"), and the memory that a process may have, in GiB (None: all)."""

    rounds: int
    limit: float
    clock: str
    kind: str = "patterns"
    memory: float | None = None


class Worker:
    """One engine's process. A task that kills it or takes too long is answered so, and it begins anew."""

    def __init__(self, engine: str, python: str, folder: Path, options: Options) -> None:
        self._command = [python, str(WORKER), engine, str(folder), options.clock, options.kind]
        if options.memory is not None:
            self._command.append(str(options.memory))
        self._limit = options.limit
        self._begin()

    def _begin(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=WORKER.parent
        )
        answer = self._answer(START_SECONDS)
        if "version" not in answer:
            raise SystemExit(f"{' '.join(self._command)} did not start")
        self.version = str(answer["version"])

    def ask(self, task: Task) -> Answer:
        """The worker's answer to a task."""
        pipe = self._process.stdin
        if pipe is None:
            raise RuntimeError("the worker has no pipe")
        try:
            pipe.write(json.dumps(task) + "\n")
            pipe.flush()
            answer = self._answer(self._limit)
        except BrokenPipeError:
            self.close()
            answer = {"died": "it crashed"}
        if "died" in answer:
            self._begin()
        return answer

    def _answer(self, limit: float) -> Answer:
        pipe = self._process.stdout
        if pipe is None:
            raise RuntimeError("the worker has no pipe")
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            in_time = bool(selector.select(limit))
        line = pipe.readline() if in_time else ""
        if line.startswith("{"):
            answer: Answer = json.loads(line)
            return answer
        self.close()
        return {"died": "it crashed" if in_time else f"it took over {limit:.0f} s"}

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        try:
            self._process.communicate()
        except BrokenPipeError:  # what was written last, it never read
            self._process.wait()
