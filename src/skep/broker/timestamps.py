"""Moments in requests and answers: ISO 8601, UTC, with a Z."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from skep.model.errors import BadRequest

_SECONDS_END: Final = len("2026-01-01T12:00:00.000000")


def parse_moment(field: str, text: str, *, alternatives: Sequence[str] = ()) -> datetime:
    """Read a moment; without a zone it is UTC.

    Args:
        field: Who is to blame for a text that is none.
        text: What was sent.
        alternatives: Words that the caller takes instead, for those who do not know them.

    Raises:
        BadRequest: The text is no ISO 8601 timestamp.
    """
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        words = ", ".join(f"'{word}'" for word in alternatives)
        choice = f"{words} or " if words else ""
        raise BadRequest(f"{field} must be {choice}an ISO 8601 timestamp") from None


def in_utc(moment: datetime | None) -> datetime | None:
    """Give a moment without a zone the zone UTC."""
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=UTC)


def spell_moment(moment: datetime) -> str:
    """Spell a moment with milliseconds, as all answers but those to polls do."""
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    return naive.isoformat(timespec="milliseconds") + "Z"


def wire_time(moment: datetime) -> bytes:
    """Spell a moment, which is in UTC, with microseconds; five times as fast as `strftime`."""
    return b"%bZ" % moment.isoformat(timespec="microseconds")[:_SECONDS_END].encode()
