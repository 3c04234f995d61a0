"""Checks that need the engine: is it this model, and does the prompt fit into its context."""

from __future__ import annotations

from collections.abc import Sequence

from treille.runtime.errors import InvalidRequest
from treille.server.errors import ApiError
from treille.server.seam import Service, ServingEngine

SMALL_TEXT = 65_536
CAUTION = 4


def check_model(service: Service, name: str | None) -> None:
    """Raises a 404 for another model's name. A request without a name means the only model there is."""
    if name is not None and name != service.model_name:
        raise ApiError(
            404,
            f"the model {name[:200]!a} does not exist here: this server has {service.model_name!r}",
            param="model",
            code="model_not_found",
        )


def check_size(engine: ServingEngine, num_chars: int, *, field: str) -> None:
    """Raises a 400 for a text that is too long for the context whatever its tokens are: to find out by
    encoding it would take seconds. Cautious, since a tokenizer may make a text shorter first."""
    if num_chars <= SMALL_TEXT:
        return
    longest = max((len(text) for text in engine.tokenizer.token_bytes if text), default=1)
    if num_chars > CAUTION * longest * engine.max_seq_len:
        raise ApiError(
            400,
            f"This model's maximum context length is {engine.max_seq_len} tokens, and {field} has "
            f"{num_chars} characters, far more than those can spell. Shorten it.",
            param=field,
            code="context_length_exceeded",
        )


def check_prompt(engine: ServingEngine, ids: Sequence[int], *, field: str) -> None:
    """Raises a 400 for a prompt without tokens, or without room for one token after it."""
    if not ids:
        raise InvalidRequest(
            f"{field} is empty: the model needs at least one token to go on from", field=field
        )
    if len(ids) >= engine.max_seq_len:
        raise ApiError(
            400,
            f"This model's maximum context length is {engine.max_seq_len} tokens, at least one of them for "
            f"the answer, and {field} has {len(ids)} tokens. Shorten it.",
            param=field,
            code="context_length_exceeded",
        )
