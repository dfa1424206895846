"""Background work as a test sees it: a log, a lease to work under, and the steps of a run."""

from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from tests.sql.support.log import Log

SERVICE = "housekeeping"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_S = 86_400


class Deleted(NamedTuple):
    messages: int
    segments: int
    partitions: int
    reached: int
    is_done: bool


class Evicted(NamedTuple):
    messages: int
    partitions: int
    group_id: int
    after_at: datetime
    after_id: int
    is_done: bool
    queue_name: str
    letters: int | None


class Keeper:
    """Someone who leads, and works on a log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.holder: UUID = uuid4()
        self.run_id: UUID = uuid4()

    @classmethod
    async def appoint(cls, log: Log) -> "Keeper":
        """Empty what background work wrote, and take the lease for longer than any test's clock."""
        tables = ("leadership", "hold", "retention_history", "deleted_message")
        await log.execute("".join(f"delete from skep.{table};" for table in tables))
        keeper = cls(log)
        assert await keeper.take(3650 * DAY_S)
        return keeper

    async def take(self, seconds: float, holder: UUID | None = None) -> bool:
        query = "select skep.take_leadership($1, $2, $3)"
        return await self.log.value(query, SERVICE, holder or self.holder, seconds)

    async def queue_id(self, queue: str = "hive") -> int:
        return await self.log.value("select id from skep.queue where name = $1", queue)

    async def retain(
        self, kind: str = "retention", *, queue: str = "hive", after: int = 0, limit: int = 1000
    ) -> Deleted:
        """Do one step of retention."""
        row = await self.log.row(
            "select * from skep.apply_retention($1, $2, $3, $4, $5, $6, $7)",
            SERVICE,
            self.holder,
            self.run_id,
            await self.queue_id(queue),
            kind,
            after,
            limit,
        )
        return Deleted(*row)

    async def evict(
        self, *, queue: str = "hive", limit: int = 1000, stop: Evicted | None = None
    ) -> Evicted:
        """Do one step of eviction, from where another stopped."""
        row = await self.log.row(
            "select * from skep.evict_waiting($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            SERVICE,
            self.holder,
            self.run_id,
            await self.queue_id(queue),
            stop.group_id if stop else 0,
            stop.after_at if stop else EPOCH,
            stop.after_id if stop else 0,
            self.log.now,
            limit,
        )
        return Evicted(*row)

    async def evict_all(self, *, limit: int = 1000) -> int:
        """Evict step by step to the end; return how many messages."""
        total, stop = 0, None
        while stop is None or not stop.is_done:
            stop = await self.evict(limit=limit, stop=stop)
            total += stop.messages
        return total

    async def hold(
        self,
        name: str = "spark",
        queue: str = "hive",
        position: tuple[int, int, Any] | None = None,
        keep_s: int = DAY_S,
    ) -> Any | None:
        """Keep what was pushed after a position, or is pushed from now on."""
        query = "select * from skep.place_hold($1, $2, $3, $4)"
        return await self.log.row(query, queue, name, position, keep_s)

    async def history(self) -> list[Any]:
        query = "select * from skep.retention_history order by id"
        return list(await self.log.rows(query))

    async def kept(self, partition_id: int) -> tuple[int, int]:
        """Return tail and head of a partition, and check that its segments fill exactly that."""
        tail, head = await self.log.row(
            "select tail, head from skep.partition where id = $1", partition_id
        )
        offset = tail
        for first, last in await self.log.rows(
            "select first, last from skep.segment where partition_id = $1 order by first",
            partition_id,
        ):
            assert first == offset, "the log has a gap or keeps what is before its tail"
            offset = last + 1
        assert offset == head + 1
        return tail, head
