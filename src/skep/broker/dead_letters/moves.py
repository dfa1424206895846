"""Push the messages of dead letters again.

A letter's message is pushed under the transaction id `dlq:<id of the letter>`, and the letter is
deleted in the same transaction. So it happens once, however often it is requested. Headers, trace
id and producer stay; an encrypted message stays encrypted, and any message is encrypted if its new
queue requires it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import xxhash

from skep.broker.cluster.wakeups import Announcer
from skep.broker.messages.stored_message import (
    SealEnvelope,
    is_encrypted,
    leave_as_it_is,
    refuse_to_seal,
    with_transaction_id,
)
from skep.db.access.slots import Caller
from skep.model.encryption import OpenEnvelope
from skep.model.names import check_name
from skep.model.wire import DEFAULT_PARTITION

REDRIVE_CALL: Final = "select * from skep.redrive_letters($1, $2, $3, $4, $5, $6, $7)"
PROVISION_CALL: Final = "select * from skep.provision_partitions($1, $2)"
ENCRYPTED_CALL: Final = "select name from skep.queue where encryption_enabled and name = any($1)"


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where to redrive to. None: the queue, or the partition, that the message came from."""

    queue: str | None = None
    partition: str | None = None

    def check(self) -> None:
        """Make sure that the names can be used.

        Raises:
            BadRequest: One of them cannot.
        """
        for kind, name in (("queue", self.queue), ("partition", self.partition)):
            if name is not None:
                check_name(kind, name)


class Letter(msgspec.Struct, frozen=True):
    """A dead letter to redrive: where its message was, and the message."""

    id: int
    queue: str
    partition: str | None
    envelope: bytes


class Batch(msgspec.Struct, frozen=True):
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


class Mover:
    """Pushes the messages of dead letters again."""

    def __init__(
        self,
        caller: Caller,
        announcer: Announcer,
        *,
        hash_seed: int,
        open_envelope: OpenEnvelope = leave_as_it_is,
        seal_envelope: SealEnvelope = refuse_to_seal,
    ) -> None:
        self._caller: Final = caller
        self._announcer: Final = announcer
        self._hash_seed: Final = hash_seed
        self._open: Final = open_envelope
        self._seal: Final = seal_envelope

    async def move(
        self, letters: Sequence[Letter], target: Target, batch: Batch | None = None
    ) -> list[Moved]:
        """Move letters to the target, all in one transaction.

        Returns:
            What became of each; nothing when the batch belongs to a job that does not run.

        Raises:
            Refused: A message should be encrypted and cannot be.
            NotExecuted: A letter vanished meanwhile; nothing was moved.
        """
        keys = [partition_of(letter, target) for letter in letters]
        partitions = await self._provide(sorted(set(keys)))
        encrypted = await self._encrypted({queue for queue, _ in keys})
        names = [transaction_id_of(letter.id) for letter in letters]
        rows = await self._caller.call(
            REDRIVE_CALL,
            [letter.id for letter in letters],
            [partitions[key] for key in keys],
            [xxhash.xxh3_128_digest(name.encode(), self._hash_seed) for name in names],
            [
                self._rename(letter.envelope, name, is_secret=queue in encrypted)
                for letter, name, (queue, _) in zip(letters, names, keys, strict=True)
            ],
            *((batch.job_id, batch.owner, batch.position) if batch else (None, None, None)),
        )
        moved = [Moved(*row) for row in rows]
        self._announce(moved)
        return moved

    async def _provide(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
        rows = await self._caller.call(
            PROVISION_CALL, [queue for queue, _ in keys], [partition for _, partition in keys]
        )
        return {(row["queue_name"], row["partition_name"]): row["partition_id"] for row in rows}

    async def _encrypted(self, queues: set[str]) -> set[str]:
        rows = await self._caller.call(ENCRYPTED_CALL, sorted(queues))
        return {row["name"] for row in rows}

    def _rename(self, envelope: bytes, transaction_id: str, *, is_secret: bool) -> bytes:
        """Give a message its new transaction id; what was encrypted stays so, wherever it goes."""
        renamed = with_transaction_id(self._open(envelope), transaction_id)
        return self._seal(renamed) if is_secret or is_encrypted(envelope) else renamed

    def _announce(self, moved: Sequence[Moved]) -> None:
        by_queue: dict[int, set[int | None]] = {}
        for each in moved:
            if each.result == "moved" and each.queue_id is not None:
                by_queue.setdefault(each.queue_id, set()).add(each.partition_id)
        for queue_id, partitions in by_queue.items():
            self._announcer.announce(queue_id, len(partitions))


def transaction_id_of(letter_id: int) -> str:
    """Return the transaction id of a redriven message, which makes repeating harmless."""
    return f"dlq:{letter_id}"


def partition_of(letter: Letter, target: Target) -> tuple[str, str]:
    """Return the names of the queue and the partition that a letter goes to."""
    partition = target.partition or letter.partition or DEFAULT_PARTITION
    return target.queue or letter.queue, partition
