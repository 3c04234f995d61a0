"""Compiled code that is kept on disk is not taken for what it was compiled from before."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numba import config
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher

from treille.runtime.grammar import Vocabulary, kept
from treille.runtime.schema.machine import door, languages, walking

PACKAGE = "treille.runtime.grammar"
HELPER = """
from treille.runtime.grammar.store import grafted
{constant}

@grafted
def helped(number):
    return number {helped}
"""
ENTRY = """
from numba import njit
from {package}.kept_helper import helped, NUMBER

@njit(cache=True)
def entry(number):
    return helped(number) + NUMBER
"""


@pytest.fixture
def forget() -> Iterator[Callable[[], None]]:
    """Forgets what is known of files, as a process of its own would; and once more in the end."""

    def forgotten() -> None:
        for known in (kept.stamp, kept._source, kept._imports):
            known.cache_clear()

    yield forgotten
    forgotten()


def loaded(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> ModuleType:
    """A module of the package, from a file elsewhere."""
    path.write_text(text)
    name = f"{PACKAGE}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("constant", "helped", "result"), [("NUMBER = 1", "- 7", 4), ("NUMBER = 30", "+ 0", 40)]
)
def test_what_was_changed_elsewhere_is_compiled_anew(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    forget: Callable[[], None],
    constant: str,
    helped: str,
    result: int,
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def entry(constant: str, helped: str) -> Any:
        forget()
        loaded(monkeypatch, tmp_path / "kept_helper.py", HELPER.format(constant=constant, helped=helped))
        return loaded(monkeypatch, tmp_path / "kept_entry.py", ENTRY.format(package=PACKAGE)).entry

    for cached in (False, True):
        same = entry("NUMBER = 1", "+ 0")
        assert same(10) == 11
        assert bool(same.stats.cache_hits) is cached
    changed = entry(constant, helped)
    assert changed(10) == result
    assert not changed.stats.cache_hits


def test_everything_that_goes_into_compiled_code_is_looked_at() -> None:
    Vocabulary([b"a", None], eos_ids=[1]).prepare()
    entries = [languages.answers(), walking.steps_on(), door.ask]
    for name, module in list(sys.modules.items()):
        if name.startswith(kept._HERE):
            entries += [one for one in vars(module).values() if isinstance(one, Dispatcher) and is_kept(one)]
    assert len(entries) > 20
    for entry in entries:
        function = entry.__wrapped__ if isinstance(entry, CFunc) else entry.py_func
        looked_at = kept.imported(function.__module__)
        assert parts_of(function) <= looked_at, function


def is_kept(dispatcher: Any) -> bool:
    return hasattr(dispatcher._cache, "_impl")


def parts_of(function: Any) -> set[str]:
    """The modules of all the project's functions that one calls, straight or not."""
    found: set[Any] = set()
    waiting = [function]
    while waiting:
        here = waiting.pop()
        if here in found:
            continue
        found.add(here)
        for name in here.__code__.co_names:
            value = here.__globals__.get(name)
            values = [value]
            if isinstance(value, ModuleType):
                values = [getattr(value, each, None) for each in here.__code__.co_names]
            for one in values:
                one = one.py_func if isinstance(one, Dispatcher) else one
                if getattr(one, "__module__", "").startswith("treille.") and hasattr(one, "__code__"):
                    waiting.append(one)
    return {one.__module__ for one in found}
