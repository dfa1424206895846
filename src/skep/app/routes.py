"""The routes that are not hot, each wired to the part of the broker behind it."""

from collections.abc import Sequence

from litestar.types import ControllerRouterHandler

from skep.app.broker import Broker
from skep.broker.holds import Holds
from skep.broker.removals import Removals
from skep.server.routes.retention import retention_routes


def api_routes(broker: Broker) -> Sequence[ControllerRouterHandler]:
    """Return every route but health, configure and the hot ones."""
    queries = broker.query_slots
    return [*retention_routes(broker.retention, Removals(queries), Holds(queries))]
