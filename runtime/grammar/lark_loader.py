"""Lark grammars as data: read by Lark itself, from text that nobody vouches for.

Lark's own loader reads, expands and checks the text, so a grammar means what it means to Lark and every
fault is told in Lark's words. What a hostile text could do through it is prevented before Lark sees it:
nothing is read from the file system (only the grammars inside the package can be imported), and what would
take it exponential time or memory is measured first and refused (`lark_limits.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from lark.common import LexerConf, ParserConf
from lark.exceptions import GrammarError, LarkError
from lark.lexer import PatternStr, TerminalDef
from lark.load_grammar import Grammar, GrammarBuilder
from lark.parse_tree_builder import ParseTreeBuilder
from lark.parser_frontends import EarleyRegexpMatcher
from lark.parsers.lalr_analysis import IntParseTable, LALR_Analyzer
from lark.tree import Tree as LarkTree

from treille.runtime.errors import ConstraintError, InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar.lark_limits import check_lalr, check_rules, check_text
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.parse_python import parse_python
from treille.runtime.grammar.tree import Tree

Parser = Literal["earley", "lalr"]

SHIPPED = ("common", "lark", "python", "unicode")
MAX_LR_STEPS = 20_000
MAX_LR_RELATIONS = 100_000  # between the places of a table where rules are expected


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal: `text` is the literal text if it is a plain string, None for a regular expression.

    `order` is where Lark's lexers put it: the smaller, the earlier it is tried. `flags` are letters.
    """

    name: str
    pattern: str
    tree: Tree
    text: str | None
    flags: frozenset[str]
    priority: int
    order: tuple[int, int, int, str]


@dataclass(frozen=True, slots=True)
class LarkGrammar:
    """A grammar as Lark has it: BNF, in which a rule is its number and the terminal t is ~t.

    Rule 0 is the start. `ignored` are the numbers of the ignored terminals, `table` the parse table if
    the parser is LALR.
    """

    terminals: tuple[Terminal, ...]
    rule_names: tuple[str, ...]
    alternatives: tuple[tuple[int, tuple[int, ...]], ...]
    ignored: tuple[int, ...]
    table: IntParseTable | None


def load_lark(text: str, start: str, parser: Parser, budget: Budget) -> LarkGrammar:
    """Reads a grammar.

    Raises `InvalidConstraint` with Lark's own message for whatever Lark refuses, and
    `UnsupportedConstraint` for what is left out (imports of files, `%declare`, terminals that are not
    regular) or too large.
    """
    check_text(text)
    try:
        builder = _Builder(budget)
        builder.load_grammar(text, "<grammar>")
        builder.check_declared()
        grammar = builder.build()
        rules = {name: (params, tree) for name, params, tree, _ in grammar.rule_defs}
        if start not in rules or rules[start][0]:
            raise InvalidConstraint(f"the grammar has no rule {start!r} to start with")
        check_rules(rules)
        budget.check_time()
        return _compiled(grammar, start, parser, budget)
    except ConstraintError:
        raise
    except LarkError as error:
        raise InvalidConstraint(_told(error)) from None
    except RecursionError:
        raise budget.exceeded("it is nested too deeply") from None
    except MemoryError:
        raise
    except Exception as error:
        # Lark has its own faults; a text that finds one is at fault alone.
        raise InvalidConstraint(f"Lark cannot read the grammar: {type(error).__name__}: {error}") from None


class _Builder(GrammarBuilder):
    """Lark's builder of grammars, without the file system and within limits."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget

    def do_import(
        self,
        dotted_path: tuple[str, ...],
        base_path: str | None,
        aliases: dict[str, str],
        base_mangle: Callable[[str], str] | None = None,
    ) -> None:
        """Imports from the grammars that Lark brings along."""
        name = ".".join(dotted_path)
        if base_path is not None:
            raise UnsupportedConstraint(
                "%import",
                f".{name}",
                "nothing is read from files; Lark's own grammars can be imported by name",
            )
        if name not in SHIPPED:
            raise UnsupportedConstraint(
                "%import", name, f"only Lark's own grammars can be imported: {', '.join(SHIPPED)}"
            )
        super().do_import(dotted_path, base_path, aliases, base_mangle)

    def check_declared(self) -> None:
        """Refuses symbols whose texts the grammar does not tell."""
        for name, definition in self._definitions.items():
            if definition.tree is None:
                raise UnsupportedConstraint(
                    "%declare", name, "what a declared symbol matches is not in the grammar"
                )

    def _unpack_definition(self, tree: LarkTree[Any], mangle: Callable[[str], str] | None) -> Any:
        self._budget.check_time()
        return super()._unpack_definition(tree, mangle)  # type: ignore[no-untyped-call]


class _Timed(list[Any]):
    """A list; a loop over it ends when the budget's time does."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget

    def __iter__(self) -> Iterator[Any]:
        for one in super().__iter__():
            self._budget.check_time()
            yield one


class _Analyzer(LALR_Analyzer):
    """Lark's analysis of LALR grammars, within limits."""

    def __init__(self, budget: Budget, parser_conf: ParserConf) -> None:
        self._budget = budget
        self._num_steps = 0
        super().__init__(parser_conf)
        self.nonterminal_transitions = _Timed(budget)

    def expand_rule(self, source_rule: Any, rules_by_origin: Any = None) -> Any:
        """The rules that may begin a rule; asked for at every step to a new state."""
        self._num_steps += 1
        if self._num_steps > MAX_LR_STEPS:
            raise self._budget.exceeded("its LALR table is too large")
        self._budget.check_time()
        return super().expand_rule(source_rule, rules_by_origin)

    def compute_lookaheads(self) -> None:
        """Follows the relations between the places where rules are expected."""
        self._budget.check_time()
        if sum(map(len, [*self.reads.values(), *self.includes.values()])) > MAX_LR_RELATIONS:
            raise self._budget.exceeded("its LALR table is too large")
        super().compute_lookaheads()  # type: ignore[no-untyped-call]


def _compiled(grammar: Grammar, start: str, parser: Parser, budget: Budget) -> LarkGrammar:
    """Lark's own compilation to BNF and terminals, and what its parser has to object."""
    found, rules, ignored = grammar.compile([start], set())
    ParseTreeBuilder(rules, LarkTree).create_callback()  # type: ignore[no-untyped-call]
    if parser == "earley":
        EarleyRegexpMatcher(LexerConf(found, re, ignored))  # type: ignore[no-untyped-call]
    for one in found if parser == "lalr" else ():
        _check_basic(one)
    terminals = tuple(_terminal(one) for one in found)
    numbers = {terminal.name: ~index for index, terminal in enumerate(terminals)}
    rule_numbers = {start: 0}
    for rule in rules:
        rule_numbers.setdefault(rule.origin.name, len(rule_numbers))
    numbers.update(rule_numbers)
    alternatives = tuple(
        (rule_numbers[rule.origin.name], tuple(numbers[symbol.name] for symbol in rule.expansion))
        for rule in rules
    )
    table = None
    if parser == "lalr":
        check_lalr(alternatives)
        analysis = _Analyzer(budget, ParserConf(rules, {}, [start]))
        analysis.compute_lalr()  # type: ignore[no-untyped-call]
        table = cast(IntParseTable, analysis.parse_table)
    return LarkGrammar(
        terminals=terminals,
        rule_names=tuple(rule_numbers),
        alternatives=alternatives,
        ignored=tuple(dict.fromkeys(~numbers[name] for name in ignored)),
        table=table,
    )


def _check_basic(terminal: TerminalDef) -> None:
    """What Lark's contextual lexer checks in a terminal; alone and as the group that it becomes there."""
    pattern = terminal.pattern.to_regexp()
    try:
        re.compile(f"(?P<{terminal.name}>{pattern})")
    except re.error as error:
        raise GrammarError(f"Cannot compile token {terminal.name}: {terminal.pattern}: {error}") from None
    if terminal.pattern.min_width == 0:
        raise GrammarError(
            f"Lexer does not allow zero-width terminals. ({terminal.name}: {terminal.pattern})"
        )


def _terminal(terminal: TerminalDef) -> Terminal:
    pattern = terminal.pattern
    expression = pattern.to_regexp()
    where = f"terminal {terminal.name}"
    try:
        tree = parse_python(expression)
    except UnsupportedConstraint as error:
        raise UnsupportedConstraint(error.keyword, f"{where}, {error.path}", error.reason) from None
    except InvalidConstraint as error:
        raise InvalidConstraint(f"{where}: {error}") from None
    text = pattern.value if isinstance(pattern, PatternStr) else None
    order = (-terminal.priority, -pattern.max_width, -len(pattern.value), terminal.name)
    return Terminal(terminal.name, expression, tree, text, frozenset(pattern.flags), terminal.priority, order)


def _told(error: LarkError) -> str:
    """Lark's message, in one piece."""
    return str(error).strip() or type(error).__name__
