"""`State`: what a program's first parameter is. Adding to it returns at once; reading waits.

A state belongs to the one thread that runs the program (a branch of a fork may be given to another).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import count
from types import TracebackType
from typing import Never, NoReturn

from treille.dsl.errors import GenerationFailed, InvalidExpression, ProgramError, UnknownVariable
from treille.dsl.interpreter import Interpreter, Step
from treille.dsl.location import Location, caller
from treille.dsl.nodes import (
    Cache,
    CloseCapture,
    CloseTurn,
    Expression,
    Fork,
    Generate,
    OpenCapture,
    OpenTurn,
    Operation,
    Select,
    Sync,
    as_expression,
    check_no_turn,
    lower,
)
from treille.dsl.protocol import Message, Prompt, Role, UsageCounts
from treille.dsl.results import Meta, Result, Selection, Variable
from treille.dsl.run import Run

MAX_BRANCHES = 1024


class State:
    """A text that grows, and the variables found on the way.

    `s += "text"`, `s += gen(...)`, or any concatenation of them adds to it. `s[name]` is a variable's
    typed value, `s.raw(name)` its text; both wait for the generation. `branch` is the path of a fork's
    branch (`()` for the program's own state), `returned` what the program's function returned.
    """

    def __init__(
        self,
        run: Run,
        interpreter: Interpreter,
        *,
        role: Role | None = None,
        variables: Mapping[str, Variable] | None = None,
    ) -> None:
        self.returned: object = None
        self._run = run
        self._interpreter = interpreter
        self._role = role
        self._variables: dict[str, Variable] = dict(variables or {})
        self._captures: list[str] = []
        self._branch_numbers = count()
        self._forked: list[State] = []
        run.add(interpreter)

    def __repr__(self) -> str:
        branch = f" of branch {self._interpreter.label}" if self._interpreter.label else ""
        return f"<state{branch}: {', '.join(self._variables) or 'no variables'}>"

    # Adding.

    def __iadd__(self, other: str | Expression) -> State:
        where = caller()
        self._submit(lower(as_expression(other, where), self._role, where), where)
        return self

    # Never: type checkers go on refusing it.
    def __add__(self, other: Never) -> NoReturn:
        raise ProgramError("a state is added to in place: write s += ..., not s + ...", where=caller())

    @contextmanager
    def system(self) -> Iterator[State]:
        """Everything added within the `with` is the system's turn."""
        with self._turn("system", caller()):
            yield self

    @contextmanager
    def user(self) -> Iterator[State]:
        """Everything added within the `with` is the user's turn."""
        with self._turn("user", caller()):
            yield self

    @contextmanager
    def assistant(self) -> Iterator[State]:
        """Everything added within the `with` is the assistant's turn."""
        with self._turn("assistant", caller()):
            yield self

    @contextmanager
    def capture(self, name: str) -> Iterator[State]:
        """Name the stretch of text that is added within the `with`; readable once the `with` is over.

        The stretch is the text alone, over the borders of turns, without what a fork's branches add.
        """
        where = caller()
        if not isinstance(name, str) or not name:
            raise InvalidExpression(f"capture: name must be a non-empty string, not {name!r}", where=where)
        if name in self._captures:
            raise ProgramError(f"{name!r} is being captured already", where=where)
        self._submit([OpenCapture(name)], where)
        self._captures.append(name)
        try:
            yield self
        finally:
            self._captures.remove(name)
            self._submit([CloseCapture(name)], where)

    def cache(self) -> None:
        """Keep the text so far in the backend's cache until this run is over, however it ends.

        It is computed at once, and nothing evicts it meanwhile. This is a hint and changes no text: a backend
        whose cache cannot be told what to keep takes no notice, and an engine that has no room for another
        pin, or no prefix cache, only computes it.
        """
        self._submit([Cache()], caller())

    def fork(self, n: int = 2) -> Branches:
        """`n` branches that go on from here side by side; the text so far is computed once for all.

        A branch sees this state's variables and an open turn. Its own text and variables stay its own:
        read them by `branches[i][name]`. This state goes on without them.
        """
        where = caller()
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_BRANCHES:
            raise InvalidExpression(
                f"fork: n must be a whole number from 1 to {MAX_BRANCHES}, not {n!r}", where=where, field="n"
            )
        interpreters = tuple(self._branch(index) for index in range(n))
        self._run.post(self._interpreter, [Step(Fork(n), where, branches=interpreters)], where)
        states = [
            State(self._run, interpreter, role=self._role, variables=self._variables)
            for interpreter in interpreters
        ]
        self._forked += states
        return Branches(states)

    # Reading.

    def __getitem__(self, name: str) -> object:
        return self._read(name).value

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    def raw(self, name: str) -> str | list[str]:
        """A variable's text (with `n > 1` the list of texts). Waits for it."""
        return self._read(name).raw

    def meta(self, name: str) -> Meta:
        """How a variable came about: a `Generation` (several with `n > 1`), a `Selection`, or None."""
        return self._read(name).meta

    def scores(self, name: str) -> dict[str, tuple[float, ...]]:
        """For a `select`: each choice's token log-probabilities, given the text before it."""
        meta = self._read(name).meta
        if not isinstance(meta, Selection):
            raise ProgramError(f"{name!r} was not selected: it has no scores", where=caller())
        pairs = zip(meta.choices, meta.scores, strict=True)
        return {choice: score.logprobs for choice, score in pairs}

    def variables(self) -> dict[str, object]:
        """Every variable's value by name, in order of their first appearance. Waits for all of them."""
        return {name: self._read(name).value for name in self._variables}

    def text(self) -> str:
        """All text so far, turns simply joined, without what a chat template adds. Waits for it."""
        return self._prompt().text

    def messages(self) -> list[dict[str, str]]:
        """The turns so far as `{"role": ..., "content": ...}`; an open one counts. Waits for them."""
        parts = self._prompt().parts
        return [{"role": part.role, "content": part.content} for part in parts if isinstance(part, Message)]

    @property
    def usage(self) -> UsageCounts:
        """Tokens of all requests of this run that are over, its forks included. Does not wait."""
        return self._run.usage

    @property
    def branch(self) -> tuple[int, ...]:
        """The path of this branch: numbers count the branches that each state has had."""
        return self._interpreter.path

    # Within.

    @contextmanager
    def _turn(self, role: Role, where: Location) -> Iterator[None]:
        check_no_turn(role, self._role, where)
        self._submit([OpenTurn(role)], where)
        self._role = role
        try:
            yield
        finally:
            self._role = None
            self._submit([CloseTurn()], where)

    def _submit(self, operations: Iterable[Operation], where: Location) -> None:
        steps: list[Step] = []
        for operation in operations:
            name = operation.name if isinstance(operation, (Generate, Select, CloseCapture)) else None
            variable = None if name is None else Variable(name)
            steps.append(Step(operation, where, variable))
        self._run.post(self._interpreter, steps, where)
        for step in steps:
            if step.variable is not None:
                self._variables[step.variable.name] = step.variable

    def _branch(self, index: int) -> Interpreter:
        parent = self._interpreter
        label = f"{parent.label}.{index}" if parent.label else str(index)
        path = (*parent.path, next(self._branch_numbers))
        return Interpreter(self._run, path=path, label=label, waiting=True)

    def _read(self, name: str) -> Result:
        variable = self._variables.get(name)
        if variable is None:
            raise UnknownVariable(self._unknown(name), where=caller(), branch=self._interpreter.label)
        return self._run.wait(variable.future)

    def _unknown(self, name: object) -> str:
        if name in self._captures:
            return f"{name!r} is still being captured: read it after the with"
        if any(name in branch for branch in self._forked):
            return f"{name!r} is a variable of a fork's branches: read it by branches[i][{name!r}]"
        close = get_close_matches(str(name), self._variables, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"no variable {name!r} has been generated, selected or captured so far{hint}"

    def _prompt(self) -> Prompt:
        if self._run.is_over:
            if self._interpreter.failure is not None:
                raise self._interpreter.failure
            return self._interpreter.prompt
        synced: Future[Prompt] = Future()
        where = caller()
        self._run.post(self._interpreter, [Step(Sync(), where, synced=synced)], where)
        return self._run.wait(synced)


class Branches(list[State]):
    """The branches of a fork: a list of states. As a `with` it joins them at the end."""

    def join(self) -> list[State]:
        """Wait until every branch has done all that it was told so far.

        Raises the failure of the first branch (by index) that failed, once all are done.
        """
        failures: list[GenerationFailed] = []
        for state in self:
            try:
                state.text()
            except GenerationFailed as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return list(self)

    def __enter__(self) -> Branches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.join()
