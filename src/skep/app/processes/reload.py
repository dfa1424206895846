"""Let a running worker process follow settings that were changed.

What is listed in `skep.settings.reload` is applied here, nowhere else.
"""

import logging
from typing import Final

from skep.app.parts.broker import Broker
from skep.settings import Settings
from skep.settings.keys import encryption_keys
from skep.settings.peers import peer_addresses
from skep.telemetry.logs import configure_logging

_log = logging.getLogger(__name__)


class Reloading:
    """Applies changed settings to the parts of one worker process."""

    def __init__(self, broker: Broker, *, hears_peers: bool) -> None:
        """Take the parts, and whether peers are heard, as far as that is up to this process."""
        self._broker: Final = broker
        self._hears_peers: Final = hears_peers

    async def apply(self, settings: Settings) -> None:
        """Use these settings from now on. They were checked before they were sent."""
        broker, peers = self._broker, self._broker.core.neighbours.peers
        configure_logging(level=settings.log_level, style=settings.log_format)
        broker.core.key_ring.replace(encryption_keys(settings))
        broker.security.reload()
        broker.settings_in_force.replace(settings)
        broker.pop.live.connections_max = settings.live_connections_max
        await peers.change(peer_addresses(settings), settings.peer_secret)
        if peers.is_enabled and not self._hears_peers:
            _log.warning("notifying peers; receiving their datagrams requires a restart")
