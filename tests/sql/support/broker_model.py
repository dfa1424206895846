"""What brokers that act at once have committed: the log, and where its readers are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from tests.sql.support.log import QUEUE_MODE, Ack, Delivered, Poll
from tests.sql.support.processes import Sent

GROUPS = ("bees", QUEUE_MODE)


class Claim(NamedTuple):
    """What one poll got from one partition."""

    partition_id: int
    group: str
    lease_id: UUID
    offsets: list[int]


@dataclass
class Cursor:
    acked: int = 0
    leased: int | None = None
    ends_at: datetime | None = None
    lease_id: UUID | None = None
    claimed_from: int | None = None
    """The position before the last claim, while that can be given back."""


@dataclass
class Partition:
    name: str
    id: int
    touched_at: datetime
    messages: list[tuple[str, datetime]] = field(default_factory=list[tuple[str, datetime]])
    """All that were ever stored, with the time of each."""
    tail: int = 1
    cursors: dict[str, Cursor] = field(
        default_factory=lambda: {group: Cursor() for group in GROUPS}
    )

    @property
    def head(self) -> int:
        return len(self.messages)

    def position(self, group: str) -> int:
        return max(self.cursors[group].acked, self.tail - 1)

    def like(self, name: str, since: datetime) -> int | None:
        """Return the newest place where a name is kept that was stored after a moment."""
        places = [
            at
            for at, (other, created_at) in enumerate(self.messages, 1)
            if other == name and at >= self.tail and created_at > since
        ]
        return max(places, default=None)


class Ledger:
    """The committed state of one queue."""

    def __init__(self) -> None:
        self.window = timedelta(seconds=3600)
        self.retention_s = 0
        self._partitions: dict[int, Partition] = {}

    def by_id(self, id_: int) -> Partition | None:
        return self._partitions.get(id_)

    def add_partition(self, name: str, id_: int, now: datetime) -> None:
        self._partitions.setdefault(id_, Partition(name, id_, now))

    # Pushes

    def check_push(self, sent: Sent, now: datetime) -> None:
        """Check that a push stored what was new, under the lock of its partition."""
        partition, since = self._partitions.get(sent.partition_id), now - self.window
        if partition is None:
            assert sent.first is None
            return
        ever = {name for name, _ in partition.messages}
        assert sent.known.keys() <= ever, "a duplicate of nothing"
        expected = {
            index: at
            for index, name in enumerate(sent.names)
            if (at := partition.like(name, since)) is not None
        }
        if sent.row is None:
            assert not expected, "a guarantee that is out of date was believed"
        else:
            assert (sent.row.duplicates or {}) == expected
            if sent.guarantee is not None:
                is_current = sent.guarantee.to == partition.head
                assert not is_current or sent.guarantee.since > since, "a guarantee was refused"
        if sent.names and not expected:
            assert sent.first == partition.head + 1
        else:
            assert sent.first is None

    def check_distinct(
        self, id_: int, names: Sequence[str], settled: Any, now: datetime
    ) -> list[str]:
        """Check where a transaction's messages went; return those that are new."""
        partition, since = self._partitions[id_], now - self.window
        known = {name: partition.like(name, since) for name in names}
        new = [name for name, at in known.items() if at is None]
        offsets = dict(zip(new, range(partition.head + 1, partition.head + 9), strict=False))
        assert settled.offsets == [known[name] or offsets[name] for name in names]
        assert settled.duplicates == [known[name] is not None for name in names]
        return new

    def append(self, id_: int, names: Sequence[str], created_at: datetime) -> None:
        partition = self._partitions[id_]
        partition.messages += [(name, created_at) for name in names]
        partition.touched_at = max(partition.touched_at, created_at)

    # Polls

    def check_claim(
        self, id_: int, group: str, messages: Sequence[Delivered], now: datetime
    ) -> None:
        """Check that a poll got the next messages committed, of a partition that is free."""
        partition = self._partitions[id_]
        cursor, position = partition.cursors[group], partition.position(group)
        assert cursor.leased is None or (cursor.ends_at or now) <= now, "it was leased"
        expected = range(position + 1, position + 1 + len(messages))
        assert [message.offset for message in messages] == [*expected]
        names = [partition.messages[at - 1][0] for at in expected]
        assert [message.transaction_id for message in messages] == names

    def check_nothing_left_out(
        self,
        group: str,
        poll: Poll,
        taken: Mapping[int, Sequence[Delivered]],
        asked: set[int] | None,
        now: datetime,
    ) -> None:
        """Check that a poll that met no other got all it could."""
        if len(taken) == poll.partitions or sum(map(len, taken.values())) == poll.batch:
            return
        for id_, partition in self._partitions.items():
            cursor = partition.cursors[group]
            is_free = cursor.leased is None or (cursor.ends_at or now) <= now
            if is_free and (asked is None or id_ in asked):
                left = partition.head - partition.position(group) - len(taken.get(id_, ()))
                assert left == 0, "a ready partition was left out"

    def claim(self, claim: Claim, ends_at: datetime | None) -> None:
        partition = self._partitions[claim.partition_id]
        cursor = partition.cursors[claim.group]
        cursor.acked = cursor.claimed_from = claim.offsets[0] - 1
        cursor.lease_id, cursor.ends_at = claim.lease_id, ends_at
        cursor.leased = claim.offsets[-1]
        if ends_at is None:
            cursor.acked, cursor.leased = claim.offsets[-1], None

    def unread(self, group: str) -> list[int]:
        """Return the partitions in which a group has not read everything."""
        return [id_ for id_, each in self._partitions.items() if each.position(group) < each.head]

    # Acks

    def outcome(self, ack: Ack, now: datetime) -> str | None:
        """Return what an ack is answered, None if there is nothing to answer."""
        partition = self._partitions.get(ack.partition_id)
        if partition is None or ack.offset is None:
            return None
        cursor = partition.cursors[ack.group]
        if ack.offset <= cursor.acked:
            return "noop" if ack.status == "completed" else "already_done"
        is_held = cursor.leased is not None and cursor.ends_at is not None and cursor.ends_at > now
        if not is_held or cursor.lease_id != ack.lease_id:
            return "lease_lost"
        return "acked" if ack.status == "completed" else "retried"

    def ack(self, ack: Ack, outcome: str | None) -> None:
        if outcome in ("acked", "retried") and ack.partition_id in self._partitions:
            cursor = self._partitions[ack.partition_id].cursors[ack.group]
            cursor.acked = ack.offset if outcome == "acked" and ack.offset else cursor.acked
            cursor.claimed_from = None
            if outcome == "retried" or cursor.acked == cursor.leased:
                cursor.leased = None

    def can_release(self, claim: Claim) -> bool:
        partition = self._partitions.get(claim.partition_id)
        if partition is None:
            return False
        cursor = partition.cursors[claim.group]
        is_last = cursor.lease_id == claim.lease_id
        return is_last and (cursor.leased is not None or cursor.claimed_from is not None)

    def release(self, claim: Claim) -> None:
        cursor = self._partitions[claim.partition_id].cursors[claim.group]
        if cursor.leased is None and cursor.claimed_from is not None:
            cursor.acked = cursor.claimed_from
        cursor.leased = cursor.lease_id = None

    # Cleaning up

    def check_retention(self, tails: Mapping[int, int], now: datetime) -> None:
        """Check that only old messages went."""
        since = now - timedelta(seconds=self.retention_s)
        for id_, tail in tails.items():
            if id_ not in self._partitions:
                continue
            partition = self._partitions[id_]
            gone = partition.messages[partition.tail - 1 : tail - 1]
            assert not gone or self.retention_s
            assert all(created_at < since for _, created_at in gone), "young messages went"

    def move_tails(self, tails: Mapping[int, int], *, is_told: bool = False) -> None:
        """Let the oldest messages go; retention tells their readers."""
        for id_, tail in tails.items():
            partition = self._partitions.get(id_)
            if partition is None or tail <= partition.tail:
                continue
            partition.tail = tail
            for cursor in partition.cursors.values() if is_told else ():
                if cursor.acked < tail - 1:
                    cursor.acked = tail - 1
                    if cursor.leased is not None:
                        cursor.claimed_from = None
                        cursor.leased = cursor.leased if tail - 1 < cursor.leased else None

    def check_removal(self, left: set[int], before: datetime, *, is_alone: bool) -> set[int]:
        """Check that only empty partitions were removed that are idle; return their ids."""
        gone = self._partitions.keys() - left
        idle = {
            id_
            for id_, partition in self._partitions.items()
            if partition.head < partition.tail and partition.touched_at < before
        }
        assert gone <= idle, "a partition in use was removed"
        assert not is_alone or gone == idle
        return gone

    def remove(self, ids: set[int]) -> None:
        for id_ in ids:
            self._partitions.pop(id_, None)

    # What is in the database

    def compare_log(
        self,
        found: Mapping[int, tuple[int, int, list[tuple[int, int, bytes]]]],
        keys_of: Callable[[Sequence[str]], bytes],
    ) -> None:
        """Check that the log is dense and is what was committed."""
        assert self._partitions.keys() <= found.keys()
        for id_, (head, tail, segments) in found.items():
            partition = self._partitions.get(id_)
            if partition is None:
                assert head == 0
                continue
            assert (head, tail) == (partition.head, partition.tail)
            offset = tail
            for first, last, _ in segments:
                assert first == offset, "the log has a gap"
                offset = last + 1
            assert offset == head + 1
            kept = [name for name, _ in partition.messages[tail - 1 :]]
            assert b"".join(keys for _, _, keys in segments) == keys_of(kept)

    def compare_cursors(self, found: Mapping[tuple[int, str], Any]) -> None:
        """Check where the cursors stand, and that none is asleep before a message."""
        for id_, partition in self._partitions.items():
            for group, cursor in partition.cursors.items():
                row = found[id_, group]
                if cursor.acked < row["acked"] < partition.tail:
                    # A poll found out that the oldest messages are gone.
                    cursor.acked, cursor.leased = row["acked"], row["leased"]
                    cursor.lease_id = cursor.claimed_from = None
                assert row["acked"] == cursor.acked, "the position moved, or did not"
                assert row["leased"] == cursor.leased or cursor.leased is not None
                is_behind = partition.position(group) < partition.head
                assert row["available_at"] is not None or not is_behind, "a wake-up was lost"
