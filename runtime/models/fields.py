"""Typed reading of a model's settings, with errors that name the file and the key."""

from __future__ import annotations

from collections.abc import Mapping

from treille.runtime.errors import ModelError

MOST = 2**31 - 1
# Tables are made of a layer's and a position's settings before the weights can contradict them.
MOST_LAYERS = 65_536
MOST_POSITIONS = 2**27


class Fields:
    """A mapping read key by key. `where` names its origin in errors, e.g. `config.json`.

    A key that is absent or null gives the default; without a default it raises `ModelError`, as does a
    value of the wrong type.
    """

    def __init__(self, data: Mapping[str, object], where: str) -> None:
        self.data = data
        self.where = where

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.data.get(key) is not None

    def integer(self, key: str, default: int | None = None, *, most: int = MOST) -> int:
        """A whole number of at least 1 and at most `most`."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{self.where}: {key} must be a whole number of at least 1, not {value!r}")
        if value > most:
            raise ModelError(f"{self.where}: {key} must be at most {most}, not {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < float("inf"):
            raise ModelError(f"{self.where}: {key} must be a number, not {value!r}")
        return float(value)

    def boolean(self, key: str, *, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise ModelError(f"{self.where}: {key} must be true or false, not {value!r}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise ModelError(f"{self.where}: {key} must be a string, not {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty when the key is absent."""
        value = self.data.get(key)
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise ModelError(f"{self.where}: {key} must be a list of strings, not {value!r}")
        return tuple(str(item) for item in value)

    def token_ids(self, key: str) -> tuple[int, ...]:
        """One id or a list of ids; empty when the key is absent."""
        value = self.data.get(key)
        if value is None:
            return ()
        items = value if isinstance(value, (list, tuple)) else (value,)
        ids = tuple(
            item for item in items if isinstance(item, int) and not isinstance(item, bool) and item >= 0
        )
        if len(ids) != len(items):
            raise ModelError(f"{self.where}: {key} must be a token id or a list of them, not {value!r}")
        return ids

    def section(self, key: str) -> Fields | None:
        """A nested mapping, or None when the key is absent, null or empty."""
        value = self.data.get(key)
        if not value:
            return None
        if not isinstance(value, Mapping):
            raise ModelError(f"{self.where}: {key} must be an object, not {value!r}")
        return Fields(value, f"{self.where}: {key}")

    def _value(self, key: str, default: object) -> object:
        value = self.data.get(key)
        if value is None:
            value = default
        if value is None:
            raise ModelError(f"{self.where} lacks {key}")
        return value
