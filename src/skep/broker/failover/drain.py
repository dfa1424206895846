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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
import xxhash

from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import Directory, Partition
from skep.broker.polling_loop import end_task
from skep.broker.push.request import queue_labels
from skep.broker.push.rules import RuleBook
from skep.broker.scheduled.accept import DueListener
from skep.broker.transaction.cached_partitions import CachedPartitions, KeyedBatch
from skep.db.access.errors import NotExecuted, RulesChanged
from skep.db.access.slots import Caller
from skep.engine.key_cache.cache import NO_GUARANTEE, Guarantee
from skep.model.encryption import OpenEnvelope
from skep.model.envelopes import cut_envelope
from skep.model.errors import InvalidPayload, Unavailable
from skep.spill.log import Portion, SpillLog
from skep.spill.records import Damaged, Found, Piece, encode_body

_log = logging.getLogger(__name__)

DRAIN_CALL: Final = (
    "select * from skep.drain_records("
    "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)"
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

_OUTCOME: Final = itemgetter(
    "partition", "first", "created_at", "gap_first", "gap_keys", "gap_created_at"
)


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
    nonce: int | None


@dataclass(slots=True, eq=False)
class SpillDrain:
    """Drains a spill log into the database of one process."""

    spill: SpillLog
    caller: Caller
    directory: Directory
    partitions: CachedPartitions
    rule_book: RuleBook
    open_envelope: OpenEnvelope
    announcer: Announcer
    due: DueListener
    hash_seed: int
    may_drain: Callable[[], bool]
    _is_woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _drained_total: int = field(default=0, init=False)

    def start(self) -> None:
        """Begin to drain whenever there is something to drain."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Check now: something changed, and polls may be waiting for messages on disk."""
        self._is_woken.set()

    async def stop(self) -> None:
        """Stop; what is left stays on disk."""
        await end_task(self._task)

    async def _run(self) -> None:
        while True:
            self._is_woken.clear()
            if self.spill.board.has_backlog and self.may_drain():
                await self._drain_alone()
            with suppress(TimeoutError):
                # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with a wake.
                async with asyncio.timeout(CHECK_S):
                    await self._is_woken.wait()

    async def _drain_alone(self) -> None:
        """Drain unless another process does."""
        if not self.spill.try_lock_for_drain():
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
            self.spill.board.is_closing = False
            self.spill.unlock_for_drain()

    async def _drain(self) -> None:
        board = self.spill.board
        loop = asyncio.get_running_loop()
        drained_before, logged_at = self._drained_total, loop.time()
        _log.info("draining %d spilled messages", board.pending)
        while board.has_backlog and self.may_drain():
            end = board.end
            board.is_closing = end - board.drained <= CLOSING_BYTES
            portion = await asyncio.to_thread(
                self.spill.read, board.drained, end, bytes_max=PORTION_BYTES
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
        removed = await asyncio.to_thread(self.spill.remove_drained)
        if removed:
            await self.caller.call(FORGET_CALL, removed, PROGRESS_KEEP_DAYS)
        _log.info("drained %d spilled messages", self._drained_total - drained_before)

    async def _drain_run(self, run: _Run) -> None:
        """Drain pieces, or those of them that can be."""
        tries = 0
        while True:
            try:
                await self._attempt(run)
            except RulesChanged:
                await self.rule_book.read(
                    partition.queue_id for partition in self._known_partitions(run)
                )
            except Unavailable as error:
                tries += 1
                if not self.may_drain() or (tries >= TRIES_MAX and len(run.pieces) < 2):
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
                if self.spill.board.drained != half.end:
                    return
            return
        (piece,) = run.pieces
        data = encode_body(piece.record) if isinstance(piece, Found) else b""
        await self._set_aside(run, data, f"{type(error).__name__}: {error}")

    async def _set_aside(self, run: _Run, data: bytes, reason: str) -> None:
        path = await asyncio.to_thread(self.spill.set_aside, run.file_id, run.start, data, reason)
        _log.error("a spilled record cannot be stored and was set aside in %s: %s", path, reason)
        await self._call(run._replace(pieces=()), [])

    async def _attempt(self, run: _Run) -> None:
        if isinstance(run.pieces[0], Damaged):
            data = await asyncio.to_thread(self.spill.read_raw, run.start, run.end)
            await self._set_aside(run, data, "damaged on disk: the checksum is wrong")
            return
        await self._call(run, await self._prepare(run))

    async def _prepare(self, run: _Run) -> list[_Message]:
        """Find the partitions and apply the rules of their queues."""
        records = [found.record for found in run.records]
        keys = {record.address for record in records}
        # The first push into a queue creates it, so its labels replace those of later ones.
        partitions = await self.partitions.find(keys, queue_labels(reversed(records)))
        await self.rule_book.read_new(partition.queue_id for partition in partitions.values())
        messages: list[_Message] = []
        for record in records:
            partition = partitions[record.address]
            envelope = self.open_envelope(record.envelope)
            if refusal := partition.rules.refusal_of(envelope):
                raise InvalidPayload(refusal)
            name = _transaction_id(envelope)
            sealed = record.envelope if partition.rules.is_encrypted else envelope
            messages.append(
                _Message(
                    partition,
                    xxhash.xxh3_128_digest(name.encode(), self.hash_seed),
                    name,
                    self.rule_book.seal(partition.rules, sealed),
                    record.deliver_at,
                    record.known_to,
                    record.nonce,
                )
            )
        return messages

    async def _call(self, run: _Run, messages: Sequence[_Message]) -> None:
        batch = KeyedBatch(
            [(message.partition, message) for message in messages if message.deliver_at is None]
        )
        later = [message for message in messages if message.deliver_at is not None]
        guaranteed = (
            _known_before(batch) if run.is_doubtful else self.partitions.guarantee(batch.writes())
        )
        rules = {message.partition.rules for message in messages}
        rows = await self.caller.call(
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
            [message.nonce for message in later],
        )
        progress, *stored = rows
        position: int = progress["position"]
        # When an earlier call drained it, waiting consumers were woken or will find it themselves.
        count = len(run.records) if position == run.end else 0
        self._drained_total += count
        self.spill.board.note_drained(count, position)
        batch.teach(
            self.partitions.cache,
            map(_OUTCOME, stored),
            [batch.sent[int(item) - 1] for row in stored for item in row["stored_item"] or ()],
        )
        partitions_by_queue = Counter(
            [batch.partitions[int(row["partition"]) - 1].queue_id for row in stored]
        )
        for queue_id, partition_count in partitions_by_queue.items():
            self.announcer.announce(queue_id, partition_count)
        if later:
            soonest = min(message.deliver_at or 0 for message in later)
            self.due.hear_of_due(max(0.0, soonest - datetime.now(UTC).timestamp()))

    def _known_partitions(self, run: _Run) -> list[Partition]:
        partitions = self.directory.partitions
        keys = {found.record.address for found in run.records}
        return [partition for key in keys if (partition := partitions.get(key)) is not None]

    def _forget_partitions(self, run: _Run) -> None:
        """Provision all partitions again: one of them may be gone with its queue."""
        for partition in self._known_partitions(run):
            self.partitions.forget(partition)


def _known_before(batch: KeyedBatch[_Message]) -> list[Guarantee]:
    """Return for each partition up to which offset it was known when the push was spilled."""
    known: dict[int, int] = {}
    for number, message in batch.sent:
        known_to = message.known_to or 0
        known[number] = min(known_to, known.get(number, known_to))
    return [(known[number], NO_GUARANTEE[1]) for number in range(1, len(batch.partitions) + 1)]


def _runs(portion: Portion) -> list[_Run]:
    """Divide a portion into runs of one kind; a damaged piece is a run of its own."""
    whole = _Run(portion.file_id, portion.start, portion.end, portion.pieces, portion.start)
    runs: list[_Run] = []
    for kind, group in groupby(portion.pieces, _kind):
        pieces, size = list(group), 1 if kind == "damaged" else RECORDS_PER_CALL
        runs += [whole.part(pieces[at : at + size]) for at in range(0, len(pieces), size)]
    return runs


def _kind(piece: Piece) -> str:
    if isinstance(piece, Damaged):
        return "damaged"
    return "plain" if piece.record.known_to is None else "doubtful"


def _transaction_id(envelope: bytes) -> str:
    head, _ = cut_envelope(envelope)
    return msgspec.json.decode(head + b"}", type=_Head).transaction_id
