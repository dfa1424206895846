"""Create a queue or change its options.

The shapes of `POST /api/v1/configure`. An option left out keeps its value, an explicit null takes
its default again, and `mode: "replace"` returns everything that was left out to its default, which
is what Queen did before 1.6. What that means for a stored queue is the broker's decision.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec
from litestar import Request, Response, post
from litestar.handlers import HTTPRouteHandler
from msgspec import UNSET, UnsetType

from skep.broker.queues.configure import Configured
from skep.model.queue_options import OptionChanges
from skep.server.auth.access import ACCESS, READ_WRITE_BY_BODY
from skep.server.auth.guard import visitor_of
from skep.server.hot.decoding import decode_body

_WORDING: Final = {".queue": "queue is required"}


class ConfigureRequest(msgspec.Struct, rename="camel", frozen=True):
    """What to configure. Namespace and task follow the rule for options."""

    queue: str
    namespace: str | UnsetType | None = UNSET
    task: str | UnsetType | None = UNSET
    options: OptionChanges | None = None
    mode: Literal["merge", "replace"] = "merge"


class _OptionsSent(msgspec.Struct):
    """All options of a request, also those that `OptionChanges` has no word for."""

    options: dict[str, Any] | None = None


Configure: TypeAlias = Callable[[ConfigureRequest, dict[str, Any]], Awaitable[Configured]]
"""Takes the request, and its options as they were sent."""

_decoder = msgspec.json.Decoder(ConfigureRequest)
_options_decoder = msgspec.json.Decoder(_OptionsSent)


def configure_route(configure: Configure) -> HTTPRouteHandler:
    """Make the route around what the broker does."""

    # The document describes it beside the hot routes, with which it shares its conventions.
    @post(
        "/api/v1/configure",
        operation_id="configureQueue",
        opt={ACCESS: READ_WRITE_BY_BODY},
        include_in_schema=False,
    )
    async def configure_queue(request: Request[Any, Any, Any]) -> Response[bytes]:
        body = await request.body()
        changes = decode_body(_decoder, body, _WORDING)
        namespace = changes.namespace or None
        await visitor_of(request).require_place(changes.queue, namespace)
        options = decode_body(_options_decoder, body, _WORDING).options or {}
        configured = await configure(changes, options)
        return Response(
            msgspec.json.encode(configured), status_code=201, media_type="application/json"
        )

    return configure_queue
