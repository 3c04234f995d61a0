"""From a pattern or choices to a `Grammar`; what was compiled for a vocabulary is cached on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from treille.runtime.errors import ConstraintError, InvalidConstraint
from treille.runtime.grammar.automaton import Dfa, renumber
from treille.runtime.grammar.grammar import Grammar, RegularGrammar
from treille.runtime.grammar.limits import MAX_CHOICE_BYTES, Budget, Cancelled
from treille.runtime.grammar.regex import DIALECTS, regex_blueprint
from treille.runtime.grammar.vocabulary import Vocabulary


def compile_regex(
    pattern: str, vocab: Vocabulary, *, dialect: str = "python", cancelled: Cancelled | None = None
) -> Grammar:
    """The texts that a regular expression takes whole.

    `dialect` "python": those that `re.fullmatch(pattern, text)` takes. "ecma": those in which ECMA-262 with
    the u flag finds the pattern anywhere, as a JSON Schema's `pattern` does.

    Raises `InvalidConstraint`, with the offset, for a pattern that the dialect does not allow or that no text
    matches; `UnsupportedConstraint` for one that cannot be enforced exactly (see `parse_python.py`) or is
    past a limit.
    """
    if not isinstance(pattern, str):
        raise InvalidConstraint(f"a pattern is a string, not {pattern!r}", field="regex")
    if dialect not in DIALECTS:
        raise ValueError(f"dialect must be one of {', '.join(DIALECTS)}, not {dialect!r}")
    with _field("regex"):
        budget = Budget("regex", cancelled=cancelled)
        return vocab.cache.get(
            ("regex", dialect, pattern),
            lambda: RegularGrammar(regex_blueprint(pattern, dialect, budget=budget), vocab, budget),
        )


def compile_choices(
    choices: Sequence[str], vocab: Vocabulary, *, cancelled: Cancelled | None = None
) -> Grammar:
    """Exactly the given texts, byte for byte. A text given twice counts once; `""` means to stop at once.

    Raises `InvalidConstraint` for no choices, for one that is not a string, and for one with a lone
    surrogate; `UnsupportedConstraint` past a limit.
    """
    if isinstance(choices, str) or not isinstance(choices, Sequence):
        raise InvalidConstraint(f"choices are a list of strings, not {choices!r}", field="choices")
    if not choices:
        raise InvalidConstraint("choices must hold at least one string", field="choices")
    for one in choices:
        if not isinstance(one, str):
            raise InvalidConstraint(f"choices are strings, not {one!r}", field="choices")
    texts = frozenset(choices)
    with _field("choices"):
        budget = Budget("choices", cancelled=cancelled)
        return vocab.cache.get(
            ("choices", texts), lambda: RegularGrammar(choices_dfa(tuple(texts), budget), vocab, budget)
        )


@contextmanager
def _field(name: str) -> Iterator[None]:
    """Names the parameter at fault in errors from below."""
    try:
        yield
    except ConstraintError as error:
        error.field = error.field or name
        raise


def choices_dfa(choices: Sequence[str], budget: Budget | None = None) -> Dfa:
    """The minimal automaton of a finite set of texts."""
    budget = budget or Budget("choices")
    spellings = set()
    for one in choices:
        try:
            spellings.add(one.encode())
        except UnicodeEncodeError as error:
            surrogate = ord(one[error.start])
            raise InvalidConstraint(f"a choice has the lone surrogate U+{surrogate:04X}: {one!r}") from None
    total = sum(map(len, spellings))
    if total > MAX_CHOICE_BYTES:
        raise budget.exceeded(f"together they are {total} bytes long, the limit is {MAX_CHOICE_BYTES}")
    builder = _Builder(budget)
    for spelling in sorted(spellings):
        builder.add(spelling)
    return builder.finish()


class _Builder:
    """Makes the minimal automaton of texts that are added in order (Daciuk et al. 2000).

    Only the path of the last text is open; what left it can no longer change, and equal parts are one.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._last = b""
        self._edges: list[list[tuple[int, int]]] = [[]]
        self._final = [False]
        self._states: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}

    def add(self, spelling: bytes) -> None:
        """Adds a text that is larger than all before."""
        self._budget.check_time()
        shared = 0
        limit = min(len(spelling), len(self._last))
        while shared < limit and spelling[shared] == self._last[shared]:
            shared += 1
        self._close(shared)
        for _ in range(len(spelling) - shared):
            self._edges.append([])
            self._final.append(False)
        self._final[-1] = True
        self._last = spelling

    def _close(self, depth: int) -> None:
        """Closes the open nodes below `depth`."""
        for level in range(len(self._edges) - 1, depth, -1):
            state = self._state(self._final.pop(), self._edges.pop())
            self._edges[level - 1].append((self._last[level - 1], state))

    def _state(self, final: bool, edges: list[tuple[int, int]]) -> int:  # noqa: FBT001
        state = self._states.setdefault((final, tuple(edges)), len(self._states))
        self._budget.check_states(len(self._states))
        return state

    def finish(self) -> Dfa:
        """The automaton of the texts added."""
        self._close(0)
        start = self._state(self._final.pop(), self._edges.pop())
        # The start is made last, and must be state 0.
        table = np.full((start + 1, 256), -1, np.int32)
        accepting = np.zeros(start + 1, np.bool_)
        for (final, edges), state in self._states.items():
            accepting[start - state] = final
            for byte, target in edges:
                table[start - state, byte] = start - target
        return Dfa(*renumber(table, accepting))
