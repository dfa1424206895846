"""When leases are renewed. Pure: the caller brings the time, and does the renewing.

A lease is renewed after a third of its length, so that two renewals may fail before it ends. One
that could not be renewed is tried again soon, until it has ended: then it is lost. None is kept for
longer than its limit, so that a handler that hangs does not keep its partition for ever.
"""

from dataclasses import dataclass
from math import inf
from typing import Final

_SHARE: Final = 1 / 3
_SHARE_AFTER_FAILURE: Final = 1 / 15


@dataclass(slots=True)
class KeptLease:
    """A lease that somebody works under."""

    id: str
    affinity: str
    """Which broker is asked: the one that gave the lease."""
    length_s: float
    ends_at_s: float
    due_at_s: float
    kept_until_s: float
    is_lost: bool = False


UNLEASED: Final = KeptLease("", "", inf, inf, inf, inf)
"""Stands where messages are held by no lease that is kept."""


class Renewals:
    """The leases that are kept, and which of them is due."""

    def __init__(self) -> None:
        self._leases: Final[dict[str, KeptLease]] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def keep(
        self, lease_id: str, affinity: str, *, length_s: float, limit_s: float, now_s: float
    ) -> KeptLease:
        """Begin to keep a lease that was given just now."""
        lease = KeptLease(
            id=lease_id,
            affinity=affinity,
            length_s=length_s,
            ends_at_s=now_s + length_s,
            due_at_s=now_s + length_s * _SHARE,
            kept_until_s=now_s + limit_s,
        )
        self._leases[lease_id] = lease
        return lease

    def forget(self, lease_id: str) -> None:
        """Keep a lease no longer; it may be unknown."""
        self._leases.pop(lease_id, None)

    def due_at_s(self) -> float:
        """Return when the next lease is due; never, when none is kept."""
        return min((lease.due_at_s for lease in self._leases.values()), default=inf)

    def take_due(self, now_s: float) -> list[KeptLease]:
        """Return the leases to renew now. Those that ended or passed their limit are dropped."""
        due = [lease for lease in self._leases.values() if lease.due_at_s <= now_s]
        for lease in due:
            if lease.ends_at_s <= now_s:
                self.lose(lease)
            elif lease.kept_until_s <= now_s:
                self.forget(lease.id)
        return [lease for lease in due if lease.id in self._leases]

    def renewed(self, lease: KeptLease, asked_at_s: float) -> None:
        """Note that a lease lasts for another length, from the moment it was asked for."""
        lease.ends_at_s = asked_at_s + lease.length_s
        lease.due_at_s = asked_at_s + lease.length_s * _SHARE

    def postponed(self, lease: KeptLease, now_s: float) -> None:
        """Note that nobody answered: try again soon."""
        lease.due_at_s = now_s + lease.length_s * _SHARE_AFTER_FAILURE

    def lose(self, lease: KeptLease) -> None:
        """Note that a lease is over: the broker said so, or its time ran out."""
        lease.is_lost = True
        self.forget(lease.id)
