# Generated from skep/client/aio/lock.py by tools/generate_blocking_client.py; edit that.
"""A lock or a permit of a semaphore, held until it is released."""

import logging
from time import monotonic
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

import msgspec

from skep.client.blocking.session import Session
from skep.client.endpoints import path_of
from skep.client.errors import LeaseLost
from skep.client.io_blocking import Background, Stop
from skep.client.pushes import encode
from skep.client.values import LockResult, LockResults
from skep.model.errors import Refused, SkepError

_log = logging.getLogger("skep.client")

_SHARE: Final = 1 / 3
"""Of its time to live, after which a permit is renewed."""

_SHARE_AFTER_FAILURE: Final = 1 / 15

_decode: Final = msgspec.json.Decoder(LockResults).decode


class Lock:
    """One holder's lock, or permit of a semaphore; renewed while it is held.

        with client.lock("daily-report", ttl_s=30) as lock:
            write_report(fencing_token=lock.token)

    A holder that is slow may lose it without noticing: what must not be done twice has to compare
    the token, which only grows, or be committed under `guard`.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        ttl_s: int,
        limit: int = 1,
        owner: str | None = None,
        wait_s: float = 0,
        renews: bool = True,
    ) -> None:
        self._session: Final = session
        self._wait_s: Final = wait_s
        self._ttl_s: Final = ttl_s
        self._limit: Final = limit
        self._renews: Final = renews
        self._permit: LockResult | None = None
        self._held_until_s = 0.0
        self._stop = Stop()
        self._keeper: Background | None = None
        self.name: Final = name
        self.owner: Final = owner or str(uuid4())
        """Makes it safe to ask again when an answer was lost."""

    @property
    def is_held(self) -> bool:
        """Whether it is held, as far as this process can know."""
        return self._permit is not None and monotonic() < self._held_until_s

    @property
    def token(self) -> int:
        """The fencing token; it changes when the lock is renewed, and only grows.

        Raises:
            LeaseLost: It is not held.
        """
        return self._held().token

    @property
    def slot(self) -> int:
        """Which permit of a semaphore it is."""
        return self._held().slot

    @property
    def guard(self) -> dict[str, Any]:
        """An operation on keys that undoes its call unless the lock is still held."""
        return self._held().guard

    def acquire(self, wait_s: float | None = None) -> bool:
        """Take it, waiting in line for so long; return whether it is held."""
        if self.is_held:
            return True
        self._end_keeper()  # which may still try to renew what was lost
        wait_s = self._wait_s if wait_s is None else wait_s
        asked = {"ttlSeconds": self._ttl_s, "limit": self._limit, "waitMs": round(wait_s * 1000)}
        result, asked_at_s = self._ask("acquire", wait_s, **asked)
        if not result.acquired:
            return False
        self._permit, self._held_until_s = result, asked_at_s + self._ttl_s
        # When it was granted is not known after a wait, nor if the owner held it before.
        is_late = monotonic() - asked_at_s > self._ttl_s * _SHARE
        if (result.already or is_late) and not self._renew_or_lose():
            return False
        if self._renews:
            self._stop = Stop()
            self._keeper = Background(self._keep)
        return True

    def renew(self) -> bool:
        """Hold it for another time to live; false if another holds it."""
        permit = self._permit
        if permit is None:
            return False
        asked = {"ttlSeconds": self._ttl_s, "token": permit.token, "slot": permit.slot}
        result, asked_at_s = self._ask("renew", **asked)
        if not result.renewed:
            self._permit = None
            return False
        self._permit, self._held_until_s = result, asked_at_s + self._ttl_s
        return True

    def release(self) -> bool:
        """Give it back; false if it was not held any more."""
        self._end_keeper()
        permit, self._permit = self._permit, None
        if permit is None:
            return False
        result, _ = self._ask("release", token=permit.token, slot=permit.slot)
        if any(holder.owner == self.owner for holder in result.holders):
            # The answer of a renewal was lost, and with it the token.
            self._permit = permit
            if self._renew_or_lose():
                permit, self._permit = self._held(), None
                result, _ = self._ask("release", token=permit.token, slot=permit.slot)
        return bool(result.released)

    def __enter__(self) -> "Lock":
        if not self.acquire():
            raise Refused(f"the lock {self.name} is held by another")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except SkepError as failure:  # it ends by itself
            _log.warning("lock %s was not released: %s", self.name, failure)

    def _end_keeper(self) -> None:
        self._stop.set()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.join()

    def _renew_or_lose(self) -> bool:
        """Renew it; if it is not known what became of that, it is not held."""
        try:
            return self.renew()
        except SkepError:
            self._permit = None
            raise

    def _held(self) -> LockResult:
        permit = self._permit
        if permit is None or not self.is_held:
            raise LeaseLost(f"the lock {self.name} is not held")
        return permit

    def _ask(self, op: str, wait_s: float = 0, **members: Any) -> tuple[LockResult, float]:
        """Send an operation; return its result, and when it was sent."""
        operation = {"op": op, "name": self.name, "owner": self.owner, **members}
        asked_at_s = monotonic()
        answer = self._session.request(
            "POST",
            path_of("locks"),
            encode({"operations": [operation]}),
            timeout_s=self._session.options.timeout_s + wait_s,
        )
        return _decode(answer.body).results[0], asked_at_s

    def _keep(self) -> None:
        """Renew it until it is released or lost."""
        pause_s = self._ttl_s * _SHARE
        while not self._stop.is_set:
            self._stop.pause(pause_s)
            if self._stop.is_set:
                return
            try:
                if not self.renew():
                    _log.warning("lock %s is lost: another holds it", self.name)
                    return
                pause_s = self._ttl_s * _SHARE
            except SkepError as failure:
                _log.warning("lock %s was not renewed: %s", self.name, failure)
                pause_s = self._ttl_s * _SHARE_AFTER_FAILURE
                if not self.is_held:
                    return
