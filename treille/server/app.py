"""`create_app`: the OpenAI-compatible HTTP server over one engine."""

from __future__ import annotations

import time

from fastapi import APIRouter, FastAPI
from starlette.responses import JSONResponse, Response

from treille.server import chat, completions
from treille.server.admission import check_model
from treille.server.answers import ModelCard, ModelList
from treille.server.errors import ApiError, install
from treille.server.guard import Guard
from treille.server.seam import Service, ServingEngine

MAX_BODY_BYTES = 16 * 1024 * 1024


def create_app(
    engine: ServingEngine,
    *,
    api_key: str | None = None,
    model_name: str | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> FastAPI:
    """The ASGI application. The engine stays the caller's to close.

    `api_key`: what clients must send as bearer token; None lets everybody in.
    `model_name`: the name that clients ask for, by default the engine's.
    `max_body_bytes`: a larger request body is answered with 413.
    """
    if api_key == "":
        raise ValueError("api_key is empty: leave it out to let everybody in")
    service = Service(engine, model_name or engine.model_name, int(time.time()))
    app = FastAPI(title="Treille", summary="OpenAI-compatible API over one Treille engine")
    app.add_middleware(Guard, api_key=api_key, max_body_bytes=max_body_bytes)
    install(app)
    app.include_router(completions.router(service))
    app.include_router(chat.router(service))
    app.include_router(_service_routes(service))
    return app


def _service_routes(service: Service) -> APIRouter:
    routes = APIRouter()
    card = ModelCard(id=service.model_name, created=service.created, max_model_len=service.engine.max_seq_len)

    @routes.get("/v1/models")
    async def models() -> ModelList:
        return ModelList(data=[card])

    # A name may hold slashes, as hub ids do.
    @routes.get("/v1/models/{name:path}")
    async def model(name: str) -> ModelCard:
        check_model(service, name)
        return card

    @routes.get("/health", response_model=None)
    async def health() -> Response:
        if not service.engine.is_alive:
            raise ApiError(503, "the engine makes no progress", kind="server_error", code="engine_stuck")
        return JSONResponse({"status": "ok"})

    return routes
