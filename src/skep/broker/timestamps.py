"""Times in requests and answers: ISO 8601, UTC, with a Z."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from skep.model.errors import BadRequest

_SECONDS_END: Final = len("2026-01-01T12:00:00.000000")


def parse_moment(field: str, text: str, *, alternatives: Sequence[str] = ()) -> datetime:
    """Parse a time; without a zone it is UTC. The error names words that the field also takes."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        words = ", ".join(f"'{word}'" for word in alternatives)
        choice = f"{words} or " if words else ""
        raise BadRequest(f"{field} must be {choice}an ISO 8601 timestamp") from None


def in_utc(moment: datetime | None) -> datetime | None:
    """Take a time without a zone as UTC."""
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=UTC)


def spell_moment(moment: datetime) -> str:
    """Format a time with milliseconds, as all answers but those to polls do."""
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    return naive.isoformat(timespec="milliseconds") + "Z"


def wire_time(moment: datetime) -> bytes:
    """Format a UTC time with microseconds; five times as fast as `strftime`."""
    return b"%bZ" % moment.isoformat(timespec="microseconds")[:_SECONDS_END].encode()
