"""Leases kept alive by a thread of their own.

A handler may hold up the event loop or its own thread for as long as it likes: its leases are
renewed all the same. One keeper serves all consumers of a client; its thread starts with the first
lease and ends with the client.

A lease is renewed after a third of its length, so that two renewals may fail before it ends. One
that could not be renewed is tried again soon, until it has ended: then it is lost. None is kept for
longer than its limit, so that a handler that hangs does not keep its partition for ever.
"""

import logging
import threading
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Final

import msgspec

from skep.client.blocking.session import Session
from skep.client.options import ConsumeOptions, RetryPolicy, SessionOptions
from skep.client.values import Renewed
from skep.model.errors import SkepError

_log = logging.getLogger("skep.client")

_SHARE: Final = 1 / 3
_SHARE_AFTER_FAILURE: Final = 1 / 15
_ONCE: Final = RetryPolicy(retries=0)
_TRY_S_MAX: Final = 5.0
_SLEEP_S_MAX: Final = 3_600.0

_decode_renewed: Final = msgspec.json.Decoder(Renewed).decode


@dataclass(slots=True)
class KeptLease:
    """A lease under which messages are being handled."""

    id: str
    affinity: str
    """Which broker is asked: the one that gave the lease."""
    length_s: float
    ends_at_s: float
    due_at_s: float
    kept_until_s: float
    is_lost: bool = False


UNLEASED: Final = KeptLease("", "", inf, inf, inf, inf)
"""Stands for the lease of messages that are held by none, or by one that is not kept."""


class Renewals:
    """The leases that are kept, and which of them is due. Pure: the caller brings the time."""

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
        """Note that no broker answered: try again soon."""
        lease.due_at_s = now_s + lease.length_s * _SHARE_AFTER_FAILURE

    def lose(self, lease: KeptLease) -> None:
        """Note that a lease is over: the broker said so, or its time ran out."""
        lease.is_lost = True
        self.forget(lease.id)


class LeaseKeeper:
    """The leases of a client, kept alive."""

    def __init__(self, options: SessionOptions) -> None:
        self._session: Final = Session(options)
        self._renewals: Final = Renewals()
        # Taken with every batch, and a lock costs a fifth of the condition around it.
        self._lock: Final = threading.Lock()
        self._changed: Final = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._awake_at_s = inf
        self._is_closed = False

    def keep(self, lease_id: str, options: ConsumeOptions) -> KeptLease:
        """Begin to keep a lease that was given just now."""
        with self._lock:
            lease = self._renewals.keep(
                lease_id,
                options.affinity,
                length_s=options.lease_s,
                limit_s=options.lease_s_max,
                now_s=monotonic(),
            )
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, daemon=True, name="skep-lease-keeper"
                )
                self._thread.start()
            # Waking the thread for nothing would cost more than the lease.
            if lease.due_at_s < self._awake_at_s:
                self._changed.notify_all()
        return lease

    def forget(self, lease_id: str) -> None:
        """Keep a lease no longer; it may be unknown."""
        with self._lock:
            self._renewals.forget(lease_id)

    def close(self) -> None:
        """Keep nothing any more, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        # A renewal in flight would hold up the caller; its thread is a daemon.
        self._session.close()

    def _run(self) -> None:
        while (due := self._wait_for_due()) is not None:
            for lease in due:
                self._renew(lease)

    def _wait_for_due(self) -> list[KeptLease] | None:
        with self._changed:
            while not self._is_closed:
                if due := self._renewals.take_due(monotonic()):
                    return due
                self._awake_at_s = min(self._renewals.due_at_s(), monotonic() + _SLEEP_S_MAX)
                self._changed.wait(max(self._awake_at_s - monotonic(), 0))
        return None

    def _renew(self, lease: KeptLease) -> None:
        asked_at_s = monotonic()
        try:
            answer = self._session.request(
                "POST",
                f"/api/v1/lease/{lease.id}/extend",
                b'{"seconds":%d}' % max(round(lease.length_s), 1),
                affinity=lease.affinity,
                timeout_s=_TRY_S_MAX,
                retry=_ONCE,
            )
            is_renewed = _decode_renewed(answer.body).success
        except (SkepError, msgspec.MsgspecError) as error:
            _log.debug("could not renew lease %s, trying again: %s", lease.id, error)
            with self._changed:
                self._renewals.postponed(lease, monotonic())
            return
        with self._changed:
            if is_renewed:
                self._renewals.renewed(lease, asked_at_s)
            else:
                self._renewals.lose(lease)
