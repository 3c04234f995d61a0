r"""Regular expressions to automata: parsed, brought into normal form, flattened.

Two dialects. `python` is that of `re` as a full match. `ecma` is that of ECMA-262 with the u flag, as a
search, which is what a JSON Schema's `pattern` means; see `parse_python.py` and `parse_ecma.py`.
"""

from __future__ import annotations

import numpy as np

from treille.runtime.errors import InvalidConstraint
from treille.runtime.grammar.arena import Arena, ArenaFull
from treille.runtime.grammar.automaton import Dfa, minimize
from treille.runtime.grammar.build import Blueprint, Program
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.normal import normalize, whole_text
from treille.runtime.grammar.parse_ecma import parse_ecma, search_tree
from treille.runtime.grammar.parse_python import parse_python
from treille.runtime.grammar.states import EXPLORE
from treille.runtime.grammar.store import ACCEPTS, STATUS
from treille.runtime.grammar.tree import Tree

DIALECTS = ("python", "ecma")
MAX_STATES = 1 << 15  # of a whole automaton


def regex_blueprint(pattern: str, dialect: str = "python", *, budget: Budget | None = None) -> Blueprint:
    """The expression of a pattern.

    Raises `InvalidConstraint` (with the offset) for what the dialect does not allow, `UnsupportedConstraint`
    for what cannot be enforced exactly, and past the limits.
    """
    if dialect == "python":
        tree = parse_python(pattern, budget=budget)
    else:
        tree = search_tree(parse_ecma(pattern, budget=budget))
    if budget is not None:
        budget.check_time()
    return tree_blueprint(tree)


def tree_blueprint(tree: Tree) -> Blueprint:
    """The expression of a tree."""
    program = Program()
    program.add(whole_text(normalize(tree)))
    return Blueprint(program)


def regex_dfa(pattern: str, dialect: str = "python") -> Dfa:
    """The whole minimal automaton of a pattern, in UTF-8: for drawing and for looking into.

    Raises as `regex_blueprint`, and `InvalidConstraint` for a pattern that no text matches.
    """
    return whole_dfa(Arena.fresh(regex_blueprint(pattern, dialect)))


def whole_dfa(arena: Arena, budget: Budget | None = None) -> Dfa:
    """Explores every state. Raises `UnsupportedConstraint` past the limits."""
    budget = budget or Budget("constraint")
    done = 0
    try:
        while done < arena.num_states:
            if done >= MAX_STATES:
                raise ArenaFull
            done = arena.ask(EXPLORE, min(MAX_STATES, done + 256))
            budget.check_time()
    except ArenaFull:
        raise budget.exceeded(f"its automaton needs more than the limit of {MAX_STATES} states") from None
    store = arena.store
    # The start must be row 0.
    order = [arena.start, *(state for state in range(done) if state != arena.start)]
    place = {state: at for at, state in enumerate(order)}
    lookup = [place[state] for state in range(done)] + [-1]
    table = store.rows[order]
    small = minimize(np.array(lookup, np.int32)[table], (store.states[order, STATUS] & ACCEPTS) > 0)
    if small is None:
        raise InvalidConstraint("no text matches the pattern")
    return Dfa(*small)
