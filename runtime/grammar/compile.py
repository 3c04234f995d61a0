"""From a constraint to a `Grammar`; what was compiled for a vocabulary is cached on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treille.runtime.errors import InvalidConstraint
from treille.runtime.grammar.automaton import Dfa, renumber
from treille.runtime.grammar.grammar import Grammar
from treille.runtime.grammar.limits import MAX_CHOICE_BYTES, Budget
from treille.runtime.grammar.regex import regex_dfa
from treille.runtime.grammar.vocabulary import Vocabulary
from treille.runtime.params import Constraint


def compile_constraint(constraint: Constraint, vocab: Vocabulary) -> Grammar:
    """The grammar of a request's constraint; errors name the request's field."""
    if constraint.kind == "regex" and isinstance(constraint.source, str):
        return compile_regex(constraint.source, vocab)
    if constraint.kind == "choices" and isinstance(constraint.source, tuple):
        return compile_choices(constraint.source, vocab)
    raise InvalidConstraint(f"no constraint has kind {constraint.kind!r} and source {constraint.source!r}")


def compile_regex(pattern: str, vocab: Vocabulary) -> Grammar:
    """The texts that `re.fullmatch(pattern, text)` takes, in the dialect of Python's `re` (Unicode).

    Raises `InvalidConstraint`, with the offset, for a pattern that `re` does not compile or that no text
    matches; `UnsupportedConstraint` for one that cannot be enforced exactly (see `regex.py`) or is
    past a limit.
    """
    if not isinstance(pattern, str):
        raise InvalidConstraint(f"a pattern is a string, not {pattern!r}", field="regex")
    return vocab.cache.get(("regex", pattern), lambda: Grammar(regex_dfa(pattern), vocab))


def compile_choices(choices: Sequence[str], vocab: Vocabulary) -> Grammar:
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
    texts = tuple(sorted(set(choices)))
    return vocab.cache.get(("choices", texts), lambda: Grammar(choices_dfa(texts), vocab))


def choices_dfa(choices: Sequence[str]) -> Dfa:
    """The minimal automaton of a finite set of texts."""
    budget = Budget("choices")
    spellings = []
    for one in choices:
        try:
            spellings.append(one.encode())
        except UnicodeEncodeError as error:
            raise InvalidConstraint(
                f"a choice has the lone surrogate U+{ord(one[error.start]):04X}: {one!r}", field="choices"
            ) from None
    total = sum(map(len, spellings))
    if total > MAX_CHOICE_BYTES:
        raise budget.exceeded(f"together they are {total} bytes long, the limit is {MAX_CHOICE_BYTES}")
    ways, final = _tree(spellings)
    return _merged(ways, final, budget)


def _tree(spellings: Sequence[bytes]) -> tuple[list[dict[int, int]], list[bool]]:
    """A tree of the texts: by node, the node that each byte leads to, and whether a text ends here."""
    ways: list[dict[int, int]] = [{}]
    final = [False]
    for spelling in spellings:
        node = 0
        for byte in spelling:
            following = ways[node].get(byte)
            if following is None:
                following = len(ways)
                ways[node][byte] = following
                ways.append({})
                final.append(False)
            node = following
        final[node] = True
    return ways, final


def _merged(ways: list[dict[int, int]], final: list[bool], budget: Budget) -> Dfa:
    """Merges nodes under which the tree is the same; children were made after their parents."""
    state_of = [0] * len(ways)
    known: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
    for node in range(len(ways) - 1, -1, -1):
        edges = tuple(sorted((byte, state_of[target]) for byte, target in ways[node].items()))
        state_of[node] = known.setdefault((final[node], edges), len(known))
    budget.check_states(len(known))
    last = len(known) - 1  # the root is the last to be numbered, and must be the first
    table = np.full((len(known), 256), -1, np.int32)
    accepting = np.zeros(len(known), np.bool_)
    for (is_final, edges), state in known.items():
        accepting[last - state] = is_final
        for byte, target in edges:
            table[last - state, byte] = last - target
    return Dfa(*renumber(table, accepting))
