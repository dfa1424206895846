"""The health of an instance.

`/health` is Queen's: is the database connected? Clients and dashboards read it. `/livez` answers
while the event loop runs, without asking the database. `/readyz` says whether this instance wants
traffic: not before it has started, not while it drains.
"""

from typing import Any, Literal, Protocol

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from skep.server.auth.access import ACCESS, PUBLIC
from skep.server.routes.section import Section, refusal


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


def health_routes(probe: Probe) -> list[HTTPRouteHandler]:
    """Declare the three routes of one instance."""
    section, public = Section("Health"), {ACCESS: PUBLIC}

    @section.get(
        "/health",
        public,
        response_description="The database is connected.",
        responses={503: refusal("The database is not connected.", HealthReport)},
    )
    async def report_health() -> Response[HealthReport]:
        """Report whether the broker is able to serve."""
        report = _report(await probe.vitals())
        return Response(report, status_code=200 if report.status == "healthy" else 503)

    @section.get("/livez", public, response_description="The event loop runs.")
    async def report_liveness() -> Readiness:
        """Report that the event loop runs."""
        return Readiness(status="alive")

    @section.get(
        "/readyz",
        public,
        response_description="The instance is ready.",
        responses={503: refusal("Not yet, or no longer; `error` says why.", Readiness)},
    )
    async def report_readiness() -> Response[Readiness]:
        """Report whether this instance should get traffic."""
        reason = await probe.why_not_ready()
        if reason is None:
            return Response(Readiness(status="ready"))
        return Response(Readiness(status="not_ready", error=reason), status_code=503)

    return section.routes


def _report(vitals: Vitals) -> HealthReport:
    is_connected = vitals.is_database_connected
    return HealthReport(
        status="healthy" if is_connected else "unhealthy",
        database="connected" if is_connected else "disconnected",
        server=vitals.server,
        worker_id=vitals.worker_id,
        version=vitals.version,
        shared_state=vitals.shared_state,
        queen=WorkerState(worker_id=vitals.worker_id),
    )
