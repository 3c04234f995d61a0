"""Automata for the texts of finitely many numbers, and for all other texts: tries, with zeros at the end."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

from treille.runtime.schema.decimals import Far, mantissa_of, split
from treille.runtime.schema.number_exponents import any_exponent, exponents_among, scientific_zero
from treille.runtime.schema.number_rows import DOT, NO_DIGIT, NOWHERE, Rows, Texts

_ROOT, _WHOLE, _POINT, _BEHIND = range(4)
_PLAIN, _ANY = "plain", "any"
Goal = frozenset[int | str]
_NOTHING: Goal = frozenset()
_MAX_ZEROS = 400  # written in a row where they may become a number that is too long to be written out


@lru_cache(maxsize=1024)
def _alone(goal: int | str) -> Goal:
    """One goal; equal ones are shared."""
    return frozenset((goal,))


class _Trie:
    """Paths of digits and a point; `goals` has what is wanted at the end of each."""

    def __init__(self) -> None:
        self.children: list[dict[int, int]] = [{}]
        self.goals: list[Goal] = [_NOTHING]
        self.kinds = [_ROOT]
        self.last_zeros: set[int] = set()

    def add(self, path: Iterable[int], goal: int | str) -> None:
        """A path; several goals of one path come together."""
        node = self._node(path)
        self.goals[node] = self.goals[node] | {goal} if self.goals[node] else _alone(goal)

    def end_zeros(self, path: Iterable[int]) -> None:
        """No zero comes behind a path."""
        self.last_zeros.add(self._node(path))

    def _node(self, path: Iterable[int]) -> int:
        node = 0
        for symbol in path:
            child = self.children[node].get(symbol)
            if child is None:
                child = len(self.kinds)
                self.children[node][symbol] = child
                self.children.append({})
                self.goals.append(_NOTHING)
                kind = max(self.kinds[node], _WHOLE)
                self.kinds.append(_POINT if symbol == DOT else _BEHIND if kind == _POINT else kind)
            node = child
        return node

    def spread(self) -> None:
        """What ends at a node ends at the zeros behind it, too."""
        for node, children in enumerate(self.children):
            if self.kinds[node] != _ROOT and self.goals[node]:
                for symbol in (DOT,) if self.kinds[node] == _WHOLE else (0,):
                    if symbol in children:
                        self.goals[children[symbol]] |= self.goals[node]


def texts_of_points(values: Iterable[Fraction]) -> Texts:
    """Plain and scientific texts of some numbers; none is below 0. What is wanted behind a path of digits:
    its end (`_PLAIN`), an `e` and one of some exponents, or any (`_ANY`)."""
    trie = _Trie()
    for value in values:
        whole, behind = split(value)
        trie.add([*whole, DOT, *behind] if behind else whole, _PLAIN)
        if value:
            (digit, *others), exponent = mantissa_of(value)
            trie.add([digit, DOT, *others] if others else [digit], exponent)
        else:
            trie.add(whole, _ANY)
    trie.spread()
    rows = Rows()
    after = {goal: _exponents(rows, goal, inside=True) for goal in set(trie.goals)}
    zeros = {
        goal: rows.add([rows.following, *NO_DIGIT[1:]], exponent=state, accepting=_PLAIN in goal)
        for goal, state in after.items()
        if goal
    }
    points = {goal: rows.add([state, *NO_DIGIT[1:]]) for goal, state in zeros.items()}
    first = rows.following - 1
    for node, children in enumerate(trie.children):
        kind, goal = trie.kinds[node], trie.goals[node]
        if kind == _ROOT:
            rows.start(_digits(NOWHERE, NOWHERE, children, first))
            continue
        dot = NOWHERE
        if kind == _WHOLE:
            dot = children[DOT] + first if DOT in children else points.get(goal, NOWHERE)
        zero = zeros.get(goal, NOWHERE) if kind != _WHOLE else NOWHERE
        digits = _digits(zero, NOWHERE, children, first)
        if kind == _POINT:
            rows.add(digits)
        else:
            rows.add(digits, dot=dot, exponent=after[goal], accepting=_PLAIN in goal)
    return rows.texts()


def _exponents(rows: Rows, goal: Goal, *, inside: bool) -> int:
    """The state before the exponents of a goal, or before all others."""
    if _ANY in goal:
        return any_exponent(rows)
    return exponents_among(rows, frozenset(one for one in goal if isinstance(one, int)), inside=inside)


def plain_others(values: Iterable[Fraction], far: Iterable[Far]) -> Texts:
    """Plain texts of all numbers but `values` and `far`, none below 0; but for those that have over
    `_MAX_ZEROS` zeros where one of `far` would have more."""
    trie = _Trie()
    for one in far:
        large = one.exponent > 0
        trie.end_zeros([*(one.digits if large else (0, DOT)), *([0] * _MAX_ZEROS)])
    for value in values:
        whole, behind = split(value)
        trie.add([*whole, DOT, *behind] if behind else whole, _PLAIN)
    trie.spread()
    rows = Rows()
    behind_other = rows.loop(accepting=True)
    point_other = rows.add([behind_other] * 10)
    whole_other = rows.loop(dot=point_other, accepting=True)
    zeros = {
        goal: rows.add([rows.following] + [behind_other] * 9, accepting=not goal)
        for goal in (_NOTHING, _alone(_PLAIN))
    }
    points = {goal: rows.add([zeros[goal]] + [behind_other] * 9) for goal in zeros}
    zero = rows.add(NO_DIGIT, dot=points[_NOTHING], accepting=True)
    first, zero_node = rows.following - 1, trie.children[0].get(0)
    for node, children in enumerate(trie.children):
        kind, goal = trie.kinds[node], trie.goals[node]
        if kind == _ROOT:
            rows.start(_digits(zero, whole_other, children, first))
            continue
        digits = _digits(zeros[goal], behind_other, children, first)
        dot = NOWHERE
        if kind == _WHOLE:
            digits = NO_DIGIT if node == zero_node else _digits(whole_other, whole_other, children, first)
            dot = children[DOT] + first if DOT in children else points[goal]
        if node in trie.last_zeros:
            digits[0] = NOWHERE
        rows.add(digits, dot=dot, accepting=kind != _POINT and not goal)
    return rows.texts()


def scientific_others(values: Iterable[Fraction], far: Iterable[Far]) -> Texts:
    """Scientific texts of all numbers but `values` and `far`; none is below 0."""
    trie = _Trie()
    zero = True
    for value in values:
        if not value:
            zero = False
            continue
        (digit, *others), exponent = mantissa_of(value)
        trie.add([digit, DOT, *others] if others else [digit], exponent)
    for one in far:
        digit, *others = one.digits
        trie.add([digit, DOT, *others] if others else [digit], one.scientific_exponent)
    trie.spread()
    rows = Rows()
    other_exponent = any_exponent(rows)
    behind_other = rows.loop(exponent=other_exponent)
    first_other = rows.add(NO_DIGIT, dot=rows.add([behind_other] * 10), exponent=other_exponent)
    after = {goal: _exponents(rows, goal, inside=False) for goal in set(trie.goals)}
    zeros = {
        goal: rows.add([rows.following] + [behind_other] * 9, exponent=state) for goal, state in after.items()
    }
    points = {goal: rows.add([state] + [behind_other] * 9) for goal, state in zeros.items()}
    zero_state = scientific_zero(rows, wanted=zero)
    first = rows.following - 1
    for node, children in enumerate(trie.children):
        kind, goal = trie.kinds[node], trie.goals[node]
        if kind == _ROOT:
            rows.start(_digits(zero_state, first_other, children, first))
        elif kind == _WHOLE:
            dot = children[DOT] + first if DOT in children else points[goal]
            rows.add(NO_DIGIT, dot=dot, exponent=after[goal])
        else:
            digits = _digits(zeros[goal], behind_other, children, first)
            rows.add(digits, exponent=NOWHERE if kind == _POINT else after[goal])
    return rows.texts()


def _digits(zero: int, others: int, children: dict[int, int], first: int) -> list[int]:
    """Where ten digits go: to nodes of a trie, which begin at `first`, or where 0 and others go without."""
    row = [zero] + [others] * 9
    for symbol, child in children.items():
        if symbol != DOT:
            row[symbol] = child + first
    return row
