"""The machine that follows JSON texts: how its parts are laid out as rows of numbers.

It is a pushdown: a *configuration* is a place (what is being read), a stack of open objects and arrays with
how far each has come, and, where what is read will matter later, the text of it. A state is a set of
configurations, since a value may still be several things. All are rows of a `Store`, in which equal ones are
the same row; states are made when they are first reached. Strings are followed by the regular engine in a
store of its own.

What an object or array is within does not matter before it ends: configurations that differ only there are
one, on all the stacks that theirs were on (a graph-structured stack: Tomita, "Efficient parsing for natural
language", 1986). So how many there are does not grow with how deep values are within values.
"""

from __future__ import annotations

from treille.runtime.grammar.store import TROUBLE, fixed, inner, int64
from treille.runtime.schema.machine.memory import (
    Machine,
    facts_of,
    row_of,
    tables_of,
)

# Kinds of rows, and what the columns a, b, low, high mean. "Gap": how much white space was read, see
# `gaps.py`.
CONFIG = fixed(1)  # place a, stack b, captured text low, escape high
VALUE_AT = fixed(2)  # a value a comes, after gap b
WORD_AT = fixed(3)  # within null, true or false (a = 0, 1, 2), of which b characters were read
NUMBER_AT = fixed(4)  # within a number: state b of the automaton at a
LITERAL_AT = fixed(
    5
)  # within a string, one of the literals b to low of table a, of which `high` bytes were read
REGION_AT = fixed(6)  # within a string of table a and region b; state low of the text store; `high`: an EXTRA
EXTRA = fixed(
    7
)  # what a REGION_AT must not be: literals (a LITERAL_AT or none) a, others b; low: where its text began
OPENED = fixed(8)  # after { or [, and gap a
FOLLOWED = fixed(9)  # after a value in an object or array, and gap a
KEY_AT = fixed(10)  # a key comes, after gap a
COLON_AT = fixed(11)  # after a key, and gap b; a value a comes then
ENDED = fixed(12)  # the text is complete; gap a
PUSHED = fixed(13)  # a stack: frame a on stack b, or on any of those that are JOINED there
OBJECT = fixed(14)  # an open object: template a, keys seen b, num_members and last key low, and more `high`
MORE = fixed(15)  # of an object: other keys seen a (a list of texts), marks b
ARRAY = fixed(16)  # an open array: template a, uniqueness b, num_items low, counts of marks high
ITEMS = fixed(
    17
)  # of an array with unique items: row a of `tables` says which were seen; low: where the item's text began;
# high: 1 if nothing was captured before it
LIST = fixed(18)  # a, and then the list b
BYTE = fixed(19)  # a text: byte a and then the text b (captured texts run backwards)
STATE = fixed(20)  # the key of a state: list a
WORDS = fixed(21)  # bits a, and then the list b
JOINED = fixed(22)  # instead of a stack, several: stack a, and the others in the list b
LIKENESS = fixed(23)  # of configurations that are joined: place a, frame b, captured text low, escape high

# Columns of a row (see `Store.nodes`).
A_COLUMN, B_COLUMN, LOW_COLUMN, HIGH_COLUMN = 1, 2, 3, 4

NONE = fixed(0)
EMPTY_TEXT = fixed(1)  # row 1: a text without bytes
UNKNOWN = fixed(-1)  # a text, or a row of seen items, that was left out
NOT_ASKED, NOWHERE, SUSPECT = fixed(-2), fixed(-1), fixed(-3)  # in rows of states, and as a state

# Rows of `values`: whether it was worked out, null/true/false as bits, and where its parts are in `tables`
# (0: none).
V_KNOWN, V_WORDS, V_NUMBERS, V_STRINGS, V_OBJECTS, V_ARRAYS = range(6)
VALUE_COLUMNS = 6

# The head of `tables`: options, what is asked, scratch.
(
    H_GAPS,
    H_ORDER,
    H_ROOT,
    H_ASKED,
    H_X,
    H_Y,
    H_SUSPECT,
    H_SIZES,
    H_STARTS,
    H_NUMBERS,
    H_NUM_STARTS,
    H_WHOLE,
    H_ESCAPED,  # which characters escapes may stand for: how many ranges, and their first and last
    H_CODED,  # and those with digits
    H_CAPTURED,  # the text that the state which is gone on from captures, `NONE` if it does not
) = range(15)
H_FIXED = 16  # fixed white space: indent, and offsets in `literals` of what follows a comma and a colon
HEAD = 32

# What is asked (H_ASKED), of H_X and H_Y.
ASK_VALUE, ASK_ITEM, ASK_REGION = 1, 2, 3
ASKED = 9  # as trouble in `facts`

# A table of literals and regions: strings of a value, or keys of an object.
T_IS_KEYS, T_NUM, T_ENDS, T_LABELS, T_NUM_REGIONS, T_REGIONS = range(6)
# A region: its language, its options.
R_STATE, R_OPTIONS, REGION_COLUMNS = 0, 1, 2
# An object's template.
(
    O_TABLE,
    O_NUM_KEYS,
    O_NUM_DECLARED,
    O_LOW,
    O_HIGH,
    O_NUM_EXISTS,
    O_HAS_REGIONS,
    O_KEYS,
    O_NUM_WORDS,
    O_REQUIRED,
    O_HAS_IMPLIED,
    O_USABLE,
    O_COVERS,
) = range(13)
K_OPTIONS, K_IMPLIES, KEY_COLUMNS = 0, 1, 2
BITS = fixed(62)  # keys told of in one number
# An array's template.
A_NUM_PREFIX, A_PREFIX, A_REST, A_LOW, A_HIGH, A_NUM_CONTAINS, A_CONTAINS, A_UNIQUE = range(8)
# What was seen of an array with unique items: which values (for Python), the options of the next item.
I_SEEN, I_OPTIONS = 0, 1

NO_END = fixed(-1)  # as a bound: none


@inner
def ask_python(machine: Machine, what: int, x: int, y: int) -> None:  # pragma: no cover
    """Notes a question that only Python can answer; the step is taken again once it has."""
    if facts_of(machine)[TROUBLE] == 0:
        facts_of(machine)[TROUBLE] = ASKED
        tables_of(machine)[H_ASKED], tables_of(machine)[H_X], tables_of(machine)[H_Y] = what, x, y


@inner
def extended(machine: Machine, captured: int, byte: int) -> int:  # pragma: no cover
    """A captured text with one more byte, if one is captured."""
    if captured == NONE or captured == UNKNOWN:
        return int64(captured)
    return row_of(machine, BYTE, byte, captured, NONE, NONE)
