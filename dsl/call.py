"""One call of a program's function, and its execution within a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from treille.dsl.errors import ProgramError
from treille.dsl.interpreter import Interpreter
from treille.dsl.location import Location, last_line_in
from treille.dsl.protocol import GenOptions
from treille.dsl.run import Run
from treille.dsl.state import State


@dataclass(frozen=True, slots=True)
class Call:
    """A program's function with its arguments and the sampling defaults, all checked."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    defaults: GenOptions


def execute(call: Call, run: Run) -> State:
    """Run the function in this thread, wait for all it asked for, and close the run.

    Whatever the function raises is passed on; an exception that does not know the program's line gets a
    note that names it.
    """
    code = call.function.__code__
    try:
        state = State(run, Interpreter(run))
        state.returned = call.function(state, **call.arguments)
        run.finish(Location(code.co_filename, code.co_firstlineno))
    except Exception as error:
        where = last_line_in(code, error.__traceback__)
        if where is not None and not (isinstance(error, ProgramError) and error.where is not None):
            error.add_note(f"in program {call.function.__name__}: {where}")
        raise
    finally:
        run.close()
    return state
