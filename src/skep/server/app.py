"""The application of every route that is not hot.

`build_cold_app` wires Litestar: health, the API document and further routes. All errors are
answered as `{"error", "code"}` by the problems table. `skep.server.auth.guard` decides who may call
a route.

Litestar matches the raw path, so that a name may contain an encoded slash; path parameters are
decoded after the match.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException, NotFoundException, ValidationException
from litestar.types import ASGIApp, ControllerRouterHandler, Receive, Scope, Send

from skep.model.errors import Unavailable
from skep.server.api_document.openapi import openapi_config
from skep.server.auth.guard import Guard, admit_requests
from skep.server.hot.exchange import HotRoutes, decode_segment
from skep.server.problems import HEADER, Problem, problem, problem_of, request_id, split_headers
from skep.server.routes.health import Probe, account_routes, health_routes

log = logging.getLogger(__name__)

LostPage: TypeAlias = Callable[[Request[Any, Any, Any]], Response[bytes] | None]

_ANALYTICS: Final = "/api/v1/analytics/"

_CODE_BY_STATUS = {
    400: "bad_request",
    405: "method_not_allowed",
    413: "payload_too_large",
}


def build_cold_app(
    routes: HotRoutes,
    *,
    probe: Probe,
    guard: Guard,
    body_bytes_max: int,
    version: str,
    further_routes: Sequence[ControllerRouterHandler] = (),
    check_analytics: Callable[[], None] = lambda: None,
    lost_page: LostPage = lambda _: None,
) -> Litestar:
    """Build the application of every route that is not hot.

    Fill `routes` first: the API document describes them. `check_analytics` runs before every
    analytics route, and raises when the broker is busy. `lost_page` answers a person's browser at
    an address that no route has.
    """
    config, document_route = openapi_config(routes, version=version)

    async def before_request(request: Request[Any, Any, Any]) -> None:
        if request.url.path.startswith(_ANALYTICS):
            check_analytics()

    def answer_http_exception(
        request: Request[Any, Any, Any], exception: HTTPException
    ) -> Response[bytes]:
        page = lost_page(request) if isinstance(exception, NotFoundException) else None
        return page or _answer_http_exception(request, exception)

    return Litestar(
        [
            *health_routes(probe),
            *account_routes(guard),
            document_route,
            *further_routes,
        ],
        openapi_config=config,
        exception_handlers={HTTPException: answer_http_exception, Exception: _answer_exception},
        middleware=[_decode_path_parameters, partial(admit_requests, guard=guard)],
        request_max_body_size=body_bytes_max,
        logging_config=None,
        before_request=before_request,
    )


def build_waiting_app(
    probe: Probe, routes: Sequence[ControllerRouterHandler], *, guard: Guard
) -> Litestar:
    """Build the application of a worker without a database: all other routes answer 503."""
    return Litestar(
        [*health_routes(probe), *routes],
        openapi_config=None,
        exception_handlers={HTTPException: _answer_unavailable, Exception: _answer_exception},
        middleware=[partial(admit_requests, guard=guard)],
        logging_config=None,
    )


def _answer_unavailable(
    request: Request[Any, Any, Any], exception: HTTPException
) -> Response[bytes]:
    if isinstance(exception, NotFoundException):
        return _response(problem_of(Unavailable()))
    return _answer_http_exception(request, exception)


def _decode_path_parameters(app: ASGIApp) -> ASGIApp:
    """Decode the parameters of the raw path.

    They go into a new dictionary: the router caches its own for the next request of the same path.
    """

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        parameters: dict[str, Any] = scope["path_params"]
        scope["path_params"] = {
            name: decode_segment(value.encode("latin-1")) if isinstance(value, str) else value
            for name, value in parameters.items()
        }
        await app(scope, receive, send)

    return run


def _answer_http_exception(
    request: Request[Any, Any, Any], exception: HTTPException
) -> Response[bytes]:
    status = exception.status_code
    if status >= 500:
        return _answer_exception(request, exception)
    if isinstance(exception, NotFoundException):
        # Only the router raises it; handlers raise `NotFound`.
        text = f"no such route: {request.method} {request.url.path}"
        return _response(problem(status, "no_such_route", text))
    code = _CODE_BY_STATUS.get(status, "refused")
    headers = dict(exception.headers or {})
    if "GET" in headers.get("allow", ""):
        headers["allow"] += ", HEAD"  # see skep.server.edge.heads
    return _response(problem(status, code, _text_of(exception, request)), headers)


def _answer_exception(request: Request[Any, Any, Any], exception: Exception) -> Response[bytes]:
    answer = problem_of(exception)
    if answer.status != 500:
        return _response(answer)
    name = request_id(request.headers.get(HEADER, "").encode("latin-1"))
    log.error(
        "%s %s failed",
        request.method,
        request.url.path,
        exc_info=exception,
        extra={"request_id": name},
    )
    return _response(answer, {HEADER: name})


def _text_of(exception: HTTPException, request: Request[Any, Any, Any]) -> str:
    if not isinstance(exception, ValidationException) or not isinstance(exception.extra, list):
        return exception.detail
    return "; ".join(
        f"{_name_on_the_wire(each['key'], request)}: {each['message']}"
        if "key" in each
        else str(each["message"])
        for each in exception.extra
    )


def _name_on_the_wire(parameter: str, request: Request[Any, Any, Any]) -> str:
    """Return the wire name of a parameter; Litestar reports the name in the handler."""
    declared = request.route_handler.parsed_fn_signature.parameters.get(parameter)
    return getattr(declared and declared.kwarg_definition, "name", None) or parameter


def _response(answer: Problem, further: dict[str, str] | None = None) -> Response[bytes]:
    own = {name.decode(): value.decode() for name, value in split_headers(answer.headers)}
    return Response(
        answer.body,
        status_code=answer.status,
        headers={**(further or {}), **own},
        media_type="application/json",
    )
