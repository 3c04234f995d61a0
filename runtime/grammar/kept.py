"""Which compiled code is still fresh.

numba keeps what it compiled for a function, and takes it from there as long as the function's own file is as
it was. But what the function calls is part of that code, and constants are too, whatever file they are from.
So for functions of this package and of `treille.runtime.schema` numba is told to look at all the files that
went into them: their own, those of the project that it imports from, and so on.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numba
from numba.core.caching import CacheImpl

_HERE = ("treille.runtime.grammar.", "treille.runtime.schema.")
_OTHERS: list[Any] = CacheImpl._locator_classes  # numba's own
_IMPORT = re.compile(r"^from (treille[.\w]*) import (\([^)]*\)|.*)", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?: as \w+)?,?(?:\s*#.*)?")


class Locator:
    """To numba, one of the ways to find where a function's code is kept: where it would be without, but with
    the stamp of all that went into it."""

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Any:
        """numba's own locator for a function, changed; None for functions that are not looked after here."""
        if not function.__module__.startswith(_HERE):
            return None
        for other in _OTHERS:
            found = other.from_function(function, file)
            if found is not None:
                found.get_source_stamp = partial(stamp, function.__module__)
                return found
        return None


@cache
def stamp(module: str) -> str:
    """A digest of the files of a module and of all of the project that it imports."""
    digest = hashlib.sha256()
    for name in sorted(imported(module)):
        digest.update(f"{name}\n{_source(name)}\n".encode())
    return digest.hexdigest()


def imported(module: str) -> set[str]:
    """The names of a module that is loaded and of the modules of the project that it imports, and so on."""
    found = {module}
    waiting = [module]
    while waiting:
        more = _imports(waiting.pop()) - found
        found |= more
        waiting.extend(more)
    return found


@cache
def _source(module: str) -> str:
    loader: Any = sys.modules[module].__loader__
    return loader.get_source(module) or ""


@cache
def _imports(module: str) -> frozenset[str]:
    found = set()
    for package, names in _IMPORT.findall(_source(module)):
        for name in _NAME.findall(names):
            below = f"{package}.{name}"
            found.add(below if below in sys.modules else package)
    return frozenset(found)


_settings: Any = numba.config
_settings.CACHE_LOCATOR_CLASSES = ",".join(
    (
        f"{__name__}.{Locator.__name__}",
        _settings.CACHE_LOCATOR_CLASSES or ",".join(f"{one.__module__}.{one.__name__}" for one in _OTHERS),
    )
)
