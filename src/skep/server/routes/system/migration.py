"""Queen's routes that copy its database to another server.

They are refused here, on purpose. They would let whoever reaches the port make the broker connect
to any host with any password, and copy everything there; Queen did it through a shell. PostgreSQL's
own tools do it better: see the page on failover and maintenance.
"""

from typing import Literal, NoReturn

import msgspec
from litestar import get, post
from litestar.handlers import HTTPRouteHandler

from skep.model.errors import Refused
from skep.server.auth.access import Level, needs
from skep.server.routes.refusals import refusal

_TAGS = ["Maintenance"]
_TEXT = (
    "not offered: switch push maintenance on, copy the database with pg_dump and pg_restore, and "
    "start skep with the new database_url"
)
_REFUSED = {409: refusal("Always: the database is copied with PostgreSQL's own tools.")}


class MigrationState(msgspec.Struct, rename="camel", frozen=True):
    """There is never a migration under way."""

    status: Literal["idle"] = "idle"
    current_step: Literal[""] = ""
    elapsed_seconds: Literal[0] = 0


class MigrationReset(msgspec.Struct, frozen=True):
    """There was nothing to reset."""

    status: Literal["idle"] = "idle"
    message: Literal["nothing to reset"] = "nothing to reset"


def migration_routes() -> list[HTTPRouteHandler]:
    """Make the routes."""

    @post(
        "/api/v1/migration/test-connection",
        tags=_TAGS,
        operation_id="testMigrationConnection",
        opt=needs(Level.ADMIN),
        summary="Refused: the broker connects to no other database",
        responses=_REFUSED,
    )
    async def test_connection() -> None:
        _refuse()

    @post(
        "/api/v1/migration/start",
        tags=_TAGS,
        operation_id="startMigration",
        opt=needs(Level.ADMIN),
        summary="Refused: the database is copied with PostgreSQL's own tools",
        responses=_REFUSED,
    )
    async def start_migration() -> None:
        _refuse()

    @get(
        "/api/v1/migration/status",
        tags=_TAGS,
        operation_id="getMigrationStatus",
        opt=needs(Level.ADMIN),
        summary="Always idle",
    )
    async def get_status() -> MigrationState:
        return MigrationState()

    @post(
        "/api/v1/migration/validate",
        tags=_TAGS,
        operation_id="validateMigration",
        opt=needs(Level.ADMIN),
        summary="Refused: there is no migration to validate",
        responses=_REFUSED,
    )
    async def validate_migration() -> None:
        _refuse()

    @post(
        "/api/v1/migration/reset",
        status_code=200,
        tags=_TAGS,
        operation_id="resetMigration",
        opt=needs(Level.ADMIN),
        summary="Does nothing: there is never a migration under way",
    )
    async def reset_migration() -> MigrationReset:
        return MigrationReset()

    return [test_connection, start_migration, get_status, validate_migration, reset_migration]


def _refuse() -> NoReturn:
    raise Refused(_TEXT)
