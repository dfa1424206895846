"""Maintenance modes, and what waits on disk.

The modes hold for all instances; the numbers of the buffer are those of the machine that answers.
"""

from typing import Literal

import msgspec
from litestar import Request, get, post
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from skep.broker.failover.diversion import Diversion, SpillStats
from skep.broker.failover.maintenance import Maintenance
from skep.model.errors import BadRequest
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import Level, needs
from skep.server.hot.decoding import decode_body

_TAGS = ["Maintenance"]
_WORDS = {"": "enabled (boolean) is required", ".enabled": "enabled (boolean) is required"}
_MIB = 1 << 20


class ModeBody(msgspec.Struct):
    """Whether the mode should be on."""

    enabled: bool


_MODE = msgspec.json.Decoder(ModeBody)


class RejectedFiles(msgspec.Struct, rename="camel", frozen=True):
    """Records that could not be stored, each in a file of its own."""

    count: int
    total_bytes: int
    total_mb: float = msgspec.field(name="totalMB")
    failover_count: int
    qos0_count: int = msgspec.field(name="qos0Count", default=0)
    """Always 0: there is no delivery without a guarantee here."""


class BufferStats(msgspec.Struct, rename="camel", frozen=True):
    """The buffer on disk."""

    pending_count: int
    failed_count: int
    db_healthy: bool
    failed_files: RejectedFiles
    pending_bytes: int


class MaintenanceState(msgspec.Struct, rename="camel", frozen=True):
    """The modes and the buffer."""

    maintenance_mode: bool
    pop_maintenance_mode: bool
    buffered_messages: int
    buffer_healthy: bool
    buffer_stats: BufferStats


class PushModeSet(msgspec.Struct, rename="camel", frozen=True):
    """The mode of pushes, as it is now."""

    maintenance_mode: bool
    buffered_messages: int
    buffer_healthy: bool
    message: str


class PopMode(msgspec.Struct, rename="camel", frozen=True):
    """The mode of polls, as it is now."""

    pop_maintenance_mode: bool
    message: str


class BufferState(msgspec.Struct, rename="camel", frozen=True):
    """The buffer of the machine that answers."""

    pending: int
    failed: int
    db_healthy: bool
    worker: int
    note: Literal["shared by all workers of this machine"] = "shared by all workers of this machine"


def maintenance_routes(
    maintenance: Maintenance, diversion: Diversion, *, worker: int
) -> list[HTTPRouteHandler]:
    """Make the routes for one worker process."""

    @get(
        "/api/v1/system/maintenance",
        tags=_TAGS,
        operation_id="getMaintenance",
        opt=needs(Level.ADMIN),
        summary="The maintenance modes, and what waits on disk",
        description="Answered from memory, also while the database is away.",
    )
    async def get_maintenance() -> MaintenanceState:
        stats = diversion.stats()
        return MaintenanceState(
            maintenance_mode=maintenance.is_push_on,
            pop_maintenance_mode=maintenance.is_pop_on,
            buffered_messages=stats.pending_messages,
            buffer_healthy=stats.is_usable,
            buffer_stats=_buffer_stats(stats),
        )

    @post(
        "/api/v1/system/maintenance",
        status_code=200,
        tags=_TAGS,
        operation_id="setMaintenance",
        opt=needs(Level.ADMIN),
        summary="Keep pushes on disk instead of storing them, or stop doing so",
        description=(
            "For all instances; the others follow within a second. Pushes are answered "
            "`buffered` and stored, in order, when the mode is switched off."
        ),
        operation_class=body_of(ModeBody),
    )
    async def set_maintenance(request: Request[object, object, State]) -> PushModeSet:
        enabled = await _read_mode(request)
        if enabled and not diversion.is_usable:
            raise BadRequest("there is no spill directory to keep pushes in; set spill_dir")
        await maintenance.set_mode("push", enabled=enabled)
        stats = diversion.stats()
        return PushModeSet(
            maintenance_mode=maintenance.is_push_on,
            buffered_messages=stats.pending_messages,
            buffer_healthy=stats.is_usable,
            message="Pushes are kept on disk." if enabled else "Pushes are stored.",
        )

    @get(
        "/api/v1/system/maintenance/pop",
        tags=_TAGS,
        operation_id="getPopMaintenance",
        opt=needs(Level.ADMIN),
        summary="Whether polls get nothing",
    )
    async def get_pop_maintenance() -> PopMode:
        return _pop_mode(maintenance)

    @post(
        "/api/v1/system/maintenance/pop",
        status_code=200,
        tags=_TAGS,
        operation_id="setPopMaintenance",
        opt=needs(Level.ADMIN),
        summary="Deliver nothing, or deliver again",
        description=(
            "For all instances; the others follow within a second. Polls that wait go on waiting, "
            "others are empty. What is under lease can be acknowledged."
        ),
        operation_class=body_of(ModeBody),
    )
    async def set_pop_maintenance(request: Request[object, object, State]) -> PopMode:
        await maintenance.set_mode("pop", enabled=await _read_mode(request))
        return _pop_mode(maintenance)

    @get(
        "/api/v1/status/buffers",
        tags=_TAGS,
        operation_id="getBuffers",
        opt=needs(Level.READ_ONLY),
        summary="What waits on the disk of this machine",
    )
    async def get_buffers() -> BufferState:
        stats = diversion.stats()
        return BufferState(
            pending=stats.pending_messages,
            failed=stats.rejected_files,
            db_healthy=not stats.is_database_away,
            worker=worker,
        )

    return [get_maintenance, set_maintenance, get_pop_maintenance, set_pop_maintenance, get_buffers]


async def _read_mode(request: Request[object, object, State]) -> bool:
    return decode_body(_MODE, await request.body(), _WORDS).enabled


def _buffer_stats(stats: SpillStats) -> BufferStats:
    return BufferStats(
        pending_count=stats.pending_messages,
        failed_count=stats.rejected_files,
        db_healthy=not stats.is_database_away,
        failed_files=RejectedFiles(
            count=stats.rejected_files,
            total_bytes=stats.rejected_bytes,
            total_mb=round(stats.rejected_bytes / _MIB, 2),
            failover_count=stats.rejected_files,
        ),
        pending_bytes=stats.pending_bytes,
    )


def _pop_mode(maintenance: Maintenance) -> PopMode:
    is_on = maintenance.is_pop_on
    return PopMode(is_on, "Nothing is delivered." if is_on else "Messages are delivered.")
