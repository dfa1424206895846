"""Moments in requests and answers: ISO 8601, UTC, with a Z."""

from datetime import UTC, datetime

from skep.model.errors import BadRequest


def parse_moment(field: str, text: str, *, alternative: str | None = None) -> datetime:
    """Read a moment; without a zone it is UTC.

    Args:
        field: Who is to blame for a text that is none.
        text: What was sent.
        alternative: A word that the caller takes instead, for those who do not know it.

    Raises:
        BadRequest: The text is no ISO 8601 timestamp.
    """
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        choice = f"'{alternative}' or " if alternative else ""
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
