"""Create a queue or change its options.

The shapes of `POST /api/v1/configure`. An omitted option keeps its value, null restores its
default, and `mode: "replace"` restores the defaults of all omitted options, as Queen did before
1.6. The broker decides what that means for a stored queue.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec
from litestar import Response, post
from litestar.handlers import HTTPRouteHandler
from msgspec import UNSET, UnsetType

from skep.broker.queues.configure import Configured
from skep.model.queue_options import OptionChanges
from skep.server.auth.access import ACCESS, READ_WRITE_BY_BODY
from skep.server.auth.guard import requester_of
from skep.server.hot.decoding import decode_body
from skep.server.routes.section import AnyRequest

_WORDING: Final = {".queue": "queue is required"}


class ConfigureRequest(msgspec.Struct, rename="camel", frozen=True):
    """What to configure. Namespace and task follow the rule for options."""

    queue: str
    namespace: str | UnsetType | None = UNSET
    task: str | UnsetType | None = UNSET
    options: OptionChanges | None = None
    mode: Literal["merge", "replace"] = "merge"


class _OptionsSent(msgspec.Struct):
    """All options of a request, including those that `OptionChanges` does not know."""

    options: dict[str, Any] | None = None


Configure: TypeAlias = Callable[[ConfigureRequest, dict[str, Any]], Awaitable[Configured]]
"""Takes the request, and its options as they were sent."""

_decoder = msgspec.json.Decoder(ConfigureRequest)
_options_decoder = msgspec.json.Decoder(_OptionsSent)


def configure_route(configure: Configure) -> HTTPRouteHandler:
    """Declare the route."""

    # The document describes it with the hot routes, whose conventions it shares.
    @post(
        "/api/v1/configure",
        operation_id="configureQueue",
        opt={ACCESS: READ_WRITE_BY_BODY},
        include_in_schema=False,
    )
    async def configure_queue(request: AnyRequest) -> Response[bytes]:
        body = await request.body()
        changes = decode_body(_decoder, body, _WORDING)
        namespace = changes.namespace or None
        await requester_of(request).require_place(changes.queue, namespace)
        options = decode_body(_options_decoder, body, _WORDING).options or {}
        configured = await configure(changes, options)
        return Response(
            msgspec.json.encode(configured), status_code=201, media_type="application/json"
        )

    return configure_queue
