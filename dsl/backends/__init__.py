"""Where programs run: backends behind one protocol."""

from __future__ import annotations

from treille.dsl.backends.local import EngineLike, LocalBackend
from treille.dsl.protocol import Backend


def as_backend(value: object) -> Backend:
    """A backend as it is, an engine as a `LocalBackend`. Raises TypeError for anything else."""
    if isinstance(value, Backend):
        return value
    if isinstance(value, EngineLike):
        return LocalBackend(value)
    raise TypeError(f"backend must be an Engine or a backend, not {type(value).__name__}")
