"""`treille run`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from treille.cli_errors import UsageError
from treille.dsl.program import Program
from treille.runtime.engine import Engine
from treille.runtime.errors import InvalidRequest
from treille.runtime.params import SamplingParams
from treille.show import show_on


def run(
    program: Program,
    arguments: Mapping[str, Any],
    *,
    model: str,
    settings: Mapping[str, Any],
    sampling: Mapping[str, Any],
) -> None:
    """Run a program on `model`, whose engine has the `settings`; `sampling` holds the defaults of `gen`."""
    try:
        SamplingParams(**sampling)  # told before seconds are spent on the model
    except InvalidRequest as error:
        raise UsageError(f"--{error}".replace("_", "-", 1)) from error
    if sys.stderr.isatty():
        print(f"Loading {model}", file=sys.stderr, flush=True)
    with Engine(model, **settings) as engine:
        # An argument of the program comes before a sampling field of the same name.
        show_on(Console(), program, engine, {**sampling, **arguments})
