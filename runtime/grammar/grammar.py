"""`Grammar`, a compiled constraint that many requests share, and `Matcher`, one request's place in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import OrderedDict
from collections.abc import Callable
from threading import RLock
from typing import Concatenate, ParamSpec, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from treille.runtime.errors import GrammarError, InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar.arena import MAX_STEP_SECONDS, Arena, ArenaFull
from treille.runtime.grammar.automaton import Dfa
from treille.runtime.grammar.build import Blueprint
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.masks import ALL_SPELLABLE, fill_tokens, spread_live
from treille.runtime.grammar.regex import whole_dfa
from treille.runtime.grammar.slices import symbols_of
from treille.runtime.grammar.states import IS_LIVE, WIDENED
from treille.runtime.grammar.store import AGREES, Bytes, Flags
from treille.runtime.grammar.vocabulary import Vocabulary

Mask = NDArray[np.uint32]

MAX_MASK_BYTES = 16 << 20  # of one grammar's finished masks
P = ParamSpec("P")
T = TypeVar("T")

NO_SYMBOLS = np.zeros((0, 2, 0), np.bool_)
_MAX_MOVES = 1 << 16  # remembered: which state a token leads to
_RUN = 32  # and how many of the bytes that must follow a state


class States(Protocol):
    """The states of one constraint that were reached so far; `start` is that of the empty text, `seconds`
    what one question may take. Questions raise `ArenaFull`, and `UnsupportedConstraint` past the time."""

    start: int
    seconds: float

    @property
    def num_states(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def accepts(self, state: int) -> bool: ...

    def after(self, state: int, data: Bytes, first: int, end: int) -> int: ...

    def only_byte(self, state: int) -> int: ...

    def forced(self, state: int, out: Bytes) -> int: ...

    def moved(self, other: Self, state: int) -> int: ...


class Grammar(ABC):
    """A constraint joined to a vocabulary. Shared between requests and threads.

    Its states are made when they are first reached, in an arena that is replaced when it is full.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocab = vocab
        self.lock = RLock()
        self.arena = self._new_arena()
        self._masks: OrderedDict[int, Mask] = OrderedDict()
        self._looked: dict[int, int] = {}  # by state, how far its mask's walk looked ahead
        self._moves: dict[int, int] = {}
        self._ends: dict[int, bool] = {}  # by state, whether nothing can follow
        self._runs: dict[int, bytes] = {}  # by state, up to `_RUN` of the bytes that must follow
        self._max_masks = max(1, MAX_MASK_BYTES // max(1, 4 * vocab.num_words))

    @abstractmethod
    def _new_arena(self) -> States:
        """An arena in which nothing but the start was reached."""

    @abstractmethod
    def _walked(self, state: int) -> Mask:
        """The mask of a state, which may be shared with another state; notes in `_looked` how far it
        looked."""

    @property
    def nbytes(self) -> int:
        """Memory in use now."""
        return self.arena.nbytes + 4 * self.vocab.num_words * len(self._masks)

    @property
    def num_states(self) -> int:
        """States reached so far."""
        return self.arena.num_states

    def matcher(self) -> Matcher:
        """A matcher at the start of the text."""
        return Matcher(self)

    def renew(self) -> States:
        """A fresh arena in place of the current one, which is full; call with the lock held."""
        self.arena = self._new_arena()
        self.arena.seconds = MAX_STEP_SECONDS
        self._masks.clear()
        self._looked.clear()
        self._moves.clear()
        self._ends.clear()
        self._runs.clear()
        return self.arena

    def mask(self, state: int) -> Mask:
        """The tokens allowed in a state of the current arena, read-only uint32 [ceil(V / 32)]; recently used
        ones are kept. Call with the lock held; raises `ArenaFull`."""
        row = self._masks.get(state)
        if row is not None:
            self._masks.move_to_end(state)
            return row
        row = self._walked(state)
        row.flags.writeable = False
        self._masks[state] = row
        if len(self._masks) > self._max_masks:
            oldest, _ = self._masks.popitem(last=False)
            self._looked.pop(oldest, None)
        return row

    def after_token(self, state: int, token_id: int) -> int:
        """The state of the current arena after a token that is text, or -1. Call with the lock held."""
        key = state * self.vocab.vocab_size + token_id
        following = self._moves.get(key)
        if following is None:
            first, end = self.vocab.ends[token_id : token_id + 2]
            following = self._after(state, first, end)
            if len(self._moves) >= _MAX_MOVES:
                self._moves.clear()
            self._moves[key] = following
        return following

    def _after(self, state: int, first: int, end: int) -> int:
        """The state after bytes `first` to `end` of the vocabulary's data, or -1."""
        return self.arena.after(state, self.vocab.trie.data, first, end)

    def has_mask(self, state: int) -> bool:
        """Whether the mask of a state is there without a walk."""
        return state in self._masks

    def must_stop(self, state: int) -> bool:
        """Whether the text is accepted and no token can follow. Call with the lock held."""
        known = self._ends.get(state)
        if known is None:
            known = self._ends[_roomy(self._ends, state)] = self._is_end(state)
        return known

    def _is_end(self, state: int) -> bool:
        return self.arena.accepts(state) and self.arena.only_byte(state) == -1

    def forced(self, state: int, limit: int) -> bytes:
        """The bytes that must follow a state, at most `limit`. Call with the lock held."""
        known = self._runs.get(state)
        if known is None:
            known = self._runs[_roomy(self._runs, state)] = self._forced(state, _RUN)
        return known[:limit] if len(known) < _RUN or limit <= _RUN else self._forced(state, limit)

    def _forced(self, state: int, limit: int) -> bytes:
        out = np.empty(limit, np.uint8)
        return out[: self.arena.forced(state, out)].tobytes()

    def _fresh_row(self, state: int) -> Mask:
        if self.arena.accepts(state):
            return self.vocab.eos_words.copy()
        return np.zeros(self.vocab.num_words, np.uint32)


class RegularGrammar(Grammar):
    """A grammar on the regular engine: an expression, or a finished automaton.

    With a token for each single byte every state that leads to acceptance can be spelled; a vocabulary
    without has the whole automaton explored now, and tokens that lead to a dead end are masked.
    Raises `InvalidConstraint` if no text is accepted, `UnsupportedConstraint` if the vocabulary cannot spell
    any, or past the limits.
    """

    arena: Arena

    def __init__(self, source: Blueprint | Dfa, vocab: Vocabulary, budget: Budget | None = None) -> None:
        self.spellable: Flags | None = None
        self._source = source
        super().__init__(vocab)
        try:
            if isinstance(source, Blueprint) and not self.arena.ask(IS_LIVE, self.arena.start):
                raise self._no_text(source)
            self._check_spelling(budget or Budget("constraint"))
        except ArenaFull:
            raise too_large() from None
        self.arena.seconds = MAX_STEP_SECONDS
        source = self._source  # a whole automaton by now, perhaps: it has no classes for slices to be made of
        self._symbols = symbols_of(source.classes) if isinstance(source, Blueprint) else NO_SYMBOLS

    @property
    def nbytes(self) -> int:
        """Memory in use now."""
        return self._source.nbytes + super().nbytes

    def _is_end(self, state: int) -> bool:
        if self.spellable is None:
            return super()._is_end(state)
        return self.arena.accepts(state) and bool(np.array_equal(self.mask(state), self.vocab.eos_words))

    def _after(self, state: int, first: int, end: int) -> int:
        following = super()._after(state, first, end)
        if following >= 0 and self.spellable is not None and not self.spellable[following]:
            return -1
        return following

    def _new_arena(self) -> Arena:
        if isinstance(self._source, Dfa):
            return Arena.of_dfa(self._source)
        return Arena.fresh(self._source, self.vocab.possible_bytes)

    def _walked(self, state: int) -> Mask:
        arena, trie = self.arena, self.vocab.trie
        wide, reach = arena.ask(WIDENED, state), -1
        if wide == state:
            row = self._fresh_row(state)
        else:
            reach = int(arena.store.facts[AGREES])
            row = self.mask(wide)
            if self._looked[wide] <= reach:
                return row
            row = row.copy()
        spellable = ALL_SPELLABLE if self.spellable is None else self.spellable
        stack = np.empty(int(trie.max_depth) + 1, np.int32)
        walk = (trie, self.vocab.slices, self._symbols, state, reach, spellable, stack, row)
        self._looked[state] = arena.run(fill_tokens, *walk)
        return row

    def _check_spelling(self, budget: Budget) -> None:
        """Where the vocabulary lacks bytes that may be needed, finds out which states can be spelled."""
        if isinstance(self._source, Dfa):
            used = (self._source.transitions >= 0).any(axis=0)
        else:
            used = self._source.used_bytes & self.vocab.possible_bytes
        if not (used & ~self.vocab.single_bytes).any() and not self._needs_missing_characters():
            return
        source = self._source
        if isinstance(source, Blueprint):
            try:
                whole = whole_dfa(self.arena, budget)
            except InvalidConstraint:
                raise self._no_text(source) from None
            self._source = whole
            self.arena = self._new_arena()
        else:
            whole = source
        self.spellable = _spellable(whole, self.vocab, budget)

    def _needs_missing_characters(self) -> bool:
        """Whether there is a set of characters none of which the vocabulary has: what must go through it is
        a dead end, which expressions do not show."""
        if isinstance(self._source, Dfa):
            return False
        members = self.arena.store.members
        return bool((members.any(axis=1) & ~(members & self.arena.store.below[-1]).any(axis=1)).any())

    def _no_text(self, source: Blueprint) -> InvalidConstraint | UnsupportedConstraint:
        """The error where there is no text, or none that the vocabulary's characters make."""
        arena = Arena.fresh(source)
        return (
            _unspelled()
            if arena.ask(IS_LIVE, arena.start)
            else InvalidConstraint("no text matches the pattern")
        )


def _roomy(known: dict[int, T], state: int) -> int:
    """The state, once what is known of others is forgotten if that is much."""
    if len(known) >= _MAX_MOVES:
        known.clear()
    return state


def _unspelled() -> UnsupportedConstraint:
    reason = "the model's tokens cannot spell any text that the constraint accepts"
    return UnsupportedConstraint("vocabulary", "offset 0", reason)


def too_large() -> UnsupportedConstraint:
    return UnsupportedConstraint("constraint", "offset 0", "one step of it needs more memory than the limit")


def _spellable(dfa: Dfa, vocab: Vocabulary, budget: Budget) -> Flags:
    """By state: whether tokens can spell a text from it to acceptance."""
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
        raise _unspelled()
    return live


class Matcher:
    """One text's place in a grammar. Cheap to copy; not to be shared between threads.

    A text ends with one of the vocabulary's `eos_ids`, allowed where the text so far is accepted.
    """

    __slots__ = ("_arena", "_finished", "_forgotten", "_history", "_state", "_tokens", "grammar")

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._arena = grammar.arena
        self._state = self._arena.start
        self._finished = False
        self._history = array("i")  # the state before each accepted token
        self._tokens = array("i")
        # How many states of the history are of an older arena, which was full and is gone.
        self._forgotten = 0

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
        if self._finished:
            row[:words] = vocab.eos_words
        else:
            row[:words] = self._ask(self.grammar.mask)
        row[words:] = 0

    def is_ready(self) -> bool:
        """Whether `fill_mask` would only copy what is known."""
        return self._finished or (self._arena is self.grammar.arena and self.grammar.has_mask(self._state))

    def allows(self, token_id: int) -> bool:
        """Whether `accept` would take the token."""
        return self._after(token_id) >= 0

    def accept(self, token_id: int) -> None:
        """Goes on by one token. Raises `GrammarError` if it is not allowed; the state is unchanged."""
        state = self._after(token_id)
        if state < 0:
            raise GrammarError(
                f"token {token_id} is not allowed"
                + (": the text has ended" if self._finished else f" after {self.num_accepted} tokens")
            )
        self._history.append(self._state)
        self._tokens.append(token_id)
        self._state = state
        self._finished = token_id in self.grammar.vocab.eos_ids

    def _after(self, token_id: int) -> int:
        """The state after a token, or -1 if it is not allowed."""
        vocab = self.grammar.vocab
        if token_id in vocab.eos_ids:
            return self._state if not self._finished and self.can_stop() else -1
        if self._finished or not 0 <= token_id < len(vocab.tokens) or vocab.tokens[token_id] is None:
            return -1
        return self._ask(self.grammar.after_token, token_id)

    def _ask(self, question: Callable[Concatenate[int, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Asks the grammar about the state, moved to a fresh arena first if the one it is in is full."""
        grammar = self.grammar
        with grammar.lock:
            try:
                if self._arena is not grammar.arena:
                    self._move(grammar.arena)
                return question(self._state, *args, **kwargs)
            except ArenaFull:
                pass
            try:
                self._move(grammar.renew())
                return question(self._state, *args, **kwargs)
            except ArenaFull:
                raise too_large() from None

    def _move(self, arena: States) -> None:
        if arena is self._arena:
            return
        state = arena.moved(self._arena, self._state)
        self._forgotten = len(self._history)
        self._arena, self._state = arena, state

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
            del self._tokens[-n:]
            if len(self._history) < self._forgotten:
                self._replay()

    def _replay(self) -> None:
        """Reads the tokens again from the start: the states of the history are of an arena that is gone."""
        tokens, self._tokens = self._tokens, array("i")
        self._history, self._forgotten = array("i"), 0
        self._arena = self.grammar.arena
        self._state = self._arena.start
        for token_id in tokens:
            self.accept(token_id)

    def copy(self) -> Matcher:
        """A matcher at the same place, independent from now on."""
        other = Matcher.__new__(Matcher)
        other.grammar = self.grammar
        other._arena = self._arena
        other._state = self._state
        other._finished = self._finished
        other._history = self._history[:]
        other._tokens = self._tokens[:]
        other._forgotten = self._forgotten
        return other

    def can_stop(self) -> bool:
        """Whether the text so far is accepted as it is."""
        return self._arena.accepts(self._state)

    def must_stop(self) -> bool:
        """Whether the text so far is accepted and nothing can be added."""
        return self._finished or self._ask(self.grammar.must_stop)

    def is_finished(self) -> bool:
        """Whether the text is complete: it was ended, or it is accepted and nothing can be added."""
        return self.must_stop()

    def forced_bytes(self, limit: int | None = None) -> bytes:
        """The bytes that must come next, up to the first choice; to stop is a choice. At most `limit`, or
        4,096.

        They may end in the middle of a character, where its next byte is a choice.
        """
        if self._finished:
            return b""
        return self._ask(self.grammar.forced, 4096 if limit is None else limit)
