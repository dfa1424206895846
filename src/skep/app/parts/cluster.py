"""Notifications between the processes of an installation.

Processes of the same instance use datagrams on the loopback; other instances, what `peers` says.
"""

import socket
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

from skep import __version__
from skep.app.processes.assignment import WorkerAssignment
from skep.broker.cluster.changes import Changes
from skep.broker.cluster.notices import Notice
from skep.broker.cluster.peers import Peers
from skep.broker.cluster.report import Cluster, Instances, OwnInstance
from skep.broker.cluster.wakeups import Wakeups
from skep.db.access.slots import Slots
from skep.settings.peers import peer_addresses
from skep.telemetry.meters import Meters


class Neighbours:
    """Wake-ups and changes, sent to and received from the other processes on this database."""

    def __init__(
        self,
        assignment: WorkerAssignment,
        caller: Slots,
        meters: Meters,
        *,
        wake: Callable[[int, int], None],
    ) -> None:
        settings = assignment.settings
        self.peers: Final = Peers(
            peer_addresses(settings),
            settings.peer_secret,
            instance=sha256(assignment.wakeup_token).digest(),
            hear=self._hear_peer,
            now_ms=lambda: time.time_ns() // 1_000_000,
        )
        self._peer_socket: Final = assignment.peer_socket
        self.changes: Final = Changes()
        self.wakeups: Final = Wakeups(
            wake=wake,
            own_socket=assignment.wakeup_socket,
            peer_ports=_other_ports(assignment),
            token=assignment.wakeup_token,
            beyond=self.peers.tell_wakeups,
            hear_changes=self.changes.heard,
        )
        self.changes.tell_also(self.wakeups.tell_changes)
        self.changes.tell_also(self.peers.tell_changes)
        self.instances: Final = Instances(caller, _own_instance(assignment))
        self.cluster: Final = Cluster(
            caller,
            self.peers,
            self.instances,
            self.wakeups.pass_on,
            worker_id=assignment.index,
        )
        _show_peers(meters, self.peers)

    async def start(self) -> None:
        """Start sending and receiving."""
        await self.wakeups.start()
        await self.peers.start(self._peer_socket)
        self.instances.start()

    async def stop(self) -> None:
        """Send what is left, and stop."""
        await self.changes.stop()
        await self.peers.stop()
        await self.instances.stop()
        self.wakeups.stop()

    def _hear_peer(self, notice: Notice) -> None:
        """Pass on a notice of another instance to the processes of this one."""
        for queue_id, partition_count in notice.wake:
            self.wakeups.pass_on(queue_id, partition_count)
        if notice.changed:
            self.changes.heard(notice.changed)
            self.wakeups.tell_changes(notice.changed)


def _own_instance(assignment: WorkerAssignment) -> OwnInstance | None:
    """Describe this instance; its first process reports for all."""
    if assignment.index:
        return None
    return OwnInstance(
        host=socket.gethostname(),
        port=assignment.listener.getsockname()[1],
        version=__version__,
        worker_count=len(assignment.wakeup_ports),
    )


def _other_ports(assignment: WorkerAssignment) -> Sequence[int]:
    ports = assignment.wakeup_ports
    return [port for index, port in enumerate(ports) if index != assignment.index]


def _show_peers(meters: Meters, peers: Peers) -> None:
    meters.counts["skep_peer_notices_heard"] = lambda: {
        (verdict,): count for verdict, count in peers.stats().heard.items()
    }
    meters.counts["skep_peer_notices_sent"] = lambda: {
        ("datagram",): peers.stats().datagrams_sent,
        ("request",): sum(each.sent for each in peers.stats().request_peers),
    }
    meters.counts["skep_peer_notices_failed"] = lambda: {
        ("datagram",): peers.stats().datagrams_failed,
        ("request",): sum(each.failed for each in peers.stats().request_peers),
    }
