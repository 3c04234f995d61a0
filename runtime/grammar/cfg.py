"""Context-free grammars made fit for derivatives: no left recursion, no empty rules, no cycles of units.

The rules that come in are plain BNF and may do what they like. The bodies that go out never derive the
empty text, and the first thing that a body needs is, over any number of rules, a terminal: the derivative
of a body by a character is found without asking for itself.

1. Symbols that derive no finite text are dropped with every alternative that needs them; symbols that
   derive nothing but the empty text are dropped from the alternatives.
2. An alternative is split by which of its symbols is the first that is not empty; those after it that may be
   empty become options. Hidden left recursion is plain left recursion after that.
3. Rules that begin with each other form strongly connected components. In one of a single rule, `a: a x | y`
   becomes y x* (Arden's lemma). In a larger one the way from the first symbol up to the rule is read as an
   automaton over the members, as in the left-corner transform (Rosenkrantz and Lewis 1970): a member, then
   "the rest of a, given that one".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from treille.runtime.errors import InvalidConstraint
from treille.runtime.grammar.limits import Budget

MAX_BODY_NODES = 200_000


@dataclass(frozen=True, slots=True)
class RuleRef:
    """A text of the rule of this number."""

    index: int


@dataclass(frozen=True, slots=True)
class TermRef:
    """A text of the terminal of this number."""

    index: int


@dataclass(frozen=True, slots=True)
class Join:
    """One part after the other; without parts, the empty text."""

    parts: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of the options."""

    options: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class Star:
    """Any number of texts of the body, which is never empty."""

    body: Body


Body = RuleRef | TermRef | Join | Either | Star

NO_MORE = Join(())


@dataclass(frozen=True, slots=True)
class Cfg:
    """`bodies[i]` is what `RuleRef(i)` stands for; `start` is what a whole text must be."""

    bodies: tuple[Body, ...]
    start: Body


# In the grammar that comes in, a rule is its number, and the terminal t is ~t.
Alternative = tuple[int, ...]
Bnf = Mapping[int, Sequence[Alternative]]


def solve(
    bnf: Bnf, start: int, budget: Budget, *, dead_terminals: Iterable[int] = (), name: str = "start"
) -> Cfg:
    """The bodies for the alternatives of every rule in `bnf`; `dead_terminals` match no text.

    Raises `InvalidConstraint` if no text can be derived from `start`, which is called `name`;
    `UnsupportedConstraint` if the bodies become too large.
    """
    dead = {~terminal for terminal in dead_terminals}
    live = _derivable(bnf, lambda symbol: symbol < 0 and symbol not in dead)
    if start not in live:
        raise InvalidConstraint(f"no text can be derived from the rule {name!r}")
    bnf = {
        rule: [one for one in bnf[rule] if all((s in live) if s >= 0 else (s not in dead) for s in one)]
        for rule in live
    }
    nullable = _derivable(bnf, lambda _: False)
    wordy = _with_words(bnf)
    if start not in wordy:
        return Cfg((), NO_MORE)
    trimmed = {
        rule: [tuple(s for s in one if s < 0 or s in wordy) for one in bnf[rule]] for rule in sorted(wordy)
    }
    bodies = _Solver(trimmed, nullable, budget).solve(start)
    return Cfg(bodies, _optional(RuleRef(0)) if start in nullable else RuleRef(0))


def _derivable(bnf: Bnf, terminal_counts: Callable[[int], bool]) -> set[int]:
    """The rules with an alternative of counting terminals and of such rules alone."""
    missing: list[int] = []
    owner: list[int] = []
    users: dict[int, list[int]] = {}
    found: set[int] = set()
    ready: list[int] = []
    for rule, options in bnf.items():
        for one in options:
            needs = {symbol for symbol in one if not terminal_counts(symbol)}
            if not needs:
                ready.append(rule)
            for symbol in needs:
                users.setdefault(symbol, []).append(len(owner))
            owner.append(rule)
            missing.append(len(needs))
    while ready:
        rule = ready.pop()
        if rule in found:
            continue
        found.add(rule)
        for index in users.get(rule, ()):
            missing[index] -= 1
            if not missing[index]:
                ready.append(owner[index])
    return found


def _with_words(bnf: Bnf) -> set[int]:
    """The rules that derive more than the empty text; all of `bnf` derive something."""
    users: dict[int, list[int]] = {}
    ready = []
    for rule, options in bnf.items():
        for one in options:
            for symbol in one:
                if symbol < 0:
                    ready.append(rule)
                else:
                    users.setdefault(symbol, []).append(rule)
    found: set[int] = set()
    while ready:
        rule = ready.pop()
        if rule not in found:
            found.add(rule)
            ready.extend(users.get(rule, ()))
    return found


def components(edges: Mapping[int, Iterable[int]]) -> dict[int, frozenset[int]]:
    """The strongly connected component of every node (Tarjan 1972), without recursion."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    open_nodes: list[int] = []
    result: dict[int, frozenset[int]] = {}
    for root in edges:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        open_nodes.append(root)
        path = [(root, iter(edges[root]))]
        while path:
            node, rest = path[-1]
            for target in rest:
                if target not in order:
                    order[target] = low[target] = len(order)
                    open_nodes.append(target)
                    path.append((target, iter(edges[target])))
                    break
                if target not in result:
                    low[node] = min(low[node], order[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    at = open_nodes.index(node)
                    members = frozenset(open_nodes[at:])
                    del open_nodes[at:]
                    result.update(dict.fromkeys(members, members))
    return result


@dataclass(frozen=True, slots=True)
class _Corner:
    """What may follow a first symbol: `rest` after it, or nothing if `unit`. `rest` is never empty."""

    first: int
    rest: tuple[Body, ...]
    unit: bool


class _Solver:
    """Steps 2 and 3, for rules that all derive more than the empty text."""

    def __init__(self, bnf: Bnf, nullable: set[int], budget: Budget) -> None:
        self._bnf = bnf
        self._nullable = nullable
        self._budget = budget
        self._nodes = 0
        self._numbers: dict[int | tuple[int, int], int] = {}
        self._splits = {rule: self._split(options) for rule, options in bnf.items()}
        firsts = {rule: [first for first, _ in splits if first >= 0] for rule, splits in self._splits.items()}
        self._component = components(firsts)
        self._recursive = {rule for rule in bnf if len(self._component[rule]) > 1 or rule in firsts[rule]}
        self._corners: dict[int, list[_Corner]] = {}
        self._ups: dict[int, list[int]] = {}

    def solve(self, start: int) -> tuple[Body, ...]:
        """The bodies of what `start` (number 0) needs."""
        self._number(start)
        bodies: list[Body] = []
        # A body may give numbers to more rules; they follow.
        while len(bodies) < len(self._numbers):
            keys = list(self._numbers)[len(bodies) :]
            for key in keys:
                self._budget.check_time()
                bodies.append(self._rest_body(*key) if isinstance(key, tuple) else self._rule_body(key))
        return tuple(bodies)

    def _number(self, key: int | tuple[int, int]) -> RuleRef:
        return RuleRef(self._numbers.setdefault(key, len(self._numbers)))

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_BODY_NODES:
            raise self._budget.exceeded(f"its rules need more than the limit of {MAX_BODY_NODES} parts")

    def _split(self, options: Sequence[Alternative]) -> list[tuple[int, Alternative]]:
        """Every alternative, once for each symbol that may be its first non-empty one, and what follows."""
        found: dict[tuple[int, Alternative], None] = {}
        for one in options:
            for index, symbol in enumerate(one):
                self._count(len(one) - index)
                found[symbol, one[index + 1 :]] = None
                if symbol < 0 or symbol not in self._nullable:
                    break
        return list(found)

    def _symbol(self, symbol: int) -> Body:
        """A non-empty text of the symbol."""
        return TermRef(~symbol) if symbol < 0 else self._number(symbol)

    def _tail(self, tail: Alternative) -> tuple[Body, ...]:
        """The symbols one after the other, each empty where it may be."""
        self._count(2 * len(tail))
        return tuple(
            _optional(self._symbol(one)) if one >= 0 and one in self._nullable else self._symbol(one)
            for one in tail
        )

    def _rule_body(self, rule: int) -> Body:
        if rule not in self._recursive:
            return _either(
                [_join((self._symbol(first), *self._tail(tail))) for first, tail in self._splits[rule]]
            )
        members = self._component[rule]
        if len(members) == 1:
            base = _either([_join(one) for one in self._bases(rule)])
            return _join((base, *self._loop(rule)))
        options: list[Body] = []
        for member in sorted(members):
            rest = self._rest(rule, member)
            if rest is not None:
                options.extend(_join((*base, *rest)) for base in self._bases(member))
        return _either(options)

    def _bases(self, rule: int) -> list[tuple[Body, ...]]:
        """The alternatives of a recursive rule that begin outside of its component."""
        return [
            (self._symbol(first), *self._tail(tail))
            for first, tail in self._splits[rule]
            if first not in self._component[rule]
        ]

    def _loop(self, rule: int) -> tuple[Body, ...]:
        """What may follow a rule that is its whole component, to be the rule again."""
        again = [_join(corner.rest) for corner in self._corners_of(rule) if not corner.unit]
        return (Star(_either(again)),) if again else ()

    def _corners_of(self, rule: int) -> list[_Corner]:
        """The alternatives of a recursive rule that begin inside of its component."""
        if rule not in self._corners:
            found: dict[_Corner, None] = {}
            for first, tail in self._splits[rule]:
                if first not in self._component[rule]:
                    continue
                if all(one >= 0 and one in self._nullable for one in tail):
                    found[_Corner(first, (), True)] = None
                for second, rest in self._split([tail]):
                    found[_Corner(first, (self._symbol(second), *self._tail(rest)), False)] = None
            self._corners[rule] = list(found)
        return self._corners[rule]

    def _above(self, member: int) -> list[int]:
        """The member, and those that may be that member and nothing more."""
        if member not in self._ups:
            found = [member]
            for below in found:
                for rule in sorted(self._component[member]):
                    if rule not in found and _Corner(below, (), True) in self._corners_of(rule):
                        found.append(rule)
            self._ups[member] = found
        return self._ups[member]

    def _rest(self, rule: int, member: int) -> tuple[Body, ...] | None:
        """What may follow a member that `rule` begins with, up to the end of `rule`; None if nothing can."""
        members = self._component[rule]
        longer = any(not corner.unit for one in members for corner in self._corners_of(one))
        if rule in self._above(member):
            return (_optional(self._number((rule, member))),) if longer else ()
        return (self._number((rule, member)),) if longer else None

    def _rest_body(self, rule: int, member: int) -> Body:
        """`_rest` where it is not empty."""
        options: list[Body] = []
        above = self._above(member)
        for parent in sorted(self._component[rule]):
            for corner in self._corners_of(parent):
                if corner.first in above and not corner.unit:
                    rest = self._rest(rule, parent)
                    self._count(len(corner.rest) + 1)
                    if rest is not None:
                        options.append(_join((*corner.rest, *rest)))
        return _either(options)


def _join(parts: tuple[Body, ...]) -> Body:
    return parts[0] if len(parts) == 1 else Join(parts)


def _either(options: Sequence[Body]) -> Body:
    once = tuple(dict.fromkeys(options))
    return once[0] if len(once) == 1 else Either(once)


def _optional(body: Body) -> Body:
    return Either((body, NO_MORE))
