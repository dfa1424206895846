"""What an instance knows of the cluster it belongs to, and how a client wakes its polls by name."""

from typing import Final, Protocol

import msgspec

from skep.broker.cluster.instances import Instance, Instances
from skep.broker.cluster.notices import Verdict
from skep.broker.cluster.peers import Peers, PeerStats
from skep.db.access.slots import Caller
from skep.model.errors import BadRequest, ForgedNotice, NotFound
from skep.model.limits import POP_PARTITIONS_MAX
from skep.model.names import check_name

FIND_CALL: Final = "select id from skep.find_queues($1, null)"


class ClusterReport(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """What this process told and heard, and who else serves the installation."""

    enabled: bool
    reason: str | None = None
    """Why it is not enabled."""
    worker_id: int
    peers: PeerStats
    instances: list[Instance]


class WakeInstance(Protocol):
    """Whoever wakes the polls of this instance."""

    def __call__(self, queue_id: int, partition_count: int) -> None:
        """Let the polls of a queue look again."""
        ...


class Cluster:
    """Answers for the cluster in one process."""

    def __init__(
        self,
        caller: Caller,
        peers: Peers,
        instances: Instances,
        wake: WakeInstance,
        *,
        worker_id: int,
    ) -> None:
        self._caller: Final = caller
        self._peers: Final = peers
        self._instances: Final = instances
        self._wake: Final = wake
        self._worker_id: Final = worker_id

    async def report(self) -> ClusterReport:
        """Say what was told and heard so far, and which instances there are."""
        is_enabled = self._peers.is_enabled
        return ClusterReport(
            enabled=is_enabled,
            reason=None if is_enabled else "not_initialized",
            worker_id=self._worker_id,
            peers=self._peers.stats(),
            instances=await self._instances.listed(),
        )

    def take_notice(self, stamp: str | None, content: bytes) -> None:
        """Hear what another instance tells.

        Raises:
            ForgedNotice: It is not from one of ours, or came before.
            BadRequest: It is not a notice.
        """
        verdict = self._peers.take_request(stamp, content)
        if verdict is Verdict.GARBAGE:
            raise BadRequest("this is not a notice of another instance")
        if verdict not in {Verdict.TAKEN, Verdict.OWN}:
            raise ForgedNotice(f"the notice was not taken: {verdict.value}")

    async def wake_queue(self, queue: str) -> None:
        """Let the polls of a queue look again, those of this instance.

        Raises:
            NotFound: There is no such queue.
        """
        rows = await self._caller.call(FIND_CALL, [check_name("queue", queue)])
        if not rows:
            raise NotFound("Queue not found")
        self._wake(rows[0][0], POP_PARTITIONS_MAX)
