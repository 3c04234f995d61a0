"""Lark's LALR parser with its contextual lexer, as data.

In every state of the parser another lexer is at work: one alternation of the terminals that the state can do
something with, and of the ignored ones, in Lark's order; what `re` finds first in it is the token. A literal
that some regular expression takes whole is not tried by itself: the expression takes the text, and the
token is then called by the literal's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from lark.parsers.lalr_analysis import IntParseTable, Shift

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.charset import Ranges
from treille.runtime.grammar.classes import classes_of
from treille.runtime.grammar.lalr_steps import ACTIONS, HEADER, IGNORED, KINDS, NO_TOKEN
from treille.runtime.grammar.lark_loader import LarkGrammar, Terminal
from treille.runtime.grammar.lark_terminals import grouped, sets_of
from treille.runtime.grammar.lexing import DEAD, NOTHING_LEFT, Automaton, Leaf, Reference, Test, leaves_of
from treille.runtime.grammar.lexing_match import match_end
from treille.runtime.grammar.store import Int64s
from treille.runtime.grammar.tree import Chars, Look
from treille.runtime.grammar.tree import Sequence as SequenceTree

MAX_LEXER_STATES = 20_000
Item = tuple[int, int]  # a terminal and a state of its automaton
Progress = tuple[tuple[int, int], ...]  # literals and how many of their characters have been read


@dataclass(frozen=True, slots=True, eq=False)
class Lexer:
    """The terminals that are tried, in order, and for each the literals that its token may turn out to be."""

    tried: tuple[int, ...]
    unless: Mapping[int, tuple[int, ...]]


def lexer_of(
    accepted: Iterable[int], terminals: Sequence[Terminal], literals: Mapping[int, tuple[int, ...]]
) -> Lexer:
    """Lark's lexer for these terminals. `literals`: by terminal, the literals that it takes whole."""
    order = sorted(accepted, key=lambda index: terminals[index].order)
    unless = {
        index: tuple(one for one in order if one in literals[index]) for index in order if literals.get(index)
    }
    embedded = {
        one
        for index, found in unless.items()
        for one in found
        if terminals[one].flags <= terminals[index].flags
    }
    return Lexer(tuple(one for one in order if one not in embedded), unless)


def literals_taken(
    terminals: Sequence[Terminal], automata: Sequence[Automaton]
) -> dict[int, tuple[int, ...]]:
    """By terminal that is a regular expression, the literals of its priority that it takes whole."""
    return {
        index: tuple(
            number
            for number, other in enumerate(terminals)
            if other.text is not None
            and other.priority == one.priority
            and match_end(automata[index], other.text, 0) == len(other.text)
        )
        for index, one in enumerate(terminals)
        if one.text is None
    }


class Lexers:
    """Every lexer of a grammar as one machine (see `lark_terminals.Machine`).

    A state is the list of the terminals that are still being tried, in order, with the state of each, and how
    far the literals have been read that one of them may turn out to be. The kind of a match is the terminal
    and the literals that the token is equal to.
    """

    def __init__(self, grammar: LarkGrammar, automata: Sequence[Automaton]) -> None:
        self.terminals = grammar.terminals
        self.automata = automata
        self.literals = literals_taken(grammar.terminals, automata)
        self.kinds: dict[tuple[int, frozenset[int]], int] = {}
        self._states: dict[tuple[tuple[Item, ...], Progress], int] = {((), ()): DEAD}
        self._order: list[tuple[tuple[Item, ...], Progress]] = [((), ())]
        self._known: dict[int, list[tuple[Ranges, Reference]]] = {}
        looks = dict.fromkeys(look for one in automata for look in one.conditions)
        self.conditions: tuple[Look, ...] = tuple(looks)
        numbers = {look: number for number, look in enumerate(looks)}
        self._conditions = [[numbers[look] for look in one.conditions] for one in automata]
        local = [sets_of(one.classes) for one in automata]
        self._spelled = {
            index: [part.ranges for part in _characters(grammar.terminals[index])]
            for index in sorted({one for found in self.literals.values() for one in found})
        }
        sets = dict.fromkeys(one for found in (*local, *self._spelled.values()) for one in found)
        self._classes = classes_of(list(sets))
        self._sets = sets_of(self._classes)
        places = {one: number for number, one in enumerate(sets)}
        members = self._classes.members
        # By terminal and class of all, the class of the terminal's automaton.
        self._local = [np.argmax(members[[places[one] for one in found]], axis=0) for found in local]
        self._reads = {
            index: [members[places[one]] for one in spelled] for index, spelled in self._spelled.items()
        }

    def start(self, lexer: Lexer) -> Reference:
        """Where a token of a lexer begins."""
        wanted = {one for index in lexer.tried for one in self.literals.get(index, ())}
        progress = tuple((one, 0) for one in sorted(wanted))
        return self._combined([(one, self.automata[one].start) for one in lexer.tried], progress, {})

    def ways(self, state: int) -> list[tuple[Ranges, Reference]]:
        """See `Machine`."""
        if state not in self._known:
            items, progress = self._order[state]
            row: list[Reference] = []
            for number in range(len(self._sets)):
                following = [
                    (one, self.automata[one].table[at][self._local[one][number]]) for one, at in items
                ]
                read = tuple((one, at + 1) for one, at in progress if self._reads_on(one, at, number))
                row.append(self._combined(following, read, {}))
            self._known[state] = grouped(tuple(row), self._sets)
        return self._known[state]

    def _reads_on(self, literal: int, place: int, number: int) -> bool:
        spelled = self._reads[literal]
        return place < len(spelled) and bool(spelled[place][number])

    def _combined(
        self, following: list[tuple[int, Reference]], progress: Progress, answers: dict[int, bool]
    ) -> Reference:
        """The list of what follows for each terminal, up to the first that matches."""
        alive: list[Item] = []
        for index, (terminal, reference) in enumerate(following):
            if isinstance(reference, Test):
                return self._tested(following, index, progress, answers)
            if reference.state != DEAD:
                alive.append((terminal, reference.state))
            if reference.matched:
                equal = frozenset(
                    one
                    for one, at in progress
                    if at == len(self._spelled[one]) and one in self.literals.get(terminal, ())
                )
                kind = self.kinds.setdefault((terminal, equal), len(self.kinds))
                return Leaf(self._state(alive, progress), True, kind)
        return Leaf(self._state(alive, progress), False) if alive else NOTHING_LEFT

    def _tested(
        self, following: list[tuple[int, Reference]], index: int, progress: Progress, answers: dict[int, bool]
    ) -> Reference:
        terminal, test = following[index]
        assert isinstance(test, Test)
        condition = self._conditions[terminal][test.condition]
        ways = []
        for answer, way in ((True, test.if_so), (False, test.if_not)):
            if answers.get(condition, answer) == answer:
                changed = [*following[:index], (terminal, way), *following[index + 1 :]]
                ways.append(self._combined(changed, progress, {**answers, condition: answer}))
        return ways[0] if len(ways) == 1 or ways[0] == ways[1] else Test(condition, ways[0], ways[1])

    def _state(self, alive: list[Item], progress: Progress) -> int:
        wanted = {one for terminal, _ in alive for one in self.literals.get(terminal, ())}
        key = tuple(alive), tuple(one for one in progress if one[0] in wanted)
        if not alive:
            return DEAD
        state = self._states.setdefault(key, len(self._order))
        if state == len(self._order):
            if state >= MAX_LEXER_STATES:
                raise UnsupportedConstraint("grammar", "offset 0", "its lexers need too many states")
            self._order.append(key)
        return state


def kinds_ahead(ways: Mapping[int, Sequence[tuple[Ranges, Reference]]]) -> dict[int, set[int]]:
    """By state of a machine, the kinds of the matches that may be reached."""
    leaves = {state: {leaf for _, one in row for leaf in leaves_of(one)} for state, row in ways.items()}
    found = {state: {leaf.kind for leaf in row if leaf.matched} for state, row in leaves.items()}
    size = -1
    while size != sum(map(len, found.values())):
        size = sum(map(len, found.values()))
        for state, row in leaves.items():
            found[state].update(*(found[leaf.state] for leaf in row))
    return found


def _characters(terminal: Terminal) -> list[Chars]:
    """A literal's characters, each a set if it is taken in either case."""
    tree = terminal.tree
    parts = tree.parts if isinstance(tree, SequenceTree) else (tree,)
    return [part for part in parts if isinstance(part, Chars)]


def parser_array(
    grammar: LarkGrammar,
    table: IntParseTable,
    lexers: Sequence[Lexer],
    kinds: Iterable[tuple[int, frozenset[int]]],
    starts: Sequence[int],
    ends: Sequence[Sequence[int]],
) -> Int64s:
    """A parser as an array of numbers, as `lalr_steps.py` reads it.

    `lexers` and `starts`: by state, its lexer and the rule with which a token begins there. `ends`: by rule
    of the engine, the kinds of matches that it may come to.
    """
    num_terminals, num_rules = len(grammar.terminals), len(grammar.rule_names)
    numbers = {one.name: index for index, one in enumerate(grammar.terminals)} | {"$END": num_terminals}
    origins = {name: index for index, name in enumerate(grammar.rule_names)}
    rules: dict[object, int] = {}
    actions = np.zeros((len(table.states), num_terminals + 1), np.int64)
    gotos = np.full((len(table.states), num_rules), -1, np.int64)
    for state, entries in table.states.items():
        for name, (action, argument) in entries.items():
            if action is not Shift:
                actions[state, numbers[name]] = -1 - rules.setdefault(argument, len(rules))
            elif name in numbers:
                actions[state, numbers[name]] = 1 + argument
            else:
                gotos[state, origins[name]] = argument
    sizes = np.array([len(rule.expansion) for rule in rules], np.int64)  # type: ignore[attr-defined]
    heads = np.array([origins[rule.origin.name] for rule in rules], np.int64)  # type: ignore[attr-defined]
    tokens = np.array([[_token(grammar, lexer, *kind) for kind in kinds] for lexer in lexers], np.int64)
    (end,) = table.end_states.values()
    tables = [actions, gotos, sizes, heads, tokens, np.array(starts, np.int64)]
    tables.append(np.cumsum([0, *map(len, ends)]))
    tables.append(np.array([kind for found in ends for kind in found], np.int64))
    header = np.zeros(HEADER, np.int64)
    header[:ACTIONS] = num_terminals + 1, num_rules, tokens.shape[1], end
    places = np.cumsum([HEADER, *(one.size for one in tables)])
    header[ACTIONS : KINDS + 1] = places[:-1]
    return np.concatenate([header, *(one.ravel() for one in tables)])


def _token(grammar: LarkGrammar, lexer: Lexer, terminal: int, equal: frozenset[int]) -> int:
    """What a lexer makes of a match of a terminal whose text is equal to some literals."""
    if terminal not in lexer.tried:
        return NO_TOKEN
    if terminal in grammar.ignored:
        return IGNORED
    return next((one for one in lexer.unless.get(terminal, ()) if one in equal), terminal)
