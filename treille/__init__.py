"""Treille: a structured-generation language and its runtime."""

from __future__ import annotations

from importlib.metadata import version

from treille.dsl.errors import GenerationFailed, InvalidExpression, ProgramError, UnknownVariable
from treille.dsl.expressions import assistant, gen, select, system, user
from treille.dsl.program import Program, program
from treille.dsl.state import State
from treille.runtime.engine import Engine
from treille.runtime.errors import (
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

__version__ = version("treille")

__all__ = [
    "Completion",
    "ConstraintError",
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
    "__version__",
    "assistant",
    "gen",
    "program",
    "select",
    "system",
    "user",
]
