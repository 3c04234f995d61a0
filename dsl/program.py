"""`@program`: a Python function whose first parameter is a state, and the ways to run it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, overload

from treille.dsl.backends import as_backend
from treille.dsl.batch import OnError, run_batch
from treille.dsl.call import Call, execute
from treille.dsl.errors import InvalidExpression
from treille.dsl.location import caller
from treille.dsl.loop import LoopThread
from treille.dsl.options import DEFAULT_FIELDS, NOT_DEFAULTS, BadOption, make_options
from treille.dsl.protocol import Backend, GenOptions
from treille.dsl.run import Run
from treille.dsl.state import State
from treille.dsl.stream import ProgramStream

_RESERVED = frozenset({"backend"})
_REFUSED_KINDS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
    inspect.Parameter.POSITIONAL_ONLY: "positional-only ",
}


def program(function: Callable[..., Any]) -> Program:
    """Make a program of `def f(s, argument, ...)`.

    The function is a plain one, each parameter after the state has a name of its own, and none is
    called `backend`. Raises TypeError otherwise.
    """
    return Program(function)


class Program:
    """A function over a state. Calling it with a state runs it inline, within another program."""

    def __init__(self, function: Callable[..., Any]) -> None:
        name = getattr(function, "__qualname__", repr(function))
        if not inspect.isfunction(function):
            raise TypeError(f"a program is made of a plain function, not {name}")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"a program is a plain function; {name} is a coroutine or a generator")
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters or parameters[0].kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        ):
            raise TypeError(f"the first parameter of a program is its state: def {function.__name__}(s, ...)")
        for parameter in parameters[1:]:
            if parameter.kind in _REFUSED_KINDS or parameter.name in _RESERVED:
                text = f"{_REFUSED_KINDS.get(parameter.kind, '')}{parameter.name}"
                raise TypeError(f"program {function.__name__} cannot have the parameter {text}")
        self._function = function
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function
        self._parameters = {parameter.name: parameter for parameter in parameters[1:]}

    def __repr__(self) -> str:
        return f"<program {self.__name__}({', '.join(self._parameters)})>"

    def __call__(self, state: State | None = None, /, *args: Any, **kwargs: Any) -> Any:
        """Run inline on a state of another program; returns what the function returns."""
        if not isinstance(state, State):
            raise TypeError(
                f"{self.__name__}(s, ...) needs a program's state: "
                f"to run it by itself use {self.__name__}.run(...)"
            )
        return self._function(state, *args, **kwargs)

    def run(self, *args: Any, backend: object = None, **kwargs: Any) -> State:
        """Run once and return the state when everything is done.

        Keyword arguments are the program's arguments and sampling fields, which are the defaults of every
        `gen` (an argument of the same name goes to the program). `n`, `regex`, `choices` and `grammar`
        belong to a single `gen` and are no defaults.

        Raises TypeError for an unknown or missing argument or backend, InvalidExpression for a sampling
        field out of range, GenerationFailed with the program's line, and whatever the program raises (with a
        note that names the program's line).
        """
        call = self._bind("run", args, kwargs)
        chosen = self._backend("run", backend)
        with LoopThread() as loop:
            return execute(call, Run(chosen, loop, defaults=call.defaults))

    @overload
    def batch(
        self,
        arguments: Iterable[Mapping[str, Any]],
        *,
        backend: object = None,
        progress: bool = False,
        max_workers: int | None = None,
        on_error: Literal["raise"] = "raise",
        **sampling: Any,
    ) -> list[State]: ...

    @overload
    def batch(
        self,
        arguments: Iterable[Mapping[str, Any]],
        *,
        backend: object = None,
        progress: bool = False,
        max_workers: int | None = None,
        on_error: Literal["return"],
        **sampling: Any,
    ) -> list[State | Exception]: ...

    def batch(
        self,
        arguments: Iterable[Mapping[str, Any]],
        *,
        backend: object = None,
        progress: bool = False,
        max_workers: int | None = None,
        on_error: OnError = "raise",
        **sampling: Any,
    ) -> list[State] | list[State | Exception]:
        """Run once for each of `arguments`, many at a time; the states come back in their order.

        Further keyword arguments are shared by all items: sampling defaults, and arguments that an item may
        still set for itself. The prefix that the programs have in common is computed once, before they go
        on; that request is part of no state's usage. At most
        `max_workers` programs (64 unless given) run at a time. `progress` shows a bar on stderr.

        `on_error="raise"`: the first error ends the batch; what still runs is aborted, and the error is
        raised with a note of the item. `on_error="return"`: an item's error stands in its place.
        """
        calls: list[Call] = []
        for index, item in enumerate(arguments):
            if not isinstance(item, Mapping):
                raise TypeError(
                    f"{self.__name__}.batch() item {index} must map names to arguments, not {item!r}"
                )
            unknown = [name for name in item if name not in self._parameters]
            if unknown:
                raise TypeError(f"item {index}: {self._unknown('batch', unknown[0], self._parameters)}")
            calls.append(self._bind("batch", (), {**sampling, **item}, f"item {index}: "))
        chosen = self._backend("batch", backend)
        return run_batch(calls, chosen, progress=progress, max_workers=max_workers, on_error=on_error)

    def stream(self, *args: Any, backend: object = None, **kwargs: Any) -> ProgramStream:
        """Run once, yielding events as they happen, for `for` and `async for`. Arguments as for `run`."""
        call = self._bind("stream", args, kwargs)
        return ProgramStream(call, self._backend("stream", backend))

    def _backend(self, method: str, backend: object) -> Backend:
        if backend is None:
            raise TypeError(f"{self.__name__}.{method}() needs a backend: {method}(..., backend=engine)")
        return as_backend(backend)

    def _bind(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], prefix: str = "") -> Call:
        """Sort keyword arguments into the program's and the sampling defaults, and check both."""
        where = f"{prefix}{self.__name__}.{method}()"
        if len(args) > len(self._parameters):
            raise TypeError(f"{where} takes {len(self._parameters)} arguments, not {len(args)}")
        arguments = dict(zip(self._parameters, args, strict=False))
        sampling: dict[str, Any] = {}
        for name, value in kwargs.items():
            if name in arguments:
                raise TypeError(f"{where} got the argument {name!r} twice")
            if name in self._parameters:
                arguments[name] = value
            elif name in DEFAULT_FIELDS:
                sampling[name] = value
            elif name in NOT_DEFAULTS:
                raise TypeError(f"{where}: {name!r} belongs to a single gen and cannot be a default")
            else:
                raise TypeError(prefix + self._unknown(method, name, [*self._parameters, *DEFAULT_FIELDS]))
        for name, parameter in self._parameters.items():
            if name not in arguments and parameter.default is inspect.Parameter.empty:
                raise TypeError(f"{where} is missing the argument {name!r}")
        return Call(self._function, arguments, self._defaults(where, sampling))

    def _defaults(self, where: str, sampling: Mapping[str, Any]) -> GenOptions:
        try:
            return make_options(sampling)
        except BadOption as error:
            raise InvalidExpression(f"{where}: {error}", where=caller(), field=error.field) from None

    def _unknown(self, method: str, name: str, known: Iterable[str]) -> str:
        known = [*known, "backend"]
        if method == "batch":
            known += ["progress", "max_workers", "on_error"]
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; it knows {', '.join(known)}"
        return f"{self.__name__}.{method}() does not know the argument {name!r}{hint}"
