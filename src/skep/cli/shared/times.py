"""Times as people type them: a moment in ISO 8601, or how long ago (`90s`, `15m`, `2h`, `7d`).

Where a time names what is done, so that the same command is the same thing tomorrow, only a moment
will do (`read_fixed_moment`).
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeAlias

import typer

from skep.model.errors import BadRequest

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])(?: ago)?")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def read_moment(text: str) -> datetime:
    """Return the moment that a text stands for; one without a zone is UTC.

    Raises:
        BadRequest: It stands for none.
    """
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise BadRequest(
            f"{text} is no time: write 2026-07-01T12:00:00Z, or 90s, 15m, 2h, 7d for how long ago"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def read_fixed_moment(text: str) -> datetime:
    """Return the moment that a text stands for, at whatever time it is read.

    Raises:
        BadRequest: It stands for none, or for another one each time.
    """
    if _AGO.fullmatch(text.strip()):
        raise BadRequest(f"{text} is another time whenever it is read: write 2026-07-01T12:00:00Z")
    return read_moment(text)


Since: TypeAlias = Annotated[
    datetime | None,
    typer.Option(parser=read_moment, metavar="TIME", help="Only then or later: ISO 8601, or `2h`."),
]
Until: TypeAlias = Annotated[
    datetime | None,
    typer.Option(
        parser=read_moment, metavar="TIME", help="Only then or earlier: ISO 8601, or `2h`."
    ),
]
