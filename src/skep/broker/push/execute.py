"""Store a batch of pushes in few calls, each message once.

Duplicates are found in three places: within the flush, in this process's cache (confirmed by one
look-up), and by the database: before the push where the cache has no memory of the window
(`search_windows`), in it for what others stored meanwhile. Partitions that only this process pushes
into go through `push_guaranteed`, which stores what the cache guarantees without a look-up. Where
others push too, `push_contested` stores it as well and compares it with what they stored meanwhile.
The rest goes through `push_segments`, which probes what the cache does not guarantee. Where that
finds duplicates it stores nothing for the partition and returns their positions; the other messages
are sent again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import Directory, Partition, PartitionProvisioner
from skep.broker.pop.hand_over import Claim, HandOvers, Offer
from skep.broker.push.request import NULL, Entry, PendingWrite, fail_entry
from skep.broker.push.rules import Enforcer, QueueRules, RuleBook
from skep.broker.push.stored_keys import KeyLoader
from skep.db.access.errors import DuplicateInGap, RulesChanged
from skep.db.access.slots import Caller
from skep.engine.key_cache.cache import (
    ALWAYS,
    KEY_BYTES,
    NO_GUARANTEE,
    Guarantee,
    KeyCache,
    Segment,
)
from skep.model.envelopes import join_segments
from skep.model.errors import PartitionDeferred, SkepError, Unavailable
from skep.model.ids import OFFSET_LOW_BITS, message_id_head
from skep.telemetry.meters import Meters

PUSH_CALL: Final = "select * from skep.push_segments($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
PUSH_GUARANTEED_CALL: Final = (
    "select * from skep.push_guaranteed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
)
HAND_OVER_CALL: Final = """
select partition_id, first, created_at, null::bigint, null::bigint, null::boolean, null::boolean
from skep.push_guaranteed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, false)
union all
select partition_id, null, null, taken_from, taken_to, is_individual, is_only
from skep.hand_over($1, $2, $11, $12, $13, $14)
"""
PUSH_TO_POLL_CALL: Final = (
    "select * from skep.push_to_poll($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
)
PUSH_CONTESTED_CALL: Final = (
    "select * from skep.push_contested($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
)
SEARCH_CALL: Final = "select * from skep.search_windows($1, $2, $3, $4)"
CONFIRM_CALL: Final = "select * from skep.confirm_duplicates($1, $2, $3)"


class Flush(msgspec.Struct, eq=False):
    """The entries of one call for one partition, and how they are answered."""

    partition: Partition
    writes: list[PendingWrite] = []
    entries: list[Entry] = []
    keys: bytes = b""
    guarantee: Guarantee = NO_GUARANTEE
    """Where the keys are known to be absent. It holds whatever the cache forgets or learns."""
    are_new: bool = False
    """The keys are of transaction ids that were made here, for this call: none is stored yet."""
    is_admitted: bool = False
    body_bytes: int = 0
    repeats: list[Entry] = []
    """Entries whose key an earlier entry of the flush has."""
    offset_by_key: dict[bytes, int] = {}
    """Where those earlier ones went."""

    def gather(self) -> None:
        """Take the unanswered entries of the writes, as they were sent, by the current rules.

        In a queue that looks for duplicates the first entry with a key decides for all with it.
        """
        self.repeats = []
        self.are_new = all(write.are_new and not write.was_tried for write in self.writes)
        entries = _unanswered(self.writes)
        keys = [entry[2] for entry in entries]
        if self.partition.rules.dedup_window_s and len(set(keys)) < len(keys):
            first_by_key: dict[bytes, Entry] = {}
            for entry in entries:
                if first_by_key.setdefault(entry[2], entry) is not entry:
                    self.repeats.append(entry)
            entries = list(first_by_key.values())
            keys = list(first_by_key)
        self.entries = entries
        self.keys = b"".join(keys)

    def keep(self, entries: list[Entry]) -> None:
        """Go on with these entries only; the others have their results."""
        self.entries = entries
        self.keys = b"".join([entry[2] for entry in entries])
        if not entries:
            self.settle()

    def seal(self, seal: Callable[[bytes], bytes]) -> None:
        """Encrypt the envelopes; `gather` restores them."""
        self.entries = [(*entry[:3], seal(entry[3]), *entry[4:]) for entry in self.entries]

    def envelopes(self) -> list[bytes]:
        """Return what is to be stored."""
        envelopes = [entry[3] for entry in self.entries]
        self.body_bytes = sum(map(len, envelopes))
        return envelopes

    def refuse(self, entry: Entry, error: SkepError) -> None:
        """Answer that an entry is not stored, nor are those with its key."""
        repeats = [each for each in self.repeats if each[2] == entry[2]]
        self.repeats = [each for each in self.repeats if each[2] != entry[2]]
        for each in (entry, *repeats):
            fail_entry(self.partition, each, error)

    def refuse_all(self, error: SkepError) -> None:
        """Answer that nothing of the flush is stored."""
        for entry in self.entries:
            self.refuse(entry, error)
        self.keep([])

    def answer_stored(self, first: int) -> None:
        """Answer that the entries were stored from the offset `first` on."""
        partition = self.partition
        head = partition.message_id_head
        if first > OFFSET_LOW_BITS:
            head = message_id_head(partition.partition_id, first)
        low = first & OFFSET_LOW_BITS
        untraced = partition.result_end
        for request, position, _, _, transaction_id, trace_id in self.entries:
            request.results[position] = (
                b'{"index":%d,"transaction_id":%b,"status":"queued","message_id":"%b%012x%b'
                % (
                    position,
                    transaction_id,
                    head,
                    low,
                    untraced if trace_id is NULL else _result_end(partition, trace_id),
                )
            )
            request.pending -= 1
            if not request.pending:
                request.finish()
            low += 1
        if self.repeats:
            stored_at = enumerate(self.entries, start=first)
            self.offset_by_key.update({entry[2]: offset for offset, entry in stored_at})
        self.settle()

    def answer_duplicates(
        self, found: Iterable[tuple[int, int]], *, queued_above: int | None
    ) -> None:
        """Answer the entries found stored already, and keep the others.

        Args:
            found: (index in the flush, offset where it is stored).
            queued_above: Offsets above it were stored by an earlier attempt of this very call.
        """
        offset_by_index = dict(found)
        for index, offset in offset_by_index.items():
            is_ours = queued_above is not None and offset > queued_above
            self.offset_by_key[self.entries[index][2]] = offset
            self._answer_at(self.entries[index], offset, b"queued" if is_ours else b"duplicate")
        self.keep([e for i, e in enumerate(self.entries) if i not in offset_by_index])

    def settle(self) -> None:
        """Answer the repeats, now that it is known where the first ones went; end the writes."""
        for entry in self.repeats:
            self._answer_at(entry, self.offset_by_key[entry[2]], b"duplicate")
        for write in self.writes:
            write.is_settled = True

    def _answer_at(self, entry: Entry, offset: int, status: bytes) -> None:
        request, position, _, _, transaction_id, trace_id = entry
        result = b'{"index":%d,"transaction_id":%b,"status":"%b","message_id":"%b%012x%b' % (
            position,
            transaction_id,
            status,
            message_id_head(self.partition.partition_id, offset),
            offset & OFFSET_LOW_BITS,
            _result_end(self.partition, trace_id),
        )
        request.settle(position, result)


def _by_partition(writes: Iterable[PendingWrite]) -> dict[int, Flush]:
    """Join the writes of each partition; those without an unanswered entry are settled."""
    flushes: dict[int, Flush] = {}
    for write in writes:
        flush = flushes.get(write.partition.partition_id)
        if flush is None:
            flush = flushes[write.partition.partition_id] = Flush(write.partition)
        flush.writes.append(write)
    for partition_id, flush in tuple(flushes.items()):
        flush.gather()
        if not flush.entries:
            flush.settle()
            del flushes[partition_id]
    return flushes


def _unanswered(writes: Sequence[PendingWrite]) -> list[Entry]:
    if len(writes) == 1 and not writes[0].was_tried:
        writes[0].was_tried = True
        return writes[0].entries
    entries: list[Entry] = []
    for write in writes:
        entries += write.unanswered() if write.was_tried else write.entries
        write.was_tried = True
    return entries


def _result_end(partition: Partition, trace_id: bytes) -> bytes:
    """Render the part of a result that follows the message id."""
    return b'","partition_id":"%b","trace_id":%b,"queueName":%b}' % (
        partition.uuid,
        trace_id,
        partition.queue_json,
    )


@dataclass(slots=True, eq=False, frozen=True)
class PushExecutor:
    """Executor of the operation `push`."""

    caller: Caller
    directory: Directory
    provisioner: PartitionProvisioner
    loader: KeyLoader
    rule_book: RuleBook
    enforcer: Enforcer
    cache: KeyCache
    announcer: Announcer
    hand_overs: HandOvers
    now: Callable[[], datetime]
    meters: Meters = field(default_factory=Meters)

    async def execute(self, batch: Sequence[PendingWrite], *, is_repeated: bool) -> None:
        """Store the writes; what an earlier attempt stored is recognised by its keys."""
        try:
            await self._store(batch, is_repeated=is_repeated)
        except (Unavailable, asyncio.CancelledError):
            self._note_known_offsets(batch)
            raise

    def _note_known_offsets(self, writes: Sequence[PendingWrite]) -> None:
        """A lost call may have stored some of the writes: note the offset that would lie above."""
        spans = self.cache.guarantee_each([write.partition.partition_id for write in writes])
        for write, span in zip(writes, spans, strict=True):
            if write.known_to is None and span is not None:
                write.known_to = span[0]

    async def _store(self, batch: Sequence[PendingWrite], *, is_repeated: bool) -> None:
        flushes = _by_partition(batch)
        lacking = self.loader.lacking([flush.partition for flush in flushes.values()])
        if is_repeated:
            # What was known before the lost attempt tells its messages from those of others.
            lacking = [each for each in lacking if self.cache.guarantee(each.partition_id) is None]
        if lacking:
            await self.loader.load(lacking)
        await self._answer_known_duplicates(flushes)
        await self.enforcer.enforce(flushes, is_repeated=is_repeated)
        if not is_repeated:
            await self._push_guaranteed(flushes)
            if flushes:
                # Others stored more than could be compared, or something that is pushed again here.
                await self.loader.load([flush.partition for flush in flushes.values()])
                await self._answer_known_duplicates(flushes)
                await self._push_guaranteed(flushes)
        while flushes:
            pending = [flushes[partition_id] for partition_id in sorted(flushes)]
            try:
                rows = await self._push_probed(pending, is_repeated=is_repeated)
            except RulesChanged:
                await self._follow_rules(flushes, is_repeated=is_repeated)
                continue
            flushes = await self._apply(rows, flushes, is_repeated=is_repeated)

    async def _answer_known_duplicates(self, flushes: dict[int, Flush]) -> None:
        """Take out what the cache knows to be stored, and note what it guarantees of the rest."""
        candidates = [flush for flush in flushes.values() if not flush.are_new]
        hits = self.cache.find([(each.partition.partition_id, each.keys) for each in candidates])
        spans = self.cache.guarantee_each(flushes)
        for flush, span in zip(flushes.values(), spans, strict=True):
            to, since = span or NO_GUARANTEE
            flush.guarantee = to, ALWAYS if flush.are_new else since
        if not hits:
            return
        verdicts = await self.caller.call(
            CONFIRM_CALL,
            [candidates[write].partition.partition_id for write, _, _ in hits],
            [offset for _, _, offset in hits],
            [candidates[write].entries[index][2] for write, index, _ in hits],
        )
        duplicates: dict[int, list[tuple[int, int]]] = {}
        for number, is_same_key, is_in_window in verdicts:
            write, index, offset = hits[int(number) - 1]
            if not is_same_key:
                # Two keys share a fingerprint: the cache cannot prove that this one is absent.
                candidates[write].guarantee = NO_GUARANTEE
            elif is_in_window:
                duplicates.setdefault(write, []).append((index, offset))
        for write, found in duplicates.items():
            flush = candidates[write]
            self._answer_duplicates(flush, found)
            if not flush.entries:
                del flushes[flush.partition.partition_id]

    async def _search_windows(self, flushes: Collection[Flush]) -> bool:
        """Search what the cache has no memory for in these windows; tell if there is any."""
        unknown = [
            flush
            for flush in flushes
            if flush.guarantee != NO_GUARANTEE and flush.partition.rules.dedup_window_s
        ]
        if not unknown:
            return False
        self.meters.windows_searched += len(unknown)
        rows = await self.caller.call(
            SEARCH_CALL,
            [flush.partition.partition_id for flush in unknown],
            [flush.keys for flush in unknown],
            [flush.guarantee[0] for flush in unknown],
            [flush.guarantee[1] for flush in unknown],
        )
        by_id = {flush.partition.partition_id: flush for flush in unknown}
        for partition_id, window_start, positions, offsets in rows:
            flush = by_id[partition_id]
            flush.guarantee = flush.guarantee[0], min(window_start, flush.guarantee[1])
            if positions is not None:
                self._answer_duplicates(flush, list(zip(positions, offsets, strict=True)))
        return True

    def _answer_duplicates(self, flush: Flush, found: Sequence[tuple[int, int]]) -> None:
        self._count_duplicates(flush, len(found))
        flush.answer_duplicates(found, queued_above=None)

    async def _push_guaranteed(self, flushes: dict[int, Flush]) -> None:
        """Store and take out what the cache guarantees, but for what others stored meanwhile."""
        guaranteed, rules = self._find_guaranteed(flushes)
        if len(guaranteed) < len(flushes):
            known = {flush for flush, _ in guaranteed}
            if await self._search_windows([each for each in flushes.values() if each not in known]):
                for id_ in [id_ for id_, flush in flushes.items() if not flush.entries]:
                    del flushes[id_]
                guaranteed, rules = self._find_guaranteed(flushes)
        if not guaranteed:
            return
        try:
            if not any(flush.partition.contested_pushes for flush, _ in guaranteed):
                offer = None
                if self.hand_overs.are_waited_for(len(guaranteed)):
                    offer = self.hand_overs.offer(
                        [(flush.partition, flush.envelopes()) for flush, _ in guaranteed]
                    )
                if offer is not None:
                    await self._push_and_hand_over(flushes, guaranteed, rules, offer)
                else:
                    rows = await self._push_known(PUSH_GUARANTEED_CALL, guaranteed, rules)
                    self._settle_stored([(flushes.pop(id_), first, at) for id_, first, at in rows])
                guaranteed = [
                    each for each in guaranteed if each[0].partition.partition_id in flushes
                ]
                if not guaranteed:
                    return
            await self._push_contested(flushes, guaranteed, rules)
        except RulesChanged:
            await self._follow_rules(flushes, is_repeated=False)
        except DuplicateInGap:
            pass  # which ones, and where they are stored, is found by probing

    async def _push_and_hand_over(
        self,
        flushes: dict[int, Flush],
        guaranteed: Sequence[tuple[Flush, Guarantee]],
        rules: Sequence[QueueRules],
        offer: Offer,
    ) -> None:
        """Store and take out what the cache guarantees, and answer polls that wait for it."""
        with offer:
            placed, claims = await self._store_for_polls(guaranteed, rules, offer)
            stored = {id_: (flushes.pop(id_), *placed[id_]) for id_ in placed}
            self._settle_stored(
                list(stored.values()),
                handed_over={id_ for id_, claim in claims.items() if claim.is_only},
            )
            for partition_id, claim in claims.items():
                flush, _, created_at = stored[partition_id]
                offer.give(flush.partition, claim, flush.envelopes(), flush.keys, created_at)

    async def _store_for_polls(
        self,
        guaranteed: Sequence[tuple[Flush, Guarantee]],
        rules: Sequence[QueueRules],
        offer: Offer,
    ) -> tuple[dict[int, tuple[int, datetime]], dict[int, Claim]]:
        """Store and claim; return where and when what was stored, and what polls get of it."""
        columns = offer.columns([flush.partition.partition_id for flush, _ in guaranteed])
        placed: dict[int, tuple[int, datetime]] = {}
        claims: dict[int, Claim] = {}
        if len(guaranteed) == 1:
            ((flush, (to, since)),) = guaranteed
            partition = flush.partition
            segments = join_segments([flush.envelopes()])
            if len(segments.bodies) == 1:
                for first, created_at, taken_to, is_individual, is_only in await self.caller.call(
                    PUSH_TO_POLL_CALL,
                    partition.partition_id,
                    len(flush.entries),
                    to if partition.rules.dedup_window_s else None,
                    flush.keys,
                    segments.bodies[0],
                    partition.rules.version,
                    since,
                    *[column[0] for column in columns],
                ):
                    placed[partition.partition_id] = first, created_at
                    if taken_to is not None:
                        claim = Claim(first - 1, taken_to, is_individual, is_only)
                        claims[partition.partition_id] = claim
                return placed, claims
        rows = await self._push_known(HAND_OVER_CALL, guaranteed, rules, *columns)
        for partition_id, first, created_at, *claim in rows:
            if first is not None:
                placed[partition_id] = first, created_at
            else:
                claims[partition_id] = Claim(*claim)
        return placed, claims

    async def _push_contested(
        self,
        flushes: dict[int, Flush],
        guaranteed: Sequence[tuple[Flush, Guarantee]],
        rules: Sequence[QueueRules],
    ) -> None:
        """Store and take out what does not occur in the segments of others; learn their keys."""
        stored: list[tuple[Flush, int, datetime]] = []
        gaps: list[Segment] = []
        for partition_id, first, created_at, keys in await self._push_known(
            PUSH_CONTESTED_CALL, guaranteed, rules
        ):
            if keys is None:
                stored.append((flushes.pop(partition_id), first, created_at))
            else:
                gaps.append((partition_id, first, keys, created_at))
        shared = {partition_id for partition_id, *_ in gaps}
        for flush, _, _ in stored:
            flush.partition.note_pushed(is_shared=flush.partition.partition_id in shared)
        self.cache.record_flush(gaps)
        self._settle_stored(stored)

    async def _push_known(
        self,
        call: str,
        guaranteed: Sequence[tuple[Flush, Guarantee]],
        rules: Sequence[QueueRules],
        *polls: Sequence[object],
    ) -> Sequence[Any]:
        """Store flushes with what the cache guarantees of them."""
        segments = join_segments([flush.envelopes() for flush, _ in guaranteed])
        return await self.caller.call(
            call,
            [flush.partition.partition_id for flush, _ in guaranteed],
            [len(flush.entries) for flush, _ in guaranteed],
            [to if flush.partition.rules.dedup_window_s else None for flush, (to, _) in guaranteed],
            [flush.keys for flush, _ in guaranteed],
            segments.bodies,
            [each.queue_id for each in rules],
            [each.version for each in rules],
            max(since for _, (_, since) in guaranteed),
            segments.row_to,
            segments.row_end,
            *polls,
        )

    def _find_guaranteed(
        self, flushes: dict[int, Flush]
    ) -> tuple[list[tuple[Flush, Guarantee]], list[QueueRules]]:
        """Return, by partition id, the flushes whose whole window is guaranteed."""
        now = self.now()
        window_start: dict[QueueRules, datetime] = {}
        guaranteed: list[tuple[Flush, Guarantee]] = []
        for partition_id in sorted(flushes):
            flush = flushes[partition_id]
            rules = flush.partition.rules
            start = window_start.get(rules)
            if start is None:
                start = window_start[rules] = now - timedelta(seconds=rules.dedup_window_s)
            if flush.guarantee[1] <= start:
                guaranteed.append((flush, flush.guarantee))
        return guaranteed, list(window_start)

    async def _push_probed(self, flushes: Sequence[Flush], *, is_repeated: bool) -> Sequence[Any]:
        """Store what has no duplicates; the database probes what the cache does not guarantee."""
        partition_ids = [flush.partition.partition_id for flush in flushes]
        rules = {flush.partition.rules for flush in flushes}
        segments = join_segments([flush.envelopes() for flush in flushes])
        return await self.caller.call(
            PUSH_CALL,
            partition_ids,
            [len(flush.entries) for flush in flushes],
            [flush.guarantee[0] for flush in flushes],
            [flush.guarantee[1] for flush in flushes],
            [flush.keys for flush in flushes],
            segments.bodies,
            is_repeated,
            [each.queue_id for each in rules],
            [each.version for each in rules],
            segments.row_to,
            segments.row_end,
        )

    async def _follow_rules(self, flushes: dict[int, Flush], *, is_repeated: bool) -> None:
        """Read the rules of reconfigured queues and apply them to what is under way."""
        await self.rule_book.read(flush.partition.queue_id for flush in flushes.values())
        for flush in flushes.values():
            flush.gather()
        await self.enforcer.enforce(flushes, is_repeated=is_repeated)

    async def _apply(
        self, rows: Sequence[Any], flushes: dict[int, Flush], *, is_repeated: bool
    ) -> dict[int, Flush]:
        """Answer what was stored or found, and return what has to be sent again."""
        again: dict[int, Flush] = {}
        stored: list[tuple[Flush, int, datetime]] = []
        cache = self.cache
        for row in rows:
            partition_id, first, created_at, positions, offsets, gap_first, gap_keys, gap_at = row
            flush = flushes.pop(partition_id)
            flush.partition.note_pushed(is_shared=gap_keys is not None)
            if gap_keys is not None:
                cache.adopt(partition_id, gap_first, gap_keys, gap_at)
                compared_to = gap_first + len(gap_keys) // KEY_BYTES - 1
                flush.guarantee = compared_to, flush.guarantee[1]
            if first is not None:
                stored.append((flush, first, created_at))
                continue
            if not positions:  # operations wait for the partition
                flush.refuse_all(PartitionDeferred(partition_id=partition_id))
                continue
            known_to = (cache.guarantee(partition_id) or NO_GUARANTEE)[0]
            if not is_repeated:
                self._count_duplicates(flush, len(positions))
            flush.answer_duplicates(
                zip(positions, offsets, strict=True),
                # Above what was known before the lost attempt lies what that attempt stored.
                queued_above=(gap_first or known_to + 1) - 1 if is_repeated else None,
            )
            if flush.entries:
                again[partition_id] = flush
        self._settle_stored(stored)
        for flush in flushes.values():  # their partitions are gone
            await self._provision_again(flush)
            again[flush.partition.partition_id] = flush
        return again

    def _settle_stored(
        self,
        stored: Sequence[tuple[Flush, int, datetime]],
        *,
        handed_over: Collection[int] = (),
    ) -> None:
        """Answer what was stored, remember its keys and wake the consumers that wait for it."""
        self.cache.record_flush(
            [
                (flush.partition.partition_id, first, flush.keys, created_at)
                for flush, first, created_at in stored
            ]
        )
        partitions_by_queue: Counter[int] = Counter()
        for flush, _, _ in stored:
            partition = flush.partition
            partitions_by_queue[partition.queue_id] += partition.partition_id not in handed_over
        messages = 0
        for flush, first, _ in stored:
            queue = self.meters.queues.of(flush.partition.key[0])
            queue.push_messages += len(flush.entries)
            queue.push_bytes += flush.body_bytes
            queue.push_duplicates += len(flush.repeats)
            messages += len(flush.entries)
            flush.partition.head = first + len(flush.entries) - 1
            flush.answer_stored(first)
        if messages:
            self.meters.operations["push"].messages.observe(messages)
        for queue_id, partition_count in partitions_by_queue.items():
            self.announcer.announce(queue_id, partition_count)

    def _count_duplicates(self, flush: Flush, count: int) -> None:
        self.meters.queues.of(flush.partition.key[0]).push_duplicates += count

    async def _provision_again(self, flush: Flush) -> None:
        """Create the partition of a deleted queue again, under a new id."""
        self.directory.forget_partition(flush.partition)
        self.cache.forget(flush.partition.partition_id)
        await self.provisioner.provide({flush.partition.key})
        flush.partition = self.directory.partitions[flush.partition.key]
        flush.guarantee = NO_GUARANTEE  # its keys were looked up in the partition that is gone
        for write in flush.writes:
            write.partition = flush.partition
