"""Where programs run: backends behind one protocol."""

from __future__ import annotations

from treille.dsl.backends.local import EngineLike, LocalBackend
from treille.dsl.protocol import Backend


def as_backend(value: object) -> Backend:
    """A backend as it is, an engine as a `LocalBackend`. Raises TypeError for anything else."""
    if isinstance(value, Backend) and not isinstance(value, type):
        return value
    if isinstance(value, EngineLike):
        return LocalBackend(value)
    kind = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    raise TypeError(f"backend must be an Engine or a backend, not {kind}")
