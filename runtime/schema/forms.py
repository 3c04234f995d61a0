"""Forms: what a value may be, sorted by type, ready to be followed or drawn from.

A *set* is what a place in a document asks of a value: schemas that must hold and schemas that must not, all
at once. Sets are numbered; a set's number is all that a form says of the values below it, so nothing
recursive is ever unrolled. `Sets.forms` works one out when it is first asked for.

Everything in a form is inhabited: each of its shapes has a value, and so has every set it names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from treille.runtime.schema.numbers import Numbers
from treille.runtime.schema.strings import Strings


@dataclass(frozen=True, slots=True)
class Option:
    """A way to be for a member or an item: a value of set `value`, which then counts for each `contains` (of
    an array) or `exists` (of an object) whose bit is set in `marks`."""

    value: int
    marks: int = 0


@dataclass(frozen=True, slots=True)
class Key:
    """A key of its own standing. Without options it is forbidden. `implies`: places in `ObjectForm.keys` of
    the keys that must be there if this one is (`dependentRequired`), closed under implication. `declared`:
    named by a `properties`, and so part of the schema's order."""

    name: str
    options: tuple[Option, ...]
    required: bool = False
    declared: bool = True
    implies: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Region:
    """Endlessly many other keys that are all treated alike. `names` has no key of another region; where it
    has one of the form's `keys`, that key's own entry holds instead."""

    names: Strings
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class ObjectForm:
    """Objects with `low` to `high` members (None: any number) whose keys are among `keys`, in schema order,
    and `regions`. For each of the `num_exists` marks at least one member of a region must be of an option
    with that bit; options of `keys` have none."""

    keys: tuple[Key, ...] = ()
    regions: tuple[Region, ...] = ()
    low: int = 0
    high: int | None = None
    num_exists: int = 0


@dataclass(frozen=True, slots=True)
class Contains:
    """From `low` to `high` items (None: any number) count. `origin`: the keyword that asks for it and its
    pointer."""

    low: int
    high: int | None = None
    origin: tuple[str, str] = field(default=("contains", "#"), compare=False)


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """Arrays of `low` to `high` items: first those of `prefix`, each with its options, then any of `rest`.
    How many items have bit i in their option's marks is within `contains[i]`; options of one place have no
    value in common where a `contains` has a `high`. `unique`: no two items are equal as JSON values (1 and
    1.0 are)."""

    prefix: tuple[tuple[Option, ...], ...] = ()
    rest: tuple[Option, ...] = ()
    low: int = 0
    high: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False


@dataclass(frozen=True, slots=True)
class Forms:
    """The union of everything in it. `words`: which of null, true and false."""

    words: frozenset[bool | None] = frozenset()
    numbers: tuple[Numbers, ...] = ()
    strings: tuple[Strings, ...] = ()
    arrays: tuple[ArrayForm, ...] = ()
    objects: tuple[ObjectForm, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no value is in it."""
        return not (self.words or self.numbers or self.strings or self.arrays or self.objects)


NOTHING = Forms()


@dataclass(frozen=True, slots=True)
class Note:
    """Something to tell people about a keyword: `kind` is "enforced", "annotation" or "simplified"."""

    pointer: str
    keyword: str
    kind: str
    text: str


class Sets(Protocol):
    """The sets of one document."""

    root: int
    notes: list[Note]

    def forms(self, number: int) -> Forms:
        """What the values of a set are. Raises `UnsupportedConstraint` where that cannot be said exactly."""
        ...

    def simple_parts(self, number: int) -> list[int] | None:
        """The sets that the forms of a set name, and maybe more, where these can be said without working it
        out and doing so will not raise; else None."""
        ...

    def without(self, number: int, value: object) -> int:
        """The set of the values of another that do not equal a value (which may be new, and may be empty)."""
        ...

    def num_values(self, number: int, limit: int) -> int:
        """How many different values a set has, or `limit` if there are at least so many."""
        ...

    def few_values(self, number: int, limit: int) -> list[object] | None:
        """The values of a set if they are fewer than `limit`."""
        ...
