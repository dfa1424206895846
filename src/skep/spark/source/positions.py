"""Positions: how far a reader has come, as a set of transactions.

Messages of a queue are committed by many writers at once, and transaction ids are handed out when
a transaction begins to write, not when it commits. So neither an id nor a time says what a reader
has seen; a snapshot of PostgreSQL does: it knows which transactions were still open. A position is
such a snapshot. What a micro-batch from A to B brings is what B sees and A does not: a late commit
is never skipped, and the set is the same whenever it is read again.

A snapshot is cut right behind the newest segment it sees (`Snapshot.cut`). Transactions beyond it
are ignored: some might not survive a crash of the server, which would then hand out their ids
again, and a position must not claim to have seen those.

When a span is too large for one micro-batch it is read in the order of addresses (transaction,
partition, first offset), and the position remembers the address it has come to (`Part`). Such a
span is finished before the next one begins.

A position says which queues it speaks of (`queues`). One that is added later has been read by none
of it: before the next span it is read up to where the others are, in the same way (`Joining`).

Snapshots mean something along one history of the server. A failover or a recovery to a point in
time begins a new timeline, on which ids that were seen may be given to other transactions; so a
position names its timeline, and the time of the newest segment it has seen as a sample of it.

Pure: nothing here connects. `skep.spark.source.message_log` takes positions, SQL reads spans.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

from skep.model.errors import Refused

_SNAPSHOT: Final = re.compile(r"(\d{1,20}):(\d{1,20}):((?:\d{1,20}(?:,\d{1,20})*)?)")
_SYSTEM: Final = re.compile(r"\d+:\d+(?::[a-z0-9_]+)?")
"""Of a cluster, a database in it, and the schema there unless that has the default's name."""
_RANGES: Final = re.compile(r"(?:\d{1,19}(?:-\d{1,19})?(?:,\d{1,19}(?:-\d{1,19})?)*)?")
BEHIND: Final = "behind"
"""The member in which a reader shows its lag, beside a position. It is no part of that."""
_MEMBERS: Final = {
    *(BEHIND, "checked", "joining", "newest", "part", "partitions", "queues", "rewound", "seen"),
    *("since", "system", "taken", "timeline", "version"),
}
VERSION: Final = 2
"""Of the spelling. The first one had neither a number nor queues, and is read, too."""


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds_of(moment: datetime) -> int:
    """Return a moment in microseconds of the epoch."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment_of(moment_us: int) -> datetime:
    """Return a moment that is given in microseconds of the epoch.

    By integers: a float has too few digits for the microseconds of this century.
    """
    return EPOCH + timedelta(microseconds=moment_us)


class InvalidPosition(Refused):
    """This is not a position in the log that a reader could go on from."""


class Address(NamedTuple):
    """Where a segment lies, in the order in which spans are read."""

    xid: int
    partition_id: int
    first: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which transactions had ended: those below `xmax` that are not `in_progress`."""

    xmax: int
    in_progress: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; raise `InvalidPosition`."""
        spelled = _SNAPSHOT.fullmatch(text)
        if spelled is None:
            raise InvalidPosition(f"{text!r} is not a snapshot, spelled xmin:xmax:xip")
        xmin, xmax = int(spelled[1]), int(spelled[2])
        in_progress = frozenset(map(int, spelled[3].split(","))) if spelled[3] else frozenset[int]()
        if not 0 < xmin <= xmax or not all(xmin <= xid < xmax for xid in in_progress):
            raise InvalidPosition(f"the snapshot {text!r} contradicts itself")
        return cls(xmax, in_progress)

    @property
    def xmin(self) -> int:
        """The oldest transaction that had not ended."""
        return min(self.in_progress, default=self.xmax)

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.in_progress)))}"

    def cut(self, xmax: int) -> "Snapshot":
        """Forget everything from `xmax` on, as if none of that had ended."""
        below = min(xmax, self.xmax)
        return Snapshot(below, frozenset(xid for xid in self.in_progress if xid < below))

    def with_all_below(self, xid: int) -> "Snapshot":
        """Return a snapshot that sees, besides, every transaction below that one."""
        return Snapshot(
            max(self.xmax, xid), frozenset(each for each in self.in_progress if each >= xid)
        )

    def covers(self, other: "Snapshot") -> bool:
        """Tell whether everything that the other one sees is seen here."""
        hidden_here = {xid for xid in self.in_progress if xid < other.xmax}
        # Above our xmax the other may be longer only by transactions it does not see.
        hidden_above = sum(self.xmax <= xid < other.xmax for xid in other.in_progress)
        is_above = max(other.xmax - self.xmax, 0)
        return hidden_here <= other.in_progress and hidden_above == is_above

    def common(self, other: "Snapshot") -> "Snapshot":
        """Return what both see."""
        xmax = min(self.xmax, other.xmax)
        both = self.in_progress | other.in_progress
        return Snapshot(xmax, frozenset(xid for xid in both if xid < xmax))


NOTHING: Final = Snapshot(1)
"""The snapshot that sees nothing: real transactions begin at 3."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a span that was read: all that `snapshot` sees up to an address."""

    snapshot: Snapshot
    through: Address


@dataclass(frozen=True, slots=True)
class Joining:
    """Queues that are being read up to where the others are; only then all go on together."""

    queues: tuple[int, ...]
    partitions: tuple[int, ...] | None
    seen: Snapshot
    """What this sees of them is not wanted."""
    through: Address
    """How far they were read."""
    since_us: int | None = None
    """Only what was created from here on: it is read again after a change of the timeline."""

    def is_of(self, other: "Joining | None") -> bool:
        """Tell whether the other one is another step of the same."""
        return other is not None and replace(self, through=other.through) == other

    def wanted_from(self, since_us: int | None) -> int | None:
        """Return from when on messages are wanted, for a reader that wants them since then."""
        known = [each for each in (since_us, self.since_us) if each is not None]
        return max(known, default=None)


@dataclass(frozen=True, slots=True)
class Position:
    """What a reader has seen.

    system: The cluster and database in which these transaction ids mean anything.
    seen: Everything this sees has been read.
    checked: Removals of segments that this sees have been looked at: they happened before the
        reader began, or it was told about them.
    taken_us: When it was taken, in microseconds of the epoch. What had expired by then is left out
        by the reader that comes to this position, and again when it has to repeat that.
    since_us: Messages created before this moment are not wanted.
    part: What has been read beyond `seen`.
    queues: The ids of the queues that were read; None if they are not known.
    partitions: The ids of the only partitions that were read; None for all.
    timeline: The history of the server that the transaction ids belong to.
    newest_us: When the newest segment that `target` sees was created.
    joining: Queues of which less has been read, and how much.
    is_rewound: Some of what the position before it had seen was lost by the server. Between the
        two lies only what joins.
    """

    system: str
    seen: Snapshot
    checked: Snapshot
    taken_us: int = 0
    since_us: int | None = None
    part: Part | None = None
    queues: tuple[int, ...] | None = None
    partitions: tuple[int, ...] | None = None
    timeline: int | None = None
    newest_us: int | None = None
    joining: Joining | None = None
    is_rewound: bool = False

    @property
    def target(self) -> Snapshot:
        """What will have been seen once the present span is finished."""
        return self.part.snapshot if self.part else self.seen

    @property
    def held(self) -> Snapshot:
        """What has been read of every queue: the log has to be kept from there on."""
        return self.joining.seen.common(self.seen) if self.joining else self.seen

    def to_json(self) -> dict[str, Any]:
        """Return the members as Spark keeps them, always in the same order.

        Spark compares positions by their text, so equal ones must be spelled alike.
        """
        part, joining = self.part, self.joining
        members: dict[str, Any] = {
            "checked": str(self.checked),
            "joining": joining and _joining_members(joining),
            "newest": self.newest_us,
            "part": part and {"snapshot": str(part.snapshot), "through": list(part.through)},
            "partitions": _ranges(self.partitions),
            "queues": _ranges(self.queues),
            "rewound": self.is_rewound or None,
            "seen": str(self.seen),
            "since": self.since_us,
            "system": self.system,
            "taken": self.taken_us,
            "timeline": self.timeline,
            "version": None if self.queues is None else VERSION,
        }
        return _given(members)

    def __str__(self) -> str:
        return json.dumps(self.to_json(), sort_keys=True)

    @classmethod
    def from_json(cls, members: Any) -> Self:
        """Read what `to_json` made; raise `InvalidPosition` if it is something else."""
        try:
            if set(members) >= {"version"} and int(members["version"]) > VERSION:
                raise InvalidPosition(
                    f"the position has the form {members['version']}, and this version of Skep "
                    f"knows up to {VERSION}: read on with the newer version that wrote it"
                )
            if set(members) - _MEMBERS or not _SYSTEM.fullmatch(members["system"]):
                raise InvalidPosition(f"this is not a position of Skep: {json.dumps(members)}")
            return cls(
                members["system"],
                Snapshot.parse(members["seen"]),
                Snapshot.parse(members["checked"]),
                int(members["taken"]),
                _number(members.get("since")),
                _part_of(members.get("part")),
                _ids(members.get("queues")),
                _ids(members.get("partitions")),
                _number(members.get("timeline")),
                _number(members.get("newest")),
                _joining_of(members.get("joining")),
                bool(members.get("rewound")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidPosition(f"this is not a position of Skep: {members!r}") from error

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; raise `InvalidPosition`."""
        try:
            return cls.from_json(json.loads(text))
        except json.JSONDecodeError as error:
            raise InvalidPosition(f"this is not a position of Skep: {text!r}") from error


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _part_of(members: Any) -> Part | None:
    if members is None:
        return None
    return Part(Snapshot.parse(members["snapshot"]), _address(members["through"]))


def _address(members: Any) -> Address:
    xid, partition_id, first = map(int, members)
    return Address(xid, partition_id, first)


def _joining_members(joining: Joining) -> dict[str, Any]:
    return _given(
        {
            "partitions": _ranges(joining.partitions),
            "queues": _ranges(joining.queues),
            "seen": str(joining.seen),
            "since": joining.since_us,
            "through": list(joining.through),
        }
    )


def _joining_of(members: Any) -> Joining | None:
    if members is None:
        return None
    return Joining(
        _ids(members["queues"]) or (),
        _ids(members.get("partitions")),
        Snapshot.parse(members["seen"]),
        _address(members["through"]),
        _number(members.get("since")),
    )


def _ranges(ids: tuple[int, ...] | None) -> str | None:
    """Spell ids as ranges: those of queues that match a pattern mostly follow each other."""
    if ids is None:
        return None
    ranges: list[list[int]] = []
    for each in sorted(ids):
        if ranges and each == ranges[-1][1] + 1:
            ranges[-1][1] = each
        else:
            ranges.append([each, each])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _ids(ranges: Any) -> tuple[int, ...] | None:
    if ranges is None:
        return None
    if not _RANGES.fullmatch(ranges):
        raise InvalidPosition(f"{ranges!r} are not ids, spelled 1-3,5")
    bounds = [part.partition("-") for part in ranges.split(",") if part]
    return tuple(each for low, _, high in bounds for each in range(int(low), int(high or low) + 1))


@dataclass(frozen=True, slots=True)
class Span:
    """Segments to read: those that `upto` sees and `seen` does not, between two addresses."""

    seen: Snapshot
    upto: Snapshot
    after: Address | None = None
    through: Address | None = None

    def parts(self, ends: Iterable[Address]) -> Iterator["Span"]:
        """Yield it in parts that end at these addresses."""
        for after, through in pairwise([self.after, *ends]):
            yield replace(self, after=after, through=through)


def spans_between(start: Position, end: Position) -> list[Span]:
    """Return disjoint spans of what `end` has and `start` has not; raise `InvalidPosition`."""
    if end.is_rewound:
        return []
    if not _leads_to(start, end):
        raise InvalidPosition(
            f"the position {end} does not come after {start}. If a micro-batch was interrupted "
            "before its first commit, the start `latest` was not kept: set the option "
            "consumerGroup, or begin with a new checkpoint."
        )
    if start.part and end.part and start.part.snapshot == end.part.snapshot:
        return [Span(start.seen, end.target, start.part.through, end.part.through)]
    spans: list[Span] = []
    seen = start.seen
    if start.part is not None:
        spans.append(Span(seen, start.part.snapshot, after=start.part.through))
        seen = start.part.snapshot
    if seen != end.seen:
        spans.append(Span(seen, end.seen))
    if end.part is not None:
        spans.append(Span(end.seen, end.part.snapshot, through=end.part.through))
    return spans


def joining_between(start: Position, end: Position) -> list[tuple[Joining, Span]]:
    """Return what `end` has of queues that join, and `start` has not."""
    before, after = start.joining, end.joining
    if before is not None and before.is_of(after):
        through = after and after.through
        return [(before, Span(before.seen, start.seen, before.through, through))]
    found: list[tuple[Joining, Span]] = []
    if before is not None and not end.is_rewound:
        found.append((before, Span(before.seen, start.seen, after=before.through)))
    if after is not None:
        found.append((after, Span(after.seen, end.seen, through=after.through)))
    return found


def _leads_to(start: Position, end: Position) -> bool:
    if start.system != end.system:
        return False
    if start.part and end.part and start.part.snapshot == end.part.snapshot:
        return start.seen == end.seen and start.part.through <= end.part.through
    return end.seen.covers(start.target)
