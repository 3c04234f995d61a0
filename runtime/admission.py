"""What a request must be before the engine takes it: checked on the caller's thread, by itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container

from treille.runtime.errors import InvalidRequest
from treille.runtime.types import MAX_SALT, Request, ScoreRequest

# A request id may not come twice: so many of the latest are remembered.
MAX_REMEMBERED_IDS = 65_536
MAX_ID_LENGTH = 256
MAX_CONTINUATIONS = 4096
MAX_PRIORITY = 2**31 - 1


def check_request(
    request: Request | ScoreRequest, *, num_tokens: int, max_seq_len: int, is_pool_bound: bool = False
) -> None:
    """Raise InvalidRequest for what is wrong with a request, naming the field.

    Token ids must be below `num_tokens`; prompt and output together hold at most `max_seq_len` tokens,
    `is_pool_bound` because the KV pool holds no more.
    """
    if not isinstance(request, Request | ScoreRequest):
        raise InvalidRequest(f"submit takes a Request or a ScoreRequest, not {request!r:.80}")
    priority = request.priority
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > MAX_PRIORITY:
        raise InvalidRequest(
            f"priority must be a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}, not {priority!r}",
            field="priority",
        )
    texts = [request.prompt_ids]
    if isinstance(request, ScoreRequest):
        texts.extend(request.continuations)
        if not 0 < len(request.continuations) <= MAX_CONTINUATIONS:
            raise InvalidRequest(
                f"there must be 1 to {MAX_CONTINUATIONS} continuations", field="continuations"
            )
    for ids in texts:
        if not ids:
            raise InvalidRequest(
                "the prompt and each continuation must hold at least one token", field="prompt"
            )
        if not all(isinstance(i, int) and 0 <= i < num_tokens for i in ids):
            raise InvalidRequest(f"token ids must be from 0 to {num_tokens - 1}", field="prompt")
    check_salt(request.cache_salt)
    priority = request.priority
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > MAX_PRIORITY:
        raise InvalidRequest(
            f"priority must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}, not {priority!r:.80}",
            field="priority",
        )
    length = len(request.prompt_ids) + max(map(len, texts[1:]), default=0)
    wants_room = isinstance(request, Request) and request.params.max_tokens > 0
    if length + wants_room > max_seq_len:
        holder, setting = ("KV pool", "kv_memory") if is_pool_bound else ("context", "max_seq_len")
        raise InvalidRequest(
            f"the prompt has {length} tokens and the {holder} holds {max_seq_len}, output included: "
            f"shorten it, or raise {setting}",
            field="prompt",
        )
    if isinstance(request, Request):
        worst = max(request.params.logit_bias, default=0)
        if worst >= num_tokens:
            raise InvalidRequest(
                f"logit_bias names token {worst}; ids end at {num_tokens - 1}", field="logit_bias"
            )


def check_salt(salt: str | None) -> None:
    """Raise InvalidRequest for what is no `cache_salt`."""
    if salt is not None and not (isinstance(salt, str) and 0 < len(salt) <= MAX_SALT):
        raise InvalidRequest(
            f"cache_salt must be text of 1 to {MAX_SALT} characters, or None", field="cache_salt"
        )


def check_room(request: Request | ScoreRequest, *, page_size: int, num_pages: int) -> None:
    """Raise InvalidRequest, with numbers, for a request that `num_pages` pages of `page_size` tokens cannot
    hold even alone. It may need one page more than its tokens fill: the one that it copies its start from.
    """
    longest = 1 if isinstance(request, Request) else max(map(len, request.continuations))
    length = len(request.prompt_ids) + longest
    needed = -(-length // page_size) + 1
    if needed > num_pages:
        raise InvalidRequest(
            f"{length} tokens take {needed} pages of {page_size}, and the KV pool has {num_pages}: "
            f"shorten the prompt, or raise kv_memory",
            field="prompt",
        )


class RequestIds:
    """Ids of requests: new ones, and the callers' own, of which none is taken twice."""

    def __init__(self) -> None:
        self._taken: OrderedDict[str, None] = OrderedDict()
        self._next = 0

    def take(self, request_id: str | None, *, live: Container[str]) -> str:
        """A new id, or the caller's. `live` holds the ids in use, however old. Raises InvalidRequest."""
        if request_id is None:
            request_id = self._new(live)
        elif not request_id or len(request_id) > MAX_ID_LENGTH:
            raise InvalidRequest(f"request_id must have 1 to {MAX_ID_LENGTH} characters", field="request_id")
        elif request_id in self._taken or request_id in live:
            raise InvalidRequest(f"request_id {request_id!r} was used before", field="request_id")
        self._taken[request_id] = None
        if len(self._taken) > MAX_REMEMBERED_IDS:
            self._taken.popitem(last=False)
        return request_id

    def _new(self, live: Container[str]) -> str:
        while True:
            request_id = f"req-{self._next}"
            self._next += 1
            if request_id not in self._taken and request_id not in live:
                return request_id
