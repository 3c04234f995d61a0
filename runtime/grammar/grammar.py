"""`Grammar`, a compiled constraint that many requests share, and `Matcher`, one request's place in it."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from functools import cached_property
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from treille.runtime.errors import GrammarError, UnsupportedConstraint
from treille.runtime.grammar.automaton import Dfa
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.masks import fill_tokens, spread_live
from treille.runtime.grammar.vocabulary import Vocabulary

Mask = NDArray[np.uint32]

MAX_MASK_BYTES = 16 << 20  # of one grammar's finished masks


class Grammar:
    """An automaton over bytes joined to a vocabulary. Immutable, safe to share between threads.

    A state is *live* if tokens of the vocabulary can spell a text from there to acceptance. With a
    token for each single byte every state is; without, tokens that lead to a dead end are masked.
    Raises `UnsupportedConstraint` if the vocabulary cannot spell any accepted text.
    """

    def __init__(self, dfa: Dfa, vocab: Vocabulary) -> None:
        self.dfa = dfa
        self.vocab = vocab
        self._live = _live_states(dfa, vocab)
        self._all_live = bool(self._live.all())
        self._masks: OrderedDict[int, Mask] = OrderedDict()
        self._lock = Lock()
        self._max_masks = min(dfa.num_states, max(1, MAX_MASK_BYTES // max(1, 4 * vocab.num_words)))

    @property
    def nbytes(self) -> int:
        """Memory, with as many finished masks as it may ever hold."""
        return self.dfa.nbytes + self._live.nbytes + 4 * self.vocab.num_words * self._max_masks

    def matcher(self) -> Matcher:
        """A matcher at the start of the text."""
        return Matcher(self)

    def mask(self, state: int) -> Mask:
        """The tokens allowed in `state`, read-only uint32 [ceil(V / 32)]; recently used ones are kept."""
        with self._lock:
            row = self._masks.get(state)
            if row is not None:
                self._masks.move_to_end(state)
                return row
        row = self._walk(state)
        with self._lock:
            self._masks[state] = row
            if len(self._masks) > self._max_masks:
                self._masks.popitem(last=False)
        return row

    def _walk(self, state: int) -> Mask:
        trie = self.vocab.trie
        row = np.zeros(self.vocab.num_words, np.uint32)
        if self.dfa.accepting[state]:
            row |= self.vocab.eos_words
        stack = np.empty(int(trie.max_depth) + 1, np.int32)
        fill_tokens(trie, self.dfa.transitions, self._live, state, stack, row)
        row.flags.writeable = False
        return row

    def is_live(self, state: int) -> bool:
        """Whether the vocabulary can spell a text from `state` to acceptance."""
        return bool(self._live[state])

    def must_stop(self, state: int) -> bool:
        """Whether the text is accepted and no token can follow."""
        if not self.dfa.accepting[state]:
            return False
        if self._all_live:
            return bool(self.dfa.transitions[state].max() < 0)
        return bool(np.array_equal(self.mask(state), self.vocab.eos_words))

    @cached_property
    def only_byte(self) -> NDArray[np.int16]:
        """By state: the one byte that may follow, or -1 where there is a choice (to stop is one)."""
        allowed = self.dfa.transitions >= 0
        single = (allowed.sum(axis=1) == 1) & ~self.dfa.accepting
        return np.where(single, allowed.argmax(axis=1), -1).astype(np.int16)


def _live_states(dfa: Dfa, vocab: Vocabulary) -> NDArray[np.bool_]:
    used = (dfa.transitions >= 0).any(axis=0)
    if not (used & ~vocab.single_bytes).any():
        return np.ones(dfa.num_states, np.bool_)
    budget = Budget("vocabulary")
    trie = vocab.trie
    stack = np.empty(int(trie.max_depth) + 1, np.int32)
    live = dfa.accepting.copy()
    changed = True
    while changed:
        changed = False
        for last in range(dfa.num_states, 0, -256):
            budget.check_time()
            first = max(0, last - 256)
            changed |= spread_live(trie, dfa.transitions, live, stack, first, last) > 0
    if not live[0]:
        raise UnsupportedConstraint(
            "vocabulary", "offset 0", "the model's tokens cannot spell any text that the constraint accepts"
        )
    return live


class Matcher:
    """One text's place in a grammar. Cheap to copy; not to be shared between threads.

    A text ends with one of the vocabulary's `eos_ids`, allowed where the text so far is accepted.
    """

    __slots__ = ("_finished", "_history", "_state", "grammar")

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._state = 0
        self._finished = False
        self._history = array("i")  # the state before each accepted token

    @property
    def state(self) -> int:
        """The automaton's state: where it is the same, and the text has not ended, so is the mask."""
        return self._state

    @property
    def num_accepted(self) -> int:
        """Tokens accepted so far, and not rolled back."""
        return len(self._history)

    def fill_mask(self, row: Mask) -> None:
        """Writes which tokens are allowed next: bit t % 32 of word t // 32.

        `row`: uint32, at least ceil(vocab_size / 32) words; words past these are cleared. After the end
        of the text only the ids that end it are set, so that a row computed a step too far is not empty
        (`accept` takes no more tokens). Raises `ValueError` for another shape or type.
        """
        vocab = self.grammar.vocab
        words = vocab.num_words
        if row.dtype != np.uint32 or row.ndim != 1 or len(row) < words:
            raise ValueError(f"a mask is uint32 [{words}] or longer, not {row.dtype} {list(row.shape)}")
        row[:words] = vocab.eos_words if self._finished else self.grammar.mask(self._state)
        row[words:] = 0

    def allows(self, token_id: int) -> bool:
        """Whether `accept` would take the token."""
        return self._after(token_id) is not None

    def accept(self, token_id: int) -> None:
        """Goes on by one token. Raises `GrammarError` if it is not allowed; the state is unchanged."""
        state = self._after(token_id)
        if state is None:
            raise GrammarError(
                f"token {token_id} is not allowed"
                + (": the text has ended" if self._finished else f" after {self.num_accepted} tokens")
            )
        self._history.append(self._state)
        self._state = state
        self._finished = token_id in self.grammar.vocab.eos_ids

    def _after(self, token_id: int) -> int | None:
        grammar, state = self.grammar, self._state
        vocab = grammar.vocab
        if self._finished or not 0 <= token_id < len(vocab.tokens):
            return state if token_id in vocab.eos_ids and self.can_stop() and not self._finished else None
        if token_id in vocab.eos_ids:
            return state if self.can_stop() else None
        spelling = vocab.tokens[token_id]
        following = None if spelling is None else grammar.dfa.run(spelling, state)
        return following if following is not None and grammar.is_live(following) else None

    def rollback(self, n: int) -> None:
        """Takes the last `n` tokens back. Raises `GrammarError`, unchanged, if there are fewer."""
        if n < 0:
            raise ValueError(f"cannot roll back {n} tokens")
        if n > len(self._history):
            raise GrammarError(f"cannot roll back {n} tokens of {len(self._history)}")
        if n:
            self._state = self._history[-n]
            self._finished = False
            del self._history[-n:]

    def copy(self) -> Matcher:
        """A matcher at the same place, independent from now on."""
        other = Matcher(self.grammar)
        other._state = self._state
        other._finished = self._finished
        other._history = self._history[:]
        return other

    def can_stop(self) -> bool:
        """Whether the text so far is accepted as it is."""
        return bool(self.grammar.dfa.accepting[self._state])

    def must_stop(self) -> bool:
        """Whether the text so far is accepted and nothing can be added."""
        return self._finished or self.grammar.must_stop(self._state)

    def is_finished(self) -> bool:
        """Whether the text is complete: it was ended, or it is accepted and nothing can be added."""
        return self.must_stop()

    def forced_bytes(self, limit: int | None = None) -> bytes:
        """The bytes that must come next, up to the first choice; to stop is a choice. At most `limit`.

        They may end in the middle of a character, where its next byte is a choice.
        """
        if self._finished:
            return b""
        only, transitions, state = self.grammar.only_byte, self.grammar.dfa.transitions, self._state
        forced = bytearray()
        while (limit is None or len(forced) < limit) and (byte := int(only[state])) >= 0:
            forced.append(byte)
            state = int(transitions[state, byte])
        return bytes(forced)
