"""Time SQL calls, and log slow ones with function, duration and sizes.

Arguments are never logged, only their size: they contain payloads, names and keys.
"""

import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from time import perf_counter
from typing import Final, cast

from skep.telemetry.meters import Meters

_log = logging.getLogger("skep.slow_calls")

_FUNCTION: Final = re.compile(r"\bskep\.(\w+)\s*\(")
OTHER: Final = "other"
"""The name of statements that call none of Skep's functions."""


@lru_cache(512)
def function_of(statement: str) -> str:
    """Return the SQL function that a statement calls first."""
    found = _FUNCTION.search(statement)
    return found[1] if found else OTHER


class CallWatch:
    """Times the calls of one set of connections, and logs the slow ones."""

    def __init__(self, meters: Meters | None = None, *, slow_s: float = 0.0) -> None:
        """Log calls of `slow_s` or more; none if it is 0."""
        self._meters: Final = meters or Meters()
        self._slow_s: Final = slow_s

    def note(
        self, statement: str, arguments: Sequence[object], began: float, rows: int | None
    ) -> None:
        """Count a call; `began` is its `perf_counter`, `rows` is None if it failed."""
        seconds = perf_counter() - began
        call = self._meters.calls[function_of(statement)]
        call.durations.observe(seconds)
        if rows is None:
            call.failures += 1
        if self._slow_s and seconds >= self._slow_s:
            _log.warning(
                "slow call",
                extra={
                    "function": function_of(statement),
                    "seconds": round(seconds, 3),
                    "items": item_count(arguments),
                    "bytes": sum(size_of(argument) for argument in arguments),
                    "rows": rows,
                },
            )


def item_count(arguments: Sequence[object]) -> int:
    """Return how many items a call carries: the length of its longest list."""
    lists = (cast("list[object]", each) for each in arguments if isinstance(each, list))
    return max((len(each) for each in lists), default=0)


def size_of(argument: object) -> int:
    """Return about how many bytes an argument takes on the wire."""
    if isinstance(argument, bytes | str):
        return len(argument)
    if isinstance(argument, list):
        return sum(size_of(each) for each in cast("list[object]", argument))
    return 8
