"""The log as a test sees it: the SQL functions with Python arguments, and what they answer.

A `Log` is one session with the planner settings of the broker's own connections. Its clock stands
still until the test moves it. Messages are named by their transaction ids; keys and envelopes are
made from these as the broker makes them. The row classes list what the functions return, in order.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from skep.broker.push.execute import (
    HAND_OVER_CALL,
    PUSH_CONTESTED_CALL,
    PUSH_GUARANTEED_CALL,
    PUSH_TO_POLL_CALL,
)
from skep.db.access.slots import HOT_PATH
from skep.model.envelopes import Segments, join_segments

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
QUEUE_MODE = "__QUEUE_MODE__"
KEY_BYTES = 16


class Guarantee(NamedTuple):
    """The broker's word: no key occurs up to offset `to` in segments created since then."""

    to: int
    since: datetime


NOTHING = Guarantee(0, datetime.max.replace(tzinfo=UTC))
ALWAYS = datetime.min.replace(tzinfo=UTC)


class Pushed(NamedTuple):
    partition_id: int
    first: int | None
    created_at: datetime | None
    duplicate_index: list[int] | None
    duplicate_offset: list[int] | None
    gap_first: int | None
    gap_keys: bytes | None
    gap_created_at: datetime | None

    @property
    def duplicates(self) -> dict[int, int] | None:
        """Where the keys that were refused are stored, by their index in the push."""
        if self.duplicate_index is None or self.duplicate_offset is None:
            return None
        return dict(zip(self.duplicate_index, self.duplicate_offset, strict=True))


class TakenSegment(NamedTuple):
    poll: int
    partition_id: int
    partition_name: str
    taken_from: int
    taken_to: int
    delivery: int
    first: int
    created_at: datetime
    keys: bytes
    body: bytes
    passed_over: list[int] | None
    is_individual: bool
    counts: list[int] | None

    def delivery_of(self, offset):
        """Return how often a message was delivered, this time included."""
        return self._counted(offset)[0]

    def failures_of(self, offset):
        return self._counted(offset)[1]

    def _counted(self, offset):
        counts = self.counts or [offset, self.delivery, 0]
        at = next(place for place in range(0, len(counts), 3) if counts[place] >= offset)
        return counts[at + 1], counts[at + 2]


class Delivered(NamedTuple):
    partition_id: int
    offset: int
    transaction_id: str
    delivery: int
    failures: int = 0


class Acked(NamedTuple):
    item: int
    outcome: str
    queue_id: int
    queue_name: str
    partition_name: str
    lease_released: bool
    has_more: bool


class Lease(NamedTuple):
    lease_id: UUID
    expires_at: datetime


@dataclass
class Poll:
    """One consumer's request for messages."""

    batch: int = 100
    partitions: int = 1
    auto_ack: bool = False
    lease_s: int = 0
    partition_id: int = 0
    lease_id: UUID = field(default_factory=uuid4)


@dataclass
class Ack:
    """One consumer's word about a message; without an offset it is found by `transaction_id`."""

    partition_id: int
    offset: int | None
    lease_id: UUID | None = None
    status: str = "completed"
    transaction_id: str = ""
    error: str | None = None
    group: str = QUEUE_MODE
    is_alone: bool = False
    """Models note here that it speaks for its own message only ..."""
    is_doubtful: bool = False
    """... or that others with its transaction id contradict it."""


class Taken(list[TakenSegment]):
    """What a pop returned."""

    ask_again: Sequence[int] = ()
    """The polls that got nothing because the answer was full."""
    buried = 0
    """How many messages became dead letters."""

    @classmethod
    def of(cls, rows: Sequence[Any]) -> "Taken":
        """Read the rows of a pop, of which the one without a poll tells of dead letters."""
        taken = cls(TakenSegment(*row) for row in rows if row["partition_id"] is not None)
        taken.ask_again = [
            row["poll"] for row in rows if row["poll"] and row["partition_id"] is None
        ]
        taken.buried = sum(row["delivery"] for row in rows if row["poll"] is None)
        return taken

    @property
    def messages(self) -> list[Delivered]:
        """The messages taken, cut out of their segments; deleted and done ones left out."""
        found: list[Delivered] = []
        for row in self:
            low = max(row.taken_from + 1 - row.first, 0)
            high = min(row.taken_to + 1 - row.first, len(row.keys) // KEY_BYTES)
            for offset, message in enumerate(json.loads(row.body)[low:high], row.first + low):
                if message is not None and offset not in (row.passed_over or ()):
                    name = message["transactionId"]
                    counted = row.delivery_of(offset), row.failures_of(offset)
                    found.append(Delivered(row.partition_id, offset, name, *counted))
        return found

    @property
    def offsets(self) -> list[int]:
        return [message.offset for message in self.messages]

    @property
    def partitions(self) -> list[int]:
        """The partitions, in the order in which they were served."""
        return list(dict.fromkeys(row.partition_id for row in self))

    def of_poll(self, number: int) -> "Taken":
        """What the poll with this number, counted from 1, got."""
        return Taken(row for row in self if row.poll == number)


def key_of(transaction_id: str) -> bytes:
    return blake2b(transaction_id.encode(), digest_size=KEY_BYTES).digest()


def keys_of(transaction_ids: Iterable[str]) -> bytes:
    return b"".join(map(key_of, transaction_ids))


def envelope(transaction_id: str, data: str = "{}", trace_id: str | None = None) -> str:
    """Return a message as it is stored, with `data` as its payload in JSON."""
    name, trace = json.dumps(transaction_id), json.dumps(trace_id)
    return f'{{"transactionId":{name},"traceId":{trace},"producerSub":null,"data":{data}}}'


def body_of(envelopes: Iterable[str]) -> bytes:
    return f"[{','.join(envelopes)}]".encode()


def joined(writes: Mapping[int, Sequence[str]]) -> Segments:
    """Return what is to be stored of these messages, as the broker cuts it."""
    return join_segments(
        [[envelope(name).encode() for name in writes[id_]] for id_ in sorted(writes)]
    )


class Log:
    """One session with the log, with a clock of its own."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.now = NOON
        self.pushes_to_polls = True
        """Whether `hand_over` takes the function for one partition where a broker would."""

    @classmethod
    async def open(cls, connect: Any, **settings: str) -> "Log":
        log = cls(await connect(server_settings={**HOT_PATH, "timezone": "UTC", **settings}))
        await log.set_clock(NOON)
        return log

    async def clear(self) -> None:
        """Delete everything; ten times as quick as truncating while there is little."""
        tables = (
            "operation",
            "operation_total",
            "deleted_message",
            "scheduled",
            "past_snapshot",
            "staged",
            "staged_transaction",
            "redriven_letter",
            "redrive",
            "dead_letter",
            "removed_group",
            "removed_queue",
            "cursor",
            "segment",
            "removed_span",
            "timeline",
            "reader",
            "consumer_group",
            "partition",
            "queue",
        )
        await self.execute("".join(f"delete from skep.{table};" for table in tables))

    async def set_clock(self, moment: datetime) -> None:
        self.now = moment
        await self.value("select set_config('skep.fake_now', $1, false)", moment.isoformat())

    async def advance(self, seconds: float = 1) -> None:
        await self.set_clock(self.now + timedelta(seconds=seconds))

    async def rows(self, query: str, *arguments: object) -> Sequence[Any]:
        return await self.connection.fetch(query, *arguments)

    async def row(self, query: str, *arguments: object) -> Any:
        return await self.connection.fetchrow(query, *arguments)

    async def value(self, query: str, *arguments: object) -> Any:
        return await self.connection.fetchval(query, *arguments)

    async def execute(self, query: str, *arguments: object) -> None:
        await self.connection.execute(query, *arguments)

    async def provision(self, queue: str, *partitions: str) -> list[int]:
        """Return the ids of the partitions, in the order of their names here."""
        found = await self.rows(
            "select partition_name, partition_id from skep.provision_partitions($1, $2)",
            [queue] * len(partitions),
            list(partitions),
        )
        id_by_name = dict(map(tuple, found))
        return [id_by_name[name] for name in partitions]

    async def partition(self, queue: str = "hive", partition: str = "a") -> tuple[int, int]:
        """Return the ids of a new partition and of its queue's own group."""
        [partition_id] = await self.provision(queue, partition)
        return partition_id, await self.subscribe(queue)

    async def subscribe(
        self,
        queue: str = "hive",
        group: str = QUEUE_MODE,
        mode: str = "all",
        start: datetime | None = None,
        *,
        conflation: bool | None = None,
    ) -> int:
        """Return the id of the group, subscribing it if it is new."""
        query = "select group_id from skep.provision_group($1, $2, $3, $4, $5)"
        return await self.value(query, queue, group, mode, start, conflation)

    async def configure(self, queue: str, **columns: int | bool) -> dict[str, Any]:
        """Change options of a queue and return all of them."""
        query = "select queue from skep.configure_queue($1, null, null, $2)"
        return json.loads(await self.value(query, queue, json.dumps(columns)))

    async def set_options(self, queue: str, **columns: object) -> None:
        """Change columns of a queue, also those that configure_queue does not offer."""
        for column, value in columns.items():
            await self.execute(f"update skep.queue set {column} = $2 where name = $1", queue, value)

    async def delete_message(self, partition_id: int, transaction_id: str, offset: int) -> None:
        """Leave a null where a message was, and remember its offset; cursors are not told."""
        await self.execute(
            """
            update skep.segment set body = convert_to(replace(convert_from(body, 'UTF8'), $2,
              'null'), 'UTF8')
            where partition_id = $1
            """,
            partition_id,
            envelope(transaction_id),
        )
        await self.execute(
            "insert into skep.deleted_message (partition_id, message_offset) values ($1, $2)",
            partition_id,
            offset,
        )

    async def set_done(self, partition_id: int, group_id: int, done: str) -> None:
        """Say which offsets are done ahead of the cursor, as PostgreSQL spells a set of ranges."""
        await self.execute(
            "update skep.cursor set done = $3::text::int8multirange"
            " where partition_id = $1 and group_id = $2",
            partition_id,
            group_id,
            done,
        )

    async def done(self, partition_id: int, group_id: int) -> str | None:
        """Return the offsets done ahead of the cursor, in the same spelling."""
        query = "select done::text from skep.cursor where partition_id = $1 and group_id = $2"
        return await self.value(query, partition_id, group_id)

    async def push(
        self,
        partition_id: int,
        *transaction_ids: str,
        guarantee: Guarantee = NOTHING,
        resolve: bool = False,
    ) -> Pushed:
        """Push one segment."""
        writes = {partition_id: transaction_ids}
        [row] = await self.push_writes(writes, {partition_id: guarantee}, resolve=resolve)
        return row

    async def push_writes(
        self,
        writes: Mapping[int, Sequence[str]],
        guarantees: Mapping[int, Guarantee] | None = None,
        *,
        resolve: bool = False,
    ) -> list[Pushed]:
        """Push into several partitions in one call."""
        segments = joined(writes)
        return await self._push(writes, segments, guarantees, resolve=resolve)

    async def push_bodies(
        self,
        writes: Mapping[int, Sequence[str]],
        bodies: Mapping[int, bytes],
        guarantees: Mapping[int, Guarantee] | None = None,
        *,
        resolve: bool = False,
    ) -> list[Pushed]:
        """Push with bodies that no broker makes."""
        segments = Segments([bodies[id_] for id_ in sorted(writes)], None, None)
        return await self._push(writes, segments, guarantees, resolve=resolve)

    async def _push(self, writes, segments, guarantees, *, resolve):
        ids = sorted(writes)
        guaranteed = [(guarantees or {}).get(id_, NOTHING) for id_ in ids]
        found = await self.rows(
            "select * from skep.push_segments($1, $2, $3, $4, $5, $6, $7, null, null, $8, $9)",
            ids,
            [len(writes[id_]) for id_ in ids],
            [guarantee.to for guarantee in guaranteed],
            [guarantee.since for guarantee in guaranteed],
            [keys_of(writes[id_]) for id_ in ids],
            segments.bodies,
            resolve,
            segments.row_to,
            segments.row_end,
        )
        return [Pushed(*row) for row in found]

    async def push_of_broker(
        self, partition_id: int, *transaction_ids: str, resolve: bool = False
    ) -> Pushed:
        """Push one segment by the rules in force, as a broker does: behind waiting operations."""
        versions = await self.versions([partition_id])
        [row] = await self.rows(
            "select * from skep.push_segments($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            [partition_id],
            [len(transaction_ids)],
            [NOTHING.to],
            [NOTHING.since],
            [keys_of(transaction_ids)],
            [body_of(map(envelope, transaction_ids))],
            resolve,
            list(versions),
            list(versions.values()),
        )
        return Pushed(*row)

    async def push_guaranteed(
        self,
        writes: Mapping[int, Sequence[str]],
        heads: Mapping[int, int | None],
        *,
        since: datetime = ALWAYS,
        versions: Mapping[int, int] | None = None,
    ) -> dict[int, tuple[int, datetime]]:
        """Push where nobody else has; return the first offset and the time of what was stored."""
        found = await self._push_known(PUSH_GUARANTEED_CALL, writes, heads, since, versions)
        return {partition_id: (first, created_at) for partition_id, first, created_at in found}

    async def push_contested(
        self,
        writes: Mapping[int, Sequence[str]],
        heads: Mapping[int, int | None],
        *,
        since: datetime = ALWAYS,
        versions: Mapping[int, int] | None = None,
    ) -> tuple[dict[int, tuple[int, datetime]], list[tuple[int, int, datetime, bytes]]]:
        """Push where others have, too; return what was stored, and the segments of the others."""
        found = await self._push_known(PUSH_CONTESTED_CALL, writes, heads, since, versions)
        stored = {
            id_: (first, created_at) for id_, first, created_at, keys in found if keys is None
        }
        return stored, [tuple(row) for row in found if row["keys"] is not None]

    async def hand_over(
        self,
        writes: Mapping[int, Sequence[str]],
        heads: Mapping[int, int | None],
        polls: Mapping[int, tuple[int, Poll]],
        *,
        since: datetime = ALWAYS,
        versions: Mapping[int, int] | None = None,
    ) -> dict[int, tuple[int, int, bool, bool]]:
        """Push for polls that wait, by partition with their group; return what they got."""
        groups = [polls.get(id_, (None, None)) for id_ in sorted(writes)]
        columns = _columns(
            (None,) * 4 if p is None else (g, p.lease_id, p.batch, p.lease_s) for g, p in groups
        )
        segments = joined(writes)
        if len(segments.bodies) > 1 or not self.pushes_to_polls:
            found = await self._push_known(HAND_OVER_CALL, writes, heads, since, versions, *columns)
            return {id_: tuple(claim) for id_, first, _, *claim in found if first is None}
        [id_] = writes
        if versions is None:
            versions = await self.versions(writes)
        found = await self.rows(
            PUSH_TO_POLL_CALL,
            id_,
            len(writes[id_]),
            heads[id_],
            keys_of(writes[id_]),
            segments.bodies[0],
            *versions.values(),
            since,
            *[column[0] for column in columns],
        )
        claims = [(first - 1, *claim) for first, _, *claim in found if claim[0] is not None]
        return dict(zip([id_], claims, strict=False))

    async def _push_known(self, call, writes, heads, since, versions, *polls):
        ids = sorted(writes)
        if versions is None:
            versions = await self.versions(ids)
        segments = joined(writes)
        return await self.rows(
            call,
            ids,
            [len(writes[id_]) for id_ in ids],
            [heads[id_] for id_ in ids],
            [keys_of(writes[id_]) for id_ in ids],
            segments.bodies,
            list(versions),
            list(versions.values()),
            since,
            segments.row_to,
            segments.row_end,
            *polls,
        )

    async def versions(self, partition_ids: Iterable[int]) -> dict[int, int]:
        """Return the versions of the queues of these partitions, by queue id."""
        found = await self.connection.fetch(
            """
            select distinct q.id, q.version from skep.partition p
            join skep.queue q on q.id = p.queue_id where p.id = any($1::bigint[])
            """,
            list(partition_ids),
        )
        return dict(map(tuple, found))

    async def pop(self, group_id: int, *polls: Poll, bytes_max: int | None = None) -> Taken:
        """Serve polls from whatever partitions are ready."""
        leases, batches, partitions, auto_acks, lease_s = _columns(
            (p.lease_id, p.batch, p.partitions, p.auto_ack, p.lease_s) for p in polls or (Poll(),)
        )
        found = await self.rows(
            "select * from skep.pop_messages($1, $2, $3, $4, $5, $6, true, $7)",
            group_id,
            leases,
            batches,
            partitions,
            auto_acks,
            lease_s,
            bytes_max,
        )
        return Taken.of(found)

    async def pop_partitions(
        self, group_id: int, *polls: Poll, bytes_max: int | None = None
    ) -> Taken:
        """Serve polls each of which names its partition."""
        leases, partitions, batches, auto_acks, lease_s = _columns(
            (p.lease_id, p.partition_id, p.batch, p.auto_ack, p.lease_s) for p in polls
        )
        found = await self.rows(
            "select * from skep.pop_partitions($1, $2, $3, $4, $5, $6, true, $7)",
            group_id,
            leases,
            partitions,
            batches,
            auto_acks,
            lease_s,
            bytes_max,
        )
        return Taken.of(found)

    async def ack(self, *acks: Ack) -> list[Acked]:
        """Record acks in one call; return the answers in the order of the acks."""
        partitions, groups, leases, offsets, keys, statuses, errors = _columns(
            (a.partition_id, a.group, a.lease_id, a.offset, key_of(a.transaction_id), a.status,
             a.error) for a in acks
        )  # fmt: skip
        found = await self.rows(
            "select * from skep.ack_messages($1, $2, $3, $4, $5, $6, $7)",
            partitions,
            groups,
            leases,
            offsets,
            keys,
            statuses,
            errors,
        )
        return sorted(Acked(*row) for row in found)

    async def outcomes(self, *acks: Ack) -> list[str]:
        return [answer.outcome for answer in await self.ack(*acks)]

    async def renew(self, lease_id: UUID, seconds: int) -> Lease | None:
        """Extend a lease; None if it is not held any more."""
        row = await self.row("select * from skep.renew_leases($1, $2)", [lease_id], [seconds])
        return Lease(*row) if row else None

    async def release(self, partition_id: int, group_id: int, lease_id: UUID) -> int:
        """Give back a claim on one partition; return the number of partitions released."""
        query = "select skep.release_claims($1, $2, $3)"
        return await self.value(query, [partition_id], [group_id], [lease_id])

    async def next_available(self, group_id: int, partition_id: int = 0) -> float | None:
        """Return in how many seconds there will be something to claim; None if all is idle."""
        query = "select seconds from skep.next_available($1, $2)"
        return await self.value(query, [group_id], [partition_id])

    async def cursor(self, partition_id: int, group_id: int) -> Any:
        query = "select * from skep.cursor where partition_id = $1 and group_id = $2"
        return await self.row(query, partition_id, group_id)

    async def dead_letters(self) -> list[Any]:
        return list(await self.rows("select * from skep.dead_letter order by id"))


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


class Session:
    """Runs the calls of an executor in the session of a test."""

    def __init__(self, log: Log) -> None:
        self.call = log.rows


class LosesItsAnswer:
    """A session whose connection breaks after a call of a function."""

    def __init__(self, log: Log, function: str) -> None:
        self._log = log
        self._function = function

    async def call(self, statement: str, *arguments: object) -> Sequence[Any]:
        rows = await self._log.rows(statement, *arguments)
        if self._function in statement:
            raise ConnectionError
        return rows
