"""What readers on Spark ask of the log, with Python arguments."""

from dataclasses import dataclass

EVERYTHING = "1:1:"


@dataclass
class SpanReader:
    """Asks about spans of one queue; the bounds are as the SQL functions take them."""

    log: object
    queue: str = "hive"

    async def queue_ids(self):
        return [await self.log.value("select id from skep.queue where name = $1", self.queue)]

    async def present(self):
        return await self.log.value("select pg_current_snapshot()::text")

    async def call(self, function, seen, upto, *limits, **bounds):
        """Call one of the functions that take a span."""
        ids = await self.queue_ids()
        names = ("partition_id", "after", "through", "since", "until")
        partitions, after, through, since, until = (bounds.get(name) for name in names)
        query = (
            f"select * from skep.{function}($1, $2, $3::text::pg_snapshot, $4::text::pg_snapshot,"
            f" $5, $6, $7, $8{''.join(f', ${9 + n}' for n in range(len(limits)))})"
        )
        return await self.log.rows(
            query,
            ids[0] if function == "segments_in_span" else ids,
            partitions,
            seen,
            upto or await self.present(),
            after,
            through,
            since,
            until,
            *limits,
        )

    async def found(self, seen=EVERYTHING, upto=None, **bounds):
        """Return (partition, first) of the segments in a span."""
        rows = await self.call("segments_in_span", seen, upto, **bounds)
        return sorted((row["partition_id"], row["first"]) for row in rows)

    async def divided(
        self, seen=EVERYTHING, upto=None, *, messages=None, size_bytes=None, share=None, **bounds
    ):
        return await self.call("divide_span", seen, upto, messages, size_bytes, share, **bounds)


async def address(log, partition_id, first):
    """Return the address of a segment as the functions take it."""
    query = "select xid::text::bigint from skep.segment where partition_id = $1 and first = $2"
    return [await log.value(query, partition_id, first), partition_id, first]
