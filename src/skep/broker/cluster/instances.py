"""Which instances serve this installation, as they say of themselves in the database.

The first process of each instance reports every few seconds; an instance that was silent for
three reports is shown as missing. People and dashboards read this. Nothing is decided by it: who
leads is decided by a lease, who is told by the settings.
"""

import asyncio
import logging
from contextlib import suppress
from datetime import datetime
from typing import Final, Literal
from uuid import UUID, uuid4

import msgspec

from skep.broker.timestamps import wire_time
from skep.db.access.slots import Caller
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

REPORT_CALL: Final = "select skep.report_instance($1, $2, $3, $4, $5)"
FORGET_CALL: Final = "select skep.forget_instance($1)"
LIST_CALL: Final = "select * from skep.list_instances($1)"

REPORT_S: Final = 5.0
MISSING_S: Final = 3 * REPORT_S
GOODBYE_S: Final = 2.0
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
        """Take what to report, or None in the processes that leave it to the first one."""
        self._caller: Final = caller
        self._own: Final = own
        self._id: Final[UUID] = uuid4()
        self._reporting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to report."""
        if self._own is not None:
            self._reporting = asyncio.get_running_loop().create_task(self._report(self._own))

    async def stop(self) -> None:
        """Say goodbye."""
        if self._reporting is None:
            return
        self._reporting.cancel()
        with suppress(asyncio.CancelledError):
            await self._reporting
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._caller.call(FORGET_CALL, self._id)
        except (SkepError, TimeoutError) as error:
            _log.debug("could not say goodbye: %s", error)

    async def listed(self) -> list[Instance]:
        """Return the instances that reported lately, those seen last first."""
        rows = await self._caller.call(LIST_CALL, INSTANCES_MAX)
        return [_instance(*row) for row in rows]

    async def _report(self, own: OwnInstance) -> None:
        arguments = (self._id, own.host, own.port, own.version, own.worker_count)
        while True:
            try:
                await self._caller.call(REPORT_CALL, *arguments)
            except SkepError as error:
                _log.debug("could not report this instance: %s", error)
            await asyncio.sleep(REPORT_S)


def _instance(
    instance_id: UUID,
    host: str,
    port: int,
    version: str,
    worker_count: int,
    started_at: datetime,
    silent_s: float,
) -> Instance:
    return Instance(
        id=str(instance_id),
        host=host,
        port=port,
        version=version,
        workers=worker_count,
        started_at=wire_time(started_at).decode(),
        state="alive" if silent_s < MISSING_S else "missing",
        silent_seconds=round(max(silent_s, 0.0), 3),
    )
