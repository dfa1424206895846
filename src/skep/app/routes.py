"""The routes that are not hot, each wired to the part of the broker behind it."""

from collections.abc import Sequence

from litestar.types import ControllerRouterHandler

from skep.app.broker import Broker
from skep.server.routes.dead_letters import dead_letter_routes
from skep.server.routes.groups import group_routes
from skep.server.routes.messages import message_routes
from skep.server.routes.seek import seek_routes


def api_routes(broker: Broker) -> Sequence[ControllerRouterHandler]:
    """Return every route but health, configure and the hot ones."""
    return [
        *group_routes(broker.groups, broker.subscriptions),
        *seek_routes(broker.seek),
        *dead_letter_routes(broker.dead_letters, broker.redrives),
        *message_routes(broker.message_list, broker.messages),
    ]
