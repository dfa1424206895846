"""Read the marks of stored messages: what expired is passed over, what is sealed is opened.

A message is stored as an envelope, a JSON object whose payload comes last. Most have no marks and
are served as they lie. A sealed one begins with `{"enc":"<key id>",`, one that expires with
`{"expiresAt":"<time>",`, or has that member behind the first. A deleted message is a null.

Only the head of an envelope is looked at, never its payload. The time is this process's clock: a
message expires to the second, not to the millisecond.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from skep.model.encryption import OpenEnvelope

SEALED: Final = b'{"enc":"'
EXPIRING: Final = b'{"expiresAt":"'
_EXPIRY_MEMBER: Final = EXPIRING[1:]
_DELETED: Final = b"null"

PLAIN_INITIAL: Final = b'{"transactionId"'[2]
"""The third byte of an envelope without marks: the initial of its first member. Marks and deleted
messages have another there, so this byte alone tells who needs a closer look."""


def leave_sealed(envelope: bytes) -> bytes:
    """Serve a sealed envelope as it is; for brokers without keys."""
    return envelope


def expiry_of(envelope: bytes) -> datetime | None:
    """Return when a message expires, or None if it never does."""
    start = 1
    if envelope.startswith(SEALED):
        start = envelope.index(b'"', len(SEALED)) + 2  # behind the quote and the comma
    if not envelope.startswith(_EXPIRY_MEMBER, start):
        return None
    start += len(_EXPIRY_MEMBER)
    return datetime.fromisoformat(envelope[start : envelope.index(b'"', start)].decode())


class EnvelopeReader:
    """Decides which stored messages are delivered, and as what."""

    def __init__(
        self,
        open_envelope: OpenEnvelope = leave_sealed,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._open: Final = open_envelope
        self._clock: Final = clock
        self.expired_count = 0
        """Messages passed over because their time was over."""

    def read(self, envelope: bytes) -> bytes | None:
        """Return an envelope to deliver, or None for a message that is deleted or expired.

        Raises:
            SkepError: It is sealed and cannot be opened.
        """
        if envelope == _DELETED:
            return None
        expires_at = expiry_of(envelope)
        if expires_at is not None and expires_at <= self._clock():
            self.expired_count += 1
            return None
        return self._open(envelope) if envelope.startswith(SEALED) else envelope
