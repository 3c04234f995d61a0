"""What the machine works on, as one row of numbers: where its arrays lie, and how long they are.

Compiled code that is handed two dozen arrays, call by call, takes minutes to compile and microseconds to
enter. So it is handed one, which has the address of each; whoever calls keeps the arrays alive (`JsonArena`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]  # numba's stubs do not name it
from numba.extending import intrinsic
from numpy.typing import NDArray

from treille.runtime.grammar.masks import Slices, Trie
from treille.runtime.grammar.store import (
    FULL,
    NUM_MEMOS,
    NUM_NODES,
    SPENT,
    STATE_AT,
    STEPS,
    TROUBLE,
    Bytes,
    Flags,
    Int32s,
    Int64s,
    Store,
    fixed,
    hash_of,
    inner,
    int64,
    mixed,
)

Machine = Int64s

# The arrays, each as its address and its length: those of the machine, of the store of string languages, of
# the vocabulary (its tokens, and what stands behind their text), and of the call.
ARRAYS = (
    *("nodes", "buckets", "memo", "states", "rows", "facts", "values", "tables", "literals"),
    *("text_nodes", "text_buckets", "text_memo", "text_members", "text_states", "text_rows", "text_facts"),
    *("text_lattice", "text_below"),
    *("byte", "depth", "skip", "token_start", "token_ids", "covered", "data", "ends", "by_length"),
    *("rest_byte", "rest_depth", "rest_skip", "rest_start", "rest_ids", "rest_covered"),
    *("words", "longest", "symbols", "safe", "stacks", "suspects", "row", "out", "configs", "texts", "mixed"),
)
_AT = {name: fixed(2 * index) for index, name in enumerate(ARRAYS)}
_LATTICE_COLUMNS, _NODE_COLUMNS, _STATE_COLUMNS, _VALUE_COLUMNS = 65, 7, 6, 6
NUM_CLASSES = fixed(2 * len(ARRAYS))
NUM_WORDS = fixed(2 * len(ARRAYS) + 1)
# Where the machine itself lies, and the code that answers questions about string languages (see
# `languages.py`).
SELF = fixed(2 * len(ARRAYS) + 2)
ANSWERS = fixed(2 * len(ARRAYS) + 3)
STEPS_ON = fixed(2 * len(ARRAYS) + 4)  # the code that goes one byte further (see `walking.py`)
_SIZE = 2 * len(ARRAYS) + 5


def empty_machine() -> Machine:
    """A machine with no array yet."""
    machine = np.zeros(_SIZE, np.int64)
    machine[SELF] = machine.ctypes.data
    return machine


def size_of_machine() -> int:
    """How many numbers a machine is."""
    return _SIZE


def place(machine: Machine, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Notes where arrays lie; they must stay there."""
    for name, array in arrays.items():
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} does not lie in one piece")
        at = int(_AT[name])
        machine[at], machine[at + 1] = array.__array_interface__["data"][0], len(array)


def _typed_call(typing_context: Any, code: Any, machine: Any, what: Any, x: Any, y: Any) -> Any:
    """Calls compiled code at an address with four numbers, and gives the number that it returns."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        shape = ir.FunctionType(number, [number] * 4)
        return builder.call(builder.inttoptr(arguments[0], shape.as_pointer()), arguments[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64, types.int64), generate


call = cast(Callable[[int, int, int, int, int], int], intrinsic(_typed_call))


def _typed_pointer(typing_context: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


_pointer = cast(Callable[[int], Any], intrinsic(_typed_pointer))


_NODES, _BUCKETS, _MEMO = _AT["nodes"], _AT["buckets"], _AT["memo"]
_STATES, _ROWS, _FACTS = _AT["states"], _AT["rows"], _AT["facts"]
_VALUES, _TABLES, _LITERALS = _AT["values"], _AT["tables"], _AT["literals"]


@inner
def nodes_of(m: Machine) -> Int64s:  # pragma: no cover
    """int64 [n, 7], see `rows.py`."""
    return carray(_pointer(m[_NODES]), (m[_NODES + 1], _NODE_COLUMNS), np.int64)


@inner
def states_of(m: Machine) -> Int64s:  # pragma: no cover
    """int64 [s, 6]: its list of configurations, its twin, nothing, status bits."""
    return carray(_pointer(m[_STATES]), (m[_STATES + 1], _STATE_COLUMNS), np.int64)


@inner
def rows_of(m: Machine) -> Int32s:  # pragma: no cover
    """int32 [s, 256]: by state and byte, the state that follows."""
    return carray(_pointer(m[_ROWS]), (m[_ROWS + 1], 256), np.int32)


@inner
def facts_of(m: Machine) -> Int64s:  # pragma: no cover
    """Counters, as those of a `Store`."""
    return carray(_pointer(m[_FACTS]), (m[_FACTS + 1],), np.int64)


@inner
def values_of(m: Machine) -> Int64s:  # pragma: no cover
    """int64 [v, VALUE_COLUMNS], see `rows.py`."""
    return carray(_pointer(m[_VALUES]), (m[_VALUES + 1], _VALUE_COLUMNS), np.int64)


@inner
def tables_of(m: Machine) -> Int64s:  # pragma: no cover
    """Everything else that does not change while texts are followed, see `rows.py`."""
    return carray(_pointer(m[_TABLES]), (m[_TABLES + 1],), np.int64)


@inner
def literals_of(m: Machine) -> Bytes:  # pragma: no cover
    """uint8, the bytes of literal strings and keys."""
    return carray(_pointer(m[_LITERALS]), (m[_LITERALS + 1],), np.uint8)


_T_NODES, _T_BUCKETS, _T_MEMO = _AT["text_nodes"], _AT["text_buckets"], _AT["text_memo"]
_T_MEMBERS, _T_STATES, _T_ROWS = _AT["text_members"], _AT["text_states"], _AT["text_rows"]
_T_FACTS, _T_LATTICE, _T_BELOW = _AT["text_facts"], _AT["text_lattice"], _AT["text_below"]


@inner
def text_nodes_of(m: Machine) -> Int64s:  # pragma: no cover
    """The expressions of the store of string languages."""
    return carray(_pointer(m[_T_NODES]), (m[_T_NODES + 1], _NODE_COLUMNS), np.int64)


@inner
def text_states_of(m: Machine) -> Int64s:  # pragma: no cover
    """Its states."""
    return carray(_pointer(m[_T_STATES]), (m[_T_STATES + 1], _STATE_COLUMNS), np.int64)


@inner
def text_rows_of(m: Machine) -> Int32s:  # pragma: no cover
    """By its states and byte, the state that follows."""
    return carray(_pointer(m[_T_ROWS]), (m[_T_ROWS + 1], 256), np.int32)


@inner
def text_facts_of(m: Machine) -> Int64s:  # pragma: no cover
    """Its counters."""
    return carray(_pointer(m[_T_FACTS]), (m[_T_FACTS + 1],), np.int64)


@inner
def machine_at(address: int) -> Machine:  # pragma: no cover
    """The machine that lies at an address."""
    return carray(_pointer(address), (_SIZE,), np.int64)


@inner
def text_of(m: Machine) -> Store:  # pragma: no cover
    """The store of the string languages."""
    classes = m[NUM_CLASSES]
    return Store(
        carray(_pointer(m[_T_NODES]), (m[_T_NODES + 1], _NODE_COLUMNS), np.int64),
        carray(_pointer(m[_T_BUCKETS]), (m[_T_BUCKETS + 1],), np.int64),
        carray(_pointer(m[_T_MEMO]), (m[_T_MEMO + 1], 3), np.int64),
        carray(_pointer(m[_T_MEMBERS]), (m[_T_MEMBERS + 1], classes), np.bool_),
        carray(_pointer(m[_T_STATES]), (m[_T_STATES + 1], _STATE_COLUMNS), np.int64),
        carray(_pointer(m[_T_ROWS]), (m[_T_ROWS + 1], 256), np.int32),
        carray(_pointer(m[_T_FACTS]), (m[_T_FACTS + 1],), np.int64),
        carray(_pointer(m[_T_LATTICE]), (m[_T_LATTICE + 1], _LATTICE_COLUMNS), np.int64),
        carray(_pointer(m[_T_BELOW]), (m[_T_BELOW + 1], classes), np.bool_),
        carray(_pointer(m[_T_FACTS]), (0,), np.int64),
    )


_BYTE, _DEPTH, _SKIP = _AT["byte"], _AT["depth"], _AT["skip"]
_START, _IDS, _COVERED = _AT["token_start"], _AT["token_ids"], _AT["covered"]
_DATA, _ENDS, _BY_LENGTH = _AT["data"], _AT["ends"], _AT["by_length"]
_R_BYTE, _R_DEPTH, _R_SKIP = _AT["rest_byte"], _AT["rest_depth"], _AT["rest_skip"]
_R_START, _R_IDS, _R_COVERED = _AT["rest_start"], _AT["rest_ids"], _AT["rest_covered"]


@inner
def trie_of(m: Machine) -> Trie:  # pragma: no cover
    """The trie of the vocabulary's tokens."""
    return Trie(
        carray(_pointer(m[_BYTE]), (m[_BYTE + 1],), np.uint8),
        carray(_pointer(m[_DEPTH]), (m[_DEPTH + 1],), np.int32),
        carray(_pointer(m[_SKIP]), (m[_SKIP + 1],), np.int32),
        carray(_pointer(m[_START]), (m[_START + 1],), np.int32),
        carray(_pointer(m[_IDS]), (m[_IDS + 1],), np.int32),
        carray(_pointer(m[_COVERED]), (m[_COVERED + 1],), np.uint32),
        np.int64(0),
        carray(_pointer(m[_DATA]), (m[_DATA + 1],), np.uint8),
        carray(_pointer(m[_ENDS]), (m[_ENDS + 1],), np.int64),
        carray(_pointer(m[_BY_LENGTH]), (m[_BY_LENGTH + 1],), np.int64),
    )


@inner
def rests_of(m: Machine) -> Trie:  # pragma: no cover
    """The trie of what stands behind the text of tokens."""
    return Trie(
        carray(_pointer(m[_R_BYTE]), (m[_R_BYTE + 1],), np.uint8),
        carray(_pointer(m[_R_DEPTH]), (m[_R_DEPTH + 1],), np.int32),
        carray(_pointer(m[_R_SKIP]), (m[_R_SKIP + 1],), np.int32),
        carray(_pointer(m[_R_START]), (m[_R_START + 1],), np.int32),
        carray(_pointer(m[_R_IDS]), (m[_R_IDS + 1],), np.int32),
        carray(_pointer(m[_R_COVERED]), (m[_R_COVERED + 1],), np.uint32),
        np.int64(0),
        carray(_pointer(m[_DATA]), (m[_DATA + 1],), np.uint8),
        carray(_pointer(m[_ENDS]), (m[_ENDS + 1],), np.int64),
        carray(_pointer(m[_BY_LENGTH]), (m[_BY_LENGTH + 1],), np.int64),
    )


_WORDS, _LONGEST, _SYMBOLS, _SAFE = _AT["words"], _AT["longest"], _AT["symbols"], _AT["safe"]
_STACKS, _SUSPECTS, _ROW, _OUT = _AT["stacks"], _AT["suspects"], _AT["row"], _AT["out"]


@inner
def slices_of(m: Machine) -> Slices:  # pragma: no cover
    """The slices of the vocabulary."""
    return Slices(
        carray(_pointer(m[_WORDS]), (m[_WORDS + 1], m[NUM_WORDS]), np.uint32),
        carray(_pointer(m[_LONGEST]), (m[_LONGEST + 1],), np.int64),
    )


@inner
def symbols_of(m: Machine) -> Flags:  # pragma: no cover
    """bool [num_slices, 2, num_classes]: the classes of the slices' characters."""
    return carray(_pointer(m[_SYMBOLS]), (m[_SYMBOLS + 1], 2, m[NUM_CLASSES]), np.bool_)


@inner
def safe_of(m: Machine) -> Flags:  # pragma: no cover
    """bool [num_slices]: whether a slice is free of what ends or escapes in a string."""
    return carray(_pointer(m[_SAFE]), (m[_SAFE + 1],), np.bool_)


@inner
def stack_of(m: Machine, which: int) -> Int32s:  # pragma: no cover
    """int32 [max_depth + 1]: one of two stacks of states."""
    stacks = carray(_pointer(m[_STACKS]), (m[_STACKS + 1],), np.int32)
    half = len(stacks) // 2
    return stacks[which * half : (which + 1) * half]


@inner
def suspects_of(m: Machine) -> Int32s:  # pragma: no cover
    """int32: tokens whose verdict depends on what was left out, see `masks.py`."""
    return carray(_pointer(m[_SUSPECTS]), (m[_SUSPECTS + 1],), np.int32)


@inner
def row_to_fill(m: Machine) -> NDArray[np.uint32]:  # pragma: no cover
    """uint32 [num_words]: the mask to be filled."""
    return carray(_pointer(m[_ROW]), (m[_ROW + 1],), np.uint32)


@inner
def out_of(m: Machine) -> Bytes:  # pragma: no cover
    """uint8: where bytes are written to."""
    return carray(_pointer(m[_OUT]), (m[_OUT + 1],), np.uint8)


_CONFIGS, _TEXTS, _MIXED = _AT["configs"], _AT["texts"], _AT["mixed"]


@inner
def configs_of(m: Machine) -> Int64s:  # pragma: no cover
    """int64 [MAX_CONFIGS]: how many configurations a step has led to, and they."""
    return carray(_pointer(m[_CONFIGS]), (m[_CONFIGS + 1],), np.int64)


@inner
def texts_of(m: Machine) -> NDArray[np.uint32]:  # pragma: no cover
    """uint32 [num_words]: the mask of tokens that are text of strings."""
    return carray(_pointer(m[_TEXTS]), (m[_TEXTS + 1],), np.uint32)


@inner
def mixed_of(m: Machine) -> Int64s:  # pragma: no cover
    """int64: the tokens in which a string may end behind an escape."""
    return carray(_pointer(m[_MIXED]), (m[_MIXED + 1],), np.int64)


@inner
def row_of(m: Machine, kind: int, a: int, b: int, low: int, high: int) -> int:  # pragma: no cover
    """The row with these columns, made if it is new; 0, and trouble noted, if there is no room. See
    `store.intern`."""
    facts, nodes = facts_of(m), nodes_of(m)
    buckets = carray(_pointer(m[_BUCKETS]), (m[_BUCKETS + 1],), np.int64)
    facts[STEPS] -= 1
    if facts[STEPS] < 0:
        facts[TROUBLE] = SPENT
    if facts[TROUBLE]:
        return int64(0)
    last = len(buckets) - 1
    slot = hash_of(kind, a, b, low, high) & last
    while buckets[slot] >= 0:
        node = buckets[slot]
        row = nodes[node]
        if row[0] == kind and row[1] == a and row[2] == b and row[3] == low and row[4] == high:
            return int64(node)
        slot = (slot + 1) & last
    made = facts[NUM_NODES]
    if made == len(nodes):
        facts[TROUBLE] = FULL
        return int64(0)
    facts[NUM_NODES] = made + 1
    row = nodes[made]
    row[0], row[1], row[2], row[3], row[4], row[5] = kind, a, b, low, high, 0
    row[STATE_AT] = -1
    buckets[slot] = made
    return int64(made)


@inner
def recall(m: Machine, x: int, y: int) -> int:  # pragma: no cover
    """What was remembered under two numbers, or -1."""
    memo = carray(_pointer(m[_MEMO]), (m[_MEMO + 1], 3), np.int64)
    last = len(memo) - 1
    slot = mixed(x, y) & last
    while memo[slot, 2] >= 0:
        if memo[slot, 0] == x and memo[slot, 1] == y:
            return int64(memo[slot, 2])
        slot = (slot + 1) & last
    return int64(-1)


@inner
def remember(m: Machine, x: int, y: int, value: int) -> None:  # pragma: no cover
    """Remembers a number, at least 0; notes trouble if there is no room."""
    facts = facts_of(m)
    memo = carray(_pointer(m[_MEMO]), (m[_MEMO + 1], 3), np.int64)
    if 2 * facts[NUM_MEMOS] > len(memo) and not facts[TROUBLE]:
        facts[TROUBLE] = FULL
    if facts[TROUBLE]:
        return
    last = len(memo) - 1
    slot = mixed(x, y) & last
    while memo[slot, 2] >= 0:
        slot = (slot + 1) & last
    memo[slot, 0], memo[slot, 1], memo[slot, 2] = x, y, value
    facts[NUM_MEMOS] += 1


@inner
def troubled(m: Machine) -> bool:  # pragma: no cover
    """Whether something was wanting, so that what was found does not count."""
    return facts_of(m)[TROUBLE] != 0 or text_facts_of(m)[TROUBLE] != 0
