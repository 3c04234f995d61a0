"""The interpreter: executes one state's operations in order, on the run's event loop.

Operations come in through `push` as fast as the program says them; the interpreter does one after the
other and resolves the futures of their variables. Two states of one run have one interpreter each and
run side by side.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol

from treille.dsl.choosing import choose
from treille.dsl.errors import CutOff, GenerationFailed, ProgramCancelled, WrongText
from treille.dsl.events import PartialEvent, ProgramEvent, TextEvent, TextKind, VariableEvent
from treille.dsl.location import Location
from treille.dsl.nodes import (
    Cache,
    CloseCapture,
    CloseTurn,
    Fork,
    Generate,
    Literal,
    OpenCapture,
    OpenTurn,
    Operation,
    Select,
    Sync,
)
from treille.dsl.prompts import extend
from treille.dsl.protocol import (
    Backend,
    ChoiceScore,
    GenOptions,
    Message,
    PinningBackend,
    Prompt,
    Role,
    UsageCounts,
)
from treille.dsl.results import Result, Selection, Variable
from treille.dsl.samples import Mismatch, collect, result_of
from treille.dsl.schemas import JsonType


class Context(Protocol):
    """What an interpreter needs of its run; called on the loop's thread only."""

    backend: Backend
    defaults: GenOptions

    async def admit(self, prompt: Prompt) -> None: ...
    def emit(self, event: ProgramEvent) -> None: ...
    def count(self, usage: UsageCounts) -> None: ...
    def hold(self, release: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class Step:
    """An operation, the program's line, and what to resolve when it is done."""

    operation: Operation
    where: Location
    variable: Variable | None = None
    synced: Future[Prompt] | None = None
    branches: tuple[Interpreter, ...] = ()


class Interpreter:
    """Executes the steps of one state. All methods are called on the run's loop.

    `path` and `label` name the branch in events and errors. A branch's interpreter is made `waiting`: it
    keeps its steps until the parent has reached the fork and calls `begin`.
    """

    def __init__(
        self, context: Context, *, path: tuple[int, ...] = (), label: str = "", waiting: bool = False
    ) -> None:
        self.path = path
        self.label = label
        self.prompt = Prompt()
        self._context = context
        self._waiting = waiting
        self._steps: deque[Step] = deque()
        self._current: Step | None = None
        self._failure: GenerationFailed | ProgramCancelled | None = None
        self._task: asyncio.Task[None] | None = None
        self._captures: dict[str, list[str]] = {}

    @property
    def failure(self) -> GenerationFailed | ProgramCancelled | None:
        """Why the state cannot go on, if it cannot."""
        return self._failure

    def push(self, steps: Sequence[Step]) -> None:
        """Queue steps. After a failure they are skipped, and their variables get the failure."""
        self._steps.extend(steps)
        self._go_on()

    def begin(self, prompt: Prompt) -> None:
        """The parent has reached the fork, with this prompt."""
        self.prompt = prompt
        self._waiting = False
        self._go_on()

    def fail(self, failure: GenerationFailed | ProgramCancelled) -> None:
        """The parent failed before the fork, and this branch with it."""
        self._failure = self._failure or failure
        self._skip_all()

    @property
    def is_idle(self) -> bool:
        """Every step that was pushed is done."""
        return self._current is None and not self._steps and not self._waiting

    def stop(self) -> asyncio.Task[None] | None:
        """Abort what runs, and fail what waits or comes; returns the task that is cancelled, if one is."""
        self._failure = self._failure or ProgramCancelled()
        task = self._task
        if task is not None:
            task.cancel()
        self._skip_all()
        return task

    def _go_on(self) -> None:
        if self._failure is not None:
            self._skip_all()
        elif not self._waiting and self._task is None and self._steps:
            self._task = asyncio.get_running_loop().create_task(self._drain())

    def _skip_all(self) -> None:
        if self._failure is None:
            return
        for step in [self._current, *self._steps]:
            if step is not None:
                _skip(step, self._failure)
        self._steps.clear()

    async def _drain(self) -> None:
        try:
            while self._steps:
                self._current = step = self._steps.popleft()
                try:
                    await self._execute(step)
                except (Exception, asyncio.CancelledError) as error:
                    # Cancelled by `stop`, or by something within the backend, which is a failure like others.
                    self._failure = self._failure or self._explain(error, step)
                    self._skip_all()
                self._current = None
        finally:
            self._task = None

    def _explain(self, error: BaseException, step: Step) -> GenerationFailed:
        operation = step.operation
        word = type(operation).__name__.lower().replace("generate", "gen")
        name = f" {step.variable.name!r}" if step.variable is not None else ""
        if isinstance(error, Mismatch):
            return self._wrong(error, f"{word}{name}: {error}", step.where)
        text = f"{word}{name}: {_named(error)}"
        failure = GenerationFailed(text, where=step.where, branch=self.label)
        failure.__cause__ = error
        return failure

    def _wrong(self, error: Mismatch, message: str, where: Location) -> GenerationFailed:
        if error.text is None:
            return GenerationFailed(message, where=where, branch=self.label)
        kind = CutOff if error.is_cut else WrongText
        failure = kind(message, text=error.text, texts=error.texts, where=where, branch=self.label)
        failure.__cause__ = error.__cause__
        return failure

    async def _execute(self, step: Step) -> None:
        match step.operation:
            case Literal(text):
                self._write(text, "given", None)
            case OpenTurn(role):
                self.prompt = Prompt((*self.prompt.parts, Message(role, "", open=True)))
            case CloseTurn():
                *head, last = self.prompt.parts
                if isinstance(last, Message):
                    self.prompt = Prompt((*head, replace(last, open=False)))
            case OpenCapture(name):
                self._captures[name] = []
            case CloseCapture(name):
                text = "".join(self._captures.pop(name))
                self._resolve(step, Result(text, text, None))
            case Generate() as operation:
                await self._generate(step, operation)
            case Select() as operation:
                await self._select(step, operation)
            case Fork():
                await self._fork(step)
            case Cache():
                await self._pin()
            case Sync():
                if step.synced is not None:
                    step.synced.set_result(self.prompt)

    async def _generate(self, step: Step, operation: Generate) -> None:
        options = operation.options.over(self._context.defaults)
        is_single = options.num_samples == 1

        kind, name = operation.type, operation.name
        raw = ""

        def on_text(text: str, text_kind: TextKind) -> None:
            nonlocal raw
            if not is_single:
                return
            self._announce(text, text_kind, name)
            if text and name is not None and isinstance(kind, JsonType):
                raw += text
                self._context.emit(PartialEvent(name=name, raw=raw, type=kind, branch=self.path))

        await self._context.admit(self.prompt)
        generations, usage = await collect(self._context.backend, self.prompt, options, on_text)
        self._context.count(usage)
        result = result_of(generations, operation.type, options)
        if is_single:
            self._append(generations[0].text)
        self._resolve(step, result)

    async def _select(self, step: Step, operation: Select) -> None:
        backend, choices = self._context.backend, operation.choices
        await self._context.admit(self.prompt)
        scored = await backend.score(self.prompt, choices)
        self._context.count(scored.usage)
        unconditional: tuple[ChoiceScore, ...] = ()
        if operation.method == "unconditional_likelihood_normalized":
            base = await backend.score(Prompt(), choices)
            self._context.count(base.usage)
            unconditional = base.scores
        chosen = choices[choose(operation.method, scored.scores, unconditional)]
        self._write(chosen, "sampled", operation.name)
        meta = Selection(
            method=operation.method, choices=choices, scores=scored.scores, unconditional=unconditional
        )
        self._resolve(step, Result(chosen, chosen, meta))

    async def _fork(self, step: Step) -> None:
        if self.prompt.parts and len(step.branches) > 1:
            await self._context.admit(self.prompt)
            self._context.count(await self._context.backend.prime(self.prompt))
        for branch in step.branches:
            branch.begin(self.prompt)

    async def _pin(self) -> None:
        backend = self._context.backend
        if self.prompt.parts and isinstance(backend, PinningBackend):
            await self._context.admit(self.prompt)
            pinned = await backend.pin(self.prompt)
            self._context.hold(pinned.release)
            self._context.count(pinned.usage)

    def _write(self, text: str, kind: TextKind, variable: str | None) -> None:
        self._announce(text, kind, variable)
        self._append(text)

    def _append(self, text: str) -> None:
        self.prompt = extend(self.prompt, text)
        for pieces in self._captures.values():
            pieces.append(text)

    def _announce(self, text: str, kind: TextKind, variable: str | None) -> None:
        if text:
            event = TextEvent(text=text, kind=kind, role=self._role, variable=variable, branch=self.path)
            self._context.emit(event)

    def _resolve(self, step: Step, result: Result) -> None:
        if step.variable is not None:
            name = step.variable.name
            event = VariableEvent(name=name, value=result.value, raw=result.raw, branch=self.path)
            self._context.emit(event)
            step.variable.future.set_result(result)

    @property
    def _role(self) -> Role | None:
        last = self.prompt.parts[-1] if self.prompt.parts else None
        return last.role if isinstance(last, Message) and last.open else None


def _skip(step: Step, failure: GenerationFailed | ProgramCancelled) -> None:
    futures: list[Future[Any]] = [step.synced] if step.synced is not None else []
    if step.variable is not None:
        futures.append(step.variable.future)
    for future in futures:
        if not future.done():
            future.set_exception(failure)
    for branch in step.branches:
        branch.fail(failure)


def _named(error: BaseException) -> str:
    """An error with its type's name in front, where its words do not begin with that."""
    name, text = type(error).__name__, str(error)
    words = re.sub("(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return text if text.startswith(words) else f"{name}: {text}"
