"""Rules of the tree that no linter holds: see CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("treille", "dsl", "runtime", "radix", "kernels")
SHIPPED = (*PACKAGES, "examples", "benchmarks", "docs")
TEXTS = {".py", ".md", ".toml", ".txt", ".json", ".jsonl", ".svg", ".yaml", ".yml", ".jinja", ""}
MAX_LINES = 500
# One person's machine; written in two parts, so that this file passes its own test.
MACHINE_PATHS = re.compile(
    "|".join(("/wo" + "rk/", "/tmp/" + "env", "/ro" + "ot/", "/ho" + "me/", "/Us" + "ers/"))
)
FORBIDDEN_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_NAMES = {"eval", "exec", "__import__"}


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def place(path: Path, node: ast.AST | None = None) -> str:
    line = f":{node.lineno}" if isinstance(node, (ast.stmt, ast.expr)) else ""
    return f"{path.relative_to(ROOT)}{line}"


def texts() -> Iterator[Path]:
    """Every text file of the project: the known folders and the files beside them."""
    yield from (path for path in ROOT.iterdir() if path.is_file() and not path.is_symlink())
    for folder in (*SHIPPED, "tests", ".ci"):
        found = (path for path in (ROOT / folder).rglob("*") if path.is_file())
        yield from (path for path in found if path.suffix in TEXTS and "__pycache__" not in path.parts)


def by_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", sources(*SHIPPED), ids=by_name)
def test_no_code_from_data(path: Path) -> None:
    """Nothing the project ships runs or unpickles what it reads; `model.eval()` and `re.compile` are fine."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: set[str] = set()
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names} & FORBIDDEN_MODULES
        elif isinstance(node, ast.ImportFrom):
            names = {str(node.module).split(".")[0]} & FORBIDDEN_MODULES
            names |= {"torch.load" for alias in node.names if (node.module, alias.name) == ("torch", "load")}
        elif isinstance(node, ast.Name):
            names = {node.id} & FORBIDDEN_NAMES
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = {f"{node.value.id}.{node.attr}"} & {"torch.load", "builtins.eval", "builtins.exec"}
        assert not names, f"{place(path, node)}: {', '.join(names)}"


@pytest.mark.parametrize("path", sources(*SHIPPED, "tests"), ids=by_name)
def test_no_hidden_state_and_no_hidden_cycle(path: Path) -> None:
    # The one door that opens late, see its docstring: nothing below it can be part of a cycle with it.
    may_hide = path == ROOT / "treille/__init__.py"
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Global), f"{place(path, node)}: global"
        hidden = isinstance(node, ast.Name) and node.id == "TYPE_CHECKING" and not may_hide
        assert not hidden, f"{place(path, node)}: TYPE_CHECKING hides an import"


@pytest.mark.parametrize("path", sources(*SHIPPED, "tests"), ids=by_name)
def test_files_are_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES, f"{place(path)}: over {MAX_LINES} lines is two files"
    if path != ROOT / "kernels/__init__.py":
        assert ast.get_docstring(ast.parse(text)), f"{place(path)}: no docstring"


def test_the_kernels_package_itself_is_empty() -> None:
    """transformers imports a top-level module `kernels` if it finds one, as it does from this folder."""
    assert (ROOT / "kernels/__init__.py").read_text() == ""


@pytest.mark.parametrize("path", sorted(texts()), ids=by_name)
def test_no_path_of_a_machine(path: Path) -> None:
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        assert not MACHINE_PATHS.search(line), f"{place(path)}:{number}: {line.strip()[:100]}"


def test_the_readme_table_names_every_folder() -> None:
    """Dotted folders aside, top-level folders are the architecture and have a row each."""
    rows = re.findall(r"^\| `(\w+)/` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    folders = [path.name for path in ROOT.iterdir() if path.is_dir() and any(path.rglob("*.py"))]
    ours = {name for name in folders if not name.startswith(".") and name not in ("build", "dist")}
    assert set(rows) == ours
