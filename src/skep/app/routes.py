"""The routes that are not hot, each wired to the part of the broker behind it."""

from collections.abc import Sequence

from litestar.types import ControllerRouterHandler

from skep.app.broker import Broker
from skep.broker.traces import Traces
from skep.server.routes.live import LiveParts, live_route
from skep.server.routes.tail import tail_route
from skep.server.routes.traces import trace_routes


def api_routes(broker: Broker) -> Sequence[ControllerRouterHandler]:
    """Return every route but health, configure and the hot ones."""
    traces = Traces(
        broker.query_slots, hash_seed=broker.hash_seed, open_envelope=broker.keys.open_envelope
    )
    live = LiveParts(broker.live, broker.ack, broker.renew, broker.default_subscription_mode)
    return [*trace_routes(traces), live_route(live), tail_route(broker.tails, broker.live)]
