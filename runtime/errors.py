"""Everything the runtime raises on purpose.

TreilleError
├── ModelError                 a model cannot be found, read or run
│   ├── ModelNotFound          no file, folder, alias or hub id answers to the name
│   └── UnsupportedModel       the architecture or a setting of it is not implemented
├── RequestError               one request is at fault; nobody else is affected
│   ├── InvalidRequest         a parameter is out of range or contradicts another
│   └── ConstraintError        the constraint cannot be used
│       ├── InvalidConstraint      it is not well-formed
│       └── UnsupportedConstraint  it is well-formed and cannot be enforced exactly
├── GrammarError               a matcher was given a token that its grammar forbids
├── RequestAborted             a request was aborted before it had any answer
├── CompileCancelled           nobody waits any more for what is being compiled
├── CacheFull                  pinned prefixes would take more of the cache than they may
├── CacheFileError             the file of the prefix cache cannot be written or used
├── EngineOverloaded           the waiting queue is full; try again later
└── EngineClosed               the engine was shut down, or its loop failed
"""

from __future__ import annotations

MAX_PLACE = 240  # characters of a place that a message shows


def brief_place(place: str) -> str:
    """A place, such as a JSON Pointer, as messages show it: a long one without its middle."""
    half = MAX_PLACE // 2
    return place if len(place) <= MAX_PLACE else f"{place[:half]}...{place[-half:]}"


class TreilleError(Exception):
    """Base of every error that the runtime raises on purpose."""


class ModelError(TreilleError):
    """A model cannot be found, read or run."""


class ModelNotFound(ModelError):
    """No file, folder, alias or hub id answers to the name."""


class UnsupportedModel(ModelError):
    """The architecture, or a setting of it, is not implemented."""


class RequestError(TreilleError, ValueError):
    """One request is at fault. `field` names the parameter, where one is to blame."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidRequest(RequestError):
    """A parameter is out of range, of the wrong type, or contradicts another."""


class ConstraintError(RequestError):
    """The constraint of a request cannot be used."""


class InvalidConstraint(ConstraintError):
    """The constraint is not well-formed. `offset` is the place in its text, where known."""

    def __init__(self, message: str, *, field: str | None = None, offset: int | None = None) -> None:
        super().__init__(message if offset is None else f"{message} at offset {offset}", field=field)
        self.offset = offset


class UnsupportedConstraint(ConstraintError):
    """The constraint is well-formed and cannot be enforced exactly.

    `keyword` is the construct, `path` where it stands (an offset in a pattern, a JSON Pointer in a
    schema), `reason` why.
    """

    def __init__(self, keyword: str, path: str, reason: str, *, field: str | None = None) -> None:
        super().__init__(f"unsupported constraint: {keyword} at {brief_place(path)}: {reason}", field=field)
        self.keyword = keyword
        self.path = path
        self.reason = reason


class GrammarError(TreilleError):
    """A matcher was given a token that its grammar forbids; its state is unchanged."""


class RequestAborted(TreilleError):
    """A request was aborted before it had any answer: a score, or one whose constraint was being compiled."""


class CompileCancelled(TreilleError):
    """A compile was told to stop since nobody waits for it any more. No request ends with this."""


class CacheFull(TreilleError):
    """Pinned prefixes would take more of the cache than they may; nothing was pinned."""


class CacheFileError(TreilleError):
    """The file of the prefix cache cannot be written, or, for the log alone, cannot be used."""


class EngineOverloaded(TreilleError):
    """The waiting queue is full; the request was not accepted."""


class EngineClosed(TreilleError):
    """The engine was shut down, or its loop failed; the request was not accepted or cannot go on."""
