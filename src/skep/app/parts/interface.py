"""The HTTP interface of a broker: its hot routes, the application behind them, its document.

It needs a broker that is wired, connected or not: a worker serves it, `skep openapi` describes it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from litestar import Litestar

from skep import __version__
from skep.app.parts.broker import Broker
from skep.app.parts.routes import api_routes
from skep.broker.queues.configure import Configure, Configured
from skep.server.app import build_cold_app
from skep.server.edge.metering import meter_hot_routes
from skep.server.hot.exchange import HotRoutes
from skep.server.hot.handlers import HotHandlers, PollDefaults
from skep.server.routes.queues.configure import ConfigureRequest
from skep.server.routes.system.health import Probe
from skep.settings import Settings


def hot_routes(broker: Broker, settings: Settings) -> HotRoutes:
    """Return the table of the routes that are answered from the parser."""
    handlers = HotHandlers(
        intake=broker.overload.intake,
        pop=broker.pop.pop,
        discovery=broker.pop.discovery,
        renew=broker.pop.renew,
        guard=broker.security.guard,
        defaults=PollDefaults(
            wait_ms=settings.default_wait_ms,
            batch=settings.default_batch,
            subscription_mode=settings.default_subscription_mode,
        ),
        now=broker.core.now,
        tracing=broker.observation.tracing,
    )
    routes = handlers.routes()
    meter_hot_routes(routes, broker.core.meters)
    return routes


def cold_app(broker: Broker, hot: HotRoutes, probe: Probe, settings: Settings) -> Litestar:
    """Return the application of all other routes; its document includes the hot ones."""
    return build_cold_app(
        hot,
        probe=probe,
        configure=_configure(broker.configure),
        guard=broker.security.guard,
        body_bytes_max=settings.body_bytes_max,
        version=__version__,
        further_routes=api_routes(broker),
        check_analytics=broker.check_analytics,
    )


def _configure(
    configure: Configure,
) -> Callable[[ConfigureRequest, dict[str, Any]], Awaitable[Configured]]:
    async def run(request: ConfigureRequest, options: dict[str, Any]) -> Configured:
        return await configure.configure_queue(
            request.queue,
            namespace=_given(request.namespace),
            task=_given(request.task),
            options=options,
            replace=request.mode == "replace",
        )

    return run


def _given(name: str | msgspec.UnsetType | None) -> str | None:
    """A name left out stays as it is; null takes the default, which is none."""
    if isinstance(name, msgspec.UnsetType):
        return None
    return name or ""
