"""Streams as the SQL functions see them: queries, shards and cycles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from tests.sql.support.log import Log
from tests.sql.support.settling import Settled, arguments

WINDOW_KEY = "tumb:60\x1f2026-01-01T00:00:00.000Z\x1fa"
CYCLE = f"select * from skep.commit_cycle({', '.join(f'${n}' for n in range(1, 27))})"
BYTES_MAX = 1000


@dataclass
class StateOp:
    """A change of one state row; without a value it is a delete."""

    key: str
    value: str | None = None
    window_end: float | None = None
    version: int | None = None

    @property
    def kind(self) -> str:
        return "delete" if self.value is None else "upsert"


def state_arguments(ops: Sequence[StateOp]) -> list[Any]:
    return [
        [op.kind for op in ops],
        [op.key for op in ops],
        [op.value for op in ops],
        [op.window_end for op in ops],
        [op.version for op in ops],
    ]


async def register(
    log: Log, name: str = "query", config_hash: str = "h1", *, reset: bool = False
) -> Any:
    query = "select * from skep.register_query($1, 'hive', 'sink', $2, $3)"
    return await log.row(query, name, config_hash, reset)


async def cycle(
    log: Log,
    query_id: UUID,
    partition_id: int,
    *ops: StateOp,
    release: bool = True,
    delay_ms: int = 0,
    id_: UUID | None = None,
    is_repeated: bool = False,
    **options: Any,
) -> Settled:
    """Commit one cycle; acks, pushes and guarantees as in a transaction."""
    row = await log.row(
        CYCLE,
        id_ or uuid4(),
        is_repeated,
        query_id,
        partition_id,
        release,
        delay_ms,
        *state_arguments(ops),
        BYTES_MAX,
        *arguments(**options),
    )
    return Settled(row)


async def state(log: Log, query_id: UUID, partition_id: int) -> dict[str, str]:
    query = "select key, value from skep.read_state($1, $2, '{}', null, null)"
    return {row[0]: row[1] for row in await log.rows(query, query_id, partition_id)}


async def clear_streams(log: Log) -> None:
    await log.execute("delete from skep.stream_query")
