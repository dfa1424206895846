"""Drain: store the messages of the spill log, in order and once each, when the database can.

One of the processes that share the directory drains; when it dies, another one takes over. The log
is drained from its beginning, so the order of every partition is that of the log.

Why nothing is stored twice: `drain_records` stores messages and how far the file is drained in one
transaction. After a crash or a lost answer the next drain is told the position and continues there,
however long ago it was. A record whose own push may have been executed before it was spilled says
up to which offset its partition was known then, and is searched for above that, regardless of the
deduplication window. Draining waits until all connections are back, because each of them first ends
the session it replaces: nothing an earlier call did can appear later.

A record that cannot be stored is found by halving its batch, set aside in a file with the reason,
and skipped; the others go on. `maxSize` does not apply here: these messages were accepted.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
import xxhash

from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import Directory, Partition, PartitionListener, PartitionProvisioner
from skep.broker.push.rules import RuleBook
from skep.broker.scheduled.accept import DueListener
from skep.db.access.errors import NotExecuted, RulesChanged
from skep.db.access.slots import Caller
from skep.engine.dedup.cache import DedupCache, Guarantee
from skep.model.encryption import OpenEnvelope
from skep.model.envelopes import cut_envelope
from skep.model.errors import InvalidPayload, Unavailable
from skep.spill.log import Portion, SpillLog
from skep.spill.records import Damaged, Found, Piece, encode_body

_log = logging.getLogger(__name__)

DRAIN_CALL: Final = (
    "select * from skep.drain_records("
    "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)"
)
FORGET_CALL: Final = "select skep.forget_drained($1, $2)"

PORTION_BYTES: Final = 2 << 20
RECORDS_PER_CALL: Final = 5_000
"""Preparing them keeps the event loop busy for some milliseconds."""
CLOSING_BYTES: Final = 2 * PORTION_BYTES
"""With so little left, pushes into the partitions that wait are held instead of being added."""

CHECK_S: Final = 0.2
"""How often to check whether there is something to drain, and whether it can be."""
RETRY_S: Final = 0.1
REST_S: Final = 1.0
"""How long to leave a database alone that does not take the messages."""
TRIES_MAX: Final = 5
PROGRESS_S: Final = 5.0
PROGRESS_KEEP_DAYS: Final = 90

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class _Head(msgspec.Struct, rename="camel"):
    transaction_id: str


class _Run(NamedTuple):
    """Pieces of one file that one call can drain."""

    file_id: UUID
    start: int
    end: int
    pieces: Sequence[Piece]
    offset: int
    """Where in the log the positions of the pieces count from."""

    @property
    def records(self) -> list[Found]:
        return [piece for piece in self.pieces if isinstance(piece, Found)]

    @property
    def is_doubtful(self) -> bool:
        return any(found.record.known_to is not None for found in self.records)

    def part(self, pieces: Sequence[Piece]) -> "_Run":
        start, end = self.offset + pieces[0].start, self.offset + pieces[-1].end
        return _Run(self.file_id, start, end, pieces, self.offset)

    def halves(self) -> tuple["_Run", "_Run"]:
        middle = len(self.pieces) // 2
        return self.part(self.pieces[:middle]), self.part(self.pieces[middle:])


class _Message(NamedTuple):
    partition: Partition
    key: bytes
    transaction_id: str
    envelope: bytes
    deliver_at: float | None
    known_to: int | None


class SpillDrain:
    """Drains a spill log into the database of one process."""

    def __init__(
        self,
        spill: SpillLog,
        caller: Caller,
        *,
        directory: Directory,
        provisioner: PartitionProvisioner,
        listener: PartitionListener,
        cache: DedupCache,
        rule_book: RuleBook,
        open_envelope: OpenEnvelope,
        announcer: Announcer,
        due: DueListener,
        hash_seed: int,
        may_drain: Callable[[], bool],
    ) -> None:
        """Take what is needed.

        `listener` prepares `cache`, which only the drain uses, for the reason `settlement` gives;
        `open_envelope` decrypts, to validate and for queues that are not encrypted; `may_drain`
        says whether the database can take messages now.
        """
        self._spill: Final = spill
        self._caller: Final = caller
        self._directory: Final = directory
        self._provisioner: Final = provisioner
        self._listener: Final = listener
        self._cache: Final = cache
        self._rule_book: Final = rule_book
        self._open: Final = open_envelope
        self._announcer: Final = announcer
        self._due: Final = due
        self._hash_seed: Final = hash_seed
        self._may_drain: Final = may_drain
        self._is_woken: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._drained_total = 0

    def start(self) -> None:
        """Begin to drain whenever there is something to drain."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Check now: something changed, and polls may be waiting for messages on disk."""
        self._is_woken.set()

    async def stop(self) -> None:
        """Stop; what is left stays on disk."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            self._is_woken.clear()
            if self._spill.board.has_backlog and self._may_drain():
                await self._drain_alone()
            with suppress(TimeoutError):
                # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with a wake.
                async with asyncio.timeout(CHECK_S):
                    await self._is_woken.wait()

    async def _drain_alone(self) -> None:
        """Drain unless another process does."""
        if not self._spill.try_lock_for_drain():
            return
        try:
            await self._drain()
        except Unavailable as error:
            _log.warning("stopped draining the spill: %s", error)
            await asyncio.sleep(REST_S)
        except Exception:  # noqa: BLE001 -- a bug must not end the draining for good
            _log.exception("a defect stopped draining the spill")
            await asyncio.sleep(REST_S)
        finally:
            self._spill.board.is_closing = False
            self._spill.unlock_for_drain()

    async def _drain(self) -> None:
        board = self._spill.board
        loop = asyncio.get_running_loop()
        drained_before, logged_at = self._drained_total, loop.time()
        _log.info("draining %d spilled messages", board.pending)
        while board.has_backlog and self._may_drain():
            end = board.end
            board.is_closing = end - board.drained <= CLOSING_BYTES
            portion = await asyncio.to_thread(
                self._spill.read, board.drained, end, bytes_max=PORTION_BYTES
            )
            if portion is None:
                board.note_drained(0, end)
                continue
            for run in _runs(portion):
                await self._drain_run(run)
                if board.drained != run.end:
                    break  # an earlier drain had come further: read on from there
            if loop.time() - logged_at > PROGRESS_S:
                logged_at = loop.time()
                _log.info("%d spilled messages are left to drain", board.pending)
        removed = await asyncio.to_thread(self._spill.remove_drained)
        if removed:
            await self._caller.call(FORGET_CALL, removed, PROGRESS_KEEP_DAYS)
        _log.info("drained %d spilled messages", self._drained_total - drained_before)

    async def _drain_run(self, run: _Run) -> None:
        """Drain pieces, or those of them that can be.

        Raises:
            Unavailable: The database cannot take them now.
        """
        tries = 0
        while True:
            try:
                await self._attempt(run)
            except RulesChanged:
                await self._rule_book.read(
                    partition.queue_id for partition in self._known_partitions(run)
                )
            except Unavailable as error:
                tries += 1
                if not self._may_drain() or (tries >= TRIES_MAX and len(run.pieces) < 2):
                    raise
                if tries >= TRIES_MAX:  # it may take too long: try with less
                    await self._isolate(run, error)
                    return
                if isinstance(error, NotExecuted):
                    self._forget_partitions(run)
                await asyncio.sleep(RETRY_S)
            except Exception as error:  # noqa: BLE001 -- any failure is some record's; halving finds whose
                await self._isolate(run, error)
                return
            else:
                return

    async def _isolate(self, run: _Run, error: Exception) -> None:
        if len(run.pieces) > 1:
            for half in run.halves():
                await self._drain_run(half)
                if self._spill.board.drained != half.end:
                    return
            return
        (piece,) = run.pieces
        data = encode_body(piece.record) if isinstance(piece, Found) else b""
        await self._set_aside(run, data, f"{type(error).__name__}: {error}")

    async def _set_aside(self, run: _Run, data: bytes, reason: str) -> None:
        path = await asyncio.to_thread(self._spill.set_aside, run.file_id, run.start, data, reason)
        _log.error("a spilled record cannot be stored and was set aside in %s: %s", path, reason)
        await self._call(run._replace(pieces=()), [])

    async def _attempt(self, run: _Run) -> None:
        if isinstance(run.pieces[0], Damaged):
            data = await asyncio.to_thread(self._spill.read_raw, run.start, run.end)
            await self._set_aside(run, data, "damaged on disk: the checksum is wrong")
            return
        await self._call(run, await self._prepare(run))

    async def _prepare(self, run: _Run) -> list[_Message]:
        """Find the partitions and apply the rules of their queues.

        Raises:
            SkepError: A record cannot be stored.
        """
        records = [found.record for found in run.records]
        keys = {record.address for record in records}
        await self._provisioner.provide(keys)
        partitions = {key: self._directory.partitions[key] for key in keys}
        await self._rule_book.read_new(partition.queue_id for partition in partitions.values())
        messages: list[_Message] = []
        for record in records:
            partition = partitions[record.address]
            envelope = self._open(record.envelope)
            if refusal := partition.rules.refusal_of(envelope):
                raise InvalidPayload(refusal)
            name = _transaction_id(envelope)
            sealed = record.envelope if partition.rules.is_encrypted else envelope
            messages.append(
                _Message(
                    partition,
                    xxhash.xxh3_128_digest(name.encode(), self._hash_seed),
                    name,
                    self._rule_book.seal(partition.rules, sealed),
                    record.deliver_at,
                    record.known_to,
                )
            )
        return messages

    async def _call(self, run: _Run, messages: Sequence[_Message]) -> None:
        batch = _Batch(messages, is_doubtful=run.is_doubtful)
        spans = self._cache.guarantee_each(each.partition_id for each in batch.partitions)
        unknown = [
            partition
            for partition, span in zip(batch.partitions, spans, strict=True)
            if span is None
        ]
        if unknown:
            await self._listener.prepare((), unknown)
        guaranteed = batch.guarantee(self._cache)
        later = batch.later
        rules = {message.partition.rules for message in messages}
        rows = await self._caller.call(
            DRAIN_CALL,
            run.file_id,
            run.start,
            run.end,
            run.is_doubtful,
            [partition.partition_id for partition in batch.partitions],
            [to for to, _ in guaranteed],
            [since for _, since in guaranteed],
            [number for number, _ in batch.sent],
            [message.key for _, message in batch.sent],
            [message.envelope for _, message in batch.sent],
            [each.queue_id for each in rules],
            [each.version for each in rules],
            [message.partition.queue_id for message in later],
            [message.partition.key[1] for message in later],
            [message.key for message in later],
            [message.transaction_id for message in later],
            [message.envelope for message in later],
            [datetime.fromtimestamp(message.deliver_at or 0, UTC) for message in later],
        )
        self._conclude(run, batch, rows)

    def _conclude(self, run: _Run, batch: "_Batch", rows: Sequence[Any]) -> None:
        progress, *stored = rows
        position: int = progress["position"]
        # When an earlier call drained it, waiting consumers were woken or will find it themselves.
        count = len(run.records) if position == run.end else 0
        self._drained_total += count
        self._spill.board.note_drained(count, position)
        batch.teach(self._cache, stored)
        partitions_by_queue = Counter([batch.partition_of(row).queue_id for row in stored])
        for queue_id, partition_count in partitions_by_queue.items():
            self._announcer.announce(queue_id, partition_count)
        if batch.later:
            soonest = min(message.deliver_at or 0 for message in batch.later)
            self._due.hear_of_due(max(0.0, soonest - datetime.now(UTC).timestamp()))

    def _known_partitions(self, run: _Run) -> list[Partition]:
        partitions = self._directory.partitions
        keys = {found.record.address for found in run.records}
        return [partition for key in keys if (partition := partitions.get(key)) is not None]

    def _forget_partitions(self, run: _Run) -> None:
        """Provision all partitions again: one of them may be gone with its queue."""
        for partition in self._known_partitions(run):
            self._directory.forget_partition(partition)
            self._cache.forget(partition.partition_id)


class _Batch:
    """The messages of one call by partition, each key once."""

    def __init__(self, messages: Sequence[_Message], *, is_doubtful: bool) -> None:
        now = _once(message for message in messages if message.deliver_at is None)
        partitions = {message.partition.partition_id: message.partition for message in now}
        self.partitions: Final = [partitions[each] for each in sorted(partitions)]
        number_by_id = {each.partition_id: n for n, each in enumerate(self.partitions, 1)}
        self.sent: Final = [
            (number_by_id[message.partition.partition_id], message) for message in now
        ]
        """Each message with the number of its partition, from 1."""
        self.later: Final = _once(message for message in messages if message.deliver_at is not None)
        self._is_doubtful: Final = is_doubtful

    def guarantee(self, cache: DedupCache) -> list[Guarantee]:
        """Return for each partition what need not be searched for these keys."""
        if self._is_doubtful:
            known: dict[int, int] = {}
            for number, message in self.sent:
                known_to = message.known_to or 0
                known[number] = min(known_to, known.get(number, known_to))
            return [(known[number], _NEVER) for number in range(1, len(self.partitions) + 1)]
        keys: list[list[bytes]] = [[] for _ in self.partitions]
        for number, message in self.sent:
            keys[number - 1].append(message.key)
        ids = [partition.partition_id for partition in self.partitions]
        hits = cache.find(list(zip(ids, map(b"".join, keys), strict=True)))
        suspects = {hit.write for hit in hits}
        return [
            (0, _NEVER) if span is None or write in suspects else span
            for write, span in enumerate(cache.guarantee_each(ids))
        ]

    def partition_of(self, row: Any) -> Partition:
        """Return the partition that a row of the answer is about."""
        number: int = row["partition"]
        return self.partitions[number - 1]

    def teach(self, cache: DedupCache, rows: Sequence[Any]) -> None:
        """Let the cache learn what this call stored, and other processes before it."""
        for row in rows:
            partition_id = self.partition_of(row).partition_id
            if row["gap_keys"] is not None:
                cache.adopt(partition_id, row["gap_first"], row["gap_keys"], row["gap_created_at"])
            if row["first"] is not None:
                stored: list[int] = row["stored_item"]
                keys = b"".join([self.sent[item - 1][1].key for item in stored])
                cache.record(partition_id, row["first"], keys, row["created_at"])


def _once(messages: Iterable[_Message]) -> list[_Message]:
    """Return the first message with each key of a partition."""
    first: dict[tuple[int, bytes], _Message] = {}
    for message in messages:
        first.setdefault((message.partition.partition_id, message.key), message)
    return list(first.values())


def _runs(portion: Portion) -> list[_Run]:
    """Divide a portion into runs of one kind; a damaged piece is a run of its own."""
    whole = _Run(portion.file_id, portion.start, portion.end, portion.pieces, portion.start)
    groups: list[list[Piece]] = []
    kind: object = None
    for piece in portion.pieces:
        its_kind = _kind(piece)
        is_alone = isinstance(piece, Damaged)
        if is_alone or its_kind != kind or len(groups[-1]) >= RECORDS_PER_CALL:
            groups.append([])
        groups[-1].append(piece)
        kind = None if is_alone else its_kind
    return [whole.part(group) for group in groups]


def _kind(piece: Piece) -> str:
    if isinstance(piece, Damaged):
        return "damaged"
    return "plain" if piece.record.known_to is None else "doubtful"


def _transaction_id(envelope: bytes) -> str:
    head, _ = cut_envelope(envelope)
    return msgspec.json.decode(head + b"}", type=_Head).transaction_id
