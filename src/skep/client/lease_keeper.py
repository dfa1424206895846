"""Renew leases from a thread of its own.

A handler may hold up the event loop or its own thread for as long as it likes: its leases are
renewed all the same. One keeper serves all consumers of a client; its thread starts with the first
lease, and ends with the client. What is due when is decided by `renewals`.
"""

import logging
import threading
from math import inf
from time import monotonic
from typing import Final

import msgspec

from skep.client.blocking.session import Session
from skep.client.renewals import KeptLease, Renewals
from skep.client.retry import RetryPolicy
from skep.client.session_options import SessionOptions
from skep.client.values import Renewed
from skep.model.errors import SkepError

_log = logging.getLogger("skep.client")

_ONCE: Final = RetryPolicy(retries=0)
_TRY_S_MAX: Final = 5.0
_SLEEP_S_MAX: Final = 3_600.0

_decode_renewed: Final = msgspec.json.Decoder(Renewed).decode


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

    def keep(self, lease_id: str, affinity: str, *, length_s: float, limit_s: float) -> KeptLease:
        """Begin to keep a lease that was given just now."""
        with self._lock:
            lease = self._renewals.keep(
                lease_id, affinity, length_s=length_s, limit_s=limit_s, now_s=monotonic()
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
        # A renewal in flight would hold up whoever closes; its thread is a daemon.
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
            _log.debug("lease %s could not be renewed: %s", lease.id, error)
            with self._changed:
                self._renewals.postponed(lease, monotonic())
            return
        with self._changed:
            if is_renewed:
                self._renewals.renewed(lease, asked_at_s)
            else:
                self._renewals.lose(lease)
