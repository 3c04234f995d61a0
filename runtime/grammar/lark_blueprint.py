"""From a Lark grammar to what the engine runs.

For the Earley parser every terminal and every rule becomes a rule of the engine, and ignored terminals may
stand before every terminal and at the end. For the LALR parser only the lexers become rules; the expression
that a text begins with is the parser itself, with its stack (`lalr_steps.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lark.parsers.lalr_analysis import IntParseTable

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.build import Blueprint
from treille.runtime.grammar.cfg import Body, Cfg, Either, Join, RuleRef, Star, TermRef, solve
from treille.runtime.grammar.lalr import Lexer, Lexers, kinds_ahead, lexer_of, parser_array
from treille.runtime.grammar.lark_live import Completable, explored, sets_in, unsure_states
from treille.runtime.grammar.lark_loader import LarkGrammar, Parser, load_lark
from treille.runtime.grammar.lark_terminals import MachineRules, Single, Writer, looks_behind
from treille.runtime.grammar.lexing import Automaton, automaton_of
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.store import BEHINDS

MAX_SECONDS = 10.0  # of processor time, to compile a grammar


def lark_blueprint(
    text: str, start: str = "start", parser: Parser = "earley", budget: Budget | None = None
) -> Blueprint:
    """The expression of a grammar.

    Raises `InvalidConstraint` for what Lark refuses and for a grammar that no text can be derived from,
    `UnsupportedConstraint` for what cannot be enforced exactly, and past the limits.
    """
    budget = budget or Budget("grammar", seconds=MAX_SECONDS)
    grammar = load_lark(text, start, parser, budget)
    automata = []
    for terminal in grammar.terminals:
        budget.check_time()
        try:
            automata.append(automaton_of(terminal.tree))
        except UnsupportedConstraint as error:
            raise UnsupportedConstraint(f"terminal {terminal.name}", error.path, error.reason) from None
    cfg = _solved(grammar, automata, budget)
    known = BEHINDS if any(map(_looks_behind, automata)) else 0
    if grammar.table is None:
        shown = Completable(cfg, automata, grammar.ignored, budget)
        return Blueprint(_EarleyWriter(grammar.ignored, automata, cfg, known, shown).write())
    return _lalr(grammar, grammar.table, automata, cfg, known, budget)


def _solved(grammar: LarkGrammar, automata: Sequence[Automaton], budget: Budget) -> Cfg:
    bnf: dict[int, list[tuple[int, ...]]] = {number: [] for number in range(len(grammar.rule_names))}
    for rule, symbols in grammar.alternatives:
        bnf[rule].append(symbols)
    dead = [index for index, automaton in enumerate(automata) if automaton.is_empty]
    return solve(bnf, 0, budget, dead_terminals=dead, name=grammar.rule_names[0])


def _looks_behind(automaton: Automaton) -> bool:
    references = {one for row in (*automaton.table, (automaton.start,)) for one in row}
    return any(looks_behind(one, automaton.conditions) for one in references)


class _EarleyWriter:
    """Writes the rules of a grammar for Lark's Earley parser with its dynamic lexer."""

    def __init__(
        self,
        ignored: Sequence[int],
        automata: Sequence[Automaton],
        cfg: Cfg,
        known: int,
        shown: Completable,
    ) -> None:
        self._ignored = ignored
        self._shown = shown
        self._automata = automata
        self._cfg = cfg
        self._writer = Writer(known)
        self._terminals: dict[int, int] = {}
        searched = not shown.is_shown
        self._rules = [
            self._writer.new_rule(partial(self._body, body), searched=searched) for body in cfg.bodies
        ]

    def write(self) -> Writer:
        """The whole program."""
        self._writer.write_rules()
        self._body(self._cfg.start)
        self._ignore()
        self._writer.sequence(2)
        self._writer.write_rules()
        return self._writer

    def _terminal(self, index: int) -> None:
        if index not in self._terminals:
            automaton = self._automata[index]
            rules = MachineRules(
                self._writer,
                Single(automaton),
                lambda _: self._writer.sequence(0),
                unsure=self._shown.unsure(index),
            )
            self._terminals[index] = self._writer.new_rule(
                partial(rules.write, automaton.start), searched=not self._shown.is_shown
            )
        self._writer.rule(self._terminals[index])

    def _ignore(self) -> None:
        for index in self._ignored:
            self._terminal(index)
        self._writer.choice(len(self._ignored))
        self._writer.any_number()

    def _body(self, body: Body) -> None:
        match body:
            case TermRef(index):
                self._ignore()
                self._terminal(index)
                self._writer.sequence(2)
            case RuleRef(index):
                self._writer.rule(self._rules[index])
            case Join(parts):
                for part in parts:
                    self._body(part)
                self._writer.sequence(len(parts))
            case Either(options):
                for option in options:
                    self._body(option)
                self._writer.choice(len(options))
            case Star(inner):
                self._body(inner)
                self._writer.any_number()


def _lalr(
    grammar: LarkGrammar,
    table: IntParseTable,
    automata: Sequence[Automaton],
    cfg: Cfg,
    known: int,
    budget: Budget,
) -> Blueprint:
    machine = Lexers(grammar, automata)
    lexers = _lexers(grammar, table, machine)
    starts = {lexer: machine.start(lexer) for lexer in lexers}
    budget.check_time()
    ways = explored(machine, starts.values())
    budget.check_time()
    shown = Completable(cfg, automata, grammar.ignored, budget, sets_in([ways], machine.conditions))
    tokens_of = {number: (terminal, *sorted(equal)) for (terminal, equal), number in machine.kinds.items()}
    unsure = unsure_states(shown, machine.conditions, ways, tokens_of)
    writer = Writer(known)
    rules = MachineRules(writer, machine, writer.end, unsure=unsure, max_inline=0)
    numbers = {
        lexer: writer.new_rule(partial(rules.write, first), searched=not shown.is_shown)
        for lexer, first in starts.items()
    }
    writer.write_rules()
    (start,) = table.start_states.values()
    writer.parser(start)
    budget.check_time()
    places = [numbers[lexer] for lexer in lexers]
    ends: list[list[int]] = [[] for _ in range(writer.num_rules)]
    for state, kinds in kinds_ahead(ways).items():
        if state in rules.rests:
            ends[rules.rests[state]] = sorted(kinds)
    return Blueprint(writer, parser_array(grammar, table, lexers, machine.kinds, places, ends))


def _lexers(grammar: LarkGrammar, table: IntParseTable, machine: Lexers) -> list[Lexer]:
    """By state of the parser, its lexer."""
    numbers = {one.name: index for index, one in enumerate(grammar.terminals)}
    made: dict[frozenset[int], Lexer] = {}
    found = []
    for state in range(len(table.states)):
        names = table.states[state]
        accepted = frozenset([*(numbers[one] for one in names if one in numbers), *grammar.ignored])
        if accepted not in made:
            made[accepted] = lexer_of(accepted, grammar.terminals, machine.literals)
        found.append(made[accepted])
    return found
