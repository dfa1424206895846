"""Dead letters: show, delete, or redrive what groups gave up on.

A dead letter belongs to one group: deleting it touches neither the message nor the letters of other
groups, and what is redriven reaches only that group: the cursors of the others pass over it in the
same transaction. A target that the group does not read delivers to all groups of its queue, as does
any target with `groups: all`.

A redriven message is pushed under the transaction id `dlq:<id of the letter>`, and the letter is
deleted in the same transaction. So it happens once, however often it is requested. Headers, trace
id and producer stay; an encrypted message stays encrypted, and any message is encrypted if its new
queue requires it.
"""

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import xxhash
from msgspec.structs import asdict

from skep.broker.cluster.wakeups import Announcer
from skep.broker.messages import stored_message as stored
from skep.broker.paging import Page, from_row
from skep.broker.timestamps import in_utc
from skep.db.access.errors import NotExecuted
from skep.db.access.functions import Functions
from skep.model.encryption import OpenEnvelope
from skep.model.errors import BadRequest, NotFound, Refused, SkepError
from skep.model.ids import message_id, partition_uuid
from skep.model.names import check_name
from skep.model.wire import DEFAULT_PARTITION

COUNT_MAX: Final = 10_000
"""Totals of lists are exact up to here. Counting on would cost more than the page itself."""

ENCRYPTED_CALL: Final = "select name from skep.queue where encryption_enabled and name = any($1)"

DELETE_BATCH: Final = 1_000
REPLAY_TRIES: Final = 3
"""A letter that vanishes while its message is pushed is looked for again; it is gone then."""


REDRIVEN_CALL: Final = (
    "select id, to_partition_id, to_offset from skep.redriven_letter where id = any($1) order by id"
)


class LetterGone(NotFound):
    """The dead letter does not exist, or does not exist any more."""

    code = "gone"


class AlreadyRedriven(Refused):
    """Dead letters were redriven before."""

    code = "already_redriven"


class LetterFilter(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"consumer_group": "consumerGroup", "since": "from", "until": "to"},
):
    """Which dead letters; None matches everything."""

    queue: str | None = None
    consumer_group: str | None = None
    partition: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    ids: tuple[int, ...] | None = None

    def arguments(self) -> tuple[object, ...]:
        """Return the first arguments of every function that takes a filter."""
        if self.partition is not None and self.queue is None:
            raise BadRequest("partition requires queue: many queues have partitions of one name")
        return (
            self.queue,
            self.consumer_group,
            self.partition,
            in_utc(self.since),
            in_utc(self.until),
            self.error or None,
            None if self.ids is None else list(self.ids),
        )


class DeadLetter(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A message that a group gave up on."""

    dlq_id: int
    id: str
    """Of the message."""
    transaction_id: str
    partition_id: str
    queue: str | None
    """Null: it was deleted, and its dead letters will be."""
    partition: str | None
    """Null: it was removed since."""
    consumer_group: str | None
    error_message: str
    retry_count: int
    attempts: int
    """How often it failed; the same as `retryCount`."""
    data: msgspec.Raw
    payload_error: str | None = None
    """Why the payload cannot be shown: this broker lacks its key."""
    headers: msgspec.Raw
    trace_id: str | None
    producer_sub: str | None
    created_at: datetime
    failed_at: datetime


class DescribedLetter(DeadLetter, frozen=True, kw_only=True):
    """A dead letter, or the record of one that was redriven: then there is no payload."""

    state: Literal["dead", "redriven"]
    redriven_at: datetime | None
    redriven_to: str | None
    """The id of the message that it became."""


class DeadLetterPage(msgspec.Struct, rename="camel", frozen=True):
    """Dead letters, the newest failure first."""

    messages: list[DeadLetter]
    total: int
    total_is_estimate: bool
    """There are more than `total`."""
    pagination: Page


class Replayed(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What became of one dead letter."""

    success: Literal[True] = True
    result: Literal["moved", "duplicate"]
    """duplicate: the target holds the message already; the dead letter is kept."""
    dlq_id: int
    replayed_as: str
    """The id of the message that it became."""
    transaction_id: str
    original_transaction_id: str
    consumer_group: str | None
    queue: str
    partition: str


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where to redrive to. None: the queue, or the partition, that the message came from."""

    queue: str | None = None
    partition: str | None = None
    groups: Literal["failed", "all"] = "failed"
    """Who gets the message: the group that failed, if it reads the target; or all groups."""

    def check(self) -> None:
        """Make sure that the names can be used."""
        for kind, name in (("queue", self.queue), ("partition", self.partition)):
            if name is not None:
                check_name(kind, name)


class Letter(msgspec.Struct, frozen=True):
    """A dead letter to redrive: where its message was, and the message."""

    id: int
    queue: str
    partition: str | None
    envelope: bytes

    @classmethod
    def of(cls, row: Any) -> "Letter":
        """Make it of a row of the database."""
        return cls(row["id"], row["queue_name"], row["partition_name"], row["envelope"].encode())


class Batch(NamedTuple):
    """The part of a redrive job that a move is."""

    job_id: str
    owner: str
    position: int


class Moved(msgspec.Struct, frozen=True):
    """What became of a letter: moved, duplicate or gone."""

    letter_id: int
    result: str
    queue_id: int | None
    partition_id: int | None
    offset: int | None


_Shape = TypeVar("_Shape", bound=DeadLetter)


@dataclass(frozen=True, slots=True, eq=False)
class DeadLetters:
    """Lists, deletes and redrives dead letters; one that is gone raises `LetterGone`."""

    sql: Functions
    announcer: Announcer
    hash_seed: int
    open_envelope: OpenEnvelope = stored.leave_as_it_is
    seal_envelope: stored.SealEnvelope = stored.refuse_to_seal

    async def list_letters(self, chosen: LetterFilter, limit: int, offset: int) -> DeadLetterPage:
        """Return a page of the letters chosen, and how many there are."""
        arguments = chosen.arguments()
        rows = await self.sql.rows("list_dead_letters", *arguments, limit, offset)
        total, is_estimate = await self.count(chosen, COUNT_MAX)
        return DeadLetterPage(
            messages=[self._shown(DeadLetter, row) for row in rows],
            total=total,
            total_is_estimate=is_estimate,
            pagination=Page(limit, offset),
        )

    async def count(self, chosen: LetterFilter, bound: int) -> tuple[int, bool]:
        """Return how many letters are chosen, up to a bound, and whether there are more."""
        counted = await self.sql.value("count_dead_letters", *chosen.arguments(), bound)
        return min(counted, bound), counted > bound

    async def describe(self, letter_id: int) -> DescribedLetter:
        """Return one letter, or the record of its redrive."""
        row = await self._find(letter_id)
        is_redriven = row["redriven_at"] is not None
        return self._shown(
            DescribedLetter,
            row,
            state="redriven" if is_redriven else "dead",
            redriven_to=message_id(row["to_partition_id"], row["to_offset"])
            if is_redriven
            else None,
        )

    async def delete(self, chosen: LetterFilter) -> int:
        """Delete the letters chosen, and return how many there were."""
        arguments = chosen.arguments()
        total = 0
        while True:
            count = await self.sql.value("delete_dead_letters", *arguments, DELETE_BATCH)
            total += count
            if count < DELETE_BATCH:
                return total

    async def delete_one(self, letter_id: int) -> None:
        """Delete one letter."""
        if not await self.delete(LetterFilter(ids=(letter_id,))):
            raise LetterGone(f"dead letter {letter_id} is gone")

    async def require_dead(self, chosen: LetterFilter, *, again: bool) -> LetterFilter:
        """Refuse named letters that were redriven; with `again`, make letters of them once more."""
        redriven = await self.sql.call(REDRIVEN_CALL, list(chosen.ids or ()))
        if not redriven:
            return chosen
        names = ", ".join(str(row["id"]) for row in redriven)
        if not again:
            first = message_id(redriven[0]["to_partition_id"], redriven[0]["to_offset"])
            raise AlreadyRedriven(
                f"redriven already: {names}; {redriven[0]['id']} is message {first}. Send "
                '"again": true to push again'
            )
        ids = [row["id"] for row in redriven]
        restored = dict(map(tuple, await self.sql.rows("restore_letters", ids)))
        if len(restored) < len(ids):
            raise LetterGone(f"messages are not stored any more: one or several of {names}")
        return msgspec.structs.replace(
            chosen, ids=tuple(restored.get(each, each) for each in chosen.ids or ())
        )

    async def replay(self, letter_id: int, target: Target) -> Replayed:
        """Redrive one letter."""
        target.check()
        for attempt in range(REPLAY_TRIES):
            row = await self._find(letter_id)
            if row["redriven_at"] is not None:
                became = message_id(row["to_partition_id"], row["to_offset"])
                raise LetterGone(f"dead letter {letter_id} is gone: redriven as {became}")
            if row["queue_name"] is None:
                raise LetterGone(f"dead letter {letter_id} is gone: its queue was deleted")
            letter = Letter.of(row)
            try:
                (moved,) = await self.move([letter], target)
            except NotExecuted:
                if attempt == REPLAY_TRIES - 1:
                    raise
                continue
            if moved.partition_id is not None and moved.offset is not None:
                queue, partition = partition_of(letter, target)
                return Replayed(
                    result="moved" if moved.result == "moved" else "duplicate",
                    dlq_id=letter_id,
                    replayed_as=message_id(moved.partition_id, moved.offset),
                    transaction_id=transaction_id_of(letter_id),
                    original_transaction_id=row["transaction_id"],
                    consumer_group=row["group_name"],
                    queue=queue,
                    partition=partition,
                )
        raise LetterGone(f"dead letter {letter_id} is gone")

    async def move(
        self, letters: Sequence[Letter], target: Target, batch: Batch | None = None
    ) -> list[Moved]:
        """Move letters to the target, all in one transaction, and return what became of each.

        Nothing is returned when the batch belongs to a job that does not run. `NotExecuted` means
        that a letter vanished meanwhile, and nothing was moved.
        """
        keys = [partition_of(letter, target) for letter in letters]
        wanted = zip(*sorted(set(keys)), strict=True)
        found = await self.sql.rows("provision_partitions", *map(list, wanted))
        partitions = {
            (row["queue_name"], row["partition_name"]): row["partition_id"] for row in found
        }
        queues = sorted({queue for queue, _ in keys})
        encrypted = {row["name"] for row in await self.sql.call(ENCRYPTED_CALL, queues)}
        names = [transaction_id_of(letter.id) for letter in letters]
        rows = await self.sql.rows(
            "redrive_letters",
            [letter.id for letter in letters],
            [partitions[key] for key in keys],
            [xxhash.xxh3_128_digest(name.encode(), self.hash_seed) for name in names],
            [
                self._rename(letter.envelope, name, is_secret=queue in encrypted)
                for letter, name, (queue, _) in zip(letters, names, keys, strict=True)
            ],
            *(batch or (None, None, None)),
            target.groups == "all",
        )
        moved = [Moved(*row) for row in rows]
        self._announce(moved)
        return moved

    def _rename(self, envelope: bytes, transaction_id: str, *, is_secret: bool) -> bytes:
        """Give a message its new transaction id; what was encrypted stays so, wherever it goes."""
        renamed = stored.with_transaction_id(self.open_envelope(envelope), transaction_id)
        return (
            self.seal_envelope(renamed) if is_secret or stored.is_encrypted(envelope) else renamed
        )

    def _announce(self, moved: Sequence[Moved]) -> None:
        by_queue: dict[int, set[int | None]] = {}
        for each in moved:
            if each.result == "moved" and each.queue_id is not None:
                by_queue.setdefault(each.queue_id, set()).add(each.partition_id)
        for queue_id, partitions in by_queue.items():
            self.announcer.announce(queue_id, len(partitions))

    async def _find(self, letter_id: int) -> Any:
        missing = LetterGone(f"dead letter {letter_id} is gone")
        return await self.sql.row("describe_letter", letter_id, missing=missing)

    def _shown(self, shape: type[_Shape], row: Any, **members: Any) -> _Shape:
        content, payload_error = self._content(row["envelope"])
        return from_row(
            shape,
            ChainMap(row, asdict(content)),
            dlq_id=row["id"],
            id=message_id(row["partition_id"], row["message_offset"]),
            partition_id=partition_uuid(row["partition_id"]),
            queue=row["queue_name"],
            partition=row["partition_name"],
            consumer_group=row["group_name"],
            error_message=row["error"],
            retry_count=row["failures"],
            attempts=row["failures"],
            payload_error=payload_error,
            **members,
        )

    def _content(self, envelope: str | None) -> tuple[stored.Envelope, str | None]:
        """Decode an envelope; one that cannot be decrypted shows its head and the reason."""
        if envelope is None:
            return stored.Envelope(transaction_id=""), None
        sealed = envelope.encode()
        try:
            return stored.read_envelope(self.open_envelope(sealed)), None
        except SkepError as error:
            return stored.read_head(sealed), error.message


def transaction_id_of(letter_id: int) -> str:
    """Return the transaction id of a redriven message, which makes repeating harmless."""
    return f"dlq:{letter_id}"


def partition_of(letter: Letter, target: Target) -> tuple[str, str]:
    """Return the names of the queue and the partition that a letter goes to."""
    partition = target.partition or letter.partition or DEFAULT_PARTITION
    return target.queue or letter.queue, partition
