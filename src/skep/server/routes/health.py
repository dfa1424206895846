"""The health of an instance, and the account of a caller.

`/health` is Queen's: is the database connected? Clients and dashboards read it. `/livez` answers
while the event loop runs, without asking the database. `/readyz` says whether this instance wants
traffic: not before it has started, not while it drains.

The broker keeps no sessions: each request carries its token. A client logs out by forgetting the
token; the route exists because dashboards call it.
"""

from datetime import UTC, datetime
from math import isinf
from typing import Any, Literal, Protocol

import msgspec
from litestar import Response

from skep.server.auth import access
from skep.server.auth.guard import Guard, requester_of
from skep.server.routes.section import AnyRequest, Section, refusal, reshaped, routes_of


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance knows of its own state."""

    is_database_connected: bool
    server: str
    """The name of this instance."""
    worker_id: int
    version: str
    shared_state: dict[str, Any]
    """What the instances of a cluster tell each other; `{"enabled": false}` when alone."""


class Probe(Protocol):
    """Answers for one instance. Neither method may raise or take long: a probe has a deadline."""

    async def vitals(self) -> Vitals:
        """Check the database and the cluster."""
        ...

    async def why_not_ready(self) -> str | None:
        """Return why this instance should get no traffic, or None when it should."""
        ...


class WorkerState(msgspec.Struct):
    """The part of the health report named after Queen."""

    worker_id: int
    status: Literal["active"] = "active"


class HealthReport(msgspec.Struct):
    """The body of `/health`, as Queen words it."""

    status: Literal["healthy", "unhealthy"]
    database: Literal["connected", "disconnected"]
    server: str
    worker_id: int
    version: str
    shared_state: dict[str, Any]
    queen: WorkerState


class Readiness(msgspec.Struct, omit_defaults=True):
    """The body of `/livez` and `/readyz`."""

    status: Literal["alive", "ready", "not_ready"]
    error: str | None = None


@routes_of("Health")
def health_routes(section: Section, probe: Probe) -> None:
    """Declare the three routes of one instance."""

    @section.get(
        "/health",
        access.ANYONE,
        response_description="The database is connected.",
        responses={503: refusal("The database is not connected.", HealthReport)},
    )
    async def report_health() -> Response[HealthReport]:
        """Report whether the broker is able to serve."""
        report = _report(await probe.vitals())
        return Response(report, status_code=200 if report.status == "healthy" else 503)

    @section.get("/livez", access.ANYONE, response_description="The event loop runs.")
    async def report_liveness() -> Readiness:
        """Report that the event loop runs."""
        return Readiness(status="alive")

    @section.get(
        "/readyz",
        access.ANYONE,
        response_description="The instance is ready.",
        responses={503: refusal("Not yet, or no longer; `error` says why.", Readiness)},
    )
    async def report_readiness() -> Response[Readiness]:
        """Report whether this instance should get traffic."""
        reason = await probe.why_not_ready()
        if reason is None:
            return Response(Readiness(status="ready"))
        return Response(Readiness(status="not_ready", error=reason), status_code=503)


def _report(vitals: Vitals) -> HealthReport:
    is_connected = vitals.is_database_connected
    return reshaped(
        HealthReport,
        vitals,
        status="healthy" if is_connected else "unhealthy",
        database="connected" if is_connected else "disconnected",
        queen=WorkerState(worker_id=vitals.worker_id),
    )


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


@routes_of("Account")
def account_routes(section: Section, guard: Guard) -> None:
    """Declare the two routes that dashboards call."""

    @section.get("/api/me", access.needs(access.Level.READ_ONLY, access.NOTHING))
    async def show_account(request: AnyRequest) -> Account:
        """Show the caller and its role."""
        identity = requester_of(request).identity
        return Account(
            authenticated=guard.is_guarded,
            user=User(identity.subject, identity.level.word),
            is_restricted=identity.grants is not None,
            expires_at=_wire_second(identity.expires_at),
        )

    @section.post("/api/logout", access.ANYONE)
    async def log_out() -> LoggedOut:
        """Confirm that a dashboard forgets its token.

        The token itself stays valid until it expires.
        """
        return LoggedOut()


def _wire_second(seconds: float) -> str | None:
    if isinf(seconds):
        return None
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
