"""`JsonArena`: the machine of one document in use, from Python. It gives room and steps, and answers
questions."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.arena import MAX_COMPILE_SECONDS, grown
from treille.runtime.grammar.build import NO_LEXER, empty_store
from treille.runtime.grammar.classes import classes_of
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.slices import in_strings, symbols_of
from treille.runtime.grammar.store import (
    ACCEPTS,
    AGREES,
    FULL,
    MANY,
    NUM_NODES,
    NUM_STATES,
    STATUS,
    STEPS,
    TOO_DEEP,
    TROUBLE,
    WHOLE,
    Bytes,
    Flags,
    Int32s,
    Store,
)
from treille.runtime.grammar.vocabulary import Vocabulary
from treille.runtime.schema.expressions import Expressions
from treille.runtime.schema.machine.beginnings import MAX_CONFIGS
from treille.runtime.schema.machine.door import (
    AFTER,
    AFTER_TOKEN,
    BASE,
    FORCED,
    MOVED,
    NOTE,
    ONLY,
    SIMPLIFIED,
    START,
    TEXT_STATE,
    ask,
)
from treille.runtime.schema.machine.languages import answers
from treille.runtime.schema.machine.memory import (
    ANSWERS,
    NUM_CLASSES,
    NUM_WORDS,
    STEPS_ON,
    Machine,
    empty_machine,
    place,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    ASK_ITEM,
    ASK_REGION,
    ASK_VALUE,
    ASKED,
    B_COLUMN,
    EMPTY_TEXT,
    H_ASKED,
    H_X,
    H_Y,
    LOW_COLUMN,
)
from treille.runtime.schema.machine.walking import steps_on
from treille.runtime.schema.reading import read_item
from treille.runtime.schema.tables import Tables

_FIRST_STEPS = 1 << 16
_EAGER_REGIONS = 256  # string languages that are begun at once
_ROOM = 2048  # numbers about what is suspected
NO_MACHINE = empty_machine()
_NO_CLASSES = classes_of([])


class JsonArena:
    """The states of one document's machine that were reached so far. Not safe to share between threads by
    itself.

    `texts`: the string languages, of this arena alone.
    `start` is the state of the empty text. `room`: int32, what is suspected of a mask that was filled.
    """

    def __init__(self, tables: Tables, texts: Expressions, vocab: Vocabulary, budget: Budget) -> None:
        self._tables = tables
        self._budget = budget
        self._texts = texts
        self._spine = empty_store(_NO_CLASSES, NO_LEXER, 0, num_nodes=4096, num_states=512)
        self._spine.facts[NUM_NODES] = EMPTY_TEXT + 1
        self._spine.nodes[: EMPTY_TEXT + 1] = 0
        self.seconds = MAX_COMPILE_SECONDS
        self.room = np.zeros(_ROOM, np.int32)
        self._machine = empty_machine()
        self._machine[NUM_CLASSES] = texts.classes.members.shape[1]
        self._machine[NUM_WORDS] = vocab.num_words
        self._machine[ANSWERS] = answers().address
        self._machine[STEPS_ON] = steps_on().address
        # What has an address in the machine must stay alive as long as it.
        self._kept = _of_vocabulary(vocab, symbols_of(texts.classes), self.room)
        place(self._machine, self._kept)
        self._growing: dict[str, NDArray[Any]] = {}
        self._placed: Store | None = None
        self._placed_text: Store | None = None
        self._place()
        self.start = self.ask(START)
        for number in range(min(len(tables.strings), _EAGER_REGIONS)):
            self._find_region(number)

    def _place(self) -> None:
        """Notes where the arrays that grow lie now."""
        values, tables, literals = self._tables.arrays
        found: dict[str, NDArray[Any]] = {"values": values, "tables": tables, "literals": literals}
        if self._spine is not self._placed:
            self._placed = spine = self._spine
            found |= {
                name: getattr(spine, name) for name in ("nodes", "buckets", "memo", "states", "rows", "facts")
            }
        text = self._texts.arena.store
        if text is not self._placed_text:
            self._placed_text = text
            found |= {f"text_{name}": getattr(text, name) for name in text._fields if name != "lexer"}
        known = self._growing
        place(self._machine, {name: array for name, array in found.items() if known.get(name) is not array})
        known |= found
        self._facts, self._text_facts = self._spine.facts, text.facts

    @property
    def num_states(self) -> int:
        """States reached so far."""
        return int(self._spine.facts[NUM_STATES])

    @property
    def nbytes(self) -> int:
        """Memory of the arrays that grow."""
        spine = self._spine
        arrays = (spine.nodes, spine.buckets, spine.memo, spine.states, spine.rows)
        return self._texts.arena.nbytes + self._tables.nbytes + sum(array.nbytes for array in arrays)

    def accepts(self, state: int) -> bool:
        """Whether the text may end in a state."""
        return bool(self._spine.states[state, STATUS] & ACCEPTS)

    def after(self, state: int, data: Bytes, first: int, end: int) -> int:
        """The state after `data[first:end]`, or a negative number."""
        place(self._machine, {"out": data})
        return self.ask(AFTER, state, first, end)

    def after_token(self, state: int, token_id: int) -> int:
        """The state after a token, or a negative number."""
        return self.ask(AFTER_TOKEN, state, token_id)

    def fill(self, what: int, state: int, x: int, row: NDArray[np.uint32]) -> int:
        """See `machine.masks.fill`."""
        place(self._machine, {"row": row})
        return self.ask(what, state, x)

    def only_byte(self, state: int) -> int:
        """The one byte that may follow; -1 if none may, -2 if there is a choice, of which stopping is one."""
        return self.ask(ONLY, state)

    def forced(self, state: int, out: Bytes) -> int:
        """Writes the bytes that must follow into `out`, uint8; returns how many."""
        place(self._machine, {"out": out})
        return self.ask(FORCED, state)

    def simplified(self, state: int) -> tuple[int, int | None, int]:
        """A state without captured texts and long counts; for how many characters it agrees (None: always);
        and if it is the state itself, the free state that it differs little from, or -1."""
        simple = self.ask(SIMPLIFIED, state)
        facts = self._spine.facts
        agrees = int(facts[AGREES])
        return simple, None if agrees == MANY else agrees, int(facts[BASE])

    def moved(self, other: JsonArena, state: int) -> int:
        """The state of this arena that is the same as a state of another one of the same tables."""
        return self.ask(MOVED, state, other=other._machine)

    def ask(self, what: int, x: int = 0, y: int = 0, z: int = 0, other: Machine = NO_MACHINE) -> int:
        """Puts a question to `door.ask` until it has had room, steps and answers enough.

        Raises `ArenaFull`, and `UnsupportedConstraint` once it has taken `seconds`.
        """
        steps = _FIRST_STEPS
        started = 0.0
        while True:
            facts, text_facts = self._facts, self._text_facts
            facts[STEPS] = text_facts[STEPS] = steps
            result = ask(self._machine, other, what, x, y, z)
            if not facts[TROUBLE] and not text_facts[TROUBLE]:
                return int(result)
            trouble, text_trouble = int(facts[TROUBLE]), int(text_facts[TROUBLE])
            facts[TROUBLE] = text_facts[TROUBLE] = 0
            if not started:
                started = time.thread_time()
            elif time.thread_time() - started > self.seconds:
                reason = f"one step of it takes longer than the limit of {self.seconds:g} s"
                raise UnsupportedConstraint("schema", "#", reason)
            if trouble == ASKED:
                self._answer()
                started = 0.0
            elif TOO_DEEP in (trouble, text_trouble):
                raise UnsupportedConstraint("schema", "#", "a value may be too many things at once")
            elif trouble == FULL:
                self._spine = grown(self._spine)
            elif text_trouble == FULL:
                self._texts.arena.grow()
            else:
                steps *= 2
            self._place()

    def _answer(self) -> None:
        """Answers what the machine asked."""
        if self.seconds != MAX_COMPILE_SECONDS:
            self._budget.restart(MAX_COMPILE_SECONDS)
        head = self._tables.arrays[1]
        what, x, y = int(head[H_ASKED]), int(head[H_X]), int(head[H_Y])
        if what == ASK_VALUE:
            self._tables.work_out(x)
        elif what == ASK_REGION:
            self._find_region(x)
        elif what == ASK_ITEM:
            row = self._spine.nodes[x]
            items = self._spine.nodes[row[B_COLUMN]]
            text = self._captured(y, int(items[LOW_COLUMN]))
            value = _read(text)
            seen = self._tables.item_done(
                int(row[A_COLUMN]), int(row[LOW_COLUMN]), int(items[A_COLUMN]), value
            )
            self._place()
            self.ask(NOTE, x, y, seen)
        else:
            raise RuntimeError(f"the machine asked {what}")

    def _find_region(self, number: int) -> None:
        """Notes where a string language begins."""
        state = self._texts.start(self._tables.strings[number])
        self._place()
        if state < 0:
            state = self.ask(TEXT_STATE, int(self._text_facts[WHOLE]))
        self.ask(NOTE, -2 - number, 0, state)

    def _captured(self, node: int, mark: int) -> bytes:
        """The captured text from a mark on."""
        nodes = self._spine.nodes
        found = bytearray()
        while node != mark and node > EMPTY_TEXT:
            found.append(int(nodes[node, A_COLUMN]))
            node = int(nodes[node, B_COLUMN])
        found.reverse()
        return bytes(found)


def _read(text: bytes) -> object:
    """The value of an item whose array has unique ones."""
    try:
        return read_item(text)
    except RecursionError:
        reason = "one of the items is nested too deep"
    raise UnsupportedConstraint("uniqueItems", "#", reason, field="schema")


def _of_vocabulary(vocab: Vocabulary, symbols: Flags, room: Int32s) -> dict[str, NDArray[Any]]:
    """The arrays of the machine that stay where they are."""
    trie, rests, slices = vocab.trie, vocab.rests, vocab.slices
    names = ("byte", "depth", "skip", "token_start", "token_ids", "covered", "data", "ends", "by_length")
    return {
        **{name: getattr(trie, name) for name in names},
        **{f"rest_{name}": getattr(rests, name) for name in ("byte", "depth", "skip", "covered")},
        "rest_start": rests.token_start,
        "rest_ids": rests.token_ids,
        "words": slices.words,
        "texts": vocab.text_words,
        "mixed": vocab.mixed_ids,
        "longest": slices.longest,
        "symbols": symbols,
        "safe": in_strings(),
        "stacks": np.zeros(2 * (int(trie.max_depth) + 1), np.int32),
        "suspects": room,
        "row": np.zeros(vocab.num_words, np.uint32),
        "out": np.zeros(1, np.uint8),
        "configs": np.zeros(MAX_CONFIGS, np.int64),
    }
