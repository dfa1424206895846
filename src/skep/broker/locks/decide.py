"""What the keys of a lock mean, and what an acquirer may do. Pure.

The permit of a slot is a key: it is held while the key exists, and its token is the version. The
line of those who wait is another key, which exists while there are any: their tickets in order,
each with the process that waits for it. A process shows that it lives by counting its beats there.
"""

import random
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from skep.broker.kv.accept import KeyState, ListedKey
from skep.broker.timestamps import wire_time

PULSE_KEPT_S: Final = 60.0
"""For so long a pulse is remembered that is not looked at."""

PULSES_MAX: Final = 10_000

_SLOT: Final = re.compile(r"0|[1-9]\d{0,3}", re.ASCII)


class _Value(msgspec.Struct, omit_defaults=True):
    owner: str | None
    since: str | None = None


_decode_value: Final = msgspec.json.Decoder(_Value).decode
_encode: Final = msgspec.json.encode


class Permit(NamedTuple):
    """A permit that is held."""

    slot: int
    token: int
    owner: str | None
    since: str
    """When it was acquired."""
    expires_at: datetime | None
    updated_at: datetime

    def is_of(self, token: object, owner: str | None) -> bool:
        """Whether it is still the permit of a holder, who may know an older token of it."""
        return self.token == token or (owner is not None and self.owner == owner)

    def holder(self) -> dict[str, Any]:
        """Return who holds it."""
        return {"slot": self.slot, "owner": self.owner}

    def details(self) -> dict[str, Any]:
        """Return everything about it."""
        expires = None if self.expires_at is None else wire_time(self.expires_at).decode()
        return {
            **self.holder(),
            "token": self.token,
            "since": self.since,
            "expiresAt": expires,
            "renewedAt": wire_time(self.updated_at).decode(),
        }

    def renewed_value(self) -> bytes:
        """Return its value after it is renewed."""
        return _encode(_Value(self.owner, self.since))


def acquired_value(owner: str | None) -> bytes:
    """Return the value of a permit that is acquired."""
    return _encode(_Value(owner))


def permit_of(slot: int, state: KeyState | ListedKey) -> Permit | None:
    """Return the permit that a key stands for; None if the key does not exist.

    A key with any other value holds its slot as well, for an unknown owner.
    """
    if not state.version or state.updated_at is None:
        return None
    try:
        value = _decode_value(state.value or "")
    except msgspec.MsgspecError:
        value = _Value(None)
    since = value.since or wire_time(state.updated_at).decode()
    return Permit(slot, state.version, value.owner, since, state.expires_at, state.updated_at)


def listed_permits(name: str, rows: Sequence[ListedKey]) -> list[Permit]:
    """Return the permits among keys that begin with the name of a lock, by slot."""
    slots = ((row.key.removeprefix(f"{name}#"), row) for row in rows)
    found = [permit_of(int(slot), row) for slot, row in slots if _SLOT.fullmatch(slot)]
    return sorted(permit for permit in found if permit is not None)


class Line(msgspec.Struct, frozen=True):
    """Those who wait for a lock, in order."""

    tickets: list[tuple[str, str]] = msgspec.field(default_factory=list[tuple[str, str]])
    """Ticket and process."""
    beats: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """By process, a number that grows while it lives, and is never used again."""

    def place(self, ticket: str) -> int | None:
        """Return how many wait before a ticket; None if it is not in line."""
        return next((at for at, (each, _) in enumerate(self.tickets) if each == ticket), None)

    def with_ticket(self, ticket: str, process: str, beat: int) -> "Line":
        """Return it with a ticket at the end."""
        return Line([*self.tickets, (ticket, process)], self.beats).beaten(process, beat)

    def without(self, ticket: str) -> "Line":
        """Return it without a ticket."""
        return self._kept([each for each in self.tickets if each[0] != ticket])

    def without_processes(self, processes: set[str]) -> "Line":
        """Return it without the tickets of processes that do not live."""
        return self._kept([each for each in self.tickets if each[1] not in processes])

    def beaten(self, process: str, beat: int) -> "Line":
        """Return it with the newest beat of a process."""
        return Line(self.tickets, {**self.beats, process: beat})

    def _kept(self, tickets: list[tuple[str, str]]) -> "Line":
        processes = {process for _, process in tickets}
        beats = {each: beat for each, beat in self.beats.items() if each in processes}
        return Line(tickets, beats)


_decode_line: Final = msgspec.json.Decoder(Line).decode


def line_of(state: KeyState) -> Line:
    """Return the line that a key stands for; one that cannot be read is empty."""
    try:
        return _decode_line(state.value or "{}") if state.version else Line()
    except msgspec.MsgspecError:
        return Line()


class View(NamedTuple):
    """The keys of a lock at one instant."""

    permits: Mapping[int, Permit]
    """Those that are held, by slot."""
    line: Line
    line_version: int
    """0: no one waits."""


class Mine(NamedTuple):
    """The owner holds a permit already."""

    permit: Permit


class Take(NamedTuple):
    """A permit may be taken, if the line is still the same."""

    slot: int


class Busy(NamedTuple):
    """Others hold all permits, or have waited for longer."""

    is_in_line: bool


def choose(view: View, *, owner: str | None, limit: int, ticket: str | None) -> Mine | Take | Busy:
    """Decide what an acquirer may do: the first in line may take what is free."""
    if owner is not None:
        for slot, permit in sorted(view.permits.items()):
            if slot < limit and permit.owner == owner:
                return Mine(permit)
    free = [slot for slot in range(limit) if slot not in view.permits]
    place = None if ticket is None else view.line.place(ticket)
    before = len(view.line.tickets) if place is None else place
    if before < len(free):
        return Take(random.choice(free))  # noqa: S311 (spreads acquirers, no secret)
    return Busy(place is not None)


class Pulse:
    """Tells which processes of a line do not live any more."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s: Final = silence_s
        self._heard: dict[str, tuple[int, float]] = {}

    def silent(self, line: Line, now: float) -> set[str]:
        """Return the processes that have not beaten for long, as far as was seen here."""
        heard: dict[str, tuple[int, float]] = {}
        for _, process in line.tickets:
            beat = line.beats.get(process, 0)
            before = self._heard.get(process)
            heard[process] = before if before is not None and before[0] == beat else (beat, now)
        self._heard = heard
        return {each for each, (_, at) in heard.items() if now - at > self._silence_s}


class Pulses:
    """The pulses of lines, by lock; one that is not looked at for long is forgotten.

    They outlive the waiters of this process, who may all be gone before a process was silent for
    long enough.
    """

    def __init__(self, silence_s: float) -> None:
        self._silence_s: Final = silence_s
        self._by_name: Final[OrderedDict[str, tuple[Pulse, float]]] = OrderedDict()
        """With the time of the last look, the oldest first."""

    def __len__(self) -> int:
        return len(self._by_name)

    def silent(self, name: str, line: Line, now: float) -> set[str]:
        """Return the processes in the line of a lock that have not beaten for long."""
        pulse, _ = self._by_name.pop(name, None) or (Pulse(self._silence_s), now)
        self._by_name[name] = pulse, now
        while not self._are_few(now):
            self._by_name.popitem(last=False)
        return pulse.silent(line, now)

    def _are_few(self, now: float) -> bool:
        _, looked_at = next(iter(self._by_name.values()))
        return len(self._by_name) <= PULSES_MAX and now - looked_at <= PULSE_KEPT_S
