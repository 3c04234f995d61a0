"""What node's regular expressions say, where node is installed: one process that answers line by line."""

from __future__ import annotations

import json
import shutil
import subprocess
from types import TracebackType

_PROGRAM = """
require("readline").createInterface({input: process.stdin}).on("line", line => {
  const [pattern, texts] = JSON.parse(line);
  let answer;
  try {
    const search = new RegExp(pattern, "u");
    const whole = new RegExp("^(?:" + pattern + ")$", "u");
    answer = texts.map(text => [whole.test(text), search.test(text)]);
  } catch (error) { answer = null; }
  console.log(JSON.stringify(answer));
});
"""


def is_installed() -> bool:
    """Whether there is a node to ask."""
    return shutil.which("node") is not None


class NodeRegex:
    """ECMA-262 regular expressions with the u flag, as node has them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", "-e", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, pattern: str, texts: list[str]) -> list[tuple[bool, bool]] | None:
        """For every text, whether all of it and whether some of it matches; None for what is no pattern."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([pattern, texts]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return None if answer is None else [(whole, found) for whole, found in answer]

    def __enter__(self) -> NodeRegex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(timeout=30)
