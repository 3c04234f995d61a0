"""Treille: a structured-generation language and its runtime.

`Engine` is imported when it is first used: it brings PyTorch, which takes a second or more, and neither
`treille --help` nor a program that runs against a server needs it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

from treille.dsl.errors import (
    CutOff,
    GenerationFailed,
    InvalidExpression,
    ProgramError,
    UnknownVariable,
    WrongText,
)
from treille.dsl.expressions import assistant, gen, select, system, user
from treille.dsl.program import Program, program
from treille.dsl.state import State
from treille.runtime.errors import (
    CacheFull,
    ConstraintError,
    EngineClosed,
    EngineOverloaded,
    GrammarError,
    InvalidConstraint,
    InvalidRequest,
    ModelError,
    ModelNotFound,
    RequestAborted,
    RequestError,
    TreilleError,
    UnsupportedConstraint,
    UnsupportedModel,
)
from treille.runtime.params import SamplingParams
from treille.runtime.types import Completion, Request, ScoreRequest

if TYPE_CHECKING:
    from treille.runtime.engine import Engine

__version__ = version("treille")

__all__ = [
    "CacheFull",
    "Completion",
    "ConstraintError",
    "CutOff",
    "Engine",
    "EngineClosed",
    "EngineOverloaded",
    "GenerationFailed",
    "GrammarError",
    "InvalidConstraint",
    "InvalidExpression",
    "InvalidRequest",
    "ModelError",
    "ModelNotFound",
    "Program",
    "ProgramError",
    "Request",
    "RequestAborted",
    "RequestError",
    "SamplingParams",
    "ScoreRequest",
    "State",
    "TreilleError",
    "UnknownVariable",
    "UnsupportedConstraint",
    "UnsupportedModel",
    "WrongText",
    "__version__",
    "assistant",
    "gen",
    "program",
    "select",
    "system",
    "user",
]


def __getattr__(name: str) -> object:
    if name != "Engine":
        raise AttributeError(f"module 'treille' has no attribute {name!r}")
    return import_module("treille.runtime.engine").Engine
