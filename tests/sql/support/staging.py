"""Staging as a test fills it, and the commit of it."""

from datetime import datetime
from typing import Any, NamedTuple

from tests.sql.support.log import Log, body_of, envelope, key_of, keys_of

WRITE = "a-write"


class Committed(NamedTuple):
    is_repeated: bool
    messages: int
    scheduled: int
    duplicates: int
    rejected: int


class Staging:
    """The staging of one write."""

    def __init__(self, log: Log, write_id: str = WRITE, target: str = "") -> None:
        self.log = log
        self.write_id = write_id
        self.target = target
        self._numbers = 0

    async def clear(self) -> None:
        tables = ("staged_segment", "staged_message", "staged_reject", "sink")
        await self.log.execute("".join(f"delete from skep.{table};" for table in tables))
        await self.log.execute("delete from skep.segment where partition_id < 0")

    async def segment(
        self,
        *names: str,
        queue: str = "hive",
        partition: str = "a",
        epoch: int = 0,
        task: int = 0,
        attempt: int = 1,
        **columns: Any,
    ) -> None:
        """Stage messages, named by their transaction ids, as a segment."""
        body = columns.pop("body", body_of(map(envelope, names)))
        values = {"messages": len(names), "is_unique": False, "is_sealed": False, **columns}
        number = await self._insert(
            "staged_segment", epoch, task, attempt, queue, partition, values
        )
        await self.log.execute(
            "insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)"
            " values (-$1::bigint, $2, $2, 0, $3, $4, $5)",
            attempt,
            number,
            columns.get("staged_at", self.log.now),
            keys_of(names),
            body,
        )

    async def message(
        self,
        name: str,
        deliver_at: datetime,
        *,
        queue: str = "hive",
        partition: str = "a",
        epoch: int = 0,
        task: int = 0,
        attempt: int = 1,
        **columns: Any,
    ) -> None:
        """Stage a message for later."""
        values = {
            "is_sealed": False,
            "key": key_of(name),
            "transaction_id": name,
            "envelope": envelope(name).encode(),
            "deliver_at": deliver_at,
            **columns,
        }
        await self._insert("staged_message", epoch, task, attempt, queue, partition, values)

    async def reject(
        self,
        name: str,
        error: str = "too bitter",
        *,
        queue: str = "hive",
        partition: str = "a",
        epoch: int = 0,
        task: int = 0,
        attempt: int = 1,
        **columns: Any,
    ) -> None:
        """Stage a row that is no message."""
        values = {
            "is_sealed": False,
            "transaction_id": name,
            "envelope": envelope(name).encode(),
            "error": error,
            **columns,
        }
        await self._insert("staged_reject", epoch, task, attempt, queue, partition, values)

    async def _insert(
        self,
        table: str,
        epoch: int,
        task: int,
        attempt: int,
        queue: str,
        partition: str,
        columns: dict[str, Any],
    ) -> int:
        self._numbers += 1
        row = {
            "write_id": self.write_id,
            "target": self.target,
            "epoch": epoch,
            "task": task,
            "attempt": attempt,
            "number": self._numbers,
            "queue": queue,
            "partition": partition,
            "staged_at": self.log.now,
            **columns,
        }
        marks = ", ".join(f"${number}" for number in range(1, len(row) + 1))
        await self.log.execute(
            f"insert into skep.{table} ({', '.join(row)}) values ({marks})", *row.values()
        )
        return self._numbers

    async def partitions(self, *attempts: int, epoch: int = 0) -> list[Any]:
        """Return the partitions of what is staged, in the order of the functions' parameters."""
        rows = await self.log.rows(
            "select partition_id, queue, partition, window_s"
            " from skep.staged_partitions($1, $2, $3) order by partition_id",
            self.write_id,
            epoch,
            list(attempts or (1,)),
        )
        return [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]

    async def commit(
        self, *attempts: int, epoch: int = 0, staged: int | None = None, is_passing: bool = False
    ) -> Committed:
        """Commit what these attempts staged; `staged` is what they say that is."""
        names = list(attempts or (1,))
        if staged is None:
            staged = await self.count(*names, epoch=epoch)
        row = await self.log.row(
            "select * from skep.commit_sink($1, $2, $3, $4, $5, null, $6)",
            self.write_id,
            epoch,
            is_passing,
            names,
            staged,
            self.target,
        )
        return Committed(*row)

    async def segments(self) -> int:
        """Return how many segments wait in partitions that do not exist, whoever staged them."""
        return await self.log.value("select count(*) from skep.segment where partition_id < 0")

    async def count(self, *attempts: int, epoch: int | None = None) -> int:
        """Return how many rows are staged; without attempts, by all of them."""
        total = 0
        for table in ("staged_segment", "staged_message", "staged_reject"):
            total += await self.log.value(
                f"select count(*) from skep.{table} where write_id = $1 and target = $4"
                " and (cardinality($2::bigint[]) = 0 or attempt = any($2))"
                " and ($3::bigint is null or epoch = $3)",
                self.write_id,
                list(attempts),
                epoch,
                self.target,
            )
        return total


async def names_in(log: Log, queue: str = "hive", partition: str = "a") -> list[str]:
    """Return the transaction ids of a partition, in order."""
    rows = await log.rows(
        """
        select m.envelope ->> 'transactionId' as name
        from skep.queue q
        join skep.partition p on p.queue_id = q.id
        join skep.segment s on s.partition_id = p.id
        cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
          with ordinality m(envelope, position)
        where q.name = $1 and p.name = $2
        order by s.first, m.position
        """,
        queue,
        partition,
    )
    return [row["name"] for row in rows]
