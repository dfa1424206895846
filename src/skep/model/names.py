"""Check the names that clients give to queues, partitions, groups and messages."""

from typing import NoReturn

from skep.model.errors import BadRequest
from skep.model.limits import NAME_CHARS_MAX, TRANSACTION_ID_CHARS_MAX


def check_name(kind: str, name: str) -> str:
    """Return the name; raise `BadRequest` if it is empty or cannot be stored."""
    if not name:
        raise BadRequest(f"{kind} must not be empty")
    return check_optional_name(kind, name)


def check_optional_name(kind: str, name: str | None) -> str:
    """Return the name, or an empty one if there is none; raise as `check_name`."""
    name = name or ""
    if len(name) > NAME_CHARS_MAX:
        raise BadRequest(f"{kind} is longer than {NAME_CHARS_MAX} characters")
    if "\0" in name:  # PostgreSQL text cannot hold one
        raise BadRequest(f"{kind} contains a NUL character")
    return name


def refuse_transaction_id(transaction_id: str) -> NoReturn:
    """Say what is wrong with a transaction id. The check itself stands in the push's inner loop."""
    if len(transaction_id) > TRANSACTION_ID_CHARS_MAX:
        raise BadRequest(f"transactionId is longer than {TRANSACTION_ID_CHARS_MAX} characters")
    raise BadRequest("transactionId contains a NUL character")
