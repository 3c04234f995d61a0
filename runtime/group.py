"""One accepted request inside the engine: the sequences it takes, and the events it sends.

A request that needs the same prompt several times (several samples, scored continuations) first has
one sequence compute it; the others start from the cache when that one is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from typing import Protocol

from treille.runtime.errors import RequestAborted
from treille.runtime.forced import Jump, JumpForward
from treille.runtime.healing import released
from treille.runtime.matching import TextMatcher
from treille.runtime.output import SampleOutput
from treille.runtime.params import SamplingParams
from treille.runtime.sampling import Sampled
from treille.runtime.sequence import Kind, Sequence
from treille.runtime.tokenizer import Tokenizer
from treille.runtime.types import (
    Event,
    Failed,
    Finished,
    Request,
    Scored,
    ScoreRequest,
    TokenLogprob,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a request's samples begin: behind the prompt without its last `num_taken` tokens, whose
    `num_healed` bytes the output begins with. `matcher` is the start of the text, None for free text."""

    matcher: TextMatcher | None = None
    num_taken: int = 0
    num_healed: int = 0


class MakeSequence(Protocol):
    """Makes a sequence of the request at hand."""

    def __call__(
        self,
        kind: Kind,
        prompt: tuple[int, ...],
        *,
        index: int = 0,
        continuation: tuple[int, ...] = (),
        params: SamplingParams | None = None,
        matcher: TextMatcher | None = None,
    ) -> Sequence: ...


class Group(ABC):
    """What both kinds of request share. `over` is set once the last event is sent."""

    def __init__(self, request_id: str, prompt_ids: tuple[int, ...], put: Callable[[Event], None]) -> None:
        self.request_id = request_id
        self.live: list[Sequence] = []
        self.over = False
        self.num_forced = 0  # tokens that nobody sampled
        self._prompt_ids = prompt_ids
        self._put = put
        self._first: Sequence | None = None
        self._num_cached = 0

    def open(self, make: MakeSequence, *, num_cached: int, share: bool) -> list[Sequence]:
        """The sequences to queue first. `num_cached` tokens of the prompt are in the cache; `share` says
        that the cache keeps what a sequence computes."""
        self._num_cached = num_cached
        self._first = self._opening(make, share=share)
        if self._first is None:
            return self._branch(make)
        self.live.append(self._first)
        return [self._first]

    def prefilled(self, seq: Sequence, make: MakeSequence) -> list[Sequence]:
        """The shared prompt is computed: the sequences to queue now."""
        self.live.remove(seq)
        return self._branch(make)

    @abstractmethod
    def scored(self, seq: Sequence, first: int, logprobs: list[TokenLogprob]) -> None:
        """Log-probabilities of the tokens of `seq` from position `first` on."""

    def fail(self, error: Exception) -> None:
        """The request ends by an error."""
        self._end(Failed(request_id=self.request_id, error=error))

    @abstractmethod
    def abort(self) -> None:
        """The request ends because the caller said so."""

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that came from the cache when the request began."""
        if self._first is None:
            return self._num_cached
        return min(self._first.cached_tokens or 0, len(self._prompt_ids))

    def _opening(self, make: MakeSequence, *, share: bool) -> Sequence | None:
        """The sequence that computes the prompt for the branches, if one is to go before them."""
        wanted = self._shared_prompt()
        if wanted > self._num_cached and (share or not self._num_branches()):
            return make(Kind.PREFILL, self._prompt_ids[:wanted])
        return None

    def _branch(self, make: MakeSequence) -> list[Sequence]:
        self.live = self._branches(make)
        if self._first is None and self.live:
            self._first = self.live[0]
        if not self.live:
            self._end(self._last())
        return list(self.live)

    def leave(self, seq: Sequence) -> None:
        """A sequence is over and has given its pages back; after the last one the request is over."""
        self.live.remove(seq)
        if not self.live:
            self._end(self._last())

    def _end(self, event: Event) -> None:
        self.live = []
        self.over = True
        self._put(event)

    @abstractmethod
    def _num_branches(self) -> int:
        """How many sequences go on from the prompt."""

    @abstractmethod
    def _shared_prompt(self) -> int:
        """Tokens of the prompt that a sequence of its own computes first."""

    @abstractmethod
    def _branches(self, make: MakeSequence) -> list[Sequence]:
        """The sequences that go on from the prompt."""

    @abstractmethod
    def _last(self) -> Event:
        """The event that ends the request well."""


class SampleGroup(Group):
    """`params.n` samples of one prompt; with `max_tokens=0` only the prompt, and its log-probabilities.

    `start` says where they begin, `jumps` finds what their constraint forces (None: all is sampled).
    """

    def __init__(
        self,
        request_id: str,
        request: Request,
        start: Start,
        put: Callable[[Event], None],
        *,
        tokenizer: Tokenizer,
        jumps: JumpForward | None,
        max_seq_len: int,
    ) -> None:
        super().__init__(request_id, request.prompt_ids[: len(request.prompt_ids) - start.num_taken], put)
        self._params = request.params
        self._num_prompt = len(request.prompt_ids)
        self._prompt_logprobs: list[TokenLogprob | None] = [None] * self._num_prompt
        self._matcher = start.matcher
        self._tokenizer = tokenizer
        # What the model thinks of a token is only known where it is asked for one.
        self._jumps = jumps if self._params.logprobs is None else None
        self._named = frozenset((*self._params.stop_token_ids, *self._params.logit_bias))
        room = min(self._params.max_tokens, max_seq_len - len(self._prompt_ids))
        self._outputs = [
            SampleOutput(
                request_id=request_id,
                index=index,
                params=self._params,
                prompt_ids=request.prompt_ids,
                tokenizer=tokenizer,
                max_tokens=room,
                num_healed=start.num_healed,
            )
            for index in range(self._params.n if self._has_samples else 0)
        ]

    @property
    def _has_samples(self) -> bool:
        return self._params.max_tokens > 0 or self._params.prompt_logprobs is not None

    def scored(self, seq: Sequence, first: int, logprobs: list[TokenLogprob]) -> None:
        self._prompt_logprobs[first : first + len(logprobs)] = logprobs

    def sampled(self, seq: Sequence, sampled: Sampled) -> bool:
        """A token was sampled for `seq`: advance its matcher, send the event, and return whether the
        sample is over."""
        forced = complete = False
        if seq.matcher is not None:
            text = self._tokenizer.token_bytes[sampled.token_id]
            # No further than the token: a forced text can be long, and this runs at each of its tokens.
            forced = text is not None and seq.matcher.forced_bytes(len(text)) == text
            seq.matcher.accept(sampled.token_id)
            complete = seq.matcher.is_finished()
            seq.matcher = released(seq.matcher)
        output = self._outputs[seq.index]
        self._put(output.push(sampled.token_id, sampled.logprob, forced=forced, complete=complete))
        return output.finish_reason is not None

    def find_jump(self, seq: Sequence) -> Jump | None:
        """What the constraint forces next. Changes nothing."""
        return self._find_jump(seq.matcher, seq.output_ids, self._outputs[seq.index].room)

    def jumped(self, seq: Sequence, jump: Jump) -> bool:
        """The sequence has the jump's tokens: send the event, and return whether the sample is over."""
        seq.matcher = released(jump.matcher)
        output = self._outputs[seq.index]
        self._force(output, jump)
        return output.finish_reason is not None

    def abort(self) -> None:
        for output in self._outputs:
            if output.finish_reason is None:
                self._put(output.abort())
        self._end(self._last())

    def _num_branches(self) -> int:
        return self._params.n if self._params.max_tokens else 0

    def _opening(self, make: MakeSequence, *, share: bool) -> Sequence | None:
        if self._params.prompt_logprobs is None:
            return super()._opening(make, share=share)
        if len(self._prompt_ids) == 1:
            return None
        # Every token behind the first is scored: none but the first could come from the cache.
        return make(Kind.SCORE, self._prompt_ids[:1], continuation=self._prompt_ids[1:], params=self._params)

    def _shared_prompt(self) -> int:
        if self._num_branches() == 1:
            return 0
        # A sample computes the last token itself: it wants its logits.
        return len(self._prompt_ids) - (self._num_branches() > 1)

    def _branches(self, make: MakeSequence) -> list[Sequence]:
        if self._params.prompt_logprobs is not None:
            prompt_logprobs = tuple(self._prompt_logprobs)
            for output in self._outputs:
                output.begin(prompt_logprobs)
        if not self._num_branches():
            for output in self._outputs:
                self._put(output.skip())
            return []
        # All samples begin alike: what is forced from the start is known before the prompt is computed.
        jump = self._find_jump(self._matcher, (), self._outputs[0].room)
        matcher = self._matcher if jump is None else released(jump.matcher)
        found = []
        for index, output in enumerate(self._outputs):
            if jump is not None:
                self._force(output, jump)
            if output.finish_reason is None:
                found.append(
                    make(
                        Kind.SAMPLE,
                        self._prompt_ids,
                        index=index,
                        continuation=() if jump is None else jump.token_ids,
                        params=self._params,
                        matcher=None if matcher is None else matcher.copy(),
                    )
                )
        return found

    def _force(self, output: SampleOutput, jump: Jump) -> None:
        event = output.force(jump)
        self.num_forced += len(event.token_ids)
        self._put(event)

    def _find_jump(self, matcher: TextMatcher | None, output_ids: Ids[int], room: int) -> Jump | None:
        if self._jumps is None or matcher is None:
            return None
        return self._jumps.find(output_ids, matcher, room=room, avoid=self._named)

    def _last(self) -> Event:
        counts = [len(output.token_ids) for output in self._outputs]
        completions = tuple(
            output.completion(self._usage(count)) for output, count in zip(self._outputs, counts, strict=True)
        )
        return Finished(request_id=self.request_id, completions=completions, usage=self._usage(sum(counts)))

    def _usage(self, completion_tokens: int) -> Usage:
        return Usage(
            prompt_tokens=self._num_prompt,
            cached_tokens=self.cached_tokens,
            completion_tokens=completion_tokens,
        )


class ScoreGroup(Group):
    """Log-probabilities of several continuations of one prompt."""

    def __init__(self, request_id: str, request: ScoreRequest, put: Callable[[Event], None]) -> None:
        super().__init__(request_id, request.prompt_ids, put)
        self._continuations = request.continuations
        self._scores = [[0.0] * len(continuation) for continuation in request.continuations]

    def scored(self, seq: Sequence, first: int, logprobs: list[TokenLogprob]) -> None:
        start = first - seq.num_prompt
        self._scores[seq.index][start : start + len(logprobs)] = [entry.logprob for entry in logprobs]

    def abort(self) -> None:
        self.fail(RequestAborted(f"request {self.request_id} was aborted"))

    def _num_branches(self) -> int:
        return len(self._continuations)

    def _shared_prompt(self) -> int:
        return len(self._prompt_ids) - 1

    def _branches(self, make: MakeSequence) -> list[Sequence]:
        return [
            make(Kind.SCORE, self._prompt_ids, index=index, continuation=continuation)
            for index, continuation in enumerate(self._continuations)
        ]

    def _last(self) -> Event:
        usage = Usage(
            prompt_tokens=len(self._prompt_ids) + sum(map(len, self._continuations)),
            cached_tokens=self.cached_tokens,
        )
        return Scored(
            request_id=self.request_id, logprobs=tuple(tuple(scores) for scores in self._scores), usage=usage
        )
