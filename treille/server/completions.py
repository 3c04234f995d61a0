"""`POST /v1/completions`."""

from __future__ import annotations

import time
import uuid

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from treille.runtime.params import SamplingParams
from treille.runtime.types import Usage
from treille.server.admission import check_model, check_prompt, check_size
from treille.server.answers import CompletionBody, CompletionChoice, ErrorBody, UsageBody
from treille.server.errors import told_as
from treille.server.job import Job, Outcome, finish_word
from treille.server.protocol import DEFAULT_COMPLETION_TOKENS, CompletionRequest, Prompt
from treille.server.response_format import ExactRoute
from treille.server.seam import Service, ServingEngine
from treille.server.streaming import DONE, Frames, collect, frame, start_stream
from treille.server.tokens import CompletionColumns, Echo, echo_of


def router(service: Service) -> APIRouter:
    """The route, bound to one service."""
    routes = APIRouter(route_class=ExactRoute)

    @routes.post(
        "/v1/completions",
        response_model=None,
        responses={200: {"model": CompletionBody}, 400: {"model": ErrorBody}},
    )
    async def completions(body: CompletionRequest, request: Request) -> Response:
        return await _Handler(service, body).answer(request)

    return routes


class _Handler:
    """One request to the route."""

    def __init__(self, service: Service, body: CompletionRequest) -> None:
        self._service = service
        self._body = body
        self._id = f"cmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())

    async def answer(self, request: Request) -> Response:
        with told_as(self._body.field_names):
            return await self._answer(request)

    async def _answer(self, request: Request) -> Response:
        check_model(self._service, self._body.model)
        params = self._params()
        prompts = await anyio.to_thread.run_sync(self._prompts)
        echoes = await anyio.to_thread.run_sync(self._echoes, prompts) if self._body.echo else []
        job = Job.submit(self._service.engine, prompts, params, cache_salt=self._body.cache_salt)
        if self._body.stream:
            return await start_stream(request.receive, job, self._frames(job, echoes))
        whole = await collect(request.receive, job, job.outcome())
        answer = self._whole(whole, echoes).model_dump_json(exclude_unset=True)
        return Response(answer, media_type="application/json")

    def _params(self) -> SamplingParams:
        limit = self._body.max_tokens
        max_tokens = DEFAULT_COMPLETION_TOKENS if limit is None else limit
        logprobs = self._body.logprobs
        return self._body.sampling(
            max_tokens=max_tokens, logprobs=logprobs, prompt_logprobs=logprobs if self._body.echo else None
        )

    def _prompts(self) -> list[tuple[int, ...]]:
        return [_encode(self._service.engine, prompt) for prompt in self._body.prompt]

    def _echoes(self, prompts: list[tuple[int, ...]]) -> list[Echo]:
        tokenizer = self._service.engine.tokenizer
        return [
            echo_of(tokenizer, ids, given if isinstance(given, str) else None)
            for ids, given in zip(prompts, self._body.prompt, strict=True)
        ]

    def _whole(self, outcome: Outcome, echoes: list[Echo]) -> CompletionBody:
        choices = []
        for index, item in enumerate(outcome.completions):
            echo = self._echo(index, echoes)
            columns = (
                None
                if item.logprobs is None
                else self._columns(echo).add(item.logprobs, item.prompt_logprobs)
            )
            choices.append(
                CompletionChoice(
                    index=index,
                    text=item.text if echo is None else echo.text + item.text,
                    logprobs=columns,
                    finish_reason=finish_word(item.finish_reason),
                )
            )
        return self._chunk(choices, usage=outcome.usage)

    async def _frames(self, job: Job, echoes: list[Echo]) -> Frames:
        columns: dict[int, CompletionColumns] = {}
        async for item in job.progress():
            if isinstance(item, Outcome):
                if self._body.include_usage:
                    yield frame(self._chunk([], usage=item.usage))
                yield DONE
                return
            text, index = item.text, item.index
            if index not in columns:
                echo = self._echo(index, echoes)
                columns[index] = self._columns(echo)
                text = text if echo is None else echo.text + text
            logprobs = None
            if item.logprobs or item.prompt_logprobs:
                logprobs = columns[index].add(item.logprobs or (), item.prompt_logprobs)
            if text or logprobs or item.finish:
                choice = CompletionChoice(
                    index=index, text=text, logprobs=logprobs, finish_reason=item.finish
                )
                yield frame(self._chunk([choice], usage=None))

    def _columns(self, echo: Echo | None) -> CompletionColumns:
        return CompletionColumns(self._service.engine.tokenizer, self._body.logprobs or 0, echo)

    def _echo(self, index: int, echoes: list[Echo]) -> Echo | None:
        """What choice `index` begins with, if prompts are to be repeated."""
        return echoes[index // self._body.samples] if echoes else None

    def _chunk(self, choices: list[CompletionChoice], *, usage: Usage | None) -> CompletionBody:
        body = CompletionBody(
            id=self._id,
            object="text_completion",
            created=self._created,
            model=self._service.model_name,
            choices=choices,
        )
        if usage is not None:
            return body.model_copy(update={"usage": UsageBody.of(usage)})
        return body.model_copy(update={"usage": None}) if self._body.include_usage else body


def _encode(engine: ServingEngine, prompt: Prompt) -> tuple[int, ...]:
    """Token ids of one prompt; runs in a worker thread, since a prompt can be megabytes of text."""
    if isinstance(prompt, str):
        check_size(engine, len(prompt), field="prompt")
    ids = engine.encode(prompt) if isinstance(prompt, str) else prompt
    check_prompt(engine, ids, field="prompt")
    return ids
