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

from skep.server.decoding import decode_body

_WORDING: Final = {".queue": "queue is required"}


class OptionChanges(msgspec.Struct, rename="camel", frozen=True):
    """The options a caller sets. Null restores the default."""

    lease_time: int | UnsetType | None = UNSET
    """Seconds."""
    max_size: int | UnsetType | None = UNSET
    ttl: int | UnsetType | None = UNSET
    """Seconds."""
    retry_limit: int | UnsetType | None = UNSET
    retry_delay: int | UnsetType | None = UNSET
    """Milliseconds."""
    dead_letter_queue: bool | UnsetType | None = UNSET
    dlq_after_max_retries: bool | UnsetType | None = UNSET
    priority: int | UnsetType | None = UNSET
    delayed_processing: int | UnsetType | None = UNSET
    """Seconds."""
    window_buffer: int | UnsetType | None = UNSET
    """Seconds."""
    retention_seconds: int | UnsetType | None = UNSET
    completed_retention_seconds: int | UnsetType | None = UNSET
    retention_enabled: bool | UnsetType | None = UNSET
    encryption_enabled: bool | UnsetType | None = UNSET
    max_wait_time_seconds: int | UnsetType | None = UNSET
    dedup_window_seconds: int | UnsetType | None = UNSET


class QueueOptions(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """All options of a queue, with Queen's defaults."""

    lease_time: int = 300
    max_size: int = 0
    ttl: int = 3600
    retry_limit: int = 3
    retry_delay: int = 1000
    dead_letter_queue: bool = False
    dlq_after_max_retries: bool = False
    priority: int = 0
    delayed_processing: int = 0
    window_buffer: int = 0
    retention_seconds: int = 0
    completed_retention_seconds: int = 0
    retention_enabled: bool = False
    encryption_enabled: bool = False
    max_wait_time_seconds: int = 0
    dedup_window_seconds: int = 3600


class ConfigureRequest(msgspec.Struct, rename="camel", frozen=True):
    """What to configure. Namespace and task follow the rule for options."""

    queue: str
    namespace: str | UnsetType | None = UNSET
    task: str | UnsetType | None = UNSET
    options: OptionChanges | None = None
    mode: Literal["merge", "replace"] = "merge"


class Configured(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The queue as it is now."""

    configured: Literal[True] = True
    queue_id: str
    partition_id: str
    queue: str
    namespace: str
    task: str
    options: QueueOptions


Configure: TypeAlias = Callable[[ConfigureRequest], Awaitable[Configured]]

_decoder = msgspec.json.Decoder(ConfigureRequest)


def configure_route(configure: Configure) -> HTTPRouteHandler:
    """Make the route around what the broker does."""

    # The document describes it beside the hot routes, with which it shares its conventions.
    @post("/api/v1/configure", include_in_schema=False)
    async def configure_queue(request: Request[Any, Any, Any]) -> Response[bytes]:
        configured = await configure(decode_body(_decoder, await request.body(), _WORDING))
        return Response(
            msgspec.json.encode(configured), status_code=201, media_type="application/json"
        )

    return configure_queue
