"""The OpenAPI 3.1 document and the page that shows it.

Litestar documents its own routes; those it cannot describe (`skep.server.api_document.operations`)
are merged in. Errors have one shape everywhere, whatever Litestar's generator assumes.

The page is static and loads from this server only: a broker often runs where there is no internet.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib import resources
from typing import Any, Final

import msgspec
from litestar import Litestar, MediaType, Request, Router, get
from litestar.enums import OpenAPIMediaType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.routes import HTTPRoute

from skep.server.api_document.operations import (
    CONFIGURE_OPERATION,
    HOT_OPERATIONS,
    Answer,
    Json,
    Operation,
    Shape,
)
from skep.server.api_document.shapes import ErrorAnswer
from skep.server.auth.access import ACCESS, PUBLIC, UNDECLARED, Access, Level
from skep.server.hot.exchange import HotRoutes
from skep.server.routes.section import REQUEST_BODY

_REF_TEMPLATE: Final = "#/components/schemas/{name}"
_DESCRIPTION: Final = """\
A partitioned message broker on PostgreSQL, with Queen MQ's HTTP API.

Beside these operations there is a WebSocket at `/api/v1/stream/queue/{queue}`, which delivers the
messages of a queue to a consumer group and takes its acknowledgments; OpenAPI has no words for it.
HEAD is answered wherever GET is, except for pops. Bodies may be compressed with gzip, or with zstd
if the broker has it.
"""
_MALFORMED: Final = {400: "The request is malformed; repeating it will not help."}
_BODIES: Final = {
    413: "The body is larger than this broker accepts, before or after decompression.",
    415: "The body has a content encoding that the broker does not read.",
}
_NOT_FOUND: Final = {404: "What the request names does not exist."}
_STRANGERS: Final = {
    401: "Where callers have to authenticate: there is no token, or none that is accepted.",
    403: "The token's role or grants do not allow it.",
}
_SECURITY: Final[Json] = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
}
_FAILURES: Final = {
    500: "A bug in the broker; its log has the details.",
    503: "The database is unavailable: repeat after the time in Retry-After.",
}


def operations_served(routes: HotRoutes) -> list[Operation]:
    """Return what to document: a hot route that is not registered is not promised."""
    served = [
        operation
        for operation in HOT_OPERATIONS
        if routes.find(operation.method.upper().encode(), operation.path.encode()) is not None
    ]
    return [CONFIGURE_OPERATION, *served]


def document_of(app: Litestar, operations: Sequence[Operation]) -> Json:
    """Return the whole document: what Litestar says of its routes, and our operations."""
    options = {
        str(handler.operation_id): handler.opt
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
    }
    return merge_document(app.openapi_schema.to_schema(), operations, options)


def merge_document(
    litestar: Json, operations: Sequence[Operation], options: Mapping[str, Json]
) -> Json:
    """Add our operations to the document that Litestar generates, and to all who may call them."""
    types: list[Shape] = [each.request for each in operations if each.request]
    types += [
        answer[1]
        for each in operations
        for answer in each.answers.values()
        if isinstance(answer, tuple)
    ]
    _, schemas = msgspec.json.schema_components([ErrorAnswer, *types], ref_template=_REF_TEMPLATE)
    paths: Json = {
        path: {
            method: _described(operation, options[operation["operationId"]])
            for method, operation in item.items()
        }
        for path, item in litestar["paths"].items()
    }
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _with_access(
            _spell(operation), operation.access
        )
    components: Json = {
        **litestar["components"],
        "schemas": {**litestar["components"].get("schemas", {}), **schemas},
        "securitySchemes": _SECURITY,
    }
    return {**litestar, "paths": paths, "components": components}


def _described(operation: Json, options: Json) -> Json:
    """Complete what Litestar says of a route by what the route declares of itself."""
    body = options.get(REQUEST_BODY)
    whole = {**operation, "requestBody": body} if body else operation
    return _with_access(_with_our_errors(whole), options.get(ACCESS, UNDECLARED))


def _with_access(operation: Json, needed: Access) -> Json:
    """Say who may call an operation, and how those are answered who may not."""
    described: Json = {**operation, "x-access": needed.level.word}
    if needed.level is Level.NONE:
        return described
    refusals = {str(status): _answer(status, text) for status, text in _STRANGERS.items()}
    responses = dict(sorted({**operation["responses"], **refusals}.items()))
    return {**described, "security": [{"bearer": []}], "responses": responses}


def _spell(operation: Operation) -> Json:
    errors = _MALFORMED | _FAILURES | ({} if operation.request is None else _BODIES)
    answers: dict[int, Answer] = {**operation.answers, **errors}
    spelled: Json = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.text,
        "parameters": operation.parameters,
        "responses": {
            str(status): _answer(status, each) for status, each in sorted(answers.items())
        },
    }
    if operation.request is not None:
        spelled["requestBody"] = {
            "required": operation.is_request_required,
            **_content(operation.request, example=operation.request_example),
        }
    return spelled


def _answer(status: int, answer: Answer) -> Json:
    if isinstance(answer, tuple):
        return {"description": answer[0], **_content(answer[1])}
    return {"description": answer, **(_content(ErrorAnswer) if status >= 400 else {})}


def _content(type_: Shape, *, example: Json | None = None) -> Json:
    (schema,), _ = msgspec.json.schema_components([type_], ref_template=_REF_TEMPLATE)
    described: Json = {"schema": schema}
    if example is not None:
        described["example"] = example
    return {"content": {"application/json": described}}


def _with_our_errors(operation: Json) -> Json:
    """Describe the errors of a cold route: those that its kind has, in the one shape we send.

    What a handler declares stays; only the 400 is never its own, because Litestar makes one up.
    """
    parameters: list[Json] = operation.get("parameters", [])
    has_body = "requestBody" in operation
    errors = dict(_FAILURES)
    if parameters or has_body:
        errors |= _MALFORMED
    if has_body:
        errors |= _BODIES
    if any(parameter["in"] == "path" for parameter in parameters):
        errors |= _NOT_FOUND
    answers = {status: each for status, each in operation["responses"].items() if status != "400"}
    for status, text in errors.items():
        answers.setdefault(str(status), _answer(status, text))
    return {**operation, "responses": dict(sorted(answers.items()))}


class _Rendered(OpenAPIRenderPlugin):
    """Answers what a function makes of the application, in place of Litestar's part of it."""

    def __init__(
        self, path: str, media_type: OpenAPIMediaType | MediaType, make: Callable[[Litestar], bytes]
    ) -> None:
        super().__init__(path=path, media_type=media_type)
        self._make = make

    def render(self, request: Request[Any, Any, Any], openapi_schema: Json) -> bytes:
        del openapi_schema
        return self._make(request.app)


def _content_policy(page: bytes) -> bytes:
    """Allow the scripts and styles that are in the page, by their hashes, and no others."""
    hashes = {
        tag: b" ".join(
            b"'sha256-%b'" % b64encode(sha256(text).digest())
            for text in re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
        )
        for tag in (b"script", b"style")
    }
    return (
        b"default-src 'none'; connect-src 'self'; img-src data:; script-src %b; style-src %b; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ) % (hashes[b"script"], hashes[b"style"])


def openapi_config(routes: HotRoutes, *, version: str) -> tuple[OpenAPIConfig, HTTPRouteHandler]:
    """Return Litestar's configuration, which serves `/docs`, and the route `/openapi.json`."""
    operations = operations_served(routes)
    page = resources.files("skep.server.api_document").joinpath("docs.html").read_bytes()
    json = OpenAPIMediaType.OPENAPI_JSON

    def encoded(app: Litestar) -> bytes:
        return msgspec.json.encode(document_of(app, operations))

    @get("/openapi.json", include_in_schema=False, media_type=json, opt={ACCESS: PUBLIC})
    async def serve_document(request: Request[Any, Any, Any]) -> bytes:
        return encoded(request.app)

    config = OpenAPIConfig(
        title="Skep",
        version=version,
        description=_DESCRIPTION,
        openapi_router=Router(
            "/docs",
            route_handlers=[],
            include_in_schema=False,
            opt={ACCESS: PUBLIC},
            response_headers={"content-security-policy": _content_policy(page).decode()},
        ),
        render_plugins=[
            _Rendered("/", MediaType.HTML, lambda _: page),
            _Rendered("/openapi.json", json, encoded),
        ],
    )
    return config, serve_document
