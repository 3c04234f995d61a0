"""`Engine`: the door to the runtime. One thread of its own runs the loop; any thread may call in."""

from __future__ import annotations

import atexit
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType

from treille.runtime.admission import RequestIds, check_request
from treille.runtime.compiling import Compile, CompileKey, CompilePool, ConstraintCompiler, compile_keys
from treille.runtime.config import resolve_config
from treille.runtime.core import EngineCore
from treille.runtime.errors import (
    CacheFull,
    EngineClosed,
    EngineOverloaded,
    InvalidRequest,
    RequestAborted,
    RequestError,
    TreilleError,
)
from treille.runtime.grammar import Grammar
from treille.runtime.group import Start
from treille.runtime.healing import Seam, take_back
from treille.runtime.matching import TextMatcher, TokenIndex
from treille.runtime.memory import available_memory
from treille.runtime.models.load import LoadedModel
from treille.runtime.params import SamplingParams
from treille.runtime.pinned import CachedPrefix, keep_prefix
from treille.runtime.placing import placed
from treille.runtime.stream import EventStream
from treille.runtime.types import Completion, Event, Failed, Finished, Request, ScoreRequest, TokenEvent


class Engine:
    """Runs requests on one model, many at once.

    `model` is an alias ("smollm2-135m"), a Hugging Face folder, a GGUF file, a hub id, or a LoadedModel.
    `device` is "cpu" or "cuda" (None: CUDA where there is one), `dtype` "float32" or "bfloat16" (None: what
    the device is fast at), or, on the CPU, "int8" or "int4": bfloat16 with the linear layers' weights
    rounded, the output layer's to int8 (docs/engine.md has what that costs and gains). `max_seq_len` limits
    prompt and output together, in tokens; `max_num_seqs` and `max_batched_tokens` limit one step;
    `max_queued` is how many requests may wait beyond those that run; `kv_memory` sizes the KV pool: bytes,
    text such as "2GiB", or a share of the memory that is available beside the weights, 0.4 or "40%". A pool
    of a given size is reserved at the start, and refused if there is not so much memory, so that a full one
    cannot run out of it; without `kv_memory` pages are taken when they are first used. `page_size` is in
    tokens. `schedule_policy` "lpm" admits the longest cached prefix first, "dfs-weight" in the order of the
    tree of waiting prompts, "fcfs" the oldest request, "priority" the highest `priority` (`waiting.py` says
    how none starves). `eviction` says which cached prefixes go first where memory is short: those used
    longest ago ("lru"), least often ("lfu") or by requests of the lowest priority ("priority"; then the
    oldest). `host_memory`, in bytes or text, keeps what was evicted until it matches again. `cache_file`
    names a file that the prefix cache is read from now and written to by `close()` (docs/engine.md says when
    it is not used). `jump_forward`
    adds text that a constraint leaves no choice about without sampling it (`forced.py` says what that keeps).
    `seed` makes requests that bring no seed of their own reproducible, in order of submission.
    `deterministic` (CPU only) makes a token's logits the same to the bit whatever the batch, the chunks of
    its prompt and what of it was cached. `compile` takes the place of `compile_constraint`, for tests.

    Use it as a context manager, or call `close()`. Raises ModelError and its kind for the model,
    InvalidRequest for a setting out of range.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        device: str | None = None,
        dtype: str | None = None,
        max_seq_len: int | None = None,
        max_num_seqs: int = 64,
        max_batched_tokens: int = 2048,
        max_queued: int = 4096,
        kv_memory: int | float | str | None = None,
        page_size: int = 16,
        enable_prefix_caching: bool = True,
        schedule_policy: str = "lpm",
        eviction: str = "lru",
        host_memory: int | str | None = None,
        cache_file: str | Path | None = None,
        jump_forward: bool = True,
        seed: int = 0,
        deterministic: bool = False,
        compile: Compile | None = None,
    ) -> None:
        loaded = placed(
            model, device=device, dtype=dtype, max_seq_len=max_seq_len, deterministic=deterministic
        )
        self.config = resolve_config(
            loaded.config,
            page_bytes=loaded.model.page_bytes,
            device=loaded.model.device.type,
            available=available_memory(loaded.model.device),
            max_seq_len=max_seq_len,
            max_num_seqs=max_num_seqs,
            max_batched_tokens=max_batched_tokens,
            max_queued=max_queued,
            kv_memory=kv_memory,
            page_size=page_size,
            enable_prefix_caching=enable_prefix_caching,
            schedule_policy=schedule_policy,
            eviction=eviction,
            host_memory=host_memory,
            cache_file=cache_file,
            jump_forward=jump_forward,
            seed=seed,
        )
        self.model_name = loaded.name
        self.tokenizer = loaded.tokenizer
        self._num_tokens = loaded.config.vocab_size
        self._compiler = ConstraintCompiler(loaded.tokenizer, compile)
        self._compiling: CompilePool[CompileKey, Grammar | TokenIndex | None] = CompilePool(
            self._compiler, find=self._compiler.find
        )
        self._core = EngineCore(loaded, self.config, lambda: self._compiler.index)
        self._seeds = random.Random(seed)
        self._wake = Condition()  # guards everything below
        self._inbox: deque[Callable[[], None]] = deque()
        self._answers: deque[Future[int]] = deque()
        self._streams: dict[str, EventStream] = {}
        self._ids = RequestIds()
        self._closing = False
        self._thread = Thread(target=self._loop, name="treille-engine", daemon=True)
        self._thread.start()
        # A thread that is still there when the interpreter goes can abort the whole process.
        atexit.register(self.close)

    @property
    def max_seq_len(self) -> int:
        """Most tokens that prompt and output may have together."""
        return self.config.max_seq_len

    @property
    def is_alive(self) -> bool:
        """Whether the engine's loop runs."""
        return self._thread.is_alive() and not self._closing

    @property
    def keeps_prefixes(self) -> bool:
        """Whether there is a prefix cache."""
        return self.config.enable_prefix_caching

    def submit(self, request: Request | ScoreRequest) -> EventStream:
        """Accept a request; its events come on the returned stream.

        Safe from any thread or event loop; does not wait for the engine. Raises InvalidRequest for a
        prompt that is empty, too long or holds unknown ids and for an id that was used before,
        EngineOverloaded when `max_queued` requests wait, EngineClosed after `close()`. What is wrong with a
        constraint arrives as a Failed event, since it is compiled off the caller's thread.
        """
        return self._submit(request, limited=True)

    def abort(self, request_id: str) -> None:
        """End a request within one step. Unknown, ended or aborted ones are left alone.

        A compile that nobody else waits for is dropped, or told to stop.
        """
        self._compiling.cancel(request_id)
        with self._wake:
            if request_id in self._streams:
                self._inbox.append(lambda: self._abort(request_id))
                self._wake.notify()

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Run prompts together and wait for all: their completions in order of the prompts (`params.n` for
        each). Text prompts are encoded with the texts of special tokens taken for those tokens, ids are
        taken as they are. `params` is one for all, or a list of one each. Raises the first failure, once
        every request has ended.
        """
        if isinstance(prompts, str | bytes) or not isinstance(prompts, Sequence):
            raise InvalidRequest(
                f"prompts must be a list of texts or of lists of token ids, not {prompts!r:.80}: "
                f"put one prompt into a list",
                field="prompts",
            )
        each = (
            list(params)
            if isinstance(params, Sequence)
            else [SamplingParams() if params is None else params] * len(prompts)
        )
        if len(each) != len(prompts):
            raise InvalidRequest(f"{len(prompts)} prompts came with {len(each)} params", field="params")
        for one in each:
            if not isinstance(one, SamplingParams):
                raise InvalidRequest(f"params must be SamplingParams, not {one!r:.80}", field="params")
        requests = [
            Request(prompt_ids=self._ids_of(prompt), params=one)
            for prompt, one in zip(prompts, each, strict=True)
        ]
        for request in requests:
            self._check(request)
        streams: list[EventStream] = []
        try:
            for request in requests:
                streams.append(self._submit(request, limited=False))
            ends = [_last(stream) for stream in streams]
        except BaseException:
            for stream in streams:
                stream.abort()
            raise
        for end in ends:
            if isinstance(end, Failed):
                raise end.error
        return [completion for end in ends if isinstance(end, Finished) for completion in end.completions]

    def cache(self, prompt: str | Sequence[int], *, cache_salt: str | None = None) -> CachedPrefix:
        """Compute a prompt unless it is cached, and keep it in the cache until what is returned is released.

        Waits for it; texts and ids are taken as `generate` takes them. Prompts that begin with it need not
        compute it again, if they have its `cache_salt`. All that is kept so may take half of the cache, less
        where the longest sequence would not fit beside it. Raises CacheFull beyond that, InvalidRequest
        where prefix caching is off, and what `generate` raises.
        """
        if not self.keeps_prefixes:
            raise InvalidRequest(
                "cache needs enable_prefix_caching: the engine keeps no prefixes",
                field="enable_prefix_caching",
            )
        request = Request(
            prompt_ids=self._ids_of(prompt), params=SamplingParams(max_tokens=0), cache_salt=cache_salt
        )
        pinned: Future[CachedPrefix] = Future()
        stream = self._submit(request, limited=True, done=lambda: self._pin(request, pinned))
        try:
            end = _last(stream)
        except BaseException:  # the caller was interrupted: nobody will have the prefix
            stream.abort()
            pinned.add_done_callback(_let_go)
            raise
        if isinstance(end, Failed):
            raise end.error
        return pinned.result()

    def encode(self, text: str) -> tuple[int, ...]:
        """A text prompt's ids. The empty prompt is the token that begins a text, since a model needs one
        to go on from."""
        ids = self.tokenizer.encode(text, parse_special=True)
        if not ids and not text:
            start = self.tokenizer.bos_id
            ids = [min(self.tokenizer.eos_ids) if start is None and self.tokenizer.eos_ids else start or 0]
        return tuple(ids)

    def stats(self) -> dict[str, float]:
        """Counters since the start, and gauges: sequences running and waiting, requests whose constraint is
        being compiled, pages free and cached."""
        core = self._core
        counters = {name: float(getattr(core.counters, name)) for name in core.counters.__slots__}
        return counters | {
            "running": core.scheduler.num_running,
            "waiting": core.scheduler.num_waiting,
            "compiling": self._compiling.num_waiting,
            "unfinished_requests": len(self._streams),
            "pages": core.cache.num_pages,
            "free_pages": core.cache.num_free,
            "cached_pages": core.cache.num_cached,
            "pinned_pages": core.cache.num_pinned,
            "host_pages": core.cache.num_host_used,
        }

    def flush_cache(self) -> int:
        """Forget every cached prefix that nobody uses now; returns the pages freed."""
        return self._ask(self._core.cache.flush)

    def save_cache(self) -> int:
        """Write the prefix cache to `cache_file` now; returns how many pages it holds.

        Steps wait. Raises InvalidRequest without `cache_file`, CacheFileError if it could not be replaced.
        """
        saved = self._core.saved
        if saved is None:
            raise InvalidRequest("save_cache needs cache_file: the engine has none", field="cache_file")
        return self._ask(saved.save)

    def close(self) -> None:
        """End every request with EngineClosed, stop the loop and write `cache_file`. Twice is harmless."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._compiling.close(wait=False)
        self._thread.join()
        self._core.close()
        self._compiling.close()
        atexit.unregister(self.close)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ids_of(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        if not isinstance(prompt, Sequence):
            raise InvalidRequest(
                f"a prompt must be a text or a list of token ids, not {prompt!r:.80}", field="prompts"
            )
        return self.encode(prompt) if isinstance(prompt, str) else tuple(prompt)

    def _ask(self, action: Callable[[], int]) -> int:
        """What `action` returns or raises, called in the loop between two steps."""
        answer: Future[int] = Future()

        def act() -> None:
            self._answers.popleft()
            try:
                answer.set_result(action())
            except TreilleError as error:
                answer.set_exception(error)

        with self._wake:
            self._expect_open()
            self._answers.append(answer)
            self._inbox.append(act)
            self._wake.notify()
        return answer.result()

    def _submit(
        self, request: Request | ScoreRequest, *, limited: bool, done: Callable[[], None] | None = None
    ) -> EventStream:
        """`done` is called in the loop when the request has finished well, before anything else happens."""
        self._check(request)
        with self._wake:
            self._expect_open()
            if limited and len(self._streams) >= self.config.max_num_seqs + self.config.max_queued:
                raise EngineOverloaded(
                    f"{len(self._streams)} requests run or wait already: try again later, or raise max_queued"
                )
            request_id = self._ids.take(request.request_id, live=self._streams)
            stream = self._streams[request_id] = EventStream(request_id, self.abort)
            seed = request.params.seed if isinstance(request, Request) else 0
            seed = self._seeds.getrandbits(63) if seed is None else seed
            keys = compile_keys(request.params) if isinstance(request, Request) else ()
            if not keys:
                self._inbox.append(lambda: self._add(request_id, request, seed, Start(), done))
                self._wake.notify()
        if keys and isinstance(request, Request):  # without the lock: this may do some work at once
            self._compiling.submit(request_id, keys, self._compiled(request_id, request, seed))
            if request_id not in self._streams:  # aborted meanwhile
                self._compiling.cancel(request_id)
        return stream

    def _check(self, request: Request | ScoreRequest) -> None:
        check_request(
            request,
            num_tokens=self._num_tokens,
            max_seq_len=self.max_seq_len,
            is_pool_bound=self.config.is_pool_bound,
        )

    def _expect_open(self) -> None:
        if self._closing or not self._thread.is_alive():
            raise EngineClosed("the engine is closed: make a new one")

    def _compiled(
        self, request_id: str, request: Request, seed: int
    ) -> Callable[[Mapping[CompileKey, Grammar | TokenIndex | None] | Exception], None]:
        """What to do, on a worker or at once, when a request's patterns are compiled: queue it."""

        def done(found: Mapping[CompileKey, Grammar | TokenIndex | None] | Exception) -> None:
            try:
                if isinstance(found, Exception):
                    raise found
                start = self._start(request, found)
            except Exception as error:
                failure = error if isinstance(error, RequestError) else _internal(error)
                self._post(lambda: self._refuse(request_id, failure))
            else:
                self._post(lambda: self._add(request_id, request, seed, start))

        return done

    def _start(self, request: Request, found: Mapping[CompileKey, Grammar | TokenIndex | None]) -> Start:
        """Where a request's samples begin."""
        matcher: TextMatcher | None = None
        for grammar in found.values():
            if isinstance(grammar, Grammar):
                matcher = grammar.matcher()
        if not request.params.heal:
            return Start(matcher)
        count, taken = take_back(request.prompt_ids, self._compiler.index)
        if not count:
            return Start(matcher)
        seam = Seam(taken, self._compiler.index, matcher)
        seam.row(0)  # this can take a while: not in the engine's loop
        return Start(seam.matcher(), count, len(taken))

    def _post(self, action: Callable[[], None]) -> None:
        with self._wake:
            self._inbox.append(action)
            self._wake.notify()

    def _loop(self) -> None:
        try:
            while self._listen():
                if self._core.busy:
                    self._core.step()
            error = EngineClosed("the engine was closed")
        except BaseException as fault:
            error = EngineClosed(f"the engine's loop failed: {fault!r}")
            error.__cause__ = fault
        self._compiling.close(wait=False)
        with self._wake:
            self._closing = True
            left = list(self._streams.values())
            self._streams.clear()
            self._inbox.clear()
        for answer in self._answers:
            answer.set_exception(error)
        for stream in left:
            stream.put(Failed(request_id=stream.request_id, error=error))
        if error.__cause__ is None and self._core.saved is not None:
            self._core.saved.keep()

    def _listen(self) -> bool:
        """Do what callers asked for; sleep while there is nothing to do. False: stop."""
        with self._wake:
            if not self._core.busy:
                self._wake.wait_for(lambda: self._inbox or self._closing)
            if self._closing:
                return False
            actions = list(self._inbox)
            self._inbox.clear()
        for action in actions:
            action()
        return True

    def _add(
        self,
        request_id: str,
        request: Request | ScoreRequest,
        seed: int,
        start: Start,
        done: Callable[[], None] | None = None,
    ) -> None:
        stream = self._streams.get(request_id)
        if stream is None:
            return  # aborted while its constraint was compiled

        def put(event: Event) -> None:
            if not isinstance(event, TokenEvent):  # the last event of the request
                self._forget(request_id)
                if done is not None and not isinstance(event, Failed):
                    done()
            stream.put(event)

        try:
            self._core.add(request_id, request, seed=seed, start=start, put=put)
        except RequestError as error:
            self._refuse(request_id, error)

    def _pin(self, request: Request, pinned: Future[CachedPrefix]) -> None:
        namespace = self._core.namespace(request.cache_salt)
        try:
            prefix = keep_prefix(self._core.cache, request.prompt_ids, namespace, self._post)
        except CacheFull as error:
            pinned.set_exception(error)
        else:
            pinned.set_result(prefix)

    def _abort(self, request_id: str) -> None:
        if not self._core.abort(request_id):  # its constraint is being compiled, or it is over
            self._refuse(request_id, RequestAborted(f"request {request_id} was aborted"))

    def _refuse(self, request_id: str, error: Exception) -> None:
        """End a request that never reached the core."""
        stream = self._forget(request_id)
        if stream is not None:
            stream.put(Failed(request_id=request_id, error=error))

    def _forget(self, request_id: str) -> EventStream | None:
        with self._wake:
            return self._streams.pop(request_id, None)


def _let_go(late: Future[CachedPrefix]) -> None:
    if late.exception() is None:
        late.result().release()


def _last(stream: EventStream) -> Event:
    """A stream's last event."""
    *_, event = stream
    return event


def _internal(error: Exception) -> TreilleError:
    failure = TreilleError(f"the constraint could not be compiled: {error!r}")
    failure.__cause__ = error
    return failure
