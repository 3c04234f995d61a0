"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from treille.runtime.params import SamplingParams
from treille.runtime.types import TokenLogprob, Usage
from treille.server.admission import check_model, check_prompt, check_size
from treille.server.answers import (
    ChatAnswer,
    ChatBody,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ErrorBody,
    UsageBody,
)
from treille.server.errors import told_as
from treille.server.job import Delta, Job, Outcome, finish_word
from treille.server.protocol import ChatRequest
from treille.server.response_format import ExactRoute
from treille.server.seam import Service
from treille.server.streaming import DONE, Frames, collect, frame, start_stream
from treille.server.tokens import chat_logprobs


def router(service: Service) -> APIRouter:
    """The route, bound to one service."""
    routes = APIRouter(route_class=ExactRoute)

    @routes.post(
        "/v1/chat/completions",
        response_model=None,
        responses={200: {"model": ChatBody}, 400: {"model": ErrorBody}},
    )
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        return await _Handler(service, body).answer(request)

    return routes


class _Handler:
    """One request to the route."""

    def __init__(self, service: Service, body: ChatRequest) -> None:
        self._service = service
        self._body = body
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())

    async def answer(self, request: Request) -> Response:
        with told_as(self._body.field_names):
            return await self._answer(request)

    async def _answer(self, request: Request) -> Response:
        check_model(self._service, self._body.model)
        prompt_ids = await anyio.to_thread.run_sync(self._encode)
        params = self._params(len(prompt_ids))
        job = Job.submit(self._service.engine, [prompt_ids], params, cache_salt=self._body.cache_salt)
        if self._body.stream:
            return await start_stream(request.receive, job, self._frames(job))
        whole = await collect(request.receive, job, job.outcome())
        return Response(self._whole(whole).model_dump_json(exclude_unset=True), media_type="application/json")

    def _encode(self) -> tuple[int, ...]:
        """Runs in a worker thread: a conversation can be megabytes of text."""
        messages = [message.plain() for message in self._body.messages]
        engine = self._service.engine
        check_size(engine, sum(len(message["content"]) for message in messages), field="messages")
        ids = tuple(engine.tokenizer.encode_chat(messages, add_generation_prompt=True))
        check_prompt(engine, ids, field="messages")
        return ids

    def _params(self, prompt_length: int) -> SamplingParams:
        limit = self._body.limit
        room = self._service.engine.max_seq_len - prompt_length
        top = self._body.top_logprobs or 0
        return self._body.sampling(
            max_tokens=room if limit is None else limit, logprobs=top if self._body.logprobs else None
        )

    def _whole(self, outcome: Outcome) -> ChatBody:
        choices = [
            ChatChoice(
                index=index,
                message=ChatAnswer(role="assistant", content=item.text, refusal=None),
                logprobs=self._logprobs(item.logprobs),
                finish_reason=finish_word(item.finish_reason),
            )
            for index, item in enumerate(outcome.completions)
        ]
        return ChatBody(
            id=self._id,
            object="chat.completion",
            created=self._created,
            model=self._service.model_name,
            choices=choices,
            usage=UsageBody.of(outcome.usage),
        )

    async def _frames(self, job: Job) -> Frames:
        begun: set[int] = set()
        async for item in job.progress():
            if isinstance(item, Outcome):
                if self._body.include_usage:
                    yield self._frame([], usage=item.usage)
                yield DONE
                return
            if item.index not in begun:
                begun.add(item.index)
                yield self._frame([self._choice(item.index, ChatDelta(role="assistant", content=""))])
            if item.text or item.logprobs:
                yield self._frame([self._text(item)])
            if item.finish is not None:
                choice = ChatChunkChoice(
                    index=item.index, delta=ChatDelta(), logprobs=None, finish_reason=item.finish
                )
                yield self._frame([choice])

    def _text(self, item: Delta) -> ChatChunkChoice:
        return self._choice(item.index, ChatDelta(content=item.text), self._logprobs(item.logprobs))

    def _choice(self, index: int, delta: ChatDelta, logprobs: ChatLogprobs | None = None) -> ChatChunkChoice:
        return ChatChunkChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=None)

    def _logprobs(self, items: Sequence[TokenLogprob] | None) -> ChatLogprobs | None:
        if items is None or not self._body.logprobs:
            return None
        return chat_logprobs(self._service.engine.tokenizer, items, self._body.top_logprobs or 0)

    def _frame(self, choices: list[ChatChunkChoice], *, usage: Usage | None = None) -> bytes:
        chunk = ChatChunk(
            id=self._id,
            object="chat.completion.chunk",
            created=self._created,
            model=self._service.model_name,
            choices=choices,
        )
        if self._body.include_usage:
            # Asked for counts, every chunk has the field, and all but the last have null in it.
            chunk = chunk.model_copy(update={"usage": None if usage is None else UsageBody.of(usage)})
        return frame(chunk)
