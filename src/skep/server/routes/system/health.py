"""Three questions an operator asks of an instance.

`/health` is Queen's: is the database connected? Clients and dashboards read it. `/livez` answers
while the event loop turns and asks nobody. `/readyz` says whether this instance wants traffic: not
before it has started, not while it drains.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec
from litestar import Response, get
from litestar.openapi import ResponseSpec
from litestar.types import ControllerRouterHandler

from skep.server.auth.access import ACCESS, PUBLIC


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
        """Look at the database and the cluster."""
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


def health_routes(probe: Probe) -> Sequence[ControllerRouterHandler]:
    """Make the three routes for one instance."""

    @get(
        "/health",
        tags=["Health"],
        operation_id="reportHealth",
        opt={ACCESS: PUBLIC},
        summary="Is the broker able to serve?",
        response_description="The database is connected.",
        responses={503: _refusal(HealthReport, "The database is not connected.")},
    )
    async def report_health() -> Response[HealthReport]:
        report = _report(await probe.vitals())
        return Response(report, status_code=200 if report.status == "healthy" else 503)

    @get(
        "/livez",
        tags=["Health"],
        operation_id="reportLiveness",
        opt={ACCESS: PUBLIC},
        summary="Does the event loop turn?",
        response_description="It does.",
    )
    async def report_liveness() -> Readiness:
        return Readiness(status="alive")

    @get(
        "/readyz",
        tags=["Health"],
        operation_id="reportReadiness",
        opt={ACCESS: PUBLIC},
        summary="Should this instance get traffic?",
        response_description="It should.",
        responses={503: _refusal(Readiness, "Not yet, or no longer; `error` says why.")},
    )
    async def report_readiness() -> Response[Readiness]:
        reason = await probe.why_not_ready()
        if reason is None:
            return Response(Readiness(status="ready"))
        return Response(Readiness(status="not_ready", error=reason), status_code=503)

    return [report_health, report_liveness, report_readiness]


def _refusal(shape: type[msgspec.Struct], text: str) -> ResponseSpec:
    return ResponseSpec(shape, description=text, generate_examples=False)


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
