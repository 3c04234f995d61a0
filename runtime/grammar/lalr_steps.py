"""An LALR parser in the engine: expressions that carry its stack.

`PARSED(stack)` is the parser between two tokens, `LEXED(x, stack)` the same within one, of which x is left:
an expression with a `TERM` where the token ends, which says of what kind it is. The stack is a list of
states, shared as all expressions are.
"""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.algebra import concat, either, length, look, spread
from treille.runtime.grammar.store import (
    BEHIND,
    BEHINDS,
    CONCAT,
    EMPTY,
    KIND,
    KNOWN,
    LEXED,
    LOOK,
    NONE,
    NULLABLE,
    OR,
    PARSED,
    RULE,
    RULES,
    SEARCHED,
    STACK,
    STEPS,
    TERM,
    TOO_DEEP,
    TROUBLE,
    A,
    B,
    Int64s,
    Store,
    fixed,
    inner,
    int64,
    intern,
)

# The array of a parser: sizes, where its tables begin, and the tables. ACTIONS [state, token]: 0 error, 1 +
# the state to shift to, or -1 - the rule to reduce; the end of the text is the last token. GOTOS [state, name
# of a rule]. SIZES, ORIGINS: of a rule, the number of its symbols and its name. TOKENS [state, kind of a
# match]: the token. LEXERS: by state, the rule of the engine with which a token begins. KINDS, from KINDS_AT
# of a rule of the engine up to that of the next: the kinds of matches that it may come to.
NUM_TOKENS, NUM_NAMES, NUM_KINDS, END_STATE = range(4)
ACTIONS, GOTOS, SIZES, ORIGINS, TOKENS, LEXERS, KINDS_AT, KINDS = range(4, 12)
HEADER = 16
IGNORED, NO_TOKEN = -2, -1

_ASK, _SHIFT = fixed(0), fixed(1)
_MAX_CONDITIONS = 200  # that the rest of a token depends on
_MAX_REDUCTIONS = 100_000  # at one token: past it, Lark's parser would not end
_MAX_PUSHED = 1000  # by reductions of nothing, at one token


@inner
def token_start(store: Store, stack: int) -> int:  # pragma: no cover
    """The expression of a token at this stack."""
    lexer = store.lexer
    return int64(store.facts[RULES + lexer[lexer[LEXERS] + store.nodes[stack, A]]])


@inner
def parsed(store: Store, stack: int) -> int:  # pragma: no cover
    """The parser with this stack, between two tokens: nullable if it takes the end of the text."""
    known = store.nodes[token_start(store, stack), KNOWN] & (BEHINDS | SEARCHED)
    if _after(store, stack, store.lexer[NUM_TOKENS] - 1, _ASK) != EMPTY:
        known |= NULLABLE
    return intern(store, PARSED, stack, NONE, NONE, NONE, known)


@inner
def _after(store: Store, stack: int, token: int, purpose: int) -> int:  # pragma: no cover
    """The stack after a token, its reductions and its shift; `EMPTY` if it is refused.

    The end of the text is the last token: it is not shifted. To ask is enough where only that matters.
    """
    lexer, nodes = store.lexer, store.nodes
    num_tokens = lexer[NUM_TOKENS]
    pushed, count = np.empty(_MAX_PUSHED, np.int64), 0  # on top of the stack
    for _ in range(_MAX_REDUCTIONS):
        store.facts[STEPS] -= 1
        top = pushed[count - 1] if count else nodes[stack, A]
        action = lexer[lexer[ACTIONS] + top * num_tokens + token]
        if action == 0:
            return int64(EMPTY)
        if action > 0:
            if purpose == _ASK:
                return int64(stack)
            for index in range(count):
                stack = intern(store, STACK, pushed[index], stack, NONE, NONE, NONE)
            return intern(store, STACK, action - 1, stack, NONE, NONE, NONE)
        size = lexer[lexer[SIZES] - 1 - action]
        while size > count:
            stack, size = nodes[stack, B], size - 1
        count -= min(size, count)
        top = pushed[count - 1] if count else nodes[stack, A]
        origin = lexer[lexer[ORIGINS] - 1 - action]
        state = lexer[lexer[GOTOS] + top * lexer[NUM_NAMES] + origin]
        if token == num_tokens - 1 and state == lexer[END_STATE]:
            return int64(stack)
        if count == _MAX_PUSHED:
            return int64(EMPTY)
        pushed[count] = state
        count += 1
    return int64(EMPTY)


@inner
def _token(store: Store, stack: int, kind: int) -> int:  # pragma: no cover
    """The token that a match of a kind is, at this stack."""
    lexer = store.lexer
    return int64(lexer[lexer[TOKENS] + store.nodes[stack, A] * lexer[NUM_KINDS] + kind])


@inner
def _after_token(store: Store, stack: int, kind: int) -> int:  # pragma: no cover
    """The parser after a match of a kind, `EMPTY` if it refuses the token."""
    token = _token(store, stack, kind)
    if token == IGNORED:
        return parsed(store, stack)
    if token >= 0:
        stack = _after(store, stack, token, _SHIFT)
    return parsed(store, stack) if token >= 0 and stack != EMPTY else int64(EMPTY)


@inner
def _leads_on(store: Store, stack: int, rest: int) -> bool:  # pragma: no cover
    """Whether the rest of a token may come to a match that the parser takes."""
    if store.nodes[rest, KIND] != RULE:
        return True
    lexer = store.lexer
    at = lexer[KINDS_AT] + store.nodes[rest, A]
    for place in range(lexer[at], lexer[at + 1]):
        token = _token(store, stack, lexer[lexer[KINDS] + place])
        if token == IGNORED or (token >= 0 and _after(store, stack, token, _ASK) != EMPTY):
            return True
    return False


@inner
def _wrapped(store: Store, node: int, wrappers: Int64s, at: int) -> int:  # pragma: no cover
    """An expression, and the conditions that it was found under."""
    while at >= 0 and node != EMPTY:
        condition = wrappers[at, 0]
        if store.nodes[condition, KIND] == BEHIND:
            node = concat(store, condition, node)
        else:
            node = look(store, condition, node)
        at = wrappers[at, 1]
    return int64(node)


@inner
def within(store: Store, rest: int, stack: int) -> int:  # pragma: no cover
    """The parser within a token of which `rest` is left, or behind it where the token ends."""
    nodes = store.nodes
    # Conditions, each with the one around it (or -1), and expressions yet to be looked at under them.
    wrappers, num_wrappers = np.empty((_MAX_CONDITIONS, 2), np.int64), 0
    todo = np.empty((_MAX_CONDITIONS + 1, 2), np.int64)
    todo[0, 0], todo[0, 1] = rest, -1
    top, result = 1, int64(EMPTY)
    while top > 0:
        top -= 1
        node, under = todo[top]
        left = int64(EMPTY)
        members = np.empty(length(store, node, OR), np.int64)
        for member in members[: spread(store, node, OR, members)]:
            kind = nodes[member, KIND]
            if kind == TERM:
                found = _after_token(store, stack, nodes[member, A])
                result = either(store, result, _wrapped(store, found, wrappers, under))
            elif kind == LOOK or (kind == CONCAT and nodes[nodes[member, A], KIND] == BEHIND):
                if num_wrappers == _MAX_CONDITIONS:
                    store.facts[TROUBLE] = TOO_DEEP
                    return int64(EMPTY)
                wrappers[num_wrappers, 0], wrappers[num_wrappers, 1] = nodes[member, A], under
                todo[top, 0], todo[top, 1] = nodes[member, B], num_wrappers
                num_wrappers, top = num_wrappers + 1, top + 1
            elif member != EMPTY and _leads_on(store, stack, member):
                left = either(store, left, member)
        if left != EMPTY:
            known = nodes[left, KNOWN] & (BEHINDS | SEARCHED)
            found = intern(store, LEXED, left, stack, NONE, NONE, known)
            result = either(store, result, _wrapped(store, found, wrappers, under))
    return result
