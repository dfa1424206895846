"""How a command ends: its exit code, and the line that says why.

0  it worked
1  the caller has to change something: an argument, a name, an answer to a question
2  the server's side failed
3  who is calling is not known, or may not do this
4  there was nothing: no message to pop, nothing found
"""

from typing import Final

from skep.model.errors import BadRequest, Refused, SkepError

USER_ERROR: Final = 1
SERVER_ERROR: Final = 2
AUTH_ERROR: Final = 3
NOTHING: Final = 4

_AUTH_CODES: Final = frozenset({"access_denied", "unauthenticated", "invalid_token", "forbidden"})
_WHERE: Final = (
    "is the broker running, and is the URL right? `skep context show` says which is used"
)
_WHICH_DATABASE: Final = "is the server running, and is the URL right? `skep config` shows it"
_WHO: Final = "give a token with --token, SKEP_TOKEN or `skep context add`"
_HINTS: Final = {
    "unavailable": _WHICH_DATABASE,
    "not_executed": _WHICH_DATABASE,
    "unreachable": _WHERE,
    "not_sent": _WHERE,
    "access_denied": _WHO,
    "unauthenticated": _WHO,
    "invalid_token": _WHO,
}
"""What to do about errors that, where they are raised, cannot know that a person reads them."""

_HINTS_BY_MESSAGE: Final = {
    "Queue not found": "`skep queues list` shows those there are",
    "Consumer group not found": "`skep groups list` shows those there are",
}
"""The same for errors whose words are those of Queen's wire, which name no commands."""


class Nothing(SkepError):
    """There is nothing."""

    code = "nothing"


def exit_code_of(error: SkepError) -> int:
    """Return the code with which a command ends that raised this."""
    if isinstance(error, Nothing):
        return NOTHING
    if error.code in _AUTH_CODES:
        return AUTH_ERROR
    return USER_ERROR if isinstance(error, BadRequest | Refused) else SERVER_ERROR


def line_of(error: SkepError) -> str:
    """Return what a person is told: what went wrong and, where it is known, what to do."""
    hint = _HINTS.get(error.code) or _HINTS_BY_MESSAGE.get(error.message)
    return (
        f"skep: {error.message}" if hint is None else f"skep: {error.message.rstrip('.')}; {hint}"
    )
