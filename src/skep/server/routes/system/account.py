"""Who am I: the two routes that dashboards call.

The broker keeps no sessions: who is asking is in the token of each request. So logging out is up to
the client, which forgets its token; the route is there because dashboards call it.
"""

from datetime import UTC, datetime
from math import isinf
from typing import Any, Final, Literal

import msgspec
from litestar import Request, get, post
from litestar.handlers import HTTPRouteHandler

from skep.server.auth.access import ACCESS, NOTHING, PUBLIC, Level, needs
from skep.server.auth.guard import visitor_of
from skep.server.auth.hot_guard import Door

_TAGS: Final = ["Account"]


class User(msgspec.Struct, frozen=True):
    """The caller, in the words of Queen's proxy."""

    username: str | None
    role: str


class Account(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the broker knows of a caller."""

    authenticated: bool
    """False where nobody has to authenticate; everybody is an admin there."""
    user: User
    is_restricted: bool
    """To some queues, by the grants of the token."""
    expires_at: str | None


class LoggedOut(msgspec.Struct, frozen=True):
    """The client may forget its token now."""

    success: Literal[True] = True


def account_routes(door: Door) -> list[HTTPRouteHandler]:
    """Make the routes."""

    @get(
        "/api/me",
        operation_id="showAccount",
        opt=needs(Level.READ_ONLY, NOTHING),
        summary="Show who is asking, and in which role",
        tags=_TAGS,
    )
    async def show_account(request: Request[Any, Any, Any]) -> Account:
        identity = visitor_of(request).identity
        return Account(
            authenticated=door.is_guarded,
            user=User(identity.subject, identity.level.word),
            is_restricted=identity.grants is not None,
            expires_at=_wire_second(identity.expires_at),
        )

    @post(
        "/api/logout",
        status_code=200,
        operation_id="logOut",
        opt={ACCESS: PUBLIC},
        summary="Take note that a dashboard forgets its token",
        description="Tokens are good until they expire, whatever is called.",
        tags=_TAGS,
    )
    async def log_out() -> LoggedOut:
        return LoggedOut()

    return [show_account, log_out]


def _wire_second(seconds: float) -> str | None:
    if isinf(seconds):
        return None
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
