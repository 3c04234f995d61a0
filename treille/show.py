"""A program's run on the terminal: its text as it comes, then what it found and what it cost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import chain, groupby
from typing import Any

from rich.console import Console, Group
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from treille.dsl.events import FinishedEvent, PartialEvent, ProgramEvent, TextEvent, TextKind, VariableEvent
from treille.dsl.program import Program
from treille.dsl.protocol import UsageCounts
from treille.dsl.state import State

Branch = tuple[int, ...]

STYLES: Mapping[TextKind, str] = {"given": "dim", "forced": "cyan", "sampled": "bold green"}
LABEL_STYLE = "magenta"
# What a terminal would act upon (ESC above all) is shown as its picture instead.
PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}
PICTURES |= dict.fromkeys(range(128, 160), 65533)


def show(program: Program, backend: object, /, **arguments: Any) -> State:
    """Run the program and show it on stdout; returns its state. Arguments as for `Program.run`.

    Text that the program gave is dim, text that a constraint forced cyan, and what the model chose green;
    without colours where there is no terminal, or NO_COLOR is set. Raises as `Program.run` does.
    """
    return show_on(Console(), program, backend, arguments)


def show_on(console: Console, program: Program, backend: object, arguments: Mapping[str, Any]) -> State:
    """`show`, on a console of the caller's."""
    screen = Screen(console)
    found: list[VariableEvent] = []
    usage = UsageCounts()
    start = time.perf_counter()
    stream = program.stream(backend=backend, **arguments)
    with stream:
        try:
            for event in stream:
                screen.add(event)
                if isinstance(event, VariableEvent):
                    found.append(event)
                elif isinstance(event, FinishedEvent):
                    usage = event.usage
        finally:
            screen.close()
    console.print(summary(found, usage, time.perf_counter() - start))
    return stream.state


class Screen:
    """Writes text events, one branch at a time: others wait in a buffer until the one that is being
    written has finished a variable, or goes over into the branch that it came from."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Branch = ()
        self._live_has_found = False
        self._waiting: dict[Branch, list[TextEvent]] = {}
        self._open: dict[Branch, set[str]] = {}
        self._roles: dict[Branch, str | None] = {}
        self._at_line_start = True

    def add(self, event: ProgramEvent) -> None:
        """Show an event now or later."""
        if isinstance(event, (FinishedEvent, PartialEvent)):
            return
        names = self._open.setdefault(event.branch, set())
        is_live = event.branch == self._live
        if isinstance(event, VariableEvent):
            names.discard(event.name)
            self._live_has_found |= is_live
        else:
            if event.variable is not None:
                names.add(event.variable)
            if is_live:
                self._write(event)
            else:
                self._waiting.setdefault(event.branch, []).append(event)
        while (branch := self._next()) is not None:
            self._go_to(branch)

    def close(self) -> None:
        """Write what still waits, and end the line."""
        for branch in list(self._waiting):
            self._go_to(branch)
        self._end_line()

    def _next(self) -> Branch | None:
        """The branch to go to, if the live one can be left now: they are gone through as they came."""
        if self._open.get(self._live):
            return None
        may_leave = self._live_has_found or any(map(self._related, self._waiting))
        return next(iter(self._waiting), None) if may_leave else None

    def _related(self, branch: Branch) -> bool:
        """Whether one of this and the live branch began or joined the other: they do not run side by side."""
        shared = min(len(branch), len(self._live))
        return branch[:shared] == self._live[:shared]

    def _go_to(self, branch: Branch) -> None:
        self._live = branch
        waiting = self._waiting.pop(branch)
        self._live_has_found = any(event.variable for event in waiting) and not self._open.get(branch)
        self._label(f"── {branch_name(branch)}")
        for event in waiting:
            self._write(event)

    def _write(self, event: TextEvent) -> None:
        if not event.text:
            return
        if event.role != self._roles.get(event.branch):
            self._roles[event.branch] = event.role
            self._label(f"[{event.role}]" if event.role else "")
        text = event.text.translate(PICTURES)
        self._put(text, STYLES[event.kind])
        self._at_line_start = text.endswith("\n")

    def _label(self, text: str) -> None:
        self._end_line()
        if text:
            self._put(f"{text}\n", LABEL_STYLE)

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._put("\n", "")
            self._at_line_start = True

    def _put(self, text: str, style: str) -> None:
        # As a segment, because rich wraps texts and expands their tabs, and this may be half a line.
        segment = Segment(text, self._console.get_style(style))
        self._console.print(Segments([segment]), end="", soft_wrap=True)


def branch_name(branch: Branch) -> str:
    """How a branch is called on the screen."""
    return f"branch {'.'.join(map(str, branch))}" if branch else "the program goes on"


def summary(found: list[VariableEvent], usage: UsageCounts, seconds: float) -> Group:
    """Each variable with its value and type, and the tokens that it all took."""
    variables = Table("variable", "type")
    variables.add_column("value", overflow="fold")
    # Branches finish in any order: those of one fork are listed by their numbers.
    runs = (sorted(run, key=lambda event: event.branch) for _, run in groupby(found, key=_is_branched))
    for event in chain.from_iterable(runs):
        where = f" ({branch_name(event.branch)})" if event.branch else ""
        shown = event.value if isinstance(event.value, str) else repr(event.value)
        value = Text(shown.translate(PICTURES), style=STYLES["sampled"])
        variables.add_row(Text(event.name + where), type_name(event.value), value)
    tokens = Table("prefilled", "reused from cache", "generated", "tokens/s", "seconds")
    speed = usage.completion_tokens / seconds if seconds > 0 else 0.0
    counts = (usage.prompt_tokens - usage.cached_tokens, usage.cached_tokens, usage.completion_tokens)
    tokens.add_row(*map(str, counts), f"{speed:.1f}", f"{seconds:.2f}")
    return Group(variables, tokens) if found else Group(tokens)


def _is_branched(event: VariableEvent) -> bool:
    return bool(event.branch)


def type_name(value: object) -> str:
    """The name of a value's type; of a list's, with that of its items."""
    if isinstance(value, list) and value:
        return f"list[{type(value[0]).__name__}]"
    return type(value).__name__
