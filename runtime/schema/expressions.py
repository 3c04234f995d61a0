"""`Expressions`: languages of a document and their intersections in one arena, made when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.arena import Arena, ArenaFull
from treille.runtime.grammar.build import MAX_TRACKERS, NO_LEXER, assemble, empty_store
from treille.runtime.grammar.states import IS_LIVE, START
from treille.runtime.grammar.store import WHOLE, Int64s
from treille.runtime.schema.programs import Programs
from treille.runtime.schema.strings import Strings

NUM_FIXED = 4
"""Rows that all stores of one document begin with: nothing, the empty text, one character, any text."""

_FEW_NODES, _FEW_STATES = 256, 16  # of a store to begin with
_ANY_STRING = Strings()

Expression = tuple[int, int]
"""The row of an expression, and that of its trackers before any text."""

_Answer = TypeVar("_Answer")


class Expressions:
    """What was asked for of the *regular parts* of sets: all that is said in `every`, `none`, `low`, `high`.

    Past the limits of the regular engine all questions raise `UnsupportedConstraint`.
    """

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.classes = programs.classes
        store = empty_store(programs.classes, NO_LEXER, 0, num_nodes=_FEW_NODES, num_states=_FEW_STATES)
        self.arena = Arena(store, -1, None)
        self._assembled(programs.regular(_ANY_STRING))
        self._found: dict[Strings, Expression] = {}
        self._states: dict[Strings, int] = {}

    def state(self, strings: Strings) -> int:
        """The state before any text, dead or alive."""
        part = regular_part(strings)
        found = self._states.get(part)
        if found is None:
            node, trackers = self.expression(part)
            found = self._states[part] = self.asked(part, lambda: self.arena.ask(START, node, trackers, -1))
        return found

    def start(self, strings: Strings) -> int:
        """The same, or -1 if it is any string."""
        return -1 if self.is_any(strings) else self.state(strings)

    def is_any(self, strings: Strings) -> bool:
        """Whether it is plainly any string."""
        if not (strings.every or strings.none or strings.low or strings.high is not None):
            return True
        return self.expression(strings)[0] == int(self.arena.store.facts[WHOLE])

    def is_live(self, strings: Strings) -> bool:
        """Whether any string is in it."""
        state = self.state(strings)
        return bool(self.asked(strings, lambda: self.arena.ask(IS_LIVE, state)))

    def expression(self, strings: Strings) -> Expression:
        """The expression of the texts in it."""
        part = regular_part(strings)
        found = self._found.get(part)
        if found is None:
            self.programs.check_exact(part.none)
            found = self.asked(part, lambda: self._made(part))
            if found[1] < 0:
                reason = f"the patterns of one string have more than {MAX_TRACKERS}"
                raise UnsupportedConstraint("look-behind", self.programs.place(part), reason, field="schema")
            self._found[part] = found
        return found

    def _made(self, part: Strings) -> Expression:
        for number in part.every:
            if number not in self.programs.are_any:
                self.programs.are_any[number] = self._has_all(number)
        return self._assembled(self.programs.regular(part))

    def _assembled(self, program: Int64s) -> Expression:
        # `run` hands on what the compiled code gives, which here is a pair.
        return cast(Expression, self.arena.run(assemble, program))

    def _has_all(self, number: int) -> bool:
        """Whether a language has every string, as that of the pattern `.*`."""
        if self.programs.lacks_empty(number):
            return False
        arena = self.arena
        if not arena.accepts(arena.ask(START, *self._assembled(self.programs.alone(number)), -1)):
            return False
        rest = arena.ask(START, *self._assembled(self.programs.without(number)), -1)
        return not arena.ask(IS_LIVE, rest)

    def asked(self, strings: Strings, question: Callable[[], _Answer]) -> _Answer:
        """The answer to a question of a set. Past the limits, raises `UnsupportedConstraint` with a place."""
        try:
            return question()
        except ArenaFull:
            reason = "it needs too many states"
        except UnsupportedConstraint as error:
            reason = error.reason
        raise UnsupportedConstraint("pattern", self.programs.place(strings), reason, field="schema")


def regular_part(strings: Strings) -> Strings:
    """All that is said of the strings but for single words."""
    if strings.only is None and not strings.excluded:
        return strings
    return Strings(strings.every, strings.none, strings.low, strings.high)
