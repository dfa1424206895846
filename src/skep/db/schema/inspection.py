"""Look at a PostgreSQL as somebody does who wants to know whether a broker can run on it.

Nothing is changed, and nothing of ours has to be there yet.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any

import asyncpg

from skep.db.access.connection import connect
from skep.db.schema.catalog import statement
from skep.model.errors import Unavailable
from skep.model.schema_name import DEFAULT_SCHEMA, split_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server says of itself."""

    version: str
    version_num: int
    is_standby: bool
    clock: datetime
    round_trip_s: float
    """How long the question took; the clock was read meanwhile."""
    role: str
    schema: str = DEFAULT_SCHEMA
    """The one that the installation lives in, or would."""
    can_create_schema: bool
    owns_schema: bool | None
    """None while there is no such schema."""
    connections_max: int
    """For ordinary roles."""
    connections_used: int
    connections_ours: int
    """Of brokers, among those."""
    size_bytes: int
    extensions: tuple[str, ...]
    settings: Mapping[str, str]


async def inspect_server(dsn: str, *, timeout_s: float) -> ServerFacts:
    """Ask a server about itself.

    Raises:
        Unavailable: It cannot be reached, or does not let us in.
    """
    try:
        connection = await connect(dsn, timeout_s=timeout_s)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise Unavailable(f"cannot connect to PostgreSQL: {error}") from error
    try:
        asked_at_s = monotonic()
        (row,) = await connection.fetch(statement("inspect_server"))
        told: dict[str, Any] = dict(row)
        told |= {
            "extensions": tuple(told["extensions"]),
            "settings": json.loads(told["settings"]),
            "round_trip_s": monotonic() - asked_at_s,
            "schema": split_schema(dsn)[1].name,
        }
        return ServerFacts(**told)
    finally:
        await connection.close(timeout=timeout_s)
