"""`skep transaction`: pushes and acknowledgments of a file, all together or none."""

import sys
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from msgspec import Struct, ValidationError, convert

from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Output, print_rows
from skep.model.errors import BadRequest

if TYPE_CHECKING:
    from skep.client import Client

_COLUMNS: Final = ("type", "success", "transactionId", "queueName", "messageId", "error")


class _Transaction(Struct):
    """What must be there; the broker checks the rest."""

    operations: list[dict[str, Any]]


@with_client
def transaction(
    client: "Client",
    file: Annotated[str, typer.Argument(help="JSON or YAML with `operations`; `-` is stdin.")],
    *,
    output: Output = "table",
) -> None:
    """Carry out the operations of a file, all of them or none.

    The file is the body of `POST /api/v1/transaction`. Pushes without a transaction id get one that
    is made of the file's content, so that running it again pushes nothing twice.
    """
    from skep.client import TransactionFailed

    text = _read(file)
    answer = client.request("POST", "/api/v1/transaction", with_push_ids(_parse(file, text), text))
    if not answer["success"]:
        raise TransactionFailed(f"nothing of it happened: {answer.get('error')}")
    print_rows(answer["results"], _COLUMNS, output)


def with_push_ids(body: Any, text: bytes) -> Any:
    """Give the pushes of a transaction ids of which a repetition has the same ones."""
    prefix = blake2b(text, digest_size=12).hexdigest()
    try:
        parsed = convert(body, _Transaction)
    except ValidationError as error:
        raise BadRequest(f"this is no transaction: {error}") from error
    pushes = [item for each in parsed.operations for item in _pushed(each)]
    for place, item in enumerate(pushes, 1):
        if not item.get("transactionId"):
            item["transactionId"] = f"{prefix}-{place}"
    return {**body, "operations": parsed.operations}


def _pushed(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the items of an operation: many in a list, or one spelled flat."""
    if operation.get("type") != "push":
        return []
    return operation.get("items") or [operation]


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise BadRequest(f"{file} cannot be read: {error.strerror}") from error


def _parse(file: str, text: bytes) -> Any:
    # JSON first: it is quicker, and what YAML makes of some texts would surprise.
    import msgspec
    import yaml

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        pass
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadRequest(f"{file} is neither JSON nor YAML: {error}") from error
