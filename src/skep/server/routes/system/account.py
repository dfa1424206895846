"""The caller's account: the two routes that dashboards call.

The broker keeps no sessions: each request carries its token. A client logs out by forgetting the
token; the route exists because dashboards call it.
"""

from datetime import UTC, datetime
from math import isinf
from typing import Literal

import msgspec
from litestar.handlers import HTTPRouteHandler

from skep.server.auth.access import ACCESS, NOTHING, PUBLIC, Level, needs
from skep.server.auth.guard import Guard, requester_of
from skep.server.routes.section import AnyRequest, Section


class User(msgspec.Struct, frozen=True):
    """The caller, in the words of Queen's proxy."""

    username: str | None
    role: str


class Account(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the broker knows of a caller."""

    authenticated: bool
    """False where authentication is disabled; every caller is an admin there."""
    user: User
    is_restricted: bool
    """To some queues, by the grants of the token."""
    expires_at: str | None


class LoggedOut(msgspec.Struct, frozen=True):
    """The client may forget its token now."""

    success: Literal[True] = True


def account_routes(guard: Guard) -> list[HTTPRouteHandler]:
    """Declare the routes."""
    section = Section("Account")

    @section.get("/api/me", needs(Level.READ_ONLY, NOTHING))
    async def show_account(request: AnyRequest) -> Account:
        """Show the caller and its role."""
        identity = requester_of(request).identity
        return Account(
            authenticated=guard.is_guarded,
            user=User(identity.subject, identity.level.word),
            is_restricted=identity.grants is not None,
            expires_at=_wire_second(identity.expires_at),
        )

    @section.post("/api/logout", {ACCESS: PUBLIC})
    async def log_out() -> LoggedOut:
        """Confirm that a dashboard forgets its token.

        The token itself stays valid until it expires.
        """
        return LoggedOut()

    return section.routes


def _wire_second(seconds: float) -> str | None:
    if isinf(seconds):
        return None
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
