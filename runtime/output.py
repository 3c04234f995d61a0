"""What one sample has produced so far: tokens become text, text meets stop conditions."""

from __future__ import annotations

from collections.abc import Sequence

from treille.runtime.detokenizer import Detokenizer
from treille.runtime.forced import Jump
from treille.runtime.params import SamplingParams
from treille.runtime.stops import StopChecker
from treille.runtime.tokenizer import Tokenizer
from treille.runtime.types import (
    Completion,
    FinishReason,
    PromptLogprobs,
    TokenEvent,
    TokenLogprob,
    Usage,
)


class SampleOutput:
    """Collects one sample's tokens and yields an event for each, or for each stretch that was forced.

    The text of end and stop tokens is left out; their ids are kept. Stop strings and the stop pattern
    are looked for in text that comes after `min_tokens` tokens.
    """

    def __init__(
        self,
        *,
        request_id: str,
        index: int,
        params: SamplingParams,
        prompt_ids: Sequence[int],
        tokenizer: Tokenizer,
        max_tokens: int,
        num_healed: int = 0,
    ) -> None:
        """The first `num_healed` bytes of the tokens belong to the prompt: they are not in the text."""
        self._request_id = request_id
        self._index = index
        self._params = params
        self._eos_ids = frozenset() if params.ignore_eos else tokenizer.eos_ids
        self._stop_ids = frozenset(params.stop_token_ids)
        self._spellings = tokenizer.token_bytes
        self._num_healed = num_healed
        self._detokenizer = Detokenizer(tokenizer, prompt_ids)
        self._stops = StopChecker(params.stop, params.stop_regex)
        self._max_tokens = max_tokens
        self._pieces: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._prompt_logprobs: PromptLogprobs | None = None
        self._has_begun = False
        self._stop_reason: str | int | None = None
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None

    def begin(self, prompt_logprobs: PromptLogprobs) -> None:
        """The prompt's log-probabilities, before the first event."""
        self._prompt_logprobs = prompt_logprobs

    def push(
        self, token_id: int, logprob: TokenLogprob | None, *, forced: bool, complete: bool
    ) -> TokenEvent:
        """Add a sampled token. `complete` says that the constraint leaves nothing after it. Sets
        `finish_reason` when the sample is over."""
        if logprob is not None:
            self._logprobs.append(logprob)
        text = self._add(token_id, self._piece(token_id), complete=complete)
        return self._event(text, (token_id,), (logprob,) if logprob is not None else None, forced=forced)

    def force(self, jump: Jump) -> TokenEvent:
        """Add tokens that were not sampled, in one event. They end the sample as sampled ones would: those
        behind the one that ended it are dropped."""
        del self.token_ids[len(self.token_ids) - jump.num_replaced :]
        first, text = len(self.token_ids), ""
        complete = jump.matcher.is_finished()
        last = len(jump.token_ids) - 1
        for number, (token_id, piece) in enumerate(zip(jump.token_ids, jump.pieces, strict=True)):
            text += self._add(token_id, piece, complete=complete and number == last)
            if self.finish_reason is not None:
                break
        token_ids = tuple(self.token_ids[first:])
        return self._event(text, token_ids, None, forced=True, num_replaced=jump.num_replaced)

    @property
    def room(self) -> int:
        """Tokens that may still be added."""
        return self._max_tokens - len(self.token_ids)

    def _piece(self, token_id: int) -> bytes:
        """What a sampled token adds to the text; ids without text add nothing."""
        known = 0 <= token_id < len(self._spellings)
        return (self._spellings[token_id] or b"") if known else b""

    def _add(self, token_id: int, piece: bytes, *, complete: bool) -> str:
        """Add one token; returns the text that is certain now."""
        self.token_ids.append(token_id)
        text = ""
        if token_id in self._eos_ids or token_id in self._stop_ids:
            self._stop_reason = token_id if token_id not in self._eos_ids else None
            self.finish_reason = "stop"
        else:
            healed = min(self._num_healed, len(piece))
            self._num_healed -= healed
            text = self._check(self._detokenizer.push_bytes(piece[healed:]))
        if self.finish_reason is None and complete:
            self.finish_reason = "stop"
        if self.finish_reason is None and len(self.token_ids) >= self._max_tokens:
            self.finish_reason = "length"
        if self.finish_reason is not None and not isinstance(self._stop_reason, str):
            text += self._rest()
        return text

    def skip(self) -> TokenEvent:
        """The sample has no room for a token: it is over."""
        self.finish_reason = "length"
        return self._event("", (), None, forced=False)

    def abort(self) -> TokenEvent:
        """The sample is over from outside."""
        self.finish_reason = "abort"
        return self._event(self._rest(), (), None, forced=False)

    def completion(self, usage: Usage) -> Completion:
        """The finished sample."""
        if self.finish_reason is None:
            raise RuntimeError("the sample is not over")
        return Completion(
            index=self._index,
            text="".join(self._pieces),
            token_ids=tuple(self.token_ids),
            finish_reason=self.finish_reason,
            usage=usage,
            logprobs=None if self._params.logprobs is None else tuple(self._logprobs),
            prompt_logprobs=self._prompt_logprobs,
            stop_reason=self._stop_reason,
        )

    def _check(self, text: str) -> str:
        """Text that is certain, once stop conditions have seen it."""
        if len(self.token_ids) < self._params.min_tokens:
            return text
        emitted, stop = self._stops.push(text)
        if stop is not None:
            self._stop_reason = stop
            self.finish_reason = "stop"
        return emitted

    def _rest(self) -> str:
        """What was held back, now that nothing follows; a stop may still complete in it."""
        emitted = self._check(self._detokenizer.flush())
        if isinstance(self._stop_reason, str):
            return emitted
        return emitted + self._stops.flush()

    def _event(
        self,
        text: str,
        token_ids: tuple[int, ...],
        logprobs: tuple[TokenLogprob, ...] | None,
        *,
        forced: bool,
        num_replaced: int = 0,
    ) -> TokenEvent:
        self._pieces.append(text)
        is_first, self._has_begun = not self._has_begun, True
        return TokenEvent(
            request_id=self._request_id,
            index=self._index,
            text=text,
            token_ids=token_ids,
            logprobs=logprobs,
            prompt_logprobs=self._prompt_logprobs if is_first else None,
            forced=forced,
            num_replaced=num_replaced,
            finish_reason=self.finish_reason,
        )
