"""How a route is declared: access, parameters, body, errors and its entry in the API document.

    @routes_of("Messages")
    def message_routes(section: Section, messages: Messages) -> None:
        @section.post(PATH, access.WRITE, body=Body(RetryRequest), responses=FINISHED)
        async def retry_message(message_id: MessageId, asked: RetryRequest) -> Intervention:
            ...

In the document the handler's name is the operation id (`retryMessage`), the first line of its
docstring the summary, and the rest of it the description. A handler gets its decoded body as
`asked`, and parameters that belong together as one object: see `Parts`.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partialmethod, wraps
from typing import Annotated, Any, Concatenate, Final, Generic, ParamSpec, TypeAlias, TypeVar, cast
from uuid import UUID

import msgspec
from litestar import HttpMethod, Request
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import ResponseSpec
from litestar.params import ParameterKwarg, PathParameter, QueryParameter

from skep.jobs.worker.tracing import spell_context
from skep.server.api_document.shapes import ErrorAnswer
from skep.server.hot.decoding import ID_MAX, decode_body, read_flag, read_number, read_uuid
from skep.server.hot.exchange import decode_segment
from skep.telemetry.tracing import TRACEPARENT, TRACESTATE, valid_context

P = ParamSpec("P")
T = TypeVar("T", bound=msgspec.Struct)
AnyRequest: TypeAlias = Request[Any, Any, Any]

REQUEST_BODY: Final = "request_body"
"""The key of a body's description among the options of a handler."""


def refusal(text: str, shape: type[msgspec.Struct] = ErrorAnswer) -> ResponseSpec:
    """Describe when a route answers with an error."""
    return ResponseSpec(shape, description=text, generate_examples=False)


def trace_context(request: AnyRequest) -> str | None:
    """Return the trace context that a request came with, as chains keep it."""
    context = valid_context(request.headers)
    return spell_context(context.get(TRACEPARENT), context.get(TRACESTATE))


def reshaped(shape: type[T], source: object, **members: Any) -> T:
    """Build an answer: the members given, and all others from the same attributes of a source."""
    names = (name for name in shape.__struct_fields__ if name not in members)
    return shape(**members, **{name: getattr(source, name) for name in names})


def in_query(text: str, name: str | None = None, **bounds: Any) -> QueryParameter:
    """Describe a parameter of the query, by its name on the wire if that differs."""
    return QueryParameter(name=name, description=text, **bounds)


def in_path(text: str, **bounds: Any) -> PathParameter:
    """Describe a parameter of the path."""
    return PathParameter(description=text, **bounds)


def rest_of_path(request: AnyRequest, segments: int) -> str:
    """Return what follows so many segments of the path, with all of its slashes.

    Litestar would join double slashes, and cut those at the ends.
    """
    sent: bytes = request.scope["raw_path"]
    return decode_segment(sent.split(b"/", segments)[segments])


_READERS: Final[dict[tuple[Any, Any], tuple[Callable[[str, str], Any], dict[str, Any]]]] = {
    (PathParameter, UUID): (read_uuid, {"type": "string", "format": "uuid"}),
    (PathParameter, int): (read_number, {"type": "integer", "minimum": 1, "maximum": ID_MAX}),
    (QueryParameter, bool): (read_flag, {"type": "boolean"}),
}
"""Parameters that we read ourselves, and their schemas.

Litestar would answer a malformed id in a path as an unknown route, and knows fewer words for flags.
"""

UNREADABLE: Final = {409: "A payload is encrypted, and this broker lacks the key."}


class Parts:
    """Marks a parameter that is sent in parts: the annotated type of each, by member.

    `Annotated[Page, Parts(limit=Limit, offset=Offset)]` gives a handler a `Page`, and the document
    two parameters. Their defaults are the members of the handler's default, or null.
    """

    def __init__(self, **types: Any) -> None:
        self.types: Final = types


class Body(Generic[T]):
    """The JSON body of a route: how it is decoded, and how the document describes it.

    Litestar would document the bodies it decodes; but one that is not UTF-8 or nested too deeply
    it answers with 500.
    """

    def __init__(
        self,
        shape: type[T],
        *,
        is_required: bool = True,
        wording: Mapping[str, str] | None = None,
        described_as: type[msgspec.Struct] | None = None,
    ) -> None:
        """Take the shape to decode.

        Args:
            shape: What handlers get.
            is_required: Whether an empty body is refused; if not, it means all defaults.
            wording: Error texts by the path of the field they are about, where the wire has one.
            described_as: The shape for the document, where that of the decoder has raw members.
        """
        self._shape: Final = shape
        self._is_required: Final = is_required
        self._wording: Final = dict(wording or {})
        self._decoder: Final = msgspec.json.Decoder(shape)
        described = described_as or shape
        _, components = msgspec.json.schema_components([described])
        schema = _inlined(components[described.__name__], components)
        content = {"application/json": {"schema": schema}}
        self.description: Final = {"content": content, "required": is_required}

    async def read(self, request: AnyRequest) -> T:
        """Return the body of a request.

        Raises:
            BadRequest: It is missing, not JSON, or of another shape.
        """
        sent = await request.body()
        if not self._is_required and not sent.strip():
            return self._shape()
        return decode_body(self._decoder, sent, self._wording)


class Section:
    """The routes of one section of the API document, in the order of their declaration."""

    def __init__(self, tag: str) -> None:
        self._tag: Final = tag
        self.routes: Final[list[HTTPRouteHandler]] = []

    def _declare(
        self,
        method: HttpMethod,
        path: str,
        opt: dict[str, Any],
        *,
        body: Body[Any] | None = None,
        responses: Mapping[int, ResponseSpec | str] | None = None,
        operation_id: str | None = None,
        status_code: int = 200,
        description: str | None = None,
        tag: str | None = None,
        **options: Any,
    ) -> Callable[[Callable[..., Awaitable[Any]]], None]:
        """Return a decorator that adds a handler as a route; its status is 200 unless given.

        Its further responses are shapes, or texts that say when it answers with an error.
        """
        described = {
            status: refusal(each) if isinstance(each, str) else each
            for status, each in (responses or {}).items()
        }

        def add(function: Callable[..., Awaitable[Any]]) -> None:
            summary, _, text = (inspect.getdoc(function) or "").partition("\n\n")
            handler = HTTPRouteHandler(
                path,
                http_method=method,
                opt={**opt, REQUEST_BODY: body and body.description},
                operation_id=operation_id or _camel(function.__name__),
                status_code=status_code,
                summary=summary.removesuffix("."),
                description=description or " ".join(text.split()) or None,
                tags=[tag or self._tag],
                responses=described,
                **options,
            )
            self.routes.append(handler(_for_litestar(function, body)))

        return add

    get = partialmethod(_declare, HttpMethod.GET)
    post = partialmethod(_declare, HttpMethod.POST)
    put = partialmethod(_declare, HttpMethod.PUT)
    delete = partialmethod(_declare, HttpMethod.DELETE)


def routes_of(
    tag: str,
) -> Callable[[Callable[Concatenate[Section, P], None]], Callable[P, list[HTTPRouteHandler]]]:
    """Give a function the section in which it declares routes, and return these."""

    def decorate(
        declare: Callable[Concatenate[Section, P], None],
    ) -> Callable[P, list[HTTPRouteHandler]]:
        @wraps(declare)
        def routes(*args: P.args, **kwargs: P.kwargs) -> list[HTTPRouteHandler]:
            section = Section(tag)
            declare(section, *args, **kwargs)
            return section.routes

        return routes

    return decorate


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _for_litestar(
    function: Callable[..., Awaitable[Any]], body: Body[Any] | None
) -> Callable[..., Awaitable[Any]]:
    """Return a handler with the request instead of its body, and parts instead of their whole."""
    signature = inspect.signature(function)
    accepted = signature.parameters
    flat = {"request": _keyword("request", AnyRequest, inspect.Parameter.empty)}
    wholes: dict[str, tuple[Callable[..., Any], Parts]] = {}
    readers: dict[str, Callable[[Any], Any]] = {}
    for name, parameter in accepted.items():
        hint, default = parameter.annotation, parameter.default
        parts = getattr(hint, "__metadata__", [None])[0]
        if isinstance(parts, Parts):
            wholes[name] = hint.__origin__, parts
            for part, part_hint in parts.types.items():
                flat[part] = _keyword(part, part_hint, getattr(default, part, None))
        elif name not in ("request", "asked"):
            flat[name], reader = _parameter(name, hint, default)
            if reader is not None:
                readers[name] = reader

    @wraps(function)
    async def handle(request: AnyRequest, **given: Any) -> Any:
        for name, read in readers.items():
            given[name] = read(given[name])
        for name, (whole, parts) in wholes.items():
            given[name] = whole(**{part: given.pop(part) for part in parts.types})
        if "request" in accepted:
            given["request"] = request
        if body is not None and "asked" in accepted:
            given["asked"] = await body.read(request)
        return await function(**given)

    handle.__dict__["__signature__"] = signature.replace(parameters=list(flat.values()))
    handle.__annotations__ = {name: each.annotation for name, each in flat.items()}
    handle.__annotations__["return"] = signature.return_annotation
    return handle


def _parameter(
    name: str, hint: Any, default: Any
) -> tuple[inspect.Parameter, Callable[[Any], Any] | None]:
    """Return a parameter as Litestar shall see it, and how to read it if that is up to us."""
    described: object = getattr(hint, "__metadata__", [None])[0]
    found = _READERS.get((type(described), getattr(hint, "__origin__", None)))
    if found is None or not isinstance(described, ParameterKwarg):
        return _keyword(name, hint, default), None
    read, schema = found
    raw = Annotated[Any, replace(described, schema_extra=schema)]
    wire_name = described.name or name

    def reader(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return read(wire_name, value) if value or default is inspect.Parameter.empty else default

    return _keyword(name, raw, default), reader


def _keyword(name: str, hint: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def _inlined(part: Any, components: dict[str, Any]) -> Any:
    """Put the shapes a schema refers to in their places: Litestar has components of its own."""
    if isinstance(part, list):
        return [_inlined(each, components) for each in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    members = cast("dict[str, Any]", part)
    if "$ref" in members:
        return _inlined(components[members["$ref"].rpartition("/")[2]], components)
    return {name: _inlined(each, components) for name, each in members.items()}
