"""The routes that are not hot, each wired to the part of the broker behind it."""

from collections.abc import Sequence

from litestar.types import ControllerRouterHandler

from skep.app.broker import Broker
from skep.server.routes.groups import group_routes
from skep.server.routes.scheduled import scheduled_routes
from skep.server.routes.seek import seek_routes


def api_routes(broker: Broker) -> Sequence[ControllerRouterHandler]:
    """Return every route but health, configure and the hot ones."""
    return [
        *group_routes(broker.groups, broker.subscriptions),
        *seek_routes(broker.seek),
        *scheduled_routes(broker.scheduled),
    ]
