"""Why a schema has no value, in words."""

from __future__ import annotations

from collections.abc import Callable

from treille.runtime.schema.literals import Literals


def conflict(literals: Literals, number: int, inhabited: Callable[[int], bool]) -> str:
    """The reason why a set has no value, as well as it can be told."""
    return "no value satisfies the schema"
