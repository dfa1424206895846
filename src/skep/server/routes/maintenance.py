"""Maintenance modes, the buffer on disk, and Queen's routes for a migration.

The modes hold for all instances; the figures of the buffer are those of the machine that answers.
"""

from typing import Final, Literal

import msgspec

from skep.broker.failover.diversion import Diversion, SpillStats
from skep.broker.failover.maintenance import Maintenance
from skep.model.errors import BadRequest, Refused
from skep.server.auth import access
from skep.server.routes.section import Body, Section, routes_of

_PATH: Final = "/api/v1/system/maintenance"
_MIGRATION: Final = "/api/v1/migration"
_MIGRATE_BY_HAND: Final = (
    "not offered: switch push maintenance on, copy the database with pg_dump and pg_restore, and "
    "start skep with the new database_url"
)
_NOT_OFFERED: Final = {409: "Always: copy the database with PostgreSQL's own tools."}
_REQUIRED: Final = "enabled (boolean) is required"
_MIB: Final = 1 << 20


class ModeBody(msgspec.Struct):
    """Whether the mode should be on."""

    enabled: bool


_MODE: Final = Body(ModeBody, wording={"": _REQUIRED, ".enabled": _REQUIRED})


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


class MigrationState(msgspec.Struct, rename="camel", frozen=True):
    """A migration never runs."""

    status: Literal["idle"] = "idle"
    current_step: Literal[""] = ""
    elapsed_seconds: Literal[0] = 0


class MigrationReset(msgspec.Struct, frozen=True):
    """There was nothing to reset."""

    status: Literal["idle"] = "idle"
    message: Literal["nothing to reset"] = "nothing to reset"


@routes_of("Maintenance")
def maintenance_routes(
    section: Section, maintenance: Maintenance, diversion: Diversion, *, worker: int
) -> None:
    """Declare the routes of one worker process."""

    @section.get(_PATH, access.ADMIN)
    async def get_maintenance() -> MaintenanceState:
        """Show the maintenance modes and the buffer on disk.

        Answered from memory, even while the database is unavailable.
        """
        stats = diversion.stats()
        return MaintenanceState(
            maintenance_mode=maintenance.is_push_on,
            pop_maintenance_mode=maintenance.is_pop_on,
            buffered_messages=stats.pending_messages,
            buffer_healthy=stats.is_usable,
            buffer_stats=_buffer_stats(stats),
        )

    @section.post(_PATH, access.ADMIN, body=_MODE)
    async def set_maintenance(asked: ModeBody) -> PushModeSet:
        """Switch push maintenance on or off: pushes are buffered on disk instead of stored.

        Applies to all instances within a second. Pushes are answered `buffered` and stored, in
        order, when the mode is switched off.
        """
        if asked.enabled and not diversion.is_usable:
            raise BadRequest("there is no spill directory to keep pushes in; set spill_dir")
        await maintenance.set_mode("push", enabled=asked.enabled)
        stats = diversion.stats()
        return PushModeSet(
            maintenance_mode=maintenance.is_push_on,
            buffered_messages=stats.pending_messages,
            buffer_healthy=stats.is_usable,
            message="Pushes are kept on disk." if asked.enabled else "Pushes are stored.",
        )

    @section.get(f"{_PATH}/pop", access.ADMIN)
    async def get_pop_maintenance() -> PopMode:
        """Show whether pop maintenance is on."""
        return _pop_mode(maintenance)

    @section.post(f"{_PATH}/pop", access.ADMIN, body=_MODE)
    async def set_pop_maintenance(asked: ModeBody) -> PopMode:
        """Switch pop maintenance on or off: nothing is delivered.

        Applies to all instances within a second. Waiting polls keep waiting, others return empty.
        Messages under lease can be acknowledged.
        """
        await maintenance.set_mode("pop", enabled=asked.enabled)
        return _pop_mode(maintenance)

    @section.get("/api/v1/status/buffers", access.READ)
    async def get_buffers() -> BufferState:
        """Show the buffer on the disk of this machine."""
        stats = diversion.stats()
        return BufferState(
            pending=stats.pending_messages,
            failed=stats.rejected_files,
            db_healthy=not stats.is_database_away,
            worker=worker,
        )


@routes_of("Maintenance")
def migration_routes(section: Section) -> None:
    """Declare Queen's routes that copy its database to another server; they are refused.

    They would let a caller make the broker connect to any host with any password and copy
    everything there; Queen did it through a shell. PostgreSQL's own tools do it better: see the
    page on failover and maintenance.
    """

    @section.post(
        f"{_MIGRATION}/test-connection", access.ADMIN, status_code=201, responses=_NOT_OFFERED
    )
    async def test_migration_connection() -> None:
        """Refused: the broker connects to no other database."""
        raise Refused(_MIGRATE_BY_HAND)

    @section.post(f"{_MIGRATION}/start", access.ADMIN, status_code=201, responses=_NOT_OFFERED)
    async def start_migration() -> None:
        """Refused: copy the database with PostgreSQL's own tools."""
        raise Refused(_MIGRATE_BY_HAND)

    @section.get(f"{_MIGRATION}/status", access.ADMIN)
    async def get_migration_status() -> MigrationState:
        """Show the state of the migration: always idle."""
        return MigrationState()

    @section.post(f"{_MIGRATION}/validate", access.ADMIN, status_code=201, responses=_NOT_OFFERED)
    async def validate_migration() -> None:
        """Refused: there is no migration to validate."""
        raise Refused(_MIGRATE_BY_HAND)

    @section.post(f"{_MIGRATION}/reset", access.ADMIN)
    async def reset_migration() -> MigrationReset:
        """Do nothing: there is never a migration to reset."""
        return MigrationReset()


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
