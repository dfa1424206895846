"""The application of every route that is not hot.

`build_cold_app` wires Litestar: health, configure, the API document and whatever routes the caller
adds. `HotGate` puts the hot routes before it, for other ASGI servers. All errors leave as
`{"error", "code"}` by the problems table. There is no CORS: a broker is not called from other
people's web pages.

Litestar gets the path as it was sent and matches that, so that a name may hold an encoded slash;
its path parameters are decoded after the match.
"""

import logging
from collections.abc import Sequence
from typing import Any

from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ASGIApp, ControllerRouterHandler, Receive, Scope, Send

from skep.server.exchange import HotRoutes, decode_segment
from skep.server.openapi import openapi_config
from skep.server.problems import Problem, problem, problem_of
from skep.server.routes.configure import Configure, configure_route
from skep.server.routes.health import Probe, health_routes

log = logging.getLogger(__name__)

_CODE_BY_STATUS = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "payload_too_large",
}


def build_cold_app(
    routes: HotRoutes,
    *,
    probe: Probe,
    configure: Configure,
    body_bytes_max: int,
    version: str,
    further_routes: Sequence[ControllerRouterHandler] = (),
) -> Litestar:
    """Build the application of every route that is not hot.

    Fill `routes` first: the API document describes what is in the table at this moment.
    """
    config, document_route = openapi_config(routes, version=version)
    return Litestar(
        [*health_routes(probe), configure_route(configure), document_route, *further_routes],
        openapi_config=config,
        exception_handlers={HTTPException: _answer_http_exception, Exception: _answer_exception},
        middleware=[_decode_path_parameters],
        request_max_body_size=body_bytes_max,
        logging_config=None,
    )


def _decode_path_parameters(app: ASGIApp) -> ASGIApp:
    """Decode the parameters that the router cut out of the raw path."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        # A new mapping: the router keeps its own, and gives it to the next request of this path.
        sent: dict[str, Any] = scope["path_params"]
        scope["path_params"] = {
            name: decode_segment(value.encode("latin-1")) if isinstance(value, str) else value
            for name, value in sent.items()
        }
        await app(scope, receive, send)

    return run


def _answer_http_exception(
    _request: Request[Any, Any, Any], exception: HTTPException
) -> Response[bytes]:
    status = exception.status_code
    if status >= 500:
        return _answer_exception(_request, exception)
    code = _CODE_BY_STATUS.get(status, "refused")
    return _response(problem(status, code, _text_of(exception)), exception.headers)


def _answer_exception(request: Request[Any, Any, Any], exception: Exception) -> Response[bytes]:
    answer = problem_of(exception)
    if answer.status == 500:
        log.error("%s %s failed", request.method, request.url.path, exc_info=exception)
    return _response(answer)


def _text_of(exception: HTTPException) -> str:
    if isinstance(exception, ValidationException) and isinstance(exception.extra, list):
        return "; ".join(str(each["message"]) for each in exception.extra)
    return exception.detail


def _response(answer: Problem, further: dict[str, str] | None = None) -> Response[bytes]:
    headers = dict(further or {})
    for line in answer.headers.decode().splitlines():
        name, _, value = line.partition(": ")
        headers[name] = value
    return Response(
        answer.body, status_code=answer.status, headers=headers, media_type="application/json"
    )
