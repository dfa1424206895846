"""The archive as a test sees it: the SQL functions with Python arguments."""

from typing import NamedTuple
from uuid import uuid4

from tests.sql.support.log import Log

MUCH = 1_000_000


class Run(NamedTuple):
    run_id: object
    attempt: int
    since: int
    upto: int


class Archivist:
    """Someone who copies a queue to the lake; what he does with the messages is left out."""

    def __init__(self, log: Log, queue: str = "hive") -> None:
        self.log = log
        self.queue = queue

    async def queue_id(self):
        return await self.log.value("select id from skep.queue where name = $1", self.queue)

    async def configure(self, **columns):
        for column, value in columns.items():
            await self.log.value(
                f"update skep.queue set {column} = $1 where name = $2", value, self.queue
            )

    async def begin(self, *, messages=MUCH, segments=MUCH):
        row = await self.log.row(
            "select * from skep.begin_archive($1, $2, $3)",
            await self.queue_id(),
            messages,
            segments,
        )
        return None if row is None else Run(*row)

    async def finish(self, run, messages=0):
        query = "select skep.finish_archive($1, $2, $3)"
        return await self.log.value(query, run.run_id, run.attempt, messages)

    async def archive(self, **limits):
        """Plan a run and finish it."""
        run = await self.begin(**limits)
        assert await self.finish(run)
        return run

    async def delete(self, *, after=0, limit=1000):
        query = "select * from skep.delete_archived($1, $2, $3, $4)"
        return await self.log.row(query, uuid4(), await self.queue_id(), after, limit)

    async def become_foreign(self):
        """Be the archive of another server, as after restoring a dump."""
        await self.log.execute("update skep.archive set system = '1:1'")


async def xid(log, partition_id, first):
    query = "select xid::text::bigint from skep.segment where partition_id = $1 and first = $2"
    return await log.value(query, partition_id, first)
