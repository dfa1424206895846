"""How a route is declared: access, body, errors and its entry in the API document.

    chains = Section("Chains")

    @chains.get("/api/v1/chains/{chain_id:uuid}", needs(Level.READ_ONLY), responses=NO_CHAIN)
    async def show_chain(chain_id: ChainId) -> ChainRow:
        ...

In the document the handler's name is the operation id (`showChain`), the first line of its
docstring the summary, and the rest of it the description.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from litestar import HttpMethod, Request
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import ResponseSpec
from litestar.openapi.spec import Operation

from skep.jobs.worker.tracing import spell_context
from skep.server.api_document.bodies import body_of
from skep.server.api_document.shapes import ErrorAnswer
from skep.server.hot.decoding import decode_body
from skep.telemetry.tracing import TRACEPARENT, TRACESTATE, valid_context

T = TypeVar("T", bound=msgspec.Struct)
Handler = TypeVar("Handler", bound=Callable[..., Any])
AnyRequest: TypeAlias = Request[Any, Any, Any]


def refusal(text: str, shape: type[msgspec.Struct] = ErrorAnswer) -> ResponseSpec:
    """Describe when a route answers with an error beyond those that all routes of its kind have."""
    return ResponseSpec(shape, description=text, generate_examples=False)


def trace_context(request: AnyRequest) -> str | None:
    """Return the trace context that a request came with, as chains keep it."""
    context = valid_context(request.headers)
    return spell_context(context.get(TRACEPARENT), context.get(TRACESTATE))


UNREADABLE: Final = {409: refusal("A payload is encrypted, and this broker lacks the key.")}


class Body(Generic[T]):
    """The JSON body of a route: how it is decoded, and how the document describes it."""

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
        self.operation_class: Final = body_of(described_as or shape, is_required=is_required)

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

    def get(self, path: str, opt: dict[str, Any], **options: Any) -> Callable[[Handler], Handler]:
        """Declare a route that reads."""
        return self._declare(HttpMethod.GET, path, opt, **options)

    def post(self, path: str, opt: dict[str, Any], **options: Any) -> Callable[[Handler], Handler]:
        """Declare a route that acts. Its status is 200 unless it says otherwise."""
        return self._declare(HttpMethod.POST, path, opt, **options)

    def put(self, path: str, opt: dict[str, Any], **options: Any) -> Callable[[Handler], Handler]:
        """Declare a route that creates or replaces."""
        return self._declare(HttpMethod.PUT, path, opt, **options)

    def delete(
        self, path: str, opt: dict[str, Any], **options: Any
    ) -> Callable[[Handler], Handler]:
        """Declare a route that deletes."""
        return self._declare(HttpMethod.DELETE, path, opt, **options)

    def _declare(
        self,
        method: HttpMethod,
        path: str,
        opt: dict[str, Any],
        *,
        body: Body[Any] | None = None,
        operation_id: str | None = None,
        status_code: int = 200,
        description: str | None = None,
        **options: Any,
    ) -> Callable[[Handler], Handler]:
        def add(function: Handler) -> Handler:
            summary, _, text = (inspect.getdoc(function) or "").partition("\n\n")
            handler = HTTPRouteHandler(
                path,
                http_method=method,
                opt=opt,
                operation_class=body.operation_class if body else Operation,
                operation_id=operation_id or _camel(function.__name__),
                status_code=status_code,
                summary=summary.removesuffix("."),
                description=description or " ".join(text.split()) or None,
                tags=[self._tag],
                **options,
            )
            self.routes.append(handler(function))
            return function

        return add


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
