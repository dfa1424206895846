"""The time zone in which times without one are meant, as in Spark's own functions: the session's.

Spark hands the settings of the session on to every task. Names of zones are those of Java, which
knows more spellings of a fixed offset than Python.
"""

import re
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark import TaskContext

from skep.model.errors import Refused

SETTING: Final = "spark.sql.session.timeZone"
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?")


class UnknownTimeZone(Refused):
    """The time zone of the session is not known to Python."""


def session_zone() -> tzinfo | None:
    """Return the time zone of the session that runs this task; None for that of the machine."""
    context = TaskContext.get()
    name = None if context is None else context.getLocalProperty(SETTING)
    return None if name is None else zone_of(name)


def zone_of(name: str) -> tzinfo:
    """Return a time zone by its name in Java; raise `UnknownTimeZone`."""
    if name in ("UTC", "Etc/UTC", "Z"):
        return UTC
    if (found := _OFFSET.fullmatch(name)) is not None:
        sign, *parts = found.groups()
        hours, minutes, seconds = (int(part or 0) for part in parts)
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise UnknownTimeZone(
            f"Python does not know the time zone {name!r} of the session: set {SETTING} to a name "
            "such as Europe/Berlin, or install the package tzdata on all machines"
        ) from None
