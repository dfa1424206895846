"""The instances that serve this installation, and what this one knows of its cluster.

The first process of each instance reports to the database every few seconds; an instance that was
silent for three reports is shown as missing. This is for people and dashboards only: a lease
decides which process leads, the settings decide which peers get notices.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal
from uuid import UUID, uuid4

import msgspec
from msgspec.structs import astuple

from skep.broker.cluster.notices import Verdict
from skep.broker.cluster.peers import Peers, PeerStats
from skep.broker.paging import from_row
from skep.broker.polling_loop import end_task, repeat
from skep.broker.queues.lifecycle import find_queue
from skep.broker.timestamps import wire_time
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import BadRequest, ForgedNotice, SkepError
from skep.model.limits import POP_PARTITIONS_MAX

_log = logging.getLogger(__name__)

REPORT_S: Final = 5.0
MISSING_S: Final = 3 * REPORT_S
FORGET_S: Final = 2.0
INSTANCES_MAX: Final = 1_000


class OwnInstance(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance reports of itself."""

    host: str
    port: int
    version: str
    worker_count: int


class Instance(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An instance that reported within the last hour."""

    id: str
    host: str
    port: int
    version: str
    workers: int
    started_at: str
    state: Literal["alive", "missing"]
    silent_seconds: float


class Instances:
    """Reports this instance, and lists all."""

    def __init__(self, caller: Caller, own: OwnInstance | None) -> None:
        """Take what to report; None in all processes but the first."""
        self._sql: Final = Functions(caller)
        self._own: Final = own
        self._id: Final[UUID] = uuid4()
        self._reporting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to report."""
        if self._own is not None:
            own = (self._id, *astuple(self._own), MISSING_S)
            report = partial(self._sql.rows, "report_instance", *own)
            reporting = repeat(report, "report this instance", pause_s=REPORT_S)
            self._reporting = asyncio.get_running_loop().create_task(reporting)

    async def stop(self) -> None:
        """Remove this instance from the list."""
        if self._reporting is None:
            return
        await end_task(self._reporting)
        try:
            async with asyncio.timeout(FORGET_S):
                await self._sql.rows("forget_instance", self._id)
        except (SkepError, TimeoutError) as error:
            _log.debug("could not remove this instance from the list: %s", error)

    async def listed(self) -> list[Instance]:
        """Return the instances that reported lately, the latest first."""
        rows = await self._sql.rows("list_instances", INSTANCES_MAX)
        return [
            from_row(
                Instance,
                row,
                id=str(row["id"]),
                workers=row["worker_count"],
                started_at=wire_time(row["started_at"]).decode(),
                state="alive" if row["silent_s"] < MISSING_S else "missing",
                silent_seconds=round(max(row["silent_s"], 0.0), 3),
            )
            for row in rows
        ]


class ClusterReport(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """What this process sent and received, and the instances of the installation."""

    enabled: bool
    reason: str | None = None
    """Why it is not enabled."""
    worker_id: int
    peers: PeerStats
    instances: list[Instance]


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """The cluster as one process sees it."""

    caller: Caller
    peers: Peers
    instances: Instances
    wake: Callable[[int, int], None]
    worker_id: int

    async def report(self) -> ClusterReport:
        """Return what was sent and received so far, and which instances there are."""
        is_enabled = self.peers.is_enabled
        return ClusterReport(
            enabled=is_enabled,
            reason=None if is_enabled else "not_initialized",
            worker_id=self.worker_id,
            peers=self.peers.stats(),
            instances=await self.instances.listed(),
        )

    def take_notice(self, stamp: str | None, content: bytes) -> None:
        """Take a notice of another instance."""
        verdict = self.peers.take_request(stamp, content)
        if verdict is Verdict.GARBAGE:
            raise BadRequest("the body is not a notice of another instance")
        if verdict not in {Verdict.TAKEN, Verdict.OWN}:
            raise ForgedNotice(f"the notice was not taken: {verdict.value}")

    async def wake_queue(self, queue: str) -> None:
        """Let the polls of this instance on a queue try again."""
        self.wake(await find_queue(self.caller, queue), POP_PARTITIONS_MAX)
