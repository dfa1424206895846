"""Diversion: keep pushes on disk that PostgreSQL cannot or should not take now.

Three reasons: the database is away, push maintenance is on, or the partition still has records on
disk, which come first. The items are answered `buffered` once they are durable, and `drain` stores
them later. Items that the disk refuses are answered as unavailable, never as `buffered`.

When a backlog is nearly drained, further pushes into its partitions are held in memory for a moment
instead of prolonging it; otherwise a busy partition would never go to the database again.

The log has the order of the requests, also of producers that do not wait for answers: a push goes
behind what is held, what is being written, and what is still under way to the database.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from skep.broker.directory import Directory, Partition
from skep.broker.failover.maintenance import Maintenance
from skep.broker.failover.outage import Outage
from skep.broker.push.request import (
    Entry,
    PendingWrite,
    PushRequest,
    check_labels,
    checked_transaction_id,
    fail_item,
    item_envelope,
)
from skep.broker.push.rules import QueueRules
from skep.broker.scheduled.accept import Moment, parse_moment
from skep.model.encryption import KeyRing, NoEncryptionKey
from skep.model.envelopes import checked_trace_id
from skep.model.errors import BadRequest, InvalidPayload, SkepError, Unavailable
from skep.model.names import check_name
from skep.model.wire import DEFAULT_PARTITION, PushItem
from skep.spill.log import SpillLog
from skep.spill.records import SpillRecord
from skep.spill.writer import SpillWriter

HOLD_S_MAX: Final = 2.0
HOLD_CHECK_S: Final = 0.005
HELD_ITEMS_MAX: Final = 20_000

_encode = msgspec.json.encode


class SpillStats(msgspec.Struct, frozen=True, kw_only=True):
    """The spill in numbers. Those of the directory are shared by all its processes."""

    is_usable: bool
    """Whether this process could keep a message on disk."""
    is_database_away: bool
    is_push_maintenance: bool
    pending_messages: int
    """On disk and not in PostgreSQL."""
    pending_bytes: int
    rejected_files: int
    """Records that could not be drained, each in a file of its own."""
    rejected_bytes: int
    buffered_total: int
    """Messages this process answered as `buffered`."""
    refused_total: int
    """Messages this process could not keep."""
    drained_total: int
    """Messages that went from the directory into PostgreSQL, since it was opened."""
    fsync_total: int
    """Group commits of this process."""


class Diversion:
    """Decides which pushes of one process go to disk, writes them and answers them."""

    def __init__(
        self,
        directory: Directory,
        key_ring: KeyRing,
        outage: Outage,
        maintenance: Maintenance,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._outage: Final = outage
        self._maintenance: Final = maintenance
        self._now: Final = now
        self._stager: Final = _Stager(directory, key_ring, now)
        self._held: Final = _HeldPushes(self._is_nearly_drained)
        self._spill: SpillLog | None = None
        self._writer: SpillWriter | None = None
        self._being_written: Final[Counter[tuple[str, str]]] = Counter()
        """Messages by partition that the board of the log may not know of yet."""
        self._buffered_total = 0
        self._refused_total = 0

    def open(self, spill: SpillLog) -> None:
        """Begin to use a spill log. Without one, pushes fail as unavailable."""
        self._spill = spill
        self._writer = SpillWriter(spill)

    async def close(self) -> None:
        """Answer everything that is being written; nothing may be diverted any more."""
        self._held.release()
        if self._writer is not None:
            await self._writer.close()

    @property
    def is_usable(self) -> bool:
        """Whether there is a directory to keep messages in."""
        return self._spill is not None

    @property
    def is_needed(self) -> bool:
        """Whether some pushes may have to be kept on disk."""
        # Read for every push, so it is spelled out.
        spill = self._spill
        return (
            (spill is not None and spill.board.has_backlog)
            or self._outage.is_on
            or self._maintenance.is_push_on
            or bool(self._being_written)
        )

    @property
    def _takes_all(self) -> bool:
        return self._outage.is_on or self._maintenance.is_push_on

    def _is_nearly_drained(self) -> bool:
        return not self._takes_all and self._spill is not None and self._spill.board.is_closing

    def stats(self) -> SpillStats:
        """Return the current numbers."""
        spill, writer = self._spill, self._writer
        files, rejected_bytes = spill.rejected() if spill else (0, 0)
        return SpillStats(
            is_usable=spill is not None,
            is_database_away=self._outage.is_on,
            is_push_maintenance=self._maintenance.is_push_on,
            pending_messages=spill.board.pending if spill else 0,
            pending_bytes=spill.board.end - spill.board.drained if spill else 0,
            rejected_files=files,
            rejected_bytes=rejected_bytes,
            buffered_total=self._buffered_total,
            refused_total=self._refused_total,
            drained_total=spill.board.drained_messages if spill else 0,
            fsync_total=writer.fsync_count if writer else 0,
        )

    def refuse_if_waiting(self, partition: tuple[str, str]) -> None:
        """Refuse to push into a partition now, for callers that cannot be diverted."""
        if not self.is_needed:
            return
        if self._maintenance.is_push_on:
            raise Unavailable("push maintenance is on; only plain pushes are kept")
        if self._is_waiting(partition):
            raise Unavailable("messages of this partition that came first are still being stored")

    def keeps(self, partition: tuple[str, str]) -> bool:
        """Tell whether a push into a partition has to be kept on disk now."""
        return self.is_needed and (self._takes_all or self._is_waiting(partition))

    def _is_waiting(self, partition: tuple[str, str]) -> bool:
        spill = self._spill
        return partition in self._being_written or (
            spill is not None and spill.board.is_waiting(partition)
        )

    def take(
        self,
        request: PushRequest,
        items: Sequence[PushItem],
        producer: str | None,
        retry: Callable[[], None] | None,
        is_under_way: Callable[[tuple[str, str]], bool],
    ) -> list[int]:
        """Divert what has to be, and return the positions of the items that can go on.

        Among these are items of partitions whose earlier pushes are under way: they follow those.
        `retry` is called instead when the request is held; None when it has been held already.

        Raises:
            SkepError: It cannot be kept now.
        """
        spill, positions = self._spill, range(len(items))
        if spill is None:
            self.divert_items(request, items, positions, producer)
            return []
        partitions = [(item.queue, item.partition or DEFAULT_PARTITION) for item in items]
        held = self._held
        waiting = [
            position
            for position, key in enumerate(partitions)
            if key in held.partitions or self.keeps(key)
        ]
        if not waiting:
            return list(positions)
        has_room = held.item_count < HELD_ITEMS_MAX
        if retry is not None and has_room and self._is_nearly_drained():
            held.add(partitions, retry)
            return []
        held.release()
        kept = [position for position in waiting if not is_under_way(partitions[position])]
        self.divert_items(request, items, kept, producer)
        return sorted({*positions} - {*kept})

    def divert_items(
        self,
        request: PushRequest,
        items: Sequence[PushItem],
        positions: Sequence[int],
        producer: str | None,
    ) -> None:
        """Keep the items at these positions, whether their partitions are known or not."""
        staged: list[_Staged] = []
        refusals: dict[int, SkepError] = {}
        for position in positions:
            try:
                stage = self._stager.stage_item(request, position, items[position], producer)
            except BadRequest as error:
                refusals[position] = error.with_traceback(None)
            else:
                staged.append(stage)
        self._keep(staged)
        for position, refusal in refusals.items():
            fail_item(request, position, items[position], refusal)

    def divert_write(self, write: PendingWrite) -> None:
        """Keep what is left of a write whose call did not succeed."""
        stage = self._stager.stage_entry
        self._keep_or_fail(
            [stage(write.partition, entry, known_to=write.known_to) for entry in write.unanswered()]
        )

    def divert_later(self, later: Sequence[tuple[Partition, Entry, Moment, int]]) -> None:
        """Keep items that could not be scheduled."""
        now, stage = self._now(), self._stager.stage_entry
        self._keep_or_fail(
            [
                stage(partition, entry, deliver_at=moment.due_at(now), nonce=nonce)
                for partition, entry, moment, nonce in later
            ]
        )

    def _keep(self, staged: "Sequence[_Staged]") -> None:
        """Write to disk what was not refused, and answer when it is durable."""
        accepted = [each for each in staged if each.refusal is None]
        if accepted:
            if self._writer is None:
                raise Unavailable
            addresses = [each.record.address for each in accepted]

            def confirm(error: SkepError | None) -> None:
                self._being_written.subtract(addresses)
                for address in {*addresses}:
                    if not self._being_written[address]:
                        del self._being_written[address]
                self._answer(accepted, error)

            self._writer.write([each.record for each in accepted], confirm)
            self._being_written.update(addresses)
        for each in staged:
            if each.refusal is not None:
                each.settle(each.refusal)

    def _keep_or_fail(self, staged: "Sequence[_Staged]") -> None:
        try:
            self._keep(staged)
        except SkepError as error:
            self._answer(staged, error)

    def _answer(self, staged: "Sequence[_Staged]", error: SkepError | None) -> None:
        if error is None:
            self._buffered_total += len(staged)
        else:
            self._refused_total += len(staged)
        for each in staged:
            each.settle(error)


class _Staged(NamedTuple):
    """An item to be written to disk, or the reason why not."""

    request: PushRequest
    position: int
    record: SpillRecord
    transaction_id: bytes
    trace_id: bytes
    refusal: SkepError | None

    def settle(self, error: SkepError | None) -> None:
        """Answer that the item is kept, or why it is not."""
        queue, partition = map(_encode, self.record.address)
        head = b'{"index":%d,"transaction_id":%b' % (self.position, self.transaction_id)
        tail = b'"queue":%b,"partition":%b,"trace_id":%b,"queueName":%b}' % (
            queue,
            partition,
            self.trace_id,
            queue,
        )
        if error is None:
            status = b'"status":"buffered","transactionId":%b' % self.transaction_id
        else:
            status = b'"status":"failed","error":%b' % _encode(error.message)
        self.request.settle(self.position, b"%b,%b,%b" % (head, status, tail), error=error)


@dataclass(frozen=True, slots=True)
class _Stager:
    """Checks items and turns them into records, by the rules that are known of their queues.

    Where this instance has a key, everything on disk is sealed, because the rules of a queue may
    be unknown or outdated while the database is away.
    """

    directory: Directory
    key_ring: KeyRing
    now: Callable[[], datetime]

    def stage_item(
        self, request: PushRequest, position: int, item: PushItem, producer: str | None
    ) -> _Staged:
        name = item.transaction_id = checked_transaction_id(item)
        queue = check_name("queue", item.queue)
        partition = check_name("partition", item.partition or DEFAULT_PARTITION)
        now = self.now()
        moment = parse_moment(item.deliver_at, item.delay_seconds, now)
        deliver_at = None if moment is None else moment.due_at(now)
        trace_id = checked_trace_id(item.trace_id)
        envelope = item_envelope(item, name, trace_id, producer, max(now, deliver_at or now))
        known = self.directory.partitions.get((queue, partition))
        sealed, refusal = self._enforce(known.rules if known else None, envelope)
        record = SpillRecord(queue, partition, sealed, _seconds(deliver_at))
        if known is None:
            check_labels(item)
            record = replace(record, namespace=item.namespace, task=item.task)
        return _Staged(request, position, record, _encode(name), _encode(trace_id), refusal)

    def stage_entry(
        self,
        partition: Partition,
        entry: Entry,
        *,
        deliver_at: datetime | None = None,
        known_to: int | None = None,
        nonce: int | None = None,
    ) -> _Staged:
        """Stage an item that was prepared for the database."""
        request, position, _, envelope, transaction_id, trace_id = entry
        sealed, refusal = self._enforce(partition.rules, envelope)
        record = SpillRecord(*partition.key, sealed, _seconds(deliver_at), known_to, nonce)
        return _Staged(request, position, record, transaction_id, trace_id, refusal)

    def _enforce(self, rules: QueueRules | None, envelope: bytes) -> tuple[bytes, SkepError | None]:
        """Apply what is known of the queue's rules; return the envelope as it may be written."""
        if rules is not None:
            if refusal := rules.refusal_of(envelope):
                return b"", InvalidPayload(refusal)
            if rules.is_encrypted and not self.key_ring.can_encrypt:
                return b"", NoEncryptionKey()
        if self.key_ring.can_encrypt:
            return self.key_ring.seal_envelope(envelope), None
        return bytes(envelope), None


class _Held(NamedTuple):
    retry: Callable[[], None]
    give_up_at: float


class _HeldPushes:
    """Pushes held in memory until the backlog is drained, or will not be soon."""

    def __init__(self, is_nearly_drained: Callable[[], bool]) -> None:
        self.partitions: Final[set[tuple[str, str]]] = set()
        """What they go to; later pushes must not overtake them."""
        self.item_count = 0
        self._is_nearly_drained: Final = is_nearly_drained
        self._held: Final[deque[_Held]] = deque()

    def add(self, partitions: Sequence[tuple[str, str]], retry: Callable[[], None]) -> None:
        """Hold a push with an item for each of these partitions; `retry` lets it go on."""
        loop = asyncio.get_running_loop()
        if not self._held:
            loop.call_later(HOLD_CHECK_S, self._check)
        self._held.append(_Held(retry, loop.time() + HOLD_S_MAX))
        self.partitions.update(partitions)
        self.item_count += len(partitions)

    def release(self) -> None:
        released = tuple(self._held)
        self._held.clear()
        self.partitions.clear()
        self.item_count = 0
        for held in released:
            held.retry()

    def _check(self) -> None:
        if not self._held:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._held[0].give_up_at or not self._is_nearly_drained():
            self.release()
        else:
            loop.call_later(HOLD_CHECK_S, self._check)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.astimezone(UTC).timestamp()
