"""Check the names that clients give to queues, partitions, groups and messages."""

from skep.model.errors import BadRequest
from skep.model.limits import NAME_CHARS_MAX, TRANSACTION_ID_CHARS_MAX


def check_name(kind: str, name: str) -> str:
    """Return the name if it can be stored.

    Raises:
        BadRequest: It is too long, or holds a NUL, which PostgreSQL text cannot.
    """
    if len(name) > NAME_CHARS_MAX:
        raise BadRequest(f"{kind} is longer than {NAME_CHARS_MAX} characters")
    if "\0" in name:
        raise BadRequest(f"{kind} contains a NUL character")
    return name


def check_transaction_id(transaction_id: str) -> None:
    """Refuse a transaction id that is too long or holds a NUL.

    Raises:
        BadRequest: As said.
    """
    if len(transaction_id) > TRANSACTION_ID_CHARS_MAX:
        raise BadRequest(f"transactionId is longer than {TRANSACTION_ID_CHARS_MAX} characters")
    if "\0" in transaction_id:
        raise BadRequest("transactionId contains a NUL character")
